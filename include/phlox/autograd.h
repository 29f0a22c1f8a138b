// SPDX-License-Identifier: Apache-2.0
// Differentiation: the graph that ops record, and the engine that runs it, in reverse mode. Forward
// mode (px_jvp) goes through the same graph.
//
// A node is the backward of one op: it has what the formulas need, and edges to the nodes of its
// inputs. Once recorded, it does not change. The engine runs a graph of one device on the calling
// thread; in a graph of several devices, each device's nodes run on its worker thread. A node runs
// with the stream of the forward op as the current one. On the caller's current streams, a backward
// call is ordered like one op.
//
// Example: examples/own_gradient.c.
#pragma once
#include "phlox/autocast.h"
#include "phlox/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct px_node px_node;

// Modes of the calling thread. docs/threads.md says what threads of the library take over.
PX_API bool px_grad_enabled(void);
PX_API void px_grad_set_enabled(bool enabled);
PX_API bool px_inference_enabled(void);
PX_API void px_inference_set_enabled(bool enabled);
// All modes of a thread, for one that works on its behalf: `grad` is what px_grad_set_enabled set,
// also under inference mode; `device` is px_device_preferred.
typedef struct px_modes {
  bool grad, inference;
  px_device device;
  px_autocast autocast;
  int16_t forward;  // levels of forward mode that are under way; 0: its tensors count as constants
} px_modes;
PX_API px_modes px_modes_get(void);
PX_API void px_modes_set(px_modes modes);
// Of the process.
PX_API bool px_anomaly_enabled(void);
PX_API void px_anomaly_set(bool enabled, bool check_nan);
PX_API bool px_anomaly_checks_nan(void);  // true unless it was set otherwise

PX_API bool px_tensor_requires_grad(const px_tensor *self);
// PX_RUNTIME for tensors that are not floating-point, and for switching off on a tensor with
// history.
PX_CALL px_tensor_set_requires_grad(px_tensor *self, bool requires_grad);
PX_API bool px_tensor_is_leaf(const px_tensor *self);
// Whether calls with self are recorded now, in either mode.
PX_API bool px_tensor_is_recorded(const px_tensor *self);
PX_API bool px_tensor_is_inference(const px_tensor *self);
// The accumulated gradient, borrowed, or NULL. Setting it, NULL for none, gives PX_RUNTIME if
// device, dtype or size differ from self's.
PX_API px_tensor *px_tensor_grad(const px_tensor *self);
PX_CALL px_tensor_set_grad(px_tensor *self, px_tensor *grad);
// Keeps the gradient of a tensor with history, too, in .grad. PX_RUNTIME unless it requires grad.
PX_CALL px_tensor_retain_grad(px_tensor *self);
PX_API bool px_tensor_retains_grad(const px_tensor *self);
// Gives the node that made self, borrowed, or NULL for a leaf; updates the history of a view first.
// And which result of the node self is.
PX_CALL px_tensor_grad_fn(px_node **out, px_tensor *self);
PX_API int px_tensor_output_nr(const px_tensor *self);
// Removes self's history, in place.
PX_CALL px_tensor_detach_inplace(px_tensor *self);

// A hook gets the gradient of a tensor and may replace it: *out is a new reference, or NULL to keep
// the gradient. release(context) is called when the hook is removed.
typedef px_status (*px_grad_hook)(px_tensor **out, px_tensor *grad, void *context);
PX_CALL px_tensor_add_hook(int64_t *id, px_tensor *self, px_grad_hook hook, void *context,
                           void (*release)(void *context));
PX_API void px_tensor_remove_hook(px_tensor *self, int64_t id);
// A hook as an object, borrowed, or NULL: who keeps it may remove it when the tensor has ended too,
// while the graph still has it. It does not keep the tensor, nor the context.
typedef struct px_hook px_hook;
PX_API px_hook *px_tensor_hook(const px_tensor *self, int64_t id);
PX_API void px_hook_remove(px_hook *hook);
// The same, called after the gradient of a leaf has been accumulated.
PX_CALL px_tensor_add_accumulated_hook(int64_t *id, px_tensor *self,
                                       px_status (*hook)(px_tensor *self, void *context),
                                       void *context, void (*release)(void *context));

// A hook of a node runs before the node, and may replace the gradients of its results; or after it,
// and may replace those of its inputs, knowing the others. Who replaces grads[i], which may be
// NULL, releases it and puts a new reference. *out, a new reference, is for removing it; the hook
// lives as long as the node.
typedef px_status (*px_node_hook)(px_tensor **grads, int count, px_tensor *const *others,
                                  int other_count, void *context);
PX_CALL px_node_add_hook(px_hook **out, px_node *self, bool after, px_node_hook hook, void *context,
                         void (*release)(void *context));

// What a program keeps with a node, borrowed, or NULL; set once, and released when the node ends.
PX_API void *px_node_note(const px_node *self);
PX_CALL px_node_set_note(px_node *self, void *note, void (*release)(void *note));

// For garbage collectors of embedding languages. px_tensor_is_sole: whether nothing but `owners`
// references keeps self, and nothing but self the node that made it. The contexts of hooks and of a
// program's function that then end with self; `hook` is the id, or 0. False past the end.
typedef struct px_context {
  void *context;
  void (*release)(void *context);
  int64_t hook;
} px_context;
// Of the program's function that a node runs; false for other nodes.
PX_API bool px_node_context(const px_node *node, px_context *out);
PX_API bool px_tensor_is_sole(const px_tensor *self, int32_t owners);
PX_API bool px_tensor_context_at(const px_tensor *self, int i, px_context *out);

// Computes the gradients of `outputs` and adds them to .grad of the leaves. `gradients` are those
// to begin with, of the shapes of `outputs`; NULL, or an element that is NULL, means 1, for an
// output of one element. PX_RUNTIME if an output does not require grad, if the graph was freed by
// an earlier call, or if a tensor that a formula needs was changed in place.
PX_CALL px_backward(int64_t count, px_tensor *const *outputs, px_tensor *const *gradients,
                    bool retain_graph, bool create_graph);
// Gives the gradients of `outputs` with respect to `inputs` in results[i], new references; leaves
// nothing in .grad. For an input that was not used: NULL if that is allowed, else PX_RUNTIME.
PX_CALL px_grad(px_tensor **results, int64_t count, px_tensor *const *outputs,
                px_tensor *const *gradients, int64_t input_count, px_tensor *const *inputs,
                bool retain_graph, bool create_graph, bool allow_unused);
// Gives the tangents of `outputs`: how they change where `inputs` change by `tangents`, which have
// their sizes and dtypes. results[i] is a new reference, or NULL for an output that depends on no
// input. The graph is kept; with create_graph the tangents have a history, too. PX_RUNTIME if a
// tangent has other sizes or a gradient has none of its own, PX_UNIMPLEMENTED if it has another
// dtype.
PX_CALL px_jvp(px_tensor **results, int64_t count, px_tensor *const *outputs, int64_t input_count,
               px_tensor *const *inputs, px_tensor *const *tangents, bool create_graph);

// Forward mode by dual tensors: a number together with its change. Between px_duals_begin and
// px_duals_end, px_dual_make makes one, calls with dual tensors give dual tensors, also while grad
// mode is off, and px_dual_tangents tells their changes. Reverse mode does not see them, but for
// what it sees of the tensors that they were made of. Levels nest. A level belongs to the thread.
typedef struct px_duals px_duals;
PX_CALL px_duals_begin(px_duals **out);
PX_API void px_duals_end(px_duals *level_take);  // tensors stay, and are constants
// Makes a tensor over self's memory that changes by `tangent`, of which the same holds as in
// px_jvp.
PX_CALL px_dual_make(px_tensor **out, px_duals *level, px_tensor *self, px_tensor *tangent);
// Gives the tangents of tensors, as px_jvp does; NULL for one that does not depend on the level's
// dual tensors. They can be derived, where they depend on what can.
PX_CALL px_dual_tangents(px_tensor **results, px_duals *level, int64_t count,
                         px_tensor *const *tensors);
// Gives a tensor over self's memory that has no change, and self's history of reverse mode. Within
// two levels or more it is self, which may change by the outer ones.
PX_CALL px_dual_primal(px_tensor **out, px_tensor *self);
// Gives a tensor over self's memory that changes as self does, without history of reverse mode.
PX_CALL px_dual_change(px_tensor **out, px_tensor *self);
// Gives a variable of reverse mode over self's memory that changes as self does; of its node,
// "DualVariable", the first edge leads to the leaf.
PX_CALL px_dual_variable(px_tensor **out, px_tensor *self);
PX_API bool px_tensor_is_dual(const px_tensor *self);

// The name, "AddBackward0"; the edges: the node of the i-th input, borrowed, perhaps NULL, and
// which of its results the input is; the number in the order of recording.
PX_API const char *px_node_name(const px_node *node);
PX_API int px_node_edge_count(const px_node *node);
PX_API px_node *px_node_edge(const px_node *node, int i, int *output_nr);
PX_API uint64_t px_node_sequence(const px_node *node);
// Makes a tensor that stands for a result of a node in px_grad and px_backward, after the result
// itself has ended: of its sizes, but with one element's memory. Of a leaf's node it is the leaf.
PX_CALL px_node_result(px_tensor **out, px_node *node, int nr);
// Within a hook: the number of the backward call, and whether it comes to a node, which may have
// ended. 0, false outside.
PX_API uint64_t px_backward_number(void);
PX_API bool px_backward_reaches(const px_node *node);
// Within a hook: has fn(context) called when the outermost backward call that the thread is inside
// of has run well, by the thread that made it and on its current streams, before it returns; in the
// order of these calls. It takes over `context`, also on failure, and releases it.
PX_CALL px_backward_at_end(px_status (*fn)(void *context), void *context,
                           void (*release)(void *context));
// The leaf of an AccumulateGrad node, borrowed; NULL for other nodes.
PX_API px_tensor *px_node_variable(const px_node *node);

// A program's own function. `backward` gets one gradient for each output, NULL if none arrived, and
// gives one for each input: a new reference, or NULL for zero.
typedef struct px_function {
  const char *name;  // copied
  px_status (*backward)(px_tensor **grad_inputs, int input_count, px_tensor *const *grad_outputs,
                        int output_count, void *context);
  void (*release)(void *context);
  // Releases what was saved, after a backward call that does not retain the graph; a second call
  // then fails. NULL if nothing was saved.
  void (*drop)(void *context);
} px_function;
// Makes `outputs` the results of one node, with edges to `inputs` (none to an input that is NULL or
// does not require grad). An output that is also an input counts as changed in place. If grad mode
// is off, or no input requires grad, it records nothing. It takes over `context`, also on failure,
// and releases it when the node ends.
PX_CALL px_function_record(const px_function *function, void *context, int input_count,
                           px_tensor *const *inputs, int output_count, px_tensor *const *outputs);
// Has the backward of a node come before all others that are ready, as those of leaves do: of one
// whose work goes on a stream of its own, beside that of other nodes. Before any backward call.
PX_API void px_node_set_soon(px_node *node);
// A tensor that is saved for a program's function. An output is saved without its history, so that
// references form no cycle.
typedef struct px_saved px_saved;
PX_CALL px_saved_new(px_saved **out, px_tensor *tensor, bool is_output);
// Gives the saved tensor. PX_RUNTIME if it was changed in place since. `node_name`, for the
// message, is the name of the function, or NULL. While backward runs with create_graph, an output
// has its history again.
PX_CALL px_saved_unpack(px_tensor **out, px_saved *saved, const char *node_name);

// Hooks of the calling thread, for the tensors that calls save for backward: those pushed last
// serve, until they are popped. pack gets a tensor and gives, in *out, what is kept in its place;
// it may not change the tensor, and nothing is recorded while it runs. Each backward call that
// needs the tensor has unpack give it again: a new reference, of the same shape, dtype and device,
// else PX_RUNTIME. release_packed releases what pack gave. Not called for wrapped numbers.
typedef struct px_saved_hooks {
  px_status (*pack)(void **out, px_tensor *tensor, void *context);
  px_status (*unpack)(px_tensor **out, void *packed, void *context);
  void (*release_packed)(void *packed);
  void (*release)(void *context);  // when they are popped and nothing is kept by them, or NULL
} px_saved_hooks;
// The context stays the caller's on failure.
PX_CALL px_saved_hooks_push(const px_saved_hooks *hooks, void *context);
PX_API void px_saved_hooks_pop(void);  // nothing where the thread has none
// From here on the calling thread refuses to push hooks, with PX_RUNTIME and this text, which is
// copied; NULL: no more. If hooks are pushed already, it is refused in the same way.
PX_CALL px_saved_hooks_disable(const char *message);
PX_API const char *px_saved_hooks_disabled(void);  // the text, or NULL

// From here on, what calls of this thread save for backward may be changed in place: it is copied
// before a call of this thread writes its memory. PX_RUNTIME if that is so already, or if hooks for
// saved tensors are disabled. The end gives all of it up: a later backward that needs it fails with
// PX_ASSERTION. Both nest with hooks for saved tensors.
PX_CALL px_saved_mutable_begin(void);
PX_API void px_saved_mutable_end(void);  // nothing without a begin
// Gives the tensors that are saved so and not changed, or the copies of the others.
PX_CALL px_saved_mutable_list(px_list **out, bool copies);

// Compares the gradients of fn, which gives one tensor, with central differences; inputs should be
// float64. PX_RUNTIME "Jacobian mismatch ..." if they differ.
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
