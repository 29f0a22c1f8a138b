// SPDX-License-Identifier: Apache-2.0
// Arguments of random calls of ops. They start from those of a sample, if any, to get past the
// checks. Some are replaced by random values, and by edge cases of their kind: tensors without
// dimensions or with the most, empty and overlong lists, dimensions out of range, integers at the
// ends of their type, absent arguments.
#pragma once
#include "fuzz.h"

#include "devices.h"
#include "ops/samples.h"

#include <sys/resource.h>

#define PICK(array) (array)[fuzz_below(sizeof(array) / sizeof *(array))]

enum {
  MAX_ELEMENTS = 4096,  // of a tensor
  MADE = 256,           // tensors of a case
  NUMBERS = 72          // elements of a list
};

// The tensors of a case, and the numbers and lists of its arguments.
static px_tensor *made[MADE];
static int made_count;
static int64_t numbers[SAMPLE_PARAMS][NUMBERS];
static px_tensor *lists[SAMPLE_PARAMS][NUMBERS];

static px_device some_device(void) {
  if (fuzz_one_in(24)) return px_meta();
  return fuzz_one_in(2) ? px_cpu() : (px_device){PX_CUDA, fuzz_one_in(5)};
}

// ---- numbers

static double some_float(void) {
  static const double odd[] = {0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 1e300, 1e-320, 0.5, 65536};
  return fuzz_one_in(3) ? PICK(odd) : (double)fuzz_int() / 7;
}
// A number around the limits of dimensions and of integer types, or fuzz_int().
static int64_t some_int(void) {
  static const int64_t edges[] = {-1,
                                  -2,
                                  0,
                                  PX_MAX_DIMS - 1,
                                  PX_MAX_DIMS,
                                  PX_MAX_DIMS + 1,
                                  -PX_MAX_DIMS,
                                  -PX_MAX_DIMS - 1,
                                  -PX_MAX_DIMS - 2,
                                  INT64_MIN,
                                  INT64_MIN + 1,
                                  INT64_MAX,
                                  (int64_t)1 << 31,
                                  (int64_t)1 << 32};
  return fuzz_one_in(3) ? PICK(edges) : fuzz_int();
}

// ---- tensors

static px_tensor *keep(px_tensor *t) {
  CHECK(made_count < MADE);
  return made[made_count++] = t;
}

// About half of the elements are valid as indices.
static px_scalar some_element(px_dtype dtype) {
  if (px_dtype_is_float(dtype)) return px_float(some_float());
  return fuzz_one_in(8) ? px_int(fuzz_int()) : px_int(fuzz_below(4));
}

// The number of dimensions: few in most cases, none or about the most in others.
static int some_ndim(void) {
  if (fuzz_one_in(8)) return 0;
  if (fuzz_one_in(12)) return PX_MAX_DIMS - (int)fuzz_below(4);
  return (int)fuzz_below(fuzz_one_in(3) ? 6 : 4);
}
static int64_t some_size(int ndim) {
  if (ndim > 8 && !fuzz_one_in(16)) return 1;
  return fuzz_one_in(12) ? 0 : fuzz_one_in(20) ? 7 : 1 + fuzz_below(4);
}

// A tensor of random sizes, dtype and strides: row-major, with gaps, with repeated elements, or
// with an offset.
static px_tensor *some_tensor(px_device device) {
  static char bytes[MAX_ELEMENTS * 16];
  px_dtype dtype = fuzz_one_in(2) ? PX_FLOAT32 : (px_dtype)fuzz_below(PX_DTYPE_COUNT);
  int64_t sizes[PX_MAX_DIMS], strides[PX_MAX_DIMS], step = 1, last = 0;
  int64_t offset = fuzz_one_in(4) ? fuzz_below(9) : 0;
  int ndim = some_ndim();
  bool rows = fuzz_one_in(2);
  for (int d = ndim - 1; d >= 0; d--) {
    sizes[d] = some_size(ndim);
    strides[d] = rows ? step : fuzz_below(8);
    step = step * sizes[d] % MAX_ELEMENTS;
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
  if (fuzz_one_in(3) && px_dtype_is_differentiable(dtype)) OK(px_tensor_set_requires_grad(t, true));
  return keep(t);
}

// Inserts ones into sizes and strides, `at` a dimension.
static void insert_ones(int *ndim, int64_t *sizes, int64_t *strides, int at, int count) {
  for (int d = *ndim - 1; d >= at; d--)
    sizes[d + count] = sizes[d], strides[d + count] = strides[d];
  for (int d = at; d < at + count; d++) sizes[d] = 1, strides[d] = 1;
  *ndim += count;
}

// A view of t with an edge case of its sizes or strides; t itself if t has none of the kind.
static px_tensor *edge_of(px_tensor *t) {
  int64_t sizes[PX_MAX_DIMS], strides[PX_MAX_DIMS];
  int ndim = px_tensor_ndim(t), room = PX_MAX_DIMS - ndim;
  px_tensor *view = NULL;
  for (int d = 0; d < ndim; d++)
    sizes[d] = px_tensor_sizes(t)[d], strides[d] = px_tensor_strides(t)[d];
  int dim = ndim ? (int)fuzz_below(ndim) : 0;
  switch (fuzz_below(ndim ? 8 : 4)) {
    case 0:  // the most dimensions
      insert_ones(&ndim, sizes, strides, fuzz_one_in(2) ? 0 : ndim, room);
      break;
    case 1:  // almost as many
      if (room > 3) insert_ones(&ndim, sizes, strides, dim, room - 1 - (int)fuzz_below(3));
      break;
    case 2:
      if (room) insert_ones(&ndim, sizes, strides, fuzz_one_in(2) ? 0 : ndim, 1);
      break;
    case 3:  // one element
      ndim = 0;
      break;
    case 4:  // no elements
      sizes[dim] = 0;
      break;
    case 5:  // a repeated element
      for (int d = 0; d < ndim; d++) strides[d] = 0;
      break;
    case 6:  // overlapping rows
      strides[dim] = fuzz_below(2);
      break;
    default:  // without the last dimension
      ndim--;
  }
  int64_t offset = px_tensor_offset(t);
  px_status status = px_as_strided(&view, t, sizes, ndim, strides, ndim, &offset);
  px_error_clear();
  return status == PX_OK ? keep(view) : t;
}

// A new tensor, an existing one of the case, or an edge case of one.
static px_tensor *any_tensor(const sample *s) {
  px_tensor *t = NULL;
  if (fuzz_one_in(6) && made_count) t = made[fuzz_below(made_count)];
  if (!t && fuzz_one_in(4) && s->tensor_count) t = s->tensors[fuzz_below(s->tensor_count)];
  if (!t) return some_tensor(fuzz_one_in(10) ? some_device() : s->device);
  return fuzz_one_in(2) ? edge_of(t) : t;
}

// ---- values

static px_value some_scalar(void) {
  return fuzz_one_in(3)   ? PX_S(px_bool(fuzz_one_in(2)))
         : fuzz_one_in(6) ? PX_S(px_uint(fuzz_bits()))
         : fuzz_one_in(2) ? PX_S(px_int(some_int()))
                          : PX_S(px_float(some_float()));
}

static px_value some_text(void) {
  static char longest[5000];
  static const char *const words[] = {
      "",        "mean", "sum",      "none",      "batchmean", "constant", "reflect", "replicate",
      "nearest", "area", "bilinear", "bicubic",   "linear",    "trunc",    "floor",   "tanh",
      "ij",      "fro",  "same",     "ij,jk->ik", "i...->...", "ii",       "left",    "circular",
      "amax",    "%s%n", "prod",     "\xff\xfe",  "valid",     "higher",   "nuc",     "none "};
  if (!fuzz_one_in(20)) return PX_TX(PICK(words));
  memset(longest, "i,.%"[fuzz_below(4)], sizeof longest - 1);
  return PX_TX(longest);
}

// Lists of lengths around the limit of dimensions have the elements 0, 1, ..., or all the same.
static px_value some_ints(int i) {
  int n = (int)fuzz_below(fuzz_one_in(5) ? 9 : 4);
  int64_t from = fuzz_one_in(2) ? 0 : some_int();
  bool rising = fuzz_one_in(2), few = !fuzz_one_in(8);
  if (!few) n = PX_MAX_DIMS - 2 + (int)fuzz_below(5);
  for (int k = 0; k < n; k++)
    numbers[i][k] = !few ? (rising ? k : from) : fuzz_one_in(2) ? fuzz_below(4) : some_int();
  return PX_IS(numbers[i], n);
}

static px_value some_tensors(const sample *s, int i) {
  int n = (int)fuzz_below(fuzz_one_in(5) ? 9 : 4);
  px_tensor *one = fuzz_one_in(12) ? any_tensor(s) : NULL;
  if (one && fuzz_one_in(2)) n = PX_MAX_DIMS - 2 + (int)fuzz_below(5);
  for (int k = 0; k < n; k++) lists[i][k] = one ? one : fuzz_one_in(12) ? NULL : any_tensor(s);
  return PX_TS(lists[i], n);
}

static px_value some_value(const sample *s, int i, int kind) {
  switch (kind) {
    case PX_ARG_TENSOR:
      return PX_T(any_tensor(s));
    case PX_ARG_SCALAR:
      return some_scalar();
    case PX_ARG_INT:
      return PX_I(some_int());
    case PX_ARG_FLOAT:
      return PX_F(some_float());
    case PX_ARG_BOOL:
      return PX_B(fuzz_one_in(2));
    case PX_ARG_INTS:
      return some_ints(i);
    case PX_ARG_TENSORS:
      return some_tensors(s, i);
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

// An edge case of an argument.
static px_value edge_value(const sample *s, int i, px_value given) {
  const px_param *p = &s->op->params[i];
  if (p->optional && fuzz_one_in(4)) return PX_NONE();
  if (given.kind == PX_ARG_TENSOR && given.v.tensor && fuzz_one_in(2))
    return PX_T(edge_of(given.v.tensor));
  if (given.kind == PX_ARG_TENSORS && given.n < NUMBERS && fuzz_one_in(2)) {
    for (int k = 0; k < given.n; k++)
      lists[i][k] =
          given.v.tensors[k] && fuzz_one_in(2) ? edge_of(given.v.tensors[k]) : given.v.tensors[k];
    return PX_TS(lists[i], given.n);
  }
  if (given.kind == PX_ARG_INTS && given.n < NUMBERS && fuzz_one_in(2)) {
    for (int k = 0; k < given.n; k++) numbers[i][k] = given.v.ints[k];
    if (given.n) numbers[i][fuzz_below(given.n)] = some_int();
    return PX_IS(numbers[i], fuzz_one_in(2) ? given.n : fuzz_below(given.n + 1));
  }
  return some_value(s, i, p->kind);
}

// The arguments of a sample of the op, if there is one. Some become random values, and up to two
// become edge cases.
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
  for (int64_t edges = fuzz_below(3); edges > 0 && op->param_count; edges--) {
    int i = (int)fuzz_below(op->param_count);
    args[i] = edge_value(s, i, args[i]);
  }
}

// ---- cases

// A gradient with a graph references its own tensor.
static void release_tensor(px_tensor *t) {
  if (t) OK(px_tensor_set_grad(t, NULL));
}
static void close_case(sample *s) {
  for (int i = 0; i < s->tensor_count; i++) release_tensor(s->tensors[i]);
  for (int i = 0; i < made_count; i++) release_tensor(made[i]);
  sample_close(s);
  for (int i = 0; i < made_count; i++) px_release(made[i]);
  made_count = 0;
}

// Raises kernel faults. No kernel may access foreign memory.
static void wait_for(int device) {
  if (px_device_synchronize(device) == PX_OK) return;
  CHECK(!strstr(px_error_last()->message, "illegal memory access"));
  px_error_clear();
}

// Limits further memory to 1 GiB. A sanitizer's allocator has such a limit, but does not allocate
// page-locked memory.
static void limit_data(void) {
  long pages = 0;
  FILE *statm = fopen("/proc/self/statm", "r");
  CHECK(statm && fscanf(statm, "%*d %*d %*d %*d %*d %ld", &pages) == 1);
  fclose(statm);
  rlim_t bytes = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (1L << 30);
  setrlimit(RLIMIT_DATA, &(struct rlimit){bytes, bytes});
}

static void prepare(void) {
  static bool done;
  if (done) return;
  setenv("PHLOX_SIM_MEMORY", "256M", 0);
  simulate(2);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // 9 GiB of addresses are reserved by the two devices
  setrlimit(RLIMIT_AS, &(struct rlimit){11L << 30, 11L << 30});
#endif
  limit_data();
  done = true;
}

// The op of FUZZ_OP, or NULL.
static const px_op *chosen_op(void) {
  static const px_op *only;
  if (!only && getenv("FUZZ_OP")) CHECK((only = px_op_find(getenv("FUZZ_OP"))) != NULL);
  return only;
}

// Prints the call if FUZZ_SHOW is set.
static void show(const px_op *op, const char *form, const px_value *args) {
  char text[400];
  if (getenv("FUZZ_SHOW"))
    fprintf(stderr, "%lld: %s %s\n", (long long)fuzz_case, form,
            px_op_describe(op, args, text, sizeof text));
}

// ---- results

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
static void use_results(bool list, int count, void **results) {
  for (int i = 0; i < count && !list; i++) use(results[i]);
  for (int64_t i = 0; list && i < px_list_size(results[0]) && i < 8; i++)
    use(px_list_get(results[0], i));
  for (int i = 0; i < count; i++) px_release(results[i]);
}
