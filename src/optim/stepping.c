// SPDX-License-Identifier: Apache-2.0
// States created during the step of a parameter, and complex parameters. The step ops compute in
// real numbers: they get the parts of complex tensors, through views with a last dimension of 2. A
// conjugate or negative view has no such view, so its values are copied and written back.
#include "optim/optim_impl.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/view.h"

// The parameter, then its states.
struct px__parts {
  px_tensor *given[1 + PX_OPTIMIZER_STATES];    // borrowed
  px_tensor *plain[1 + PX_OPTIMIZER_STATES];    // owned: given, or a copy of a view
  px_tensor *changed[1 + PX_OPTIMIZER_STATES];  // owned: views of the parts
};

px_status px__resolved(px_tensor **out, const px_tensor *t) {
  PX_SCOPED(px_tensor) half = NULL;
  PX_TRY(px_resolve_conj(&half, t));
  return px_resolve_neg(out, half);
}

// Replaces *t by a view of its parts.
static px_status take_parts(px__parts *p, int i, px_tensor **t) {
  if (!*t) return PX_OK;
  p->given[i] = *t;
  PX_TRY(px__resolved(&p->plain[i], *t));
  PX_TRY(px_view_as_real(&p->changed[i], p->plain[i]));
  *t = p->changed[i];
  return PX_OK;
}

static px_status take_complex(px__stepping *s, const px_optimizer_kind *kind) {
  PX_SCOPED(px_tensor) plain = NULL;
  px_tensor *grad;
  PX_TRY(px_alloc((void **)&s->parts, sizeof *s->parts));
  PX_TRY(px__resolved(&plain, s->grad));
  PX_TRY(px_view_as_real(&grad, plain));
  px_release(s->grad);
  s->grad = grad;
  PX_TRY(take_parts(s->parts, 0, &s->parameter));
  for (int k = 0; k < kind->state_count; k++)
    if (!kind->states[k].scalar) PX_TRY(take_parts(s->parts, 1 + k, &s->found[k]));
  return PX_OK;
}

px_status px__stepping_of(px__stepping *out, const px_optimizer_kind *kind, px_tensor *parameter,
                          px_tensor *grad_take, px_tensor **state) {
  *out = (px__stepping){.parameter = parameter, .grad = grad_take, .state = state};
  for (int k = 0; k < PX_OPTIMIZER_STATES; k++) out->found[k] = PX_READ(state[k]);
  return px_dtype_is_complex(px_tensor_dtype(parameter)) ? take_complex(out, kind) : PX_OK;
}

px_status px__stepping_begin(px__stepping *s, int k, double value) {
  const px_tensor *like = s->parts ? s->parts->given[0] : s->parameter;
  s->first = 1;
  PX_TRY(px_full_like(&s->begun[k], like, px_float(value), PX_DTYPE_NONE, PX_DEVICE_NONE, false,
                      false, NULL));
  if (!s->parts) return PX_OK;
  s->found[k] = s->begun[k];
  PX_TRY(take_parts(s->parts, 1 + k, &s->found[k]));
  return value ? px_init_constant(s->found[k], value) : PX_OK;  // the imaginary parts, too
}

px_status px__stepping_write(const px__stepping *s) {
  for (int i = 0; s->parts && i <= PX_OPTIMIZER_STATES; i++)
    if (s->parts->plain[i] != s->parts->given[i])
      PX_TRY(px_copy_(s->parts->given[i], s->parts->plain[i], false));
  return PX_OK;
}

static void release_parts(px__parts *p) {
  for (int i = 0; i <= PX_OPTIMIZER_STATES; i++) px_release(p->plain[i]), px_release(p->changed[i]);
  px_free(p);
}

void px__stepping_end(px__stepping *s, bool done) {
  for (int k = 0; k < PX_OPTIMIZER_STATES; k++) {
    if (!s->begun[k]) continue;  // the common case
    px_tensor *none = NULL;      // unless another step has created the state
    if (!done || !__atomic_compare_exchange_n(&s->state[k], &none, s->begun[k], false,
                                              __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
      px_release(s->begun[k]);
    s->begun[k] = NULL;
  }
  if (s->parts) release_parts(s->parts);
  s->parts = NULL;
  px_release(s->grad);
  s->grad = NULL;
}
