// SPDX-License-Identifier: Apache-2.0
// Mapping over a dimension gives what a loop over its places gives, of every sample of the op
// tables: results, gradients through the mapping, and gradients of each place within it.
#include "phlox/vmap.h"
#include "samples.h"

enum { PLACES = 3 };
static px_device cpu(void) { return (px_device){PX_CPU, -1}; }

// ---- a mapped call and the calls of its places

// The tensors of place j: the sample's, of which those that are mapped have their elements moved.
typedef struct task {
  sample s;
  uint32_t mapped;  // bit k: tensor k
  int where;        // the mapped dimension: 0, or -1 for the last
  px_tensor *places[PLACES][SAMPLE_TENSORS];
  px_tensor *batches[SAMPLE_TENSORS];  // NULL where it is not mapped
} task;

static void stack_places(task *t, int k) {
  px_tensor *parts[PLACES];
  for (int j = 0; j < PLACES; j++) parts[j] = t->places[j][k];
  OK(px_stack(&t->batches[k], parts, PLACES, t->where));
}

static void open_task(task *t, int row, uint32_t mapped, int where, bool grads) {
  memset(t, 0, sizeof *t);
  t->mapped = mapped, t->where = where;
  sample_open(&t->s, row, PX_FLOAT64, cpu());
  for (int k = 0; k < t->s.tensor_count; k++) {
    px_tensor *given = t->s.tensors[k];
    if (!given) continue;
    for (int64_t j = 0; j < PLACES; j++) {
      int64_t shift = mapped >> k & 1 ? j : 0;
      OK(px_roll(&t->places[j][k], given, &shift, 1, NULL, 0));
    }
    if (mapped >> k & 1) stack_places(t, k);
    if (!grads || !t->s.smooth[k]) continue;
    for (int j = 0; j < PLACES; j++) OK(px_tensor_set_requires_grad(t->places[j][k], true));
    if (t->batches[k]) OK(px_tensor_set_requires_grad(t->batches[k], true));
  }
}

static void close_task(task *t) {
  for (int k = 0; k < t->s.tensor_count; k++) {
    for (int j = 0; j < PLACES; j++) px_release(t->places[j][k]);
    px_release(t->batches[k]);
  }
  sample_close(&t->s);
}

static void drop(px_tensor **list, int count) {
  for (int i = 0; i < count; i++) px_release(list[i]);
}

// The sum of all that has a gradient; NULL if nothing has.
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
static void end_outcome(outcome *o) {
  drop(o->results, o->count);
  drop(o->grads, SAMPLE_TENSORS);
}

static px_status call_place(const task *t, int j, outcome *o, bool grads) {
  PX_TRY(sample_call(&t->s, t->places[j], o->results, &o->count));
  return grads ? gradients(t, t->places[j], o->results, o->count, o->grads) : PX_OK;
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

// What is compared: results; gradients of each place, taken within the mapping; gradients through
// the mapping.
typedef enum question { RESULTS, WITHIN, THROUGH } question;

static px_status call_within(task *t, px_tensor **hidden, outcome *o, question of) {
  for (int k = 0; k < t->s.tensor_count; k++) {
    if (t->batches[k])
      PX_TRY(px_batch(&hidden[k], t->batches[k], t->where));
    else if (t->s.tensors[k] && of == WITHIN)  // a leaf of each place's own
      PX_TRY(px_tensor_detach(&hidden[k], t->places[0][k]));
    else
      hidden[k] = px_retain(t->places[0][k]);
    if (hidden[k] && of == WITHIN && t->s.smooth[k])
      PX_TRY(px_tensor_set_requires_grad(hidden[k], true));
  }
  PX_TRY(sample_call(&t->s, hidden, o->results, &o->count));
  if (of == WITHIN) PX_TRY(gradients(t, hidden, o->results, o->count, o->grads));
  PX_TRY(unbatch_all(o->results, o->count));
  return unbatch_all(o->grads, SAMPLE_TENSORS);
}

static px_status call_mapped(task *t, outcome *o, question of) {
  int level;
  px_tensor *hidden[SAMPLE_TENSORS] = {NULL};
  PX_TRY(px_vmap_begin(&level, PLACES, PX_RANDOMNESS_ERROR));
  px_status status = call_within(t, hidden, o, of);
  drop(hidden, SAMPLE_TENSORS);
  px_vmap_end();
  if (status != PX_OK || of != THROUGH) return status;
  px_tensor *inputs[SAMPLE_TENSORS] = {NULL};
  for (int k = 0; k < t->s.tensor_count; k++)
    inputs[k] = t->batches[k] ? t->batches[k] : t->places[0][k];
  return gradients(t, inputs, o->results, o->count, o->grads);
}

// ---- comparing

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
          t->where, what, px_error_last()->message);
  px_error_clear();
  failures++;
}

static bool place_is(px_tensor *all, int dim, int j, px_tensor *one) {
  PX_SCOPED(px_tensor) place = NULL;
  OK(px_select(&place, all, dim, j));
  return close_to(place, one);
}

static void compare_results(const task *t, const outcome *mapped, const outcome *places) {
  for (int j = 0; j < PLACES; j++)
    for (int i = 0; i < mapped->count; i++)
      if (mapped->results[i] && !place_is(mapped->results[i], 0, j, places[j].results[i])) {
        complain(t, "a result is another");
        return;
      }
}

// A tensor that is not mapped gets what all places give it.
static px_tensor *sum_of(const outcome *places, int k) {
  px_tensor *sum = NULL, *next = NULL;
  for (int j = 0; j < PLACES; j++) {
    if (!places[j].grads[k]) continue;
    if (sum)
      OK(px_add(&next, sum, places[j].grads[k], px_int(1)));
    else
      next = px_retain(places[j].grads[k]);
    px_release(sum);
    sum = next;
  }
  return sum;
}

// A gradient that is missing is zero.
static bool agree(const px_tensor *a, const px_tensor *b) {
  if (a && b) return close_to(a, b);
  PX_SCOPED(px_tensor) zeros = NULL;
  if (a || b)
    OK(px_zeros_like(&zeros, a ? a : b, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL));
  return !zeros || close_to(zeros, a ? a : b);
}

static bool came_through(const task *t, const outcome *mapped, const outcome *places, int k) {
  px_tensor *all = mapped->grads[k];
  PX_SCOPED(px_tensor) sum = sum_of(places, k);
  if (!t->batches[k]) return agree(all, sum);
  for (int j = 0; j < PLACES; j++) {
    PX_SCOPED(px_tensor) place = NULL;
    if (all) OK(px_select(&place, all, t->where, j));
    if (!agree(place, places[j].grads[k])) return false;
  }
  return true;
}

static void compare_through(const task *t, const outcome *mapped, const outcome *places) {
  for (int k = 0; k < t->s.tensor_count; k++)
    if (!came_through(t, mapped, places, k)) {
      complain(t, "a gradient through the mapping is another");
      return;
    }
}

static void compare_gradients(const task *t, const outcome *mapped, const outcome *places) {
  for (int j = 0; j < PLACES; j++)
    for (int k = 0; k < t->s.tensor_count; k++) {
      px_tensor *all = mapped->grads[k], *one = places[j].grads[k];
      if (!all && !one) continue;
      if (!all || !one || !place_is(all, 0, j, one)) {
        complain(t, "a gradient of a place is another");
        return;
      }
    }
}

// What has no rule because it has no sense: sizes that follow from values, what reads elements.
static bool is_refused(void) {
  static const char *const texts[] = {
      "We do not support batching operators that can output dynamic",
      "torch.masked_select(self, mask)", ".item() on a Tensor",
      "Batching rule not implemented for aten::_histogramdd"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    if (strstr(px_error_last()->message, texts[i])) return true;
  return false;
}

static void check_task(task *t, question of) {
  outcome mapped = {.count = 0}, places[PLACES];
  memset(places, 0, sizeof places);
  bool fine = true;
  for (int j = 0; j < PLACES && fine; j++)
    fine = call_place(t, j, &places[j], of != RESULTS) == PX_OK;
  px_error_clear();
  if (fine) {
    static void (*const compare[])(const task *, const outcome *, const outcome *) = {
        compare_results, compare_gradients, compare_through};
    if (call_mapped(t, &mapped, of) == PX_OK)
      compare[of](t, &mapped, places);
    else if (!is_refused())
      complain(t, "fails");
  }
  px_error_clear();
  end_outcome(&mapped);
  for (int j = 0; j < PLACES; j++) end_outcome(&places[j]);
}

static void check_row(int row, uint32_t mapped, int where, question of) {
  task t;
  open_task(&t, row, mapped, where, of != RESULTS);
  check_task(&t, of);
  close_task(&t);
}

static px_status be_silent(px_warning category, const char *text) { return PX_OK; }

// What a loop over places does not tell: values that are not set; sizes that follow from values;
// numbers that are drawn without a word of that in the table; a write to what is not mapped;
// strides and bits of the memory as a whole, if the mapped dimension lies within.
static bool is_apart(const sample *s, int where) {
  static const char *const never[] = {
      "empty_like",     "new_empty",         "new_empty_strided", "repeat_interleave_tensor",
      "gumbel_softmax", "embedding_renorm_", "as_strided_again",  "repeat_interleave_counts"};
  static const char *const within[] = {"as_strided", "_as_strided", "as_strided_copy",
                                       "as_strided_scatter", "view_dtype"};
  if (s->op->flags & PX_OP_RANDOM) return true;
  for (size_t i = 0; i < sizeof never / sizeof *never; i++)
    if (!strcmp(never[i], s->op_name)) return true;
  for (size_t i = 0; i < sizeof within / sizeof *within; i++)
    if (where && !strcmp(within[i], s->op_name)) return true;
  return false;
}

static void check_rows(question of) {
  px_warning_set_sink(be_silent);
  for (int row = 0; row < SAMPLE_ROWS; row++) {
    sample s;
    sample_open(&s, row, PX_FLOAT64, cpu());
    uint32_t present = 0;
    bool writes = (s.op->flags & PX_OP_ONLY_INPLACE) != 0;
    for (int k = 0; k < s.tensor_count; k++) present |= s.tensors[k] ? 1u << k : 0;
    if (writes) present &= 1;  // the copy of self is what is written
    bool skips[2] = {is_apart(&s, 0) || (of != RESULTS && writes), is_apart(&s, -1)};
    int tensors = s.tensor_count;
    sample_close(&s);
    for (int where = 0; where >= -1 && !skips[0]; where--)
      for (int k = 0; k < tensors && !(where && skips[1]); k++)
        if (present >> k & 1) check_row(row, 1u << k, where, of);
    if ((present & (present - 1)) && !skips[0]) check_row(row, present, 0, of);
  }
  CHECK_EQ(failures, 0);
}

PX_TEST(a_mapped_call_gives_what_a_loop_gives) { check_rows(RESULTS); }
PX_TEST(gradients_within_a_mapping_are_those_of_each_place) { check_rows(WITHIN); }
PX_TEST(gradients_come_through_a_mapping) { check_rows(THROUGH); }

// ---- by hand

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
PX_TEST(rows_have_sums_of_their_squares) {
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

PX_TEST(mappings_nest) {
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

// Histories that begin inside stay inside: what comes out has only those from outside.
PX_TEST(what_a_mapping_gives_does_not_require_grad_for_what_did_inside) {
  PX_SCOPED(px_tensor) x = counted(1, (int64_t[]){3});
  PX_SCOPED(px_tensor) weight = NULL;
  PX_SCOPED(px_tensor) place = NULL;
  PX_SCOPED(px_tensor) loss = NULL;
  PX_SCOPED(px_tensor) out = NULL;
  px_tensor *grad = NULL;
  int level;
  OK(px_full(&weight, NULL, 0, px_float(2), PX_FLOAT64, cpu(), false, false));
  OK(px_vmap_begin(&level, 3, PX_RANDOMNESS_ERROR));
  OK(px_tensor_set_requires_grad(weight, true));
  OK(px_batch(&place, x, 0));
  OK(px_mul(&loss, weight, place));
  OK(px_grad(&grad, 1, &loss, NULL, 1, &weight, false, true, false));
  OK(px_unbatch(&out, grad, 0));
  px_release(grad);
  px_vmap_end();
  CHECK(!px_tensor_requires_grad(out));
  CHECK_NEAR(element(out, 2), 2, 0);
}

static px_status add_in_place(px_tensor *to, px_tensor *x) { return px_add_(to, x, px_int(1)); }

PX_TEST(what_needs_elements_is_refused) {
  PX_SCOPED(px_tensor) x = counted(2, (int64_t[]){2, 3});
  PX_SCOPED(px_tensor) zeros = counted(1, (int64_t[]){3});
  PX_SCOPED(px_tensor) place = NULL;
  px_tensor *out = NULL;
  px_scalar number;
  double room[3];
  void *at;
  int level;
  FAILS(px_batch(&out, x, 0), PX_RUNTIME, "outside of px_vmap_begin");
  OK(px_vmap_begin(&level, 2, PX_RANDOMNESS_ERROR));
  FAILS(px_batch(&out, x, 1), PX_VALUE, "has size 3, but the level has size 2");
  FAILS(px_batch(&out, x, 2), PX_INDEX, "Dimension out of range");
  OK(px_batch(&place, x, 0));
  CHECK(px_tensor_data(place) == NULL);
  FAILS(px_tensor_read(place, room, sizeof room), PX_RUNTIME, "doesn't have storage");
  FAILS(px_tensor_host_data(&at, place), PX_RUNTIME, "doesn't have storage");
  PX_SCOPED(px_tensor) one = NULL;
  OK(px_select(&one, place, 0, 0));
  FAILS(px_tensor_item(&number, one), PX_RUNTIME, "vmap over calling .item() on a Tensor");
  FAILS(px_nonzero(&out, place), PX_RUNTIME, "operators that can output dynamic shape");
  FAILS(add_in_place(zeros, place), PX_RUNTIME, "vmap: inplace arithmetic(self, *extra_args)");
  FAILS(px_add_out(zeros, place, place, px_int(1)), PX_RUNTIME,
        "not implemented for aten::add.out");
  FAILS(px_normal_(zeros, 0, 1, NULL), PX_RUNTIME, "in randomness error mode");
  FAILS(px_backward(1, &place, NULL, false, false), PX_RUNTIME, "inside a functorch transform");
  px_vmap_end();
}

static double spread_of(px_randomness randomness) {
  PX_SCOPED(px_tensor) x = counted(1, (int64_t[]){2});
  PX_SCOPED(px_tensor) place = NULL;
  PX_SCOPED(px_tensor) drawn = NULL;
  PX_SCOPED(px_tensor) out = NULL;
  int level;
  OK(px_vmap_begin(&level, 2, randomness));
  OK(px_batch(&place, x, 0));
  OK(px_randn_like(&drawn, place, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL));
  OK(px_unbatch(&out, drawn, 0));
  px_vmap_end();
  return element(out, 0) - element(out, 1);
}
PX_TEST(random_numbers_are_the_same_or_different) {
  CHECK(spread_of(PX_RANDOMNESS_DIFFERENT) != 0);
  CHECK_NEAR(spread_of(PX_RANDOMNESS_SAME), 0, 0);
}
