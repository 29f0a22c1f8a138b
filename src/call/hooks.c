// SPDX-License-Identifier: Apache-2.0
// The hooks that a layer above sets around calls (phlox/extend.h).
#include "call/op_impl.h"

const px_op_hooks *px__hooks;

void px_op_set_hooks(const px_op_hooks *hooks) {
  px__hooks = hooks;
  px__print_suffix = hooks ? hooks->print_suffix : NULL;
}
