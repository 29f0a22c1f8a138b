// SPDX-License-Identifier: Apache-2.0
// Cross entropy of rows of logits: logsumexp of the row minus the target's logit, and its gradient.
// Threads share the rows.
#include "cpu/convert/dense.h"
#include "cpu/threads/threads.h"
#include "cpu/vector/rows.h"
#include "kernel_args/loss.h"

#include <math.h>

enum { GRAIN = 16 * 1024 };  // elements per thread, min

typedef struct class_task {
  const px_launch *launch;
  void *losses, *logsumexp, *to;
  const void *x, *grad;
  const int64_t *target;
  int64_t size, ignore;
  bool wide;
} class_task;

// The class of a row, or -1 if ignored. An invalid class is reported.
static int64_t class_of_row(const class_task *t, int64_t i) {
  int64_t c = t->target[i];
  if (c == t->ignore) return -1;
  if (c >= 0 && c < t->size) return c;
  px_kernel_fault(t->launch, PX_FAULT_TARGET, c, 0, 0);
  return -1;
}

#define BOTH "cpu/nn/cross_entropy_rows.h"
#include "cpu/vector/for_f32_f64.h"

static void class_run(void *ctx, int64_t begin, int64_t end) {
  const class_task *t = ctx;
  for (int64_t i = begin; i < end; i++) {
    if (t->to)
      (t->wide ? class_backward_f64 : class_backward_f32)(t, i);
    else
      (t->wide ? class_loss_f64 : class_loss_f32)(t, i);
  }
}
static void class_all(px__dense *d, class_task *t, const px_operand *input) {
  t->size = input->sizes[1];
  if (!d->failed && px_operand_numel(input))
    px__cpu_parallel(input->sizes[0], t->size > GRAIN ? 1 : GRAIN / t->size, class_run, t);
  px__dense_close(d);
}

PX_KERNEL(class_losses) {
  px__dense d = {.launch = l};
  int compute = px__compute_of(args->input->dtype);
  class_task t = {.launch = l,
                  .losses = px__dense_out(&d, args->losses, compute),
                  .logsumexp = px__dense_out(&d, args->logsumexp, compute),
                  .x = px__dense_in(&d, args->input, compute),
                  .target = px__dense_in(&d, args->target, PX_INT64),
                  .ignore = args->ignore_index,
                  .wide = compute == PX_FLOAT64};
  class_all(&d, &t, args->input);
  return PX_OK;
}
PX_KERNEL(class_losses_backward) {
  px__dense d = {.launch = l};
  int compute = px__compute_of(args->input->dtype);
  class_task t = {.launch = l,
                  .to = px__dense_out(&d, args->out, compute),
                  .grad = px__dense_in(&d, args->grad_losses, compute),
                  .x = px__dense_in(&d, args->input, compute),
                  .target = px__dense_in(&d, args->target, PX_INT64),
                  .logsumexp = px__dense_in(&d, args->logsumexp, compute),
                  .ignore = args->ignore_index,
                  .wide = compute == PX_FLOAT64};
  class_all(&d, &t, args->input);
  return PX_OK;
}
