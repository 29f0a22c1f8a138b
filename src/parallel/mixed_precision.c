// SPDX-License-Identifier: Apache-2.0
// Mixed precision of a reducer's module. Parameters hold values in a lower-precision dtype from
// the start of a forward pass to the end of its backward. Optimizers see the original dtype.
//
// The parameter tensor is unchanged; its memory is swapped. Saved leaves are the parameters
// themselves, so they must stay in low precision until backward has read them. The reducer's lock
// guards all state here.
#include "parallel/reducer_impl.h"
#include "phlox/ops/copy.h"

typedef struct px__low {
  px_tensor *tensor;  // all three are owned
  px_tensor *own;     // original memory while the tensor is in low precision, else NULL
  px_tensor *low;     // low-precision memory
  uint64_t version;   // of the tensor at the swap
} px__low;

struct px__mixed {
  px_dtype param_dtype;
  px__low *items;
  int count;
  bool for_backward;     // stay in low precision until a backward pass ends
  uint64_t hooked_pass;  // number of the backward pass with a registered end callback
};

// ---- one parameter

static bool is_low(const px__low *v) {
  return v->own && px_tensor_storage(v->tensor) == px_tensor_storage(v->low);
}

static void drop_copies(px__low *v) {
  px_release(v->own);
  px_release(v->low);
  v->own = v->low = NULL;
}

// Copies changes made to the low-precision values back to the original memory.
static px_status copy_changes(px__low *v) {
  PX_SCOPED(px_tensor) plain = NULL;
  if (px_tensor_version(v->tensor) == v->version) return PX_OK;
  PX_TRY(px_tensor_detach(&plain, v->tensor));
  PX_TRY(px_copy_(v->own, plain, false));
  v->version = px_tensor_version(v->tensor);
  return PX_OK;
}

static px_status cast_low(px__low *v, px_dtype dtype) {
  PX_SCOPED(px_tensor) plain = NULL;
  if (is_low(v)) return copy_changes(v);
  drop_copies(v);  // the user has replaced the parameter's memory
  if (px_tensor_dtype(v->tensor) == dtype || !px_dtype_is_float(px_tensor_dtype(v->tensor)))
    return PX_OK;
  PX_TRY(px_tensor_detach(&plain, v->tensor));
  return px_to(&v->low, plain, dtype, PX_DEVICE_NONE, false, false);
}

static px_status install_low(px__low *v) {
  if (v->own || !v->low) return PX_OK;
  PX_TRY(px_tensor_detach(&v->own, v->tensor));
  PX_TRY(px_tensor_set_data(v->tensor, v->low));
  v->version = px_tensor_version(v->tensor);
  return PX_OK;
}

// Outside of backward a gradient has its parameter's dtype.
static px_status cast_gradient(const px__low *v) {
  PX_SCOPED(px_tensor) cast = NULL;
  PX_SCOPED(px_tensor) grad = NULL;
  PX_TRY(px_tensor_get_grad(&grad, v->tensor));
  px_dtype dtype = px_tensor_dtype(v->tensor);
  if (!grad || px_tensor_dtype(grad) == dtype) return PX_OK;
  PX_TRY(px_to(&cast, grad, dtype, PX_DEVICE_NONE, false, false));
  return px_tensor_set_grad(v->tensor, cast);
}

static px_status install_own(px__low *v) {
  if (is_low(v)) {
    PX_TRY(copy_changes(v));
    PX_TRY(px_tensor_set_data(v->tensor, v->own));
    PX_TRY(cast_gradient(v));
  }
  drop_copies(v);
  return PX_OK;
}

// ---- all parameters

static px_status restore_all(px_reducer *self) {
  px__mixed *m = self->mixed;
  px_status status = PX_OK;
  m->for_backward = false;
  px_launch_batch_begin();
  for (int i = 0; i < m->count && status == PX_OK; i++) status = install_own(&m->items[i]);
  return px_launch_batch_end(status);
}

static px_status cast_all_low(px__mixed *m) {
  px_status status = PX_OK;
  px_launch_batch_begin();
  for (int i = 0; i < m->count && status == PX_OK; i++)
    status = cast_low(&m->items[i], m->param_dtype);
  return px_launch_batch_end(status);
}

static px_status lower(px_reducer *self, bool for_backward) {
  px__mixed *m = self->mixed;
  bool before = m->for_backward;
  if (m->param_dtype == PX_DTYPE_NONE) return PX_OK;
  px_status status = cast_all_low(m);
  for (int i = 0; i < m->count && status == PX_OK; i++) status = install_low(&m->items[i]);
  if (status == PX_OK) m->for_backward |= for_backward;
  if (status != PX_OK && !before) (void)!restore_all(self);
  return status;
}

// Calls fn under the lock with grad mode disabled.
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
  return self->mixed->for_backward ? PX_OK : restore_all(self);
}
px_status px_reducer_restore_parameters(px_reducer *self) {
  PX_GIVEN(self);
  return locked(self, end_pass);
}

static px_status raise_after_backward(px_reducer *self, bool recording) {
  return restore_all(self);
}
static px_status on_backward_end(void *context) { return locked(context, raise_after_backward); }

px_status px__mixed_on_gradient(px_reducer *self) {
  px__mixed *m = self->mixed;
  if (!m || m->hooked_pass == px_backward_number()) return PX_OK;
  PX_TRY(px_backward_at_end(on_backward_end, px_retain(self), px_release));
  m->hooked_pass = px_backward_number();
  return PX_OK;
}

// ---- construction

void px__mixed_drop(px_reducer *self) {
  px__mixed *m = self->mixed;
  if (!m) return;
  if (restore_all(self) != PX_OK) px_error_clear();
  for (int i = 0; i < m->count; i++) {
    drop_copies(&m->items[i]);
    px_release(m->items[i].tensor);
  }
  px_free(m->items);
  px_free(m);
  self->mixed = NULL;
}

// Tensors found by a walk over a module: parameters or buffers.
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
