// SPDX-License-Identifier: Apache-2.0
// Aliases with the history of one mode.
#include "autograd/engine/graph.h"

static px_status apply_primal(px_node *node, const px__run *run) {
  run->out[0] = px_retain(run->grads[0]);
  return PX_OK;
}
static const px__kind primal_kind = {.apply = apply_primal};

px_status px__alias_for(px_tensor **out, px_tensor *self, bool reverse) {
  PX_SCOPED(px_tensor) made = NULL;
  PX_SCOPED(px_node) node = NULL;
  PX_TRY(px_tensor_share(&made, self));
  PX_TRY(px__node_new(&node, &primal_kind, "AliasBackward0", sizeof(px_node), 1, 1, &made));
  PX_TRY(px__own_edge_of(&node->edges[0], self));
  px__node_sited(node, NULL);
  node->level = (uint8_t)px__history_level(self);
  node->reverse_only = reverse;
  PX_TRY(px__set_history(made, node, 0));
  if (!reverse) node->forward_only = true;
  *out = PX_MOVE(made);
  return PX_OK;
}
