// SPDX-License-Identifier: Apache-2.0
// The ops layer: a call in progress, and what the generated descriptors refer to.
#pragma once
#include "phlox/extend.h"
#include "phlox/op.h"
#include "tensor/tensor_impl.h"

enum { PX__MAX_PARAMS = 16, PX__MAX_RESULTS = 4 };

// How the compute dtype and the result dtype of a pointwise or reduce op follow from the inputs.
typedef enum px__promotion {
  PX__PROMOTE,          // result and compute: promotion of the tensor inputs
  PX__PROMOTE_FLOAT,    // ... and integers become the default float type
  PX__PROMOTE_COMPARE,  // compute: promotion; result: bool
  PX__PROMOTE_WHOLE,    // promotion, and bool becomes int64
  PX__PROMOTE_FIRST,    // as the first tensor
  PX__PROMOTE_SUM       // reduce: integers and bool become int64
} px__promotion;

// A call in progress. The driver fills the upper part; `run` of the op makes results with
// px__call_result.
typedef struct px_call {
  const px_op *op;
  px_call_mode mode;
  px_value *args;    // defaults filled in; the caller's own where nothing was to be filled in
  px_device device;  // agreed on by the tensor arguments, or asked for by a factory
  px_dtype compute, dtype;              // pointwise and reduce
  px_tensor *results[PX__MAX_RESULTS];  // owned
  px_list *list;                        // of ops that return a list; owned
  // Random kernels: set `uses_random`, `counter`, how far the Philox offset moves
  // (px__philox_steps), and `blocks` of the launch.
  bool uses_random;
  px_generator *generator;
  uint64_t counter;
  int64_t blocks;
  bool skip_launch;  // the run function did all there is to do (an empty result)
  bool composed;     // ... by calling other ops, which recorded themselves
  bool one_device;   // px__call_same_device has found the arguments so
  bool needs_grad;   // the short way of pointwise ops has looked: whether an argument does
  px_tensor *given[PX__MAX_RESULTS];  // out= tensors, or self of an in-place call; borrowed
  px_tensor *original;  // self as it was before an in-place call, if autograd wants it; owned
} px_call;

typedef struct px__own px__own;  // a registered op: call/own_impl.h

// A refusal in PyTorch's words; code 0: there are none.
typedef struct px__refusal {
  px_status code;
  const char *text;
} px__refusal;
// What is said where an op's arguments are refused. An op without has `wrapper` by its own name, if
// it is not pointwise.
typedef struct px__op_texts {
  const char *wrapper;  // PyTorch's method in the text of two devices; NULL: the element-wise text
  px__refusal of_bool, of_dtype, of_mask;  // may name the dtype's class, by %s
  px__refusal of_device;                   // a mask is elsewhere: its device and self's, by %s
  const char *cpu_kernel, *cuda_kernel;    // in '"kernel" not implemented for'; NULL: its own
} px__op_texts;

// What a descriptor's `impl` points to.
typedef struct px__op_impl {
  // kernel: checks arguments and makes the results; the driver then launches `kernel` with operands
  // (results, tensor arguments). view, function: makes the results; recording of inner calls is off
  // and the driver records the op itself. composite: makes the results by calling other ops, which
  // record themselves. pointwise: refuses what must be refused before anything is done, or NULL.
  // reduce: NULL.
  px_status (*run)(px_call *call);
  const char *kernel;  // "softmax"
  uint16_t dtypes;     // bit i: px_dtype i is supported (of `compute` or of the first tensor)
  uint8_t promotion;   // px__promotion
  bool mutates;        // kernel writes into a result that starts as a copy of the first argument
                       // (scatter, index_add)
  bool nonempty;       // reduce: over nothing there is no result
  bool any_scalars;    // pointwise: takes any number of 0-dim CPU tensors to a device
  const px__op_texts *texts;
  uint8_t turned;  // the parameter, a matrix, that the kernel gets transposed; 0: none
  uint32_t masks;  // pointwise: parameters that select (where's condition), not promoted
  int8_t result_dtypes[PX__MAX_RESULTS];  // pointwise and reduce: PX_DTYPE_NONE follows promotion
  const px__own *own;                     // of a registered op, or NULL
} px__op_impl;
static inline const px__op_impl *px__impl(const px_op *op) { return (const px__op_impl *)op->impl; }

// Makes result i with the geometry given (row-major), or checks and resizes the tensor given by
// out=; in-place calls get self, and PX_RUNTIME if the geometry differs. Idempotent.
px_status px__call_result(px_call *call, int i, int ndim, const int64_t *sizes, px_dtype dtype)
    __attribute__((warn_unused_result));
// Checks that all tensor arguments are on one device, with PyTorch's text for wrapped ops: "... but
// got mat2 is on cuda:1, different from other tensors on cuda:0 (when checking argument in method
// wrapper_CUDA_mm)". Pointwise ops have their own rule.
px_status px__call_same_device(px_call *call) __attribute__((warn_unused_result));
// Fails: the op does not take the dtype; with PyTorch's text.
px_status px__refuse_dtype(const px_op *op, px_dtype dtype, px_device device)
    __attribute__((warn_unused_result));
// Whether a 0-dim tensor's value may be written to elements on a device: not if it is on another
// one.
px_status px__check_value(const px_tensor *value, px_device device)
    __attribute__((warn_unused_result));
static inline px_tensor *px__arg_tensor(const px_call *call, int i) {
  return call->args[i].kind == PX_ARG_TENSOR ? call->args[i].v.tensor : NULL;
}

// Launches kernel `name` directly (inside run functions of kind function): results first, then
// inputs (NULL: absent).
px_status px__run_kernel(const char *name, px_device device, int result_count,
                         px_tensor *const *results, int input_count, px_tensor *const *inputs,
                         const px_value *params, int param_count)
    __attribute__((warn_unused_result));
// Philox: how far the offset of a generator moves for n elements on a device, PyTorch's rule.
uint64_t px__philox_steps(px_device device, int64_t n, int values_per_draw);

// The hooks of the layer above (phlox/extend.h), NULL until it registers. `suspend` is called
// around run functions of view and function ops.
extern const px_op_hooks *px__hooks;

// Generated (build/gen/ops_table.c).
extern const px_op px__op_table[];
extern const int px__op_table_count;

// Registered ops (register.c): how many, the i-th, one by name, and its kernel for a device type;
// NULL if there is none.
int px__own_count(void);
const px_op *px__own_at(int i);
const px_op *px__own_find(const char *name);
px_kernel px__own_kernel_find(const px_op *op, px_device_type type);
