// SPDX-License-Identifier: Apache-2.0
// Reading distributed checkpoints. The metadata is untrusted. It maps rows of tensors to files.
// Files are loaded one at a time.
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "io/checkpoint_impl.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/view.h"

struct px_checkpoint {
  px_object head;
  char *folder;
  px_tree *metadata, *files, *tensors, *values;  // `metadata` is owned; the others are parts of it
  int64_t (*sizes)[PX_MAX_DIMS];                 // per tensor
};

px_status px__checkpoint_path(char *path, const char *folder, const char *name) {
  int length = snprintf(path, PX__CHECKPOINT_PATH, "%s/%s", folder, name);
  PX_CHECK(length < PX__CHECKPOINT_PATH, PX_VALUE, "the path of a checkpoint is too long");
  return PX_OK;
}

int64_t px__checkpoint_rows(const px_tensor *part) {
  return px_tensor_ndim(part) ? px_tensor_size(part, 0) : 1;
}

// ---- the metadata

static bool is_list(const px_tree *tree, int64_t size) {
  return tree && px_tree_kind_of(tree) == PX_TREE_LIST && (size < 0 || px_tree_size(tree) == size);
}
static bool is_count(const px_tree *tree) {
  if (!tree || px_tree_kind_of(tree) != PX_TREE_NUMBER) return false;
  px_scalar number = px_tree_get_number(tree);
  return number.kind == 'i' && number.v.i >= 0;
}
static int64_t count_of(const px_tree *list, int i) {
  return px_scalar_int(px_tree_get_number(px_tree_at(list, i)));
}

// True for a [name, size] pair whose name is a plain file name.
static bool is_file(const px_tree *pair) {
  const char *name = is_list(pair, 2) ? px_tree_get_text(px_tree_at(pair, 0)) : NULL;
  return name && *name && *name != '.' && !strchr(name, '/') && is_count(px_tree_at(pair, 1));
}

static bool is_piece(const px_checkpoint *self, const px_tree *piece, int64_t rows) {
  if (!is_list(piece, PX__PIECE_PARTS)) return false;
  for (int i = 0; i < PX__PIECE_PARTS; i++)
    if (!is_count(px_tree_at(piece, i))) return false;
  int64_t first = count_of(piece, PX__PIECE_FIRST), count = count_of(piece, PX__PIECE_ROWS);
  return count_of(piece, PX__PIECE_FILE) < px_tree_size(self->files) && first <= rows &&
         count <= rows - first;
}

static bool is_entry(const px_checkpoint *self, const px_tree *entry, int64_t *sizes) {
  if (!is_list(entry, PX__ENTRY_PARTS)) return false;
  const px_tree *whole = px_tree_at(entry, PX__ENTRY_SIZES);
  const px_tree *pieces = px_tree_at(entry, PX__ENTRY_PIECES);
  bool good = px_tree_kind_of(px_tree_at(entry, PX__ENTRY_DTYPE)) == PX_TREE_DTYPE &&
              px_tree_kind_of(whole) == PX_TREE_SIZE && px_tree_size(whole) <= PX_MAX_DIMS &&
              is_list(pieces, -1);
  for (int64_t d = 0; good && d < px_tree_size(whole); d++) {
    good = is_count(px_tree_at(whole, d));
    if (good) sizes[d] = count_of(whole, (int)d);
  }
  int64_t rows = good && px_tree_size(whole) ? sizes[0] : 1;
  for (int64_t i = 0; good && i < px_tree_size(pieces); i++)
    good = is_piece(self, px_tree_at(pieces, i), rows);
  return good;
}

static px_status check_metadata(px_checkpoint *self) {
  const px_tree *version = px_tree_get(self->metadata, "version");
  bool dict = px_tree_kind_of(self->metadata) == PX_TREE_DICT && version && is_count(version);
  PX_CHECK(dict, PX_RUNTIME, "'%s' is not a checkpoint: its .metadata has no version",
           self->folder);
  int64_t number = px_scalar_int(px_tree_get_number(version));
  PX_CHECK(number == PX__CHECKPOINT_VERSION, PX_RUNTIME,
           "the checkpoint '%s' has version %lld, unsupported by this version of Phlox",
           self->folder, (long long)number);
  self->files = px_tree_get(self->metadata, "files");
  self->tensors = px_tree_get(self->metadata, "tensors");
  self->values = px_tree_get(self->metadata, "values");
  bool good = is_list(self->files, -1) && self->tensors && self->values &&
              px_tree_kind_of(self->tensors) == PX_TREE_DICT &&
              px_tree_kind_of(self->values) == PX_TREE_DICT;
  for (int64_t i = 0; good && i < px_tree_size(self->files); i++)
    good = is_file(px_tree_at(self->files, i));
  int64_t count = good ? px_tree_size(self->tensors) : 0;
  PX_TRY(px_alloc((void **)&self->sizes, (size_t)(count + 1) * sizeof *self->sizes));
  for (int64_t i = 0; good && i < count; i++)
    good = px_tree_get_text(px_tree_key(self->tensors, i)) &&
           is_entry(self, px_tree_at(self->tensors, i), self->sizes[i]);
  PX_CHECK(good, PX_RUNTIME, "the .metadata of the checkpoint '%s' is damaged", self->folder);
  return PX_OK;
}

static void checkpoint_destroy(void *object) {
  px_checkpoint *self = object;
  px_release(self->metadata);
  px_free(self->sizes);
  px_free(self->folder);
  px_object_end(self);
  px_free(self);
}

px_status px_checkpoint_open(px_checkpoint **out, const char *folder) {
  static const px_class cls = {"checkpoint", checkpoint_destroy};
  char path[PX__CHECKPOINT_PATH];
  px_checkpoint *self;
  struct stat info;
  PX_GIVEN(out);
  PX_GIVEN(folder);
  PX_TRY(px__checkpoint_path(path, folder, PX__CHECKPOINT_METADATA));
  PX_CHECK(stat(path, &info) == 0, PX_NOT_FOUND,
           "[Errno 2] No such file or directory: '%s': no complete checkpoint in this folder",
           path);
  PX_TRY(px_alloc((void **)&self, sizeof *self));
  PX_SCOPED(px_checkpoint) owned = self;
  px_object_init(self, &cls);
  PX_TRY(px_strdup(&self->folder, folder));
  PX_TRY(px_load_tree(&self->metadata, path, px_cpu()));
  PX_TRY(check_metadata(self));
  *out = PX_MOVE(owned);
  return PX_OK;
}

bool px_checkpoint_at(const px_checkpoint *self, int i, px_checkpoint_entry *out) {
  if (i < 0 || i >= px_tree_size(self->tensors)) return false;
  const px_tree *entry = px_tree_at(self->tensors, i);
  *out = (px_checkpoint_entry){
      .name = px_tree_get_text(px_tree_key(self->tensors, i)),
      .dtype = px_tree_get_dtype(px_tree_at(entry, PX__ENTRY_DTYPE)),
      .ndim = (int)px_tree_size(px_tree_at(entry, PX__ENTRY_SIZES)),
      .sizes = self->sizes[i],
  };
  return true;
}

bool px_checkpoint_find(const px_checkpoint *self, const char *name, px_checkpoint_entry *out) {
  for (int i = 0; px_checkpoint_at(self, i, out); i++)
    if (!strcmp(out->name, name)) return true;
  return false;
}

px_tree *px_checkpoint_values(const px_checkpoint *self) { return self->values; }

// ---- validation before any tensor changes

static void size_text(char *text, size_t size, int ndim, const int64_t *sizes) {
  size_t used = (size_t)snprintf(text, size, "torch.Size([");
  for (int d = 0; d < ndim && used < size; d++)
    used +=
        (size_t)snprintf(text + used, size - used, "%s%lld", d ? ", " : "", (long long)sizes[d]);
  if (used < size) snprintf(text + used, size - used, "])");
}

static px_status check_item(const px_checkpoint *self, const px_checkpoint_item *item) {
  px_checkpoint_entry saved;
  char saved_text[300], item_text[300];
  PX_CHECK(item->name && item->part, PX_TYPE, "expected a name and a tensor to read, got NULL");
  PX_CHECK(px_checkpoint_find(self, item->name, &saved), PX_RUNTIME,
           "Missing key in checkpoint state_dict: %s.", item->name);
  int ndim = px_tensor_ndim(item->part);
  const int64_t *sizes = item->sizes ? item->sizes : px_tensor_sizes(item->part);
  bool same = ndim == saved.ndim;
  for (int d = 0; same && d < ndim; d++) same = sizes[d] == saved.sizes[d];
  size_text(saved_text, sizeof saved_text, saved.ndim, saved.sizes);
  size_text(item_text, sizeof item_text, ndim, sizes);
  PX_CHECK(same, PX_VALUE, "Size mismatch between saved %s and current: %s for %s", saved_text,
           item_text, item->name);
  int64_t first = item->sizes ? item->first : 0, rows = px__checkpoint_rows(item->part);
  PX_CHECK(!ndim || (first >= 0 && rows <= sizes[0] && first <= sizes[0] - rows), PX_VALUE,
           "rows %lld to %lld of %s are out of range for %lld rows", (long long)first,
           (long long)(first + rows), item->name, (long long)sizes[0]);
  return PX_OK;
}

// Number of rows of an item contained in a piece, from row *from on.
static int64_t overlap(const px_checkpoint_item *item, const px_tree *piece, int64_t *from) {
  int64_t first = item->sizes ? item->first : 0, end = first + px__checkpoint_rows(item->part);
  int64_t begin = count_of(piece, PX__PIECE_FIRST);
  int64_t stop = begin + count_of(piece, PX__PIECE_ROWS);
  *from = begin > first ? begin : first;
  return (stop < end ? stop : end) - *from;
}

static const px_tree *pieces_of(const px_checkpoint *self, const char *name) {
  return px_tree_at(px_tree_get(self->tensors, name), PX__ENTRY_PIECES);
}

static bool needs_file(const px_checkpoint *self, const px_checkpoint_item *item, int64_t file) {
  const px_tree *pieces = pieces_of(self, item->name);
  int64_t from;
  for (int64_t i = 0; i < px_tree_size(pieces); i++) {
    const px_tree *piece = px_tree_at(pieces, i);
    if (count_of(piece, PX__PIECE_FILE) == file && overlap(item, piece, &from) > 0) return true;
  }
  return false;
}

// Fails if the pieces lack rows: the checkpoint may have been saved without some ranks.
static px_status check_rows(const px_checkpoint *self, const px_checkpoint_item *item) {
  const px_tree *pieces = pieces_of(self, item->name);
  int64_t from, expected = px__checkpoint_rows(item->part);
  uint64_t found = 0;  // stops above `expected`: the sum of all pieces could overflow
  for (int64_t i = 0; i < px_tree_size(pieces) && found <= (uint64_t)expected; i++) {
    int64_t n = overlap(item, px_tree_at(pieces, i), &from);
    found += n > 0 ? (uint64_t)n : 0;
  }
  PX_CHECK(found == (uint64_t)expected || !px_tensor_numel(item->part), PX_RUNTIME,
           "the checkpoint '%s' has %llu of the %lld requested rows of %s", self->folder,
           (unsigned long long)found, (long long)expected, item->name);
  return PX_OK;
}

static px_status file_path(char *path, const px_checkpoint *self, int64_t file) {
  return px__checkpoint_path(path, self->folder,
                             px_tree_get_text(px_tree_at(px_tree_at(self->files, file), 0)));
}

static px_status check_file(const px_checkpoint *self, int64_t file) {
  char path[PX__CHECKPOINT_PATH];
  struct stat info;
  int64_t expected = count_of(px_tree_at(self->files, file), 1);
  PX_TRY(file_path(path, self, file));
  PX_CHECK(!px__file_fault() && stat(path, &info) == 0, PX_RUNTIME,
           "the checkpoint '%s' is incomplete: its file '%s' is missing", self->folder, path);
  PX_CHECK(info.st_size == expected, PX_RUNTIME,
           "the checkpoint '%s' is damaged: expected %lld bytes in its file '%s', got %lld",
           self->folder, (long long)expected, path, (long long)info.st_size);
  return PX_OK;
}

// ---- copying

static px_status copy_piece(const px_checkpoint_item *item, const px_tensor *saved,
                            const px_tree *piece) {
  PX_SCOPED(px_tensor) plain = NULL, *to = NULL, *from = NULL;
  int64_t row, rows = overlap(item, piece, &row);
  if (rows <= 0 || !px_tensor_numel(item->part)) return PX_OK;
  PX_TRY(px_tensor_detach(&plain, item->part));
  if (!px_tensor_ndim(plain)) return px_copy_(plain, saved, false);
  int64_t first = item->sizes ? item->first : 0;
  PX_TRY(px_narrow(&from, saved, 0, row - count_of(piece, PX__PIECE_FIRST), rows));
  PX_TRY(px_narrow(&to, plain, 0, row - first, rows));
  return px_copy_(to, from, false);
}

static px_status check_saved(const px_checkpoint *self, const px_tensor *saved, const char *name,
                             const px_tree *piece) {
  px_checkpoint_entry entry;
  bool fits =
      saved && px_checkpoint_find(self, name, &entry) && entry.ndim == px_tensor_ndim(saved);
  if (fits && entry.ndim) fits = px_tensor_size(saved, 0) == count_of(piece, PX__PIECE_ROWS);
  for (int d = 1; fits && d < entry.ndim; d++) fits = px_tensor_size(saved, d) == entry.sizes[d];
  PX_CHECK(fits, PX_RUNTIME, "the checkpoint '%s' is damaged: its metadata does not match '%s'",
           self->folder, name);
  return PX_OK;
}

static px_status read_file(const px_checkpoint *self, int64_t file, const px_checkpoint_item *items,
                           int count) {
  char path[PX__CHECKPOINT_PATH];
  PX_SCOPED(px_dict) saved = NULL;
  PX_TRY(file_path(path, self, file));
  PX_TRY(px_load(&saved, path, px_cpu()));
  for (int k = 0; k < count; k++) {
    const px_tree *pieces = pieces_of(self, items[k].name);
    for (int64_t i = 0; i < px_tree_size(pieces); i++) {
      const px_tree *piece = px_tree_at(pieces, i);
      if (count_of(piece, PX__PIECE_FILE) != file) continue;
      const px_tensor *tensor = px_dict_get(saved, items[k].name);
      PX_TRY(check_saved(self, tensor, items[k].name, piece));
      PX_TRY(copy_piece(&items[k], tensor, piece));
    }
  }
  return PX_OK;
}

static bool file_is_needed(const px_checkpoint *self, int64_t file, const px_checkpoint_item *items,
                           int count) {
  for (int i = 0; i < count; i++)
    if (needs_file(self, &items[i], file)) return true;
  return false;
}

static px_status read_all(const px_checkpoint *self, const px_checkpoint_item *items, int count) {
  for (int i = 0; i < count; i++) PX_TRY(check_item(self, &items[i]));
  for (int i = 0; i < count; i++) PX_TRY(check_rows(self, &items[i]));
  for (int64_t f = 0; f < px_tree_size(self->files); f++)
    if (file_is_needed(self, f, items, count)) PX_TRY(check_file(self, f));
  for (int64_t f = 0; f < px_tree_size(self->files); f++)
    if (file_is_needed(self, f, items, count)) PX_TRY(read_file(self, f, items, count));
  return PX_OK;
}

px_status px_checkpoint_read(px_checkpoint *self, const px_checkpoint_item *items, int count) {
  PX_GIVEN(self);
  PX_GIVEN_N(items, count);
  bool was = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status = read_all(self, items, count);
  px_grad_set_enabled(was);
  return status;
}
