// SPDX-License-Identifier: Apache-2.0
// The ops layer: a call in progress, and what the generated descriptors refer to.
#pragma once
#include "phlox/extend.h"
#include "phlox/op.h"
#include "tensor/tensor_impl.h"

enum { PX__MAX_PARAMS = 16, PX__MAX_RESULTS = 5 };

// How the compute dtype and the result dtype of a pointwise or reduce op follow from the inputs.
typedef enum px__promotion {
  PX__PROMOTE,          // result and compute: promotion of the tensor inputs
  PX__PROMOTE_FLOAT,    // ... and integers become the default float type
  PX__PROMOTE_COMPARE,  // compute: promotion; result: bool
  PX__PROMOTE_WHOLE,    // promotion, and bool becomes int64
  PX__PROMOTE_FIRST,    // as the first tensor
  PX__PROMOTE_SUM       // reduce: integers and bool become int64
} px__promotion;

// Of result_dtypes: that of the parts of complex numbers, where the others follow promotion.
enum { PX__DTYPE_OF_PARTS = -2 };

// Which tensors that are read may not share memory with the one that is written.
typedef enum px__apart {
  PX__ANYHOW,  // none has to be apart
  PX__APART,   // all, of the form in place; of `out`, if there is no such form
  PX__ASIDE    // all but self, of both forms
} px__apart;

// Which dtypes an out= tensor may have, beside the result's own.
typedef enum px__out_rule {
  PX__OUT_CAST,   // those to which promotion lets the result be cast
  PX__OUT_SAME,   // none
  PX__OUT_ANY,    // all
  PX__OUT_GIVES,  // all: the result has out's, as if the argument dtype said so
  PX__OUT_ALONE   // none where all other arguments are numbers, else as CAST
} px__out_rule;

// A call in progress. The driver fills in the first fields; the op's run function makes the results
// with px__call_result.
typedef struct px_call {
  const px_op *op;
  px_call_mode mode;
  px_value *args;    // defaults filled in; the caller's own where nothing was to be filled in
  px_device device;  // agreed on by the tensor arguments, or asked for by a factory
  px_dtype compute, dtype;              // pointwise and reduce
  px_tensor *results[PX__MAX_RESULTS];  // owned
  px_list *list;                        // of ops that return a list; owned
  // Random kernels, set by px__call_draws: `counter` is how far the Philox offset moves.
  bool uses_random;
  px_generator *generator;
  uint64_t counter;
  int64_t blocks;
  bool skip_launch;  // the run function did all there is to do (an empty result)
  bool composed;     // ... by calling other ops, which recorded themselves
  bool wraps;        // a list of tensors, or a number in a tensor's place, is among the arguments
  bool one_device;   // px__call_same_device has found the arguments so
  bool needs_grad;   // the short way of pointwise ops has looked: whether an argument does
  px_tensor *given[PX__MAX_RESULTS];  // out= tensors, or self of an in-place call; borrowed
  px_tensor *original;  // self as it was before an in-place call, if autograd wants it; owned
} px_call;

typedef struct px__registered px__registered;  // a registered op: call/registered.h

// PyTorch's text for an argument that is refused; code 0: there is none.
typedef struct px__refusal {
  px_status code;
  const char *text;
} px__refusal;
// The texts of an op for arguments that it refuses. An op without them uses its own name as
// `wrapper`, unless it is pointwise.
typedef struct px__op_texts {
  const char *wrapper;  // PyTorch's method in the text of two devices; NULL: the element-wise text
  px__refusal of_bool, of_dtype, of_mask;  // may name the dtype's class, by %s
  px__refusal of_device;                   // a mask is elsewhere: its device and self's, by %s
  px__refusal of_autocast;                 // the policy is PX_AUTOCAST_NEVER
  px__refusal of_out;  // out= has another dtype: its class and the result's, by %1$s and %2$s, and
                       // their C++ types, by %3$s and %4$s; the result's name by %5$s, self's class
                       // by %6$s, "cuda." of a device's by %7$s
  px__refusal of_second;    // the same of the second result, where that has a text of its own
  px__refusal of_sizes;     // in place, self has other sizes: its own and the result's, by %1$s
                            // and %2$s, and how many it has, by %3$s
  const char *of_expanded;  // the warning where elements of self share memory, in place
  const char *cpu_kernel, *cuda_kernel;  // in '"kernel" not implemented for'; NULL: its own
} px__op_texts;

// What is done for the places of a mapped dimension (batch.c; ops/GRAMMAR.md, `batch`).
typedef enum px__batch_rule {
  PX__BATCH_BY_KIND,  // pointwise: align; reduce: its own; view, composite: itself; others: loop
  PX__BATCH_ITSELF,   // the op is called on the batched tensors
  PX__BATCH_ALIGN,    // places are aligned as dimensions of operands that are broadcast
  PX__BATCH_SHIFT,    // the mapped dimension comes before the others
  PX__BATCH_GROW,     // ... of an op whose result has a dimension more
  PX__BATCH_MERGE,    // the mapped dimension is made one with the first
  PX__BATCH_LOOP,     // a call for each place
  PX__BATCH_REFUSE,   // not possible, as `batch_text` says
  PX__BATCH_RUN       // `batch_run`
} px__batch_rule;
typedef struct px__batching px__batching;  // batch.h

// What `complex` is called of.
typedef enum px__composed {
  PX__OF_COMPLEX,   // calls with a complex tensor
  PX__OF_UNSIGNED,  // ... with one of uint16, uint32 or uint64
  PX__OF_BOTH,
  PX__OF_LARGE  // ... whose tensors are all of uint64: px__call_ordered
} px__composed;

// What a descriptor's `impl` points to.
typedef struct px__op_impl {
  // kernel: checks the arguments and makes the results (generated from `result` lines); then the
  // driver launches `kernel` with the results and the tensor arguments as operands. view, function:
  // makes the results; calls that it makes are not recorded, and the driver records the op.
  // composite: makes the results by calling other ops, which record themselves. pointwise: refuses
  // bad arguments before anything else, or NULL. reduce: NULL.
  px_status (*run)(px_call *call);
  // Refuses arguments, before anything else; NULL if there is no policy of autocast either.
  px_status (*check)(const px_call *call);
  // Of numbers that its kernel does not know (`composed`): composed of other ops; or NULL.
  px_status (*complex)(px_call *call);
  // The floating-point operations of a call whose results are made; NULL: they are not told.
  int64_t (*work)(const px_call *call);
  // What PyTorch's counter of operations has of it: the names, as the entry says them, and how
  // many; NULL: nothing.
  const char *flops;
  int64_t (*counted)(const px_call *call);
  const char *kernel;  // "softmax"
  px_kernel *found;    // the kernels that were found, by device type; atomic
  uint32_t dtypes;     // bit i: px_dtype i is supported (of `compute` or of the first tensor)
  uint8_t promotion;   // px__promotion
  uint8_t out;         // px__out_rule
  bool mutates;        // kernel writes into a result that starts as a copy of the first argument
                       // (scatter, index_add)
  uint8_t composed;    // px__composed
  bool nonempty;       // reduce: over nothing there is no result
  bool any_scalars;    // pointwise: takes any number of 0-dim CPU tensors to a device
  bool idempotent;     // in place: elements of self may share memory
  uint8_t apart;       // nothing that is read may share memory with what is written: a px__apart
  bool faults;         // pointwise: of whole numbers, the kernel may refuse an element
  uint8_t tensors;     // parameters up to the last that may be a tensor, or a list of them
  const px__op_texts *texts;
  bool rows;        // kernel: takes channels_last operands as matrices of places and channels
  uint16_t format;  // bit i: results are channels_last where parameter i is, or says so
  uint8_t turned;   // the parameter, a matrix, that the kernel gets transposed; 0: none
  uint8_t dim, keepdim, dtype;  // reduce: the parameters of these names; 0: none
  uint32_t masks;  // pointwise: parameters that select (where's condition), not promoted
  int8_t result_dtypes[PX__MAX_RESULTS];  // pointwise and reduce: PX_DTYPE_NONE follows promotion
  const px__registered *registered;       // of a registered op, or NULL
  uint8_t batch;                          // px__batch_rule
  uint32_t batch_mask;                // shift, grow, merge: the tensors that may be mapped; 0: all
  const char *batch_text, *batch_as;  // refuse: why; the op that is called instead, or NULL
  px_status (*batch_run)(px__batching *b);
  // Of conjugate and negative views: whether the op reads them as they are; and what it does in
  // place instead of a call with copies, or NULL. `done`: that it did.
  bool takes_lazy;
  px_status (*lazy)(const px_value *args, void **results, bool *done);
} px__op_impl;
static inline const px__op_impl *px__impl(const px_op *op) { return (const px__op_impl *)op->impl; }

// Makes result i, row-major, with the sizes given. For out=, checks and resizes the tensor given;
// for an in-place call, gives self, or PX_RUNTIME if its sizes differ. A second call does nothing.
px_status px__call_result(px_call *call, int i, int ndim, const int64_t *sizes, px_dtype dtype)
    __attribute__((warn_unused_result));
// For run functions of kernels: `run` makes the results as the run function of a function op does,
// where there is no kernel.
px_status px__call_instead(px_call *call, px_status (*run)(px_call *))
    __attribute__((warn_unused_result));
// Checks that all tensor arguments are on one device. The text is PyTorch's: "... but got mat2 is
// on cuda:1, different from other tensors on cuda:0 (when checking argument in method
// wrapper_CUDA_mm)". Pointwise ops have a rule of their own (px__call_agree).
px_status px__call_same_device(px_call *call) __attribute__((warn_unused_result));
// Before anything of out= changes: that results of these dtypes can be given by it, with the op's
// own text where its table has one ("refuse out").
px_status px__call_check_outs(const px_call *call, const px_dtype *dtypes)
    __attribute__((warn_unused_result));
// Fails with PyTorch's text for a dtype that the op does not take.
px_status px__refuse_dtype(const px_op *op, px_dtype dtype, px_device device)
    __attribute__((warn_unused_result));
// Fails where an op that libraries of the CPU compute is called on a GPU that has no kernel of it,
// or none of complex numbers.
px_status px__refuse_gpu(const px_op *op, px_dtype dtype, px_device device)
    __attribute__((warn_unused_result));
// Fails unless the value of a 0-dim tensor may be written to elements on a device: it must be
// there, or on the CPU.
px_status px__check_value(const px_tensor *value, px_device device)
    __attribute__((warn_unused_result));
// The first parameter: what a form in place changes, a view is of, and a reduction folds.
enum { PX__SELF = 0 };
static inline px_tensor *px__arg_tensor(const px_call *call, int i) {
  return call->args[i].kind == PX_ARG_TENSOR ? call->args[i].v.tensor : NULL;
}

// What is called of ordered ops for uint64: the op itself, of int64 in the same order (order.c).
px_status px__call_ordered(px_call *call) __attribute__((warn_unused_result));
// An unsigned tensor as int64 in the same order; and what is, as the unsigned dtype again.
px_status px__to_ordered(px_tensor **out, const px_tensor *t) __attribute__((warn_unused_result));
px_status px__from_ordered(px_tensor **out, const px_tensor *t, px_dtype dtype)
    __attribute__((warn_unused_result));
// Launches a kernel from the run function of a function op. Operands are the results, then
// the inputs, of which NULL is absent.
px_status px__run_kernel(px__named_kernel *kernel, px_device device, int result_count,
                         px_tensor *const *results, int input_count, px_tensor *const *inputs,
                         const px_value *params, int param_count)
    __attribute__((warn_unused_result));
// Says that the call's kernel draws n numbers from a generator (NULL: the device's own), `each` at
// a time; on a device the generator advances by PyTorch's rule.
px_status px__call_draws(px_call *call, px_generator *generator, int64_t n, int64_t each)
    __attribute__((warn_unused_result));

// The hooks of the layer above (phlox/extend.h), or NULL until it sets them.
extern const px_op_hooks *px__hooks;
extern px_op_flop_callback px__counted;  // atomic; hooks.c
extern bool px__watched;                 // atomic: a thread has had a watch of writes
// The calling thread's keeper of calls and another in its place.
const px_dispatch_hook *px__keeper(void);
void px__keeper_put(const px_dispatch_hook *keeper);

// Fails for the op that this thread looked for last and did not find.
px_status px__no_op(void) __attribute__((warn_unused_result));
// The check of an op that has a policy of autocast and refuses nothing.
px_status px__unchecked(const px_call *call) __attribute__((warn_unused_result));

// Generated (build/gen/ops_table.c).
extern const px_op *const px__op_table[];  // by name
extern const int px__op_table_count;

// Registered ops (registered.c): how many, the i-th, one by name, and its kernel for a device type;
// NULL if there is none.
int px__registered_count(void);
const px_op *px__registered_at(int i);
const px_op *px__registered_find(const char *name);
px_kernel px__registered_kernel_find(const px_op *op, px_device_type type);
