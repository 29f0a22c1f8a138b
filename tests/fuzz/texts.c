// SPDX-License-Identifier: Apache-2.0
// User-provided texts: devices, CUDA_VISIBLE_DEVICES, dtypes, allocator settings and equations.
#include "fuzz.h"

#include <ctype.h>
#include <strings.h>

// ---- devices: the grammar of PyTorch, with blanks around the index
static bool digits(const char *at, long *value) {
  char *end;
  if (!isdigit((unsigned char)*at) || (*at == '0' && at[1])) return false;
  *value = strtol(at, &end, 10);
  return !*end;
}
static bool is_device(const char *text, px_device *out) {
  size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz");
  bool cpu = n == 3 && !strncmp(text, "cpu", 3), cuda = n == 4 && !strncmp(text, "cuda", 4);
  bool meta = n == 4 && !strncmp(text, "meta", 4);
  long index = -1;
  if (!cpu && !cuda && !meta) return false;
  if (text[n]) {
    if (text[n] != ':') return false;
    const char *at = text + n + 1;
    if (*at == ' ') at++;
    if (!digits(at, &index)) return false;
  }
  *out = (px_device){cpu ? PX_CPU : cuda ? PX_CUDA : PX_META, (int)index};
  return index <= 127;
}

FUZZ(device_names) {
  static const char *const words[] = {"cpu", "cuda", ":",   ":",    "0",
                                      "1",   "7",    "12",  "300",  " ",
                                      "-1",  "01",   "gpu", "CUDA", "99999999999999999999",
                                      "x",   "meta"};
  fuzz_text text = {.length = 0};
  px_device got, wanted;
  char again[PX_DEVICE_TEXT];
  FUZZ_WORDS(&text, (int)fuzz_below(5), words, 30);
  bool good = fuzz_fine(px_device_parse(&got, text.at));
  if (!good) {
    CHECK(!is_device(text.at, &wanted));
    return;
  }
  CHECK(is_device(text.at, &wanted));
  CHECK(got.type == wanted.type && got.index == wanted.index);
  px_device back;
  OK(px_device_parse(&back, px_device_format(got, again)));
  CHECK(px_device_equal(back, got));
}

FUZZ(dtype_names) {
  static const char *const words[] = {"float", "32", "64", "int",    "u", "8",   "bool",
                                      "half",  "b",  "16", "torch.", "",  "long"};
  fuzz_text text = {.length = 0};
  px_dtype got, back;
  FUZZ_WORDS(&text, (int)fuzz_below(4), words, 30);
  if (!fuzz_fine(px_dtype_parse(&got, text.at))) return;
  CHECK(got >= 0 && got < PX_DTYPE_COUNT);
  OK(px_dtype_parse(&back, px_dtype_name(got)));
  CHECK_EQ(back, got);
}

// ---- CUDA_VISIBLE_DEVICES over four devices
enum { PRESENT = 4 };

// The visible devices of a list of plain numbers: the list ends at the first missing device. With a
// duplicate, no device is visible.
static int visible_of(const int *numbers, int count) {
  for (int i = 0; i < count; i++) {
    if (numbers[i] < 0 || numbers[i] >= PRESENT) return i;
    for (int k = 0; k < i; k++)
      if (numbers[k] == numbers[i]) return 0;
  }
  return count;
}

static int count_with(const char *text) {
  setenv("PHLOX_BACKENDS", "sim", 1);
  setenv("PHLOX_SIM_DEVICES", "4", 1);
  setenv("CUDA_VISIBLE_DEVICES", text, 1);
  return px_device_count(PX_CUDA);
}

FUZZ(visible_numbers) {
  fuzz_text text = {.length = 0};
  int numbers[6], count = (int)fuzz_below(7);
  for (int i = 0; i < count; i++) {
    char word[16];
    numbers[i] = (int)fuzz_below(PRESENT + 2) - fuzz_one_in(9) * 10;
    snprintf(word, sizeof word, "%s%d%s", i ? "," : "", numbers[i], fuzz_one_in(6) ? " " : "");
    fuzz_put(&text, word, strlen(word));
  }
  CHECK_EQ(count_with(text.at), visible_of(numbers, count));
}

FUZZ(visible_words) {
  static const char *const words[] = {"0",
                                      "1",
                                      "3",
                                      ",",
                                      ",",
                                      " ",
                                      "-1",
                                      "GPU-",
                                      "MIG-",
                                      "0x",
                                      "gpu",
                                      "99999999999",
                                      "GPU-00000000-0000",
                                      "\t",
                                      "+1"};
  fuzz_text text = {.length = 0};
  FUZZ_WORDS(&text, (int)fuzz_below(9), words, 12);
  int count = count_with(text.at);
  CHECK(count >= 0 && count <= PRESENT);
  CHECK_EQ(count_with(text.at), count);
}

// ---- environment variables: a value has its type, or is an error
static bool is_flag(const char *text) {
  static const char *const words[] = {"1", "true", "yes", "on", "0", "false", "no", "off", ""};
  for (int i = 0; i < 9; i++)
    if (!strcasecmp(words[i], text)) return true;
  return false;
}

FUZZ(environment) {
  static const char *const words[] = {
      "1", "0", "on", "TRUE",     "no",      "-",  "4", "K", "g", "9223372036854775807",
      "+", " ", "x",  "schedule", "threads", "64", ".."};
  fuzz_text text = {.length = 0};
  const px_env_row *row;
  int64_t count = 0, out = -7;
  while (px_env_at((int)count)) count++;
  row = px_env_at((int)fuzz_below(count));
  FUZZ_WORDS(&text, (int)fuzz_below(4), words, 12);
  setenv(row->name, text.at, 1);
  bool good = fuzz_fine(px_env_read(row->name, &out));
  if (!strcmp(row->type, "flag")) CHECK_EQ(good, is_flag(text.at));
  if (!strcmp(row->type, "int") && good) CHECK(out >= -1 && (*row->fallback == '-' || out >= 0));
  if (!strcmp(row->type, "bytes") && good) CHECK(out > 0 && out <= (int64_t)1 << 40);
  if (!strcmp(row->type, "text")) CHECK(good);
  if (!good) CHECK_EQ(out, -7);
  unsetenv(row->name);
}

// ---- allocator settings
FUZZ(allocator_settings) {
  static const char *const words[] = {"max_split_size_mb",
                                      "garbage_collection_threshold",
                                      "roundup_power2_divisions",
                                      "expandable_segments",
                                      "backend",
                                      "per_process_memory_fraction",
                                      ":",
                                      ":",
                                      ":",
                                      ",",
                                      ",",
                                      "[",
                                      "]",
                                      ">",
                                      "64",
                                      "0.5",
                                      "4",
                                      "256",
                                      "1e300",
                                      "-1",
                                      "True",
                                      "False",
                                      "native",
                                      " ",
                                      "nan",
                                      "0x40"};
  fuzz_text text = {.length = 0};
  FUZZ_WORDS(&text, (int)fuzz_below(12), words, 40);
  px_status status = px_memory_configure(text.at);
  CHECK(status == PX_OK || status == PX_VALUE);
  fuzz_fine(status);
}

// ---- equations
static px_tensor *operand(void) {
  px_tensor *t = NULL;
  int64_t sizes[4];
  int ndim = (int)fuzz_below(4);
  for (int d = 0; d < ndim; d++) sizes[d] = fuzz_one_in(8) ? 0 : 1 + fuzz_below(3);
  OK(px_ones(&t, sizes, ndim, PX_FLOAT32, px_cpu(), false, false));
  return t;
}

FUZZ(einsum_equations) {
  static const char *const words[] = {"a", "b",  "c",   "A", "i", "j", "ij", "jk", ",",
                                      ",", "->", "...", " ", ".", "-", ">",  "ab", "ii"};
  fuzz_text text = {.length = 0};
  px_tensor *operands[4];
  PX_SCOPED(px_tensor) out = NULL;
  int count = (int)fuzz_below(4);
  for (int i = 0; i < count; i++) operands[i] = operand();
  FUZZ_WORDS(&text, (int)fuzz_below(9), words, 30);
  bool good = fuzz_fine(px_einsum(&out, text.at, operands, count));
  CHECK(good == (out != NULL));
  for (int i = 0; i < count; i++) px_release(operands[i]);
}
