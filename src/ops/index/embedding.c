// SPDX-License-Identifier: Apache-2.0
// Embeddings: rows clipped to a norm, and bags. They are in C because offsets are read and
// checked on the host.
#include "formulas.h"
#include "hidden/index.h"
#include "ops/core/run.h"
#include "phlox/ops/copy.h"
#include "run_functions/index.h"

#define LL(x) ((long long)(x))

static px_status check_indices(const px_tensor *t, const char *op) {
  PX_CHECK(t->dtype == PX_INT64 || t->dtype == PX_INT32, PX_RUNTIME,
           "Expected tensor for argument #1 'indices' to have one of the following scalar types: "
           "Long, Int; but got torch.%sTensor instead (while checking arguments for %s)",
           px_dtype_class((px_dtype)t->dtype), op);
  return PX_OK;
}
// ---- max_norm

static px_status renorm(px_tensor *weight, const px_tensor *indices, double limit, double p) {
  PX_SCOPED(px_tensor) clipped = NULL;
  return px__formula_renormed(&clipped,
                              (px_value[]){PX_T(weight), PX_T(indices), PX_F(limit), PX_F(p)});
}
PX_RUN(embedding_renorm_) {
  PX_TRY(check_indices(args->indices, "embedding_renorm_"));
  PX_TRY(renorm(args->self, args->indices, args->max_norm, args->norm_type));
  call->results[0] = px_retain(args->self);
  return PX_OK;
}
PX_RUN(embedding_with) {
  PX_TRY(check_indices(args->input, "embedding"));
  return px__given(args->max_norm)
             ? renorm(args->weight, args->input, px_value_float(args->max_norm), args->norm_type)
             : PX_OK;
}

// ---- bags

// Offsets are validated on the CPU only.
static px_status check_offsets(const px_tensor *offsets, int64_t length) {
  PX_TRY(check_indices(offsets, "embedding_bag"));
  PX_TRY(px__check_not_batched(offsets));
  if (px__tensor_device(offsets).type != PX_CPU || !offsets->numel) return PX_OK;
  PX_SCOPED(px_tensor) flat = NULL;
  PX_TRY(px__formula_dense_integers(&flat, (px_value[]){PX_T(offsets)}));
  const int64_t *at;
  PX_TRY(px__tensor_read(&at, flat));
  PX_CHECK(at[0] == 0, PX_RUNTIME,
           "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from "
           "position 0. However, got %lld",
           LL(at[0]));
  PX_CHECK(at[flat->numel - 1] <= length, PX_RUNTIME,
           "offsets[-1] can not be greater than input's length %lld but got offsets[-1] of %lld",
           LL(length), LL(at[flat->numel - 1]));
  for (int64_t i = 1; i < flat->numel; i++)
    PX_CHECK(at[i] >= at[i - 1] && at[i] <= length, PX_RUNTIME,
             "embedding_bag: offsets must not decrease, but offsets[%lld] is %lld after %lld",
             LL(i), LL(at[i]), LL(at[i - 1]));
  return PX_OK;
}
// ---- bags by a kernel

static px__named_kernel sums_kernel = {.name = "bag_sums"}, tops_kernel = {.name = "bag_tops"};
// Fails unless the bags are in order and cover all indices.
static px_status check_order(const px_tensor *indices, const px_tensor *begins) {
  const int64_t *at;
  PX_CHECK(begins->numel > 0, PX_RUNTIME, "expected the end of the last bag");
  PX_TRY(px__tensor_read(&at, begins));
  for (int64_t i = 1; i < begins->numel; i++)
    PX_CHECK(at[i] >= at[i - 1], PX_RUNTIME, "bags must be in order");
  PX_CHECK(at[0] == 0 && at[begins->numel - 1] == indices->numel, PX_RUNTIME,
           "bags must cover all %lld indices", LL(indices->numel));
  return PX_OK;
}
// Device kernels clamp to valid indices.
static px_status check_begins(const px_tensor *weight, const px_tensor *indices,
                              const px_tensor *begins, px__named_kernel *kernel) {
  px_device_type type = (px_device_type)px__tensor_device(weight).type;
  PX_CHECK(px__named_kernel_on(kernel, type), PX_UNIMPLEMENTED,
           "%s is not implemented for GPUs, only for the CPU and simulated devices", kernel->name);
  PX_CHECK(px_dtype_is_float((px_dtype)weight->dtype), PX_UNIMPLEMENTED,
           "\"embedding_bag\" not implemented for '%s'", px_dtype_class((px_dtype)weight->dtype));
  PX_CHECK(begins->numel > 0, PX_RUNTIME, "expected the end of the last bag");
  return type == PX_CPU ? check_order(indices, begins) : PX_OK;
}
PX_RUN(_bag_sums) {
  PX_SCOPED(px_tensor) weight = NULL;
  PX_SCOPED(px_tensor) indices = NULL;
  PX_SCOPED(px_tensor) begins = NULL;
  PX_SCOPED(px_tensor) factors = NULL;
  PX_TRY(px__call_same_device(call));
  PX_TRY(px_contiguous(&weight, args->weight));
  PX_TRY(px_contiguous(&indices, args->indices));
  PX_TRY(px_contiguous(&begins, args->begins));
  if (args->factors) PX_TRY(px_contiguous(&factors, args->factors));
  PX_TRY(check_begins(weight, indices, begins, &sums_kernel));
  int64_t sizes[] = {begins->numel - 1, weight->sizes[1]};
  px_tensor *given[] = {weight, indices, begins, factors};
  const px_value padding = PX_I(args->padding);
  PX_TRY(px_tensor_empty(&call->results[0], 2, sizes, (px_dtype)weight->dtype, call->device));
  return px__run_kernel(&sums_kernel, call->device, 1, call->results, 4, given, &padding, 1);
}
PX_RUN(_bag_tops) {
  PX_SCOPED(px_tensor) weight = NULL;
  PX_SCOPED(px_tensor) indices = NULL;
  PX_SCOPED(px_tensor) begins = NULL;
  PX_TRY(px__call_same_device(call));
  PX_TRY(px_contiguous(&weight, args->weight));
  PX_TRY(px_contiguous(&indices, args->indices));
  PX_TRY(px_contiguous(&begins, args->begins));
  PX_TRY(check_begins(weight, indices, begins, &tops_kernel));
  int64_t sizes[] = {begins->numel - 1, weight->sizes[1]};
  px_tensor *given[] = {weight, indices, begins};
  const px_value padding = PX_I(args->padding);
  PX_TRY(px_tensor_empty(&call->results[0], 2, sizes, (px_dtype)weight->dtype, call->device));
  PX_TRY(px_tensor_empty(&call->results[1], 2, sizes, PX_INT64, call->device));
  return px__run_kernel(&tops_kernel, call->device, 2, call->results, 3, given, &padding, 1);
}

// Start of each bag, followed by the end of the last one.
PX_RUN(_bag_starts) {
  const px_tensor *input = args->input, *offsets = args->offsets;
  bool all = offsets && args->include_last_offset;
  int64_t count = offsets ? offsets->numel - all : input->sizes[0], size = count + 1;
  PX_SCOPED(px_tensor) flat = NULL;
  const int64_t *at = NULL;
  if (offsets) {
    PX_TRY(px__formula_dense_integers(&flat, (px_value[]){PX_T(offsets)}));
    PX_TRY(px__tensor_read(&at, flat));
  }
  PX_TRY(px_tensor_empty(&call->results[0], 1, &size, PX_INT64, px_cpu()));
  int64_t *to = px__tensor_at(call->results[0]);
  for (int64_t i = 0; i < count; i++) to[i] = at ? at[i] : i * input->sizes[1];
  to[count] = all ? at[count] : input->numel;
  return PX_OK;
}
PX_RUN(_bag_divisors) {
  const int64_t *at, *index, sizes[] = {args->begins->numel - 1, 1};
  PX_SCOPED(px_tensor) indices = NULL;
  PX_SCOPED(px_tensor) begins = NULL;
  PX_TRY(px_contiguous(&indices, args->indices));
  PX_TRY(px_contiguous(&begins, args->begins));
  PX_TRY(check_order(indices, begins));
  PX_TRY(px__tensor_read(&at, begins));
  PX_TRY(px__tensor_read(&index, indices));
  PX_TRY(px_tensor_empty(&call->results[0], 2, sizes, PX_FLOAT64, px_cpu()));
  double *to = px__tensor_at(call->results[0]);
  for (int64_t i = 0; i < sizes[0]; i++) {
    int64_t count = 0;
    for (int64_t k = at[i]; k < at[i + 1]; k++) count += index[k] != args->padding;
    to[i] = count ? (double)count : 1;
  }
  return PX_OK;
}

PX_RUN(bags) {
  PX_TRY(px__call_same_device(call));
  PX_TRY(check_indices(args->input, "embedding_bag"));
  if (args->offsets) PX_TRY(check_offsets(args->offsets, args->input->numel));
  if (!px__given(args->max_norm)) return PX_OK;
  return renorm(args->weight, args->input, px_value_float(args->max_norm), args->norm_type);
}

PX_RUN(embedding_bag) {
  const px_tensor *input = args->input, *weight = args->weight;
  double norm = px__given(args->max_norm) ? px_value_float(args->max_norm) : 0;
  int64_t padding = px__given(args->padding_idx) ? px_value_int(args->padding_idx) : 0;
  if (weight->dtype == PX_INT64 && px_dtype_is_float((px_dtype)input->dtype)) {
    PX_TRY(px_warn(PX_WARN_USER,
                   "Argument order of nn.functional.embedding_bag was changed. Usage "
                   "`embedding_bag(weight, input, ...)` is deprecated, and should now be "
                   "`embedding_bag(input, weight, ...)`."));
    input = weight, weight = args->input;
  }
  return px_bags(&call->results[0], input, weight, args->offsets,
                 px__given(args->max_norm) ? &norm : NULL, args->norm_type,
                 args->scale_grad_by_freq, args->mode, args->sparse, args->per_sample_weights,
                 args->include_last_offset, px__given(args->padding_idx) ? &padding : NULL);
}
