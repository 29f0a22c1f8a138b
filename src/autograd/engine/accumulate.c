// SPDX-License-Identifier: Apache-2.0
// AccumulateGrad: the node at the end of each path. It adds a gradient to .grad of a leaf.
//
// A leaf has at most one such node at a time, alive as long as a graph refers to it. The leaf's
// gradient state holds a weak pointer to it. Several backward calls may reach a leaf at once
// (DataParallel), so a lock of the leaf guards its gradient.
#include "autograd/engine/graph.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"

typedef struct px__accumulate {
  px_node node;
  px_tensor *leaf;  // owned
} px__accumulate;

// Few: a fork takes all of them, and ThreadSanitizer follows at most 64 locks of a thread.
enum { LOCKS = 32 };
static pthread_mutex_t locks[LOCKS];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void lock_all(void) {
  for (int i = 0; i < LOCKS; i++) pthread_mutex_lock(&locks[i]);
}
static void unlock_all(void) {
  for (int i = 0; i < LOCKS; i++) pthread_mutex_unlock(&locks[i]);
}
// A forked child has no threads to unlock them.
static void make_locks(void) {
  for (int i = 0; i < LOCKS; i++) pthread_mutex_init(&locks[i], NULL);
  pthread_atfork(lock_all, unlock_all, unlock_all);
}
static pthread_mutex_t *lock_of(const px_tensor *leaf) {
  pthread_once(&once, make_locks);
  return &locks[(uintptr_t)leaf / 64 % LOCKS];
}

static px_tensor *leaf_of(const px_node *node) { return ((px__accumulate *)node)->leaf; }

static void end(px_node *node) {
  px__accumulate *self = (px__accumulate *)node;
  px_tensor *leaf = self->leaf;
  self->leaf = NULL;
  px_release(leaf);
}

static bool is_for(const px_node *node, const px_tensor *leaf) {
  const px__meta *meta = &node->results[0];
  return meta->dtype == px_tensor_dtype(leaf) && meta->ndim == px_tensor_ndim(leaf) &&
         px_device_equal(meta->device, px_tensor_device(leaf)) &&
         !memcmp(meta->sizes, px_tensor_sizes(leaf), (size_t)meta->ndim * sizeof(int64_t));
}

// A thread may take the node from the gradient state while its last owner releases it. The taker
// increments the count under the lock, so the last owner finds a count above zero. After the leaf
// was moved or cast, the old node remains with its graphs only.
static px_node *take(px__grad_state *state, const px_tensor *leaf) {
  px_node *node = state->accumulator;
  if (!node || !is_for(node, leaf)) return NULL;
  int32_t refs = __atomic_load_n(&node->head.refs, __ATOMIC_RELAXED);
  while (refs > 0 && !__atomic_compare_exchange_n(&node->head.refs, &refs, refs + 1, true,
                                                  __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
  }
  return refs > 0 ? node : NULL;
}

// False if it gained a new owner.
static bool dies(px_node *node) {
  px_tensor *leaf = ((px__accumulate *)node)->leaf;
  px__grad_state *state = leaf ? px__grad_state_of(leaf) : NULL;
  if (!state) return true;
  px_spin_lock(&state->lock);
  bool last = __atomic_load_n(&node->head.refs, __ATOMIC_ACQUIRE) <= 1;
  if (!last) last = __atomic_sub_fetch(&node->head.refs, 1, __ATOMIC_ACQ_REL) == 0;
  if (last && state->accumulator == node) state->accumulator = NULL;
  px_spin_unlock(&state->lock);
  return last;
}

static px_status accumulator_of(px_node **out, px_tensor *leaf) {
  px__grad_state *state;
  PX_TRY(px__grad_state_make(&state, leaf));
  px_spin_lock(&state->lock);
  *out = take(state, leaf);
  px_spin_unlock(&state->lock);
  if (*out) return PX_OK;
  px_node *node;
  PX_TRY(px__node_new(&node, &px__accumulate_kind, "AccumulateGrad", sizeof(px__accumulate), 0, 1,
                      &leaf));
  node->sequence = UINT64_MAX;  // highest priority
  ((px__accumulate *)node)->leaf = px_retain(leaf);
  px_spin_lock(&state->lock);
  px_node *other = take(state, leaf);  // created concurrently by another thread
  if (!other) state->accumulator = node;
  px_spin_unlock(&state->lock);
  if (other) px_release(node);
  *out = other ? other : node;
  return PX_OK;
}

px_status px__own_edge_of(px__edge *out, px_tensor *t) {
  *out = (px__edge){NULL, 0};
  if (!(px_tensor_marks(t) & PX_MARK_NEEDS_GRAD)) return PX_OK;
  out->node = px__node_of(px__grad_state_of(t), &out->nr);
  return out->node ? PX_OK : accumulator_of(&out->node, t);
}

// ---- exchanging

static px_status refuse(px_tensor **grads, int count, px_tensor *const *others, int other_count,
                        void *context) {
  PX_FAIL(PX_RUNTIME,
          "Trying to execute AccumulateGrad node that was poisoned by swap_tensors this can happen "
          "when you try to run backward on a tensor that was swapped. For a module m with "
          "`torch.__future__.set_swap_module_params_on_conversion(True)` you should not change the "
          "device or dtype of the module (e.g. `m.cpu()` or `m.half()`) between running forward "
          "and backward. To resolve this, please only change the device/dtype before running "
          "forward (or after both forward and backward).");
}

// Returns the living node of a leaf as a new reference, or NULL.
static px_node *node_of(px_tensor *leaf) {
  px__grad_state *state = px__grad_state_of(leaf);
  if (!state) return NULL;
  px_spin_lock(&state->lock);
  px_node *node = take(state, leaf);
  px_spin_unlock(&state->lock);
  return node;
}

static px_status check_owners(px_tensor *t, int32_t owners, const px_node *node, const char *name) {
  int32_t count = px_refs(t) - owners + 1;
  PX_CHECK(count == 1 + (node != NULL), PX_RUNTIME,
           "Expected use_count of %s to be 1 or 2 with an AccumulateGrad node but got %d make sure "
           "you are not holding references to the tensor in other places.",
           name, (int)count);
  return PX_OK;
}

// The node belongs to graphs of the contents before, and to the tensor itself.
static px_status retire(px_tensor *leaf, px_node *node) {
  PX_SCOPED(px_hook) hook = NULL;
  if (!node) return PX_OK;
  PX_TRY(px_node_add_hook(&hook, node, false, refuse, NULL, NULL));
  px__grad_state *state = px__grad_state_of(leaf);
  px_spin_lock(&state->lock);
  state->accumulator = NULL;
  px_spin_unlock(&state->lock);
  return PX_OK;
}

px_status px_tensor_swap(px_tensor *self, int32_t owners, px_tensor *other, int32_t other_owners) {
  PX_GIVEN(self);
  PX_GIVEN(other);
  PX_CHECK(self != other, PX_VALUE, "expected two tensors to swap, got the same one");
  PX_SCOPED(px_node) mine = node_of(self);
  PX_SCOPED(px_node) theirs = node_of(other);
  PX_TRY(check_owners(self, owners, mine, "t1"));
  PX_TRY(check_owners(other, other_owners, theirs, "t2"));
  PX_TRY(retire(self, mine));
  PX_TRY(retire(other, theirs));
  return px_tensor_exchange(self, other);
}

// ---- accumulating

// True if grad has the layout of .grad. That is the leaf's layout if it is dense, so an optimizer
// reads both in one order, and row-major otherwise.
static bool same_layout(const px_tensor *grad, const px_tensor *leaf) {
  if (px_tensor_is_contiguous(leaf)) return px_tensor_is_contiguous(grad);
  if (!px_tensor_is_dense(leaf)) return px_tensor_is_contiguous(grad);
  for (int d = 0; d < px_tensor_ndim(leaf); d++)
    if (px_tensor_sizes(leaf)[d] != 1 && px_tensor_strides(leaf)[d] != px_tensor_strides(grad)[d])
      return false;
  return true;
}

static px_status copy_as(px_tensor **out, px_tensor *grad, const px_tensor *leaf) {
  if (px_tensor_is_contiguous(leaf) || !px_tensor_is_dense(leaf))
    return px_clone(out, grad, "contiguous_format");
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(px_tensor_empty_strided(&made, px_tensor_ndim(leaf), px_tensor_sizes(leaf),
                                 px_tensor_strides(leaf), px_tensor_dtype(grad),
                                 px_tensor_device(grad)));
  PX_TRY(px_copy_(made, grad, false));
  *out = PX_MOVE(made);
  return PX_OK;
}

static px_status first(px_tensor **out, px_tensor *leaf, px_tensor *grad) {
  // An unshared gradient is moved into .grad without a copy.
  bool lazy = px_tensor_marks(grad) & (PX_MARK_CONJ | PX_MARK_NEG);
  if (!px_grad_enabled() && !lazy && px__unseen(grad) && same_layout(grad, leaf))
    return px_tensor_share(out, grad);
  return copy_as(out, grad, leaf);
}

static px_status accumulate(px_tensor *leaf, px_tensor *grad) {
  px__grad_state *state = px__grad_state_of(leaf);
  PX_SCOPED(px_tensor) before = px__grad_of(state);
  px_tensor *sum = NULL;
  if (before && !px_grad_enabled()) return px_add_(before, grad, px_int(1));
  PX_TRY(before ? px_add(&sum, before, grad, px_int(1)) : first(&sum, leaf, grad));
  px__grad_replace(state, sum);
  return PX_OK;
}

static px_status apply(px_node *node, const px__run *run) {
  px_tensor *leaf = leaf_of(node);
  if (!run->grads[0] || !(px_tensor_marks(leaf) & PX_MARK_NEEDS_GRAD)) return PX_OK;
  pthread_mutex_t *lock = lock_of(leaf);
  px_interrupt_hold(true);
  pthread_mutex_lock(lock);
  px_status status = accumulate(leaf, run->grads[0]);
  pthread_mutex_unlock(lock);
  px_interrupt_hold(false);
  PX_TRY(status);
  return px__hooks_run_accumulated(leaf);
}

const px__kind px__accumulate_kind = {.apply = apply, .end = end, .dies = dies, .leaf = leaf_of};
