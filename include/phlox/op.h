// SPDX-License-Identifier: Apache-2.0
// Ops as data: each op has a constant descriptor, and one function calls any of them.
//
// The named functions (px_add, px_softmax, ...; phlox/ops.h) are generated from the same tables
// (ops/*.op); they fill an array of px_value and call px_op_call.
#pragma once
#include "phlox/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

struct px_op_gradient;

typedef struct px_param {
  const char *name;
  uint8_t kind;   // px_arg_kind
  bool optional;  // may be PX_ARG_NONE
  bool keyword_only;
  bool has_default;
  bool worded;                // of integers: a word may stand in their place
  bool passing;               // of a layer: no attribute, as where a tensor has the name
  bool owned;                 // of a layer: numbers of the list may be PX_OWN_SIZE
  px_value fallback;          // the default
  const char *fallback_text;  // as in the schema
} px_param;

typedef enum px_op_kind {
  PX_OP_POINTWISE,
  PX_OP_REDUCE,
  PX_OP_VIEW,
  PX_OP_KERNEL,
  PX_OP_FUNCTION,
  PX_OP_COMPOSITE
} px_op_kind;
enum {
  PX_OP_IS_METHOD = 1,      // Tensor.name(...)
  PX_OP_IS_FUNCTION = 2,    // phlox.name(...)
  PX_OP_HAS_INPLACE = 4,    // name_(...)
  PX_OP_HAS_OUT = 8,        // name(..., out=)
  PX_OP_RETURNS_LIST = 16,  // the result is a px_list
  PX_OP_IS_FACTORY = 32,    // makes tensors from no tensor: dtype and device arguments
  PX_OP_IS_NN = 64,         // phlox.nn.functional.name(...)
  PX_OP_RANDOM = 128,
  PX_OP_ONLY_INPLACE =
      256,             // exists as name_ only (normal_, scatter_...): px_name_ is the C function
  PX_OP_HIDDEN = 512,  // not in Python's namespaces: backward kernels and the like
  PX_OP_TAKES_NUMBERS = 1024,  // for tensors after the first, as pointwise ops do, or the first
  PX_OP_REGISTERED = 2048,     // by a program (phlox/register.h)
  PX_OP_AUTOCASTS = 4096,      // has a policy of mixed precision, of some device type
  PX_OP_TENSORS_ALONE = 8192,  // from Python no number stands in the place of a tensor
  PX_OP_ONE_NUMBER = 16384,    // from Python one of the first two may be a number, either of them
  PX_OP_UNCONJUGATED = 32768,  // its gradient is of complex numbers as they are, not conjugated
  PX_OP_OF_COMPLEX = 65536     // NAME_of_complex, the form of NAME with tensors for its Scalars
};
// What mixed precision (phlox/autocast.h) does with the floating-point tensors that an op is given.
typedef enum px_autocast_policy {
  PX_AUTOCAST_NONE,     // nothing
  PX_AUTOCAST_LOWER,    // casts them to the dtype of the autocast region: products, convolutions
  PX_AUTOCAST_FLOAT32,  // casts them to float32: what would overflow or lose digits
  PX_AUTOCAST_WIDEST,   // casts them to the widest of their dtypes
  PX_AUTOCAST_NEVER,    // refuses to be called
  PX_AUTOCAST_PLAIN     // nothing, nor with those that it gives to other ops
} px_autocast_policy;
typedef struct px_op {
  const char *name, *schema, *doc;
  const char *grad_name;            // "AddBackward0"
  const char *const *result_names;  // result_count names ("values", "indices") or NULL
  const px_param *params;
  uint8_t kind, param_count, result_count;
  uint32_t flags;
  uint32_t grad_mask;         // parameters (bit i) that have a gradient formula
  uint32_t save_mask;         // parameters whose tensors the formulas mention
  uint32_t shape_mask;        // parameters of which the formulas read sizes or dtype
  uint32_t save_result_mask;  // results that the formulas mention
  const void *impl;           // the library's own: src/call/op_impl.h
  // param_count masks, or NULL for "all of the above": what the formula of parameter i mentions,
  // parameters in the low 16 bits, results in the high ones. Only what the wanted gradients need is
  // saved.
  const uint32_t *save_for;
  // The name in Python. Several ops may share one (max, max_dim): a call means the first by
  // px_op_at whose parameters take its arguments.
  const char *python_name;
  // Its other names in Python, between spaces, or NULL: `multiply` is a function and a method,
  // `nn.relu` in nn.functional, `torch.conv2d` a function, `special.expit` one of torch.special.
  const char *aliases;
  const char *remarks;                // lines: shapes, dtypes, errors, an example; or NULL
  uint8_t autocast[PX_DEVICE_TYPES];  // px_autocast_policy
  // The gradient function, or NULL.
  px_status (*gradient)(struct px_op_gradient *gradient);
} px_op;

// Returns what error texts call a kind of argument: "Tensor", "tuple of ints"; "object" if there is
// no such kind.
PX_API const char *px_arg_name(int kind);

// The number of ops, registered ones included; the i-th, in the order of their names, registered
// ones last; an op by name, without the trailing underscore of in-place forms. NULL if there is
// none.
PX_API int px_op_count(void);
PX_API const px_op *px_op_at(int i);
PX_API const px_op *px_op_find(const char *name);

typedef enum px_call_mode { PX_CALL_NEW, PX_CALL_INPLACE, PX_CALL_OUT } px_call_mode;
// Calls an op. `args` are op->param_count values in the order of the schema; PX_ARG_NONE means the
// default, and a number may take the place of a tensor.
//   NEW      results[0..result_count) get new references; of an op that gives a list, results[0]
//            gets a px_list *
//   INPLACE  self is the first argument; results[0] gets a new reference to it. An op without such
//   a
//            form is computed, and its result copied into self
//   OUT      results[0] is a borrowed tensor, which is resized if it has another size; it gets a
//            new reference to it
// Errors have PyTorch's class and text; a call that fails changes nothing. Example:
//   px_value args[16] = {PX_T(a), PX_T(b)};
//   void *sum = NULL;
//   PX_TRY(px_op_call(px_op_find("add"), PX_CALL_NEW, args, &sum));
PX_CALL px_op_call(const px_op *op, px_call_mode mode, const px_value *args, void **results);
// Calls an op `count` times in turn, as px_op_call does, with the arguments args[i *
// op->param_count ...] and results[i * op->result_count ...]. Calls on a device that do not depend
// on each other's results are issued together there, as one launch where it has a kernel for that:
// then many small tensors take hardly longer than one. After a call that fails no other is made;
// *done is how many were, whose results the caller has.
//   px_value args[2 * 3] = {PX_T(a), PX_T(b), PX_S(px_int(1)), PX_T(c), PX_T(d), PX_S(px_int(1))};
//   void *sums[2];
//   int done;
//   PX_TRY(px_op_call_each(px_op_find("add"), PX_CALL_NEW, 2, args, sums, &done));
PX_CALL px_op_call_each(const px_op *op, px_call_mode mode, int count, const px_value *args,
                        void **results, int *done);
// Between the two, what the calling thread launches on devices is collected, and issued together as
// px_op_call_each does; what waits, or lets others wait, issues it first. Pairs do not nest: an
// inner end ends both. The end gives `so_far` if that is an error; else it fails if something could
// not be issued: what was called in between may not have been computed.
//   px_together_begin();
//   for (int i = 0; i < count && status == PX_OK; i++) status = px_mul_(gradients[i], factor);
//   PX_TRY(px_together_end(status));
PX_API void px_together_begin(void);
PX_CALL px_together_end(px_status so_far);

// Writes a call with its arguments, "add(f32[2,3]@cuda:0, ...)", to `text`, which is cut to `room`
// bytes; returns `text`.
PX_API const char *px_op_describe(const px_op *op, const px_value *args, char *text, size_t room);

#ifdef __cplusplus
}
#endif
