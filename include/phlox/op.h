// SPDX-License-Identifier: Apache-2.0
// Ops as data: a constant descriptor for each op, and one function to call any of them.
//
// The named functions (px_add, px_softmax, ...; phlox/ops.h) are generated from the same tables
// (ops/*.op). They fill an array of px_value and call px_op_call.
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
  bool accepts_word;          // integers: a word may replace them
  bool no_attribute;          // layers: not an attribute, since a tensor has the name
  bool accepts_own_size;      // layers: list elements may be PX_OWN_SIZE
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
  PX_OP_IS_FACTORY = 32,    // has no tensor arguments but a dtype and device
  PX_OP_IS_NN = 64,         // phlox.nn.functional.name(...)
  PX_OP_RANDOM = 128,
  PX_OP_ONLY_INPLACE =
      256,             // exists only as name_ (normal_, scatter_...): px_name_ is the C function
  PX_OP_HIDDEN = 512,  // not in Python's namespaces (backward kernels and others)
  PX_OP_TAKES_NUMBERS = 1024,  // as tensors after the first, as in pointwise ops, or as the first
  PX_OP_REGISTERED = 2048,     // by a program (phlox/register.h)
  PX_OP_AUTOCASTS = 4096,      // has an autocast policy for some device type
  PX_OP_TENSORS_ONLY = 8192,   // from Python, numbers do not replace tensors
  PX_OP_ONE_NUMBER = 16384,    // from Python, one of the first two tensors may be a number
  PX_OP_UNCONJUGATED = 32768,  // its complex gradient is not conjugated
  PX_OP_OF_COMPLEX = 65536     // NAME_of_complex: the form of NAME with tensors for its Scalars
};
// Autocast (phlox/autocast.h) of an op's floating-point tensor arguments.
typedef enum px_autocast_policy {
  PX_AUTOCAST_NONE,     // no cast
  PX_AUTOCAST_LOWER,    // to the region's dtype: matrix products, convolutions
  PX_AUTOCAST_FLOAT32,  // to float32: ops that would overflow or lose digits
  PX_AUTOCAST_WIDEST,   // to the widest of their dtypes
  PX_AUTOCAST_PLAIN     // no cast, also in the op's inner calls
} px_autocast_policy;
typedef struct px_op {
  const char *name, *schema, *doc;
  const char *grad_name;            // "AddBackward0"
  const char *const *result_names;  // result_count names ("values", "indices") or NULL
  const px_param *params;
  uint8_t kind, param_count, result_count;
  uint32_t flags;
  uint32_t grad_mask;         // bit i: parameter i has a gradient formula
  uint32_t save_mask;         // parameters whose tensors are used by the formulas
  uint32_t shape_mask;        // parameters whose sizes or dtype are used by the formulas
  uint32_t save_result_mask;  // results used by the formulas
  const void *impl;           // private: src/call/op_impl.h
  // param_count masks, or NULL for "all of the above": the tensors used by the formula of parameter
  // i, parameters in the low 16 bits, results in the high 16. Only tensors needed for the requested
  // gradients are saved.
  const uint32_t *save_for;
  // The name in Python. Several ops may share one (max, max_dim): a call selects the first, in
  // px_op_at order, with matching parameters.
  const char *python_name;
  // Further names in Python, separated by spaces, or NULL: `multiply` is a function and a method,
  // `nn.relu` is in nn.functional, `torch.conv2d` is a function, `special.expit` is in
  // torch.special.
  const char *aliases;
  const char *remarks;                // lines: shapes, dtypes, errors, an example; or NULL
  uint8_t autocast[PX_DEVICE_TYPES];  // px_autocast_policy
  // The gradient function, or NULL.
  px_status (*gradient)(struct px_op_gradient *gradient);
} px_op;

// Returns the name of an argument kind in error texts: "Tensor", "tuple of ints"; "object" for an
// unknown kind.
PX_API const char *px_arg_name(int kind);

// Return the number of ops, including registered ones; the i-th, in order of names with registered
// ones last; an op by name, without the trailing underscore of in-place forms. NULL if there is
// none.
PX_API int px_op_count(void);
PX_API const px_op *px_op_at(int i);
PX_API const px_op *px_op_find(const char *name);

typedef enum px_call_mode { PX_CALL_NEW, PX_CALL_INPLACE, PX_CALL_OUT } px_call_mode;
// Calls an op. `args` are op->param_count values in schema order. PX_ARG_NONE means the default,
// and a number may replace a tensor.
//   NEW      results[0..result_count) receive new references; an op returning a list stores a
//            px_list * in results[0]
//   INPLACE  self is the first argument; results[0] receives a new reference to it. For an op
//            without such a form, the result is computed and copied into self
//   OUT      results[0] is a borrowed tensor, resized if it has another size; it receives a new
//            reference to it
// Errors have PyTorch's class and text. A failing call changes nothing. Example:
//   px_value args[16] = {PX_T(a), PX_T(b)};
//   void *sum = NULL;
//   PX_TRY(px_op_call(px_op_find("add"), PX_CALL_NEW, args, &sum));
PX_CALL px_op_call(const px_op *op, px_call_mode mode, const px_value *args, void **results);
// Calls an op `count` times in order, like px_op_call, with arguments args[i * op->param_count ...]
// and results[i * op->result_count ...]. Calls on a device that do not depend on each other's
// results are batched, into one launch if the device has a kernel for it: many small tensors take
// little longer than one. Stops at the first failure. *done is the number of successful calls; the
// caller owns their results.
//   px_value args[2 * 3] = {PX_T(a), PX_T(b), PX_S(px_int(1)), PX_T(c), PX_T(d), PX_S(px_int(1))};
//   void *sums[2];
//   int done;
//   PX_TRY(px_op_call_batch(px_op_find("add"), PX_CALL_NEW, 2, args, sums, &done));
PX_CALL px_op_call_batch(const px_op *op, px_call_mode mode, int count, const px_value *args,
                         void **results, int *done);
// Launch batching. Between begin and end, the calling thread's launches on devices are collected
// and issued as in px_op_call_batch. An operation that waits, or makes others wait, issues them
// first. Pairs do not nest: an inner end ends both. The end returns `so_far` if that is an error.
// Else it fails if a launch could not be issued; calls in between may then not have been computed.
//   px_launch_batch_begin();
//   for (int i = 0; i < count && status == PX_OK; i++) status = px_mul_(gradients[i], factor);
//   PX_TRY(px_launch_batch_end(status));
PX_API void px_launch_batch_begin(void);
PX_CALL px_launch_batch_end(px_status so_far);

// Writes a call with its arguments, "add(f32[2,3]@cuda:0, ...)", to `text`, truncated to `room`
// bytes. Returns `text`.
PX_API const char *px_op_describe(const px_op *op, const px_value *args, char *text,
                                  size_t capacity);

// ---- attention
// The settings PX_SETTING_SDP_FLASH and its neighbours (phlox/device.h) enable the tiled kernel of
// scaled_dot_product_attention and set its priority.
//
// Returns a sentence naming the first argument that the tiled kernel does not support, or NULL if
// it supports all. attn_mask may be NULL. With enable_gqa, several heads of query may share one
// head of key and value. The text is valid until the thread's next call of this function.
PX_API const char *px_attention_unsupported(const px_tensor *query, const px_tensor *key,
                                            const px_tensor *value, const px_tensor *attn_mask,
                                            double dropout_p, bool is_causal, bool enable_gqa);

#ifdef __cplusplus
}
#endif
