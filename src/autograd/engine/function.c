// SPDX-License-Identifier: Apache-2.0
// Custom functions: nodes with a user-defined backward, and their saved tensors.
#include <stdio.h>

#include "autograd/engine/graph.h"

_Thread_local px_node *px__running;

typedef struct px__custom {
  px_node node;
  px_function function;
  void *context;
  const void **outputs;  // addresses to identify saved outputs; never dereferenced
} px__custom;

// Interned function names.
typedef struct px__kept {
  struct px__kept *next;
  char text[];
} px__kept;
enum { LISTS = 64 };
static px__kept *kept[LISTS];  // guarded by `kept_lock`
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;

static uint32_t hash_of(const char *name) {
  uint32_t hash = 5381;
  for (; *name; name++) hash = hash * 33 + (unsigned char)*name;
  return hash % LISTS;
}

static px_status keep_name(const char **out, const char *name) {
  px__kept **list = &kept[hash_of(name)], *found;
  px_status status = PX_OK;
  pthread_mutex_lock(&kept_lock);
  for (found = *list; found && strcmp(found->text, name); found = found->next)
    ;
  if (!found) {
    size_t length = strlen(name) + 1;
    status = px_alloc((void **)&found, sizeof *found + length);
    if (status == PX_OK) {
      memcpy(found->text, name, length);
      found->next = *list;
      *list = found;
    }
  }
  pthread_mutex_unlock(&kept_lock);
  if (status == PX_OK) *out = found->text;
  return status;
}

// Fails if a backward run for forward mode recorded nothing; its tangent would silently be zero.
static px_status check_forward(const px_node *node, const px__run *run) {
  bool flows = false;
  for (int i = 0; i < node->result_count; i++)
    flows |= run->grads[i] && px__has_history(run->grads[i]);
  for (int i = 0; i < node->edge_count && flows; i++)
    PX_CHECK(!run->out[i] || px__has_history(run->out[i]), PX_UNIMPLEMENTED,
             "forward mode through %s is not implemented: its backward is not differentiable",
             node->name);
  return PX_OK;
}

static px_status apply(px_node *node, const px__run *run) {
  px__custom *self = (px__custom *)node;
  px_node *before = px__running;
  px__running = node;
  px_status status = self->function.backward(run->out, node->edge_count, run->grads,
                                             node->result_count, self->context);
  px__running = before;
  if (status != PX_OK) return px_error_add_frame(status, __FILE__, __LINE__, node->name);
  return px__run_forward() ? check_forward(node, run) : PX_OK;
}

static void drop(px_node *node) {
  px__custom *self = (px__custom *)node;
  if (self->function.drop) self->function.drop(self->context);
}

static void end(px_node *node) {
  px__custom *self = (px__custom *)node;
  if (self->function.release) self->function.release(self->context);
  px_free(self->outputs);
}

static const px__kind plain_kind = {.apply = apply, .end = end},
                      saving_kind = {.apply = apply, .drop = drop, .end = end};

static bool is_custom(const px_node *node) {
  return node && (node->kind == &plain_kind || node->kind == &saving_kind);
}

bool px_node_context(const px_node *node, px_context *out) {
  if (!is_custom(node)) return false;
  const px__custom *self = (const px__custom *)node;
  *out = (px_context){self->context, self->function.release, 0};
  return true;
}

bool px_tensor_context_next(const px_tensor *self, int *position, px_context *out) {
  px__grad_state *state = px__grad_state_of(self);
  int32_t nr;
  PX_SCOPED(px_node) node = px__node_of(state, &nr);
  if (!state) return false;
  if (*position == 0) {  // the node comes first
    *position = 1;
    if (node && px_node_context(node, out)) return true;
  }
  int at = *position - 1;
  bool found = px__hooks_next(state, node, &at, out);
  *position = at + 1;
  return found;
}

static bool is_input(const px_tensor *t, int count, px_tensor *const *inputs) {
  for (int i = 0; i < count; i++)
    if (inputs[i] == t) return true;
  return false;
}

static px_status custom_new(px_node **out, const px_function *function, void *context,
                            int input_count, int output_count, px_tensor *const *outputs) {
  const void **seen = NULL;
  const char *name;
  PX_TRY(keep_name(&name, function->name));
  PX_TRY(px_alloc((void **)&seen, (size_t)output_count * sizeof *seen));
  for (int i = 0; i < output_count; i++) seen[i] = outputs[i];
  px_status status = px__node_new(out, function->drop ? &saving_kind : &plain_kind, name,
                                  sizeof(px__custom), input_count, output_count, outputs);
  px__custom *self = (px__custom *)*out;
  if (status != PX_OK) {
    px_free(seen);
    return status;
  }
  self->function = *function;
  self->context = context;
  self->outputs = seen;
  return PX_OK;
}

// Marks views returned by a function. Changing one in place would bypass the function's gradient.
static void mark_view(px_tensor *output, bool alone) {
  if (!(px_tensor_marks(output) & PX_MARK_VIEW)) return;
  px_tensor_mark(output, PX_MARK_UNRECORDED, false);
  px_tensor_mark(output, alone ? PX_MARK_FUNCTION_VIEW : PX_MARK_MULTI_VIEW, true);
  px_tensor_set_view_version(output, px_tensor_version(output));
}

static px_status connect(px_node *node, int input_count, px_tensor *const *inputs, int output_count,
                         px_tensor *const *outputs) {
  for (int i = 0; i < input_count; i++)
    if (inputs[i]) PX_TRY(px__edge_of(&node->edges[i], inputs[i]));
  px__node_sited(node, NULL);
  for (int i = 0; i < output_count; i++) {
    if (!outputs[i] || !px_dtype_is_differentiable(px_tensor_dtype(outputs[i]))) continue;
    bool changed = is_input(outputs[i], input_count, inputs);
    if (changed && i == 0)
      PX_TRY(px__rebase(outputs[i], node));
    else
      PX_TRY(px__set_history(outputs[i], node, i));
    if (!changed) mark_view(outputs[i], output_count == 1);
  }
  return PX_OK;
}

static px_status check_changed(int input_count, px_tensor *const *inputs, int output_count,
                               px_tensor *const *outputs) {
  PX_CHECK(outputs || output_count <= 0, PX_TYPE, "px_function_record(): `outputs` is NULL");
  for (int i = 0; i < output_count; i++) {
    if (!outputs[i] || !is_input(outputs[i], input_count, inputs)) continue;
    PX_CHECK(!(px_tensor_is_leaf(outputs[i]) && px_tensor_requires_grad(outputs[i])), PX_RUNTIME,
             "a leaf Variable that requires grad has been used in an in-place operation.");
    PX_CHECK(output_count == 1 || !(px_tensor_marks(outputs[i]) & PX_MARK_VIEW), PX_RUNTIME,
             "If your Function modifies inplace an input that is a view of another Tensor, your "
             "Function cannot return more than one Tensor. This is not supported by the current "
             "autograd engine. You should either make sure the input is not a view (using .clone() "
             "for example) or make your Function only return one Tensor (potentially splitting it "
             "into two Functions: one doing the inplace that returns a single Tensor and a second "
             "one that does the other operations).");
    PX_TRY(px__check_inplace(outputs[i]));
  }
  return PX_OK;
}

px_status px_function_record(const px_function *function, void *context, int input_count,
                             px_tensor *const *inputs, int output_count,
                             px_tensor *const *outputs) {
  PX_GIVEN(function);
  bool required = false;
  for (int i = 0; inputs && i < input_count; i++)
    required |= inputs[i] && px__is_recorded(inputs[i]);
  PX_SCOPED(px_node) node = NULL;
  px_status status = PX_OK;
  bool record = required && px__recording();
  if (record) status = check_changed(input_count, inputs, output_count, outputs);
  if (record && status == PX_OK)
    status = custom_new(&node, function, context, input_count, output_count, outputs);
  if (!node && function->release) function->release(context);
  PX_TRY(status);
  return node ? connect(node, input_count, inputs, output_count, outputs) : PX_OK;
}

// ---- saved tensors

struct px_saved {
  px_object head;
  px_tensor *tensor;   // owned; NULL if packed
  px__packed *packed;  // owned: result of pack hooks, or NULL
  const void *origin;  // address of a saved output, or NULL
  px__edge history;    // of an input saved as an alias
  uint64_t version;
  bool alias;
};

static void saved_destroy(void *self) {
  px_saved *saved = self;
  px_release(saved->tensor);
  px_release(saved->packed);
  px_release(saved->history.node);
  px_object_end(saved);
  px_free(saved);
}
static const px_class saved_class = {"saved tensor", saved_destroy};

static px_status keep(px_saved *saved, px_tensor *t, bool is_output) {
  unsigned marks = px_tensor_marks(t);
  PX_CHECK(!(marks & PX_MARK_INFERENCE) || px_inference_enabled(), PX_RUNTIME,
           "Inference tensors cannot be saved for backward. To work around you can make a clone "
           "to get a normal tensor and use it in autograd.");
  saved->version = px_tensor_version(t);
  saved->alias = is_output || !(px__is_origin(t) && (marks & PX_MARK_NEEDS_GRAD));
  if (is_output) saved->origin = t;
  bool itself = !saved->alias || (marks & (PX_MARK_ALIASED | PX_MARK_WRAPPED));
  if (!is_output && (!itself || px__packs(t))) PX_TRY(px__edge_of(&saved->history, t));
  if (!itself) return px_tensor_share(&saved->tensor, t);
  saved->tensor = px_retain(t);
  return PX_OK;
}

// Runs the thread's pack hooks, if any.
static px_status pack_saved(px_saved *saved) {
  if (!px__packs(saved->tensor)) return PX_OK;
  bool before = px__grad_swap(false);
  px_status status = px__pack(&saved->packed, saved->tensor);
  px__grad_swap(before);
  PX_TRY(status);
  px_release(saved->tensor);
  saved->tensor = NULL;
  return PX_OK;
}

px_status px_saved_new(px_saved **out, px_tensor *tensor, bool is_output) {
  PX_GIVEN(out);
  PX_GIVEN(tensor);
  PX_SCOPED(px_saved) saved = NULL;
  PX_TRY(px_alloc((void **)&saved, sizeof *saved));
  px_object_init(saved, &saved_class);
  PX_TRY(keep(saved, tensor, is_output));
  PX_TRY(pack_saved(saved));
  *out = PX_MOVE(saved);
  return PX_OK;
}

static px__edge history_of(const px_saved *saved) {
  if (!saved->origin) return saved->history;
  if (!is_custom(px__running)) return (px__edge){NULL, 0};
  const px__custom *self = (px__custom *)px__running;
  for (int i = 0; i < px__running->result_count; i++)
    if (self->outputs[i] == saved->origin) return (px__edge){px__running, i};
  return (px__edge){NULL, 0};
}

static px_status unpack_saved(px_tensor **out, px_saved *saved, px__edge history) {
  PX_SCOPED(px_tensor) t = NULL;
  PX_TRY(px__unpack(&t, saved->packed));
  bool required = history.node && (!px__is_accumulator(history.node) || px_grad_enabled());
  if (required) return px__with_history(out, t, history);
  if (!history.node) return *out = PX_MOVE(t), PX_OK;
  // A leaf, without recording: one that requires grad, too.
  PX_SCOPED(px_tensor) leaf = NULL;
  PX_TRY(px_tensor_detach(&leaf, t));
  PX_TRY(px_tensor_set_requires_grad(leaf, true));
  *out = PX_MOVE(leaf);
  return PX_OK;
}

px_status px_saved_unpack(px_tensor **out, px_saved *saved, const char *node_name) {
  PX_GIVEN(out);
  PX_GIVEN(saved);
  px__edge history = history_of(saved);
  if (saved->packed) return unpack_saved(out, saved, history);
  const char *maker = saved->origin ? node_name : history.node ? history.node->name : NULL;
  PX_TRY(px__check_version(saved->tensor, saved->version, maker, history.nr));
  if (saved->alias && history.node && !px__is_accumulator(history.node))
    return px__with_history(out, saved->tensor, history);
  *out = px_retain(saved->tensor);
  return PX_OK;
}
