// SPDX-License-Identifier: Apache-2.0
// Forward-mode differentiation (jvp), by two reverse passes.
//
// The gradients of the inputs are linear in the output gradients v. Differentiating them with
// respect to v, with the input tangents as weights, yields the output tangents. Every gradient
// formula therefore is a tangent formula, too. The value of v has no influence. It is an expanded
// one, because some formulas branch at 0.
#include "autograd/engine/graph.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/view.h"

// Three rows of tensors per output, then three rows per input, in one allocation.
typedef struct px__pushing {
  int64_t count, live, input_count, used;
  px_tensor **flow, **out, **tangents;   // for outputs with history; `out` is borrowed
  px_tensor **grads, **from, **weights;  // `from`, `weights`: for existing gradients; borrowed
} px__pushing;
enum { OF_OUTPUTS = 3, OF_INPUTS = 3 };

px_status px__check_tangent(const px_tensor *input, const px_tensor *tangent, int64_t i) {
  PX_CHECK(input && tangent, PX_TYPE, "element %lld of %s is missing", (long long)i,
           input ? "tangents" : "inputs");
  char own[PX__SIZE_TEXT], given[PX__SIZE_TEXT];
  PX_CHECK(
      px_tensor_same_sizes(tangent, input), PX_RUNTIME,
      "Trying to set a forward gradient that has a different size than that of the original "
      "Tensor, this is not supported. Tensor is of size %s while the given forward gradient is of "
      "size %s.",
      px__size_text(input, own), px__size_text(tangent, given));
  px_dtype expected = px_tensor_dtype(input), actual = px_tensor_dtype(tangent);
  PX_CHECK(actual == expected, PX_UNIMPLEMENTED,
           "a tangent of dtype %s for a tensor of dtype %s is not implemented",
           px_dtype_name(actual), px_dtype_name(expected));
  return PX_OK;
}

static px_status flow_into(px_tensor **out, const px_tensor *output) {
  PX_SCOPED(px_tensor) one = NULL;
  PX_TRY(px_ones(&one, NULL, 0, px_tensor_dtype(output), px_tensor_device(output), false, false));
  PX_TRY(px_expand(out, one, px_tensor_sizes(output), px_tensor_ndim(output)));
  return px_tensor_set_requires_grad(*out, true);
}

// Computes the gradients of the inputs as functions of the output gradients.
static px_status pull(px__pushing *p, px_tensor *const *outputs, px_tensor *const *inputs) {
  for (int64_t i = 0; i < p->count; i++) {
    if (!px__has_history(outputs[i])) continue;
    p->out[p->live] = outputs[i];
    PX_TRY(flow_into(&p->flow[p->live++], outputs[i]));
  }
  if (!p->live) return PX_OK;
  return px__grad_by(true, p->grads, p->live, p->out, p->flow, p->input_count, inputs, true, true,
                     true);
}

static px_status push(px__pushing *p, px_tensor *const *tangents, bool create_graph) {
  for (int64_t i = 0; i < p->input_count; i++) {
    if (!p->grads[i] || !px__has_history(p->grads[i])) continue;
    p->from[p->used] = p->grads[i];
    p->weights[p->used++] = tangents[i];
  }
  if (!p->used) return PX_OK;
  return px__grad_by(true, p->tangents, p->used, p->from, p->weights, p->live, p->flow,
                     create_graph, create_graph, true);
}

// Moves the tangents to the results. The output gradients are no user variables, although the
// history of a tangent may lead to them.
static px_status move_results(px__pushing *p, px_tensor **results, px_tensor *const *outputs) {
  for (int64_t k = 0; k < p->live; k++) PX_TRY(px_tensor_set_requires_grad(p->flow[k], false));
  for (int64_t i = 0, k = 0; i < p->count; i++) {
    results[i] = NULL;
    if (k == p->live || outputs[i] != p->out[k]) continue;
    results[i] = p->tangents[k];
    p->tangents[k++] = NULL;
  }
  return PX_OK;
}

static void release_each(px_tensor **list, int64_t count) {
  for (int64_t i = 0; i < count; i++) px_release(list[i]);
}

px_status px_jvp(px_tensor **results, int64_t count, px_tensor *const *outputs, int64_t input_count,
                 px_tensor *const *inputs, px_tensor *const *tangents, bool create_graph) {
  PX_GIVEN_N(results, count);
  PX_GIVEN_N(outputs, count);
  PX_GIVEN_N(inputs, input_count);
  PX_GIVEN_N(tangents, input_count);
  for (int64_t i = 0; i < count; i++)
    PX_CHECK(outputs[i], PX_TYPE, "element %lld of outputs is missing", (long long)i);
  for (int64_t i = 0; i < input_count; i++) PX_TRY(px__check_tangent(inputs[i], tangents[i], i));
  px_tensor **rows = NULL;
  size_t total = OF_OUTPUTS * (size_t)count + OF_INPUTS * (size_t)input_count;
  PX_TRY(px_alloc((void **)&rows, total * sizeof *rows));
  px_tensor **of_inputs = rows + OF_OUTPUTS * count;
  px__pushing p = {.count = count,
                   .input_count = input_count,
                   .flow = rows,
                   .out = rows + count,
                   .tangents = rows + 2 * count,
                   .grads = of_inputs,
                   .from = of_inputs + input_count,
                   .weights = of_inputs + 2 * input_count};
  px_status status = pull(&p, outputs, inputs);
  if (status == PX_OK) status = push(&p, tangents, create_graph);
  if (status == PX_OK) status = move_results(&p, results, outputs);
  release_each(p.flow, count);
  release_each(p.tangents, count);
  release_each(p.grads, input_count);
  px_free(rows);
  return status;
}
