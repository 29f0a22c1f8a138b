// SPDX-License-Identifier: Apache-2.0
// Container modules.
#include "layer_functions.h"
#include "nn/module/nn_impl.h"

#include <stdio.h>

px_status px_module_chain(px_module *self, px_module_step step, void *value) {
  PX_GIVEN(self);
  PX_GIVEN(step);
  PX__READS(self);
  px__list *rows = PX_READ(self->entries);
  int i = 0;
  for (const px__entry *entry; (entry = px__next_row(rows, &i));) {
    if (entry->sort == PX_ENTRY_MODULE) PX_TRY(step(entry->module, value));
  }
  return PX_OK;
}

static px_status tensor_step(px_module *child, void *value) {
  px_tensor **x = value, *next;
  PX_TRY(px_module_call(&next, child, *x));
  px_release(*x);
  *x = next;
  return PX_OK;
}

px_status px__sequential_forward(px_tensor **out, px_module *self,
                                 const px__sequential_forward_args *args) {
  PX_SCOPED(px_tensor) x = px_retain(args->input);
  PX_TRY(px_module_chain(self, tensor_step, &x));
  *out = PX_MOVE(x);
  return PX_OK;
}

px_status px_sequential_new(px_module **out, px_module *const *children, int count) {
  PX_GIVEN(out);
  PX_GIVEN_N(children, count);
  for (int i = 0; i < count; i++)
    PX_CHECK(children[i], PX_TYPE, "module %d of a Sequential is missing", i);
  *out = NULL;
  PX_SCOPED(px_module) self = NULL;
  PX_TRY(px_module_new(&self, px_module_kind_find("Sequential"), NULL, NULL));
  for (int i = 0; i < count; i++) {
    char name[16];
    snprintf(name, sizeof name, "%d", i);
    PX_TRY(px_module_register_module(self, name, children[i]));
  }
  *out = PX_MOVE(self);
  return PX_OK;
}
