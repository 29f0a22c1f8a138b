// SPDX-License-Identifier: Apache-2.0
// Lists of tensors, returned by ops with several results.
#include "base/base_impl.h"
#include "phlox/tensor.h"

struct px_list {
  px_object head;
  int64_t count;
  px_tensor *items[];
};

static void list_destroy(void *self) {
  px_list *list = self;
  for (int64_t i = 0; i < list->count; i++) px_release(list->items[i]);
  px__object_end(list);
  px__free(list);
}
static const px_class list_class = {"list", list_destroy};

px_status px_list_new(px_list **out, px_tensor *const *items, int64_t count) {
  PX_GIVEN(out);
  PX_GIVEN_N(items, count);
  *out = NULL;
  size_t bytes;
  PX_CHECK(!__builtin_mul_overflow((size_t)count, sizeof *items, &bytes) &&
               !__builtin_add_overflow(bytes, sizeof **out, &bytes),
           PX_NOMEM, "a list of %lld items is too long", (long long)count);
  PX_TRY(px__alloc((void **)out, bytes));
  px__object_init(*out, &list_class);
  (*out)->count = count;
  for (int64_t i = 0; i < count; i++) (*out)->items[i] = px_retain(items[i]);
  return PX_OK;
}

int64_t px_list_size(const px_list *list) { return list->count; }

px_tensor *px_list_get(const px_list *list, int64_t i) {
  return i >= 0 && i < list->count ? list->items[i] : NULL;
}

px_tensor *const *px_list_items(const px_list *list) { return list->items; }
