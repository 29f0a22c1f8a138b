// SPDX-License-Identifier: Apache-2.0
// Fractional max-pooling (Graham 2015): random samples set the positions of the windows. Element
// indices of all windows are computed as tensors, so all devices support it, and the gradient is
// that of gather.
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"
#include "phlox/ops/volume.h"
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

static px_status range(px_tensor **out, int64_t size, px_dtype dtype, const px_tensor *like) {
  return px_arange(out, px_int(0), px_int(size), px_int(1), dtype, px__tensor_device(like), false,
                   false);
}

// Step between windows, rounded to the samples' dtype as in PyTorch.
static double step_of(const pool *p, int k) {
  int64_t span = p->in[k] - p->kernel[k], steps = p->out[k] - 1;
  if (p->samples->dtype == PX_FLOAT64) return (double)span / (double)steps;
  return (double)((float)span / (float)steps);
}

// Start of each window along a dimension, (N, C, out). The last window ends at the edge. Samples
// are in reverse order of dimensions in 2-d.
static px_status window_starts(px_tensor **out, const pool *p, int k) {
  PX_SCOPED(px_tensor) samples = NULL;
  PX_SCOPED(px_tensor) sample = NULL;
  PX_SCOPED(px_tensor) steps = NULL;
  PX_SCOPED(px_tensor) at = NULL;
  PX_SCOPED(px_tensor) scaled = NULL;
  PX_SCOPED(px_tensor) offset = NULL;
  PX_SCOPED(px_tensor) ends = NULL;
  PX_SCOPED(px_tensor) before = NULL;
  PX_SCOPED(px_tensor) inner_starts = NULL;
  PX_SCOPED(px_tensor) last = NULL;
  int64_t n = p->x->sizes[0], span = p->in[k] - p->kernel[k], sample_dim = p->dims == 2 ? 1 - k : k;
  int64_t sizes[] = {n, p->x->sizes[1], p->out[k] ? 1 : 0};
  PX_TRY(px_full(&last, sizes, 3, px_int(span), PX_INT64, px__tensor_device(p->x), false, false));
  if (p->out[k] <= 1) return *out = PX_MOVE(last), PX_OK;
  PX_TRY(px_narrow(&samples, p->samples, 0, 0, n));
  PX_TRY(px_narrow(&sample, samples, 2, sample_dim, 1));
  PX_TRY(range(&steps, p->out[k] - 1, (px_dtype)p->samples->dtype, p->x));
  PX_TRY(px_add(&at, steps, sample, px_int(1)));
  PX_TRY(px_mul_scalar(&scaled, at, px_float(step_of(p, k))));
  PX_TRY(px_mul_scalar(&offset, sample, px_float(step_of(p, k))));
  PX_TRY(px_to(&ends, scaled, PX_INT64, PX_DEVICE_NONE, false, false));
  PX_TRY(px_to(&before, offset, PX_INT64, PX_DEVICE_NONE, false, false));
  PX_TRY(px_sub(&inner_starts, ends, before, px_int(1)));
  return px_cat(out, (px_tensor *[]){inner_starts, last}, 2, 2);
}

// Adds dimension k to the flat element indices of all windows, (N, C, out..., kernel...).
static px_status add_indices(px_tensor **element_index, const pool *p, int k) {
  PX_SCOPED(px_tensor) begin = NULL;
  PX_SCOPED(px_tensor) inside = NULL;
  PX_SCOPED(px_tensor) reshaped = NULL;
  PX_SCOPED(px_tensor) offsets = NULL;
  PX_SCOPED(px_tensor) positions = NULL;
  int64_t outer[2 + 2 * DIMS], inner[2 * DIMS];
  for (int d = 0; d < 2 + 2 * p->dims; d++)
    outer[d] = d < 2 ? p->x->sizes[d] : d == 2 + k ? p->out[k] : 1;
  for (int d = 0; d < 2 * p->dims; d++) inner[d] = d == p->dims + k ? p->kernel[k] : 1;
  PX_TRY(window_starts(&begin, p, k));
  PX_TRY(px_reshape(&reshaped, begin, outer, 2 + 2 * p->dims));
  PX_TRY(range(&offsets, p->kernel[k], PX_INT64, p->x));
  PX_TRY(px_reshape(&inside, offsets, inner, 2 * p->dims));
  PX_TRY(px_add(&positions, reshaped, inside, px_int(1)));
  if (!*element_index) return *element_index = PX_MOVE(positions), PX_OK;
  PX_SCOPED(px_tensor) rows = NULL;
  px_tensor *sum;
  PX_TRY(px_mul_scalar(&rows, *element_index, px_int(p->in[k])));
  PX_TRY(px_add(&sum, rows, positions, px_int(1)));
  px_release(*element_index);
  *element_index = sum;
  return PX_OK;
}

// Flat index of the maximum of each window, (N, C, windows).
static px_status max_indices(px_tensor **out, const pool *p, const px_tensor *flat) {
  PX_SCOPED(px_tensor) element_index = NULL;
  PX_SCOPED(px_tensor) all = NULL;
  PX_SCOPED(px_tensor) line = NULL;
  PX_SCOPED(px_tensor) gathered = NULL;
  PX_SCOPED(px_tensor) values = NULL;
  PX_SCOPED(px_tensor) argmax = NULL;
  PX_SCOPED(px_tensor) found = NULL;
  int64_t windows = 1, area = 1;
  for (int k = 0; k < p->dims; k++) {
    PX_TRY(add_indices(&element_index, p, k));
    windows *= p->out[k], area *= p->kernel[k];  // bounded by the elements of x, and of a plane
  }
  int64_t n = p->x->sizes[0], c = p->x->sizes[1];
  PX_TRY(px_reshape(&line, element_index, (int64_t[]){n, c, px__product(windows, area)}, 3));
  PX_TRY(px_reshape(&all, line, (int64_t[]){n, c, windows, area}, 4));
  PX_TRY(px_gather(&gathered, flat, 2, line, false));
  PX_TRY(px_reshape(&values, gathered, (int64_t[]){n, c, windows, area}, 4));
  PX_TRY(px_argmax(&argmax, values, (int64_t[]){3}, true));
  PX_TRY(px_gather(&found, all, 3, argmax, false));
  return px_reshape(out, found, (int64_t[]){n, c, windows}, 3);
}

static px_status run(px_tensor **output, px_tensor **indices, const pool *p) {
  PX_SCOPED(px_tensor) flat = NULL;
  PX_SCOPED(px_tensor) plain = NULL;
  PX_SCOPED(px_tensor) element_index = NULL;
  PX_SCOPED(px_tensor) values = NULL;
  int64_t sizes[2 + DIMS] = {p->x->sizes[0], p->x->sizes[1]};
  memcpy(sizes + 2, p->out, (size_t)p->dims * sizeof *sizes);
  PX_TRY(px_flatten(&flat, p->x, 2, -1));
  PX_TRY(px_detach(&plain, flat));
  PX_TRY(max_indices(&element_index, p, plain));
  PX_TRY(px_gather(&values, flat, 2, element_index, false));
  PX_TRY(px_reshape(output, values, sizes, 2 + p->dims));
  return px_reshape(indices, element_index, sizes, 2 + p->dims);
}

static int64_t number_at(px_value list, int k) { return list.v.ints[list.n == 1 ? 0 : k]; }

static px_status fractional(px_call *call, int dims, px_tensor *self, px_value kernel,
                            px_value size, const px_tensor *samples) {
  PX_SCOPED(px_tensor) batch = NULL;
  PX_SCOPED(px_tensor) output = NULL;
  PX_SCOPED(px_tensor) indices = NULL;
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
  PX_TRY(run(&output, &indices, &p));
  if (!batched) {
    PX_TRY(px_squeeze_dim(&call->results[0], output, (int64_t[]){0}, 1));
    return px_squeeze_dim(&call->results[1], indices, (int64_t[]){0}, 1);
  }
  call->results[0] = PX_MOVE(output), call->results[1] = PX_MOVE(indices);
  return PX_OK;
}

PX_RUN(fractional_max_pool2d) {
  return fractional(call, 2, args->self, args->kernel_size, args->output_size,
                    args->random_samples);
}
PX_RUN(fractional_max_pool3d) {
  return fractional(call, 3, args->self, args->kernel_size, args->output_size,
                    args->random_samples);
}
