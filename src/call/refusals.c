// SPDX-License-Identifier: Apache-2.0
// What is said of a dtype that an op does not take: PyTorch's texts, two data tables.
#include "call/call_impl.h"

// Ops whose refusal has a text of its own; the class of the dtype may stand in it.
static const struct {
  const char *op;  // in Python
  bool only_bool;
  px_status code;
  const char *text;
} refusals[] = {
    {"neg", true, PX_UNIMPLEMENTED,
     "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a "
     "mask, use the `~` or `logical_not()` operator instead."},
    {"mean", false, PX_RUNTIME,
     "mean(): could not infer output dtype. Input dtype must be either a floating point or complex "
     "dtype. Got: %s"},
    {"var", false, PX_RUNTIME, "std and var only support floating point and complex dtypes"},
    {"std", false, PX_RUNTIME, "std and var only support floating point and complex dtypes"},
    {"norm", false, PX_RUNTIME,
     "linalg.vector_norm: Expected a floating point or complex tensor as input. Got %s"},
    {"multinomial", false, PX_RUNTIME,
     "multinomial only supports floating-point dtypes for input, got: %s"},
    {"relu", true, PX_RUNTIME, "Boolean inputs not supported for relu"},
    {"dropout_mask", false, PX_RUNTIME,
     "result type Float can't be cast to the desired output type %s"},
    {"bce_with_logits_forward", false, PX_RUNTIME,
     "result type Float can't be cast to the desired output type %s"},
    {"addcdiv", false, PX_RUNTIME,
     "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will "
     "perform a true division of tensor1 and tensor2. The historic addcdiv behavior can be "
     "implemented as (input + value * torch.trunc(tensor1 / tensor2)).to(input.dtype) for integer "
     "inputs and as (input + value * tensor1 / tensor2) for float inputs. The future addcdiv "
     "behavior is just the latter implementation: (input + value * tensor1 / tensor2), for all "
     "dtypes."},
};

// Kernels that are not called as the op and the device type are. NULL: they are.
static const struct {
  const char *op, *cpu, *cuda;
} kernels[] = {
    {"softmax", "softmax_lastdim_kernel_impl", "host_softmax"},
    {"log_softmax", "log_softmax_lastdim_kernel_impl", "host_softmax"},
    {"bernoulli", "bernoulli_tensor_cpu_p_", NULL},
    {"normal", "normal_kernel_cpu", NULL},
    {"uniform", "check_uniform_bounds", "check_uniform_bounds"},
    {"gelu", "GeluKernelImpl", "GeluCUDAKernelImpl"},
    {"native_layer_norm", "LayerNormKernelImpl", "LayerNormKernelImpl"},
    {"native_batch_norm", "batch_norm", NULL},
    {"mse_loss_forward", "mse_cpu", "mse_cuda"},
    {"smooth_l1_loss_forward", "smooth_l1_cpu", "smooth_l1_cuda"},
    {"huber_loss_forward", "huber_cpu", "huber_cuda"},
    {"nll_loss_forward", "nll_loss_out_frame", "nll_loss_forward_reduce_cuda_kernel_2d"},
    {"binary_cross_entropy_forward", "binary_cross_entropy", NULL},
    {"max_pool2d_with_indices", "max_pool2d", "max_pool2d_with_indices_out_cuda_frame"},
    {"ceil", "ceil_vml_cpu", NULL},
    {"floor", "floor_vml_cpu", NULL},
    {"round", "round_vml_cpu", NULL},
    {"trunc", "trunc_vml_cpu", NULL},
    {"dot", "dot", "dot"},
    {"mm", "addmm_impl_cpu_", "addmm_cuda"},
    {"addmm", "addmm_impl_cpu_", "addmm_cuda"},
    {"_linear", "addmm_impl_cpu_", "addmm_cuda"},
    {"bmm", "bmm", NULL},
    {"floor_divide", "div_floor_cpu", "div_floor_cuda"},
    {"addcmul", "addcmul_cpu_out", NULL},
    {"conv2d", "slow_conv2d_cpu", NULL},
};

static const char *kernel_name(const px_op *op, px_device device) {
  for (int i = 0; i < PX_COUNT_OF(kernels); i++)
    if (!strcmp(op->name, kernels[i].op))
      return device.type == PX_CPU ? kernels[i].cpu : kernels[i].cuda;
  return NULL;
}

px_status px__refuse_dtype(const px_op *op, px_dtype dtype, px_device device) {
  const char *class = px_dtype_class(dtype), *name = kernel_name(op, device);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-extra-args"
  for (int i = 0; i < PX_COUNT_OF(refusals); i++)
    if (!strcmp(op->python_name, refusals[i].op) && (dtype == PX_BOOL || !refusals[i].only_bool))
      PX_FAIL(refusals[i].code, refusals[i].text, class);
#pragma GCC diagnostic pop
  PX_CHECK(!name, PX_UNIMPLEMENTED, "\"%s\" not implemented for '%s'", name, class);
  PX_FAIL(PX_UNIMPLEMENTED, "\"%s_%s\" not implemented for '%s'", op->name,
          px_device_type_name(device.type), class);
}
