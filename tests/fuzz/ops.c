// SPDX-License-Identifier: Apache-2.0
// Each op, including internal ones, called by name with random arguments of all kinds, in all
// forms, on the CPU and on simulated devices. Arguments start from those of a sample, if any, to
// get past the checks. FUZZ_OP=softmax selects one op. FUZZ_SHOW=1 prints calls.

#include "fuzz.h"

#include "devices.h"
#include "ops/samples.h"

#include <sys/resource.h>

#define PICK(array) (array)[fuzz_below(sizeof(array) / sizeof *(array))]

enum {
  MAX_ELEMENTS = 4096,
  MADE = 64,
  NUMBERS = 8
};  // elements of a tensor; tensors and numbers of a case

// The tensors of a case, and the numbers and lists of its arguments.
static px_tensor *made[MADE];
static int made_count;
static int64_t numbers[SAMPLE_PARAMS][NUMBERS];
static px_tensor *lists[SAMPLE_PARAMS][NUMBERS];

static px_device some_device(void) {
  return fuzz_one_in(2) ? px_cpu() : (px_device){PX_CUDA, fuzz_one_in(5)};
}

// ---- values

static double some_float(void) {
  static const double odd[] = {0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 1e300, 1e-320, 0.5, 65536};
  return fuzz_one_in(3) ? PICK(odd) : (double)fuzz_int() / 7;
}

// About half of the elements are valid as indices.
static px_scalar some_element(px_dtype dtype) {
  if (px_dtype_is_float(dtype)) return px_float(some_float());
  return fuzz_one_in(8) ? px_int(fuzz_int()) : px_int(fuzz_below(4));
}

// A tensor of random sizes, dtype and strides: row-major, with gaps, with repeated elements, or
// with an offset.
static px_tensor *some_tensor(px_device device) {
  static char bytes[MAX_ELEMENTS * 16];
  px_dtype dtype = fuzz_one_in(2) ? PX_FLOAT32 : (px_dtype)fuzz_below(PX_DTYPE_COUNT);
  int64_t sizes[5], strides[5], step = 1, last = 0, offset = fuzz_one_in(4) ? fuzz_below(9) : 0;
  int ndim = (int)fuzz_below(fuzz_one_in(3) ? 6 : 4);
  bool rows = fuzz_one_in(2);
  for (int d = ndim - 1; d >= 0; d--) {
    sizes[d] = fuzz_one_in(12) ? 0 : fuzz_one_in(20) ? 7 : 1 + fuzz_below(4);
    strides[d] = rows ? step : fuzz_below(8);
    step *= sizes[d];
    last += sizes[d] ? (sizes[d] - 1) * strides[d] : 0;
  }
  int64_t count = last + offset + 1;
  if (count > MAX_ELEMENTS) return some_tensor(device);
  for (int64_t i = 0; i < count; i++)
    px_scalar_store(some_element(dtype), dtype, bytes + (size_t)i * px_dtype_size(dtype));
  PX_SCOPED(px_tensor) all = NULL;
  px_tensor *t = NULL;
  OK(px_tensor_from_data(&all, bytes, 1, &count, dtype, device));
  OK(px_tensor_as_strided(&t, all, ndim, sizes, strides, offset));
  if (fuzz_one_in(3) && px_dtype_is_float(dtype)) OK(px_tensor_set_requires_grad(t, true));
  CHECK(made_count < MADE);
  return made[made_count++] = t;
}

// A new tensor, or an existing one of the case.
static px_tensor *any_tensor(const sample *s) {
  if (fuzz_one_in(6) && made_count) return made[fuzz_below(made_count)];
  if (fuzz_one_in(6) && s->tensor_count) return s->tensors[fuzz_below(s->tensor_count)];
  return some_tensor(fuzz_one_in(10) ? some_device() : s->device);
}

static px_value some_scalar(void) {
  return fuzz_one_in(3)   ? PX_S(px_bool(fuzz_one_in(2)))
         : fuzz_one_in(2) ? PX_S(px_int(fuzz_int()))
                          : PX_S(px_float(some_float()));
}

static px_value some_text(void) {
  static const char *const words[] = {
      "",        "mean", "sum",      "none",      "batchmean", "constant", "reflect", "replicate",
      "nearest", "area", "bilinear", "bicubic",   "linear",    "trunc",    "floor",   "tanh",
      "ij",      "fro",  "same",     "ij,jk->ik", "i...->...", "ii",       "left",    "circular",
      "amax",    "%s%n", "prod",     "\xff\xfe",  "valid",     "higher",   "nuc",     "none "};
  return PX_TX(PICK(words));
}

static px_value some_list(const sample *s, int i, bool tensors) {
  int n = (int)fuzz_below(fuzz_one_in(5) ? NUMBERS + 1 : 4);
  for (int k = 0; k < n && tensors; k++) lists[i][k] = fuzz_one_in(12) ? NULL : any_tensor(s);
  for (int k = 0; k < n && !tensors; k++)
    numbers[i][k] = fuzz_one_in(2) ? fuzz_below(4) : fuzz_int();
  return tensors ? PX_TS(lists[i], n) : PX_IS(numbers[i], n);
}

static px_value some_value(const sample *s, int i, int kind) {
  switch (kind) {
    case PX_ARG_TENSOR:
      return PX_T(any_tensor(s));
    case PX_ARG_SCALAR:
      return some_scalar();
    case PX_ARG_INT:
      return PX_I(fuzz_int());
    case PX_ARG_FLOAT:
      return PX_F(some_float());
    case PX_ARG_BOOL:
      return PX_B(fuzz_one_in(2));
    case PX_ARG_INTS:
    case PX_ARG_TENSORS:
      return some_list(s, i, kind == PX_ARG_TENSORS);
    case PX_ARG_DTYPE:
      return PX_DT((px_dtype)fuzz_below(PX_DTYPE_COUNT));
    case PX_ARG_DEVICE:
      return PX_DV(some_device());
    case PX_ARG_TEXT:
      return some_text();
    default:
      return PX_NONE();
  }
}

// ---- a call

// The arguments of a sample of the op, if there is one, with some replaced.
static void some_arguments(sample *s, const px_op *op, px_value *args) {
  int rows[SAMPLE_ROWS], count = 0;
  for (int row = 0; row < SAMPLE_ROWS; row++)
    if (!strcmp(sample_rows[row].op_name, op->name)) rows[count++] = row;
  px_dtype dtype = fuzz_one_in(3) ? (px_dtype)fuzz_below(PX_DTYPE_COUNT) : PX_FLOAT32;
  *s = (sample){.op = op, .device = some_device(), .dtype = dtype};
  if (count) sample_open(s, rows[fuzz_below(count)], dtype, s->device);
  memcpy(args, s->args, sizeof s->args);
  for (int k = 0; k < s->tensor_count; k++)
    if (s->tensors[k] && fuzz_one_in(2) && px_dtype_is_float(px_tensor_dtype(s->tensors[k])))
      OK(px_tensor_set_requires_grad(s->tensors[k], true));
  int64_t all = !count || fuzz_one_in(10) ? 1 : op->param_count + fuzz_below(3);
  for (int i = 0; i < op->param_count; i++) {
    int kind = fuzz_one_in(25) ? (int)fuzz_below(PX_ARG_GENERATOR) : op->params[i].kind;
    if (fuzz_one_in(all)) args[i] = some_value(s, i, kind);
  }
}

// The bytes of a writable host tensor, to check that a failed call leaves them unchanged.
static char contents[2][MAX_ELEMENTS * 16];
static size_t copy_bytes(const px_tensor *t, char *bytes) {
  size_t size = t ? (size_t)px_tensor_numel(t) * px_dtype_size(px_tensor_dtype(t)) : 0;
  if (!t || px_tensor_is_cuda(t) || px_tensor_numel(t) > MAX_ELEMENTS) return 0;
  OK(px_tensor_read(t, bytes, size));
  return size;
}

// Reads each element of a result, and runs backward from it. An error is fine.
static void use(px_tensor *result) {
  PX_SCOPED(px_tensor) copy = NULL;
  PX_SCOPED(px_tensor) ones = NULL;
  if (!result || px_tensor_numel(result) > 1 << 16) return;
  fuzz_fine(px_clone(&copy, result, NULL));
  if (!px_tensor_requires_grad(result) ||
      !fuzz_fine(px_ones_like(&ones, result, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL)))
    return;
  fuzz_fine(px_backward(1, &result, &ones, false, fuzz_one_in(4)));
}

static void collect_results(const px_op *op, px_call_mode mode, void **results) {
  bool list = op->flags & PX_OP_RETURNS_LIST && mode == PX_CALL_NEW;
  int count = mode == PX_CALL_INPLACE ? 1 : op->result_count;
  for (int i = 0; i < count && !list; i++) use(results[i]);
  for (int64_t i = 0; list && i < px_list_size(results[0]) && i < 8; i++)
    use(px_list_get(results[0], i));
  for (int i = 0; i < count; i++) px_release(results[i]);
}

static void call(const sample *s, const px_value *args) {
  px_call_mode mode = (px_call_mode)(fuzz_one_in(2) ? 0 : fuzz_below(3));
  if (s->op->flags & PX_OP_ONLY_INPLACE && !fuzz_one_in(20)) mode = PX_CALL_INPLACE;
  void *results[4] = {NULL};
  px_tensor *written = NULL;
  if (mode == PX_CALL_OUT) results[0] = written = any_tensor(s);
  if (mode == PX_CALL_INPLACE && args[0].kind == PX_ARG_TENSOR) written = args[0].v.tensor;
  size_t size = copy_bytes(written, contents[0]);
  char text[400];
  if (getenv("FUZZ_SHOW"))
    fprintf(stderr, "%lld: mode %d %s\n", (long long)fuzz_case, mode,
            px_op_describe(s->op, args, text, sizeof text));
  px_status status = px_op_call(s->op, mode, args, results);
  if (fuzz_fine(status)) collect_results(s->op, mode, results);
  if (status == PX_OK) return;
  CHECK_EQ(copy_bytes(written, contents[1]), size);
  CHECK(!memcmp(contents[0], contents[1], size));
}

static void prepare(void) {
  static bool done;
  if (done) return;
  setenv("PHLOX_SIM_MEMORY", "256M", 0);
  simulate(2);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // 9 GiB of addresses are reserved by the two devices
  setrlimit(RLIMIT_AS, &(struct rlimit){14L << 30, 14L << 30});
#endif
  done = true;
}

// A gradient with a graph references its own tensor.
static void release_tensor(px_tensor *t) {
  if (t) OK(px_tensor_set_grad(t, NULL));
}

// Raises kernel faults. No kernel may access foreign memory.
static void wait_for(int device) {
  if (px_device_synchronize(device) == PX_OK) return;
  CHECK(!strstr(px_error_last()->message, "illegal memory access"));
  px_error_clear();
}

FUZZ(calls_of_ops) {
  static const px_op *only;
  prepare();
  if (!only && getenv("FUZZ_OP")) CHECK((only = px_op_find(getenv("FUZZ_OP"))) != NULL);
  const px_op *op = px_op_at((int)fuzz_below(px_op_count()));
  sample s;
  px_value args[SAMPLE_PARAMS] = {{0}};
  made_count = 0;
  px_manual_seed(1);
  some_arguments(&s, only ? only : op, args);
  call(&s, args);
  for (int i = 0; i < s.tensor_count; i++) release_tensor(s.tensors[i]);
  for (int i = 0; i < made_count; i++) release_tensor(made[i]);
  sample_close(&s);
  for (int i = 0; i < made_count; i++) px_release(made[i]);
  for (int i = 0; i < 2; i++) wait_for(i);
}
