// SPDX-License-Identifier: Apache-2.0
// Differentiation: the graph recorded by ops, and the reverse-mode engine that runs it. Forward
// mode (px_jvp) uses the same graph.
//
// A node is the backward of one op. It holds the tensors its formulas need and edges to the nodes
// of its inputs, and is immutable once recorded. The engine runs a graph of one device on the
// calling thread. In a graph of several devices, each device's nodes run on that device's worker
// thread. A node runs with the forward op's stream as the current stream. On the caller's current
// streams, a backward call is ordered like a single op.
//
// Example: examples/own_gradient.c.
#pragma once
#include "phlox/autocast.h"
#include "phlox/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct px_node px_node;

// Modes of the calling thread. docs/reference/threads.md lists the modes that library threads
// inherit.
PX_API bool px_grad_enabled(void);
PX_API void px_grad_set_enabled(bool enabled);
PX_API bool px_inference_enabled(void);
PX_API void px_inference_set_enabled(bool enabled);
// All modes of a thread, to be copied to a thread working on its behalf. `grad` is the value of
// px_grad_set_enabled, also under inference mode; `device` is px_device_preferred.
typedef struct px_modes {
  bool grad, inference;
  px_device device;
  px_autocast autocast;
  int16_t forward;  // active levels of forward mode; 0: dual tensors count as constants
} px_modes;
PX_API px_modes px_modes_get(void);
PX_API void px_modes_set(px_modes modes);
// Whether backward passes started by this thread run nodes of several devices on one thread for
// each device (default), or on this thread alone. Per thread.
PX_API bool px_multithreading_enabled(void);
PX_API void px_multithreading_set_enabled(bool enabled);
// Anomaly detection, for the whole process.
PX_API bool px_anomaly_enabled(void);
PX_API void px_anomaly_set(bool enabled, bool check_nan);
PX_API bool px_anomaly_checks_nan(void);  // default: true

PX_API bool px_tensor_requires_grad(const px_tensor *self);
// Sets requires_grad. PX_RUNTIME for a tensor that is not floating-point, and when clearing it on a
// tensor with history.
PX_CALL px_tensor_set_requires_grad(px_tensor *self, bool requires_grad);
PX_API bool px_tensor_is_leaf(const px_tensor *self);
// True if calls with self are recorded now, in reverse or forward mode.
PX_API bool px_tensor_is_recorded(const px_tensor *self);
PX_API bool px_tensor_is_inference(const px_tensor *self);
// The accumulated gradient, borrowed, or NULL. It is valid until it is replaced: use
// px_tensor_get_grad, a new reference, if another thread may set or remove it. Setting NULL removes
// it. PX_RUNTIME if device, dtype or sizes of `grad` differ from self's.
PX_API px_tensor *px_tensor_grad(const px_tensor *self);
PX_CALL px_tensor_get_grad(px_tensor **out, const px_tensor *self);
PX_CALL px_tensor_set_grad(px_tensor *self, px_tensor *grad);
// Accumulates into .grad also for a tensor with history. PX_RUNTIME unless self requires grad.
PX_CALL px_tensor_retain_grad(px_tensor *self);
PX_API bool px_tensor_retains_grad(const px_tensor *self);
// Returns the node that made self, borrowed, or NULL for a leaf. Brings the history of a view up to
// date first. px_tensor_output_nr returns the index of self among the node's results.
// px_tensor_get_grad_fn returns a new reference, for programs whose threads may change self in
// place.
PX_CALL px_tensor_grad_fn(px_node **out, px_tensor *self);
PX_CALL px_tensor_get_grad_fn(px_node **out, px_tensor *self);
PX_API int px_tensor_output_nr(const px_tensor *self);
// Removes the history of self, in place.
PX_CALL px_tensor_detach_inplace(px_tensor *self);

// A gradient hook. It receives the gradient of a tensor and may replace it: *out is a new
// reference, or NULL to keep the gradient. `grad` is NULL if other results of the tensor's node
// have gradients alone. Removing the hook calls release(context).
typedef px_status (*px_grad_hook)(px_tensor **out, px_tensor *grad, void *context);
PX_CALL px_tensor_add_hook(int64_t *id, px_tensor *self, px_grad_hook hook, void *context,
                           void (*release)(void *context));
PX_API void px_tensor_remove_hook(px_tensor *self, int64_t id);
// Returns the hook of an id, borrowed, or NULL. A retained hook can still be removed after the
// tensor was destroyed, while the graph is alive. It keeps neither the tensor nor the context
// alive.
typedef struct px_hook px_hook;
PX_API px_hook *px_tensor_hook(const px_tensor *self, int64_t id);
PX_API void px_hook_remove(px_hook *hook);
// Adds a hook called after the gradient of a leaf was accumulated.
PX_CALL px_tensor_add_accumulated_hook(int64_t *id, px_tensor *self,
                                       px_status (*hook)(px_tensor *self, void *context),
                                       void *context, void (*release)(void *context));

// A node hook. It runs before the node (after = false) and may replace the gradients of the node's
// results, or after the node and may replace the gradients of its inputs. `grads` are the
// replaceable ones, `others` those of the other side. To replace grads[i], which may be NULL,
// release it and store a new reference. *out, a new reference, serves to remove the hook. The hook
// lives as long as the node.
typedef px_status (*px_node_hook)(px_tensor **grads, int count, px_tensor *const *others,
                                  int other_count, void *context);
PX_CALL px_node_add_hook(px_hook **out, px_node *self, bool after, px_node_hook hook, void *context,
                         void (*release)(void *context));

// A user pointer of the node, borrowed, or NULL. It can be set once; `release` is called when the
// node is destroyed.
PX_API void *px_node_user(const px_node *self);
PX_CALL px_node_set_user(px_node *self, void *note, void (*release)(void *note));

// Exchanges all of two tensors but their identity: memory, geometry, gradient, history, hooks.
// Owners of a tensor then own the other's contents. `owners` are the references that the caller
// knows. PX_RUNTIME if there are others, except that of a leaf's AccumulateGrad node; running it
// then fails.
PX_CALL px_tensor_swap(px_tensor *self, int32_t owners, px_tensor *other, int32_t other_owners);
// For garbage collectors of embedding languages. px_tensor_is_sole is true if self has only
// `owners` references and self is the only owner of the node that made it. px_tensor_context_next
// returns the next context that would be released with self: of a hook (`hook` is its id) or of a
// user function (`hook` is 0); false past the end. *position is 0 before the first one.
typedef struct px_context {
  void *context;
  void (*release)(void *context);
  int64_t hook;
} px_context;
// Returns the context of the user function run by a node; false for other nodes.
PX_API bool px_node_context(const px_node *node, px_context *out);
PX_API bool px_tensor_is_sole(const px_tensor *self, int32_t owners);
PX_API bool px_tensor_context_next(const px_tensor *self, int *position, px_context *out);

// Computes the gradients of `outputs` and adds them to .grad of the leaves. `gradients` are the
// initial gradients, shaped like `outputs`. NULL, or a NULL element, means 1 for an output of one
// element. PX_RUNTIME if an output does not require grad, if an earlier call freed the graph, or if
// a tensor needed by a formula was changed in place.
PX_CALL px_backward(int64_t count, px_tensor *const *outputs, px_tensor *const *gradients,
                    bool retain_graph, bool create_graph);
// The same for `inputs` alone: adds the gradients to their .grad. Inputs that are not leaves keep
// them as after px_tensor_retain_grad. PX_RUNTIME for an input that does not require grad, and for
// none.
//
//   PX_TRY(px_backward_inputs(1, &loss, NULL, 1, &weight, false, false));
PX_CALL px_backward_inputs(int64_t count, px_tensor *const *outputs, px_tensor *const *gradients,
                           int64_t input_count, px_tensor *const *inputs, bool retain_graph,
                           bool create_graph);
// Computes the gradients of `outputs` with respect to `inputs`. results[i] are new references;
// .grad is not touched. The gradient of an unused input is NULL with allow_unused, else PX_RUNTIME.
PX_CALL px_grad(px_tensor **results, int64_t count, px_tensor *const *outputs,
                px_tensor *const *gradients, int64_t input_count, px_tensor *const *inputs,
                bool retain_graph, bool create_graph, bool allow_unused);
// Computes tangents: the directional derivatives of `outputs` when `inputs` move by `tangents`,
// which have the sizes and dtypes of `inputs`. results[i] is a new reference, or NULL for an output
// that depends on no input. The graph is kept. With create_graph, the tangents have a history, too.
// PX_RUNTIME if a tangent has other sizes or a backward formula cannot be differentiated;
// PX_UNIMPLEMENTED if a tangent has another dtype.
PX_CALL px_jvp(px_tensor **results, int64_t count, px_tensor *const *outputs, int64_t input_count,
               px_tensor *const *inputs, px_tensor *const *tangents, bool create_graph);

// Forward mode by dual tensors: values with a tangent. Between px_duals_begin and px_duals_end,
// px_dual_make makes a dual tensor, calls with dual tensors return dual tensors, also with grad
// mode off, and px_dual_tangents returns their tangents. Reverse mode sees only the history of the
// underlying tensors. Levels nest and belong to the thread.
typedef struct px_duals px_duals;
PX_CALL px_duals_begin(px_duals **out);
PX_API void px_duals_end(px_duals *level_take);  // tensors remain, as constants
// Makes a dual tensor over self's memory with the given tangent. Sizes, dtype and errors as px_jvp.
PX_CALL px_dual_make(px_tensor **out, px_duals *level, px_tensor *self, px_tensor *tangent);
// Returns the tangents of tensors, as px_jvp does; NULL for a tensor independent of the level's
// dual tensors. The tangents are differentiable if they depend on differentiable tensors.
PX_CALL px_dual_tangents(px_tensor **results, px_duals *level, int64_t count,
                         px_tensor *const *tensors);
// Makes a tensor over self's memory without tangent, with self's reverse-mode history. Inside two
// or more levels it returns self, including tangents of the outer levels.
PX_CALL px_dual_primal(px_tensor **out, px_tensor *self);
// Makes a tensor over self's memory with self's tangent, without reverse-mode history.
PX_CALL px_dual_change(px_tensor **out, px_tensor *self);
// Makes a reverse-mode variable over self's memory with self's tangent. Its node is "DualVariable",
// with the leaf as the first edge.
PX_CALL px_dual_variable(px_tensor **out, px_tensor *self);
PX_API bool px_tensor_is_dual(const px_tensor *self);

// The name ("AddBackward0"), the edges and the sequence number of a node. Edge i is the node of
// input i, borrowed, or NULL; *output_nr is the index of the input among that node's results.
// Sequence numbers increase in the order of recording.
PX_API const char *px_node_name(const px_node *node);
PX_API int px_node_edge_count(const px_node *node);
PX_API px_node *px_node_edge(const px_node *node, int i, int *output_nr);
PX_API uint64_t px_node_sequence(const px_node *node);
// Makes a placeholder for a result of a node, for px_grad and px_backward after the result itself
// was destroyed. It has the result's sizes over the memory of one element. For the node of a leaf,
// returns the leaf.
PX_CALL px_node_result(px_tensor **out, px_node *node, int nr);
// For hooks: the number of the running backward call, and whether it will run `node`, which may be
// destroyed already. Outside a backward call they return 0 and false.
PX_API uint64_t px_backward_number(void);
PX_API bool px_backward_will_run(const px_node *node);
// For hooks: queues fn(context) to run after the thread's outermost backward call succeeds and
// before it returns, on the calling thread and its current streams, in the order queued. Takes
// ownership of `context`, also on failure.
PX_CALL px_backward_at_end(px_status (*fn)(void *context), void *context,
                           void (*release)(void *context));
// The leaf of an AccumulateGrad node, borrowed; NULL for other nodes.
PX_API px_tensor *px_node_variable(const px_node *node);

// A user-defined function. `backward` receives one gradient for each output, NULL if none arrived,
// and returns one for each input: a new reference, or NULL for zero.
typedef struct px_function {
  const char *name;  // copied
  px_status (*backward)(px_tensor **grad_inputs, int input_count, px_tensor *const *grad_outputs,
                        int output_count, void *context);
  void (*release)(void *context);
  // Releases the saved tensors after a backward call without retain_graph; a second call then
  // fails. NULL if nothing was saved.
  void (*drop)(void *context);
} px_function;
// Makes `outputs` the results of one node with edges to `inputs`. An input that is NULL or does not
// require grad has no edge. An output that is also an input counts as changed in place. Records
// nothing if grad mode is off or no input requires grad. Takes ownership of `context`, also on
// failure, and releases it with the node.
PX_CALL px_function_record(const px_function *function, void *context, int input_count,
                           px_tensor *const *inputs, int output_count, px_tensor *const *outputs);
// Schedules the node's backward before all other ready nodes, like those of leaves. For nodes whose
// work runs on a separate stream, concurrently with the rest. Call it before any backward call.
PX_API void px_node_prioritize(px_node *node);
// A tensor saved by a user function. An output is saved without its history, to avoid reference
// cycles.
typedef struct px_saved px_saved;
PX_CALL px_saved_new(px_saved **out, px_tensor *tensor, bool is_output);
// Returns the saved tensor. PX_RUNTIME if it was changed in place since; the message names the
// function `node_name`, which may be NULL. During a backward call with create_graph, an output has
// its history again.
PX_CALL px_saved_unpack(px_tensor **out, px_saved *saved, const char *node_name);

// Hooks of the calling thread for tensors saved by later calls. The last pushed hooks apply until
// popped. `pack` receives a tensor and returns in *out the object to keep instead; it must not
// change the tensor, and nothing is recorded while it runs. Each backward call needing the tensor
// calls `unpack`, which returns a new reference of the same shape, dtype and device; PX_RUNTIME
// otherwise. release_packed releases the packed object. Wrapped numbers are not packed.
typedef struct px_saved_hooks {
  px_status (*pack)(void **out, px_tensor *tensor, void *context);
  px_status (*unpack)(px_tensor **out, void *packed, void *context);
  void (*release_packed)(void *packed);
  void (*release)(void *context);  // called after the pop and the last packed object; or NULL
} px_saved_hooks;
// Pushes hooks. On failure the caller keeps the context.
PX_CALL px_saved_hooks_push(const px_saved_hooks *hooks, void *context);
PX_API void px_saved_hooks_pop(void);  // no-op if the thread has none
// Makes later pushes of hooks on the calling thread fail with PX_RUNTIME and this message, which is
// copied; NULL allows them again. Fails with the same error if hooks are active.
PX_CALL px_saved_hooks_disable(const char *message);
PX_API const char *px_saved_hooks_disabled(void);  // the message, or NULL

// Lets the calling thread change saved tensors in place: tensors saved by its calls from now on are
// copied before one of its calls writes their memory. PX_RUNTIME if already active, or if hooks for
// saved tensors are disabled. The end drops them all: a later backward call needing one fails with
// PX_ASSERTION. Both nest with hooks for saved tensors.
PX_CALL px_saved_mutable_begin(void);
PX_API void px_saved_mutable_end(void);  // no-op without a begin
// Returns the tensors saved in this mode and still unchanged, or, with `copies`, the copies of the
// changed ones.
PX_CALL px_saved_mutable_list(px_list **out, bool copies);

// Compares the gradients of fn, a function with one result, with central differences. Inputs should
// be float64. PX_RUNTIME "Jacobian mismatch ..." if they differ.
PX_CALL px_gradcheck(px_status (*fn)(px_tensor **out, px_tensor *const *inputs, void *context),
                     void *context, int input_count, px_tensor *const *inputs, double eps,
                     double atol, double rtol);
// The same for second derivatives.
PX_CALL px_gradgradcheck(px_status (*fn)(px_tensor **out, px_tensor *const *inputs, void *context),
                         void *context, int input_count, px_tensor *const *inputs, double eps,
                         double atol, double rtol);

#ifdef __cplusplus
}
#endif
