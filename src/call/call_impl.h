// SPDX-License-Identifier: Apache-2.0
// Steps of a call, shared by the driver's files.
//
// The driver fills in arguments (call.c), finds the common device (devices.c) and dtype
// (promote.c), makes the results (results.c), launches the kernel (launch.c) and records the call
// (call.c). Steps before the launch do not change tensors visible to the caller.
#pragma once
#include "call/op_impl.h"

// Fails with the code and text of a refusal, formatted with the arguments.
#define PX_FAIL_AS(refusal, ...) \
  do { \
    _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wformat-nonliteral\"") \
        _Pragma("GCC diagnostic ignored \"-Wformat-extra-args\"") \
            PX_FAIL((refusal).code, (refusal).text, __VA_ARGS__); \
    _Pragma("GCC diagnostic pop") \
  } while (0)

// 0-dim tensors made from numbers for Tensor parameters, except of pointwise ops.
typedef struct px__numbers {
  px_tensor *made[PX__MAX_PARAMS];
  int n;
} px__numbers;
// Replaces such numbers in the arguments; `w` owns the tensors. PX_TYPE for a NULL in a list of
// tensors.
px_status px__call_wrap_numbers(px_call *call, px__numbers *w) __attribute__((warn_unused_result));
static inline void px__numbers_release(px__numbers *w) {
  for (int i = 0; i < w->n; i++) px_release(w->made[i]);
}

// Calls by kind of op.
// *simple: the call took the fast path, and call->needs_grad is set.
px_status px__call_pointwise(px_call *call, bool *simple) __attribute__((warn_unused_result));
px_status px__call_reduce(px_call *call) __attribute__((warn_unused_result));

// Memory formats: the format of the results by the op's entry; conversion of row-major results
// after a call; launch of a kernel that takes channels_last operands as matrices; empty results.
px_memory_format px__result_format(const px_call *call);
static inline bool px__has_layout(const px__op_impl *impl) {
  return impl->format || impl->order || impl->row_major;
}
px_status px__call_format(px_call *call) __attribute__((warn_unused_result));
px_status px__launch_rows(px_call *call) __attribute__((warn_unused_result));
px_status px__call_empty(px_call *call, int i, int ndim, const int64_t *sizes, px_dtype dtype)
    __attribute__((warn_unused_result));

// vmap, set by vmap.c. *taken: the call was made on the physical tensors and remains to be
// recorded. False if the op runs on the batched tensors themselves.
extern px_status (*px__call_batched)(px_call *call, bool *taken);

// Launches.
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
// Fills in the launch of a call except its operands. Assigning fields is cheaper than clearing the
// struct.
void px__launch_count(px_launch *l, const px_call *call);  // sets `work`
static inline void px__launch_start(px_launch *l, const px_call *call, px_dtype compute) {
  l->op = px__kernel_name(call->op);
  l->kernel = px__op_kernel(call->op, (px_device_type)call->device.type);
  l->params = call->args, l->param_count = call->op->param_count;
  l->compute = compute;
  l->id = l->seed = l->offset = 0;
  l->blocks = l->work = 0;
  if (px__call_watched(PX__WATCH_FLOPS | PX__WATCH_VIRTUAL | PX__WATCH_COUNTED))
    px__launch_count(l, call);
  l->fault = NULL, l->mt19937 = NULL, l->stream = NULL, l->random = NULL, l->chain = NULL;
}
px_status px__no_kernel(const px_op *op, px_dtype dtype, px_device_type type)
    __attribute__((warn_unused_result));

// Sets the dtypes of a pointwise call: promotes tensors and numbers by PyTorch's rule.
px_status px__call_promote(px_call *call) __attribute__((warn_unused_result));
// Dtype to which tensors promote. Wrapped numbers are ignored.
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

// Dtype of result i if promotion yields `promoted`.
static inline px_dtype px__result_dtype(const px_op *op, int i, px_dtype promoted) {
  px_dtype fixed = (px_dtype)px__impl(op)->result_dtypes[i];
  return fixed >= 0                                       ? fixed
         : (int)fixed == PX__DTYPE_REAL                   ? px_dtype_to_real(promoted)
         : px__impl(op)->promotion == PX__PROMOTE_COMPARE ? PX_BOOL
                                                          : promoted;
}

// True if a tensor of the call is a conjugate or negative view and the op cannot read or write it.
// Views and composites read such arguments.
bool px__call_has_conj_neg(const px_op *op, px_call_mode mode, const px_value *args,
                           void **results);
static inline bool px__has_conj_neg(const px_tensor *t) {
  return t && (px__flags(t) & PX_TENSOR_CONJ_NEG);
}
// A view of a call and its copy, with the copy's version before the call.
typedef struct px__view_copy {
  px_tensor *view, *copy;  // copy: owned
  uint64_t version;
} px__view_copy;
typedef struct px__resolved {
  px_value args[PX__MAX_PARAMS];
  void *results[PX__MAX_RESULTS];  // out= tensors
  px_tensor **lists;               // elements of the lists
  px__view_copy *made;
  int count, outs;  // the last `outs` copies are out= tensors
} px__resolved;
// Copies the conjugate and negative views of a call, initially all zero. Requires px__resolve_end,
// also after a failure.
px_status px__resolve_begin(px__resolved *r, const px_op *op, px_call_mode mode,
                            const px_value *args, void **results)
    __attribute__((warn_unused_result));
// Writes the copies changed by the call back: self, out= tensors, and arguments with another
// version. `results` then has the views in place of these copies.
px_status px__resolve_finish(const px__resolved *r, px_call_mode mode, int count, void **results)
    __attribute__((warn_unused_result));
void px__resolve_end(px__resolved *r);
px_status px__copy_to_conj_neg(px_tensor *self, const px_tensor *from, bool non_blocking)
    __attribute__((warn_unused_result));

// Sets the device of a pointwise call. By PyTorch's rule 0-dim CPU tensors combine with tensors on
// other devices.
px_status px__call_find_device(px_call *call) __attribute__((warn_unused_result));

// True for unsigned dtypes without kernels of their own. The driver converts them first.
static inline bool px__is_unsigned(px_dtype dtype) {
  return dtype == PX_UINT16 || dtype == PX_UINT32 || dtype == PX_UINT64;
}
// The signed dtype with the same bits in sums and products; other dtypes unchanged.
static inline px_dtype px__signed_of(px_dtype dtype) {
  return dtype == PX_UINT16   ? PX_INT16
         : dtype == PX_UINT32 ? PX_INT32
         : dtype == PX_UINT64 ? PX_INT64
                              : dtype;
}

// True if an argument is a number, possibly for a Tensor parameter.
static inline bool px__is_number(px_value a) {
  return a.kind == PX_ARG_SCALAR || a.kind == PX_ARG_FLOAT || a.kind == PX_ARG_INT ||
         a.kind == PX_ARG_BOOL;
}
// Makes an immediate operand of `ndim` dimensions from a number.
void px__immediate(px_operand *operand, px_scalar value, px_dtype dtype, int ndim,
                   const int64_t *sizes);
extern const int64_t px__zero_strides[PX_MAX_DIMS];

// True if the kernel may fail at an element. It then writes to a new tensor instead of the
// caller's. (On devices the call has returned by then.)
static inline bool px__may_fault(const px_call *call) {
  return px__impl(call->op)->faults && call->device.type == PX_CPU &&
         !px_dtype_is_float(call->compute);
}
// PX_RUNTIME if elements of an output share memory, or if an output overlaps partially with an
// input. (Some ops refuse any overlap.)
px_status px__check_written(const px_call *call) __attribute__((warn_unused_result));
// Fails unless a result of these sizes and this dtype can be written to self.
px_status px__check_fits_self(const px_op *op, const px_tensor *self, int ndim,
                              const int64_t *sizes, px_dtype dtype)
    __attribute__((warn_unused_result));
px_status px__resize_output(px_tensor *out, int ndim, const int64_t *sizes)
    __attribute__((warn_unused_result));
// After the launch: copies results to out= tensors or self unless the kernel wrote them directly.
px_status px__call_copy_outs(px_call *call) __attribute__((warn_unused_result));
