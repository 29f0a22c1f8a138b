// SPDX-License-Identifier: Apache-2.0
// Registered ops: shared by registration and execution.
//
// A px__registered holds the descriptor of a registered op and everything it points to. One thread
// fills it and publishes it. Afterwards only `found` changes, and it is never freed.
#pragma once
#include "call/call_impl.h"
#include "phlox/register.h"

// A parsed schema. Owns its texts and lists in `text` and `ints`.
typedef struct px__schema {
  const char *name;  // with its namespace
  const char *bare;  // without
  px_param params[PX__MAX_PARAMS];
  int param_count;
  const char *result_names[PX__MAX_RESULTS];  // "result" for a single unnamed one
  int result_count;
  char *text;  // owned
  int64_t ints[PX__MAX_PARAMS * PX_MAX_DIMS];
  int int_count;
} px__schema;
// PX_VALUE: 'bad schema "...", character 7: unknown type 'Tnsor''. Requires px__schema_end, also
// after a failure.
px_status px__schema_read(px__schema *out, const char *schema) __attribute__((warn_unused_result));
void px__schema_end(px__schema *schema);

struct px__registered {
  px_op op;
  px__op_impl impl;
  px_kernel found[PX_DEVICE_TYPES];  // kernels by device type; atomic
  px__schema schema;
  px_op_kernel kernels[PX_OP_KERNELS + 1];  // terminated by device NULL
  px_status (*shape)(px_op_result *results, const px_value *args);
  px_status (*run)(px_tensor **results, const px_value *args);
  px_status (*serve)(void *data, px_tensor **results, const px_value *args);
  void *data;
  bool strided;
  char *texts;  // doc, device names, gradient name; owned
};

// Publishes a complete op and takes ownership. PX_VALUE if the name is taken; the caller then keeps
// it.
px_status px__registered_add(px__registered *r) __attribute__((warn_unused_result));

// Runs the gradient on small tensors. PX_VALUE if it fails only without the contents of a tensor or
// a result that `saves` does not name. Does nothing for function ops, since their results are
// unknown, and if the gradient fails with all contents.
px_status px__registered_try_gradient(const px__registered *r) __attribute__((warn_unused_result));

// Run functions of registered ops, by kind (registered_run.c).
px_status px__registered_pointwise(px_call *call) __attribute__((warn_unused_result));
px_status px__registered_kernel(px_call *call) __attribute__((warn_unused_result));
px_status px__registered_function(px_call *call) __attribute__((warn_unused_result));
