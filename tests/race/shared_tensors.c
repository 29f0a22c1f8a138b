// SPDX-License-Identifier: Apache-2.0
// Stress test: each function that changes a tensor beside each that reads it, on two threads.
#define TSAN_SUPPRESSIONS CONTENTS_RACE
#include "pairs.h"
#include "phlox/phlox.h"

typedef struct world {
  px_tensor *leaf;     // requires a gradient, and has one most of the time
  px_tensor *product;  // has history
  px_tensor *plain;    // changes its shape and its memory
  px_tensor *small, *large, *grad;
  px_storage *storage;  // the first memory of `plain`
} world;

static px_status begin(world *w) {
  int64_t sizes[] = {4, 1, 8}, few[] = {2}, many[] = {4, 1, 8, 16};
  PX_TRY(px_ones(&w->leaf, sizes, 3, PX_FLOAT32, px_cpu(), false, true));
  PX_TRY(px_mul(&w->product, w->leaf, w->leaf));
  PX_TRY(px_ones(&w->plain, sizes, 3, PX_FLOAT32, px_cpu(), false, false));
  PX_TRY(px_ones(&w->small, few, 1, PX_FLOAT32, px_cpu(), false, false));
  PX_TRY(px_ones(&w->large, many, 4, PX_FLOAT32, px_cpu(), false, false));
  PX_TRY(px_ones(&w->grad, sizes, 3, PX_FLOAT32, px_cpu(), false, false));
  w->storage = px_retain(px_tensor_storage(w->plain));
  return PX_OK;
}

static void end(world *w) {
  OK(px_tensor_set_grad(w->leaf, NULL));  // with create_graph, its history owns the leaf
  px_release(w->leaf), px_release(w->product), px_release(w->plain);
  px_release(w->small), px_release(w->large), px_release(w->grad);
  px_release(w->storage);
}

// An action on the world `w`, as a row of a table.
#define ACTION(name) static px_status name(void *shared)
#define W ((world *)shared)

// ---- gradients and history: readers

ACTION(read_gradient) {
  PX_SCOPED(px_tensor) grad = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(px_tensor_get_grad(&grad, W->leaf));
  return grad ? px_sum(&sum, grad, NULL, 0, false, PX_DTYPE_NONE) : PX_OK;
}
ACTION(read_node) {
  PX_SCOPED(px_node) node = NULL;
  PX_TRY(px_tensor_get_grad_fn(&node, W->product));
  CHECK(!node || strlen(px_node_name(node)) > 0);
  (void)px_tensor_is_leaf(W->product), (void)px_tensor_requires_grad(W->product);
  return PX_OK;
}
ACTION(multiply_recorded) {
  PX_SCOPED(px_tensor) made = NULL;
  return px_mul(&made, W->product, W->leaf);
}
ACTION(backward) {
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(px_sum(&sum, W->product, NULL, 0, false, PX_DTYPE_NONE));
  return px_backward(1, &sum, NULL, true, false);
}
ACTION(backward_with_graph) {
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(px_sum(&sum, W->product, NULL, 0, false, PX_DTYPE_NONE));
  return px_backward(1, &sum, NULL, true, true);
}
ACTION(clip) {
  PX_SCOPED(px_tensor) total = NULL;
  return px_clip_grad_norm(&total, &W->leaf, 1, 1.0, 2.0, false);
}
ACTION(print_product) {
  char *text = NULL;
  px_status status = px_tensor_text(&text, W->product, NULL);
  px_free(text);
  return status;
}

// ---- gradients and history: changes

ACTION(set_gradient) { return px_tensor_set_grad(W->leaf, W->grad); }
ACTION(clear_gradient) { return px_tensor_set_grad(W->leaf, NULL); }
ACTION(zero_gradient) { return px_clear_grads(&W->leaf, 1, false); }
ACTION(retain_gradient) { return px_tensor_retain_grad(W->product); }
ACTION(require_gradient) {
  PX_TRY(px_tensor_set_requires_grad(W->leaf, false));
  return px_tensor_set_requires_grad(W->leaf, true);
}
ACTION(change_inplace) { return px_mul_scalar_(W->product, px_float(1)); }
ACTION(detach_and_change) {
  PX_TRY(px_tensor_detach_inplace(W->product));
  return px_mul_(W->product, W->leaf);
}
static px_status keep_gradient(px_tensor **out, px_tensor *grad, void *context) {
  return *out = NULL, PX_OK;
}
ACTION(change_hooks) {
  int64_t leaf, product;
  PX_TRY(px_tensor_add_hook(&leaf, W->leaf, keep_gradient, NULL, NULL));
  px_tensor_remove_hook(W->leaf, leaf);
  PX_TRY(px_tensor_add_hook(&product, W->product, keep_gradient, NULL, NULL));
  px_tensor_remove_hook(W->product, product);
  return PX_OK;
}

// ---- memory and shape: readers

ACTION(add) {
  PX_SCOPED(px_tensor) made = NULL;
  return px_add(&made, W->plain, W->small, px_int(1));
}
ACTION(sum) {
  PX_SCOPED(px_tensor) made = NULL;
  return px_sum(&made, W->plain, NULL, 0, false, PX_DTYPE_NONE);
}
ACTION(narrow_and_copy) {
  PX_SCOPED(px_tensor) part = NULL;
  PX_SCOPED(px_tensor) copy = NULL;
  PX_TRY(px_narrow(&part, W->plain, 0, 1, 2));
  return px_clone(&copy, part, NULL);
}
ACTION(join) {
  PX_SCOPED(px_tensor) made = NULL;
  return px_cat(&made, (px_tensor *[]){W->plain, W->plain}, 2, 0);
}
ACTION(fill) { return px_fill_(W->plain, px_float(1)); }
ACTION(write_out) { return px_add_out(W->plain, W->large, W->large, px_int(1)); }
ACTION(detach) {
  PX_SCOPED(px_tensor) made = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(px_tensor_detach(&made, W->plain));
  return px_sum(&sum, made, NULL, 0, false, PX_DTYPE_NONE);
}
ACTION(print) {
  char *text = NULL;
  px_status status = px_tensor_text(&text, W->plain, NULL);
  px_free(text);
  return status;
}
ACTION(read_item) {
  px_scalar value;
  return px_tensor_item(&value, W->plain);
}
ACTION(read_bytes) {
  float to[32];
  return px_tensor_read(W->plain, to, sizeof to);
}
ACTION(export) {
  px_dl_managed *managed = NULL;
  PX_TRY(px_dlpack_export(&managed, W->plain, NULL));
  managed->deleter(managed);
  return PX_OK;
}

// ---- memory and shape: changes

ACTION(set_small_data) { return px_tensor_set_data(W->plain, W->small); }
ACTION(set_new_data) {
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(px_clone(&made, W->large, NULL));
  return px_tensor_set_data(W->plain, made);
}
ACTION(resize) {
  PX_TRY(px_tensor_resize(W->plain, 2, (int64_t[]){64, 128}));
  return px_tensor_resize(W->plain, 1, (int64_t[]){3});
}
ACTION(resize_storage) {
  PX_TRY(px_storage_resize(W->storage, 16));
  return px_storage_resize(W->storage, 4096);
}
ACTION(squeeze) {
  PX_TRY(px_squeeze_(W->plain));
  return px_unsqueeze_(W->plain, 0);
}
ACTION(share) { return px_storage_share(W->storage); }

#define ROW(name) \
  { #name, name }
static const action history_readers[] = {
    ROW(read_gradient),       ROW(read_node), ROW(multiply_recorded), ROW(backward),
    ROW(backward_with_graph), ROW(clip),      ROW(print_product)};
static const action history_changes[] = {
    ROW(set_gradient),     ROW(clear_gradient), ROW(zero_gradient),     ROW(retain_gradient),
    ROW(require_gradient), ROW(change_inplace), ROW(detach_and_change), ROW(change_hooks)};
static const action memory_readers[] = {
    ROW(add),    ROW(sum),   ROW(narrow_and_copy), ROW(join),       ROW(fill),  ROW(write_out),
    ROW(detach), ROW(print), ROW(read_item),       ROW(read_bytes), ROW(export)};
static const action memory_changes[] = {ROW(set_small_data), ROW(set_new_data), ROW(resize),
                                        ROW(resize_storage), ROW(squeeze),      ROW(share)};
#define COUNT(table) ((int)(sizeof(table) / sizeof((table)[0])))

static void run_fresh(const action *a, const action *b) {
  world w = {NULL};
  OK(begin(&w));
  run_pair(a, b, &w);
  end(&w);
}

// Runs each change beside each reader and beside each change.
static void run_all(const action *readers, int reader_count, const action *changes,
                    int change_count) {
  for (int c = 0; c < change_count; c++) {
    for (int r = 0; r < reader_count; r++) run_fresh(&readers[r], &changes[c]);
    for (int other = c; other < change_count; other++) run_fresh(&changes[c], &changes[other]);
  }
}

PX_TEST(gradients_and_history_change_beside_every_use) {
  run_all(history_readers, COUNT(history_readers), history_changes, COUNT(history_changes));
}
PX_TEST(memory_and_shape_change_beside_every_use) {
  run_all(memory_readers, COUNT(memory_readers), memory_changes, COUNT(memory_changes));
}
