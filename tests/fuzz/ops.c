// SPDX-License-Identifier: Apache-2.0
// Each op, including internal ones, called by name with random arguments of all kinds
// (arguments.h), in all forms, on the CPU, on simulated devices and on meta, and inside a map.
// FUZZ_OP=softmax selects one op. FUZZ_SHOW=1 prints calls.

#include "fuzz/arguments.h"

// The bytes of a writable host tensor, to check that a failed call leaves them unchanged.
static char contents[2][MAX_ELEMENTS * 16];
static size_t copy_bytes(const px_tensor *t, char *bytes) {
  size_t size = t ? (size_t)px_tensor_numel(t) * px_dtype_size(px_tensor_dtype(t)) : 0;
  if (!t || px_tensor_device(t).type != PX_CPU || px_tensor_numel(t) > MAX_ELEMENTS) return 0;
  OK(px_tensor_read(t, bytes, size));
  return size;
}

static void call(const px_op *op, const sample *s, const px_value *args) {
  static const char *const forms[] = {"new", "in place", "out="};
  px_call_mode mode = (px_call_mode)(fuzz_one_in(2) ? 0 : fuzz_below(3));
  if (op->flags & PX_OP_ONLY_INPLACE && !fuzz_one_in(20)) mode = PX_CALL_INPLACE;
  void *results[4] = {NULL};
  px_tensor *written = NULL;
  if (mode == PX_CALL_OUT) results[0] = written = any_tensor(s);
  if (mode == PX_CALL_INPLACE && args[0].kind == PX_ARG_TENSOR) written = args[0].v.tensor;
  bool batched = written && px_tensor_is_batched(written);
  size_t size = batched ? 0 : copy_bytes(written, contents[0]);
  show(op, forms[mode], args);
  px_status status = px_op_call(op, mode, args, results);
  if (fuzz_fine(status))
    use_results(op->flags & PX_OP_RETURNS_LIST && mode == PX_CALL_NEW,
                mode == PX_CALL_INPLACE ? 1 : op->result_count, results);
  if (status == PX_OK || batched) return;
  CHECK_EQ(copy_bytes(written, contents[1]), size);
  CHECK(!memcmp(contents[0], contents[1], size));
}

static const px_op *some_op(bool hidden) {
  const px_op *op;
  do op = px_op_at((int)fuzz_below(px_op_count()));
  while (((op->flags & PX_OP_HIDDEN) != 0) != hidden);
  return chosen_op() ? chosen_op() : op;
}

static void call_op(bool hidden) {
  sample s;
  px_value args[SAMPLE_PARAMS] = {{0}};
  prepare();
  const px_op *op = some_op(hidden);
  px_manual_seed(1);
  some_arguments(&s, op, args);
  call(op, &s, args);
  close_case(&s);
  for (int i = 0; i < 2; i++) wait_for(i);
}
FUZZ(calls_of_public_ops) { call_op(false); }
FUZZ(calls_of_hidden_ops) { call_op(true); }

// Two copies of a tensor, batched in the innermost map; NULL if that is too many dimensions.
static px_tensor *batched(px_tensor *t) {
  px_tensor *both = NULL, *out = NULL;
  if (px_tensor_ndim(t) == PX_MAX_DIMS || px_tensor_is_batched(t)) return NULL;
  if (!fuzz_fine(px_stack(&both, (px_tensor *[]){t, t}, 2, 0))) return NULL;
  OK(px_batch(&out, keep(both), 0));
  return keep(out);
}

// Batches some of the arguments.
static void batch_some(const px_op *op, px_value *args) {
  for (int i = 0; i < op->param_count; i++) {
    px_tensor *one = NULL;
    if (args[i].kind == PX_ARG_TENSOR && !fuzz_one_in(3) && (one = batched(args[i].v.tensor)))
      args[i].v.tensor = one;
    if (args[i].kind != PX_ARG_TENSORS || args[i].n > NUMBERS || !fuzz_one_in(2)) continue;
    for (int k = 0; k < args[i].n; k++) {
      px_tensor *t = args[i].v.tensors[k];
      lists[i][k] = t && k < 8 && (one = batched(t)) ? one : t;
    }
    args[i].v.tensors = lists[i];
  }
}

FUZZ(calls_of_ops_inside_a_map) {
  sample s;
  px_value args[SAMPLE_PARAMS] = {{0}};
  int level;
  prepare();
  const px_op *op = some_op(fuzz_one_in(2));
  px_manual_seed(1);
  some_arguments(&s, op, args);
  OK(px_vmap_begin(&level, 2, (px_randomness)fuzz_below(3)));
  batch_some(op, args);
  call(op, &s, args);
  px_vmap_end();
  close_case(&s);
  for (int i = 0; i < 2; i++) wait_for(i);
}
