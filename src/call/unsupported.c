// SPDX-License-Identifier: Apache-2.0
// Errors for unsupported dtypes, with PyTorch's texts from the op's entry. Ops without a GPU kernel
// have a text of Phlox.
#include "call/call_impl.h"

px_status px__refuse_dtype(const px_op *op, px_dtype dtype, px_device device) {
  static const px__op_texts none = {0};
  const px__op_texts *texts = px__impl(op)->texts ? px__impl(op)->texts : &none;
  const char *class = px_dtype_class(dtype);
  if (dtype == PX_BOOL && texts->of_bool.code) PX_FAIL_AS(texts->of_bool, class);
  // Texts for dtypes list complex numbers as supported.
  if (texts->of_dtype.code && !px_dtype_is_complex(dtype)) PX_FAIL_AS(texts->of_dtype, class);
  const char *name = device.type == PX_CPU ? texts->cpu_kernel : texts->cuda_kernel;
  PX_CHECK(!name, PX_UNIMPLEMENTED, "\"%s\" not implemented for '%s'", name, class);
  PX_FAIL(PX_UNIMPLEMENTED, "\"%s_%s\" not implemented for '%s'", op->name,
          px_device_type_name(device.type), class);
}

px_status px__refuse_gpu(const px_op *op, px_dtype dtype, px_device device) {
  px_device_type type = (px_device_type)device.type;
  if (type == PX_META || px__runs_host_kernels(type)) return PX_OK;
  const char *name = px__caller() ? px__caller() : op->name;
  PX_CHECK(px__op_kernel(op, type), PX_UNIMPLEMENTED,
           "%s is not implemented for GPUs, only for the CPU and simulated devices", name);
  return PX_OK;
}
