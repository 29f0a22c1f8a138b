// SPDX-License-Identifier: Apache-2.0
// Stress test: functions that change an optimizer, a module or a gradient beside functions that use
// it, on two threads. To add a pair, add a row to `rows`.
#define TSAN_SUPPRESSIONS CONTENTS_RACE
#include "pairs.h"
#include "phlox/layers.h"
#include "phlox/optimizers.h"
#include "phlox/phlox.h"

enum { SIZE = 4, MAX_GROUPS = 8 };

typedef struct world {
  px_tensor *leaf;                  // has a gradient most of the time
  px_tensor *input, *slope, *rate;  // constants
  px_module *module;                // Sequential of Linear, BatchNorm1d and Dropout
  px_module *linear;                // its first child at first; `leaf` is the weight
  px_dict *state;
  px_optimizer *optimizer;
} world;

// An action on the world `w`.
#define ACTION(name) static px_status name(void *shared)
#define W ((world *)shared)

// ---- gradients

ACTION(set_grad) { return px_tensor_set_grad(W->leaf, W->slope); }

ACTION(replace_grad) {
  PX_SCOPED(px_tensor) fresh = NULL;
  PX_TRY(px_clone(&fresh, W->slope, NULL));
  return px_tensor_set_grad(W->leaf, fresh);
}

ACTION(remove_grad) { return px_tensor_set_grad(W->leaf, NULL); }

ACTION(read_grad) {
  PX_SCOPED(px_tensor) grad = NULL;
  PX_TRY(px_tensor_get_grad(&grad, W->leaf));
  if (grad) CHECK_EQ(px_tensor_numel(grad), SIZE * SIZE);
  return PX_OK;
}

ACTION(clear_grads) { return px_clear_grads(&W->leaf, 1, false); }
ACTION(clip_norm) { return px_clip_grad_norm(NULL, &W->leaf, 1, 1, 2, false); }
ACTION(clip_value) { return px_clip_grad_value(&W->leaf, 1, 1); }
ACTION(module_zero_grad) { return px_module_zero_grad(W->module); }

// ---- optimizers

ACTION(step) { return px_optimizer_step(W->optimizer); }
ACTION(zero_grad) { return px_optimizer_zero_grad(W->optimizer, true); }
ACTION(zero_grad_in_place) { return px_optimizer_zero_grad(W->optimizer, false); }

ACTION(add_group) {
  PX_SCOPED(px_tensor) fresh = NULL;
  if (px_optimizer_groups(W->optimizer) >= MAX_GROUPS) return PX_OK;
  PX_TRY(px_clone(&fresh, W->slope, NULL));
  return px_optimizer_add(W->optimizer, &fresh, 1);
}

ACTION(set_option) { return px_optimizer_set(W->optimizer, -1, "lr", 0.25); }
ACTION(set_rate) { return px_optimizer_set_rate(W->optimizer, -1, W->rate); }
ACTION(set_initial) { return px_optimizer_set_initial_lr(W->optimizer, 0, 0.5); }

ACTION(replace_rate) {
  PX_SCOPED(px_tensor) fresh = NULL;
  PX_TRY(px_clone(&fresh, W->rate, NULL));
  return px_optimizer_set_rate(W->optimizer, 0, fresh);
}

ACTION(replace_state) {
  PX_SCOPED(px_tensor) fresh = NULL;
  PX_TRY(px_clone(&fresh, W->slope, NULL));
  return px_optimizer_set_state(W->optimizer, 0, 0, "exp_avg", fresh);
}

ACTION(remove_state) { return px_optimizer_set_state(W->optimizer, 0, 0, "exp_avg", NULL); }

ACTION(read_optimizer) {
  double value;
  int reader = px_optimizer_read_begin(W->optimizer);
  for (int g = 0; g < px_optimizer_groups(W->optimizer); g++) {
    const px_tensor *state = px_optimizer_state(W->optimizer, g, 0, "exp_avg");
    if (state) CHECK_EQ(px_tensor_numel(state), SIZE * SIZE);
    CHECK_EQ(px_tensor_numel(px_optimizer_parameter(W->optimizer, g, 0)), SIZE * SIZE);
    OK(px_optimizer_get(&value, W->optimizer, g, "lr"));
    (void)px_optimizer_initial_lr(W->optimizer, g);
  }
  px_optimizer_read_end(W->optimizer, reader);
  return PX_OK;
}

ACTION(schedule) {
  px_schedule stairs = {.kind = px_scheduler_kind_find("StepLR"), .options = (double[]){2, 0.5}};
  return px_optimizer_schedule(W->optimizer, &stairs, 2);
}

// ---- modules

ACTION(replace_parameter) {
  PX_SCOPED(px_tensor) fresh = NULL;
  PX_TRY(px_zeros(&fresh, (int64_t[]){SIZE}, 1, PX_FLOAT32, px_cpu(), true, false));
  return px_module_register_parameter(W->linear, "bias", fresh);
}

ACTION(move_entry) {
  PX_SCOPED(px_tensor) fresh = NULL;
  PX_TRY(px_zeros(&fresh, (int64_t[]){SIZE}, 1, PX_FLOAT32, px_cpu(), false, false));
  PX_TRY(px_module_put(W->linear, &(px_module_entry){"extra", PX_ENTRY_BUFFER, true, fresh, NULL}));
  return px_module_put(W->linear,
                       &(px_module_entry){"extra", PX_ENTRY_PARAMETER, true, fresh, NULL});
}

ACTION(change_buffers) {
  PX_SCOPED(px_tensor) fresh = NULL;
  PX_TRY(px_zeros(&fresh, (int64_t[]){SIZE}, 1, PX_FLOAT32, px_cpu(), false, false));
  PX_TRY(px_module_register_buffer(W->module, "buffer", fresh, true));
  return px_module_remove(W->module, "buffer");
}

ACTION(change_children) {
  PX_SCOPED(px_module) fresh = NULL;
  PX_TRY(px_linear_new(&fresh, SIZE, SIZE));
  PX_TRY(px_module_register_module(W->module, "9", fresh));
  return px_module_remove(W->module, "9");
}

ACTION(replace_child) {
  PX_SCOPED(px_module) fresh = NULL;
  PX_TRY(px_linear_new(&fresh, SIZE, SIZE));
  return px_module_register_module(W->module, "0", fresh);
}

ACTION(set_attribute) {
  return px_module_set_attribute(W->linear, "note", PX_TX("a text of a module"));
}

static px_status run_hook(px_tensor **replacement, px_module *self, px_tensor *const *inputs,
                          int count, px_tensor *result, void *context) {
  CHECK_EQ(*(int *)context, SIZE);
  return PX_OK;
}

ACTION(change_hooks) {
  int64_t id;
  int *context = malloc(sizeof *context);
  *context = SIZE;
  PX_TRY(px_module_add_hook(&id, W->linear, true, run_hook, context, free));
  px_module_remove_hook(W->linear, id);
  return PX_OK;
}

ACTION(train) { return px_module_train(W->module, true); }
ACTION(evaluate) { return px_module_train(W->module, false); }

ACTION(forward) {
  PX_SCOPED(px_tensor) out = NULL;
  px_grad_set_enabled(false);
  px_status status = px_module_call(&out, W->module, W->input);
  px_grad_set_enabled(true);
  return status;
}

ACTION(forward_and_backward) {
  PX_SCOPED(px_tensor) out = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(px_module_call(&out, W->linear, W->input));
  PX_TRY(px_sum(&sum, out, NULL, 0, false, PX_DTYPE_NONE));
  return px_backward(1, &sum, NULL, false, false);
}

static px_status visit(const char *name, const px_module_entry *entry, px_module *owner,
                       void *context) {
  CHECK(strlen(name) < 64);
  if (entry->tensor) CHECK(px_tensor_numel(entry->tensor) <= SIZE * SIZE);
  return PX_OK;
}

ACTION(walk) { return px_module_walk(W->module, 7, "", true, false, visit, NULL); }

ACTION(list_parameters) {
  PX_SCOPED(px_list) all = NULL;
  return px_module_parameters(&all, W->module);
}

ACTION(save_state) {
  PX_SCOPED(px_dict) state = NULL;
  return px_module_state_dict(&state, W->module, "");
}

ACTION(load_state) { return px_module_load_state_dict(W->module, W->state, false); }

ACTION(print) {
  char *text = NULL;
  PX_TRY(px_module_text(&text, W->module));
  px_free(text);
  return PX_OK;
}

static px_status share(px_tensor **out, px_tensor *tensor, px_entry_sort sort, void *context) {
  *out = NULL;
  return PX_OK;
}

ACTION(copy) {
  PX_SCOPED(px_module) made = NULL;
  return px_module_copy(&made, W->module, share, NULL);
}

ACTION(read_entries) {
  px_module_entry entry;
  px_hook_entry hook;
  int reader = px_module_read_begin(W->linear);
  for (int i = 0; px_module_entry_at(W->linear, 7, i, &entry); i++)
    (void)visit(entry.name, &entry, W->linear, NULL);
  if (px_module_hook_at(W->linear, 0, &hook)) CHECK_EQ(*(int *)hook.context, SIZE);
  px_value note = px_module_attribute(W->linear, "note");
  if (note.kind == PX_ARG_TEXT) CHECK_TEXT(note.v.text, "a text of a module");
  px_module_read_end(W->linear, reader);
  return PX_OK;
}

ACTION(convert) {
  PX_TRY(px_module_to(W->module, PX_FLOAT64, px_cpu(), false));
  return px_module_to(W->module, PX_FLOAT32, px_cpu(), false);
}

ACTION(freeze) {
  PX_TRY(px_module_requires_grad(W->module, false));
  return px_module_requires_grad(W->module, true);
}

ACTION(replace_data) {
  PX_SCOPED(px_tensor) fresh = NULL;
  PX_TRY(px_clone(&fresh, W->slope, NULL));
  return px_tensor_set_data(W->leaf, fresh);
}

// ---- pairs

// Actions of one set run with each other.
enum { GRADIENTS = 1, OPTIMIZERS = 2, MODULES = 4 };
#define ROW(function, sets) \
  { {#function, function}, sets }
static const struct {
  action action;
  int sets;
} rows[] = {
    ROW(set_grad, GRADIENTS),
    ROW(replace_grad, GRADIENTS | OPTIMIZERS),
    ROW(remove_grad, GRADIENTS | OPTIMIZERS),
    ROW(read_grad, GRADIENTS),
    ROW(clear_grads, GRADIENTS),
    ROW(clip_norm, GRADIENTS),
    ROW(clip_value, GRADIENTS),
    ROW(module_zero_grad, GRADIENTS | MODULES),
    ROW(step, GRADIENTS | OPTIMIZERS),
    ROW(zero_grad, GRADIENTS | OPTIMIZERS),
    ROW(zero_grad_in_place, GRADIENTS | OPTIMIZERS),
    ROW(forward_and_backward, GRADIENTS | MODULES),
    ROW(replace_data, GRADIENTS | OPTIMIZERS | MODULES),
    ROW(add_group, OPTIMIZERS),
    ROW(set_option, OPTIMIZERS),
    ROW(set_rate, OPTIMIZERS),
    ROW(replace_rate, OPTIMIZERS),
    ROW(set_initial, OPTIMIZERS),
    ROW(replace_state, OPTIMIZERS),
    ROW(remove_state, OPTIMIZERS),
    ROW(read_optimizer, OPTIMIZERS),
    ROW(schedule, OPTIMIZERS),
    ROW(replace_parameter, MODULES),
    ROW(move_entry, MODULES),
    ROW(change_buffers, MODULES),
    ROW(change_children, MODULES),
    ROW(replace_child, MODULES),
    ROW(set_attribute, MODULES),
    ROW(change_hooks, MODULES),
    ROW(train, MODULES),
    ROW(evaluate, MODULES),
    ROW(forward, MODULES),
    ROW(walk, MODULES),
    ROW(list_parameters, MODULES),
    ROW(save_state, MODULES),
    ROW(load_state, MODULES),
    ROW(print, MODULES),
    ROW(convert, MODULES),
    ROW(freeze, MODULES),
    ROW(copy, MODULES),
    ROW(read_entries, MODULES),
};
enum { ROWS = sizeof rows / sizeof *rows };

static void begin(world *w) {
  PX_SCOPED(px_module) norm = NULL;
  PX_SCOPED(px_module) drop = NULL;
  px_module_entry weight;
  OK(px_linear_new(&w->linear, SIZE, SIZE));
  OK(px_batch_norm1d_new(&norm, SIZE));
  OK(px_dropout_new(&drop));
  OK(px_sequential_new(&w->module, (px_module *[]){w->linear, norm, drop}, 3));
  CHECK(px_module_entry_find(w->linear, "weight", &weight));
  w->leaf = px_retain(weight.tensor);
  OK(px_ones(&w->input, (int64_t[]){SIZE, SIZE}, 2, PX_FLOAT32, px_cpu(), false, false));
  OK(px_ones(&w->slope, (int64_t[]){SIZE, SIZE}, 2, PX_FLOAT32, px_cpu(), false, false));
  OK(px_ones(&w->rate, (int64_t[]){1}, 1, PX_FLOAT32, px_cpu(), false, false));
  OK(px_module_state_dict(&w->state, w->module, ""));
  OK(px_adam_new(&w->optimizer, &w->leaf, 1));
  OK(px_tensor_set_grad(w->leaf, w->slope));
}

static void end(world *w) {
  px_release(w->leaf), px_release(w->input), px_release(w->slope), px_release(w->rate);
  px_release(w->module), px_release(w->linear), px_release(w->state);
  px_release(w->optimizer);
}

static void run_pairs(int set) {
  int64_t before = px_live_objects(NULL);
  for (int a = 0; a < ROWS; a++)
    for (int b = a; b < ROWS; b++) {
      world w = {0};
      if (!(rows[a].sets & rows[b].sets & set)) continue;
      begin(&w);
      run_pair(&rows[a].action, &rows[b].action, &w);
      end(&w);
    }
  CHECK_EQ(px_live_objects(NULL), before);
}

PX_TEST(threads_share_gradients) { run_pairs(GRADIENTS); }
PX_TEST(threads_share_an_optimizer) { run_pairs(OPTIMIZERS); }
PX_TEST(threads_share_a_module) { run_pairs(MODULES); }
