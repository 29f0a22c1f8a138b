// SPDX-License-Identifier: Apache-2.0
// The ops layer: a call in progress, and the library's part of generated descriptors.
#pragma once
#include "phlox/extend.h"
#include "phlox/op.h"
#include "tensor/tensor_impl.h"

enum { PX__MAX_PARAMS = 16, PX__MAX_RESULTS = 5 };

// How the compute dtype and the result dtype of a pointwise or reduce op derive from the inputs.
typedef enum px__promotion {
  PX__PROMOTE,          // result and compute: promotion of the tensor inputs
  PX__PROMOTE_FLOAT,    // ... and integers become the default float type
  PX__PROMOTE_COMPARE,  // compute: promotion; result: bool
  PX__PROMOTE_INTEGER,  // as PROMOTE, with int64 instead of bool
  PX__PROMOTE_FIRST,    // as the first tensor
  PX__PROMOTE_SUM       // reduce: integers and bool become int64
} px__promotion;

// In result_dtypes: the real dtype of a complex one. Other dtypes follow promotion.
enum { PX__DTYPE_REAL = -2 };

// Inputs that may not share memory with the output.
typedef enum px__overlap_rule {
  PX__OVERLAP_ALLOWED,  // none
  PX__OVERLAP_NONE,     // all, for the in-place form, or for out= without an in-place form
  PX__OVERLAP_SELF      // all but self, for both forms
} px__overlap_rule;

// Dtypes allowed for an out= tensor besides the result's own.
typedef enum px__out_rule {
  PX__OUT_CAST,          // dtypes to which promotion can cast the result
  PX__OUT_SAME,          // none
  PX__OUT_ANY,           // all
  PX__OUT_SETS_DTYPE,    // all; the result has out's dtype, as if given by the argument dtype
  PX__OUT_SAME_IF_UNARY  // SAME if all other arguments are numbers, otherwise CAST
} px__out_rule;

// A call in progress. The driver fills in the first fields; the op's run function makes the results
// with px__call_result.
typedef struct px_call {
  const px_op *op;
  px_call_mode mode;
  px_value *args;           // with defaults; the caller's array if there was nothing to fill in
  px_device device;         // common device of the tensor arguments, or requested from a factory
  px_dtype compute, dtype;  // pointwise and reduce
  px_tensor *results[PX__MAX_RESULTS];  // owned
  px_list *list;                        // result of ops that return a list; owned
  // Random kernels; set by px__call_draws. `counter`: increment of the Philox offset.
  bool uses_random;
  px_generator *generator;
  uint64_t counter;
  int64_t blocks;
  bool skip_launch;  // the run function computed everything (e.g. an empty result)
  bool composed;     // ... by calling other ops, which recorded themselves
  bool wraps;        // an argument is a list of tensors, or a number for a Tensor parameter
  bool one_device;   // px__call_same_device succeeded
  bool needs_grad;   // set by the fast path of pointwise ops: an argument requires grad
  bool records;      // pointwise: the launch is recorded, not issued (fusion/fusion.h)
  px_tensor *given[PX__MAX_RESULTS];  // out= tensors, or self of an in-place call; borrowed
  px_tensor *original;                // self before an in-place call, if autograd needs it; owned
} px_call;

typedef struct px__registered px__registered;  // a registered op: call/registered.h

// PyTorch's error text for a refused argument; code 0 if there is none.
typedef struct px__refusal {
  px_status code;
  const char *text;
} px__refusal;
// Error texts of an op for refused arguments. Without them, ops other than pointwise use their own
// name as `wrapper`.
typedef struct px__op_texts {
  const char *wrapper;  // PyTorch's method in the device mismatch text; NULL: the pointwise text
  px__refusal of_bool, of_dtype;  // %s: class of the dtype; optional
  px__refusal of_device;          // mask on another device. %s: its device, self's
  px__refusal of_out;     // dtype of out=. %1$s, %2$s: classes of its and the result's dtype; %3$s,
                          // %4$s: their C++ types; %5$s: name of the result; %6$s: self's class;
                          // %7$s: "cuda." for a device tensor
  px__refusal of_second;  // the same for the second result, if its text differs
  px__refusal of_sizes;   // in place, sizes differ. %1$s, %2$s: self's and the result's sizes;
                          // %3$s: self's number of dimensions
  const char *expand_warning;            // in place: warning if elements of self share memory
  const char *cpu_kernel, *cuda_kernel;  // in '"kernel" not implemented for'; NULL: the op's name
} px__op_texts;

// Batching rule of an op (ops/GRAMMAR.md, `vmap`).
typedef enum px__vmap_rule {
  PX__VMAP_BY_KIND,    // pointwise: align; reduce: its own; view, composite: itself; others: loop
  PX__VMAP_DECOMPOSE,  // call the op's function on the batched tensors
  PX__VMAP_ALIGN,      // align the dimensions of samples as broadcasting does
  PX__VMAP_SHIFT,      // put the batch dimension before the others
  PX__VMAP_GROW,       // ... for an op whose result has one more dimension
  PX__VMAP_MERGE,      // merge the batch dimension with the first one
  PX__VMAP_LOOP,       // call the op for each sample
  PX__VMAP_INDICES,    // decompose; `vmap_run` for batched integers
  PX__VMAP_REFUSE,     // fail with `vmap_text`
  PX__VMAP_RUN         // call `vmap_run`
} px__vmap_rule;
typedef struct px__vmap_call px__vmap_call;  // vmap.h

// Calls handled by `complex`.
typedef enum px__composed {
  PX__OF_COMPLEX,   // with a complex tensor
  PX__OF_UNSIGNED,  // with a tensor of uint16, uint32 or uint64
  PX__OF_BOTH,
  PX__OF_UINT64  // with uint64 tensors only, or others beside unsigned ones: px__call_ordered
} px__composed;

// The library's part of a descriptor (px_op.impl).
typedef struct px__op_impl {
  // By kind:
  // kernel: checks the arguments and makes the results (generated from `result` lines). The driver
  // then launches `kernel` with the results and the tensor arguments as operands.
  // view, function: makes the results. Nested calls are not recorded; the driver records the op.
  // composite: makes the results by calling other ops, which record themselves.
  // pointwise: an early check of the arguments, or NULL. reduce: NULL.
  px_status (*run)(px_call *call);
  // Checks the arguments first. NULL only if the op has no autocast policy either.
  px_status (*check)(const px_call *call);
  // Composes calls on dtypes unsupported by the kernel (`composed`) from other ops; or NULL.
  px_status (*complex)(px_call *call);
  // Floating-point operations of a call with its results; NULL: not reported.
  int64_t (*work)(const px_call *call);
  // For PyTorch's FLOP counter: names as in the entry, and the number of operations; NULL: none.
  const char *flops;
  int64_t (*counted)(const px_call *call);
  const char *kernel;  // "softmax"
  px_kernel *found;    // cached kernels by device type; atomic
  uint32_t dtypes;     // bit i: px_dtype i is supported (of `compute` or of the first tensor)
  uint8_t promotion;   // px__promotion
  uint8_t out;         // px__out_rule
                       // (scatter, index_add)
  uint8_t composed;    // px__composed
  bool chained;        // the kernel is generated from an expression or a fold: chains may hold it
  bool nonempty;       // reduce: fails on an empty input
  bool any_scalars;    // pointwise: takes any number of 0-dim CPU tensors to a device
  bool idempotent;     // in place: elements of self may share memory
  uint8_t overlap;     // px__overlap_rule
  bool faults;         // pointwise: the kernel may fail at an element of an integer dtype
  uint8_t tensors;     // parameters up to the last Tensor or list of tensors
  const px__op_texts *texts;
  bool rows;           // kernel: takes channels_last operands as matrices of (pixels, channels)
  uint16_t format;     // bit i: results are channels_last if parameter i is, or requests it
  uint16_t order;      // bit i: results keep the order of dimensions of parameter i
  bool row_major;      // results without a format are row-major
  uint16_t fits;       // pointwise: bit i: number i must fit the compute dtype
  uint16_t fits_wide;  // the same, with float32 for 16-bit dtypes
  uint8_t transposed;  // parameter (a matrix) passed transposed to the kernel; 0: none
  uint8_t dim, keepdim, dtype;  // reduce: the parameters of these names; 0: none
  uint32_t masks;  // pointwise: bits of masks (where's condition); excluded from promotion
  int8_t result_dtypes[PX__MAX_RESULTS];  // pointwise and reduce: PX_DTYPE_NONE follows promotion
  const px__registered *registered;       // NULL unless the op is registered
  uint8_t vmap_rule;                      // px__vmap_rule
  uint32_t vmap_mask;               // shift, grow, merge: parameters that may be batched; 0: all
  const char *vmap_text, *vmap_as;  // refuse: the error text; op to call instead, or NULL
  px_status (*vmap_run)(px__vmap_call *b);
  // Conjugate and negative views. takes_conj_neg: the op reads them without a copy. conj_neg:
  // called first in place, or NULL; *done if it made the call.
  bool takes_conj_neg;
  px_status (*conj_neg)(const px_value *args, void **results, bool *done);
} px__op_impl;
static inline const px__op_impl *px__impl(const px_op *op) { return (const px__op_impl *)op->impl; }

// Returns the memory format that all tensors of a list have, else PX_FORMAT_CONTIGUOUS.
px_memory_format px__list_format(px_value list);
// Makes result i, row-major, of the given sizes. out=: checks and resizes the given tensor. In
// place: returns self, or PX_RUNTIME if its sizes differ. No effect if the result exists.
px_status px__call_result(px_call *call, int i, int ndim, const int64_t *sizes, px_dtype dtype)
    __attribute__((warn_unused_result));
// For kernel ops without a kernel for the call: `run` makes the results like a function op.
px_status px__call_function(px_call *call, px_status (*run)(px_call *))
    __attribute__((warn_unused_result));
// Fails unless all tensor arguments are on one device. The text is PyTorch's: "... but got mat2 is
// on cuda:1, different from other tensors on cuda:0 (when checking argument in method
// wrapper_CUDA_mm)". Pointwise ops follow another rule (px__call_find_device).
px_status px__call_same_device(px_call *call) __attribute__((warn_unused_result));
// Fails unless out= tensors can hold results of these dtypes. Changes nothing. Uses the op's own
// text if its table has one ("refuse out").
px_status px__call_check_outs(const px_call *call, const px_dtype *dtypes)
    __attribute__((warn_unused_result));
// Fails with PyTorch's text for an unsupported dtype.
px_status px__refuse_dtype(const px_op *op, px_dtype dtype, px_device device)
    __attribute__((warn_unused_result));
// Fails on GPUs without a kernel of an op that is computed by CPU libraries, or without a kernel
// for complex numbers.
px_status px__refuse_gpu(const px_op *op, px_dtype dtype, px_device device)
    __attribute__((warn_unused_result));
// Fails unless the 0-dim tensor `value` is on the given device or on the CPU.
px_status px__check_value(const px_tensor *value, px_device device)
    __attribute__((warn_unused_result));
// The first parameter: self of in-place forms, views and reductions.
enum { PX__SELF = 0 };
static inline px_tensor *px__arg_tensor(const px_call *call, int i) {
  return call->args[i].kind == PX_ARG_TENSOR ? call->args[i].v.tensor : NULL;
}

// Calls an ordered op for uint64 as itself on int64, preserving the order (unsigned_order.c).
px_status px__vmap_indices(px__vmap_call *b);  // vmap.h
px_status px__call_ordered(px_call *call) __attribute__((warn_unused_result));
px_dtype px__unsigned_with_others(const px_op *op, const px_value *args);
// Converts an unsigned tensor to int64 with the same order, and back.
px_status px__to_ordered(px_tensor **out, const px_tensor *t) __attribute__((warn_unused_result));
px_status px__from_ordered(px_tensor **out, const px_tensor *t, px_dtype dtype)
    __attribute__((warn_unused_result));
// Launches a kernel from the run function of a function op. Operands: the results, then the inputs.
// NULL inputs are absent.
px_status px__run_kernel(px__named_kernel *kernel, px_device device, int result_count,
                         px_tensor *const *results, int input_count, px_tensor *const *inputs,
                         const px_value *params, int param_count)
    __attribute__((warn_unused_result));
// Declares that the call's kernel draws n random numbers from a generator (NULL: the device's own),
// `each` at a time. On devices the generator advances by PyTorch's rule.
px_status px__call_draws(px_call *call, px_generator *generator, int64_t n, int64_t each)
    __attribute__((warn_unused_result));
// The same for numbers of which a device's thread draws each from at most `words` words.
px_status px__call_draws_words(px_call *call, px_generator *generator, int64_t n, uint64_t words)
    __attribute__((warn_unused_result));

// Hooks of the layer above (phlox/extend.h); NULL until set.
extern const px_op_hooks *px__hooks;
extern px_op_flop_callback px__flop_counter;  // atomic; hooks.c
extern bool px__writes_watched;               // atomic: a thread has set a write watch
// The calling thread's dispatch hook.
const px_dispatch_hook *px__dispatch_hook(void);
void px__dispatch_hook_set(const px_dispatch_hook *keeper);

// Fails with the name of the last op that this thread did not find.
px_status px__no_op(void) __attribute__((warn_unused_result));
// Check of ops with an autocast policy that refuse nothing.
px_status px__unchecked(const px_call *call) __attribute__((warn_unused_result));

// Generated (build/gen/ops_table.c).
extern const px_op *const px__op_table[];  // by name
extern const int px__op_table_count;

// Registered ops (registered.c): count, op by index, op by name, kernel by device type. NULL if not
// found.
int px__registered_count(void);
const px_op *px__registered_at(int i);
const px_op *px__registered_find(const char *name);
px_kernel px__registered_kernel_find(const px_op *op, px_device_type type);
