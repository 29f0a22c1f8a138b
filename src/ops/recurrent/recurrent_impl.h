// SPDX-License-Identifier: Apache-2.0
// Declarations shared by the two implementations of recurrent nets: layer by layer, and by a
// backend library (cuDNN).
#pragma once
#include "tensor/tensor_impl.h"

// The arguments of recurrent_whole: the rows of all time steps and the tensors of the net. All are
// borrowed.
typedef struct px__recurrent_inputs {
  const px_tensor *rows, *h, *c, *batch_sizes;
  px_tensor *const *params;
  int64_t param_count, layers;
  const char *mode;
  bool has_biases, bidirectional, tf32;
} px__recurrent_inputs;

// The number of parameters of a layer in one direction.
static inline int px__recurrent_param_count(const px_recurrent_net *net) {
  return 2 + 2 * net->has_biases + net->projected;
}
// True if a library of the backend supports the net. False if the arguments are inconsistent.
bool px__recurrent_supported(const px__recurrent_inputs *w);
