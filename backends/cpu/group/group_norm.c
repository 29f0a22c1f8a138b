// SPDX-License-Identifier: Apache-2.0
// Group normalization, forward and backward. Threads share the groups of all samples. The sums for
// weight and bias are kept per channel and sample, and added in order.
#include "cpu/convert/dense.h"
#include "cpu/threads/threads.h"
#include "cpu/vector/rows.h"
#include "kernel_args/norm.h"

#include <stdlib.h>

enum { GRAIN = 16 * 1024 };  // elements per thread, min

// `groups` groups per sample, with `each` channels of `inner` elements.
typedef struct group_task {
  void *y, *mean, *rstd, *sums;
  const void *x, *grad, *weight, *bias;
  int64_t outer, channels, inner, groups, each;
  double eps;
  bool wide;
} group_task;

#define BOTH "cpu/group/group_norm_rows.h"
#include "cpu/vector/for_f32_f64.h"

static void group_run(void *ctx, int64_t begin, int64_t end) {
  const group_task *t = ctx;
  for (int64_t i = begin; i < end; i++) {
    if (t->grad)
      (t->wide ? group_backward_f64 : group_backward_f32)(t, i);
    else
      (t->wide ? group_f64 : group_f32)(t, i);
  }
}
static void group_start(group_task *t, const px_operand *x, int64_t groups) {
  px__split_sizes(x, 1, &t->outer, &t->channels, &t->inner);
  t->groups = groups, t->each = t->channels / groups;
}
static void group_all(group_task *t) {
  int64_t elements = t->each * t->inner;
  if (!elements) return;
  px__cpu_parallel(t->outer * t->groups, elements > GRAIN ? 1 : GRAIN / elements, group_run, t);
}

PX_KERNEL(grouped_norm) {
  px__dense d = {.launch = l};
  int compute = px__compute_of(args->input->dtype);
  group_task t = {.y = px__dense_out(&d, args->output, compute),
                  .mean = px__dense_out(&d, args->mean, compute),
                  .rstd = px__dense_out(&d, args->rstd, compute),
                  .x = px__dense_in(&d, args->input, compute),
                  .weight = px__dense_in(&d, args->weight, compute),
                  .bias = px__dense_in(&d, args->bias, compute),
                  .eps = args->eps,
                  .wide = compute == PX_FLOAT64};
  group_start(&t, args->input, args->num_groups);
  if (!d.failed) group_all(&t);
  px__dense_close(&d);
  return PX_OK;
}

PX_KERNEL(grouped_norm_backward) {
  px__dense d = {.launch = l};
  int compute = px__compute_of(args->input->dtype);
  void *weight = px__dense_out(&d, args->grad_weight, compute);
  void *bias = px__dense_out(&d, args->grad_bias, compute);
  group_task t = {.y = px__dense_out(&d, args->grad_input, compute),
                  .grad = px__dense_in(&d, args->grad_output, compute),
                  .x = px__dense_in(&d, args->input, compute),
                  .mean = px__dense_in(&d, args->mean, compute),
                  .rstd = px__dense_in(&d, args->rstd, compute),
                  .weight = px__dense_in(&d, args->weight, compute),
                  .wide = compute == PX_FLOAT64};
  group_start(&t, args->input, args->num_groups);
  size_t bytes = (size_t)(t.outer * t.channels * 2) * sizeof(double);
  t.sums = d.failed ? NULL : px__scratch_new(l, bytes);
  if (t.sums) {
    px__cpu_clear(t.sums, bytes);
    group_all(&t);
    (t.wide ? group_sums_f64 : group_sums_f32)(&t, weight, bias);
  }
  free(t.sums);
  px__dense_close(&d);
  return PX_OK;
}
