// SPDX-License-Identifier: Apache-2.0
// Runs the hooks of tensors and nodes.
#include "autograd/engine/graph.h"

static px_status check_hooked(const px_tensor *before, const px_tensor *now) {
  char was[48], is[48];
  PX_CHECK(px_tensor_dtype(now) == px_tensor_dtype(before) &&
               px_device_equal(px_tensor_device(now), px_tensor_device(before)),
           PX_RUNTIME, "hook has changed the type of value (was %s got %s)",
           px_tensor_type_name(before, was), px_tensor_type_name(now, is));
  PX_CHECK(px_tensor_same_sizes(now, before), PX_RUNTIME, "hook has changed the size of value");
  return PX_OK;
}

static bool is_removed(const px_hook *hook) {
  return __atomic_load_n(&hook->removed, __ATOMIC_RELAXED);
}

static px_status run_one(px_hook *hook, px_tensor **grad) {
  if (is_removed(hook) || !hook->on_grad) return PX_OK;
  PX_SCOPED(px_tensor) other = NULL;
  PX_TRY(hook->on_grad(&other, *grad, hook->context));
  if (!other) return PX_OK;
  PX_CHECK(*grad, PX_RUNTIME, "can't replace a None gradient with a non-None value");
  PX_TRY(check_hooked(*grad, other));
  px_release(*grad);
  *grad = PX_MOVE(other);
  return PX_OK;
}

static px_status run_list(px__gradient_hooks *hooks, bool leaf, px_tensor **grads) {
  px__hook_run run = px__hook_run_begin(hooks), retained = run;
  for (;;) {
    PX__USED_HOOK *hook = px__hook_run_next(hooks, &run);
    if (!hook) break;
    px_tensor **grad = &grads[leaf ? 0 : hook->nr];
    if (!hook->box) PX_TRY(run_one(hook, grad));
  }
  for (;;) {  // retained gradients are stored after all other hooks ran
    PX__USED_HOOK *hook = px__hook_run_next(hooks, &retained);
    if (!hook) return PX_OK;
    if (hook->box && grads[hook->nr]) PX_TRY(px__grad_box_keep(hook->box, grads[hook->nr]));
  }
}

// Without the lock: a concurrent change counts as a later one.
static bool may_have_hooks(const px__gradient_hooks *hooks) {
  return __atomic_load_n(&hooks->count, __ATOMIC_RELAXED) != 0;
}

// A node without any gradient runs no hooks; otherwise those of a result without one get NULL.
px_status px__hooks_run(px_node *node, px_tensor **grads) {
  bool any = false;
  for (int i = 0; i < node->result_count; i++) any |= grads[i] != NULL;
  if (!any) return PX_OK;
  px_tensor *leaf = px_node_variable(node);
  px__grad_state *state = leaf ? px__grad_state_of(leaf) : NULL;
  if (state) return may_have_hooks(&state->hooks) ? run_list(&state->hooks, true, grads) : PX_OK;
  return px__hooks_of(node) ? run_list(px__hooks_of(node), false, grads) : PX_OK;
}

px_status px__hooks_run_node(px_node *node, bool after, const px__node_grads *grads) {
  px__gradient_hooks *hooks = px__hooks_of(node);
  px__hook_run run = hooks ? px__hook_run_begin(hooks) : (px__hook_run){0};
  while (hooks) {
    PX__USED_HOOK *hook = px__hook_run_next(hooks, &run);
    if (!hook) return PX_OK;
    if (is_removed(hook) || !hook->on_node || hook->after != after) continue;
    PX_TRY(hook->on_node(after ? grads->out : grads->in, after ? grads->out_count : grads->in_count,
                         after ? grads->in : NULL, after ? grads->in_count : 0, hook->context));
  }
  return PX_OK;
}

px_status px__hooks_run_accumulated(px_tensor *leaf) {
  px__grad_state *state = px__grad_state_of(leaf);
  if (!may_have_hooks(&state->accumulated)) return PX_OK;
  px__hook_run run = px__hook_run_begin(&state->accumulated);
  for (;;) {
    PX__USED_HOOK *hook = px__hook_run_next(&state->accumulated, &run);
    if (!hook) return PX_OK;
    if (!is_removed(hook)) PX_TRY(hook->on_accumulated(leaf, hook->context));
  }
}
