// SPDX-License-Identifier: Apache-2.0
// Calls of ops by this layer: looked up by name once, and called through the driver, so that they
// are recorded if calls are.
#include "graph.h"

static const char *const names[PX__KNOWN_COUNT] = {[PX__ADD] = "add",
                                                   [PX__AS_STRIDED_OF] = "_as_strided",
                                                   [PX__AS_STRIDED] = "as_strided",
                                                   [PX__ANY] = "any",
                                                   [PX__CLONE] = "clone",
                                                   [PX__COPY] = "copy",
                                                   [PX__FILL] = "fill",
                                                   [PX__ISNAN] = "isnan",
                                                   [PX__MUL] = "mul",
                                                   [PX__RESHAPE] = "reshape",
                                                   [PX__SUM] = "sum",
                                                   [PX__TO_COPY] = "_to_copy",
                                                   [PX__ZERO] = "zero"};
static const px_op *ops[PX__KNOWN_COUNT];  // atomic

px_status px__op_known(const px_op **out, px__known known) {
  *out = __atomic_load_n(&ops[known], __ATOMIC_RELAXED);
  if (*out) return PX_OK;
  *out = px_op_find(names[known]);
  PX_CHECK(*out, PX_BUG, "autograd needs the op '%s'", names[known]);
  __atomic_store_n(&ops[known], *out, __ATOMIC_RELAXED);
  return PX_OK;
}

static px_status call(void **results, px__known known, px_call_mode mode, int count,
                      const px_value *args) {
  const px_op *op;
  PX_TRY(px__op_known(&op, known));
  px_value all[PX__MAX_PARAMS_OF_OP] = {0};
  memcpy(all, args, (size_t)count * sizeof *args);
  return px_op_call(op, mode, all, results);
}

px_status px__call(px_tensor **out, px__known known, int count, const px_value *args) {
  void *results[1] = {NULL};
  PX_TRY(call(results, known, PX_CALL_NEW, count, args));
  *out = results[0];
  return PX_OK;
}

px_status px__call_inplace(px__known known, int count, const px_value *args) {
  void *results[1] = {NULL};
  PX_TRY(call(results, known, PX_CALL_INPLACE, count, args));
  px_release(results[0]);
  return PX_OK;
}

px_status px__call_to(px_tensor **out, px_tensor *t, px_dtype dtype, px_device device) {
  return px__call(out, PX__TO_COPY, 3, (px_value[]){PX_T(t), PX_DT(dtype), PX_DV(device)});
}
