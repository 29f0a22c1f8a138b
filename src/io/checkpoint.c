// SPDX-License-Identifier: Apache-2.0
// Writing distributed checkpoints.
//
// The ranks exchange descriptions of their tensors, derive the same assignment of tensors to
// writers, and write files with new names. After all ranks have reported success, rank 0 atomically
// replaces `.metadata` and removes files no longer referenced by it.
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "io/checkpoint_impl.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/view.h"

// State of one save on one rank.
typedef struct saving {
  const char *folder;
  px_comm *comm;  // borrowed, or NULL
  px_device device;
  const px_checkpoint_item *items;
  int count, rank, size;
  px_tree **descriptions;  // descriptions of all ranks' tensors; owned
  char stamp[32];
  char file[PX__CHECKPOINT_PATH];  // this rank's
  bool writes;                     // this rank has a file, to be removed on failure
} saving;

// ---- exchange between ranks

// All-gathers integers in rank order.
static px_status share_numbers(const saving *s, int64_t *all, const int64_t *mine, int64_t count) {
  PX_SCOPED(px_tensor) in = NULL, *on_device = NULL, *out = NULL;
  PX_SCOPED(px_work) work = NULL;
  int64_t total = count * s->size;
  if (!s->comm) return memcpy(all, mine, (size_t)count * sizeof *all), PX_OK;
  PX_TRY(px_tensor_from_data(&in, mine, 1, &count, PX_INT64, px_cpu()));
  PX_TRY(px_to(&on_device, in, PX_DTYPE_NONE, s->device, false, false));
  PX_TRY(px_tensor_empty(&out, 1, &total, PX_INT64, s->device));
  px_collective gather = {.op = PX_ALL_GATHER,
                          .inputs = &on_device,
                          .input_count = 1,
                          .outputs = &out,
                          .output_count = 1};
  PX_TRY(px_comm_run(&work, s->comm, &gather));
  PX_TRY(px_work_wait(work, 0));
  return px_tensor_read(out, all, (size_t)total * sizeof *all);
}

// All-gathers byte strings, each padded to `capacity` bytes in `all`.
static px_status share_bytes(const saving *s, char *all, const void *mine, size_t length,
                             int64_t capacity) {
  int64_t words = capacity / (int64_t)sizeof(int64_t), *padded;
  PX_TRY(px_alloc((void **)&padded, (size_t)capacity));
  memcpy(padded, mine, length);
  px_status status = share_numbers(s, (int64_t *)(void *)all, padded, words);
  px_free(padded);
  return status;
}

static px_status decode_all(saving *s, const char *all, const int64_t *lengths, int64_t capacity) {
  for (int r = 0; r < s->size; r++)
    PX_TRY(px_tree_decode(&s->descriptions[r], all + r * capacity, (size_t)lengths[r], px_cpu(),
                          "the description of a rank's tensors"));
  return PX_OK;
}

static px_status share_tree(saving *s, const px_tree *mine) {
  void *bytes;
  size_t length;
  int64_t *lengths, capacity = 8;
  char *all = NULL;
  PX_TRY(px_tree_encode(&bytes, &length, mine));
  px_status status = px_alloc((void **)&lengths, (size_t)s->size * sizeof *lengths);
  int64_t own = (int64_t)length;
  if (status == PX_OK) status = share_numbers(s, lengths, &own, 1);
  for (int r = 0; r < s->size && status == PX_OK; r++)
    if (lengths[r] > capacity) capacity = (lengths[r] + 7) / 8 * 8;
  if (status == PX_OK) status = px_alloc((void **)&all, (size_t)(capacity * s->size));
  if (status == PX_OK) status = share_bytes(s, all, bytes, length, capacity);
  if (status == PX_OK) status = decode_all(s, all, lengths, capacity);
  px_free(all);
  px_free(lengths);
  px_free(bytes);
  return status;
}

// ---- a rank's description: the stamp, then lists of [name, dtype, sizes, first row, rows]

static px_status append_number(px_tree *list, int64_t number) {
  PX_SCOPED(px_tree) value = NULL;
  PX_TRY(px_tree_number(&value, px_int(number)));
  return px_tree_append(list, value);
}
static px_status append_text(px_tree *list, const char *text) {
  PX_SCOPED(px_tree) value = NULL;
  PX_TRY(px_tree_text(&value, text));
  return px_tree_append(list, value);
}

static px_status append_sizes(px_tree *list, const px_checkpoint_item *item) {
  PX_SCOPED(px_tree) sizes = NULL;
  const int64_t *whole = item->sizes ? item->sizes : px_tensor_sizes(item->part);
  PX_TRY(px_tree_new(&sizes, PX_TREE_SIZE));
  for (int d = 0; d < px_tensor_ndim(item->part); d++) PX_TRY(append_number(sizes, whole[d]));
  return px_tree_append(list, sizes);
}

static px_status describe(px_tree *list, const px_checkpoint_item *item) {
  PX_SCOPED(px_tree) entry = NULL;
  PX_SCOPED(px_tree) dtype = NULL;
  PX_TRY(px_tree_new(&entry, PX_TREE_LIST));
  PX_TRY(append_text(entry, item->name));
  PX_TRY(px_tree_dtype(&dtype, px_tensor_dtype(item->part)));
  PX_TRY(px_tree_append(entry, dtype));
  PX_TRY(append_sizes(entry, item));
  PX_TRY(append_number(entry, item->sizes ? item->first : 0));
  PX_TRY(append_number(entry, px__checkpoint_rows(item->part)));
  return px_tree_append(list, entry);
}

static px_status exchange_descriptions(saving *s) {
  PX_SCOPED(px_tree) list = NULL;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  snprintf(s->stamp, sizeof s->stamp, "%llx%08lx",
           (unsigned long long)now.tv_sec * 1000000000ull + (unsigned long long)now.tv_nsec,
           (unsigned long)getpid());
  PX_TRY(px_tree_new(&list, PX_TREE_LIST));
  PX_TRY(append_text(list, s->stamp));
  for (int i = 0; i < s->count; i++) PX_TRY(describe(list, &s->items[i]));
  PX_TRY(share_tree(s, list));
  const char *first =
      px_tree_get_text(px_tree_at(s->descriptions[0], 0));  // rank 0's stamp is used by all
  if (first) snprintf(s->stamp, sizeof s->stamp, "%s", first);
  return PX_OK;
}

// ---- assignment of tensors to writers

static const char *name_at(const px_tree *descriptions, int64_t i) {
  return px_tree_get_text(px_tree_at(px_tree_at(descriptions, i), PX__ITEM_NAME));
}
static int64_t number_at(const px_tree *descriptions, int64_t i, int what) {
  return px_scalar_int(px_tree_get_number(px_tree_at(px_tree_at(descriptions, i), what)));
}

// True if an earlier rank has the same rows of the same tensor.
static bool has_earlier(const saving *s, int rank, int64_t i) {
  const char *name = name_at(s->descriptions[rank], i);
  int64_t first = number_at(s->descriptions[rank], i, PX__ITEM_FIRST);
  for (int r = 0; r < rank; r++)
    for (int64_t k = 1; k < px_tree_size(s->descriptions[r]); k++)
      if (number_at(s->descriptions[r], k, PX__ITEM_FIRST) == first &&
          !strcmp(name_at(s->descriptions[r], k), name))
        return true;
  return false;
}

static bool is_written(const saving *s, int rank, int64_t i) {
  return number_at(s->descriptions[rank], i, PX__ITEM_ROWS) > 0 && !has_earlier(s, rank, i);
}

static void file_name(const saving *s, int rank, char *name, size_t size) {
  snprintf(name, size, "__%d_0.%s.safetensors", rank, s->stamp);
}

static px_status write_own(saving *s) {
  char name[PX__CHECKPOINT_NAME];
  PX_SCOPED(px_dict) tensors = NULL;
  PX_TRY(px_dict_new(&tensors));
  for (int i = 0; i < s->count; i++) {
    PX_SCOPED(px_tensor) plain = NULL;
    if (!is_written(s, s->rank, i + 1)) continue;
    PX_TRY(px_tensor_detach(&plain, s->items[i].part));
    PX_TRY(px_dict_set(tensors, s->items[i].name, plain));
  }
  s->writes = px_dict_size(tensors) > 0;
  file_name(s, s->rank, name, sizeof name);
  PX_TRY(px__checkpoint_path(s->file, s->folder, name));
  return s->writes ? px_save(s->file, tensors, NULL) : PX_OK;
}

static px_status make_folder(const char *folder) {
  if (px__file_fault() || (mkdir(folder, 0777) != 0 && errno != EEXIST))
    PX_FAIL_ERRNO(PX_IO, "cannot make the folder", folder);
  return PX_OK;
}

// Fails on all ranks if a step failed on one. *sizes receives each rank's value, unless NULL.
static px_status agree(const saving *s, px_status status, int64_t size, int64_t *sizes) {
  int64_t mine = status == PX_OK ? size : -1, *all;
  px_error *kept = NULL;
  if (status != PX_OK && px_alloc((void **)&kept, sizeof *kept) == PX_OK) px_error_take(kept);
  px_status shared = px_alloc((void **)&all, (size_t)s->size * sizeof *all);
  if (shared == PX_OK) shared = share_numbers(s, all, &mine, 1);
  int failed_rank = -1;
  for (int r = 0; r < s->size && shared == PX_OK; r++)
    if (all[r] < 0 && failed_rank < 0) failed_rank = r;
  if (shared == PX_OK && sizes) memcpy(sizes, all, (size_t)s->size * sizeof *all);
  px_free(all);
  if (kept) status = px_error_give(kept);
  px_free(kept);
  PX_TRY(status);
  PX_TRY(shared);
  PX_CHECK(failed_rank < 0, PX_RUNTIME, "rank %d could not write its part of the checkpoint '%s'",
           failed_rank, s->folder);
  return PX_OK;
}

// ---- the metadata

static px_status list_files(const saving *s, px_tree *files, const int64_t *sizes) {
  char name[PX__CHECKPOINT_NAME];
  for (int r = 0; r < s->size; r++) {
    PX_SCOPED(px_tree) pair = NULL;
    file_name(s, r, name, sizeof name);
    PX_TRY(px_tree_new(&pair, PX_TREE_LIST));
    PX_TRY(append_text(pair, name));
    PX_TRY(append_number(pair, sizes[r]));
    PX_TRY(px_tree_append(files, pair));
  }
  return PX_OK;
}

// A tensor's entry: [dtype, sizes, [[file, first row, rows], ...]].
static px_status find_or_add_entry(px_tree **out, px_tree *tensors, const px_tree *descriptions,
                                   int64_t i) {
  PX_SCOPED(px_tree) entry = NULL;
  PX_SCOPED(px_tree) pieces = NULL;
  const char *name = name_at(descriptions, i);
  *out = px_tree_get(tensors, name);
  if (*out) return PX_OK;
  PX_TRY(px_tree_new(&entry, PX_TREE_LIST));
  PX_TRY(px_tree_append(entry, px_tree_at(px_tree_at(descriptions, i), PX__ITEM_DTYPE)));
  PX_TRY(px_tree_append(entry, px_tree_at(px_tree_at(descriptions, i), PX__ITEM_SIZES)));
  PX_TRY(px_tree_new(&pieces, PX_TREE_LIST));
  PX_TRY(px_tree_append(entry, pieces));
  PX_TRY(px_tree_set(tensors, name, entry));
  *out = px_tree_get(tensors, name);
  return PX_OK;
}

static px_status list_tensors(const saving *s, px_tree *tensors) {
  for (int r = 0; r < s->size; r++)
    for (int64_t i = 1; i < px_tree_size(s->descriptions[r]); i++) {
      PX_SCOPED(px_tree) piece = NULL;
      px_tree *entry;
      PX_TRY(find_or_add_entry(&entry, tensors, s->descriptions[r], i));
      if (!is_written(s, r, i)) continue;
      PX_TRY(px_tree_new(&piece, PX_TREE_LIST));
      PX_TRY(append_number(piece, r));
      PX_TRY(append_number(piece, number_at(s->descriptions[r], i, PX__ITEM_FIRST)));
      PX_TRY(append_number(piece, number_at(s->descriptions[r], i, PX__ITEM_ROWS)));
      PX_TRY(px_tree_append(px_tree_at(entry, PX__ENTRY_PIECES), piece));
    }
  return PX_OK;
}

__attribute__((noinline)) static px_status write_metadata(const saving *s, const int64_t *sizes,
                                                          px_tree *values) {
  char path[PX__CHECKPOINT_PATH];
  PX_SCOPED(px_tree) metadata = NULL, *version = NULL, *files = NULL, *tensors = NULL;
  PX_SCOPED(px_tree) none = NULL;
  if (s->rank) return PX_OK;
  PX_TRY(px_tree_new(&metadata, PX_TREE_DICT));
  PX_TRY(px_tree_number(&version, px_int(PX__CHECKPOINT_VERSION)));
  PX_TRY(px_tree_new(&files, PX_TREE_LIST));
  PX_TRY(px_tree_new(&tensors, PX_TREE_DICT));
  PX_TRY(px_tree_new(&none, PX_TREE_DICT));
  PX_TRY(list_files(s, files, sizes));
  PX_TRY(list_tensors(s, tensors));
  PX_TRY(px_tree_set(metadata, "version", version));
  PX_TRY(px_tree_set(metadata, "files", files));
  PX_TRY(px_tree_set(metadata, "tensors", tensors));
  PX_TRY(px_tree_set(metadata, "values", values ? values : none));
  PX_TRY(px__checkpoint_path(path, s->folder, PX__CHECKPOINT_METADATA));
  return px_save_tree(path, metadata);
}

// Removes files of earlier or interrupted checkpoints. Failures are ignored.
__attribute__((noinline)) static void remove_old(const saving *s) {
  char path[PX__CHECKPOINT_PATH];
  DIR *names = s->rank ? NULL : opendir(s->folder);
  if (!names) return;
  // cppcheck-suppress readdirCalled ; no other thread reads this folder by `names`
  for (struct dirent *entry = readdir(names); entry; entry = readdir(names)) {
    const char *name = entry->d_name, *end = strstr(name, ".safetensors");
    bool ours = !strncmp(name, "__", 2) && strstr(name, "_0.") && end;
    if (!ours || strstr(name, s->stamp)) continue;
    if (px__checkpoint_path(path, s->folder, name) == PX_OK) unlink(path);
  }
  closedir(names);
}

// ---- saving

static int64_t size_of_file(const saving *s) {
  struct stat info;
  return s->writes && stat(s->file, &info) == 0 ? (int64_t)info.st_size : 0;
}

static px_status save_all(saving *s, px_tree *values, int64_t *sizes) {
  px_status status = make_folder(s->folder);
  PX_TRY(agree(s, status, 0, NULL));
  PX_TRY(exchange_descriptions(s));
  status = write_own(s);
  PX_TRY(agree(s, status, status == PX_OK ? size_of_file(s) : 0, sizes));
  s->writes = false;  // the metadata may refer to the file from here on, even after a failure
  return agree(s, write_metadata(s, sizes, values), 0, NULL);
}

static px_status check_items(const px_checkpoint_item *items, int count) {
  for (int i = 0; i < count; i++) {
    PX_CHECK(items[i].name && items[i].part, PX_TYPE,
             "expected a name and a tensor for item %d of a checkpoint, got NULL", i);
    PX_CHECK(!items[i].sizes || px_tensor_ndim(items[i].part) > 0, PX_VALUE,
             "'%s' is 0-dimensional: expected no sizes", items[i].name);
  }
  return PX_OK;
}

px_status px_checkpoint_save(const char *folder, px_comm *comm, px_device device,
                             const px_checkpoint_item *items, int count, px_tree *values) {
  PX_GIVEN(folder);
  PX_GIVEN_N(items, count);
  PX_TRY(check_items(items, count));
  int64_t *sizes;
  saving s = {.folder = folder, .comm = comm, .device = device, .items = items, .count = count};
  s.rank = comm ? px_comm_rank(comm) : 0;
  s.size = comm ? px_comm_size(comm) : 1;
  PX_TRY(px_alloc((void **)&s.descriptions, (size_t)s.size * sizeof *s.descriptions));
  px_status status = px_alloc((void **)&sizes, (size_t)s.size * sizeof *sizes);
  bool was = px_grad_enabled();
  px_grad_set_enabled(false);
  if (status == PX_OK) status = save_all(&s, values, sizes);
  px_grad_set_enabled(was);
  if (status == PX_OK) remove_old(&s);
  if (status != PX_OK && s.writes) unlink(s.file);
  for (int r = 0; r < s.size; r++) px_release(s.descriptions[r]);
  px_free(s.descriptions);
  px_free(sizes);
  return status;
}
