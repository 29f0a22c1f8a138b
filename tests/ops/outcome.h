// SPDX-License-Identifier: Apache-2.0
// The outcome of a sample, for comparison between devices: its results, or the gradients of its
// arguments.
#pragma once
#include "samples.h"

// Tensors to compare, in the same order on both devices. NULL if absent.
typedef struct outcome {
  px_tensor *tensors[SAMPLE_RESULTS];
  int count;
} outcome;
static void release_outcome(outcome *o) {
  for (int k = 0; k < o->count; k++) px_release(o->tensors[k]);
}

static px_status results(sample *s, outcome *out) {
  return sample_call(s, s->tensors, out->tensors, &out->count);
}

// ---- gradients

// A gradient for a result: 1, 1/2, -1/2, -1 in rotation, exact in every dtype.
static px_tensor *seed_like(const px_tensor *t) {
  static const double values[] = {1, 0.5, -0.5, -1};
  px_tensor *seed = NULL;
  int64_t n = px_tensor_numel(t);
  size_t item = px_dtype_size(px_tensor_dtype(t));
  char *raw = calloc((size_t)n + 1, item);
  for (int64_t i = 0; i < n; i++)
    px_scalar_store(px_float(values[i % 4]), px_tensor_dtype(t), raw + (size_t)i * item);
  OK(px_tensor_from_data(&seed, raw, px_tensor_ndim(t), px_tensor_sizes(t), px_tensor_dtype(t),
                         px_tensor_device(t)));
  free(raw);
  return seed;
}

// Runs backward from all differentiable results. *roots is their number.
static px_status run_backward(outcome *from, int *roots) {
  px_tensor *used[SAMPLE_RESULTS], *seeds[SAMPLE_RESULTS];
  *roots = 0;
  for (int k = 0; k < from->count; k++) {
    if (!from->tensors[k] || !px_tensor_requires_grad(from->tensors[k])) continue;
    used[*roots] = from->tensors[k];
    seeds[(*roots)++] = seed_like(from->tensors[k]);
  }
  px_status status = *roots ? px_backward(*roots, used, seeds, false, false) : PX_OK;
  for (int k = 0; k < *roots; k++) px_release(seeds[k]);
  return status;
}
static px_status gradients(sample *s, outcome *out) {
  outcome forward = {.count = 0};
  int roots = 0;
  if (!s->op->grad_mask) return PX_OK;
  for (int k = 0; k < s->tensor_count; k++)
    if (s->smooth[k]) OK(px_tensor_set_requires_grad(s->tensors[k], true));
  px_status status = results(s, &forward);
  if (!status) status = run_backward(&forward, &roots);
  release_outcome(&forward);
  for (int k = 0; !status && roots && k < s->tensor_count; k++)
    out->tensors[out->count++] = s->smooth[k] && px_tensor_grad(s->tensors[k])
                                     ? px_retain(px_tensor_grad(s->tensors[k]))
                                     : NULL;
  return status;
}
