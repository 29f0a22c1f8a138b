// SPDX-License-Identifier: Apache-2.0
// Ops of a program's own. A program registers an op once; from then on px_op_find knows it, and
// px_op_call treats it like an op of the library: defaults, type promotion, broadcasting, in-place
// and out= forms, recording, the race checker, fault points, and its name in errors.
//
// Registering is allowed at any time and from any thread. What is registered does not change and
// stays until the process ends; so must the functions that a definition names.
//
// Example: examples/own_op/.
#pragma once
#include "phlox/op.h"
#ifdef __cplusplus
extern "C" {
#endif

// A kernel and where it runs: "cpu", or the name of a backend ("cuda", "sim"). Where the backend in
// use has no kernel but can run functions of the host, as the simulator can, the CPU's kernel runs.
//
// A kernel gets operands: the results, then the tensor arguments in the order of the schema. Unless
// the op is `strided` they are row-major; those of a pointwise op have the result's sizes and the
// dtype that is computed in (all but the result of a `compare` op, which is bool). With `strided`
// they come as they lie: any strides (0 where repeated), any dtype, numbers as immediate operands.
// A kernel of backend "cuda" queues its work on launch->stream, a CUstream, and does not wait.
typedef struct px_op_kernel {
  const char *device;
  px_kernel run;
} px_op_kernel;

// The form of one result. It is set to the form of the first tensor argument beforehand.
typedef struct px_op_result {
  int ndim;
  int64_t sizes[PX_MAX_DIMS];
  px_dtype dtype;
} px_op_result;

// What a gradient function works on.
typedef struct px_op_gradient {
  const px_op *op;
  // The arguments of the forward call, in the order of the schema. Tensors that were not saved have
  // sizes and dtype, but no memory.
  const px_value *args;
  px_tensor *const *results;  // those that were saved; NULL for the others
  // One a result; NULL where no gradient arrived (never NULL if there is one result).
  px_tensor *const *grads;
  int grad_count;
  uint32_t needs;          // bit i: the gradient of parameter i is wanted
  px_tensor **out;         // one a parameter: a new reference, or NULL for zero
  px_tensor ***out_lists;  // of a Tensor[] parameter i: out_lists[i][k], args[i].n of them
} px_op_gradient;

enum { PX_OP_KERNELS = 8 };
typedef struct px_op_definition {
  // A schema as PyTorch writes it, with a namespace or without one:
  // "toys::squareplus(Tensor self, *, Scalar beta=4) -> Tensor". ops/GRAMMAR.md lists the types.
  // The first parameter of an op that has kernels is a Tensor. Results: `Tensor`,
  // `(Tensor values, Tensor indices)` or `(Tensor, Tensor)`; of composite ops also `()`. What is
  // written behind a type of memory that is shared or changed, `Tensor(a!)`, is passed over.
  const char *schema;
  // What kind of op it is, then words, as in ops/GRAMMAR.md: "pointwise float inplace out".
  // Kinds:
  //   pointwise  each element of the result comes from the elements at its place; needs kernels
  //   kernel     results of any form, see `shape`; needs kernels
  //   function   `run` computes the results; the ops that it calls are not recorded
  //   composite  `run` calls other ops, whose gradients make up its own
  // Words:
  //   promote float compare first whole   how a pointwise op's dtypes follow from its arguments
  //   inplace out                         these forms exist too (of ops with kernels)
  //   strided                             kernels take operands as they lie
  //   method toplevel                     in Python, Tensor.NAME and torch.NAME exist too
  const char *kind;
  // Which dtypes the kernels take: "float32 float64", or a set: "all" (also if NULL), "numeric",
  // "float", "integral", "integer". What they do not take is refused before a launch.
  const char *dtypes;
  const char *doc;                      // one sentence, or NULL
  px_op_kernel kernels[PX_OP_KERNELS];  // up to the first without a device
  // Of kernel ops: changes the forms of the results from what they are set to. NULL: they stay.
  px_status (*shape)(px_op_result *results, const px_value *args);
  // Of function and composite ops: gives every result, a new reference.
  px_status (*run)(px_tensor **results, const px_value *args);
  // Gives the gradients that are wanted, by calling ops; so it can be differentiated in turn. NULL:
  // a backward pass through the op fails (of composite ops: it goes through the ops that `run`
  // called).
  px_status (*gradient)(px_op_gradient *gradient);
  // Which contents `gradient` reads: names of parameters and results, "self, result" ("result" is
  // a lone result's name); "" for none. NULL: all of them.
  const char *saves;
  // In the place of `run`, for code that comes with data, as closures of other languages do. `data`
  // must stay valid.
  px_status (*serve)(void *data, px_tensor **results, const px_value *args);
  void *data;
} px_op_definition;

// Registers an op. PX_VALUE for a schema, kind or dtypes that cannot be read, saying where; for
// parts that are missing or that do not belong to the kind; for a name that is taken. `out` may be
// NULL; *out is constant and lives as long as the process.
PX_CALL px_op_register(const px_op **out, const px_op_definition *definition);

// Loads a shared object and calls its function px_library_entry, which registers ops. Loading it
// again does nothing. PX_IO if it cannot be loaded or has no such function; errors of the function.
// Ops that it registered before it failed stay.
PX_CALL px_op_load_library(const char *path);
typedef px_status (*px_library_entry_fn)(void);
#define PX_LIBRARY_ENTRY "px_library_entry"

// Fails as px_op_call does of an `out` that the result, of the dtype, may not be written to: for
// what writes several tensors, and must know before the first that all may be. args: all of them.
PX_CALL px_op_check_out(const px_op *op, const px_value *args, px_tensor *out, px_dtype dtype);

#ifdef __cplusplus
}
#endif
