// SPDX-License-Identifier: Apache-2.0
// Reverse-mode differentiation: the graph that ops record, and the engine that walks it.
//
// A node is one op's backward: it holds what the formulas need and the edges to the nodes of its
// inputs. Nodes are immutable once recorded. The engine runs a graph of one device on the calling
// thread; in a graph of several, each device's nodes run on a worker thread of that device. A node
// runs with the stream of the forward op current; a backward call is ordered on the ambient streams
// as if it were one op.
#pragma once
#include "phlox/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct px_node px_node;

// Modes of the calling thread.
PX_API bool px_grad_enabled(void);
PX_API void px_grad_set_enabled(bool enabled);
PX_API bool px_inference_enabled(void);
PX_API void px_inference_set_enabled(bool enabled);
PX_API bool px_anomaly_enabled(void);
PX_API void px_anomaly_set(bool enabled, bool check_nan);
PX_API bool px_anomaly_checks_nan(void);  // true unless it was set otherwise

PX_API bool px_tensor_requires_grad(const px_tensor *self);
// PX_RUNTIME for integer tensors and for non-leaves when switching off.
PX_CALL px_tensor_set_requires_grad(px_tensor *self, bool requires_grad);
PX_API bool px_tensor_is_leaf(const px_tensor *self);
PX_API bool px_tensor_is_inference(const px_tensor *self);
// The accumulated gradient, borrowed, or NULL. Setting checks device, dtype and size; NULL clears.
PX_API px_tensor *px_tensor_grad(const px_tensor *self);
PX_CALL px_tensor_set_grad(px_tensor *self, px_tensor *grad);
// Keeps .grad of a non-leaf.
PX_CALL px_tensor_retain_grad(px_tensor *self);
PX_API bool px_tensor_retains_grad(const px_tensor *self);
// The node that made self, borrowed, NULL for leaves (brings the history of a view up to date
// first); and which result it is.
PX_CALL px_tensor_grad_fn(px_node **out, px_tensor *self);
PX_API int px_tensor_output_nr(const px_tensor *self);
// Cuts self from its history, in place.
PX_CALL px_tensor_detach_inplace(px_tensor *self);

// A hook sees the gradient and may return another (*out, a new reference; NULL keeps it).
// `release(context)` when removed.
typedef px_status (*px_grad_hook)(px_tensor **out, px_tensor *grad, void *context);
PX_CALL px_tensor_add_hook(int64_t *id, px_tensor *self, px_grad_hook hook, void *context,
                           void (*release)(void *context));
PX_API void px_tensor_remove_hook(px_tensor *self, int64_t id);
// Called after a leaf's gradient was accumulated.
PX_CALL px_tensor_add_accumulated_hook(int64_t *id, px_tensor *self,
                                       px_status (*hook)(px_tensor *self, void *context),
                                       void *context, void (*release)(void *context));

// Accumulates gradients of `outputs` into the leaves. gradients may be NULL, or have NULLs for
// scalars.
PX_CALL px_backward(int64_t count, px_tensor *const *outputs, px_tensor *const *gradients,
                    bool retain_graph, bool create_graph);
// Gradients of `outputs` with respect to `inputs`: results[i], new references (NULL for unused ones
// if allowed).
PX_CALL px_grad(px_tensor **results, int64_t count, px_tensor *const *outputs,
                px_tensor *const *gradients, int64_t input_count, px_tensor *const *inputs,
                bool retain_graph, bool create_graph, bool allow_unused);

// "AddBackward0"; edges: the i-th input's node (borrowed, may be NULL) and which of its results.
PX_API const char *px_node_name(const px_node *node);
PX_API int px_node_edge_count(const px_node *node);
PX_API px_node *px_node_edge(const px_node *node, int i, int *output_nr);
PX_API uint64_t px_node_sequence(const px_node *node);
// AccumulateGrad's variable, borrowed; NULL for other nodes. The embedding language's object, as
// for tensors.
PX_API px_tensor *px_node_variable(const px_node *node);

// A user's own function: backward is called with one gradient per result (NULL where none arrived)
// and fills one per input (new references or NULL).
typedef struct px_function {
  const char *name;  // copied
  px_status (*backward)(px_tensor **grad_inputs, int input_count, px_tensor *const *grad_outputs,
                        int output_count, void *context);
  void (*release)(void *context);
  // Lets go of what was saved, after a backward call that does not retain the graph: a second one
  // then fails. NULL where nothing was saved.
  void (*drop)(void *context);
} px_function;
// Makes `outputs` results of one node whose edges go to `inputs` (NULL or not requiring grad: no
// edge). An output that is also an input is taken as modified in place. Does nothing (and releases
// context) where grad mode is off or no input requires grad. The context is consumed, on failure
// too.
PX_CALL px_function_record(const px_function *function, void *context, int input_count,
                           px_tensor *const *inputs, int output_count, px_tensor *const *outputs);
// A tensor saved for a user's function: checks the version on unpacking, and drops its own history
// if it is an output.
typedef struct px_saved px_saved;
PX_CALL px_saved_new(px_saved **out, px_tensor *tensor, bool is_output);
// PX_RUNTIME if it was modified in place since. `node_name` is the function that unpacks (may be
// NULL). While the function's backward runs under create_graph, an output has its history again.
PX_CALL px_saved_unpack(px_tensor **out, px_saved *saved, const char *node_name);

// Compares analytic gradients with central differences in float64, of fn(inputs) -> one tensor.
// PX_RUNTIME "Jacobian mismatch ..." where they differ.
PX_CALL px_gradcheck(px_status (*fn)(px_tensor **out, px_tensor *const *inputs, void *context),
                     void *context, int input_count, px_tensor *const *inputs, double eps,
                     double atol, double rtol);
// The same of the gradients of fn: compares second derivatives.
PX_CALL px_gradgradcheck(px_status (*fn)(px_tensor **out, px_tensor *const *inputs, void *context),
                         void *context, int input_count, px_tensor *const *inputs, double eps,
                         double atol, double rtol);

#ifdef __cplusplus
}
#endif
