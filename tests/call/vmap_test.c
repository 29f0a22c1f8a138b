// SPDX-License-Identifier: Apache-2.0
// vmap over a dimension equals a loop over its slices, for each sample of the op tables: results,
// gradients through the vmap, and gradients taken per slice inside it.
#include "phlox/extend.h"
#include "phlox/vmap.h"
#include "samples.h"

enum { SLICES = 3 };
static px_device cpu(void) { return (px_device){PX_CPU, -1}; }

// ---- a vmapped call and the calls of its slices

// The tensors of slice j: those of the sample, with the elements of mapped tensors rotated by j.
typedef struct task {
  sample s;
  uint32_t mapped;  // bit k: tensor k
  int mapped_dim;   // the mapped dimension: 0, or -1 for the last
  px_tensor *slices[SLICES][SAMPLE_TENSORS];
  px_tensor *batched[SAMPLE_TENSORS];  // NULL if not mapped
} task;

static void stack_slices(task *t, int k) {
  px_tensor *parts[SLICES];
  for (int j = 0; j < SLICES; j++) parts[j] = t->slices[j][k];
  OK(px_stack(&t->batched[k], parts, SLICES, t->mapped_dim));
}

static void open_task(task *t, int row, uint32_t mapped, int mapped_dim, bool grads) {
  memset(t, 0, sizeof *t);
  t->mapped = mapped, t->mapped_dim = mapped_dim;
  sample_open(&t->s, row, PX_FLOAT64, cpu());
  for (int k = 0; k < t->s.tensor_count; k++) {
    px_tensor *given = t->s.tensors[k];
    if (!given) continue;
    for (int64_t j = 0; j < SLICES; j++) {
      int64_t shift = mapped >> k & 1 ? j : 0;
      OK(px_roll(&t->slices[j][k], given, &shift, 1, NULL, 0));
    }
    if (mapped >> k & 1) stack_slices(t, k);
    if (!grads || !t->s.smooth[k]) continue;
    for (int j = 0; j < SLICES; j++) OK(px_tensor_set_requires_grad(t->slices[j][k], true));
    if (t->batched[k]) OK(px_tensor_set_requires_grad(t->batched[k], true));
  }
}

static void close_task(task *t) {
  for (int k = 0; k < t->s.tensor_count; k++) {
    for (int j = 0; j < SLICES; j++) px_release(t->slices[j][k]);
    px_release(t->batched[k]);
  }
  sample_close(&t->s);
}

static void release_all(px_tensor **list, int count) {
  for (int i = 0; i < count; i++) px_release(list[i]);
}

// The sum of all differentiable results; NULL if there are none.
static px_tensor *total(px_tensor *const *results, int count) {
  px_tensor *sum = NULL;
  for (int i = 0; i < count; i++) {
    if (!results[i] || !px_dtype_is_float(px_tensor_dtype(results[i])) ||
        !px_tensor_requires_grad(results[i]))
      continue;
    px_tensor *square = NULL, *one = NULL, *both = NULL;
    OK(px_mul(&square, results[i], results[i]));
    OK(px_sum(&one, square, NULL, 0, false, PX_DTYPE_NONE));
    if (sum) OK(px_add(&both, sum, one, px_int(1)));
    px_release(square);
    if (both) px_release(sum), px_release(one);
    sum = both ? both : one;
  }
  return sum;
}

static px_status gradients(const task *t, px_tensor *const *of, px_tensor *const *results,
                           int count, px_tensor **grads) {
  px_tensor *wanted[SAMPLE_TENSORS], *got[SAMPLE_TENSORS] = {NULL};
  int n = 0;
  for (int k = 0; k < t->s.tensor_count; k++)
    if (of[k] && px_tensor_requires_grad(of[k])) wanted[n++] = of[k];
  PX_SCOPED(px_tensor) sum = total(results, count);
  if (!n || !sum) return PX_OK;
  PX_TRY(px_grad(got, 1, &(px_tensor *){sum}, NULL, n, wanted, false, false, true));
  for (int k = 0, i = 0; k < t->s.tensor_count; k++)
    if (of[k] && px_tensor_requires_grad(of[k])) grads[k] = got[i++];
  return PX_OK;
}

typedef struct outcome {
  px_tensor *results[SAMPLE_RESULTS], *grads[SAMPLE_TENSORS];
  int count;
} outcome;
static void release_outcome(outcome *o) {
  release_all(o->results, o->count);
  release_all(o->grads, SAMPLE_TENSORS);
}

static px_status call_slice(const task *t, int j, outcome *o, bool grads) {
  PX_TRY(sample_call(&t->s, t->slices[j], o->results, &o->count));
  return grads ? gradients(t, t->slices[j], o->results, o->count, o->grads) : PX_OK;
}

static px_status unbatch_all(px_tensor **list, int count) {
  for (int i = 0; i < count; i++) {
    px_tensor *shown = NULL;
    if (!list[i]) continue;
    PX_TRY(px_unbatch(&shown, list[i], 0));
    px_release(list[i]);
    list[i] = shown;
  }
  return PX_OK;
}

// The compared values: results, gradients per slice inside the vmap, or gradients through the vmap.
typedef enum comparison { RESULTS, WITHIN, THROUGH } comparison;

static px_status call_within(task *t, px_tensor **hidden, outcome *o, comparison of) {
  for (int k = 0; k < t->s.tensor_count; k++) {
    if (t->batched[k])
      PX_TRY(px_batch(&hidden[k], t->batched[k], t->mapped_dim));
    else if (t->s.tensors[k] && of == WITHIN)  // a leaf for each slice
      PX_TRY(px_tensor_detach(&hidden[k], t->slices[0][k]));
    else
      hidden[k] = px_retain(t->slices[0][k]);
    if (hidden[k] && of == WITHIN && t->s.smooth[k])
      PX_TRY(px_tensor_set_requires_grad(hidden[k], true));
  }
  PX_TRY(sample_call(&t->s, hidden, o->results, &o->count));
  if (of == WITHIN) PX_TRY(gradients(t, hidden, o->results, o->count, o->grads));
  PX_TRY(unbatch_all(o->results, o->count));
  return unbatch_all(o->grads, SAMPLE_TENSORS);
}

static px_status call_mapped(task *t, outcome *o, comparison of) {
  int level;
  px_tensor *hidden[SAMPLE_TENSORS] = {NULL};
  PX_TRY(px_vmap_begin(&level, SLICES, PX_RANDOMNESS_ERROR));
  px_status status = call_within(t, hidden, o, of);
  release_all(hidden, SAMPLE_TENSORS);
  px_vmap_end();
  if (status != PX_OK || of != THROUGH) return status;
  px_tensor *inputs[SAMPLE_TENSORS] = {NULL};
  for (int k = 0; k < t->s.tensor_count; k++)
    inputs[k] = t->batched[k] ? t->batched[k] : t->slices[0][k];
  return gradients(t, inputs, o->results, o->count, o->grads);
}

// ---- comparison

static bool close_to(const px_tensor *a, const px_tensor *b) {
  if (!px_tensor_has_sizes(a, px_tensor_ndim(b), px_tensor_sizes(b)) ||
      px_tensor_dtype(a) != px_tensor_dtype(b))
    return false;
  int64_t n = px_tensor_numel(a);
  PX_SCOPED(px_tensor) wide_a = NULL;
  PX_SCOPED(px_tensor) wide_b = NULL;
  if (px_dtype_is_complex(px_tensor_dtype(a))) return true;
  OK(px_to(&wide_a, a, PX_FLOAT64, PX_DEVICE_NONE, false, false));
  OK(px_to(&wide_b, b, PX_FLOAT64, PX_DEVICE_NONE, false, false));
  double *x = calloc((size_t)n + 1, 8), *y = calloc((size_t)n + 1, 8);
  OK(px_tensor_read(wide_a, x, (size_t)n * 8));
  OK(px_tensor_read(wide_b, y, (size_t)n * 8));
  bool same = true;
  for (int64_t i = 0; i < n && same; i++)
    same = x[i] == y[i] || (isnan(x[i]) && isnan(y[i])) ||
           fabs(x[i] - y[i]) <= 1e-9 * (1 + fabs(y[i]));
  free(x);
  free(y);
  return same;
}

static int failures;
static void complain(const task *t, const char *what) {
  fprintf(stderr, "%s %s: tensors %x mapped at %d: %s: %s\n", t->s.op_name, t->s.text, t->mapped,
          t->mapped_dim, what, px_error_last()->message);
  px_error_clear();
  failures++;
}

static bool slice_is(px_tensor *all, int dim, int j, px_tensor *one) {
  PX_SCOPED(px_tensor) slice = NULL;
  OK(px_select(&slice, all, dim, j));
  return close_to(slice, one);
}

static void compare_results(const task *t, const outcome *mapped, const outcome *slices) {
  for (int j = 0; j < SLICES; j++)
    for (int i = 0; i < mapped->count; i++)
      if (mapped->results[i] && !slice_is(mapped->results[i], 0, j, slices[j].results[i])) {
        complain(t, "a result is another");
        return;
      }
}

// The gradient of an unmapped tensor is the sum over all slices.
static px_tensor *sum_of(const outcome *slices, int k) {
  px_tensor *sum = NULL, *next = NULL;
  for (int j = 0; j < SLICES; j++) {
    if (!slices[j].grads[k]) continue;
    if (sum)
      OK(px_add(&next, sum, slices[j].grads[k], px_int(1)));
    else
      next = px_retain(slices[j].grads[k]);
    px_release(sum);
    sum = next;
  }
  return sum;
}

// A missing gradient is zero.
static bool agree(const px_tensor *a, const px_tensor *b) {
  if (a && b) return close_to(a, b);
  PX_SCOPED(px_tensor) zeros = NULL;
  if (a || b)
    OK(px_zeros_like(&zeros, a ? a : b, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL));
  return !zeros || close_to(zeros, a ? a : b);
}

static bool gradient_agrees(const task *t, const outcome *mapped, const outcome *slices, int k) {
  px_tensor *all = mapped->grads[k];
  PX_SCOPED(px_tensor) sum = sum_of(slices, k);
  if (!t->batched[k]) return agree(all, sum);
  for (int j = 0; j < SLICES; j++) {
    PX_SCOPED(px_tensor) slice = NULL;
    if (all) OK(px_select(&slice, all, t->mapped_dim, j));
    if (!agree(slice, slices[j].grads[k])) return false;
  }
  return true;
}

static void compare_through(const task *t, const outcome *mapped, const outcome *slices) {
  for (int k = 0; k < t->s.tensor_count; k++)
    if (!gradient_agrees(t, mapped, slices, k)) {
      complain(t, "a gradient through the mapping is another");
      return;
    }
}

static void compare_gradients(const task *t, const outcome *mapped, const outcome *slices) {
  for (int j = 0; j < SLICES; j++)
    for (int k = 0; k < t->s.tensor_count; k++) {
      px_tensor *all = mapped->grads[k], *one = slices[j].grads[k];
      if (!all && !one) continue;
      if (!all || !one || !slice_is(all, 0, j, one)) {
        complain(t, "a gradient of a place is another");
        return;
      }
    }
}

// True if the last error is that of an op without a batching rule: data-dependent sizes, or reads
// of elements.
static bool is_refused(void) {
  static const char *const texts[] = {
      "We do not support batching operators that can output dynamic",
      "torch.masked_select(self, mask)", ".item() on a Tensor",
      "Batching rule not implemented for aten::_histogramdd"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    if (strstr(px_error_last()->message, texts[i])) return true;
  return false;
}

static void check_task(task *t, comparison of) {
  outcome mapped = {.count = 0}, slices[SLICES];
  memset(slices, 0, sizeof slices);
  bool fine = true;
  for (int j = 0; j < SLICES && fine; j++)
    fine = call_slice(t, j, &slices[j], of != RESULTS) == PX_OK;
  px_error_clear();
  if (fine) {
    static void (*const compare[])(const task *, const outcome *, const outcome *) = {
        compare_results, compare_gradients, compare_through};
    if (call_mapped(t, &mapped, of) == PX_OK)
      compare[of](t, &mapped, slices);
    else if (!is_refused())
      complain(t, "fails");
  }
  px_error_clear();
  release_outcome(&mapped);
  for (int j = 0; j < SLICES; j++) release_outcome(&slices[j]);
}

static void check_row(int row, uint32_t mapped, int mapped_dim, comparison of) {
  task t;
  open_task(&t, row, mapped, mapped_dim, of != RESULTS);
  check_task(&t, of);
  close_task(&t);
}

static px_status be_silent(px_warning category, const char *text) { return PX_OK; }

// Samples not comparable with a loop over slices: uninitialised values, data-dependent sizes,
// random ops without the flag in the table, writes to unmapped tensors. With an inner mapped
// dimension also strides and bits of the whole memory.
static bool is_not_comparable(const sample *s, int mapped_dim) {
  static const char *const never[] = {
      "empty_like",     "new_empty",         "new_empty_strided", "repeat_interleave_tensor",
      "gumbel_softmax", "embedding_renorm_", "as_strided_again",  "repeat_interleave_counts"};
  static const char *const within[] = {"as_strided", "_as_strided", "as_strided_copy",
                                       "as_strided_scatter", "view_dtype"};
  if (s->op->flags & PX_OP_RANDOM) return true;
  for (size_t i = 0; i < sizeof never / sizeof *never; i++)
    if (!strcmp(never[i], s->op_name)) return true;
  for (size_t i = 0; i < sizeof within / sizeof *within; i++)
    if (mapped_dim && !strcmp(within[i], s->op_name)) return true;
  return false;
}

static void check_rows(comparison of) {
  px_warning_set_sink(be_silent);
  for (int row = 0; row < SAMPLE_ROWS; row++) {
    sample s;
    sample_open(&s, row, PX_FLOAT64, cpu());
    uint32_t present = 0;
    bool writes = (s.op->flags & PX_OP_ONLY_INPLACE) != 0;
    for (int k = 0; k < s.tensor_count; k++) present |= s.tensors[k] ? 1u << k : 0;
    if (writes) present &= 1;  // writes go to the copy of self
    bool skips[2] = {is_not_comparable(&s, 0) || (of != RESULTS && writes),
                     is_not_comparable(&s, -1)};
    int tensors = s.tensor_count;
    sample_close(&s);
    for (int mapped_dim = 0; mapped_dim >= -1 && !skips[0]; mapped_dim--)
      for (int k = 0; k < tensors && !(mapped_dim && skips[1]); k++)
        if (present >> k & 1) check_row(row, 1u << k, mapped_dim, of);
    if ((present & (present - 1)) && !skips[0]) check_row(row, present, 0, of);
  }
  CHECK_EQ(failures, 0);
}

PX_TEST(size_and_randomness_are_those_of_the_innermost_map) {
  int level;
  px_randomness randomness = PX_RANDOMNESS_SAME;
  CHECK_EQ(px_vmap_size(&randomness), -1);
  OK(px_vmap_begin(&level, 3, PX_RANDOMNESS_DIFFERENT));
  OK(px_vmap_begin(&level, 5, PX_RANDOMNESS_ERROR));
  CHECK_EQ(px_vmap_size(&randomness), 5);
  CHECK_EQ(randomness, PX_RANDOMNESS_ERROR);
  px_vmap_end();
  CHECK_EQ(px_vmap_size(&randomness), 3);
  CHECK_EQ(randomness, PX_RANDOMNESS_DIFFERENT);
  px_vmap_end();
}

PX_TEST(vmap_equals_a_loop) { check_rows(RESULTS); }
PX_TEST(gradients_inside_vmap_are_per_slice) { check_rows(WITHIN); }
PX_TEST(gradients_flow_through_vmap) { check_rows(THROUGH); }

// ---- single cases

static px_tensor *counted(int ndim, const int64_t *sizes) {
  px_tensor *line = NULL, *out = NULL;
  int64_t n = 1;
  for (int d = 0; d < ndim; d++) n *= sizes[d];
  OK(px_arange(&line, px_int(0), px_int(n), px_int(1), PX_FLOAT64, cpu(), false, false));
  OK(px_reshape(&out, line, sizes, ndim));
  px_release(line);
  return out;
}
static double element(const px_tensor *t, int64_t at) {
  double values[64];
  OK(px_tensor_read(t, values, (size_t)px_tensor_numel(t) * 8));
  return values[at];
}

// The example of phlox/vmap.h.
PX_TEST(vmap_of_a_sum_of_squares) {
  PX_SCOPED(px_tensor) rows = counted(2, (int64_t[]){2, 3});
  PX_SCOPED(px_tensor) row = NULL;
  PX_SCOPED(px_tensor) square = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_SCOPED(px_tensor) out = NULL;
  int level;
  OK(px_vmap_begin(&level, px_tensor_size(rows, 0), PX_RANDOMNESS_ERROR));
  OK(px_batch(&row, rows, 0));
  CHECK_EQ(px_tensor_ndim(row), 1);
  CHECK_EQ(px_tensor_batch_level(row), 1);
  OK(px_mul(&square, row, row));
  OK(px_sum(&sum, square, NULL, 0, false, PX_DTYPE_NONE));
  OK(px_unbatch(&out, sum, 0));
  px_vmap_end();
  CHECK_NEAR(element(out, 0), 5, 0);
  CHECK_NEAR(element(out, 1), 50, 0);
}

PX_TEST(vmaps_nest) {
  PX_SCOPED(px_tensor) a = counted(1, (int64_t[]){3});
  PX_SCOPED(px_tensor) b = counted(1, (int64_t[]){4});
  PX_SCOPED(px_tensor) one = NULL;
  PX_SCOPED(px_tensor) other = NULL;
  PX_SCOPED(px_tensor) both = NULL;
  PX_SCOPED(px_tensor) inner = NULL;
  PX_SCOPED(px_tensor) out = NULL;
  int level;
  OK(px_vmap_begin(&level, 3, PX_RANDOMNESS_ERROR));
  OK(px_batch(&one, a, 0));
  OK(px_vmap_begin(&level, 4, PX_RANDOMNESS_ERROR));
  CHECK_EQ(level, 2);
  CHECK_EQ(px_vmap_depth(), 2);
  OK(px_batch(&other, b, 0));
  OK(px_mul(&both, one, other));
  CHECK_EQ(px_tensor_ndim(both), 0);
  CHECK_EQ(px_tensor_batch_level(px_tensor_physical(both)), 1);
  OK(px_unbatch(&inner, both, 0));
  px_vmap_end();
  OK(px_unbatch(&out, inner, 0));
  px_vmap_end();
  CHECK(px_tensor_has_sizes(out, 2, (int64_t[]){3, 4}));
  CHECK_NEAR(element(out, 11), 6, 0);
}

// Graphs recorded inside the vmap end there: an output requires grad only for leaves outside.
PX_TEST(leaves_inside_vmap_do_not_require_grad_outside) {
  PX_SCOPED(px_tensor) x = counted(1, (int64_t[]){3});
  PX_SCOPED(px_tensor) weight = NULL;
  PX_SCOPED(px_tensor) slice = NULL;
  PX_SCOPED(px_tensor) loss = NULL;
  PX_SCOPED(px_tensor) out = NULL;
  px_tensor *grad = NULL;
  int level;
  OK(px_full(&weight, NULL, 0, px_float(2), PX_FLOAT64, cpu(), false, false));
  OK(px_vmap_begin(&level, 3, PX_RANDOMNESS_ERROR));
  OK(px_tensor_set_requires_grad(weight, true));
  OK(px_batch(&slice, x, 0));
  OK(px_mul(&loss, weight, slice));
  OK(px_grad(&grad, 1, &loss, NULL, 1, &weight, false, true, false));
  OK(px_unbatch(&out, grad, 0));
  px_release(grad);
  px_vmap_end();
  CHECK(!px_tensor_requires_grad(out));
  CHECK_NEAR(element(out, 2), 2, 0);
}

static px_status add_in_place(px_tensor *to, px_tensor *x) { return px_add_(to, x, px_int(1)); }

PX_TEST(reading_elements_inside_vmap_is_refused) {
  PX_SCOPED(px_tensor) x = counted(2, (int64_t[]){2, 3});
  PX_SCOPED(px_tensor) zeros = counted(1, (int64_t[]){3});
  PX_SCOPED(px_tensor) slice = NULL;
  px_tensor *out = NULL;
  px_scalar number;
  double buffer[3];
  void *at;
  int level;
  FAILS(px_batch(&out, x, 0), PX_RUNTIME, "outside of px_vmap_begin");
  OK(px_vmap_begin(&level, 2, PX_RANDOMNESS_ERROR));
  FAILS(px_batch(&out, x, 1), PX_VALUE, "has size 3, but the level has size 2");
  FAILS(px_batch(&out, x, 2), PX_INDEX, "Dimension out of range");
  OK(px_batch(&slice, x, 0));
  CHECK(px_tensor_data(slice) == NULL);
  FAILS(px_tensor_read(slice, buffer, sizeof buffer), PX_RUNTIME, "doesn't have storage");
  FAILS(px_tensor_host_data(&at, slice), PX_RUNTIME, "doesn't have storage");
  PX_SCOPED(px_tensor) one = NULL;
  OK(px_select(&one, slice, 0, 0));
  FAILS(px_tensor_item(&number, one), PX_RUNTIME, "vmap over calling .item() on a Tensor");
  FAILS(px_nonzero(&out, slice), PX_RUNTIME, "operators that can output dynamic shape");
  FAILS(add_in_place(zeros, slice), PX_RUNTIME, "vmap: inplace arithmetic(self, *extra_args)");
  FAILS(px_add_out(zeros, slice, slice, px_int(1)), PX_RUNTIME,
        "not implemented for aten::add.out");
  FAILS(px_normal_(zeros, 0, 1, NULL), PX_RUNTIME, "in randomness error mode");
  FAILS(px_backward(1, &slice, NULL, false, false), PX_RUNTIME, "inside a functorch transform");
  px_vmap_end();
}

static double spread_of(px_randomness randomness) {
  PX_SCOPED(px_tensor) x = counted(1, (int64_t[]){2});
  PX_SCOPED(px_tensor) slice = NULL;
  PX_SCOPED(px_tensor) drawn = NULL;
  PX_SCOPED(px_tensor) out = NULL;
  int level;
  OK(px_vmap_begin(&level, 2, randomness));
  OK(px_batch(&slice, x, 0));
  OK(px_randn_like(&drawn, slice, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL));
  OK(px_unbatch(&out, drawn, 0));
  px_vmap_end();
  return element(out, 0) - element(out, 1);
}
PX_TEST(randomness_is_same_or_different) {
  CHECK(spread_of(PX_RANDOMNESS_DIFFERENT) != 0);
  CHECK_NEAR(spread_of(PX_RANDOMNESS_SAME), 0, 0);
}

// A map of the doubled elements of a leaf: the physical tensor has a history.
static void doubled_slice(px_tensor **out, px_tensor **doubled, px_tensor *leaf, int *level) {
  OK(px_tensor_set_requires_grad(leaf, true));
  OK(px_mul_scalar(doubled, leaf, px_int(2)));
  OK(px_vmap_begin(level, 2, PX_RANDOMNESS_ERROR));
  OK(px_batch(out, *doubled, 0));
}
PX_TEST(sharing_keeps_the_history_of_outer_levels) {
  PX_SCOPED(px_tensor) leaf = counted(2, (int64_t[]){2, 3});
  PX_SCOPED(px_tensor) doubled = NULL;
  PX_SCOPED(px_tensor) slice = NULL;
  PX_SCOPED(px_tensor) shared = NULL;
  PX_SCOPED(px_tensor) detached = NULL;
  int level;
  doubled_slice(&slice, &doubled, leaf, &level);
  OK(px_tensor_share(&shared, slice));
  OK(px_tensor_detach(&detached, slice));
  CHECK(px_tensor_is_recorded(px_tensor_physical(shared)));
  CHECK(!px_tensor_is_recorded(px_tensor_physical(detached)));
  OK(px_tensor_detach_physical(shared));
  CHECK(!px_tensor_is_recorded(px_tensor_physical(shared)));
  CHECK(px_tensor_is_recorded(px_tensor_physical(slice)));
  px_vmap_end();
}

PX_TEST(geometries_that_share_memory) {
  const int64_t sizes[] = {2, 3};
  CHECK(!px_may_overlap(2, sizes, (int64_t[]){3, 1}) &&
        !px_may_overlap(2, sizes, (int64_t[]){1, 2}));
  CHECK(px_may_overlap(2, sizes, (int64_t[]){1, 1}) && px_may_overlap(2, sizes, (int64_t[]){0, 1}));
  CHECK(!px_may_overlap(0, NULL, NULL));
}
