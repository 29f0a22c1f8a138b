// SPDX-License-Identifier: Apache-2.0
// Retained gradients of non-leaves: the boxes of retain_grad.
#include "autograd/engine/graph.h"
#include "phlox/ops/arithmetic.h"

static void box_destroy(void *self) {
  px__grad_box *box = self;
  px_release(box->grad);
  px_object_end(box);
  px_free(box);
}
static const px_class box_class = {"retained gradient", box_destroy};

px_status px__grad_box_new(px__grad_box **out) {
  PX_TRY(px_alloc((void **)out, sizeof **out));
  px_object_init(*out, &box_class);
  return PX_OK;
}

px_status px__grad_box_append(px_node *node, px__grad_box *box, int nr) {
  PX__USED_HOOK *hook = NULL;
  PX_TRY(px__hook_new(&hook));
  hook->box = px_retain(box);
  hook->nr = nr;
  return px__hooks_append_to_node(node, hook);
}

px_status px__hooks_move_retained(const px__grad_box *box, px_node *from, px_node *to, int nr) {
  px__gradient_hooks *hooks = from ? px__hooks_of(from) : NULL;
  if (!hooks || from == to) return PX_OK;
  PX__USED_HOOK *hook = px__hooks_take_retained(hooks, box);
  return hook ? px__grad_box_append(to, hook->box, nr) : PX_OK;
}

px_status px__grad_box_keep(px__grad_box *box, px_tensor *grad) {
  PX_SCOPED(px_tensor) before = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  px_spin_lock(&box->lock);
  bool closed = box->closed;
  before = px_retain(box->grad);
  px_spin_unlock(&box->lock);
  if (closed) return PX_OK;
  if (before)
    PX_TRY(px_add(&sum, before, grad, px_int(1)));
  else
    sum = px_retain(grad);
  px_release(PX_MOVE(before));
  px_spin_lock(&box->lock);
  if (!box->closed) before = box->grad, box->grad = PX_MOVE(sum);
  px_spin_unlock(&box->lock);
  return PX_OK;
}

void px__grad_box_close(px__grad_box *box) {
  px_spin_lock(&box->lock);
  px_tensor *last = PX_MOVE(box->grad);
  box->closed = true;
  px_spin_unlock(&box->lock);
  px_release(last);
}
