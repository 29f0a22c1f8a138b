// SPDX-License-Identifier: Apache-2.0
// Dual tensors for forward mode: values with tangents.
//
// A level is a hidden variable e with value 0. A dual tensor is self + e * tangent, and calls on it
// are recorded as usual. The tangent of a tensor is its derivative with respect to e (forward.c).
// Nodes store the modes able to reach them (graph.h). Reverse mode ignores history that depends on
// e alone or was recorded with grad mode off. A level has one e per dtype and device.
#include "autograd/engine/graph.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"
#include "phlox/vmap.h"

struct px_duals {
  int64_t count, capacity;
  px_tensor **variables, **ones;  // owned
  bool derived;                   // a tangent may require reverse-mode gradients
};

px_status px_duals_begin(px_duals **out) {
  PX_GIVEN(out);
  *out = NULL;
  PX_CHECK(px_modes_get().forward < UINT8_MAX, PX_RUNTIME,
           "expected at most %d nested levels of forward mode", UINT8_MAX);
  PX_TRY(px_alloc((void **)out, sizeof **out));
  px__forward_count(1);
  return PX_OK;
}

void px_duals_end(px_duals *level_take) {
  if (!level_take) return;
  for (int64_t i = 0; i < level_take->count; i++) {
    px_release(level_take->variables[i]);
    px_release(level_take->ones[i]);
  }
  px_free(level_take->variables);
  px_free(level_take->ones);
  px_free(level_take);
  px__forward_count(-1);
}

// ---- the variables of a level

static px_status number(px_tensor **out, double value, px_dtype dtype, px_device device) {
  return px_full(out, NULL, 0, px_float(value), dtype, device, false, false);
}

static px_status grow(px_duals *level) {
  int64_t capacity = level->capacity ? 2 * level->capacity : 2;
  PX_TRY(px_realloc((void **)&level->variables, (size_t)capacity * sizeof(px_tensor *)));
  PX_TRY(px_realloc((void **)&level->ones, (size_t)capacity * sizeof(px_tensor *)));
  level->capacity = capacity;
  return PX_OK;
}

static px_status variable_of(px_tensor **out, px_duals *level, const px_tensor *like) {
  px_dtype dtype = px_dtype_to_real(px_tensor_dtype(like));
  px_device device = px_tensor_device(like);
  for (int64_t i = 0; i < level->count; i++) {
    *out = level->variables[i];
    if (px_tensor_dtype(*out) == dtype && px_device_equal(px_tensor_device(*out), device))
      return PX_OK;
  }
  PX_SCOPED(px_tensor) made = NULL;
  PX_SCOPED(px_tensor) one = NULL;
  if (level->count == level->capacity) PX_TRY(grow(level));
  PX_TRY(number(&made, 0, dtype, device));
  PX_TRY(number(&one, 1, dtype, device));
  PX_TRY(px_tensor_set_requires_grad(made, true));
  px__grad_state *state;
  PX_TRY(px__grad_state_make(&state, made));
  state->hidden = true;
  *out = level->variables[level->count] = PX_MOVE(made);
  level->ones[level->count++] = PX_MOVE(one);
  return PX_OK;
}

// ---- nodes

// vmap level at which the history of a dual tensor begins.
static uint8_t level_of(const px_tensor *self) {
  int depth = px_vmap_depth(), own = px__has_history(self) ? px__history_level(self) : depth;
  return (uint8_t)(own < depth ? own : depth);
}

typedef struct px__dual {
  px_node node;      // edges: self, and the variable
  px_saved *change;  // owned
} px__dual;

// Gradient of the variable: sum of gradient times conjugated tangent.
static px_status share(px_tensor **out, px_tensor *grad, px_saved *change) {
  PX_SCOPED(px_tensor) tangent = NULL;
  PX_SCOPED(px_tensor) conj = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(px_saved_unpack(&tangent, change, "MakeDual"));
  PX_TRY(px_conj(&conj, tangent));
  PX_TRY(px_mul(&product, grad, conj));
  PX_TRY(px_sum(&sum, product, NULL, 0, false, PX_DTYPE_NONE));
  return px_real(out, sum);
}

static px_status apply_dual(px_node *node, const px__run *run) {
  if (run->required[0]) run->out[0] = px_retain(run->grads[0]);
  if (!run->required[1]) return PX_OK;
  return share(&run->out[1], run->grads[0], ((px__dual *)node)->change);
}
static void end_dual(px_node *node) { px_release(((px__dual *)node)->change); }
static const px__kind dual_kind = {.apply = apply_dual, .end = end_dual};

px_status px_dual_make(px_tensor **out, px_duals *level, px_tensor *self, px_tensor *tangent) {
  PX_GIVEN(out);
  PX_GIVEN(level);
  PX_GIVEN(self);
  PX_GIVEN(tangent);
  *out = NULL;
  PX_TRY(px__check_tangent(self, tangent, 0));
  px_tensor *variable = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  PX_SCOPED(px_node) node = NULL;
  PX_TRY(variable_of(&variable, level, self));
  PX_TRY(px_tensor_share(&made, self));
  PX_TRY(px__node_new(&node, &dual_kind, "MakeDual", sizeof(px__dual), 2, 1, &made));
  PX_TRY(px_saved_new(&((px__dual *)node)->change, tangent, false));
  PX_TRY(px__edge_of(&node->edges[0], self));
  PX_TRY(px__edge_of(&node->edges[1], variable));
  px__node_sited(node, NULL);
  if (px_vmap_depth()) node->level = level_of(self);
  node->dual = true;
  node->forward_only = !px_grad_enabled() || !px_tensor_requires_grad(self);
  PX_TRY(px__set_history(made, node, 0));
  level->derived |= px_tensor_requires_grad(tangent);
  *out = PX_MOVE(made);
  return PX_OK;
}

// Edge 0 is a reverse-mode leaf, edge 1 is the differentiated tensor.
static px_status apply_variable(px_node *node, const px__run *run) {
  for (int i = 0; i < 2; i++)
    if (run->required[i]) run->out[i] = px_retain(run->grads[0]);
  return PX_OK;
}
static const px__kind variable_kind = {.apply = apply_variable};

px_status px_dual_variable(px_tensor **out, px_tensor *self) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  *out = NULL;
  PX_SCOPED(px_tensor) leaf = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  PX_SCOPED(px_node) node = NULL;
  PX_TRY(px_tensor_share(&leaf, self));
  PX_TRY(px_tensor_set_requires_grad(leaf, true));
  PX_TRY(px_tensor_share(&made, self));
  PX_TRY(px__node_new(&node, &variable_kind, "DualVariable", sizeof(px_node), 2, 1, &made));
  PX_TRY(px__edge_of(&node->edges[0], leaf));
  PX_TRY(px__edge_of(&node->edges[1], self));
  px__node_sited(node, NULL);
  if (px_vmap_depth()) node->level = level_of(self);
  PX_TRY(px__set_history(made, node, 0));
  *out = PX_MOVE(made);
  return PX_OK;
}

px_status px_dual_tangents(px_tensor **results, px_duals *level, int64_t count,
                           px_tensor *const *tensors) {
  PX_GIVEN(level);
  PX_GIVEN_N(tensors, count);
  bool derived = level->derived;
  for (int64_t i = 0; i < count; i++) derived |= tensors[i] && px_tensor_requires_grad(tensors[i]);
  PX_TRY(px_jvp(results, count, tensors, level->count, level->variables, level->ones,
                derived && px_grad_enabled()));
  for (int64_t i = 0; i < count; i++) {
    px_tensor *with = results[i];
    if (!with) continue;
    px_status status = px_dual_primal(&results[i], with);
    px_release(with);
    if (status == PX_OK) continue;
    for (int64_t k = 0; k < count; k++) px_release(results[k]), results[k] = NULL;
    return status;
  }
  return PX_OK;
}

// ---- the history of one mode

bool px_tensor_is_dual(const px_tensor *self) { return px__forward() && px__is_dual(self); }

px_status px_dual_primal(px_tensor **out, px_tensor *self) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  *out = NULL;
  if (!px__is_dual(self) || px_modes_get().forward > 1) {
    *out = px_retain(self);
    return PX_OK;
  }
  if (!px_tensor_requires_grad(self)) return px_tensor_share(out, self);
  if (px__view_stale(self)) PX_TRY(px__view_refresh(self));
  return px__alias_for(out, self, true);
}

px_status px_dual_change(px_tensor **out, px_tensor *self) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  *out = NULL;
  if (!px_tensor_is_dual(self)) return px_tensor_share(out, self);
  if (px__view_stale(self)) PX_TRY(px__view_refresh(self));
  return px__alias_for(out, self, false);
}
