// SPDX-License-Identifier: Apache-2.0
// Each sample of the op tables on meta against the CPU: results and gradients have equal sizes,
// strides and dtypes, and no memory.
#include "outcome.h"

static bool same(const sample *s, const px_tensor *want, const px_tensor *got) {
  if (!want || !got) return want == got;
  int ndim = px_tensor_ndim(want);
  bool good = ndim == px_tensor_ndim(got) && px_tensor_dtype(want) == px_tensor_dtype(got);
  for (int d = 0; good && d < ndim; d++)
    good = px_tensor_sizes(want)[d] == px_tensor_sizes(got)[d] &&
           px_tensor_strides(want)[d] == px_tensor_strides(got)[d];
  good = good && px_tensor_device(got).type == PX_META;
  if (!good) fprintf(stderr, "%s(%s): another result\n", s->op_name, s->text);
  return good;
}

// True if the last error is the one for ops with data-dependent sizes or copies to the CPU.
static bool needs_values(void) {
  const char *text = px_error_last()->message;
  return strstr(text, "needs values, but meta tensors have none") ||
         strstr(text, "cannot repeat_interleave a meta tensor without output_size") ||
         strstr(text, "Cannot copy out of meta tensor; no data!");
}

static int failures, compared, refused;

static void compare_with(const sample *meta, const outcome *want, const outcome *got) {
  CHECK_EQ(want->count, got->count);
  for (int i = 0; i < want->count; i++) failures += !same(meta, want->tensors[i], got->tensors[i]);
  compared++;
}

static void compare(int row, px_status (*run)(sample *s, outcome *out)) {
  sample cpu, meta;
  outcome want = {.count = 0}, got = {.count = 0};
  sample_open(&cpu, row, PX_FLOAT32, px_cpu());
  sample_open(&meta, row, PX_FLOAT32, px_meta());
  bool pins = strstr(cpu.op_name, "pin") != NULL;  // pinning is CPU only
  bool works = cpu.tensor_count && !pins && run(&cpu, &want) == PX_OK;
  px_error_clear();
  if (works && run(&meta, &got) == PX_OK) {
    compare_with(&meta, &want, &got);
  } else if (works) {
    bool known = needs_values();
    if (!known) fprintf(stderr, "%s(%s): %s\n", meta.op_name, meta.text, px_error_last()->message);
    px_error_clear();
    failures += !known, refused += known;
  }
  release_outcome(&want), release_outcome(&got);
  sample_close(&cpu), sample_close(&meta);
}

static void compare_all(px_status (*run)(sample *s, outcome *out)) {
  for (int i = 0; i < SAMPLE_ROWS; i++) compare(i, run);
  CHECK_EQ(failures, 0);
  CHECK(compared > 400 && refused < 30);
}

PX_TEST(results_on_meta_match_the_cpus) { compare_all(results); }
PX_TEST(gradients_on_meta_match_the_cpus) { compare_all(gradients); }
