// SPDX-License-Identifier: Apache-2.0
// L-BFGS: Newton's method with the curvature that the last turns have shown (Nocedal and Wright
// 2006, Numerical optimization, chapters 3 and 7). All parameters together are one vector. What is
// remembered of earlier steps is the caller's; it changes as the turns are made.
#include <math.h>

#include "optim/optim_impl.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/linalg.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"

// ---- numbers of vectors

static px_status dot(double *out, const px_tensor *a, const px_tensor *b) {
  PX_SCOPED(px_tensor) product = NULL;
  px_scalar number;
  PX_TRY(px_dot(&product, a, b));
  PX_TRY(px_tensor_item(&number, product));
  *out = px_scalar_float(number);
  return PX_OK;
}

// The norm: of type 1 the sum of all sizes, of INFINITY the greatest.
static px_status norm(double *out, const px_tensor *a, double type) {
  PX_SCOPED(px_tensor) made = NULL;
  px_scalar number;
  PX_TRY(px_norm(&made, a, px_float(type), NULL, 0, false, PX_DTYPE_NONE));
  PX_TRY(px_tensor_item(&number, made));
  *out = px_scalar_float(number);
  return PX_OK;
}

static void take_over(px_tensor **place, px_tensor *value_take) {
  px_release(*place);
  *place = value_take;
}

// ---- the memory of turns

void px_lbfgs_clear(px_lbfgs_memory *m) {
  for (int64_t i = 0; i < m->count; i++)
    px_release(m->history[i].change), px_release(m->history[i].step);
  px_free(m->history);
  px_release(m->direction), px_release(m->grad);
  *m = (px_lbfgs_memory){.scale = 1};
}

px_status px_lbfgs_remember(px_lbfgs_memory *memory, px_tensor *change, px_tensor *step, double ro,
                            int64_t most) {
  PX_GIVEN(memory);
  PX_GIVEN(change);
  PX_GIVEN(step);
  px_lbfgs_memory *m = memory;
  if (m->count == m->capacity) {
    int64_t room = m->capacity ? 2 * m->capacity : 8;
    PX_TRY(px_realloc((void **)&m->history, (size_t)room * sizeof *m->history));
    m->capacity = room;
  }
  if (m->count && m->count >= most) {
    px_release(m->history[0].change), px_release(m->history[0].step);
    for (int64_t i = 1; i < m->count; i++) m->history[i - 1] = m->history[i];
    m->count--;
  }
  m->history[m->count++] = (px_lbfgs_iteration){px_retain(change), px_retain(step), ro};
  return PX_OK;
}

// Adds the latest turn to what is known of the curvature.
static px_status learn(px_lbfgs_memory *m, const px_tensor *grad, int64_t most) {
  PX_SCOPED(px_tensor) change = NULL;
  PX_SCOPED(px_tensor) step = NULL;
  double curve, square;
  PX_TRY(px_sub(&change, grad, m->grad, px_int(1)));
  PX_TRY(px_mul_scalar(&step, m->direction, px_float(m->t)));
  PX_TRY(dot(&curve, change, step));
  if (!(curve > 1e-10)) return PX_OK;
  PX_TRY(dot(&square, change, change));
  PX_TRY(px_lbfgs_remember(m, change, step, 1 / curve, most));
  m->scale = curve / square;
  return PX_OK;
}

// The way down, as the curvature says.
static px_status direct(px_tensor **out, const px_lbfgs_memory *m, const px_tensor *grad) {
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

// The gradients of all parameters as one vector, zeros where there is none.
static px_status gather(px_tensor **out, const run *r, px_tensor **parts) {
  static const int64_t flat = -1;
  for (int64_t i = 0; i < r->count; i++) {
    PX_SCOPED(px_tensor) grad = px_retain(px_tensor_grad(r->parameters[i]));
    if (!grad)
      PX_TRY(px_zeros_like(&grad, r->parameters[i], PX_DTYPE_NONE, PX_DEVICE_NONE, false, false,
                           NULL));
    PX_TRY(px_reshape(&parts[i], grad, &flat, 1));
  }
  PX_TRY(px_cat(out, parts, r->count, 0));
  return r->o->maximize ? px_neg_(*out) : PX_OK;
}

// Calls the closure: r->loss and r->grad are those of where the parameters are.
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
  take_over(&r->grad, grad);
  return PX_OK;
}

// Goes t along a way.
static px_status move(const run *r, double t, const px_tensor *way) {
  int64_t at = 0;
  for (int64_t i = 0; i < r->count; i++) {
    px_tensor *p = r->parameters[i];
    PX_SCOPED(px_tensor) part = NULL;
    PX_SCOPED(px_tensor) shaped = NULL;
    PX_TRY(px_narrow(&part, way, 0, at, px_tensor_numel(p)));
    PX_TRY(px_reshape(&shaped, part, px_tensor_sizes(p), px_tensor_ndim(p)));
    PX_TRY(px_add_(p, shaped, px_float(t)));
    at += px_tensor_numel(p);
  }
  return PX_OK;
}

// ---- the search for a length that makes the loss fall far enough, and the slope flat (Wolfe)

typedef struct point {
  double t, loss, slope;
  px_tensor *grad;
} point;
static void put(point *to, const point *from) {
  px_tensor *old = to->grad;
  *to = *from;
  px_retain(to->grad);
  px_release(old);
}

typedef struct search {
  run *r;
  const px_tensor *way;
  px_tensor **before;  // the parameters at t = 0
  double t, size;      // what is tried first; the greatest element of the way
  point start, ends[2], now;
  int64_t turn, most;
} search;

// Where the cubic through two points with their slopes is lowest, between two ends.
static double lowest(const point *a, const point *b, double left, double right) {
  double c = a->slope + b->slope - 3 * (a->loss - b->loss) / (a->t - b->t);
  double square = c * c - a->slope * b->slope;
  if (!(square >= 0)) return (left + right) / 2;
  if (a->t > b->t) return lowest(b, a, left, right);
  double root = sqrt(square);
  double t = b->t - (b->t - a->t) * ((b->slope + root - c) / (b->slope - a->slope + 2 * root));
  return fmin(fmax(t, left), right);
}

static bool is_high(const search *s) {
  return s->now.loss > s->start.loss + 1e-4 * s->now.t * s->start.slope;
}
static bool is_flat(const search *s) { return fabs(s->now.slope) <= -0.9 * s->start.slope; }

// Looks at t: s->now. The parameters are as before, also where that fails.
static px_status look(search *s, double t) {
  double slope;
  px_status status = move(s->r, t, s->way);
  if (status == PX_OK) status = evaluate(s->r);
  for (int64_t i = 0; i < s->r->count; i++) {
    if (status == PX_OK)
      status = px_copy_(s->r->parameters[i], s->before[i], false);
    else  // the first error stays
      (void)!px_copy_(s->r->parameters[i], s->before[i], false);
  }
  PX_TRY(status);
  PX_TRY(dot(&slope, s->r->grad, s->way));
  put(&s->now, &(point){t, s->r->loss, slope, s->r->grad});
  return PX_OK;
}

// Goes on until two points, s->ends, have a good one between them, or s->now is one.
static px_status bracket(search *s, bool *done) {
  put(&s->ends[0], &s->start);
  PX_TRY(look(s, s->t));
  for (; s->turn < s->most; s->turn++) {
    const point *last = &s->ends[0], *now = &s->now;
    if (is_high(s) || (s->turn > 1 && now->loss >= last->loss)) break;
    if ((*done = is_flat(s))) return PX_OK;
    if (now->slope >= 0) break;
    double t = lowest(last, now, now->t + 0.01 * (now->t - last->t), now->t * 10);
    put(&s->ends[0], now);
    PX_TRY(look(s, t));
  }
  if (s->turn >= s->most) put(&s->ends[0], &s->start);
  put(&s->ends[1], &s->now);
  return PX_OK;
}

// A t between the ends, not twice in turn so near to one of them.
static double between(const search *s, bool *stuck) {
  const point *a = &s->ends[0], *b = &s->ends[1];
  double left = fmin(a->t, b->t), right = fmax(a->t, b->t), margin = 0.1 * (right - left);
  double t = lowest(a, b, left, right);
  bool near = fmin(right - t, t - left) < margin, held = *stuck;
  *stuck = near;
  if (!near || !(held || t >= right || t <= left)) return t;
  *stuck = false;
  return right - t < t - left ? right - margin : left + margin;
}

// Brings the ends together; s->now is the point that is found.
static px_status zoom(search *s) {
  bool stuck = false;
  int low = s->ends[0].loss > s->ends[1].loss;
  while (s->turn < s->most) {
    point *best = &s->ends[low], *other = &s->ends[1 - low];
    if (fabs(other->t - best->t) * s->size < s->r->o->tolerance_change) break;
    PX_TRY(look(s, between(s, &stuck)));
    s->turn++;
    if (is_high(s) || s->now.loss >= best->loss) {
      put(other, &s->now);
      low = s->ends[0].loss > s->ends[1].loss;
      continue;
    }
    if (is_flat(s)) return PX_OK;
    if (s->now.slope * (other->t - best->t) >= 0) put(other, best);
    put(best, &s->now);
  }
  put(&s->now, &s->ends[low]);
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

// How far to go along m->direction; r->loss and r->grad become those of there.
static px_status line_search(run *r, double slope) {
  search s = {.r = r, .way = r->m->direction, .t = r->m->t, .most = r->o->max_eval - r->calls};
  s.start = (point){0, r->loss, slope, px_retain(r->grad)};
  px_status status = px_alloc((void **)&s.before, (size_t)r->count * sizeof *s.before);
  if (status == PX_OK) status = find(&s);
  if (status == PX_OK) {
    r->m->t = s.now.t, r->loss = s.now.loss;
    take_over(&r->grad, px_retain(s.now.grad));
  }
  for (int64_t i = 0; s.before && i < r->count; i++) px_release(s.before[i]);
  px_free(s.before);
  px_release(s.start.grad), px_release(s.now.grad);
  px_release(s.ends[0].grad), px_release(s.ends[1].grad);
  return status;
}

// ---- a step

// One turn; *done: it was the last.
static px_status turn(run *r, int64_t number, bool *done) {
  px_lbfgs_memory *m = r->m;
  const px_lbfgs_options *o = r->o;
  bool last = number + 1 == o->max_iter;
  double slope, size, before = r->loss;
  px_tensor *way = NULL;
  if (m->iterations++) PX_TRY(learn(m, r->grad, o->history_size));
  PX_TRY(direct(&way, m, r->grad));
  take_over(&m->direction, way);
  PX_TRY(norm(&size, r->grad, 1));
  m->t = m->iterations == 1 ? fmin(1, 1 / size) * o->lr : o->lr;
  take_over(&m->grad, px_retain(r->grad)), m->loss = before;
  PX_TRY(dot(&slope, r->grad, way));
  if ((*done = slope > -o->tolerance_change)) return PX_OK;
  if (o->line_search) PX_TRY(line_search(r, slope));
  PX_TRY(move(r, m->t, way));
  if (!o->line_search && !last) PX_TRY(evaluate(r));  // after the last turn the next step does
  PX_TRY(norm(&size, way, INFINITY));
  *done = last || r->calls >= o->max_eval || size * m->t <= o->tolerance_change ||
          fabs(r->loss - before) < o->tolerance_change;
  return PX_OK;
}

static px_status all_turns(run *r) {
  bool done = false;
  double size;
  PX_TRY(evaluate(r));
  for (int64_t i = 0; i < r->o->max_iter && !done; i++) {
    PX_TRY(norm(&size, r->grad, INFINITY));
    if (size <= r->o->tolerance_grad) break;
    PX_TRY(turn(r, i, &done));
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
  px_status status = all_turns(&r);
  px_grad_set_enabled(was);
  px_release(r.grad);
  return status;
}
