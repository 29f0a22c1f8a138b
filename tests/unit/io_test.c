// SPDX-License-Identifier: Apache-2.0
// Tensor files: round trips, refusal of invalid files with a reason and without crashes, and atomic
// saves.
#include "devices.h"
#include "folder.h"

#include <fcntl.h>
#include <sys/stat.h>

// ---- files of a test

static const char *write_file(const void *bytes, size_t count) {
  const char *path = path_of("file");
  FILE *file = fopen(path, "wb");
  CHECK(file && fwrite(bytes, 1, count, file) == count && fclose(file) == 0);
  return path;
}

static size_t read_file(const char *path, char *bytes, size_t capacity) {
  FILE *file = fopen(path, "rb");
  CHECK(file);
  size_t count = fread(bytes, 1, capacity, file);
  CHECK(count < capacity && fclose(file) == 0);
  return count;
}

// Writes a file with this header and `data` zero bytes.
static const char *forge(const char *header, size_t data) {
  uint64_t length = strlen(header);
  char *bytes = calloc(1, 8 + length + data);
  memcpy(bytes, &length, 8);
  memcpy(bytes + 8, header, length);
  const char *path = write_file(bytes, 8 + length + data);
  free(bytes);
  return path;
}

static void refuses(const char *header, size_t data, const char *text) {
  px_dict *state = NULL;
  int64_t objects = px_live_objects(NULL);
  FAILS(px_load(&state, forge(header, data), PX_DEVICE_NONE), PX_RUNTIME, text);
  CHECK(!state);
  CHECK_EQ(px_live_objects(NULL), objects);
}

static void accepts(const char *header, size_t data, int64_t count) {
  PX_SCOPED(px_dict) state = NULL;
  OK(px_load(&state, forge(header, data), PX_DEVICE_NONE));
  CHECK_EQ(px_dict_size(state), count);
}

static void add_tensor(px_dict *state, const char *name, const void *data, int ndim,
                       const int64_t *sizes, px_dtype dtype) {
  PX_SCOPED(px_tensor) t = NULL;
  OK(px_tensor_from_data(&t, data, ndim, sizes, dtype, px_cpu()));
  OK(px_dict_set(state, name, t));
}

static px_dict *dict(void) {
  px_dict *state = NULL;
  OK(px_dict_new(&state));
  return state;
}

// ---- round trips

PX_TEST(every_dtype_round_trips_bitwise) {
  PX_SCOPED(px_dict) state = dict();
  PX_SCOPED(px_dict) back = NULL;
  unsigned char bytes[96], read[96];
  int kept = 0;
  for (int i = 0; i < 96; i++) bytes[i] = (unsigned char)(i * 37 + 1);
  for (int d = 0; d < PX_DTYPE_COUNT; d++) {
    unsigned char truth[6] = {0, 1, 1, 0, 1, 0};
    if (!px_dtype_about(d)->safetensors) continue;
    add_tensor(state, px_dtype_name(d), d == PX_BOOL ? truth : bytes, 2, (int64_t[]){2, 3}, d);
    kept++;
  }
  OK(px_save(path_of("all"), state, NULL));
  OK(px_load(&back, path_of("all"), PX_DEVICE_NONE));
  CHECK_EQ(px_dict_size(back), kept);
  for (int d = 1; d < PX_DTYPE_COUNT; d++) {
    if (!px_dtype_about(d)->safetensors) continue;
    px_tensor *t = px_dict_get(back, px_dtype_name(d));
    CHECK(t && px_tensor_dtype(t) == (px_dtype)d);
    OK(px_tensor_read(t, read, 6 * px_dtype_size(d)));
    CHECK(!memcmp(read, bytes, 6 * px_dtype_size(d)));
  }
}

PX_TEST(dtypes_outside_the_format_are_refused) {
  PX_SCOPED(px_dict) state = dict();
  add_tensor(state, "z", (double[]){1, 2}, 0, NULL, PX_COMPLEX128);
  FAILS(px_save(path_of("none"), state, NULL), PX_UNIMPLEMENTED,
        "safetensors files have no dtype complex128");
}

PX_TEST(scalars_and_empty_tensors_round_trip) {
  PX_SCOPED(px_dict) state = dict();
  PX_SCOPED(px_dict) back = NULL;
  px_scalar number;
  add_tensor(state, "scalar", &(double){2.5}, 0, NULL, PX_FLOAT64);
  add_tensor(state, "empty", NULL, 3, (int64_t[]){2, 0, 5}, PX_FLOAT32);
  add_tensor(state, "after", &(int16_t){-7}, 1, (int64_t[]){1}, PX_INT16);
  OK(px_save(path_of("edges"), state, NULL));
  OK(px_load(&back, path_of("edges"), PX_DEVICE_NONE));
  CHECK_EQ(px_tensor_ndim(px_dict_get(back, "scalar")), 0);
  OK(px_tensor_item(&number, px_dict_get(back, "scalar")));
  CHECK_NEAR(px_scalar_float(number), 2.5, 0);
  CHECK_EQ(px_tensor_ndim(px_dict_get(back, "empty")), 3);
  CHECK_EQ(px_tensor_size(px_dict_get(back, "empty"), 2), 5);
  OK(px_tensor_item(&number, px_dict_get(back, "after")));
  CHECK_EQ(px_scalar_int(number), -7);
}

PX_TEST(an_empty_dict_is_a_valid_file) {
  PX_SCOPED(px_dict) state = dict();
  PX_SCOPED(px_dict) back = NULL;
  OK(px_save(path_of("none"), state, NULL));
  OK(px_load(&back, path_of("none"), PX_DEVICE_NONE));
  CHECK_EQ(px_dict_size(back), 0);
}

PX_TEST(views_save_only_their_elements) {
  PX_SCOPED(px_tensor) t = NULL;
  PX_SCOPED(px_tensor) transposed = NULL;
  PX_SCOPED(px_dict) state = dict();
  PX_SCOPED(px_dict) back = NULL;
  int64_t numbers[6];
  OK(px_arange(&t, px_int(0), px_int(6), px_int(1), PX_INT64, px_cpu(), false, false));
  OK(px_as_strided(&transposed, t, (int64_t[]){3, 2}, 2, (int64_t[]){1, 3}, 2, NULL));
  OK(px_dict_set(state, "t", transposed));
  OK(px_save(path_of("turned"), state, NULL));
  OK(px_load(&back, path_of("turned"), PX_DEVICE_NONE));
  OK(px_tensor_read(px_dict_get(back, "t"), numbers, sizeof numbers));
  CHECK(!memcmp(numbers, (int64_t[]){0, 3, 1, 4, 2, 5}, sizeof numbers));
}

PX_TEST(names_may_contain_any_character) {
  static const char *const names[] = {"a.b.c", "\"quoted\"", "back\\slash", "{[", "\n", "φλόξ", ""};
  PX_SCOPED(px_dict) state = dict();
  PX_SCOPED(px_dict) back = NULL;
  for (int i = 0; i < 7; i++) add_tensor(state, names[i], &(int32_t){i}, 0, NULL, PX_INT32);
  OK(px_save(path_of("names"), state, NULL));
  OK(px_load(&back, path_of("names"), PX_DEVICE_NONE));
  for (int i = 0; i < 7; i++) {
    px_scalar number;
    CHECK(px_dict_get(back, names[i]));
    OK(px_tensor_item(&number, px_dict_get(back, names[i])));
    CHECK_EQ(px_scalar_int(number), i);
  }
}

// Letters are scanned in groups of sixteen: tests each kind of other byte at each position of a
// group.
PX_TEST(names_with_special_bytes_at_any_position_round_trip) {
  static const char *const odd[] = {"\"", "\\", "/", "~", "\x7f", "\x1f", " ", "\n", "é", "z"};
  PX_SCOPED(px_dict) state = dict();
  PX_SCOPED(px_dict) back = NULL;
  char before[34], after[18], name[64];
  float number = 0;
  memset(before, 'a', sizeof before), memset(after, 'b', sizeof after);
  for (size_t k = 0; k < sizeof odd / sizeof *odd; k++)
    for (int at = 0; at < (int)sizeof before; at++)
      for (int behind = 0; behind < (int)sizeof after; behind++, number++) {
        snprintf(name, sizeof name, "%.*s%s%.*s", at, before, odd[k], behind, after);
        add_tensor(state, name, &number, 0, NULL, PX_FLOAT32);
      }
  PX_SCOPED(px_tree) tree = NULL;
  OK(px_tree_from_dict(&tree, state));
  OK(px_save_tree(path_of("names"), tree));
  OK(px_load(&back, path_of("names"), PX_DEVICE_NONE));
  CHECK_EQ(px_dict_size(back), px_dict_size(state));
  for (int64_t i = 0; i < px_dict_size(state); i++) {
    px_tensor *t = px_dict_get(back, px_dict_name(state, i));
    CHECK(t && *(float *)px_tensor_data(t) == *(float *)px_tensor_data(px_dict_value(state, i)));
  }
}

// Small tensors are read together. The sizes let a tensor end at each offset of the read buffer.
PX_TEST(tensors_of_all_sizes_round_trip) {
  enum { COUNT = 900 };
  static uint8_t bytes[40000];
  PX_SCOPED(px_dict) state = dict();
  PX_SCOPED(px_dict) back = NULL;
  char name[32];
  for (int i = 0; i < COUNT; i++) {
    int64_t size = i % 100 == 50 ? 40000 - i : (int64_t)i * i % 1999;
    for (int64_t k = 0; k < size; k++) bytes[k] = (uint8_t)(i + k * 7);
    snprintf(name, sizeof name, "%d", i);
    add_tensor(state, name, bytes, 1, &size, PX_UINT8);
  }
  OK(px_save(path_of("sizes"), state, NULL));
  OK(px_load(&back, path_of("sizes"), PX_DEVICE_NONE));
  for (int i = 0; i < COUNT; i++) {
    snprintf(name, sizeof name, "%d", i);
    px_tensor *was = px_dict_get(state, name), *is = px_dict_get(back, name);
    CHECK_EQ(px_tensor_numel(is), px_tensor_numel(was));
    if (px_tensor_numel(was) == 0) continue;
    CHECK(!memcmp(px_tensor_data(is), px_tensor_data(was), (size_t)px_tensor_numel(was)));
  }
}

PX_TEST(a_header_may_list_tensors_in_any_order) {
  enum { COUNT = 100 };
  char header[COUNT * 80] = "{", file[8 + sizeof header + COUNT], name[8];
  for (int i = 0; i < COUNT; i++) {
    int at = i * 37 % COUNT;  // sometimes the next one
    size_t used = strlen(header);
    snprintf(header + used, sizeof header - used,
             "%s\"%d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}", i ? "," : "", at,
             at, at + 1);
  }
  strcat(header, "}");
  uint64_t length = strlen(header);
  memcpy(file, &length, 8), memcpy(file + 8, header, length);
  for (int i = 0; i < COUNT; i++) file[8 + length + (size_t)i] = (char)i;
  PX_SCOPED(px_dict) back = NULL;
  OK(px_load(&back, write_file(file, 8 + length + COUNT), PX_DEVICE_NONE));
  for (int i = 0; i < COUNT; i++) {
    snprintf(name, sizeof name, "%d", i);
    CHECK_EQ(*(uint8_t *)px_tensor_data(px_dict_get(back, name)), i);
  }
}

PX_TEST(metadata_is_found_by_key) {
  PX_SCOPED(px_dict) state = dict();
  char *value = NULL;
  add_tensor(state, "w", &(float){1}, 0, NULL, PX_FLOAT32);
  const char *const metadata[] = {"format", "pt", "epoch", "12", NULL};
  OK(px_save(path_of("meta"), state, metadata));
  OK(px_load_metadata(&value, path_of("meta"), "epoch"));
  CHECK_TEXT(value, "12");
  px_free(value);
  OK(px_load_metadata(&value, path_of("meta"), "absent"));
  CHECK(!value);
}

PX_TEST(tensors_load_to_and_save_from_devices) {
  simulate(2);
  PX_SCOPED(px_dict) state = dict();
  PX_SCOPED(px_dict) back = NULL;
  PX_SCOPED(px_tensor) t = NULL;
  float numbers[3];
  OK(px_full(&t, (int64_t[]){3}, 1, px_float(1.5), PX_FLOAT32, px_cuda(1), false, false));
  OK(px_dict_set(state, "t", t));
  OK(px_save(path_of("device"), state, NULL));
  OK(px_load(&back, path_of("device"), px_cuda(0)));
  CHECK(px_device_equal(px_tensor_device(px_dict_get(back, "t")), px_cuda(0)));
  OK(px_tensor_read(px_dict_get(back, "t"), numbers, sizeof numbers));
  CHECK_NEAR(numbers[2], 1.5, 0);
}

PX_TEST(the_format_is_safetensors) {
  PX_SCOPED(px_dict) state = dict();
  char bytes[256];
  uint64_t length;
  add_tensor(state, "w", (float[]){1, 2}, 1, (int64_t[]){2}, PX_FLOAT32);
  OK(px_save(path_of("form"), state, NULL));
  size_t count = read_file(path_of("form"), bytes, sizeof bytes);
  memcpy(&length, bytes, 8);
  CHECK_EQ(length % 8, 0);  // the data are aligned
  CHECK_EQ(count, 8 + length + 8);
  const char *json = "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
  CHECK(!strncmp(bytes + 8, json, strlen(json)));
  CHECK(!memcmp(bytes + 8 + length, (float[]){1, 2}, 8));
}

// ---- invalid files

PX_TEST(a_file_truncated_at_any_byte_is_refused) {
  PX_SCOPED(px_dict) state = dict();
  char bytes[512];
  add_tensor(state, "w", (float[]){1, 2}, 1, (int64_t[]){2}, PX_FLOAT32);
  add_tensor(state, "b", (int64_t[]){3}, 1, (int64_t[]){1}, PX_INT64);
  OK(px_save(path_of("whole"), state, NULL));
  size_t count = read_file(path_of("whole"), bytes, sizeof bytes);
  for (size_t cut = 0; cut < count; cut++) {
    px_dict *back = NULL;
    char *exact = malloc(cut + 1);
    memcpy(exact, bytes, cut);
    FAILS(px_load(&back, write_file(exact, cut), PX_DEVICE_NONE), PX_RUNTIME, "'");
    CHECK(!back);
    free(exact);
  }
}

PX_TEST(any_corrupted_byte_is_harmless) {
  PX_SCOPED(px_dict) state = dict();
  char bytes[512];
  add_tensor(state, "w", (float[]){1, 2}, 1, (int64_t[]){2}, PX_FLOAT32);
  OK(px_save(path_of("whole"), state, NULL));
  size_t count = read_file(path_of("whole"), bytes, sizeof bytes);
  static const unsigned char wrongs[] = {0, '"', '{', '[', '9', '-', 0xff, '\\'};
  int64_t objects = px_live_objects(NULL);
  for (size_t at = 0; at < count; at++)
    for (size_t w = 0; w < sizeof wrongs; w++) {
      char was = bytes[at];
      PX_SCOPED(px_dict) back = NULL;
      bytes[at] = (char)wrongs[w];
      px_status status = px_load(&back, write_file(bytes, count), PX_DEVICE_NONE);
      CHECK(status == PX_OK || (status == PX_RUNTIME && px_error_last()->message[0]));
      bytes[at] = was;
    }
  CHECK_EQ(px_live_objects(NULL), objects);
}

PX_TEST(invalid_header_lengths_are_refused) {
  static const uint64_t lengths[] = {1,         7,          1000,       UINT32_MAX,
                                     INT64_MAX, UINT64_MAX, 1ull << 63, UINT64_MAX - 7};
  for (int i = 0; i < 8; i++) {
    char bytes[32] = {0};
    px_dict *back = NULL;
    memcpy(bytes, &lengths[i], 8);
    memcpy(bytes + 8, "{}      ", 8);
    FAILS(px_load(&back, write_file(bytes, 16), PX_DEVICE_NONE), PX_RUNTIME, "'");
  }
}

PX_TEST(headers_must_be_json_objects) {
  static const char *const headers[] = {"",  "[]",  "1",        "null", "\"text\"",
                                        "{", "{}}", "{\"a\":}", "{} {}"};
  for (int i = 0; i < 9; i++) refuses(headers[i], 0, "the header is not a JSON object");
  accepts("{}", 0, 0);
  accepts("{}      ", 0, 0);
}

PX_TEST(a_header_ends_at_its_length) {
  char bytes[24] = {8};
  px_dict *back = NULL;
  memcpy(bytes + 8, "{}\0{[\"\1x", 8);
  FAILS(px_load(&back, write_file(bytes, 16), PX_DEVICE_NONE), PX_RUNTIME, "'");
}

PX_TEST(nested_brackets_do_not_exhaust_the_stack) {
  enum { DEPTH = 1 << 20 };
  char *text = malloc(DEPTH + 16);
  static const char *const openings[] = {"[", "{\"a\":"};
  for (int kind = 0; kind < 2; kind++) {
    size_t used = (size_t)sprintf(text, "{\"x\":");
    for (size_t n = strlen(openings[kind]); used + n < DEPTH; used += n)
      memcpy(text + used, openings[kind], n + 1);
    refuses(text, 0, "nested too deeply");
  }
  free(text);
}

PX_TEST(entries_must_be_complete) {
  refuses("{\"w\":1}", 0, "the entry 'w' is not an object");
  refuses("{\"w\":{}}", 0, "unknown dtype");
  refuses("{\"w\":{\"dtype\":32,\"shape\":[],\"data_offsets\":[0,4]}}", 4, "unknown dtype");
  refuses("{\"w\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "no valid shape");
  refuses("{\"w\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,4]}}", 4, "no valid shape");
  refuses("{\"w\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "invalid data_offsets");
  refuses("{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4]}}", 4,
          "invalid data_offsets");
  refuses("{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4,
          "invalid data_offsets");
}

PX_TEST(entries_accept_any_valid_json) {
  PX_SCOPED(px_dict) back = NULL;
  const char *header =
      " { \"\\u0061\\/\\\"b\" : { \"of\":{\"shape\":[[2]]}, \"sh\\u0061pe\" : [ 1 ,1],\n"
      "\"dtype\":\"U8\", \"data_offsets\":[0,4], \"dtype\":\"F\\u00332\"} } ";
  OK(px_load(&back, forge(header, 4), PX_DEVICE_NONE));
  CHECK_EQ(px_tensor_dtype(px_dict_get(back, "a/\"b")), PX_FLOAT32);
  CHECK_EQ(px_tensor_ndim(px_dict_get(back, "a/\"b")), 2);
}

PX_TEST(invalid_json_strings_are_refused) {
  static const char *const names[] = {"\\x", "\\u12", "\xff", "\\u0000", "\\"};
  for (int i = 0; i < 5; i++) {
    char header[256];
    snprintf(header, sizeof header,
             "{\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", names[i]);
    refuses(header, 4, "the header is not a JSON object");
  }
}

PX_TEST(an_unknown_dtype_does_not_affect_other_tensors) {
  static const char *const dtypes[] = {"F4", "F6_E2M3", "C512", "F33"};
  for (int i = 0; i < 4; i++) {
    char header[256];
    snprintf(header, sizeof header,
             "{\"odd\":{\"dtype\":\"%s\",\"shape\":[2],\"data_offsets\":[0,4]},"
             "\"w\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
             dtypes[i]);
    PX_SCOPED(px_tree) tree = NULL;
    accepts(header, 8, 1);
    OK(px_load_tree(&tree, path_of("file"), PX_DEVICE_NONE));
    CHECK_EQ(px_tree_size(tree), 2);
    CHECK_EQ(px_tree_kind_of(px_tree_get(tree, "odd")), PX_TREE_FOREIGN);
    CHECK_TEXT(px_tree_get_text(px_tree_get(tree, "odd")), dtypes[i]);
    CHECK(px_tree_get_tensor(px_tree_get(tree, "w")));
    PX_SCOPED(px_dict) known = NULL;
    OK(px_tree_to_dict(&known, tree));
    CHECK_EQ(px_dict_size(known), 1);
    FAILS(px_save_tree(path_of("other"), tree), PX_TYPE, "a dtype unsupported by Phlox");
  }
  refuses("{\"odd\":{\"dtype\":\"F4\",\"shape\":[1],\"data_offsets\":[0,9]}}", 4, "truncated");
}

PX_TEST(sizes_must_be_integers_in_range) {
#define SHAPE(text) "{\"w\":{\"dtype\":\"F32\",\"shape\":[" text "],\"data_offsets\":[0,4]}}"
  refuses(SHAPE("-1"), 4, "invalid size");
  refuses(SHAPE("1.0"), 4, "invalid size");
  refuses(SHAPE("1.5"), 4, "invalid size");
  refuses(SHAPE("\"1\""), 4, "invalid size");
  refuses(SHAPE("null"), 4, "invalid size");
  refuses(SHAPE("9223372036854775807"), 4, "invalid size");
  refuses(SHAPE("9223372036854775808"), 4, "'");
  refuses(SHAPE("4294967296,4294967296"), 4, "invalid size");
  refuses(SHAPE("4611686018427387904,4,1"), 4, "invalid size");
  refuses(SHAPE("1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
                "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"),
          4, "no valid shape of at most");
  refuses(SHAPE("01"), 4, "the header is not a JSON object");
  refuses(SHAPE("1,"), 4, "the header is not a JSON object");
  refuses(SHAPE("1 1"), 4, "the header is not a JSON object: ',' expected");
  accepts(SHAPE("1,1,1"), 4, 1);
  accepts(SHAPE(" 1 , 1\n"), 4, 1);
}

PX_TEST(an_empty_tensor_cannot_hide_a_size_that_overflows) {
#define EMPTY(text) "{\"w\":{\"dtype\":\"F32\",\"shape\":[" text "],\"data_offsets\":[0,0]}}"
  accepts(EMPTY("0,3"), 0, 1);
  refuses(EMPTY("4611686018427387904,4611686018427387904,0"), 0, "invalid size");
  PX_SCOPED(px_dict) back = NULL;  // the strides would overflow, or it is a tensor without elements
  px_status status =
      px_load(&back, forge(EMPTY("0,4611686018427387904,4611686018427387904"), 0), PX_DEVICE_NONE);
  CHECK(status == PX_RUNTIME || px_tensor_numel(px_dict_get(back, "w")) == 0);
}

PX_TEST(offsets_must_match_the_sizes) {
#define OFFSETS(text) "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[" text "]}}"
  refuses(OFFSETS("0,8"), 8, "has 4 bytes, but its data_offsets are 0 to 8");
  refuses(OFFSETS("4,0"), 4, "has 4 bytes");
  refuses(OFFSETS("-4,0"), 4, "invalid data_offsets");
  refuses(OFFSETS("0.0,4.0"), 4, "invalid data_offsets");
  refuses(OFFSETS("9223372036854775804,9223372036854775807"), 4, "has 4 bytes");
  refuses(OFFSETS("9223372036854775803,9223372036854775807"), 4, "is truncated");
  refuses(OFFSETS("0,4"), 3, "is truncated");
  refuses(OFFSETS("4,8"), 4, "is truncated");
  accepts(OFFSETS("0,4"), 4, 1);
}

PX_TEST(tensors_must_cover_the_data_exactly_once) {
#define PAIR(a, b) \
  "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[" a \
  "]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[" b "]}}"
  accepts(PAIR("0,4", "4,8"), 8, 2);
  accepts(PAIR("4,8", "0,4"), 8, 2);
  refuses(PAIR("0,4", "0,4"), 4, "overlap or leave a hole");
  refuses(PAIR("0,4", "2,6"), 6, "overlap or leave a hole");
  refuses(PAIR("0,4", "8,12"), 12, "overlap or leave a hole");
  refuses(PAIR("4,8", "8,12"), 12, "overlap or leave a hole");
  refuses(PAIR("0,4", "4,8"), 12, "4 trailing bytes");
  refuses("{}", 5, "5 trailing bytes");
}

PX_TEST(names_must_be_unique) {
  refuses(
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
      "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
      8, "duplicate name 'a'");
  refuses(
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
      "\"a\":{\"dtype\":\"F6\",\"shape\":[1],\"data_offsets\":[4,8]}}",
      8, "duplicate name 'a'");
}

PX_TEST(metadata_of_another_type_is_ignored) {
  char *value = NULL;
  accepts("{\"__metadata__\":{\"a\":\"b\"}}", 0, 0);
  OK(px_load_metadata(&value, forge("{\"__metadata__\":[1]}", 0), "a"));
  CHECK(!value);
  OK(px_load_metadata(&value, forge("{\"__metadata__\":{\"a\":1}}", 0), "a"));
  CHECK(!value);
}

// ---- not a file

PX_TEST(an_absent_file_is_not_found) {
  px_dict *state = NULL;
  char *value = NULL;
  FAILS(px_load(&state, path_of("absent"), PX_DEVICE_NONE), PX_NOT_FOUND,
        "[Errno 2] No such file or directory: '");
  FAILS(px_load_metadata(&value, path_of("absent"), "k"), PX_NOT_FOUND, "absent");
}

PX_TEST(only_regular_files_are_accepted) {
  px_dict *state = NULL;
  path_of("");
  FAILS(px_load(&state, folder, PX_DEVICE_NONE), PX_IO, "not a regular file");
  FAILS(px_load(&state, "/dev/null", PX_DEVICE_NONE), PX_IO, "not a regular file");
}

PX_TEST(an_empty_file_is_refused) {
  px_dict *state = NULL;
  FAILS(px_load(&state, write_file("", 0), PX_DEVICE_NONE), PX_RUNTIME, "is truncated");
}

PX_TEST(a_pipe_does_not_hang_the_reader) {
  px_dict *state = NULL;
  const char *path = path_of("pipe");
  CHECK(mkfifo(path, 0600) == 0);
  FAILS(px_load(&state, path, PX_DEVICE_NONE), PX_IO, "not a regular file");
}

// ---- writing

PX_TEST(a_missing_folder_is_not_found) {
  PX_SCOPED(px_dict) state = dict();
  FAILS(px_save(path_of("no/such"), state, NULL), PX_NOT_FOUND, "No such file or directory");
}

PX_TEST(a_tensor_cannot_have_the_metadata_name) {
  PX_SCOPED(px_dict) state = dict();
  add_tensor(state, "__metadata__", &(float){1}, 0, NULL, PX_FLOAT32);
  FAILS(px_save(path_of("file"), state, NULL), PX_VALUE, "expected a tensor name other than");
}

PX_TEST(a_folder_is_not_overwritten) {
  PX_SCOPED(px_dict) state = dict();
  char path[128];
  snprintf(path, sizeof path, "%s", path_of("taken"));
  CHECK(mkdir(path, 0700) == 0);
  FAILS(px_save(path, state, NULL), PX_IO, "taken");
  CHECK(rmdir(path) == 0);
  CHECK(rmdir(folder) == 0);  // no other file is left
}

PX_TEST(a_killed_writer_keeps_the_old_file) {
  const char *path = path_of("state");
  PX_SCOPED(px_dict) old = dict();
  PX_SCOPED(px_dict) back = NULL;
  add_tensor(old, "w", &(float){1}, 0, NULL, PX_FLOAT32);
  OK(px_save(path, old, NULL));
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    PX_SCOPED(px_dict) fresh = dict();
    px_tensor *large = NULL;
    OK(px_zeros(&large, (int64_t[]){64 << 20}, 1, PX_FLOAT32, px_cpu(), false, false));
    OK(px_dict_set(fresh, "w", large));
    alarm(0);
    OK(px_fault_arm("file", 4,
                    true));  // a full disk during the save, and then the process is killed
    (void)!px_save(path, fresh, NULL);
    _exit(0);
  }
  usleep(20000);
  kill(child, SIGKILL);
  CHECK(waitpid(child, NULL, 0) == child);
  OK(px_load(&back, path, PX_DEVICE_NONE));
  CHECK_EQ(px_tensor_ndim(px_dict_get(back, "w")), 0);
}

PX_TEST(a_save_replaces_a_file_atomically) {
  const char *path = path_of("state");
  PX_SCOPED(px_dict) state = dict();
  PX_SCOPED(px_dict) back = NULL;
  struct stat before, after;
  add_tensor(state, "w", &(float){1}, 0, NULL, PX_FLOAT32);
  OK(px_save(path, state, NULL));
  int open_file = open(path, O_RDONLY);  // a reader with the old file open keeps it
  CHECK(open_file >= 0 && fstat(open_file, &before) == 0);
  add_tensor(state, "v", &(float){2}, 0, NULL, PX_FLOAT32);
  OK(px_save(path, state, NULL));
  CHECK(stat(path, &after) == 0 && after.st_ino != before.st_ino);
  CHECK(fstat(open_file, &before) == 0 && before.st_size < after.st_size);
  close(open_file);
  OK(px_load(&back, path, PX_DEVICE_NONE));
  CHECK_EQ(px_dict_size(back), 2);
}

// ---- trees

static void add_number(px_tree *to, const char *key, px_scalar number) {
  PX_SCOPED(px_tree) part = NULL;
  OK(px_tree_number(&part, number));
  OK(px_tree_set(to, key, part));
}

static px_tree *checkpoint(void) {
  PX_SCOPED(px_dict) state = dict();
  PX_SCOPED(px_tree) model = NULL;
  px_tree *made = NULL;
  add_tensor(state, "w", &(float){1.5}, 0, NULL, PX_FLOAT32);
  OK(px_tree_new(&made, PX_TREE_DICT));
  OK(px_tree_from_dict(&model, state));
  OK(px_tree_set(made, "model", model));
  OK(px_tree_set(made, "again", model));
  add_number(made, "epoch", px_int(3));
  add_number(made, "lr", px_float(0.1));
  return made;
}

PX_TEST(a_tree_round_trips) {
  PX_SCOPED(px_tree) tree = checkpoint();
  PX_SCOPED(px_tree) back = NULL;
  PX_SCOPED(px_dict) state = NULL;
  px_scalar number;
  OK(px_save_tree(path_of("tree"), tree));
  OK(px_load_tree(&back, path_of("tree"), PX_DEVICE_NONE));
  CHECK_EQ(px_tree_size(back), 4);
  CHECK_EQ(px_tree_get_number(px_tree_get(back, "epoch")).v.i, 3);
  CHECK(px_tree_get_number(px_tree_get(back, "lr")).v.f == 0.1);
  OK(px_tree_to_dict(&state, px_tree_get(back, "model")));
  OK(px_tensor_item(&number, px_dict_get(state, "w")));
  CHECK_NEAR(px_scalar_float(number), 1.5, 0);
  CHECK(px_tree_get_tensor(px_tree_get(px_tree_get(back, "again"), "w")) ==
        px_dict_get(state, "w"));
}

PX_TEST(a_tree_in_memory_has_the_bytes_of_the_file) {
  PX_SCOPED(px_tree) tree = checkpoint();
  PX_SCOPED(px_tree) back = NULL;
  static char file[4096];
  void *bytes = NULL;
  size_t length = 0;
  OK(px_save_tree(path_of("tree"), tree));
  OK(px_tree_encode(&bytes, &length, tree));
  CHECK_EQ(read_file(path_of("tree"), file, sizeof file), length);
  CHECK(!memcmp(file, bytes, length));
  OK(px_tree_decode(&back, bytes, length, PX_DEVICE_NONE, "bytes"));
  px_free(bytes);
  CHECK_EQ(px_tree_size(back), 4);
}

PX_TEST(a_file_without_structure_loads_as_a_dict) {
  PX_SCOPED(px_dict) state = dict();
  PX_SCOPED(px_tree) back = NULL;
  add_tensor(state, "w", &(float){1}, 0, NULL, PX_FLOAT32);
  OK(px_save(path_of("plain"), state, NULL));
  OK(px_load_tree(&back, path_of("plain"), PX_DEVICE_NONE));
  CHECK_EQ(px_tree_kind_of(back), PX_TREE_DICT);
  CHECK(px_tree_get_tensor(px_tree_get(back, "w")));
}

// A file with one tensor "w" and this structure as JSON text in the header.
static const char *with_structure(const char *structure) {
  static char header[4096];
  int n = snprintf(header, sizeof header, "{\"__metadata__\":{\"phlox.structure\":\"");
  for (; *structure; structure++)
    n += snprintf(header + n, sizeof header - (size_t)n, *structure == '"' ? "\\%c" : "%c",
                  *structure);
  snprintf(header + n, sizeof header - (size_t)n,
           "\"},\"w\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}}");
  return forge(header, 8);
}

static void refuses_structure(const char *structure, const char *text) {
  px_tree *back = NULL;
  int64_t objects = px_live_objects(NULL);
  FAILS(px_load_tree(&back, with_structure(structure), PX_DEVICE_NONE), PX_RUNTIME, text);
  CHECK(!back);
  CHECK_EQ(px_live_objects(NULL), objects);
}

PX_TEST(invalid_structures_are_refused) {
  PX_SCOPED(px_tree) back = NULL;
  OK(px_load_tree(&back, with_structure("[\"tensor\",\"w\",\"cuda:7\"]"), PX_DEVICE_NONE));
  CHECK_EQ(px_tree_get_device(back).index, 7);
  CHECK(px_device_equal(px_tensor_device(px_tree_get_tensor(back)), px_cpu()));
  refuses_structure("", "not JSON");
  refuses_structure("[", "not JSON");
  refuses_structure("[\"list\",1", "not JSON");
  refuses_structure("[\"list\",]", "not JSON");
  refuses_structure("[\"list\" 1]", "not JSON: ',' expected");
  refuses_structure("{\"a\":1,}", "not JSON");
  refuses_structure("{1:1}", "not JSON: a member without a name");
  refuses_structure("1 1", "not JSON: more than one value");
  refuses_structure("[]", "unknown tag ''");
  refuses_structure("[\"eval\",\"x\"]", "unknown tag 'eval'");
  refuses_structure("[1,2]", "unknown tag");
  refuses_structure("[\"tensor\"]", "names a tensor ''");
  refuses_structure("[\"tensor\",\"v\",\"cpu\"]", "names a tensor 'v' that is not in the file");
  refuses_structure("[\"tensor\",\"w\"]", "a tensor without a device");
  refuses_structure("[\"tensor\",\"w\",\"gpu\"]", "a tensor without a device");
  refuses_structure("[\"tensor\",\"w\",\"cpu\",\"grad\"]", "an integer that requires grad");
  refuses_structure("[\"dict\",1]", "a dict with an entry that is not a pair");
  refuses_structure("[\"dict\",[1]]", "a dict with an entry that is not a pair");
  refuses_structure("[\"dict\",[1,2,3]]", "a dict with an entry that is not a pair");
  refuses_structure("[\"float\",\"big\"]", "a float of an unknown form");
  refuses_structure("[\"float\"]", "a tag without its text");
  refuses_structure("[\"dtype\",\"float7\"]", "an unknown dtype");
  refuses_structure("[\"device\",\"\"]", "an unknown device");
  refuses_structure("9223372036854775808", "a number out of range");
  char deep[1024] = {0};
  for (int i = 0; i <= PX_TREE_DEPTH; i++) strcat(deep, "[\"list\",");
  refuses_structure(deep, "nested too deeply");
}

PX_TEST(a_too_deep_tree_is_refused) {
  px_tree *tree = NULL;
  OK(px_tree_new(&tree, PX_TREE_LIST));
  for (int i = 0; i < PX_TREE_DEPTH + 1; i++) {
    px_tree *outer = NULL;
    OK(px_tree_new(&outer, PX_TREE_LIST));
    OK(px_tree_append(outer, tree));
    px_release(tree);
    tree = outer;
  }
  FAILS(px_save_tree(path_of("deep"), tree), PX_VALUE, "a tree of depth at most 60");
  px_release(tree);
  CHECK(access(path_of("deep"), F_OK) != 0);
  PX_SCOPED(px_tree) text = NULL;
  OK(px_tree_text(&text, "\xff"));
  FAILS(px_save_tree(path_of("bytes"), text), PX_VALUE, "not UTF-8");
  FAILS(px_tree_append(text, text), PX_TYPE, "expected a list or a tuple");
  FAILS(px_tree_set(text, "k", text), PX_TYPE, "expected a dict");
}
