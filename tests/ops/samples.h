// SPDX-License-Identifier: Apache-2.0
// Samples of the op tables (ops/GRAMMAR.md, "Samples") as arguments of calls.
//
// Floats are odd multiples of 1/128: exact in every floating dtype, distinct within a tensor, and
// off the kinks and steps of ops.
#pragma once
#include "phlox/autograd.h"
#include "phlox/ops.h"
#include "test.h"

#include <ctype.h>

enum { SAMPLE_TENSORS = 24, SAMPLE_INTS = 64, SAMPLE_PARAMS = 16 };

typedef struct sample {
  const char *op_name, *text;
  double lo, hi;
  const px_op *op;
  px_dtype dtype;  // of f() and p()
  px_device device;
  px_value args[SAMPLE_PARAMS];
  int tensor_count;
  px_tensor *tensors[SAMPLE_TENSORS];  // owned, in order of appearance
  bool smooth[SAMPLE_TENSORS];         // f(), p() or d(), of a differentiable parameter
  bool symmetric[SAMPLE_TENSORS];      // d(): perturbations keep it symmetric
  int64_t ints[SAMPLE_INTS];
  int int_count;
  char words[256];
  size_t word_bytes;
  unsigned drawn;
} sample;

#define PX_SAMPLE(name, args, low, high) \
  {name, args, low, high, NULL, 0, {0}, {{0}}, 0, {0}, {0}, {0}, {0}, 0, {0}, 0, 0},
static const sample sample_rows[] = {
#include "samples.inc"
};
#undef PX_SAMPLE
enum { SAMPLE_ROWS = sizeof sample_rows / sizeof *sample_rows };

// ---- values of tensors

static inline double sample_float(sample *s, double lo, double hi, int64_t i) {
  int64_t first = (int64_t)ceil(lo * 128) | 1, last = (int64_t)floor(hi * 128);
  int64_t steps = (last - first) / 2 + 1;
  int64_t stride = steps > 1 ? (int64_t)((double)steps * 0.381966) : 1;
  while (stride > 1 && steps % stride == 0) stride++;
  for (int64_t a = stride, b = steps; a > 1 && b > 0;) {  // until they are coprime
    int64_t r = b % a;
    if (r == 0)
      a = ++stride, b = steps;
    else
      b = a, a = r;
  }
  return (double)(first + 2 * ((s->drawn * 13 + i * stride) % steps)) / 128;
}

// Element i of symmetric, positive-definite n x n matrices with distinct eigenvalues.
static inline double sample_definite(int64_t i, int64_t n) {
  int64_t column = i % n, row = i / n % n, matrix = i / n / n;
  if (row == column) return 3 + (double)row + (double)matrix / 4;
  return (double)((row * column + row + column + matrix) % 5 - 2) / 4;
}
static inline void sample_fill(sample *s, char kind, double *values, int64_t n, int64_t limit) {
  for (int64_t i = 0; i < n; i++) {
    if (kind == 'f') values[i] = sample_float(s, s->lo, s->hi, i);
    if (kind == 'p')
      values[i] = sample_float(s, s->lo > 0 ? s->lo : 0.3, s->hi > 1 ? s->hi : 1.9, i);
    if (kind == 'u') values[i] = sample_float(s, 0.1, 0.9, i);
    if (kind == 'd') values[i] = sample_definite(i, limit);
    if (kind == 's') values[i] = (i + s->drawn) % 2 ? 1 : -1;
    if (kind == 'i') values[i] = (double)((i * 7 + 3 + s->drawn) % limit);
    if (kind == 'b') values[i] = (double)((i * 5 + s->drawn) % 3 != 0);
    if (kind == 'q') values[i] = (double)((i * 3 + 1) % n);  // perm, n not a multiple of 3
  }
  if (kind == 'q' && n % 3 == 0)
    for (int64_t i = 0; i < n; i++) values[i] = (double)(n - 1 - i);
  s->drawn++;
}

static inline px_tensor *sample_tensor(sample *s, char kind, int ndim, const int64_t *sizes,
                                       int64_t limit) {
  int64_t n = 1;
  for (int d = 0; d < ndim; d++) n *= sizes[d];
  px_dtype dtype = kind == 'b' ? PX_BOOL : kind == 'i' || kind == 'q' ? PX_INT64 : s->dtype;
  double *values = calloc((size_t)n + 1, sizeof *values);
  char *raw = calloc((size_t)n + 1, 16);  // the widest elements
  sample_fill(s, kind, values, n, limit);
  for (int64_t i = 0; i < n; i++)
    px_scalar_store(px_float(values[i]), dtype, raw + (size_t)i * px_dtype_size(dtype));
  px_tensor *t = NULL;
  OK(px_tensor_from_data(&t, raw, ndim, sizes, dtype, s->device));
  free(values);
  free(raw);
  CHECK(s->tensor_count < SAMPLE_TENSORS);
  s->tensors[s->tensor_count++] = t;
  return t;
}

// ---- parsing

static inline const char *skip_blanks(const char *at) {
  while (*at == ' ' || *at == ',') at++;
  return at;
}

static inline px_value read_tensor(sample *s, const char **text, bool smooth) {
  const char *at = *text;
  char kind = strncmp(at, "perm", 4) ? *at : 'q';
  int64_t sizes[PX_MAX_DIMS], limit = 1;
  int ndim = 0;
  at = strchr(at, '(') + 1;
  while (*at != ')') {
    char *end;
    if (*at == ';')
      limit = strtoll(at + 1, &end, 10);
    else
      sizes[ndim++] = strtoll(at, &end, 10);
    at = *end == ',' ? end + 1 : end;
  }
  *text = at + 1;
  if (kind == 'd') limit = sizes[ndim - 1];
  px_tensor *t = sample_tensor(s, kind, ndim, sizes, limit);
  s->smooth[s->tensor_count - 1] = smooth && strchr("fpud", kind);
  s->symmetric[s->tensor_count - 1] = kind == 'd';
  return PX_T(t);
}

static inline px_value read_tensors(sample *s, const char **text, bool smooth) {
  px_tensor **first = s->tensors + s->tensor_count;
  int n = 0;
  const char *at = skip_blanks(*text + 1);
  for (; *at != '}'; n++) {
    if (!strncmp(at, "None", 4)) {
      s->tensors[s->tensor_count++] = NULL;
      at = skip_blanks(at + 4);
      continue;
    }
    read_tensor(s, &at, smooth);
    at = skip_blanks(at);
  }
  *text = at + 1;
  return PX_TS(first, n);
}

static inline px_value read_list(sample *s, const char **text) {
  const char *at = skip_blanks(*text + 1);
  int64_t *first = s->ints + s->int_count;
  int n = 0;
  for (; *at != ']'; n++) {
    char *end;
    first[n] = strtoll(at, &end, 10);
    CHECK(end != at);
    at = skip_blanks(end);
  }
  s->int_count += n;
  *text = at + 1;
  return PX_IS(first, n);
}

static inline px_value read_word(sample *s, const char **text, int kind) {
  char *word = s->words + s->word_bytes;
  size_t n = 0;
  const char *at = *text;
  if (*at == '\'') {
    for (at++; *at != '\''; at++) word[n++] = *at;
    at++;
  } else {
    while (isalnum((unsigned char)*at) || *at == '_' || *at == ':') word[n++] = *at++;
  }
  word[n] = 0;
  s->word_bytes += n + 1;
  *text = at;
  if (!strcmp(word, "None")) return PX_NONE();
  if (!strcmp(word, "True")) return kind == PX_ARG_SCALAR ? PX_S(px_bool(true)) : PX_B(true);
  if (!strcmp(word, "False")) return kind == PX_ARG_SCALAR ? PX_S(px_bool(false)) : PX_B(false);
  px_dtype dtype;
  px_device device;
  if (kind == PX_ARG_DTYPE) {
    OK(px_dtype_parse(&dtype, word));
    return PX_DT(dtype);
  }
  if (kind == PX_ARG_DEVICE) {
    OK(px_device_parse(&device, word));
    return PX_DV(device);
  }
  return PX_TX(word);
}

static inline px_value read_number(sample *s, const char **text, int kind) {
  char *end;
  double f = strtod(*text, &end);
  size_t n = (size_t)(end - *text);
  bool whole = !memchr(*text, '.', n) && !memchr(*text, 'e', n) && !memchr(*text, 'n', n);
  int64_t i = whole ? strtoll(*text, NULL, 10) : 0;
  *text = end;
  if (kind == PX_ARG_INTS) {
    int64_t *slot = s->ints + s->int_count++;
    *slot = i;
    return PX_IS(slot, 1);
  }
  if (kind == PX_ARG_INT) return PX_I(i);
  if (kind == PX_ARG_FLOAT) return PX_F(f);
  return whole ? PX_S(px_int(i)) : PX_S(px_float(f));
}

static inline bool is_tensor_text(const char *at) {
  return (strchr("fpusibd", *at) && at[1] == '(') || !strncmp(at, "perm(", 5);
}

static inline px_value read_value(sample *s, const char **text, int param) {
  const char *at = *text;
  // Running statistics are buffers: normalisations have no gradient for them.
  bool smooth =
      (s->op->grad_mask >> param & 1) && strncmp(s->op->params[param].name, "running_", 8);
  if (is_tensor_text(at)) return read_tensor(s, text, smooth);
  if (*at == '{') return read_tensors(s, text, smooth);
  if (*at == '[') return read_list(s, text);
  int kind = s->op->params[param].kind;
  bool number = isdigit((unsigned char)*at) || *at == '-' || *at == '.' || !strncmp(at, "inf", 3) ||
                !strncmp(at, "nan", 3);
  return number ? read_number(s, text, kind) : read_word(s, text, kind);
}

static inline int param_named(const px_op *op, const char *name, size_t n) {
  for (int i = 0; i < op->param_count; i++)
    if (strlen(op->params[i].name) == n && !strncmp(op->params[i].name, name, n)) return i;
  return -1;
}

// Parses the text as arguments of s->op.
static inline void sample_read(sample *s) {
  int position = 0;
  for (const char *at = skip_blanks(s->text); *at; at = skip_blanks(at)) {
    size_t n = strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
    int param = at[n] == '=' ? param_named(s->op, at, n) : position++;
    if (at[n] == '=') at += n + 1;
    CHECK(param >= 0 && param < s->op->param_count);
    s->args[param] = read_value(s, &at, param);
  }
}

// Opens row i with tensors of the dtype on the device.
static inline void sample_open(sample *s, int i, px_dtype dtype, px_device device) {
  *s = sample_rows[i];
  s->dtype = dtype;
  s->device = device;
  s->op = px_op_find(s->op_name);
  CHECK(s->op);
  sample_read(s);
}

static inline void sample_close(sample *s) {
  for (int k = 0; k < s->tensor_count; k++) px_release(s->tensors[k]);
}

// Returns (t + t^T) / 2, the effective input of ops that read one triangle.
static inline px_status sample_symmetric(px_tensor **out, const px_tensor *t) {
  PX_SCOPED(px_tensor) transposed = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(px_transpose(&transposed, t, -2, -1));
  PX_TRY(px_add(&sum, t, transposed, px_int(1)));
  return px_mul_scalar(out, sum, px_float(0.5));
}
// Calls the op on other tensors than the sample's. An op with only an in-place form works on a
// copy. Stores the results, and their number in *count.
enum { SAMPLE_RESULTS = 32 };
static inline px_status sample_call_on(const sample *s, px_tensor *const *tensors,
                                       px_tensor **results, int *count) {
  px_value args[SAMPLE_PARAMS];
  px_tensor *lists[SAMPLE_TENSORS];
  int listed = 0;
  for (int i = 0; i < s->op->param_count; i++) args[i] = s->args[i];
  // Tensors are in text order; parameters given by name may be in another order.
  for (int i = 0; i < s->op->param_count; i++) {
    if (args[i].kind == PX_ARG_TENSOR) {
      for (int k = 0; k < s->tensor_count; k++)
        if (s->tensors[k] == s->args[i].v.tensor) args[i].v.tensor = tensors[k];
    } else if (args[i].kind == PX_ARG_TENSORS) {
      int first = (int)(s->args[i].v.tensors - s->tensors);
      for (int k = 0; k < args[i].n; k++) lists[listed + k] = tensors[first + k];
      args[i].v.tensors = lists + listed;
      listed += args[i].n;
    }
  }
  void *out[SAMPLE_RESULTS] = {0};
  bool inplace = s->op->flags & PX_OP_ONLY_INPLACE;
  PX_SCOPED(px_tensor) copy = NULL;
  if (inplace) {
    PX_TRY(px_clone(&copy, args[0].v.tensor, NULL));
    args[0] = PX_T(copy);
  }
  if (s->op->flags & PX_OP_RANDOM) px_manual_seed(7);
  PX_TRY(px_op_call(s->op, inplace ? PX_CALL_INPLACE : PX_CALL_NEW, args, out));
  *count = s->op->result_count;
  if (!(s->op->flags & PX_OP_RETURNS_LIST)) {
    for (int k = 0; k < *count; k++) results[k] = out[k];
    return PX_OK;
  }
  px_list *list = out[0];
  *count = (int)px_list_size(list);
  CHECK(*count <= SAMPLE_RESULTS);
  for (int k = 0; k < *count; k++) results[k] = px_retain(px_list_get(list, k));
  px_release(list);
  return PX_OK;
}

static inline px_status sample_call(const sample *s, px_tensor *const *tensors, px_tensor **results,
                                    int *count) {
  px_tensor *given[SAMPLE_TENSORS], *made[SAMPLE_TENSORS] = {NULL};
  px_status status = PX_OK;
  for (int k = 0; k < s->tensor_count; k++) {
    if (s->symmetric[k] && status == PX_OK) status = sample_symmetric(&made[k], tensors[k]);
    given[k] = made[k] ? made[k] : tensors[k];
  }
  if (status == PX_OK) status = sample_call_on(s, given, results, count);
  for (int k = 0; k < s->tensor_count; k++) px_release(made[k]);
  return status;
}

// After a failed call: true for a kernel that supports some devices, dtypes and sizes only, such as
// tiled attention of a GPU library. The public op checks that first.
static inline bool sample_is_for_another(const sample *s) {
  return px_error_last()->code == PX_UNIMPLEMENTED && strstr(s->op_name, "attention") &&
         s->op->kind == PX_OP_KERNEL;
}
// True if results are unique up to signs: vectors of decompositions.
static inline bool sample_has_free_signs(const sample *s) {
  return !strcmp(s->op_name, "linalg_eigh") || !strcmp(s->op_name, "_linalg_eigh") ||
         !strcmp(s->op_name, "linalg_svd") || !strcmp(s->op_name, "_linalg_svd");
}
