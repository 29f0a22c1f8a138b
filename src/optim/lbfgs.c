// SPDX-License-Identifier: Apache-2.0
// L-BFGS: a quasi-Newton method with curvature from the last iterations (Nocedal and
// Wright 2006, Numerical optimization, chapters 3 and 7). All parameters form one vector. The
// caller owns the history, which is updated during the iterations.
#include <math.h>

#include "optim/optim_impl.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/linalg.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"

// ---- scalars of vectors

static px_status dot(double *out, const px_tensor *a, const px_tensor *b) {
  PX_SCOPED(px_tensor) product = NULL;
  px_scalar number;
  PX_TRY(px_dot(&product, a, b));
  PX_TRY(px_tensor_item(&number, product));
  *out = px_scalar_float(number);
  return PX_OK;
}

// Norm of a vector: type 1 or INFINITY.
static px_status norm(double *out, const px_tensor *a, double type) {
  PX_SCOPED(px_tensor) made = NULL;
  px_scalar number;
  PX_TRY(px_norm(&made, a, px_float(type), NULL, 0, false, PX_DTYPE_NONE));
  PX_TRY(px_tensor_item(&number, made));
  *out = px_scalar_float(number);
  return PX_OK;
}

static void replace(px_tensor **slot, px_tensor *value_take) {
  px_release(*slot);
  *slot = value_take;
}

// ---- history

void px_lbfgs_clear(px_lbfgs_memory *m) {
  for (int64_t i = 0; i < m->count; i++)
    px_release(m->history[i].change), px_release(m->history[i].step);
  px_free(m->history);
  px_release(m->direction), px_release(m->grad);
  *m = (px_lbfgs_memory){.scale = 1};
}

px_status px_lbfgs_remember(px_lbfgs_memory *memory, px_tensor *change, px_tensor *step, double ro,
                            int64_t max) {
  PX_GIVEN(memory);
  PX_GIVEN(change);
  PX_GIVEN(step);
  px_lbfgs_memory *m = memory;
  if (m->count == m->capacity) {
    int64_t capacity = m->capacity ? 2 * m->capacity : 8;
    PX_TRY(px_realloc((void **)&m->history, (size_t)capacity * sizeof *m->history));
    m->capacity = capacity;
  }
  if (m->count && m->count >= max) {
    px_release(m->history[0].change), px_release(m->history[0].step);
    for (int64_t i = 1; i < m->count; i++) m->history[i - 1] = m->history[i];
    m->count--;
  }
  m->history[m->count++] = (px_lbfgs_iteration){px_retain(change), px_retain(step), ro};
  return PX_OK;
}

// Adds the last iteration to the history.
static px_status update_history(px_lbfgs_memory *m, const px_tensor *grad, int64_t max) {
  PX_SCOPED(px_tensor) change = NULL;
  PX_SCOPED(px_tensor) step = NULL;
  double curve, square;
  PX_TRY(px_sub(&change, grad, m->grad, px_int(1)));
  PX_TRY(px_mul_scalar(&step, m->direction, px_float(m->t)));
  PX_TRY(dot(&curve, change, step));
  if (!(curve > 1e-10)) return PX_OK;
  PX_TRY(dot(&square, change, change));
  PX_TRY(px_lbfgs_remember(m, change, step, 1 / curve, max));
  m->scale = curve / square;
  return PX_OK;
}

// Computes the search direction by the two-loop recursion.
static px_status search_direction(px_tensor **out, const px_lbfgs_memory *m,
                                  const px_tensor *grad) {
  PX_SCOPED(px_tensor) way = NULL;
  double *shares, share;
  PX_TRY(px_neg(&way, grad));
  PX_TRY(px_alloc((void **)&shares, (size_t)(m->count + 1) * sizeof *shares));
  px_status status = PX_OK;
  for (int64_t i = m->count - 1; i >= 0 && status == PX_OK; i--) {
    status = dot(&share, m->history[i].step, way);
    shares[i] = share * m->history[i].ro;
    if (status == PX_OK) status = px_add_(way, m->history[i].change, px_float(-shares[i]));
  }
  if (status == PX_OK) status = px_mul_scalar_(way, px_float(m->scale));
  for (int64_t i = 0; i < m->count && status == PX_OK; i++) {
    status = dot(&share, m->history[i].change, way);
    share = shares[i] - share * m->history[i].ro;
    if (status == PX_OK) status = px_add_(way, m->history[i].step, px_float(share));
  }
  px_free(shares);
  *out = status == PX_OK ? PX_MOVE(way) : NULL;
  return status;
}

// ---- the loss

typedef struct run {
  const px_lbfgs_options *o;
  px_lbfgs_memory *m;
  px_tensor *const *parameters;
  int64_t count, calls;
  px_loss closure;
  void *context;
  double loss;
  px_tensor *grad;
} run;

// Returns the elements of a gradient as a vector. Complex elements have two parts.
static px_status flatten(px_tensor **out, px_tensor *grad) {
  static const int64_t flat = -1;
  if (!px_dtype_is_complex(px_tensor_dtype(grad))) return px_reshape(out, grad, &flat, 1);
  PX_SCOPED(px_tensor) plain = NULL;
  PX_SCOPED(px_tensor) pairs = NULL;
  PX_TRY(px__resolved(&plain, grad));
  PX_TRY(px_view_as_real(&pairs, plain));
  return px_reshape(out, pairs, &flat, 1);
}

// Concatenates all gradients, with zeros for missing ones.
static px_status gather(px_tensor **out, const run *r, px_tensor **parts) {
  for (int64_t i = 0; i < r->count; i++) {
    PX_SCOPED(px_tensor) grad = NULL;
    PX_TRY(px_tensor_get_grad(&grad, r->parameters[i]));
    if (!grad)
      PX_TRY(px_zeros_like(&grad, r->parameters[i], PX_DTYPE_NONE, PX_DEVICE_NONE, false, false,
                           NULL));
    PX_TRY(flatten(&parts[i], grad));
  }
  PX_TRY(px_cat(out, parts, r->count, 0));
  return r->o->maximize ? px_neg_(*out) : PX_OK;
}

// Calls the closure. Sets r->loss and r->grad for the current parameters.
static px_status evaluate(run *r) {
  px_tensor **parts, *grad = NULL;
  double loss;
  px_grad_set_enabled(true);
  px_status status = r->closure(&loss, r->context);
  px_grad_set_enabled(false);
  PX_TRY(status);
  r->calls++, r->m->calls++;
  PX_TRY(px_alloc((void **)&parts, (size_t)r->count * sizeof *parts));
  status = gather(&grad, r, parts);
  for (int64_t i = 0; i < r->count; i++) px_release(parts[i]);
  px_free(parts);
  if (status != PX_OK) px_release(grad), grad = NULL;
  PX_TRY(status);
  r->loss = r->o->maximize ? -loss : loss;
  replace(&r->grad, grad);
  return PX_OK;
}

// Adds t times a part of the direction, starting at *at, to a parameter.
static px_status move_one(px_tensor *p, double t, const px_tensor *way, int64_t *at) {
  static const int64_t pair[] = {-1, 2};
  PX_SCOPED(px_tensor) part = NULL;
  PX_SCOPED(px_tensor) numbers = NULL;
  PX_SCOPED(px_tensor) shaped = NULL;
  bool complex = px_dtype_is_complex(px_tensor_dtype(p));
  int64_t size = px_tensor_numel(p) * (complex ? 2 : 1);
  PX_TRY(px_narrow(&part, way, 0, *at, size));
  *at += size;
  if (complex) {
    PX_SCOPED(px_tensor) aligned = NULL;
    PX_SCOPED(px_tensor) pairs = NULL;
    PX_TRY(px_clone(&aligned, part, NULL));
    PX_TRY(px_reshape(&pairs, aligned, pair, 2));
    PX_TRY(px_view_as_complex(&numbers, pairs));
  }
  PX_TRY(px_reshape(&shaped, complex ? numbers : part, px_tensor_sizes(p), px_tensor_ndim(p)));
  return px_add_(p, shaped, px_float(t));
}

// Moves the parameters by t times a direction.
static px_status move(const run *r, double t, const px_tensor *way) {
  int64_t at = 0;
  for (int64_t i = 0; i < r->count; i++) PX_TRY(move_one(r->parameters[i], t, way, &at));
  return PX_OK;
}

// ---- line search for the strong Wolfe conditions

typedef struct point {
  double t, loss, slope;
  px_tensor *grad;
} point;
static void copy_point(point *to, const point *from) {
  px_tensor *old = to->grad;
  *to = *from;
  px_retain(to->grad);
  px_release(old);
}

typedef struct search {
  run *r;
  const px_tensor *way;
  px_tensor **before;  // parameters at t = 0
  double t, size;      // first trial; largest element of the direction
  point start, ends[2], now;
  int64_t iteration, max;
} search;

// Minimum, within [left, right], of the cubic through two points with their slopes.
static double cubic_minimum(const point *a, const point *b, double left, double right) {
  double c = a->slope + b->slope - 3 * (a->loss - b->loss) / (a->t - b->t);
  double square = c * c - a->slope * b->slope;
  if (!(square >= 0)) return (left + right) / 2;
  if (a->t > b->t) return cubic_minimum(b, a, left, right);
  double root = sqrt(square);
  double t = b->t - (b->t - a->t) * ((b->slope + root - c) / (b->slope - a->slope + 2 * root));
  return fmin(fmax(t, left), right);
}

static bool is_high(const search *s) {
  return s->now.loss > s->start.loss + 1e-4 * s->now.t * s->start.slope;
}
static bool is_flat(const search *s) { return fabs(s->now.slope) <= -0.9 * s->start.slope; }

// Evaluates at t into s->now. Restores the parameters, also on failure.
static px_status evaluate_at(search *s, double t) {
  double slope;
  px_status status = move(s->r, t, s->way);
  if (status == PX_OK) status = evaluate(s->r);
  for (int64_t i = 0; i < s->r->count; i++) {
    if (status == PX_OK)
      status = px_copy_(s->r->parameters[i], s->before[i], false);
    else  // keep the first error
      (void)!px_copy_(s->r->parameters[i], s->before[i], false);
  }
  PX_TRY(status);
  PX_TRY(dot(&slope, s->r->grad, s->way));
  copy_point(&s->now, &(point){t, s->r->loss, slope, s->r->grad});
  return PX_OK;
}

// Extends the search until s->ends bracket a minimum, or s->now satisfies the conditions.
static px_status bracket(search *s, bool *done) {
  copy_point(&s->ends[0], &s->start);
  PX_TRY(evaluate_at(s, s->t));
  for (; s->iteration < s->max; s->iteration++) {
    const point *last = &s->ends[0], *now = &s->now;
    if (is_high(s) || (s->iteration > 1 && now->loss >= last->loss)) break;
    if ((*done = is_flat(s))) return PX_OK;
    if (now->slope >= 0) break;
    double t = cubic_minimum(last, now, now->t + 0.01 * (now->t - last->t), now->t * 10);
    copy_point(&s->ends[0], now);
    PX_TRY(evaluate_at(s, t));
  }
  if (s->iteration >= s->max) copy_point(&s->ends[0], &s->start);
  copy_point(&s->ends[1], &s->now);
  return PX_OK;
}

// Trial point between the ends, kept away from them if the previous trial was close to one.
static double trial_point(const search *s, bool *stuck) {
  const point *a = &s->ends[0], *b = &s->ends[1];
  double left = fmin(a->t, b->t), right = fmax(a->t, b->t), margin = 0.1 * (right - left);
  double t = cubic_minimum(a, b, left, right);
  bool near = fmin(right - t, t - left) < margin, held = *stuck;
  *stuck = near;
  if (!near || !(held || t >= right || t <= left)) return t;
  *stuck = false;
  return right - t < t - left ? right - margin : left + margin;
}

// Shrinks the bracket; s->now is the result.
static px_status zoom(search *s) {
  bool stuck = false;
  int low = s->ends[0].loss > s->ends[1].loss;
  while (s->iteration < s->max) {
    point *best = &s->ends[low], *other = &s->ends[1 - low];
    if (fabs(other->t - best->t) * s->size < s->r->o->tolerance_change) break;
    PX_TRY(evaluate_at(s, trial_point(s, &stuck)));
    s->iteration++;
    if (is_high(s) || s->now.loss >= best->loss) {
      copy_point(other, &s->now);
      low = s->ends[0].loss > s->ends[1].loss;
      continue;
    }
    if (is_flat(s)) return PX_OK;
    if (s->now.slope * (other->t - best->t) >= 0) copy_point(other, best);
    copy_point(best, &s->now);
  }
  copy_point(&s->now, &s->ends[low]);
  return PX_OK;
}

static px_status find(search *s) {
  bool done = false;
  for (int64_t i = 0; i < s->r->count; i++)
    PX_TRY(px_clone(&s->before[i], s->r->parameters[i], NULL));
  PX_TRY(norm(&s->size, s->way, INFINITY));
  PX_TRY(bracket(s, &done));
  return done ? PX_OK : zoom(s);
}

// Searches the step length along m->way. Sets r->loss and r->grad for the result.
static px_status line_search(run *r, double slope) {
  search s = {.r = r, .way = r->m->direction, .t = r->m->t, .max = r->o->max_eval - r->calls};
  s.start = (point){0, r->loss, slope, px_retain(r->grad)};
  px_status status = px_alloc((void **)&s.before, (size_t)r->count * sizeof *s.before);
  if (status == PX_OK) status = find(&s);
  if (status == PX_OK) {
    r->m->t = s.now.t, r->loss = s.now.loss;
    replace(&r->grad, px_retain(s.now.grad));
  }
  for (int64_t i = 0; s.before && i < r->count; i++) px_release(s.before[i]);
  px_free(s.before);
  px_release(s.start.grad), px_release(s.now.grad);
  px_release(s.ends[0].grad), px_release(s.ends[1].grad);
  return status;
}

// ---- a step

// One iteration. *done: a stopping condition was met.
static px_status iterate(run *r, int64_t number, bool *done) {
  px_lbfgs_memory *m = r->m;
  const px_lbfgs_options *o = r->o;
  bool last = number + 1 == o->max_iter;
  double slope, size, before = r->loss;
  px_tensor *way = NULL;
  if (m->iterations++) PX_TRY(update_history(m, r->grad, o->history_size));
  PX_TRY(search_direction(&way, m, r->grad));
  replace(&m->direction, way);
  PX_TRY(norm(&size, r->grad, 1));
  m->t = m->iterations == 1 ? fmin(1, 1 / size) * o->lr : o->lr;
  replace(&m->grad, px_retain(r->grad)), m->loss = before;
  PX_TRY(dot(&slope, r->grad, way));
  if ((*done = slope > -o->tolerance_change)) return PX_OK;
  if (o->line_search) PX_TRY(line_search(r, slope));
  PX_TRY(move(r, m->t, way));
  if (!o->line_search && !last) PX_TRY(evaluate(r));  // the next step begins with an evaluation
  PX_TRY(norm(&size, way, INFINITY));
  *done = last || r->calls >= o->max_eval || size * m->t <= o->tolerance_change ||
          fabs(r->loss - before) < o->tolerance_change;
  return PX_OK;
}

static px_status run_iterations(run *r) {
  bool done = false;
  double size;
  PX_TRY(evaluate(r));
  for (int64_t i = 0; i < r->o->max_iter && !done; i++) {
    PX_TRY(norm(&size, r->grad, INFINITY));
    if (size <= r->o->tolerance_grad) break;
    PX_TRY(iterate(r, i, &done));
  }
  return PX_OK;
}

px_status px_lbfgs_step(px_lbfgs_memory *memory, const px_lbfgs_options *options,
                        px_tensor *const *parameters, int64_t count, px_loss closure,
                        void *context) {
  PX_GIVEN(memory);
  PX_GIVEN(options);
  PX_GIVEN(closure);
  PX_GIVEN_N(parameters, count);
  PX_CHECK(count > 0, PX_VALUE, "optimizer got an empty parameter list");
  PX_CHECK(options->lr >= 0, PX_VALUE, "Invalid learning rate: %g", options->lr);
  PX_TRY(px__parameters_given(parameters, count));
  run r = {options, memory, parameters, count, 0, closure, context, 0, NULL};
  bool was = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status = run_iterations(&r);
  px_grad_set_enabled(was);
  px_release(r.grad);
  return status;
}
