// SPDX-License-Identifier: Apache-2.0
// User-defined ops. A registered op is found by px_op_find, and px_op_call treats it like an op of
// the library: defaults, type promotion, broadcasting, in-place and out= forms, recording, the race
// checker, fault points, and its name in errors.
//
// Ops may be registered at any time from any thread. A registered op never changes and lives until
// the process exits; so must the functions of its definition.
//
// Example: examples/own_op/.
#pragma once
#include "phlox/op.h"
#ifdef __cplusplus
extern "C" {
#endif

// A kernel and its device: "cpu", or the name of a backend ("cuda", "sim"). If the backend in use
// has no kernel but runs host functions, as the simulator does, it uses the CPU kernel.
//
// Operands of a kernel are the results, then the tensor arguments in schema order. Unless the op is
// `strided` they are row-major. Those of a pointwise op have the result's sizes and the compute
// dtype, except the bool result of a `compare` op. With `strided` they are passed unchanged: any
// strides (0 if broadcast), any dtype, numbers as immediate operands. A kernel of backend "cuda"
// queues its work on launch->stream, a CUstream, without waiting.
typedef struct px_op_kernel {
  const char *device;
  px_kernel run;
} px_op_kernel;

// Shape and dtype of one result. Initialised from the first tensor argument.
typedef struct px_op_result {
  int ndim;
  int64_t sizes[PX_MAX_DIMS];
  px_dtype dtype;
} px_op_result;

// The arguments of a gradient function.
typedef struct px_op_gradient {
  const px_op *op;
  // The arguments of the forward call, in schema order. Unsaved tensors have sizes and dtype, but
  // no memory.
  const px_value *args;
  px_tensor *const *results;  // saved results; NULL for the others
  // One for each result; NULL if no gradient arrived (never NULL for a single result).
  px_tensor *const *grads;
  int grad_count;
  uint32_t needs;          // bit i: the gradient of parameter i is requested
  px_tensor **out;         // one for each parameter: a new reference, or NULL for zero
  px_tensor ***out_lists;  // for a Tensor[] parameter i: out_lists[i][k], args[i].n of them
} px_op_gradient;

enum { PX_OP_KERNELS = 8 };
typedef struct px_op_definition {
  // A schema in PyTorch's syntax, with or without namespace: "toys::squareplus(Tensor self, *,
  // Scalar beta=4) -> Tensor". ops/GRAMMAR.md lists the types. The first parameter of an op with
  // kernels is a Tensor. Results: `Tensor`, `(Tensor values, Tensor indices)` or `(Tensor,
  // Tensor)`; for composite ops also `()`. Alias annotations, `Tensor(a!)`, are ignored.
  const char *schema;
  // The kind, followed by words, as in ops/GRAMMAR.md: "pointwise float inplace out".
  // Kinds:
  //   pointwise  result elements depend on the arguments' elements at their index; needs kernels
  //   kernel     results of any shape, see `shape`; needs kernels
  //   function   `run` computes the results; its inner calls are not recorded
  //   composite  `run` calls other ops, whose gradients form its gradient
  // Words:
  //   promote float compare first whole   how a pointwise op's dtypes depend on its arguments
  //   inplace out                         enables these forms (for ops with kernels)
  //   strided                             kernels take operands with any strides and dtypes
  //   method toplevel                     adds Tensor.NAME and torch.NAME in Python
  const char *kind;
  // Dtypes supported by the kernels: "float32 float64", or a set: "all" (also if NULL), "numeric",
  // "float", "integral", "integer". Others fail before a launch.
  const char *dtypes;
  const char *doc;                      // one sentence, or NULL
  px_op_kernel kernels[PX_OP_KERNELS];  // up to the first without a device
  // Kernel ops: changes the shapes of the results from their initial values. NULL: no change.
  px_status (*shape)(px_op_result *results, const px_value *args);
  // Function and composite ops: returns every result as a new reference.
  px_status (*run)(px_tensor **results, const px_value *args);
  // Computes the requested gradients by calling ops, so it is itself differentiable. NULL: a
  // backward pass through the op fails (for composite ops: it uses the ops called by `run`).
  px_status (*gradient)(px_op_gradient *gradient);
  // Contents read by `gradient`: names of parameters and results, "self, result" ("result" names a
  // single result); "" for none. NULL: all of them. px_op_register calls the gradient of an op with
  // kernels on 2 x 2 tensors, and fails with PX_VALUE if it reads other contents. A backward pass
  // that reads other contents fails with PX_RUNTIME.
  const char *saves;
  // Replaces `run` for code with data, such as closures of other languages. `data` must stay valid.
  px_status (*serve)(void *data, px_tensor **results, const px_value *args);
  void *data;
} px_op_definition;

// Registers an op. PX_VALUE for a schema, kind or dtypes with a syntax error, with its position;
// for parts that are missing or not allowed for the kind; for a name already in use. `out` may be
// NULL; *out is constant and lives until the process exits.
PX_CALL px_op_register(const px_op **out, const px_op_definition *definition);

// Loads a shared object and calls its function px_library_entry, which registers ops. Loading it
// again does nothing. PX_IO if it cannot be loaded or lacks the function; or the error of the
// function. Ops registered before a failure remain.
PX_CALL px_op_load_library(const char *path);
typedef px_status (*px_library_entry_fn)(void);
#define PX_LIBRARY_ENTRY "px_library_entry"

// Checks `out` as a px_op_call with out= would, for a result of `dtype`. For code writing several
// tensors that must validate all before writing the first. args: all arguments.
PX_CALL px_op_check_out(const px_op *op, const px_value *args, px_tensor *out, px_dtype dtype);

#ifdef __cplusplus
}
#endif
