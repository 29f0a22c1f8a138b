// SPDX-License-Identifier: Apache-2.0
// Mixed precision of a reducer's module: parameters have the values of a smaller dtype from before
// a forward pass until its backward has ended, and optimisers see them in their own.
//
// A parameter stays the same tensor, and its memory is another one meanwhile: what forward saves of
// a leaf is the leaf itself, so it has to be low until backward has read it. All of it belongs to
// the reducer's lock.
#include "parallel/reducer_impl.h"
#include "phlox/ops/copy.h"

typedef struct px__low {
  px_tensor *tensor;  // owned, like the others
  px_tensor *own;     // its memory in its own dtype, while it is low; else NULL
  px_tensor *low;     // its memory meanwhile
  uint64_t version;   // of the tensor since then
} px__low;

struct px__mixed {
  px_dtype param_dtype;
  px__low *items;
  int count;
  bool for_backward;  // what is low stays so until a backward pass has ended
  uint64_t told;      // the backward pass whose end will be heard of
};

// ---- one parameter

static bool is_low(const px__low *v) {
  return v->own && px_tensor_storage(v->tensor) == px_tensor_storage(v->low);
}

static void forget(px__low *v) {
  px_release(v->own);
  px_release(v->low);
  v->own = v->low = NULL;
}

// What a program has written into a parameter that was low stays.
static px_status take_changes(px__low *v) {
  PX_SCOPED(px_tensor) plain = NULL;
  if (px_tensor_version(v->tensor) == v->version) return PX_OK;
  PX_TRY(px_tensor_detach(&plain, v->tensor));
  PX_TRY(px_copy_(v->own, plain, false));
  v->version = px_tensor_version(v->tensor);
  return PX_OK;
}

static px_status make_low(px__low *v, px_dtype dtype) {
  PX_SCOPED(px_tensor) plain = NULL;
  if (is_low(v)) return take_changes(v);
  forget(v);  // a program has given it other memory
  if (px_tensor_dtype(v->tensor) == dtype || !px_dtype_is_float(px_tensor_dtype(v->tensor)))
    return PX_OK;
  PX_TRY(px_tensor_detach(&plain, v->tensor));
  return px_to(&v->low, plain, dtype, PX_DEVICE_NONE, false, false);
}

static px_status show_low(px__low *v) {
  if (v->own || !v->low) return PX_OK;
  PX_TRY(px_tensor_detach(&v->own, v->tensor));
  PX_TRY(px_tensor_set_data(v->tensor, v->low));
  v->version = px_tensor_version(v->tensor);
  return PX_OK;
}

// A gradient is of its parameter's dtype outside of backward.
static px_status cast_gradient(const px__low *v) {
  PX_SCOPED(px_tensor) cast = NULL;
  px_tensor *grad = px_tensor_grad(v->tensor);
  px_dtype dtype = px_tensor_dtype(v->tensor);
  if (!grad || px_tensor_dtype(grad) == dtype) return PX_OK;
  PX_TRY(px_to(&cast, grad, dtype, PX_DEVICE_NONE, false, false));
  return px_tensor_set_grad(v->tensor, cast);
}

static px_status show_own(px__low *v) {
  if (is_low(v)) {
    PX_TRY(take_changes(v));
    PX_TRY(px_tensor_set_data(v->tensor, v->own));
    PX_TRY(cast_gradient(v));
  }
  forget(v);
  return PX_OK;
}

// ---- all of them

static px_status show_all_own(px_reducer *self) {
  px__mixed *m = self->mixed;
  px_status status = PX_OK;
  m->for_backward = false;
  px_launch_batch_begin();
  for (int i = 0; i < m->count && status == PX_OK; i++) status = show_own(&m->items[i]);
  return px_launch_batch_end(status);
}

static px_status make_all_low(px__mixed *m) {
  px_status status = PX_OK;
  px_launch_batch_begin();
  for (int i = 0; i < m->count && status == PX_OK; i++)
    status = make_low(&m->items[i], m->param_dtype);
  return px_launch_batch_end(status);
}

static px_status lower(px_reducer *self, bool for_backward) {
  px__mixed *m = self->mixed;
  bool before = m->for_backward;
  if (m->param_dtype == PX_DTYPE_NONE) return PX_OK;
  px_status status = make_all_low(m);
  for (int i = 0; i < m->count && status == PX_OK; i++) status = show_low(&m->items[i]);
  if (status == PX_OK) m->for_backward |= for_backward;
  if (status != PX_OK && !before) (void)!show_all_own(self);
  return status;
}

// Calls fn with the lock, and without recording.
static px_status locked(px_reducer *self, px_status (*fn)(px_reducer *self, bool recording)) {
  bool was = px_grad_enabled();
  if (!self->mixed) return PX_OK;
  pthread_mutex_lock(&self->lock);
  px_grad_set_enabled(false);
  px_status status = fn(self, was);
  px_grad_set_enabled(was);
  pthread_mutex_unlock(&self->lock);
  return status;
}

px_status px_reducer_cast_parameters(px_reducer *self) {
  PX_GIVEN(self);
  return locked(self, lower);
}

static px_status end_pass(px_reducer *self, bool recording) {
  return self->mixed->for_backward ? PX_OK : show_all_own(self);
}
px_status px_reducer_restore_parameters(px_reducer *self) {
  PX_GIVEN(self);
  return locked(self, end_pass);
}

static px_status raise_after_backward(px_reducer *self, bool recording) {
  return show_all_own(self);
}
static px_status at_end(void *context) { return locked(context, raise_after_backward); }

px_status px__mixed_on_gradient(px_reducer *self) {
  px__mixed *m = self->mixed;
  if (!m || m->told == px_backward_number()) return PX_OK;
  PX_TRY(px_backward_at_end(at_end, px_retain(self), px_release));
  m->told = px_backward_number();
  return PX_OK;
}

// ---- making

void px__mixed_drop(px_reducer *self) {
  px__mixed *m = self->mixed;
  if (!m) return;
  if (show_all_own(self) != PX_OK) px_error_clear();
  for (int i = 0; i < m->count; i++) {
    forget(&m->items[i]);
    px_release(m->items[i].tensor);
  }
  px_free(m->items);
  px_free(m);
  self->mixed = NULL;
}

// What a walk through a module finds: its parameters, or its buffers and what they become.
typedef struct search {
  px_tensor *const *ignored;
  int ignored_count;
  px_tensor **found;
  int count;
} search;

static px_status find_one(const char *name, const px_module_entry *entry, px_module *owner,
                          void *context) {
  search *s = context;
  for (int i = 0; i < s->ignored_count; i++)
    if (entry->tensor == s->ignored[i]) return PX_OK;
  if (!entry->tensor || !px_dtype_is_float(px_tensor_dtype(entry->tensor))) return PX_OK;
  PX_TRY(px_realloc((void **)&s->found, (size_t)(s->count + 1) * sizeof *s->found));
  s->found[s->count++] = entry->tensor;
  return PX_OK;
}

static px_status keep_found(px__mixed *m, const search *s) {
  PX_TRY(px_alloc((void **)&m->items, (size_t)(s->count + 1) * sizeof *m->items));
  for (int i = 0; i < s->count; i++) m->items[i].tensor = px_retain(s->found[i]);
  m->count = s->count;
  return PX_OK;
}

static px_status find_parameters(px__mixed *m, px_module *module, search s) {
  px_status status = px_module_walk(module, PX_ENTRY_PARAMETER, "", true, false, find_one, &s);
  if (status == PX_OK) status = keep_found(m, &s);
  px_free(s.found);
  return status;
}

static px_status set_buffers(const search *s, px_tensor **cast, px_dtype dtype) {
  for (int i = 0; i < s->count; i++)
    PX_TRY(px_to(&cast[i], s->found[i], dtype, PX_DEVICE_NONE, false, false));
  for (int i = 0; i < s->count; i++) PX_TRY(px_tensor_set_data(s->found[i], cast[i]));
  return PX_OK;
}

static px_status cast_buffers(px_module *module, px_dtype dtype, search s) {
  px_tensor **cast = NULL;
  if (dtype == PX_DTYPE_NONE) return PX_OK;
  px_status status = px_module_walk(module, PX_ENTRY_BUFFER, "", true, false, find_one, &s);
  if (status == PX_OK) status = px_alloc((void **)&cast, (size_t)(s.count + 1) * sizeof *cast);
  if (status == PX_OK) status = set_buffers(&s, cast, dtype);
  if (cast) px__drop_all(cast, s.count);
  px_free(cast);
  px_free(s.found);
  return status;
}

static px_status check_float(px_dtype dtype) {
  PX_CHECK(dtype == PX_DTYPE_NONE || px_dtype_is_float(dtype), PX_RUNTIME,
           "Only Tensors of floating point and complex dtype can require gradients");
  return PX_OK;
}

static px_status mix(px_reducer *self, px_module *module, const px_mixed_precision *policy,
                     search s) {
  px_dtype reduce = policy->reduce_dtype, before = self->compress;
  PX_TRY(px_alloc((void **)&self->mixed, sizeof *self->mixed));
  self->mixed->param_dtype = policy->param_dtype;
  PX_TRY(find_parameters(self->mixed, module, s));
  self->compress = reduce == PX_DTYPE_NONE ? policy->param_dtype : reduce;
  px_status status = px__buckets_lay_out(self);
  if (status == PX_OK) status = cast_buffers(module, policy->buffer_dtype, s);
  if (status != PX_OK) self->compress = before;
  return status;
}

px_status px_reducer_set_mixed_precision(px_reducer *self, px_module *module,
                                         const px_mixed_precision *policy,
                                         px_tensor *const *ignored, int count) {
  PX_GIVEN(self);
  PX_GIVEN(module);
  PX_GIVEN(policy);
  PX_GIVEN_EACH(ignored, count);
  PX_TRY(check_float(policy->param_dtype));
  PX_TRY(check_float(policy->reduce_dtype));
  PX_TRY(check_float(policy->buffer_dtype));
  PX_TRY(px__check_no_hook(self));
  bool was = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status = mix(self, module, policy, (search){ignored, count, NULL, 0});
  px_grad_set_enabled(was);
  if (status != PX_OK) px__mixed_drop(self);
  return status;
}
