// SPDX-License-Identifier: Apache-2.0
// Each sample of the op tables on a device against the CPU: results in each dtype, and gradients in
// each floating dtype from the same output gradient. DEVICE_OP=name in the environment selects one
// op.
#include "device_help.h"
#include "outcome.h"

typedef px_status (*runner)(sample *s, outcome *out);

static int compared;
static bool chosen(const sample *s) {
  const char *only = getenv("DEVICE_OP");
  if (only && strcmp(only, s->op_name)) return false;
  // Matrices of bools are singular, so libraries differ.
  if (s->dtype == PX_BOOL && strstr(s->op_name, "linalg_")) return false;
  // Uninitialised memory and random numbers (tested elsewhere) differ, and pinned memory is CPU
  // only.
  return !(s->op->flags & (PX_OP_RANDOM | PX_OP_IS_FACTORY)) && !strstr(s->op_name, "empty") &&
         !strstr(s->op_name, "pin");
}

// Norm statistics of fp16 and bf16 are float32 on devices, as in PyTorch. They are compared in the
// low precision.
static void narrow_statistics(const sample *s, outcome *got) {
  if (strncmp(s->op_name, "batch_norm_", 11) && strncmp(s->op_name, "layer_norm_with", 15)) return;
  for (int k = 1; k < got->count; k++) {
    px_tensor *narrow = NULL;
    OK(px_to(&narrow, got->tensors[k], s->dtype, PX_DEVICE_NONE, false, false));
    px_release(got->tensors[k]);
    got->tensors[k] = narrow;
  }
}
static void drop_signs(const sample *s, outcome *o) {
  if (!sample_has_free_signs(s)) return;
  for (int k = 0; k < o->count; k++) {
    px_tensor *t = NULL;
    OK(px_abs(&t, o->tensors[k]));
    px_release(o->tensors[k]);
    o->tensors[k] = t;
  }
}
static bool same(const sample *s, const outcome *want, const outcome *got, double looser) {
  char what[512];
  bool good = want->count == got->count;
  snprintf(what, sizeof what, "%s(%s) of %s", s->op_name, s->text, px_dtype_name(s->dtype));
  if (!good) fprintf(stderr, "%s: %d tensors, not %d\n", what, got->count, want->count);
  for (int k = 0; good && k < want->count; k++) {
    if (!want->tensors[k] || !got->tensors[k]) {
      good = want->tensors[k] == got->tensors[k];
      if (!good) fprintf(stderr, "%s: tensor %d is on one device only\n", what, k);
      continue;
    }
    // Integers give float32 results. Fourier transforms are differences of larger sums.
    double tolerance = tolerance_of(px_tensor_dtype(want->tensors[k]));
    if (!strncmp(s->op_name, "fft_", 4)) tolerance *= 8;
    good = agrees(what, want->tensors[k], got->tensors[k], looser * tolerance);
  }
  return good;
}

// PyTorch lacks integer matrix products on CUDA, too, and its errors have these names. Ops missing
// only in Phlox are named in the error.
static bool is_lacking(const sample *s) {
  static const char *const products[] = {"addmm_cuda", "baddbmm_cuda", "addmv_impl_cuda", "dot"};
  const char *text = px_error_last()->message;
  char wanted[128];
  if (px_error_last()->code == PX_UNIMPLEMENTED && strstr(text, " is not implemented for GPUs"))
    return true;
  for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
    snprintf(wanted, sizeof wanted, "\"%s\" not implemented for '%s'", products[i],
             px_dtype_class(s->dtype));
    if (!px_dtype_is_float(s->dtype) && !strcmp(text, wanted)) return true;
  }
  return false;
}
static bool sample_agrees(int row, px_dtype dtype, runner run, double looser) {
  sample cpu, device;
  outcome want = {.count = 0}, got = {.count = 0};
  bool good = true;
  sample_open(&cpu, row, dtype, px_cpu());
  // Samples refused by the CPU are skipped.
  if (!chosen(&cpu) || run(&cpu, &want) != PX_OK || !want.count) {
    px_error_clear();
    sample_close(&cpu);
    return true;
  }
  sample_open(&device, row, dtype, px_cuda(0));
  fill_registers_with_nan();
  bool lacks = false;
  px_status status = run(&device, &got);
  if (status != PX_OK) {
    lacks = is_lacking(&device) || sample_is_for_another(&device);
    if (!lacks)
      fprintf(stderr, "%s(%s) of %s: %s\n", cpu.op_name, cpu.text, px_dtype_name(dtype),
              px_error_last()->message);
    px_error_clear();
    good = lacks;
  }
  if (run == results && !status) {
    narrow_statistics(&device, &got);
    drop_signs(&device, &got), drop_signs(&cpu, &want);
  }
  good = good && (lacks || same(&cpu, &want, &got, looser));
  compared += good && !lacks;
  release_outcome(&want), release_outcome(&got);
  sample_close(&cpu);
  sample_close(&device);
  return good;
}
static void check_all(px_dtype dtype, runner run, double looser) {
  int failed = 0;
  arrange();
  for (int i = 0; i < SAMPLE_ROWS; i++) failed += !sample_agrees(i, dtype, run, looser);
  fprintf(stderr, "%d samples compared, %d differ\n", compared, failed);
  CHECK_EQ(failed, 0);
  CHECK(compared > SAMPLE_ROWS / 4 || getenv("DEVICE_OP"));
}

// ---- results

#define RESULTS(dtype) \
  PX_TEST(results_in_##dtype) { check_all(PX_##dtype, results, 1); }
RESULTS(FLOAT64)
RESULTS(FLOAT32)
RESULTS(FLOAT16)
RESULTS(BFLOAT16)
RESULTS(INT64)
RESULTS(INT32)
RESULTS(INT16)
RESULTS(INT8)
RESULTS(UINT8)
RESULTS(BOOL)

// ---- gradients

#define GRADIENTS(dtype) \
  PX_TEST(gradients_in_##dtype) { check_all(PX_##dtype, gradients, 3); }
GRADIENTS(FLOAT64)
GRADIENTS(FLOAT32)
GRADIENTS(FLOAT16)
GRADIENTS(BFLOAT16)
