// SPDX-License-Identifier: Apache-2.0
// Invalid files: safetensors files and structures, mutated at random or composed of their own
// words.
#include "fuzz.h"

#include "phlox/checkpoint.h"
#include "unit/folder.h"

// Returns a random dtype of the file format.
static px_dtype dtype_of_files(void) {
  for (;;) {
    px_dtype dtype = (px_dtype)fuzz_below(PX_DTYPE_COUNT);
    if (px_dtype_about(dtype)->safetensors) return dtype;
  }
}

static px_tree *part_of(px_tree *whole, px_tree_kind kind) {
  PX_SCOPED(px_tree) part = NULL;
  OK(px_tree_new(&part, kind));
  OK(px_tree_append(whole, part));
  return px_tree_at(whole, px_tree_size(whole) - 1);
}

static void add_leaf(px_tree *to) {
  PX_SCOPED(px_tree) leaf = NULL;
  PX_SCOPED(px_tensor) t = NULL;
  int64_t sizes[] = {fuzz_below(3), fuzz_below(3)};
  switch (fuzz_below(6)) {
    case 0:
      OK(px_tree_none(&leaf));
      break;
    case 1:
      OK(px_tree_number(&leaf, px_int((int64_t)fuzz_bits())));
      break;
    case 2:
      OK(px_tree_number(&leaf, px_float((double)fuzz_int() / 7)));
      break;
    case 3:
      OK(px_tree_text(&leaf, "a\"\\\n\xc3\xa9"));
      break;
    case 4:
      OK(px_tree_dtype(&leaf, (px_dtype)fuzz_below(PX_DTYPE_COUNT)));
      break;
    default:
      OK(px_zeros(&t, sizes, (int)fuzz_below(3), dtype_of_files(), px_cpu(), false, false));
      OK(px_tree_tensor(&leaf, t));
  }
  OK(px_tree_append(to, leaf));
}

// A list of values, lists and tuples.
static px_tree *random_tree(void) {
  px_tree *tree = NULL;
  OK(px_tree_new(&tree, PX_TREE_LIST));
  px_tree *at = tree;
  for (int64_t n = fuzz_below(8); n > 0; n--) {
    if (fuzz_one_in(3)) at = part_of(at, fuzz_one_in(2) ? PX_TREE_LIST : PX_TREE_TUPLE);
    add_leaf(at);
  }
  return tree;
}

static size_t encoded(unsigned char *buffer, size_t capacity) {
  PX_SCOPED(px_tree) tree = random_tree();
  void *bytes;
  size_t length;
  OK(px_tree_encode(&bytes, &length, tree));
  CHECK(length <= capacity);
  memcpy(buffer, bytes, length);
  px_free(bytes);
  return length;
}

// Decodes a copy of exactly `length` bytes, so that a sanitizer catches reads past the end. A
// decoded tree can be encoded and decoded again.
static void decode(const unsigned char *bytes, size_t length) {
  PX_SCOPED(px_tree) tree = NULL;
  PX_SCOPED(px_tree) again = NULL;
  unsigned char *exact = malloc(length ? length : 1);
  memcpy(exact, bytes, length);
  bool good = fuzz_fine(px_tree_decode(&tree, exact, length, PX_DEVICE_NONE, "bytes"));
  free(exact);
  CHECK(good == (tree != NULL));
  void *back;
  size_t size;
  if (!good || !fuzz_fine(px_tree_encode(&back, &size, tree))) return;
  OK(px_tree_decode(&again, back, size, PX_DEVICE_NONE, "bytes"));
  px_free(back);
}

FUZZ(trees_round_trip) {
  static unsigned char bytes[1 << 16];
  decode(bytes, encoded(bytes, sizeof bytes));
}

// Changes bytes of a file, which 64 spare bytes follow. Returns the new length.
static size_t mutate(unsigned char *bytes, size_t length) {
  for (int64_t n = 1 + fuzz_below(4); n > 0; n--) {
    size_t at = (size_t)fuzz_below((int64_t)length);
    switch (fuzz_below(5)) {
      case 0:
        bytes[at] ^= (unsigned char)(1u << fuzz_below(8));
        break;
      case 1:
        bytes[at] = (unsigned char)fuzz_bits();
        break;
      case 2:
        length = at + 1;
        break;
      case 3:
        bytes[fuzz_below(8)] = (unsigned char)fuzz_bits();
        break;
      default:
        memmove(bytes + at + 1, bytes + at, length - at);
        bytes[at] = (unsigned char)"{}[]\",:0-9e\\"[fuzz_below(12)];
        length++;
    }
  }
  return length;
}

FUZZ(mutated_files_are_refused_or_read) {
  static unsigned char bytes[1 << 16];
  size_t length = encoded(bytes, sizeof bytes - 64);
  decode(bytes, mutate(bytes, length));
}

// ---- files on disk

static size_t read_file(unsigned char *bytes, size_t capacity, const char *path) {
  FILE *file = fopen(path, "rb");
  CHECK(file);
  size_t length = fread(bytes, 1, capacity, file);
  fclose(file);
  return length;
}

static void write_file(const char *path, const unsigned char *bytes, size_t length) {
  FILE *file = fopen(path, "wb");
  CHECK(file && fwrite(bytes, 1, length, file) == length && fclose(file) == 0);
}

FUZZ(mutated_files_on_disk_are_refused_or_read) {
  static unsigned char bytes[1 << 16];
  PX_SCOPED(px_tree) tree = NULL;
  PX_SCOPED(px_dict) dict = NULL;
  const char *path = path_of("x.safetensors");
  size_t length = encoded(bytes, sizeof bytes - 64);
  write_file(path, bytes, mutate(bytes, length));
  (void)fuzz_fine(px_load_tree(&tree, path, PX_DEVICE_NONE));
  (void)fuzz_fine(px_load(&dict, path, px_cpu()));
}

// The files of a checkpoint.
static unsigned char metadata[1 << 14], part[1 << 14];
static size_t metadata_length, part_length;
static char metadata_path[128], part_path[128];

static void save_checkpoint(const px_checkpoint_item *items, int count) {
  PX_SCOPED(px_tree) contents = NULL;
  strcpy(metadata_path, path_of(".metadata"));
  OK(px_checkpoint_save(folder, NULL, px_cpu(), items, count, NULL));
  OK(px_load_tree(&contents, metadata_path, px_cpu()));
  const px_tree *file = px_tree_at(px_tree_get(contents, "files"), 0);
  strcpy(part_path, path_of(px_tree_get_text(px_tree_at(file, 0))));
  metadata_length = read_file(metadata, sizeof metadata, metadata_path);
  part_length = read_file(part, sizeof part, part_path);
}

FUZZ(mutated_checkpoints_are_refused_or_read) {
  static unsigned char bytes[1 << 15];
  PX_SCOPED(px_tensor) w = NULL, *b = NULL;
  PX_SCOPED(px_checkpoint) saved = NULL;
  int64_t sizes[] = {5, 3};
  OK(px_zeros(&w, sizes, 2, PX_FLOAT32, px_cpu(), false, false));
  OK(px_zeros(&b, sizes, 1, PX_INT64, px_cpu(), false, false));
  px_checkpoint_item items[] = {{"w", w, NULL, 0}, {"b", b, NULL, 0}};
  if (!metadata_length) save_checkpoint(items, 2);
  bool of_part = fuzz_one_in(2);
  memcpy(bytes, metadata, metadata_length);
  write_file(metadata_path, bytes, of_part ? metadata_length : mutate(bytes, metadata_length));
  memcpy(bytes, part, part_length);
  write_file(part_path, bytes, of_part ? mutate(bytes, part_length) : part_length);
  if (fuzz_fine(px_checkpoint_open(&saved, folder)))
    (void)fuzz_fine(px_checkpoint_read(saved, items, 2));
}

FUZZ(headers_of_random_words) {
  static const char *const words[] = {
      "{",
      "}",
      "[",
      "]",
      ",",
      ":",
      "\"w\"",
      "\"v\"",
      "\"dtype\"",
      "\"F32\"",
      "\"I64\"",
      "\"BOOL\"",
      "\"shape\"",
      "\"data_offsets\"",
      "[0,4]",
      "[1]",
      "[0]",
      "[9223372036854775807,2]",
      "-1",
      "1e400",
      "\"__metadata__\"",
      "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}",
      "\"phlox.structure\"",
      "\"[\\\"list\\\",1]\"",
      "null"};
  fuzz_text header = {.length = 0};
  unsigned char bytes[8192];
  FUZZ_WORDS(&header, 1 + (int)fuzz_below(20), words, 20);
  uint64_t length = header.length;
  memcpy(bytes, &length, 8);
  memcpy(bytes + 8, header.at, header.length);
  memset(bytes + 8 + header.length, 0, 8);
  decode(bytes, 8 + header.length + (size_t)fuzz_below(9));
}

FUZZ(structures_of_random_words) {
  static const char *const words[] = {"[",
                                      "]",
                                      "{",
                                      "}",
                                      ",",
                                      ",",
                                      ":",
                                      "1",
                                      "-0.5",
                                      "null",
                                      "true",
                                      "\"a\"",
                                      "\"list\"",
                                      "\"tuple\"",
                                      "\"size\"",
                                      "\"dict\"",
                                      "\"ordered\"",
                                      "\"float\"",
                                      "\"nan\"",
                                      "\"dtype\"",
                                      "\"float32\"",
                                      "\"device\"",
                                      "\"cpu\"",
                                      "\"tensor\"",
                                      "\"w\"",
                                      "\"cuda:1\"",
                                      "\"grad\"",
                                      "\"parameter\"",
                                      "[\"tensor\",\"w\",\"cpu\"]",
                                      "[\"dict\",[1,2]]",
                                      "1e999",
                                      "99999999999999999999"};
  fuzz_text structure = {.length = 0}, header = {.length = 0};
  unsigned char bytes[16384];
  FUZZ_WORDS(&structure, 1 + (int)fuzz_below(14), words, 40);
  const char before[] = "{\"__metadata__\":{\"phlox.structure\":\"";
  const char after[] = "\"},\"w\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}";
  fuzz_put(&header, before, sizeof before - 1);
  for (size_t i = 0; i < structure.length; i++) {
    if (structure.at[i] == '"' || structure.at[i] == '\\') fuzz_put(&header, "\\", 1);
    fuzz_put(&header, &structure.at[i], 1);
  }
  fuzz_put(&header, after, sizeof after - 1);
  uint64_t length = header.length;
  memcpy(bytes, &length, 8);
  memcpy(bytes + 8, header.at, header.length);
  memset(bytes + 8 + header.length, 0, 4);
  decode(bytes, 8 + header.length + 4);
}
