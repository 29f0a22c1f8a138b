// SPDX-License-Identifier: Apache-2.0
// Connectionist temporal classification (Graves et al. 2006). The states of an example are its
// labels with blanks around them. Log probabilities of all paths to each state advance one time
// step at a time, for all examples and states at once, by recorded ops.
#include <math.h>

#include "formulas.h"
#include "ops/core/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/loss.h"
#include "phlox/ops/pointwise.h"
#include "phlox/ops/view.h"
#include "run_functions/loss.h"

#define LL(x) ((long long)(x))
// Log probability of impossible paths, far below all possible ones, as in the formulas.
#define NEVER (-1e30)

// Lengths and targets, prepared on the host, then moved to the device of log_probs.
typedef struct ctc {
  const px_tensor *log_probs;  // [T, N, C]
  int64_t times, batch, classes, states, blank;
  px_tensor *input_lengths, *target_lengths;  // int64 on the CPU
  px_tensor *labels, *skips, *lasts;  // [1, N, states], [N, states] bool, [N, 2] final states
  px_tensor *offset;                  // [N, states]
} ctc;
static void ctc_release(ctc *c) {
  px_tensor *all[] = {c->input_lengths, c->target_lengths, c->labels,
                      c->skips,         c->lasts,          c->offset};
  for (int i = 0; i < PX_COUNT_OF(all); i++) px_release(all[i]);
}

static px_status on_host(px_tensor **out, const px_tensor *t) {
  const int64_t *read;  // px__tensor_read waits for pending copies
  PX_SCOPED(px_tensor) wide_input = NULL;
  PX_TRY(px__check_not_batched(t));
  PX_TRY(px__tensor_to(&wide_input, t, PX_INT64, px_cpu()));
  PX_TRY(px_contiguous(out, wide_input));
  return px__tensor_read(&read, *out);
}
static px_status check_lengths(const ctc *c) {
  const int64_t *in = px__tensor_at(c->input_lengths), *of = px__tensor_at(c->target_lengths);
  static const char where[] = "(while checking arguments for ctc_loss_allocate_outputs)";
  PX_CHECK(c->input_lengths->numel == c->batch, PX_RUNTIME,
           "input_lengths must be of size batch_size");
  PX_CHECK(c->target_lengths->numel == c->batch, PX_RUNTIME,
           "target_lengths must be of size batch_size");
  for (int64_t n = 0; n < c->batch; n++) {
    PX_CHECK(in[n] >= 0, PX_RUNTIME,
             "Expected input_lengths to have value at least 0, but got value %lld %s", LL(in[n]),
             where);
    PX_CHECK(in[n] <= c->times, PX_RUNTIME,
             "Expected input_lengths to have value at most %lld, but got value %lld %s",
             LL(c->times), LL(in[n]), where);
    PX_CHECK(of[n] >= 0, PX_RUNTIME,
             "Expected target_lengths to have value at least 0, but got value %lld %s", LL(of[n]),
             where);
    PX_CHECK(of[n] < INT32_MAX, PX_RUNTIME, "integer out of range");
  }
  return PX_OK;
}
// Checks the size of targets against the target lengths.
static px_status check_targets(const ctc *c, const px_tensor *targets) {
  const int64_t *of = px__tensor_at(c->target_lengths);
  int64_t sum = 0, longest = 0;
  for (int64_t n = 0; n < c->batch; n++) sum += of[n], longest = of[n] > longest ? of[n] : longest;
  bool rows = targets->ndim == 2;
  PX_CHECK(targets->ndim == 1 || rows, PX_RUNTIME,
           "Expected 1 to 2 dimensions, but got %d-dimensional tensor for argument #2 'targets' "
           "(while checking arguments for ctc_loss_allocate_outputs)",
           targets->ndim);
  for (int d = 0; d < targets->ndim; d++) {
    int64_t expected = !rows ? sum : d == 0 ? c->batch : longest;
    bool fits = d == 0 ? targets->sizes[d] == expected : targets->sizes[d] >= expected;
    PX_CHECK(fits, PX_RUNTIME,
             "Expected tensor to have size %s%lld at dimension %d, but got size %lld for argument "
             "#2 'targets' (while checking arguments for ctc_loss_allocate_outputs)",
             d ? "at least " : "", LL(expected), d, LL(targets->sizes[d]));
  }
  return PX_OK;
}

// Writes the states of each example: blank, label, blank, ... Shorter examples are padded with
// blanks.
static px_status write_states(ctc *c, const px_tensor *targets) {
  const int64_t *of = px__tensor_at(c->target_lengths), *from = px__tensor_at(targets);
  int64_t longest = 0, offset = 0, states[3] = {1, c->batch, 0};
  for (int64_t n = 0; n < c->batch; n++) longest = of[n] > longest ? of[n] : longest;
  c->states = states[2] = 2 * longest + 1;
  PX_TRY(px_tensor_empty(&c->labels, 3, states, PX_INT64, px_cpu()));
  PX_TRY(px_tensor_empty(&c->skips, 2, states + 1, PX_BOOL, px_cpu()));
  PX_TRY(px_tensor_empty(&c->lasts, 2, (int64_t[]){c->batch, 2}, PX_INT64, px_cpu()));
  int64_t *label = px__tensor_at(c->labels), *last = px__tensor_at(c->lasts);
  bool *skip = px__tensor_at(c->skips);
  for (int64_t n = 0; n < c->batch; n++, label += c->states, skip += c->states) {
    const int64_t *own = from + (targets->ndim == 2 ? n * targets->sizes[1] : offset);
    for (int64_t s = 0; s < c->states; s++) {
      bool is_class = s % 2 && s / 2 < of[n];
      label[s] = is_class ? own[s / 2] : c->blank;
      PX_CHECK(label[s] >= 0 && label[s] < c->classes, PX_RUNTIME,
               "ctc_loss: class %lld of targets is not in [0, %lld)", LL(label[s]), LL(c->classes));
      skip[s] = is_class && s > 1 && label[s] != label[s - 2];
    }
    last[2 * n] = 2 * of[n], last[2 * n + 1] = of[n] ? 2 * of[n] - 1 : 0;
    offset += of[n];
  }
  return PX_OK;
}
static px_status to_device(px_tensor **t, px_device device) {
  px_tensor *shift_states;
  PX_TRY(px__tensor_to(&shift_states, *t, PX_DTYPE_NONE, device));
  px_release(*t);
  *t = shift_states;
  return PX_OK;
}
static px_status prepare(ctc *c, const px_tensor *targets, const px_tensor *input_lengths,
                         const px_tensor *target_lengths) {
  px_device device = px__tensor_device(c->log_probs);
  PX_SCOPED(px_tensor) classes = NULL;
  PX_SCOPED(px_tensor) first = NULL;
  PX_TRY(on_host(&c->input_lengths, input_lengths));
  PX_TRY(on_host(&c->target_lengths, target_lengths));
  PX_TRY(on_host(&classes, targets));
  PX_TRY(check_lengths(c));
  PX_TRY(check_targets(c, classes));
  PX_TRY(write_states(c, classes));
  PX_TRY(to_device(&c->labels, device));
  PX_TRY(to_device(&c->skips, device));
  PX_TRY(to_device(&c->lasts, device));
  PX_TRY(px_full(&c->offset, (int64_t[]){c->batch, c->states}, 2, px_float(NEVER),
                 (px_dtype)c->log_probs->dtype, device, false, false));
  PX_TRY(px__part_select(&first, c->offset, 1, 0));
  return px_zero_(first);
}

PX_RUN(ctc_loss) {
  px_tensor *x = args->log_probs;
  bool unbatched = x->ndim == 2;
  PX_SCOPED(px_tensor) batch = NULL;
  PX_SCOPED(px_tensor) wide_input = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  PX_CHECK(px_dtype_is_float((px_dtype)x->dtype), PX_UNIMPLEMENTED,
           "\"ctc_loss_cpu\" not implemented for '%s'", px_dtype_class((px_dtype)x->dtype));
  // fp16 and bf16 cannot represent NEVER.
  px_dtype dtype = (px_dtype)x->dtype, wide = dtype == PX_FLOAT64 ? PX_FLOAT64 : PX_FLOAT32;
  PX_TRY(px__tensor_to(&wide_input, x, wide, PX_DEVICE_NONE));
  if (unbatched)
    PX_TRY(px_unsqueeze(&batch, wide_input, 1));
  else
    batch = px_retain(wide_input);
  ctc c = {.log_probs = batch,
           .times = batch->sizes[0],
           .batch = batch->sizes[1],
           .classes = batch->sizes[2],
           .blank = args->blank};
  px_status status = prepare(&c, args->targets, args->input_lengths, args->target_lengths);
  if (status == PX_OK)
    status = px__formula_ctc_loss_of(
        &made, (px_value[]){PX_T(batch), PX_T(c.labels), PX_T(c.offset), PX_T(c.skips),
                            PX_T(c.lasts), PX_T(c.input_lengths), PX_T(c.target_lengths),
                            PX_B(args->zero_infinity), PX_TX(args->reduction), PX_B(!unbatched)});
  ctc_release(&c);
  if (status != PX_OK) return status;
  return px__tensor_to(&call->results[0], made, dtype, PX_DEVICE_NONE);
}

static px_status of_numbers(px_tensor **out, px_value list) {
  int64_t count = list.n;
  PX_TRY(px_tensor_empty(out, 1, &count, PX_INT64, px_cpu()));
  if (count) memcpy(px__tensor_at(*out), list.v.ints, (size_t)count * sizeof(int64_t));
  return PX_OK;
}
PX_RUN(ctc_loss_lengths) {
  PX_SCOPED(px_tensor) input_lengths = NULL;
  PX_SCOPED(px_tensor) target_lengths = NULL;
  PX_TRY(of_numbers(&input_lengths, args->input_lengths));
  PX_TRY(of_numbers(&target_lengths, args->target_lengths));
  return px_ctc_loss(&call->results[0], args->log_probs, args->targets, input_lengths,
                     target_lengths, args->blank, args->reduction, args->zero_infinity);
}
