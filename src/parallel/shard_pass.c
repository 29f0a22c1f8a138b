// SPDX-License-Identifier: Apache-2.0
// When groups of sharded parameters are gathered, let go of and reduced: around forward, by hooks
// of what comes out and goes in around backward, and at its end.
//
// A group is whole from when the first gradient reaches an output of its module until all of its
// parameters' gradients and those of its inputs are there, or backward ends. What had its forward
// before is gathered meanwhile.
#include "parallel/shard_impl.h"

static void lock(const px_shards *self) { pthread_mutex_lock(&self->context->lock); }
static void unlock(const px_shards *self) { pthread_mutex_unlock(&self->context->lock); }

// Calls fn(self) with the lock, and without recording.
static px_status locked(px_shards *self, px_status (*fn)(px_shards *self)) {
  bool was = px_grad_enabled();
  lock(self);
  px_grad_set_enabled(false);
  px_status status = fn(self);
  px_grad_set_enabled(was);
  unlock(self);
  return status;
}

static px_status gather_ahead(px_shards *self, bool backward) {
  for (int i = 0; i < self->ahead_count[backward]; i++)
    PX_TRY(px__shards_gather(self->ahead[backward][i]));
  return PX_OK;
}

// ---- after backward

static px_status end_backward_of(px_shards *self) {
  self->backward = self->entered = false;
  PX_TRY(px__shards_reduce(self));
  return self->keep_after_backward ? PX_OK : px__shards_part(self);
}

static px_status end_if_ready(px_shards *self) {
  if (!self->backward || !self->entered || self->inputs) return PX_OK;
  for (int i = 0; i < self->count; i++)
    if (px_tensor_requires_grad(self->items[i].local) && !self->items[i].ready) return PX_OK;
  return end_backward_of(self);
}

px_status px__shards_on_gradient(px_tensor *tensor, void *shard) {
  px__shard *v = shard;
  v->ready = true;
  return locked(v->shards, end_if_ready);
}

// The current stream is that of the caller of backward.
static px_status join_reductions(px__shard_context *self) {
  px_stream *current;
  PX_TRY(px__shards_reduced(self));
  if (!self->reduce) return PX_OK;
  if (self->brings) PX_TRY(px_stream_synchronize(self->reduce));
  self->brings = false;
  PX_TRY(px_stream_current(&current, self->device));
  return px_stream_wait_stream(current, self->reduce);
}

static px_status end_all(px__shard_context *self) {
  for (int i = 0; i < self->group_count; i++)
    if (self->groups[i]->backward) PX_TRY(end_backward_of(self->groups[i]));
  for (int i = 0; i < self->group_count; i++)
    if (self->groups[i]->state == PX__GATHERING) PX_TRY(px__shards_part(self->groups[i]));
  if (!self->last) return PX_OK;
  self->order_count = 0;
  return join_reductions(self);
}

static px_status at_end(void *context) {
  px__shard_context *self = context;
  bool was = px_grad_enabled();
  pthread_mutex_lock(&self->lock);
  px_grad_set_enabled(false);
  px_status status = end_all(self);
  if (status == PX_OK) self->ends = false;
  px_grad_set_enabled(was);
  pthread_mutex_unlock(&self->lock);
  return status;
}

// ---- before backward

static px_status gather_previous(px_shards *self) {
  px__shard_context *context = self->context;
  int i = 0;
  if (self->ahead_count[1]) return gather_ahead(self, true);
  while (i < context->order_count && context->order[i] != self) i++;
  bool known = i > 0 && i < context->order_count && !context->order[i - 1]->bare_backward;
  return known ? px__shards_gather(context->order[i - 1]) : PX_OK;
}

static px_status begin_backward(px_shards *self) {
  px__shard_context *context = self->context;
  if (self->backward) return PX_OK;
  if (!context->ends) {
    PX_TRY(px_backward_at_end(at_end, px_retain(context), px_release));
    context->ends = true;
  }
  self->backward = true;
  for (int i = 0; i < self->count; i++) self->items[i].ready = false;
  if (!self->bare_backward) PX_TRY(px__shards_gather(self));
  PX_TRY(px__shards_take(self));
  return gather_previous(self);
}

// A hook of a tensor that goes in or comes out. It keeps the module, where parameters are shown.
typedef struct passage {
  px_shards *shards;
  px_module *module;
  bool input, came;
} passage;

static px_status on_passage(px_tensor **out, px_tensor *grad, void *context) {
  passage *p = context;
  *out = NULL;
  if (!p->input) return locked(p->shards, begin_backward);
  lock(p->shards);
  if (!p->came) p->shards->inputs--;
  p->came = true;
  p->shards->entered = true;
  unlock(p->shards);
  return locked(p->shards, end_if_ready);
}

static void passage_end(void *context) {
  passage *p = context;
  lock(p->shards);
  if (p->input && !p->came) p->shards->inputs--;
  unlock(p->shards);
  px_release(p->shards);
  px_release(p->module);
  px_free(p);
}

static px_status watch(px_shards *self, px_tensor *tensor, bool input) {
  int64_t id;
  passage *p;
  if (!tensor || !px_tensor_requires_grad(tensor) || px_tensor_is_leaf(tensor)) return PX_OK;
  PX_TRY(px_alloc((void **)&p, sizeof *p));
  *p = (passage){px_retain(self), px_retain(self->members[0].module), input, false};
  self->inputs += input;
  px_status status = px_tensor_add_hook(&id, tensor, on_passage, p, passage_end);
  if (status != PX_OK) passage_end(p);
  return status;
}

static px_status watch_all(px_shards *self, px_tensor *const *tensors, int count, bool input) {
  if (!px_grad_enabled()) return PX_OK;
  for (int i = 0; i < count; i++) PX_TRY(watch(self, tensors[i], input));
  return PX_OK;
}

// ---- around forward

// None of the members is awaited any more.
static void end_pass(px_shards *self) {
  for (int i = 0; i < self->member_count; i++) self->members[i].left = false;
}

// After an error within forward or backward nothing is known of where the groups are.
static px_status start_over(px__shard_context *self) {
  for (int i = 0; i < self->group_count; i++) {
    px_shards *group = self->groups[i];
    group->backward = group->entered = group->inside = false;
    end_pass(group);
    if (!group->keep_after_backward) PX_TRY(px__shards_part(group));
    PX_TRY(px__shards_forget(group));
  }
  self->ends = false;
  return PX_OK;
}

// The outermost module: what has changed the parameters is on the current stream.
static px_status begin_root(px_shards *self) {
  px__shard_context *context = self->context;
  bool within = px_backward_number() != 0;
  if (!within && (context->ends || self->inside)) PX_TRY(start_over(context));
  for (int i = 0; i < context->group_count; i++)
    if (context->groups[i] != self) end_pass(context->groups[i]);
  context->root = self;
  PX_SCOPED(px_event) changed = context->changed;
  context->changed = NULL;
  if (!context->gather) return PX_OK;
  if (changed) return px_stream_wait_event(context->gather, changed);
  px_stream *current;
  PX_TRY(px_stream_current(&current, context->device));
  return px_stream_wait_stream(context->gather, current);
}

static bool is_stale(const px_shards *self) {
  for (int i = 0; i < self->count; i++)
    if (px_tensor_version(self->items[i].local) != self->items[i].version) return true;
  return false;
}

static px_status begin_forward(px_shards *self) {
  if (!self->context->root || self->inside) PX_TRY(begin_root(self));
  self->inside = true;
  if (self->backward) return PX_OK;  // what was not kept is computed again
  if (self->state == PX__WHOLE && is_stale(self)) PX_TRY(px__shards_part(self));
  PX_TRY(px__shards_gather(self));
  PX_TRY(px__shards_take(self));
  return gather_ahead(self, false);
}

// A group that has several forward passes stands where the last one was.
static void note_order(px_shards *self) {
  px__shard_context *context = self->context;
  int kept = 0;
  for (int i = 0; i < context->order_count; i++)
    if (context->order[i] != self) context->order[kept++] = context->order[i];
  context->order[kept++] = self;
  context->order_count = kept;
}

static px_status end_forward(px_shards *self) {
  bool outermost = self->context->root == self;
  self->inside = false;
  if (outermost) self->context->root = NULL;
  bool keeps = self->keep || (self->keep_outermost && outermost);
  return self->backward || keeps ? PX_OK : px__shards_part(self);
}

// ---- groups of several modules: a pass begins with the first of them, and ends when all have come

static int count_left(const px_shards *self) {
  int left = 0;
  for (int i = 0; i < self->member_count; i++) left += self->members[i].left;
  return left;
}

// Where another one did not come in the pass before, changed parameters tell that this is a new
// one.
bool px_shards_enters(px_shards *self, const px_module *module) {
  if (self->member_count == 1) return true;
  lock(self);
  bool again = self->backward;  // what was not kept is computed again
  bool first = !again && (!count_left(self) || (self->state == PX__WHOLE && is_stale(self)));
  for (int i = 0; i < self->member_count && first; i++) self->members[i].left = true;
  unlock(self);
  return again || first;
}

bool px_shards_leaves(px_shards *self, const px_module *module) {
  if (self->member_count == 1) return true;
  lock(self);
  px__member *member = px__shards_member(self, module);
  if (member) member->left = false;
  bool last = !count_left(self);
  unlock(self);
  return last;
}

px_status px_shards_before_forward(px_shards *self, px_tensor *const *inputs, int count) {
  PX_GIVEN(self);
  PX_GIVEN_N(inputs, count);
  PX_TRY(locked(self, begin_forward));
  lock(self);
  px_status status = self->backward ? PX_OK : watch_all(self, inputs, count, true);
  unlock(self);
  return status;
}

px_status px_shards_after_forward(px_shards *self, px_tensor *const *outputs, int count) {
  PX_GIVEN(self);
  PX_GIVEN_N(outputs, count);
  PX_TRY(locked(self, end_forward));
  lock(self);
  px_status status = self->backward ? PX_OK : watch_all(self, outputs, count, false);
  if (!self->backward && px_grad_enabled()) note_order(self);
  unlock(self);
  return status;
}

static px_status fail_forward(px_shards *self) {
  end_pass(self);
  return end_forward(self);
}

void px_shards_forward_failed(px_shards *self) {
  if (locked(self, fail_forward) != PX_OK) px_error_clear();
}

px_status px__shards_before_hook(px_tensor **replacement, px_module *module,
                                 px_tensor *const *inputs, int count, px_tensor *result,
                                 void *shards) {
  *replacement = NULL;
  if (!px_shards_enters(shards, module)) return PX_OK;
  return px_shards_before_forward(shards, inputs, count);
}

px_status px__shards_after_hook(px_tensor **replacement, px_module *module,
                                px_tensor *const *inputs, int count, px_tensor *result,
                                void *shards) {
  *replacement = NULL;
  if (!px_shards_leaves(shards, module)) return PX_OK;
  return px_shards_after_forward(shards, &result, 1);
}

// ---- by the program

static px_status begin_by_hand(px_shards *self) {
  if (self->context->gather && self->state == PX__SHARDED) PX_TRY(begin_root(self));
  self->context->root = NULL;
  return px__shards_gather(self);
}

px_status px_shards_unshard(px_shards *self, bool begin) {
  PX_GIVEN(self);
  PX_TRY(locked(self, begin_by_hand));
  return begin ? PX_OK : locked(self, px__shards_take);
}

px_status px_shards_reshard(px_shards *self) {
  PX_GIVEN(self);
  return locked(self, px__shards_part);
}
