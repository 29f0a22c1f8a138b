// SPDX-License-Identifier: Apache-2.0
// Masks: nonzero and masked_select against a loop over a copy.
#include "kernels_help.h"

// Zeros of both signs, NaN, and numbers with only low bits set.
static px_tensor *sparse(px_dtype dtype, int ndim, const int64_t *sizes) {
  px_tensor *t = NULL;
  OK(px_tensor_empty(&t, ndim, sizes, dtype, px_cpu()));
  char *at = px_tensor_data(t);
  uint64_t state = 5;
  const double odd[] = {NAN, -0.0, 0.0, 1e-7, -3};
  for (int64_t i = 0; i < px_tensor_numel(t); i++, at += px_dtype_size(dtype)) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    px_scalar x = px_int((int64_t)(state >> 62) - 1);
    if (px_dtype_is_float(dtype)) x = px_float(odd[(state >> 40) % 5]);
    px_scalar_store(x, dtype, at);
  }
  return t;
}
// Compares nonzero and masked_select of the three-dimensional `view` with a loop over a copy.
static void check_selected(const px_tensor *view) {
  PX_SCOPED(px_tensor) copy = NULL;
  PX_SCOPED(px_tensor) indices = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) mask = NULL;
  PX_SCOPED(px_tensor) picked = NULL;
  OK(px_clone(&copy, view, "contiguous_format"));
  OK(px_nonzero(&indices, view));
  OK(px_contiguous(&rows, indices));
  OK(px_to(&mask, view, PX_BOOL, PX_DEVICE_NONE, false, false));
  OK(px_masked_select(&picked, view, mask));
  const int64_t *sizes = px_tensor_sizes(view), *at = px_tensor_data(rows);
  size_t item = px_dtype_size(px_tensor_dtype(view));
  const char *all = px_tensor_data(copy), *got = px_tensor_data(picked);
  int64_t n = 0;
  for (int64_t i = 0; i < px_tensor_numel(view); i++) {
    double x = px_scalar_float(px_scalar_load(px_tensor_dtype(view), all + (size_t)i * item));
    if (x == 0) continue;
    CHECK(n < px_tensor_sizes(rows)[0]);
    CHECK_EQ(at[3 * n], i / (sizes[1] * sizes[2]));
    CHECK_EQ(at[3 * n + 1], i / sizes[2] % sizes[1]);
    CHECK_EQ(at[3 * n + 2], i % sizes[2]);
    CHECK(!memcmp(got + (size_t)n * item, all + (size_t)i * item, item));
    n++;
  }
  CHECK_EQ(n, px_tensor_sizes(rows)[0]);
  CHECK_EQ(n, px_tensor_numel(picked));
}
PX_TEST(nonzero_in_every_dtype_and_layout) {
  static const int64_t shapes[][3] = {{1, 1, 1}, {2, 3, 5}, {3, 2, 4097}, {300, 40, 5}, {4, 0, 2}};
  for (px_dtype d = PX_BOOL; d <= PX_FLOAT64; d++)
    for (int i = 0; i < 5; i++) {
      PX_SCOPED(px_tensor) t = sparse(d, 3, shapes[i]);
      PX_SCOPED(px_tensor) transposed = NULL;
      OK(px_transpose(&transposed, t, 0, 2));
      check_selected(t);
      check_selected(transposed);
    }
}
PX_TEST(selections_are_the_same_with_any_number_of_threads) {
  PX_SCOPED(px_tensor) t = sparse(PX_FLOAT32, S(2, 5, 50001));
  int64_t threads = px_num_threads();
  for (int64_t count = 1; count < 4; count++) {
    OK(px_set_num_threads(count));
    check_selected(t);
  }
  OK(px_set_num_threads(threads));
}
PX_TEST(a_mask_broadcasts_with_the_input) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(2, 1), VALUES(1, 2));
  PX_SCOPED(px_tensor) mask = made(PX_BOOL, S(3), VALUES(1, 0, 1));
  PX_SCOPED(px_tensor) all = made(PX_BOOL, 0, NULL, VALUES(1));
  PX_SCOPED(px_tensor) some = NULL;
  PX_SCOPED(px_tensor) whole = NULL;
  OK(px_masked_select(&some, x, mask));
  ELEMENTS(some, 0, 1, 1, 2, 2);
  OK(px_masked_select(&whole, x, all));
  ELEMENTS(whole, 0, 1, 2);
}
