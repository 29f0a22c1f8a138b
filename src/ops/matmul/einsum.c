// SPDX-License-Identifier: Apache-2.0
// einsum: multiplies operands from left to right. Each pair is one batched matrix product over the
// labels not needed later. Labels 0 to 51 are letters; from 52 on they are ellipsis dimensions,
// counted from the last one.
#include "ops/core/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/linalg.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"
#include "run_functions/linalg.h"

#define LL(x) ((long long)(x))
enum { LETTERS = 52, LABELS = LETTERS + PX_MAX_DIMS };

// A tensor with labelled dimensions.
typedef struct factor {
  px_tensor *t;  // owned
  int8_t labels[PX_MAX_DIMS];
} factor;
typedef struct plan {
  const char *equation;
  factor *factors;
  int64_t sizes[LABELS];  // -1: unused
  int remaining[LABELS];  // remaining operands with the label, counting the result
  int8_t output[LABELS];
  int count, output_count, ellipsis;  // ellipsis: max number of dimensions it represents
} plan;

static int letter(char c) {
  return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? 26 + c - 'a' : -1;
}
static char letter_text(int label) {
  return (char)(label < 26 ? 'A' + label : label < LETTERS ? 'a' + label - 26 : '.');
}

// Replaces f's tensor and takes ownership.
static void replace(factor *f, px_tensor *take) {
  px_release(f->t);
  f->t = take;
}
static void drop_label(factor *f, int dim) {
  for (int i = dim; i + 1 < PX_MAX_DIMS; i++) f->labels[i] = f->labels[i + 1];
}

// Reads the labels of operand i from [at, end).
static px_status read_labels(plan *p, int i, const char *at, const char *end) {
  factor *f = &p->factors[i];
  int named = 0, n = 0;
  bool has_ellipsis = false;
  for (const char *c = at; c < end; c++) named += letter(*c) >= 0;
  for (; at < end; at++) {
    if (*at == ' ') continue;
    if (*at == '.') {
      PX_CHECK(!has_ellipsis && end - at >= 3 && at[1] == '.' && at[2] == '.', PX_RUNTIME,
               "einsum(): found '.' for operand %d that is not part of any ellipsis", i);
      has_ellipsis = true, at += 2;
      int missing = f->t->ndim - named;
      if (missing > p->ellipsis) p->ellipsis = missing;
      for (int k = missing - 1; k >= 0 && n < PX_MAX_DIMS; k--)
        f->labels[n++] = (int8_t)(LETTERS + k);
      continue;
    }
    PX_CHECK(
        letter(*at) >= 0, PX_RUNTIME,
        "einsum(): invalid subscript given at index %d in the equation string, subscripts must "
        "be in [a-zA-Z]",
        (int)(at - p->equation));
    if (n < PX_MAX_DIMS) f->labels[n++] = (int8_t)letter(*at);
  }
  PX_CHECK(has_ellipsis ? named <= f->t->ndim : named == f->t->ndim, PX_RUNTIME,
           "einsum(): the number of subscripts in the equation (%d) %s the number of dimensions "
           "(%d) for operand %d%s",
           named, has_ellipsis ? "is more than" : "does not match", f->t->ndim, i,
           has_ellipsis ? "" : " and no ellipsis was given");
  return PX_OK;
}

// Takes the diagonal for labels repeated in an operand.
static px_status take_diagonals(factor *f, int operand) {
  for (int i = 0; i < f->t->ndim; i++)
    for (int j = i + 1; j < f->t->ndim; j++) {
      if (f->labels[i] != f->labels[j]) continue;
      int8_t label = f->labels[i];
      PX_CHECK(f->t->sizes[i] == f->t->sizes[j], PX_RUNTIME,
               "einsum(): subscript %c is repeated for operand %d but the sizes don't match, %lld "
               "!= %lld",
               letter_text(label), operand, LL(f->t->sizes[j]), LL(f->t->sizes[i]));
      px_tensor *diagonal = NULL;
      PX_TRY(px_diagonal(&diagonal, f->t, 0, i, j));
      replace(f, diagonal);
      drop_label(f, j);
      drop_label(f, i);
      f->labels[f->t->ndim - 1] = label;  // the diagonal comes last
      i = -1;
      break;
    }
  return PX_OK;
}

static px_status record_sizes(plan *p, int operand) {
  const factor *f = &p->factors[operand];
  for (int i = 0; i < f->t->ndim; i++) {
    int64_t *size = &p->sizes[f->labels[i]];
    PX_CHECK(*size < 0 || *size == 1 || f->t->sizes[i] == 1 || *size == f->t->sizes[i], PX_RUNTIME,
             "einsum(): subscript %c has size %lld for operand %d which does not broadcast with "
             "previously seen size %lld",
             letter_text(f->labels[i]), LL(f->t->sizes[i]), operand, LL(*size));
    if (*size < 0 || *size == 1) *size = f->t->sizes[i];
    p->remaining[f->labels[i]]++;
  }
  return PX_OK;
}

// Labels of the result: given after "->", or those that occur once, in alphabetical order.
static px_status read_output(plan *p, const char *at, const int *times) {
  if (!at) {
    for (int k = p->ellipsis - 1; k >= 0; k--) p->output[p->output_count++] = (int8_t)(LETTERS + k);
    for (int i = 0; i < LETTERS; i++)
      if (times[i] == 1) p->output[p->output_count++] = (int8_t)i;
    return PX_OK;
  }
  for (; *at; at++) {
    if (*at == ' ') continue;
    if (*at == '.') {
      at += at[1] == '.' && at[2] == '.' ? 2 : 0;
      for (int k = p->ellipsis - 1; k >= 0 && p->output_count < LABELS; k--)
        p->output[p->output_count++] = (int8_t)(LETTERS + k);
      continue;
    }
    int label = letter(*at);
    PX_CHECK(
        label >= 0, PX_RUNTIME,
        "einsum(): invalid subscript given at index %d in the equation string, subscripts must "
        "be in [a-zA-Z]",
        (int)(at - p->equation));
    PX_CHECK(p->sizes[label] >= 0, PX_RUNTIME,
             "einsum(): output subscript %c does not appear in the equation for any input operand",
             *at);
    if (p->output_count < LABELS) p->output[p->output_count++] = (int8_t)label;
  }
  return PX_OK;
}

static px_status parse(plan *p) {
  const char *arrow = strstr(p->equation, "->"), *at = p->equation;
  const char *end = arrow ? arrow : at + strlen(at);
  int times[LABELS] = {0};
  for (int i = 0; i < p->count; i++) {
    const char *stop = at;
    PX_CHECK(i == 0 || at <= end, PX_RUNTIME,
             "einsum(): more operands were provided than specified in the equation");
    while (stop < end && *stop != ',') stop++;
    PX_TRY(read_labels(p, i, at, stop));
    for (const char *c = at; c < stop; c++)
      if (letter(*c) >= 0) times[letter(*c)]++;
    PX_TRY(take_diagonals(&p->factors[i], i));
    PX_TRY(record_sizes(p, i));
    at = stop + 1;
  }
  PX_CHECK(at > end, PX_RUNTIME,
           "einsum(): fewer operands were provided than specified in the equation");
  PX_TRY(read_output(p, arrow ? arrow + 2 : NULL, times));
  PX_CHECK(p->output_count <= PX_MAX_DIMS, PX_RUNTIME, "einsum(): too many dimensions");
  for (int i = 0; i < p->output_count; i++) p->remaining[p->output[i]]++;
  return PX_OK;
}

// Sums dimensions with labels of no other operand or the result.
static px_status sum_unshared(const plan *p, factor *f) {
  int64_t dims[PX_MAX_DIMS];
  int n = 0, kept = 0, ndim = f->t->ndim;
  for (int i = 0; i < ndim; i++) {
    if (p->remaining[f->labels[i]] == 1)
      dims[n++] = i;
    else
      f->labels[kept++] = f->labels[i];
  }
  if (n == 0) return PX_OK;
  px_tensor *sum = NULL;
  PX_TRY(px_sum(&sum, f->t, dims, n, false, PX_DTYPE_NONE));
  replace(f, sum);
  return PX_OK;
}
static int dim_of(const factor *f, int label) {
  for (int i = 0; i < f->t->ndim; i++)
    if (f->labels[i] == label) return i;
  return -1;
}
// Permutes and expands f to a batch of matrices with labels in three groups.
static px_status as_matrices(px_tensor **out, const plan *p, const factor *f, const int8_t *order,
                             const int *counts) {
  int64_t dims[PX_MAX_DIMS], sizes[PX_MAX_DIMS], three[3] = {1, 1, 1};
  int n = counts[0] + counts[1] + counts[2];
  for (int i = 0; i < n; i++) {
    dims[i] = dim_of(f, order[i]);
    sizes[i] = p->sizes[order[i]];
    int64_t *of = &three[i < counts[0] ? 0 : i < counts[0] + counts[1] ? 1 : 2];
    *of = px__steps(sizes[i], *of);
  }
  PX_SCOPED(px_tensor) permuted = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_TRY(px_permute(&permuted, f->t, dims, n));
  PX_TRY(px_expand(&wide, permuted, sizes, n));
  return px_reshape(out, wide, three, 3);
}
static int group(int8_t *to, const factor *from, const factor *other, const plan *p, bool shared,
                 bool needed) {
  int n = 0;
  for (int i = 0; i < from->t->ndim; i++) {
    int8_t label = from->labels[i];
    bool both = dim_of(other, label) >= 0, wanted = !both || p->remaining[label] > 2;
    if (both == shared && wanted == needed) to[n++] = label;
  }
  return n;
}

// a = a * b, summed over the labels not needed later.
static px_status multiply(plan *p, factor *a, factor *b) {
  int8_t batch[PX_MAX_DIMS], left[PX_MAX_DIMS], summed[PX_MAX_DIMS], right[PX_MAX_DIMS];
  int8_t order[2 * PX_MAX_DIMS];
  PX_TRY(sum_unshared(p, a));
  PX_TRY(sum_unshared(p, b));
  int nb = group(batch, a, b, p, true, true), nl = group(left, a, b, p, false, true);
  int ns = group(summed, a, b, p, true, false), nr = group(right, b, a, p, false, true);
  PX_CHECK(nb + nl + nr <= PX_MAX_DIMS, PX_RUNTIME, "einsum(): too many dimensions");
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  memcpy(order, batch, (size_t)nb), memcpy(order + nb, left, (size_t)nl);
  memcpy(order + nb + nl, summed, (size_t)ns);
  PX_TRY(as_matrices(&x, p, a, order, (int[3]){nb, nl, ns}));
  memcpy(order + nb, summed, (size_t)ns), memcpy(order + nb + ns, right, (size_t)nr);
  PX_TRY(as_matrices(&y, p, b, order, (int[3]){nb, ns, nr}));
  // Without a contraction use mul: devices have bmm for floating-point dtypes only.
  PX_TRY(ns ? px_bmm(&product, x, y) : px_mul(&product, x, y));
  memcpy(order + nb, left, (size_t)nl), memcpy(order + nb + nl, right, (size_t)nr);
  int64_t sizes[PX_MAX_DIMS];
  for (int i = 0; i < nb + nl + nr; i++) sizes[i] = p->sizes[order[i]];
  px_tensor *result = NULL;
  PX_TRY(px_reshape(&result, product, sizes, nb + nl + nr));
  replace(a, result);
  memcpy(a->labels, order, (size_t)(nb + nl + nr));
  for (int i = 0; i < nb; i++) p->remaining[batch[i]]--;
  return PX_OK;
}

static px_status contract(px_tensor **out, plan *p) {
  PX_TRY(parse(p));
  for (int i = 1; i < p->count; i++) PX_TRY(multiply(p, &p->factors[0], &p->factors[i]));
  PX_TRY(sum_unshared(p, &p->factors[0]));
  int64_t dims[PX_MAX_DIMS];
  for (int i = 0; i < p->output_count; i++) dims[i] = dim_of(&p->factors[0], p->output[i]);
  return px_permute(out, p->factors[0].t, dims, p->output_count);
}
PX_RUN(einsum) {
  px_value tensors = args->tensors;
  plan p = {.equation = args->equation, .count = tensors.n};
  for (int i = 0; i < LABELS; i++) p.sizes[i] = -1;
  PX_TRY(px__alloc((void **)&p.factors, (size_t)tensors.n * sizeof *p.factors));
  for (int i = 0; i < tensors.n; i++) p.factors[i].t = px_retain(tensors.v.tensors[i]);
  px_status status = contract(&call->results[0], &p);
  for (int i = 0; i < tensors.n; i++) px_release(p.factors[i].t);
  px__free(p.factors);
  return status;
}
