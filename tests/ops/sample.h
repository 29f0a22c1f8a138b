// SPDX-License-Identifier: Apache-2.0
// Samples of the op tables as arguments: `f(2,3) 1 dim=[0]` becomes px_values.
//
// Tensors are on the CPU, float64 for `f` and `p`. Their values depend on the sample only.
#pragma once
#include "phlox/autograd.h"
#include "phlox/op.h"
#include "phlox/ops.h"
#include "test.h"

#include <ctype.h>

typedef struct sample {
  const char *op, *text;
  double low, high;
} sample;
static const sample samples[] = {
#define PX_SAMPLE(op, text, low, high) {op, text, low, high},
#include "samples.inc"
#undef PX_SAMPLE
    {NULL, NULL, 0, 0}};

enum { MAX_ARGS = 16, MAX_TENSORS = 24 };
typedef struct arguments {
  const px_op *op;
  px_value values[MAX_ARGS];
  px_tensor *tensors[MAX_TENSORS];  // owned
  int tensor_count;
  bool symmetric[MAX_TENSORS];  // d(): perturbations keep it symmetric
  int64_t ints[MAX_ARGS][16];
  char texts[MAX_ARGS][32];
  px_tensor *lists[MAX_ARGS][8];  // borrowed from `tensors`
  const sample *from;
  const char *at;
  uint64_t state;
  bool strided;  // tensors with gaps between elements
} arguments;

static double uniform(arguments *a, double low, double high) {
  a->state = a->state * 6364136223846793005u + 1442695040888963407u;
  return low + (high - low) * (double)(a->state >> 11) / 9007199254740992.0;
}

// Reads sizes in parentheses up to `;` or `)`. Returns their number.
static int read_sizes(arguments *a, int64_t *sizes) {
  int n = 0;
  a->at++;
  while (*a->at != ')' && *a->at != ';') {
    char *end;
    sizes[n++] = strtoll(a->at, &end, 10);
    CHECK(end != a->at && n < 8);
    a->at = *end == ',' ? end + 1 : end;
  }
  return n;
}

static px_tensor *add_tensor(arguments *a, void *data, int ndim, const int64_t *sizes,
                             px_dtype dtype) {
  px_tensor *t = NULL;
  CHECK(a->tensor_count < MAX_TENSORS);
  OK(px_tensor_from_data(&t, data, ndim, sizes, dtype, (px_device){PX_CPU, -1}));
  if (a->strided && ndim > 0) {  // twice the stride
    int64_t wide[8], strides[8], step = 2;
    PX_SCOPED(px_tensor) storage = NULL;
    px_tensor *view = NULL;
    memcpy(wide, sizes, sizeof wide);
    wide[ndim - 1] *= 2;
    for (int d = ndim - 1; d >= 0; d--) strides[d] = step, step *= sizes[d];
    OK(px_tensor_empty(&storage, ndim, wide, dtype, (px_device){PX_CPU, -1}));
    OK(px_tensor_as_strided(&view, storage, ndim, sizes, strides, 0));
    const px_op *copy = px_op_find("copy");
    void *result = NULL;
    px_value args[MAX_ARGS] = {PX_T(view), PX_T(t)};
    OK(px_op_call(copy, PX_CALL_INPLACE, args, &result));
    px_release(result);
    px_release(t);
    t = view;
  }
  return a->tensors[a->tensor_count++] = t;
}

// Element i of symmetric, positive-definite n x n matrices with distinct eigenvalues.
static double definite(int64_t i, int64_t n) {
  int64_t column = i % n, row = i / n % n, matrix = i / n / n;
  if (row == column) return 3 + (double)row + (double)matrix / 4;
  return (double)((row * column + row + column + matrix) % 5 - 2) / 4;
}
// f(2,3) p(2,3) d(3,3) i(2,3;5) b(2,3) perm(5)
static px_tensor *read_tensor(arguments *a) {
  char kind = *a->at;
  bool permutation = !strncmp(a->at, "perm", 4);
  int64_t sizes[8] = {0}, n = 1, bound = 2;
  a->at = strchr(a->at, '(');
  int ndim = read_sizes(a, sizes);
  if (*a->at == ';') bound = strtoll(a->at + 1, NULL, 10);
  a->at = strchr(a->at, ')') + 1;
  for (int d = 0; d < ndim; d++) n *= sizes[d];
  double *real = calloc((size_t)n + 1, sizeof *real);
  int64_t *elements = calloc((size_t)n + 1, sizeof *elements);
  bool *truth = calloc((size_t)n + 1, sizeof *truth);
  for (int64_t i = 0; i < n; i++) {
    real[i] = kind == 'p' ? uniform(a, 0.5, 2) : uniform(a, a->from->low, a->from->high);
    if (kind == 'd') real[i] = definite(i, sizes[ndim - 1]);
    elements[i] = permutation ? i : (int64_t)uniform(a, 0, (double)bound);
    truth[i] = uniform(a, 0, 1) > 0.5;
  }
  for (int64_t i = n - 1; permutation && i > 0; i--) {
    int64_t k = (int64_t)uniform(a, 0, (double)(i + 1)), x = elements[i];
    elements[i] = elements[k], elements[k] = x;
  }
  px_tensor *t = permutation || kind == 'i' ? add_tensor(a, elements, ndim, sizes, PX_INT64)
                 : kind == 'b'              ? add_tensor(a, truth, ndim, sizes, PX_BOOL)
                                            : add_tensor(a, real, ndim, sizes, PX_FLOAT64);
  a->symmetric[a->tensor_count - 1] = kind == 'd';
  free(real), free(elements), free(truth);
  return t;
}

static bool at_tensor(const arguments *a) {
  return !strncmp(a->at, "perm(", 5) || (*a->at && strchr("fpibd", *a->at) && a->at[1] == '(');
}

static px_value read_list(arguments *a, int i) {
  int n = 0;
  char close = *a->at == '[' ? ']' : '}';
  bool tensors = close == '}';
  for (a->at++; *a->at != close;) {
    CHECK(*a->at && n < 8);
    if (tensors)
      a->lists[i][n++] = read_tensor(a);
    else
      a->ints[i][n++] = strtoll(a->at, (char **)&a->at, 10);
    while (*a->at == ' ' || *a->at == ',') a->at++;
  }
  a->at++;
  return tensors ? PX_TS(a->lists[i], n) : PX_IS(a->ints[i], n);
}

static px_value read_word(arguments *a, int i) {
  const px_param *p = &a->op->params[i];
  size_t n = strcspn(a->at, " ");
  char *word = a->texts[i];
  CHECK(n < sizeof a->texts[i]);
  memcpy(word, a->at, n);
  word[n] = 0;
  a->at += n;
  if (*word == '\'') {
    word[n - 1] = 0;
    return PX_TX(word + 1);
  }
  if (!strcmp(word, "None")) return PX_NONE();
  bool truth = !strcmp(word, "True");
  if (truth || !strcmp(word, "False"))
    return p->kind == PX_ARG_BOOL ? PX_B(truth) : PX_S(px_bool(truth));
  char *end;
  double number = strtod(word, &end);
  if (*end) {
    px_dtype dtype = PX_DTYPE_NONE;
    OK(px_dtype_parse(&dtype, word));
    return PX_DT(dtype);
  }
  bool real = strpbrk(word, ".en") != NULL;
  if (p->kind == PX_ARG_INTS) {
    a->ints[i][0] = (int64_t)number;
    return PX_IS(a->ints[i], 1);
  }
  return p->kind == PX_ARG_INT     ? PX_I((int64_t)number)
         : p->kind == PX_ARG_FLOAT ? PX_F(number)
         : real                    ? PX_S(px_float(number))
                                   : PX_S(px_int((int64_t)number));
}

static int keyword(arguments *a, int position) {
  size_t n = strspn(a->at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
  if (a->at[n] != '=') return position;
  for (int i = 0; i < a->op->param_count; i++)
    if (strlen(a->op->params[i].name) == n && !strncmp(a->op->params[i].name, a->at, n)) {
      a->at += n + 1;
      return i;
    }
  fprintf(stderr, "%s: no parameter %s\n", a->op->name, a->at);
  exit(1);
}

static void read_sample(arguments *a, const sample *s, bool strided) {
  *a = (arguments){.from = s, .op = px_op_find(s->op), .at = s->text, .strided = strided};
  CHECK(a->op != NULL);
  for (const char *c = s->text; *c; c++) a->state = a->state * 31 + (unsigned char)*c;
  for (int position = 0;; position++) {
    while (*a->at == ' ') a->at++;
    if (!*a->at) return;
    int i = keyword(a, position);
    CHECK(i < a->op->param_count);
    a->values[i] = at_tensor(a)           ? PX_T(read_tensor(a))
                   : strchr("[{", *a->at) ? read_list(a, i)
                                          : read_word(a, i);
  }
}
static void release_sample(arguments *a) {
  for (int i = 0; i < a->tensor_count; i++) px_release(a->tensors[i]);
}

// Calls the op. The caller owns the results, including items of lists.
static px_status call_sample(const arguments *a, px_call_mode mode, px_tensor **results,
                             int *count) {
  void *raw[4] = {NULL};
  if (mode == PX_CALL_OUT) raw[0] = results[0];
  PX_TRY(px_op_call(a->op, mode, a->values, raw));
  *count = mode == PX_CALL_INPLACE ? 1 : a->op->result_count;
  if (a->op->flags & PX_OP_RETURNS_LIST) {
    *count = 0;
    for (int64_t i = 0; i < px_list_size(raw[0]) && i < 8; i++)
      results[(*count)++] = px_retain(px_list_get(raw[0], i));
    px_release(raw[0]);
    return PX_OK;
  }
  for (int i = 0; i < *count; i++) results[i] = raw[i];
  return PX_OK;
}

static bool same(const px_tensor *a, const px_tensor *b) {
  char x[8192], y[8192];
  size_t bytes = (size_t)px_tensor_numel(a) * px_dtype_size(px_tensor_dtype(a));
  if (px_tensor_dtype(a) != px_tensor_dtype(b) || px_tensor_numel(a) != px_tensor_numel(b))
    return false;
  CHECK(bytes <= sizeof x);
  OK(px_tensor_read(a, x, bytes));
  OK(px_tensor_read(b, y, bytes));
  bool close = true;
  for (int64_t i = 0; i < px_tensor_numel(a); i++) {
    size_t item = px_dtype_size(px_tensor_dtype(a));
    double u = px_scalar_float(px_scalar_load(px_tensor_dtype(a), x + (size_t)i * item));
    double v = px_scalar_float(px_scalar_load(px_tensor_dtype(a), y + (size_t)i * item));
    close &= u == v || (u != u && v != v) || fabs(u - v) <= 1e-9 * (fabs(u) + 1);
  }
  return close;
}
