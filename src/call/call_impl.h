// SPDX-License-Identifier: Apache-2.0
// What the driver's files share: the steps of a call.
//
// The arguments are filled in (call.c), device (devices.c) and dtype (promote.c) are agreed on, the
// results are made (results.c), the kernel is launched (launch.c), and the call is recorded
// (call.c). Steps before the launch do not change a tensor that the caller can see.
#pragma once
#include "call/op_impl.h"

// Fails with the code and text of a refusal; the arguments are for the text.
#define PX_FAIL_AS(refusal, ...) \
  do { \
    _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wformat-nonliteral\"") \
        _Pragma("GCC diagnostic ignored \"-Wformat-extra-args\"") \
            PX_FAIL((refusal).code, (refusal).text, __VA_ARGS__); \
    _Pragma("GCC diagnostic pop") \
  } while (0)

// The kinds.
// *simple: the call took the short way, and call->needs_grad tells whether an argument needs grad.
px_status px__call_pointwise(px_call *call, bool *simple) __attribute__((warn_unused_result));
px_status px__call_reduce(px_call *call) __attribute__((warn_unused_result));

// Memory formats: the one that the entry wants for results; what makes them so after a call that
// has written them row-major; what launches a kernel that takes rows, and makes its result.
px_memory_format px__result_format(const px_call *call);
px_status px__call_format(px_call *call) __attribute__((warn_unused_result));
px_status px__launch_rows(px_call *call) __attribute__((warn_unused_result));
px_status px__call_empty(px_call *call, int i, int ndim, const int64_t *sizes, px_dtype dtype)
    __attribute__((warn_unused_result));

// Calls of batched tensors, set by batch.c: *taken: the call was made on what is beneath, and what
// is left is to record it. False of calls that are made on the batched tensors themselves.
extern px_status (*px__call_batched)(px_call *call, bool *taken);

// Launching.
px_status px__launch_call(px_call *call) __attribute__((warn_unused_result));
px_status px__launch_call_as(px_call *call, px_dtype compute) __attribute__((warn_unused_result));
px_kernel px__op_kernel_find(const px_op *op, px_device_type type);
static inline px_kernel px__op_kernel(const px_op *op, px_device_type type) {
  px_kernel k = __atomic_load_n(&px__impl(op)->found[type], __ATOMIC_RELAXED);
  return PX_LIKELY(k != NULL) ? k : px__op_kernel_find(op, type);
}
static inline const char *px__kernel_name(const px_op *op) {
  return px__impl(op)->kernel ? px__impl(op)->kernel : op->name;
}
// Fills in the launch of a call, except its operands. Writing field by field is cheaper than
// clearing the struct.
void px__launch_count(px_launch *l, const px_call *call);  // fills in its work
static inline void px__launch_start(px_launch *l, const px_call *call, px_dtype compute) {
  l->op = px__kernel_name(call->op);
  l->kernel = px__op_kernel(call->op, (px_device_type)call->device.type);
  l->params = call->args, l->param_count = call->op->param_count;
  l->compute = compute;
  l->id = l->seed = l->offset = 0;
  l->blocks = l->work = 0;
  if (px__call_watched(PX__WATCH_FLOPS | PX__WATCH_VIRTUAL | PX__WATCH_COUNTED))
    px__launch_count(l, call);
  l->fault = NULL, l->mt19937 = NULL, l->stream = NULL, l->random = NULL;
}
px_status px__no_kernel(const px_op *op, px_dtype dtype, px_device_type type)
    __attribute__((warn_unused_result));

// Sets the dtypes of a pointwise call: tensor arguments and numbers are promoted by PyTorch's rule.
px_status px__call_promote(px_call *call) __attribute__((warn_unused_result));
// The dtype to which tensors promote; numbers among them do not count.
px_status px__promote_tensors(px_dtype *to, px_tensor *const *tensors, int count)
    __attribute__((warn_unused_result));
__attribute__((warn_unused_result)) static inline px_status px__check_dtype(const px_op *op,
                                                                            px_dtype dtype,
                                                                            px_device device) {
  uint32_t dtypes = px__impl(op)->dtypes;
  if (PX_LIKELY(!dtypes || dtypes >> dtype & 1)) return PX_OK;
  return px__refuse_dtype(op, dtype, device);
}
px_status px__check_cast(px_dtype from, px_dtype to) __attribute__((warn_unused_result));

// The dtype of result i where promotion gives `promoted`.
static inline px_dtype px__result_dtype(const px_op *op, int i, px_dtype promoted) {
  px_dtype fixed = (px_dtype)px__impl(op)->result_dtypes[i];
  return fixed >= 0                                       ? fixed
         : (int)fixed == PX__DTYPE_REAL                   ? px_dtype_to_real(promoted)
         : px__impl(op)->promotion == PX__PROMOTE_COMPARE ? PX_BOOL
                                                          : promoted;
}

// Whether a tensor of the call is a conjugate or a negative of its memory, which kernels do not
// see. Views and composites pass them on.
bool px__call_has_conj_neg(const px_op *op, px_call_mode mode, const px_value *args,
                           void **results);
typedef struct px__resolved {
  px_value args[PX__MAX_PARAMS];
  px_tensor **made;  // owned; then copies of the lists
  int count;
} px__resolved;
static inline bool px__has_conj_neg(const px_tensor *t) {
  return t && (t->flags & PX_TENSOR_CONJ_NEG);
}
// Makes arguments with copies in the place of such tensors. The end comes also after a failure.
px_status px__resolve_begin(px__resolved *r, const px_op *op, const px_value *args)
    __attribute__((warn_unused_result));
void px__resolve_end(px__resolved *r);
px_status px__copy_to_conj_neg(px_tensor *self, const px_tensor *from, bool non_blocking)
    __attribute__((warn_unused_result));

// Sets the device of a pointwise call, by PyTorch's rule for element-wise ops: 0-dim CPU tensors
// may come with tensors of a device.
px_status px__call_find_device(px_call *call) __attribute__((warn_unused_result));

// Whether it is an unsigned dtype that kernels do not compute in, and which is made another first.
static inline bool px__is_unsigned(px_dtype dtype) {
  return dtype == PX_UINT16 || dtype == PX_UINT32 || dtype == PX_UINT64;
}
// The dtype whose sums and products have the bits of the unsigned one's; of others themselves.
static inline px_dtype px__signed_of(px_dtype dtype) {
  return dtype == PX_UINT16   ? PX_INT16
         : dtype == PX_UINT32 ? PX_INT32
         : dtype == PX_UINT64 ? PX_INT64
                              : dtype;
}

// Whether an argument in a Tensor's place is a number.
static inline bool px__is_number(px_value a) {
  return a.kind == PX_ARG_SCALAR || a.kind == PX_ARG_FLOAT || a.kind == PX_ARG_INT ||
         a.kind == PX_ARG_BOOL;
}
// Writes a number as an immediate operand of `ndim` dimensions.
void px__immediate(px_operand *operand, px_scalar value, px_dtype dtype, int ndim,
                   const int64_t *sizes);
extern const int64_t px__zero_strides[PX_MAX_DIMS];

// Whether the kernel may end with an error in the middle: then it does not write what the caller
// has. (On devices the call has returned by then.)
static inline bool px__may_fault(const px_call *call) {
  return px__impl(call->op)->faults && call->device.type == PX_CPU &&
         !px_dtype_is_float(call->compute);
}
// PX_RUNTIME if elements of a tensor that is to be written share memory, or such a tensor overlaps
// in part with one that is read. (Of some ops: overlaps at all.)
px_status px__check_written(const px_call *call) __attribute__((warn_unused_result));
// Resizes an out= tensor, with PyTorch's warning if it had elements.
// That a result of these sizes and this dtype can take self's place.
px_status px__check_fits_self(const px_op *op, const px_tensor *self, int ndim,
                              const int64_t *sizes, px_dtype dtype)
    __attribute__((warn_unused_result));
px_status px__resize_output(px_tensor *out, int ndim, const int64_t *sizes)
    __attribute__((warn_unused_result));
// After the launch: copies results to what the caller gave and the kernel did not write itself.
px_status px__call_copy_outs(px_call *call) __attribute__((warn_unused_result));
