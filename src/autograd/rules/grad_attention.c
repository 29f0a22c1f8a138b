// SPDX-License-Identifier: Apache-2.0
// Gradient of tiled attention, computed in tiles. With create_graph, attention is recomputed from
// other recorded ops instead.
#include "autograd/rules/backward.h"
#include "grad_functions.h"
#include "hidden/attention.h"
#include "phlox/autograd.h"
#include "phlox/ops/view.h"

typedef const px__tiled_attention_grad arguments;

enum { QUERY, KEY, VALUE, INPUTS };

static px_status gradients(arguments *args, px_tensor *result, px_tensor *const *views) {
  px_tensor **const to[INPUTS] = {args->d_query, args->d_key, args->d_value};
  px_tensor *required[INPUTS], *got[INPUTS] = {NULL}, *grad = args->grad_output;
  int64_t count = 0;
  for (int i = 0; i < INPUTS; i++)
    if (to[i]) required[count++] = views[i];
  PX_TRY(px_grad(got, 1, &result, &grad, count, required, true, true, true));
  for (int i = 0, k = 0; i < INPUTS; i++)
    if (to[i]) *to[i] = got[k++];
  return PX_OK;
}
// Recomputes attention with recorded ops. Each argument gets its own view, since one tensor may be
// passed for several arguments with separate gradients.
static px_status recompute(arguments *args) {
  const px_tensor *given[INPUTS] = {args->query, args->key, args->value};
  px_tensor *views[INPUTS] = {NULL}, *result = NULL;
  px_status status = PX_OK;
  for (int i = 0; i < INPUTS && status == PX_OK; i++)
    status = px_view(&views[i], given[i], px_tensor_sizes(given[i]), px_tensor_ndim(given[i]));
  if (status == PX_OK)
    status = px_composed_attention(&result, views[QUERY], views[KEY], views[VALUE], args->attn_mask,
                                   args->dropout_p, args->is_causal, args->scale,
                                   px_tensor_size(given[QUERY], 1) != px_tensor_size(given[KEY], 1),
                                   args->dropout_p > 0 ? args->seed : NULL);
  if (status == PX_OK) status = gradients(args, result, views);
  for (int i = 0; i < INPUTS; i++) px_release(views[i]);
  px_release(result);
  return status;
}

static void move_to(px_tensor **to, px_tensor **made) {
  if (to) *to = PX_MOVE(*made);
}
PX_GRAD(tiled_attention) {
  PX_CHECK(args->grad_output && !args->grad_logsumexp, PX_UNIMPLEMENTED,
           "the gradient of attention with respect to its logsumexp is not implemented");
  if (px_grad_enabled()) return recompute(args);
  PX_SCOPED(px_tensor) query = NULL;
  PX_SCOPED(px_tensor) key = NULL;
  PX_SCOPED(px_tensor) value = NULL;
  PX_TRY(px_tiled_attention_backward(
      &query, &key, &value, args->grad_output, args->query, args->key, args->value, args->attn_mask,
      args->output, args->logsumexp, args->seed, args->dropout_p, args->is_causal, args->scale));
  move_to(args->d_query, &query);
  move_to(args->d_key, &key);
  move_to(args->d_value, &value);
  return PX_OK;
}
