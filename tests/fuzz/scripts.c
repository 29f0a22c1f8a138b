// SPDX-License-Identifier: Apache-2.0
// Hostile TorchScript archives: mutated records, code of random words, pickles of random opcodes.
// Checksums are zero, so mutations reach the readers behind them.
#include "fuzz.h"

static const char code[] =
    "class M(Module):\n"
    "  __parameters__ = [\"w\", ]\n"
    "  __buffers__ = []\n"
    "  w : Tensor\n"
    "  training : bool\n"
    "  n : List[int]\n"
    "  def forward(self: __torch__.m.M,\n"
    "    x: Tensor,\n"
    "    k: int=3) -> Tuple[Tensor, str]:\n"
    "    w = self.w\n"
    "    y = torch.add(torch.mul(x, w), k, alpha=2)\n"
    "    d = {\"a\": [1, 2], \"b\": [k]}\n"
    "    for i in range(k):\n"
    "      if bool(torch.remainder(i, 2)):\n"
    "        _0 = torch.append(d[\"a\"], torch.floordiv(i, 2))\n"
    "      else:\n"
    "        y = torch.slice(torch.cat([y, y]), 0, 1, -1, 1)\n"
    "    n = self.n\n"
    "    self.n = torch.add(n, torch.slice(d[\"a\"], 1))\n"
    "    return (y, torch.format(\"{} of {}\", d, torch.len(y)))\n";
static const char pickle[] =
    "\x80\x02"
    "c__torch__.m\nM\nq\x00)\x81}(X\x08\0\0\0trainingq\x01\x88X\x01\0\0\0wq\x02"
    "ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n"
    "X\x01\0\0\0"
    "0X\x03\0\0\0cpuK\x04tQK\x01K\x03\x85K\x01\x85\x89"
    "ccollections\nOrderedDict\n)RtRX\x01\0\0\0n](K\x01K\x02"
    "eub.";

// An archive under construction.
static unsigned char bytes[1 << 15];
static size_t length;
static unsigned char directory[1 << 12];
static size_t directory_length;
static int records;

static size_t put(unsigned char *at, uint64_t number, int size) {
  for (int i = 0; i < size; i++) at[i] = (unsigned char)(number >> 8 * i);
  return (size_t)size;
}

static size_t put_header(unsigned char *at, size_t name, size_t size) {
  size_t n = put(at, 0, 6);                              // version, flags, method
  n += put(at + n, 0, 8);                                // time, checksum
  n += put(at + n, size, 4), n += put(at + n, size, 4);  // packed, plain
  n += put(at + n, name, 2);
  return n + put(at + n, 0, 2);
}

static void add_record(const char *name, const void *data, size_t size) {
  size_t name_length = strlen(name), offset = length;
  unsigned char *at = directory + directory_length;
  length += put(bytes + length, 0x04034b50, 4);
  length += put_header(bytes + length, name_length, size);
  memcpy(bytes + length, name, name_length);
  memcpy(bytes + length + name_length, data, size);
  length += name_length + size;
  at += put(at, 0x02014b50, 4), at += put(at, 0, 2);
  at += put_header(at, name_length, size);
  at += put(at, 0, 8), at += put(at, 0, 2), at += put(at, offset, 4);  // comment, disk, attributes
  memcpy(at, name, name_length);
  directory_length = (size_t)(at - directory) + name_length;
  records++;
}

static void end_archive(void) {
  size_t at = length;
  memcpy(bytes + length, directory, directory_length);
  length += directory_length;
  length += put(bytes + length, 0x06054b50, 4), length += put(bytes + length, 0, 4);
  length += put(bytes + length, (uint64_t)records, 2);
  length += put(bytes + length, (uint64_t)records, 2);
  length += put(bytes + length, directory_length, 4), length += put(bytes + length, at, 4);
  length += put(bytes + length, 0, 2);
}

static void make_archive(const char *text, size_t text_length, const char *data,
                         size_t data_length) {
  static const float numbers[4] = {1, 2, 3, 4};
  length = directory_length = 0;
  records = 0;
  add_record("m/code/__torch__/m.py", text, text_length);
  add_record("m/data.pkl", data, data_length);
  add_record("m/constants.pkl", "\x80\x02).", 4);
  add_record("m/data/0", numbers, sizeof numbers);
  end_archive();
}

// Ends code without an end.
static double deadline;
static px_status check_time(void) {
  PX_CHECK(fuzz_now() < deadline, PX_RUNTIME, "the code took too long");
  return PX_OK;
}

// Loads a copy of exactly `length` bytes and calls all methods.
static bool load_and_run(void) {
  PX_SCOPED(px_script) script = NULL;
  PX_SCOPED(px_tree) args = NULL, *x = NULL;
  PX_SCOPED(px_tensor) t = NULL;
  unsigned char *exact = malloc(length ? length : 1);
  memcpy(exact, bytes, length);
  deadline = fuzz_now() + 0.3;
  px_interrupt_set_check(check_time);
  bool good = fuzz_fine(px_script_load_bytes(&script, exact, length, px_cpu(), "bytes"));
  free(exact);
  OK(px_ones(&t, (int64_t[]){3}, 1, PX_FLOAT32, px_cpu(), false, false));
  OK(px_tree_new(&args, PX_TREE_TUPLE));
  OK(px_tree_tensor(&x, t));
  OK(px_tree_append(args, x));
  const char *method = NULL;
  for (int i = 0; good; i++) {
    PX_SCOPED(px_tree) result = NULL;
    OK(px_script_method(&method, script, NULL, i));
    if (!method) break;
    good &= fuzz_fine(px_script_run(&result, script, method, args, NULL));
  }
  px_interrupt_set_check(NULL);
  return good;
}

FUZZ(the_archive_itself_runs) {
  make_archive(code, sizeof code - 1, pickle, sizeof pickle - 1);
  CHECK(load_and_run());
}

FUZZ(mutated_archives_are_refused_or_run) {
  make_archive(code, sizeof code - 1, pickle, sizeof pickle - 1);
  for (int64_t n = 1 + fuzz_below(4); n > 0; n--) {
    size_t at = (size_t)fuzz_below((int64_t)length);
    bytes[at] = fuzz_one_in(2) ? (unsigned char)fuzz_bits() : bytes[at] ^ (1u << fuzz_below(8));
  }
  if (fuzz_one_in(8)) length = (size_t)fuzz_below((int64_t)length);
  (void)load_and_run();
}

FUZZ(mutated_code_is_refused_or_runs) {
  char text[sizeof code];
  memcpy(text, code, sizeof code);
  for (int64_t n = 1 + fuzz_below(3); n > 0; n--) {
    size_t from = (size_t)fuzz_below(sizeof code - 1), to = (size_t)fuzz_below(sizeof code - 1);
    size_t size = (size_t)fuzz_below(30);
    if (from + size < sizeof code && to + size < sizeof code) memmove(text + to, code + from, size);
  }
  make_archive(text, sizeof code - 1, pickle, sizeof pickle - 1);
  (void)load_and_run();
}

FUZZ(code_of_random_words) {
  static const char *const words[] = {"x",
                                      "y",
                                      "self",
                                      ".",
                                      ",",
                                      "(",
                                      ")",
                                      "[",
                                      "]",
                                      "{",
                                      "}",
                                      ":",
                                      "=",
                                      "torch",
                                      ".add",
                                      ".mul",
                                      ".slice",
                                      ".len",
                                      ".append",
                                      ".view",
                                      ".size",
                                      "1",
                                      "-2",
                                      "0.5",
                                      "\"{}\"",
                                      "None",
                                      "True",
                                      "[x, x]",
                                      "torch.add(",
                                      "torch.list(",
                                      "annotate(Tensor, ",
                                      "self.forward(",
                                      "__torch__.m.M",
                                      "\n    ",
                                      "\n      ",
                                      "if bool(y):\n      ",
                                      "while True:\n      ",
                                      "for i in range(3):\n      ",
                                      "return ",
                                      "y = ",
                                      " if ",
                                      " else ",
                                      " in ",
                                      " + ",
                                      " * ",
                                      " is not ",
                                      "9223372036854775807"};
  char text[4096] =
      "class M(Module):\n  n : int\n  training : bool\n  w : Tensor\n"
      "  def forward(self, x, k: int=1):\n    y = [x]\n    ";
  for (int64_t n = fuzz_below(30); n > 0; n--)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s",
             words[fuzz_below(sizeof words / sizeof *words)]);
  snprintf(text + strlen(text), sizeof text - strlen(text), "\n");
  make_archive(text, strlen(text), pickle, sizeof pickle - 1);
  (void)load_and_run();
}

FUZZ(pickles_of_random_opcodes) {
  static const struct {
    const char *text;
    size_t length;
  } words[] = {
#define W(text) {text, sizeof text - 1}
      W("("),
      W(")"),
      W("]"),
      W("}"),
      W("N"),
      W("\x88"),
      W("K\x01"),
      W("J\xff\xff\xff\xff"),
      W("X\x01\0\0\0n"),
      W("X\x01\0\0\0w"),
      W("t"),
      W("\x85"),
      W("\x86"),
      W("\x87"),
      W("a"),
      W("e"),
      W("s"),
      W("u"),
      W("q\0"),
      W("q\x01"),
      W("h\0"),
      W("h\x01"),
      W("c__torch__.m\nM\n"),
      W("ctorch\nFloatStorage\n"),
      W("ctorch._utils\n_rebuild_tensor_v2\n"),
      W("ctorch.jit._pickle\nrestore_type_tag\n"),
      W("R"),
      W("\x81"),
      W("b"),
      W("Q"),
      W("c__torch__.m\nM\n)\x81"),
      W("(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0"
        "0X\x03\0\0\0cpuK\x04tQ"),
      W("]q\0h\0a"),
#undef W
  };
  char data[1024] = "\x80\x02";
  size_t used = 2;
  for (int64_t n = fuzz_below(25); n > 0; n--) {
    int64_t at = fuzz_below(sizeof words / sizeof *words);
    memcpy(data + used, words[at].text, words[at].length);
    used += words[at].length;
  }
  data[used++] = '.';
  make_archive(code, sizeof code - 1, data, used);
  (void)load_and_run();
}
