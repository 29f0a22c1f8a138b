// SPDX-License-Identifier: Apache-2.0
// Fractional max-pooling (Graham 2015): random samples set the positions of the windows. Element
// indices of all windows are computed as tensors, so all devices support it, and the gradient is
// that of gather.
#include "formulas.h"
#include "phlox/ops/view.h"
#include "ops/core/run.h"
#include "run_functions/volume.h"

#include <stdio.h>

#define LL(x) ((long long)(x))
enum { DIMS = 3 };

// A pool over the last `dims` dimensions of x, (N, C, ...).
typedef struct pool {
  const char *name;
  const px_tensor *x, *samples;
  int dims;
  int64_t in[DIMS], kernel[DIMS], out[DIMS];
} pool;

static px_status check_samples(const pool *p) {
  const px_tensor *s = p->samples;
  PX_CHECK(s->dtype == p->x->dtype, PX_RUNTIME,
           "Expect _random_samples to have the same dtype as input");
  PX_CHECK(s->ndim == 3, PX_RUNTIME, "Expect _random_samples to have 3 dimensions, got %d",
           s->ndim);
  PX_CHECK(s->sizes[0] >= p->x->sizes[0], PX_RUNTIME,
           "Expect _random_samples.size(0) no less then input batch size.");
  PX_CHECK(s->sizes[1] == p->x->sizes[1], PX_RUNTIME,
           "Expect _random_samples.size(1) equals to input channel size.");
  PX_CHECK(s->sizes[2] == p->dims, PX_RUNTIME,
           "Expect _random_samples.size(2) equals to %d; got %lld.", p->dims, LL(s->sizes[2]));
  return PX_OK;
}

static px_status check_pool(const pool *p) {
  static const char *const words[] = {"time", "height", "width"};
  for (int d = 1; d < p->x->ndim; d++)
    PX_CHECK(p->x->sizes[d], PX_RUNTIME,
             "%s(): Expected input to have non-zero size for non-batch dimensions, but got "
             "dimension %d being empty.",
             p->name, d);
  for (int k = 0; k < p->dims; k++) {
    const char *word = words[DIMS - p->dims + k];
    PX_CHECK(p->kernel[k] > 0 && p->out[k] >= 0, PX_RUNTIME,
             "%s(): kernel sizes must be positive, and output sizes not negative", p->name);
    PX_CHECK(p->kernel[k] <= p->in[k] && p->out[k] <= p->in[k] - p->kernel[k] + 1, PX_RUNTIME,
             "%s(): pool %s %lld too large relative to input %s %lld", p->name, word,
             LL(p->kernel[k]), word, LL(p->in[k]));
  }
  return check_samples(p);
}

// Step between windows, rounded to the samples' dtype as in PyTorch.
static double step_of(const pool *p, int k) {
  int64_t span = p->in[k] - p->kernel[k], steps = p->out[k] - 1;
  if (p->samples->dtype == PX_FLOAT64) return (double)span / (double)steps;
  return (double)((float)span / (float)steps);
}

// Start of each window along dimension k, (N, C, out). Samples are in reverse order of dimensions
// in 2-d.
static px_status window_starts(px_tensor **out, const pool *p, int k) {
  int sample_dim = p->dims == 2 ? 1 - k : k;
  const px_value given[] = {PX_T(p->samples), PX_I(p->x->sizes[0]),
                            PX_I(sample_dim), PX_I(p->in[k] - p->kernel[k]),
                            PX_I(p->out[k]),  PX_F(step_of(p, k))};
  return px__formula_fractional_starts(out, given);
}

// Flat indices of the elements of all windows, (N, C, out..., kernel...), in the first k
// dimensions.
static px_status window_indices(px_tensor **out, const pool *p, int k) {
  int64_t outer[2 + 2 * DIMS], inner[2 * DIMS];
  PX_SCOPED(px_tensor) before = NULL;
  PX_SCOPED(px_tensor) starts = NULL;
  if (k > 1) PX_TRY(window_indices(&before, p, k - 1));
  PX_TRY(window_starts(&starts, p, k - 1));
  for (int d = 0; d < 2 + 2 * p->dims; d++)
    outer[d] = d < 2 ? p->x->sizes[d] : d == 1 + k ? p->out[k - 1] : 1;
  for (int d = 0; d < 2 * p->dims; d++) inner[d] = d == p->dims + k - 1 ? p->kernel[k - 1] : 1;
  const px_value given[] = {before ? PX_T(before) : PX_NONE(),
                            PX_T(starts),
                            PX_I(p->in[k - 1]),
                            PX_I(p->kernel[k - 1]),
                            PX_IS(outer, 2 + 2 * p->dims),
                            PX_IS(inner, 2 * p->dims)};
  return px__formula_fractional_indices(out, given);
}

// Flat index of the maximum of each window, (N, C, windows).
static px_status max_indices(px_tensor **out, const pool *p) {
  PX_SCOPED(px_tensor) index = NULL;
  int64_t windows = 1, area = 1;  // bounded by the elements of x, and of a plane
  for (int k = 0; k < p->dims; k++) windows *= p->out[k], area *= p->kernel[k];
  PX_TRY(window_indices(&index, p, p->dims));
  const px_value given[] = {PX_T(p->x), PX_T(index), PX_I(windows), PX_I(area)};
  return px__formula_fractional_maxima(out, given);
}

static px_status run(px_tensor **results, const pool *p, bool batched) {
  PX_SCOPED(px_tensor) at = NULL;
  PX_TRY(max_indices(&at, p));
  return px__formula_fractional_results(
      results, (px_value[]){PX_T(p->x), PX_T(at), PX_IS(p->out, p->dims), PX_B(batched)});
}

static int64_t number_at(px_value list, int k) { return list.v.ints[list.n == 1 ? 0 : k]; }

static px_status fractional(px_call *call, int dims, px_tensor *self, px_value kernel,
                            px_value size, const px_tensor *samples) {
  PX_SCOPED(px_tensor) batch = NULL;
  bool batched = self->ndim == dims + 2;
  PX_CHECK(batched || self->ndim == dims + 1, PX_RUNTIME,
           "%s(): expected %dD or %dD input, but got a tensor of %d dimensions", call->op->name,
           dims + 1, dims + 2, self->ndim);
  if (batched)
    batch = px_retain(self);
  else
    PX_TRY(px_unsqueeze(&batch, self, 0));
  pool p = {call->op->name, batch, samples, dims, {0}, {0}, {0}};
  for (int k = 0; k < dims; k++) {
    p.in[k] = batch->sizes[2 + k];
    p.kernel[k] = number_at(kernel, k), p.out[k] = number_at(size, k);
  }
  PX_TRY(check_pool(&p));
  return run(call->results, &p, batched);
}

PX_RUN(fractional_max_pool2d) {
  return fractional(call, 2, args->self, args->kernel_size, args->output_size,
                    args->random_samples);
}
PX_RUN(fractional_max_pool3d) {
  return fractional(call, 3, args->self, args->kernel_size, args->output_size,
                    args->random_samples);
}
