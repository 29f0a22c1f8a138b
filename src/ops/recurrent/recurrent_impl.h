// SPDX-License-Identifier: Apache-2.0
// What recurrent nets, which are run layer by layer or by a library as a whole, share.
#pragma once
#include "tensor/tensor_impl.h"

// A net: all times' rows, and the tensors of recurrent_whole. Borrowed.
typedef struct px__whole {
  const px_tensor *rows, *h, *c, *batch_sizes;
  px_tensor *const *params;
  int64_t param_count, layers;
  const char *mode;
  bool has_biases, bidirectional, tf32;
} px__whole;

// How many params a layer has in one direction.
static inline int px__recurrent_each(const px_recurrent_net *net) {
  return 2 + 2 * net->has_biases + net->projected;
}
// Whether a library of the backend runs it; not if something does not fit.
bool px__recurrent_serves(const px__whole *w);
