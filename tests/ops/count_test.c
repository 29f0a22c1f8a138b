// SPDX-License-Identifier: Apache-2.0
// Counting and sums on the CPU against loops over single elements: bincount, histograms,
// unique_consecutive, and sums of fp16 and bf16. Results do not depend on the number of threads.
#include "kernels_help.h"
#include "phlox/ops/statistics.h"

#include <math.h>
#include <stdlib.h>

static const int64_t thread_counts[] = {1, 2, 7, 16};

// Integers in [0, below), or floats from -1 in steps of 2 / below, in runs of up to `run`.
static px_tensor *numbers(px_dtype dtype, int64_t n, int below, int run) {
  px_tensor *t = NULL;
  OK(px_tensor_empty(&t, S(n), dtype, px_cpu()));
  char *at = px_tensor_data(t);
  uint64_t state = 5;
  int64_t x = 0;
  for (int64_t i = 0; i < n; i++, at += px_dtype_size(dtype)) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    if ((int64_t)(state >> 40) % run == 0) x = (int64_t)(state >> 33) % below;
    bool real = px_dtype_is_float(dtype);
    px_scalar_store(real ? px_float(2. * (double)x / below - 1) : px_int(x), dtype, at);
  }
  return t;
}
static double value(const px_tensor *t, int64_t i) {
  size_t item = px_dtype_size(px_tensor_dtype(t));
  return px_scalar_float(
      px_scalar_load(px_tensor_dtype(t), (const char *)px_tensor_data(t) + (size_t)i * item));
}

PX_TEST(bincount_matches_a_loop) {
  static const px_dtype dtypes[] = {PX_UINT8, PX_INT16, PX_INT32, PX_INT64};
  static const int64_t sizes[] = {1, 7, 1000, 300001};
  int64_t threads = px_num_threads();
  for (int i = 0; i < 4 * 4 * 4 * 2; i++) {
    px_dtype dtype = dtypes[i % 4];
    int64_t n = sizes[i / 4 % 4], below = dtype == PX_UINT8 ? 200 : i < 64 ? 999 : 30000;
    PX_SCOPED(px_tensor) all = numbers(dtype, 2 * n, (int)below, 2);
    PX_SCOPED(px_tensor) t = NULL;
    PX_SCOPED(px_tensor) counts = NULL;
    int64_t step = 1 + i % 3 % 2, min_length = i % 5 ? 0 : 500, wanted[30000] = {0},
            top = min_length - 1;
    OK(px_slice(&t, all, 0, NULL, &n, step));
    OK(px_set_num_threads(thread_counts[i / 16 % 4]));
    OK(px_bincount(&counts, t, NULL, min_length));
    for (int64_t k = 0; k < n; k += step) {
      int64_t x = (int64_t)value(all, k);
      wanted[x]++;
      if (x > top) top = x;
    }
    CHECK_EQ(px_tensor_numel(counts), top + 1);
    CHECK(!memcmp(px_tensor_data(counts), wanted, (size_t)(top + 1) * sizeof *wanted));
  }
  OK(px_set_num_threads(threads));
}

// The bin of the last edge <= x. The last bin includes its upper edge.
static int64_t bin_of(double x, const px_tensor *edges) {
  int64_t bins = px_tensor_numel(edges) - 1, bin = bins - 1;
  if (!(x >= value(edges, 0) && x <= value(edges, bins))) return -1;
  while (bin > 0 && x < value(edges, bin)) bin--;
  return bin;
}
static void check_bins(px_dtype dtype, int64_t n, int64_t bins, double low, double high) {
  PX_SCOPED(px_tensor) t = numbers(dtype, n, 1000, 2);
  PX_SCOPED(px_tensor) edges = NULL;
  PX_SCOPED(px_tensor) counts = NULL;
  size_t item = px_dtype_size(dtype);
  double *wanted = calloc((size_t)bins, sizeof *wanted);
  OK(px_linspace(&edges, px_float(low), px_float(high), bins + 1, dtype, px_cpu(), false, false));
  for (int64_t k = 0; k < n && k <= bins; k++)  // on the edges
    memcpy((char *)px_tensor_data(t) + (size_t)k * item,
           (char *)px_tensor_data(edges) + (size_t)k * item, item);
  if (n > 3) px_scalar_store(px_float(NAN), dtype, px_tensor_data(t));
  if (n > 3) px_scalar_store(px_float(INFINITY), dtype, (char *)px_tensor_data(t) + item);
  OK(px_histc(&counts, t, bins, px_float(low), px_float(high)));
  for (int64_t k = 0; k < n; k++) {
    int64_t bin = bin_of(value(t, k), edges);
    if (bin >= 0) wanted[bin]++;
  }
  for (int64_t b = 0; b < bins; b++) CHECK(value(counts, b) == wanted[b]);
  free(wanted);
}
PX_TEST(histogram_bins_match_their_edges) {
  static const int64_t bins[] = {1, 7, 100, 3001};
  int64_t threads = px_num_threads();
  for (int i = 0; i < 32; i++) {
    px_dtype dtype = i % 2 ? PX_FLOAT64 : PX_FLOAT32;
    int64_t many = bins[i / 2 % 4];
    OK(px_set_num_threads(thread_counts[i / 8]));
    check_bins(dtype, 3, many, -1, 1);
    check_bins(dtype, many > 100 ? 5000 : 140000, many, i % 3 ? -0.7 : -1.3, 0.9);
  }
  OK(px_set_num_threads(threads));
}

PX_TEST(unique_consecutive_keeps_the_first_of_a_run) {
  static const px_dtype dtypes[] = {PX_INT32, PX_INT64, PX_FLOAT32, PX_FLOAT64,
                                    PX_UINT8, PX_INT8,  PX_INT16,   PX_FLOAT16};
  static const int64_t sizes[] = {1, 2, 15, 17, 33, 1000, 70001};
  for (int i = 0; i < 8 * 7 * 3 * 2; i++) {
    px_dtype dtype = dtypes[i % 8];
    int64_t n = sizes[i / 8 % 7], kept = 0, first = 0;
    bool lists = i >= 8 * 7 * 3;  // also counts and indices
    size_t item = px_dtype_size(dtype);
    PX_SCOPED(px_tensor) t = numbers(dtype, n, 100, 1 + i / 56 % 3 * 7);
    PX_SCOPED(px_tensor) values = NULL;
    PX_SCOPED(px_tensor) where = NULL;
    PX_SCOPED(px_tensor) counts = NULL;
    char *at = px_tensor_data(t);
    for (int64_t k = 3; px_dtype_is_float(dtype) && k + 3 < n && k < 9; k++)  // zeros, then NaN
      px_scalar_store(px_float(k < 5 ? k % 2 ? -0.0 : 0.0 : NAN), dtype, at + (size_t)k * item);
    OK(px_unique_consecutive(&values, &where, &counts, t, lists, lists, NULL));
    const char *found = px_tensor_data(values);
    const int64_t *inverse = px_tensor_data(where), *lengths = px_tensor_data(counts);
    for (int64_t k = 0; k < n; k++) {
      bool begins = k == 0 || value(t, k) != value(t, k - 1);
      if (lists) CHECK_EQ(inverse[k], kept - !begins);
      if (lists && begins && k) CHECK_EQ(lengths[kept - 1], k - first);
      if (!begins) continue;
      first = k;
      CHECK(kept < px_tensor_numel(values));
      CHECK(!memcmp(found + (size_t)kept++ * item, at + (size_t)k * item, item));
    }
    CHECK_EQ(px_tensor_numel(values), kept);
    CHECK_EQ(px_tensor_numel(counts), lists ? kept : 0);
    if (lists) CHECK_EQ(lengths[kept - 1], n - first);
    if (dtype != PX_FLOAT16)
      CHECK(px_storage_bytes(px_tensor_storage(values)) <= (size_t)(2 * kept + 2) * item);
  }
}

// Thirds, which need rounding. Rows that are short, part of a block, and several blocks; columns of
// few and of many rows.
PX_TEST(sums_of_fp16_and_bf16_match_float) {
  static const int64_t shapes[][2] = {{9, 5},    {70, 16},    {64, 23},  {3, 250},  {33, 1},
                                      {5, 3000}, {2, 140001}, {523, 39}, {7000, 16}};
  int64_t threads = px_num_threads();
  for (int i = 0; i < 2 * 9 * 4 * 2; i++) {
    px_dtype dtype = i % 2 ? PX_BFLOAT16 : PX_FLOAT16;
    const int64_t *shape = shapes[i / 2 % 9], along = i / 72;
    PX_SCOPED(px_tensor) line = numbers(dtype, shape[0] * shape[1], 300, 2);
    PX_SCOPED(px_tensor) halves = NULL;
    PX_SCOPED(px_tensor) floats = NULL;
    OK(px_reshape(&halves, line, shape, 2));
    OK(px_to(&floats, halves, PX_FLOAT32, PX_DEVICE_NONE, false, false));
    OK(px_set_num_threads(thread_counts[i / 18 % 4]));
    for (int k = 0; k < 3; k++) {
      PX_SCOPED(px_tensor) have = NULL;
      PX_SCOPED(px_tensor) sum = NULL;
      PX_SCOPED(px_tensor) wanted = NULL;
      OK((k == 1 ? px_mean : px_sum)(&have, halves, &along, k < 2, false, PX_DTYPE_NONE));
      OK((k == 1 ? px_mean : px_sum)(&sum, floats, &along, k < 2, false, PX_DTYPE_NONE));
      OK(px_to(&wanted, sum, dtype, PX_DEVICE_NONE, false, false));
      CHECK(!memcmp(px_tensor_data(have), px_tensor_data(wanted),
                    (size_t)px_tensor_numel(have) * px_dtype_size(dtype)));
    }
  }
  OK(px_set_num_threads(threads));
}
