// SPDX-License-Identifier: Apache-2.0
// Access to tensors for layers that use public headers only (phlox/extend.h). Marks are this
// layer's flags under public names.
#include "phlox/extend.h"

#include "tensor/tensor_impl.h"

_Static_assert((int)PX_MARK_WRAPPED == PX_TENSOR_WRAPPED &&
                   (int)PX_MARK_ALIASED == PX_TENSOR_ALIASED,
               "marks are flags");
_Static_assert((int)PX_MARK_PARAMETER == PX_TENSOR_PARAMETER &&
                   (int)PX_MARK_NEEDS_GRAD == PX_TENSOR_NEEDS_GRAD,
               "marks are flags");
_Static_assert((int)PX_MARK_INFERENCE == PX_TENSOR_INFERENCE && (int)PX_MARK_VIEW == PX_TENSOR_VIEW,
               "marks are flags");
_Static_assert((int)PX_MARK_UNRECORDED == PX_TENSOR_UNRECORDED &&
                   (int)PX_MARK_MULTI_VIEW == PX_TENSOR_MULTI_VIEW &&
                   (int)PX_MARK_FUNCTION_VIEW == PX_TENSOR_FUNCTION_VIEW &&
                   (int)PX_MARK_CONJ == PX_TENSOR_CONJ && (int)PX_MARK_NEG == PX_TENSOR_NEG,
               "marks are flags");

_Thread_local px__marks px__thread_marks = {0, PX_TENSOR_VIEW};
bool px__any_conj_neg;

unsigned px_tensor_marks(const px_tensor *self) { return px__flags(self); }

px_site px_tensor_site(const px_tensor *made) { return px__site_of(made->storage->allocation); }

// Flags beyond these are private to this layer.
enum { ALL_MARKS = (2 * PX_MARK_FUNCTION_VIEW - 1) | PX_MARK_CONJ | PX_MARK_NEG };

void px_tensor_mark(px_tensor *self, unsigned marks, bool on) {
  px__flags_set(self, marks & ALL_MARKS, on);
  if (on && (marks & PX_TENSOR_CONJ_NEG))
    __atomic_store_n(&px__any_conj_neg, true, __ATOMIC_RELAXED);
}

void px_tensor_set_new_marks(unsigned fresh, unsigned view) {
  px__thread_marks = (px__marks){(uint16_t)(fresh & ALL_MARKS), (uint16_t)(view & ALL_MARKS)};
}

void px_tensor_mark_saved(px_tensor *alias) {
  if (!px__is_deferred(alias->storage) || (px__flags(alias) & PX_TENSOR_SAVED)) return;
  px__flags_set(alias, PX_TENSOR_SAVED, true);
  __atomic_add_fetch(&alias->storage->saves, 1, __ATOMIC_RELAXED);
}

void *px_tensor_slot(const px_tensor *self) {
  return __atomic_load_n(&self->autograd, __ATOMIC_ACQUIRE);
}

void *px_tensor_set_slot_take(px_tensor *self, void *slot) {
  px_autograd_slot *existing = NULL;
  if (__atomic_compare_exchange_n(&self->autograd, &existing, slot, false, __ATOMIC_ACQ_REL,
                                  __ATOMIC_ACQUIRE))
    return slot;
  px_release(slot);
  return existing;
}

uint64_t px_tensor_view_version(const px_tensor *self) {
  return __atomic_load_n(&self->own_version, __ATOMIC_RELAXED);
}
void px_tensor_set_view_version(px_tensor *self, uint64_t version) {
  __atomic_store_n(&self->own_version, version, __ATOMIC_RELAXED);
}
