// SPDX-License-Identifier: Apache-2.0
// Random orders of rows in PyTorch's sequence of draws, and batches of rows.
#include "phlox/data.h"
#include "phlox/ops/index.h"
#include "phlox/ops/random.h"

#include <string.h>

// ---- orders

px_status px_seed_draw(int64_t *out, px_generator *generator) {
  PX_GIVEN(out);
  if (!generator) PX_TRY(px_generator_default(&generator, px_cpu()));
  *out = (int64_t)(px_generator_next(generator) & INT64_MAX);
  return PX_OK;
}

px_status px_random_permutation(int64_t *out, int64_t length, px_generator *generator) {
  PX_GIVEN_N(out, length);
  PX_SCOPED(px_tensor) order = NULL;
  PX_TRY(px_randperm(&order, length, generator, PX_INT64, px_cpu(), false, false));
  return px_tensor_read(order, out, (size_t)length * sizeof *out);
}

// Concatenates permutations, the last one truncated. It is drawn even if truncated to nothing, as
// in PyTorch.
static px_status draw_permutations(int64_t *out, int64_t length, int64_t count,
                                   px_generator *generator) {
  int64_t *order;
  PX_TRY(px_alloc((void **)&order, (size_t)length * sizeof *order));
  px_status status = PX_OK;
  for (int64_t done = 0; done <= count && status == PX_OK; done += length) {
    int64_t take = count - done < length ? count - done : length;
    status = px_random_permutation(order, length, generator);
    if (status == PX_OK) memcpy(out + done, order, (size_t)take * sizeof *order);
  }
  px_free(order);
  return status;
}

// Draws with replacement, in chunks of 32 as in PyTorch.
static px_status draw_with_replacement(int64_t *out, int64_t length, int64_t count,
                                       px_generator *generator) {
  for (int64_t done = 0; done < count; done += 32) {
    PX_SCOPED(px_tensor) some = NULL;
    int64_t take = count - done < 32 ? count - done : 32;
    PX_TRY(px_randint_below(&some, length, &take, 1, generator, PX_INT64, px_cpu(), false, false));
    PX_TRY(px_tensor_read(some, out + done, (size_t)take * sizeof *out));
  }
  return PX_OK;
}

px_status px_random_order(int64_t *out, int64_t length, int64_t count, bool replacement,
                          px_generator *generator) {
  PX_GIVEN_N(out, count);
  PX_CHECK(length > 0 || count == 0, PX_VALUE, "cannot draw %lld samples from an empty dataset",
           (long long)count);
  PX_SCOPED(px_generator) fresh = NULL;
  int64_t seed;
  if (!generator) {
    PX_TRY(px_seed_draw(&seed, NULL));
    PX_TRY(px_generator_new(&fresh, px_cpu()));
    PX_TRY(px_generator_seed(fresh, (uint64_t)seed));
    generator = fresh;
  }
  if (length == 0) return PX_OK;
  return replacement ? draw_with_replacement(out, length, count, generator)
                     : draw_permutations(out, length, count, generator);
}

// ---- rows

// The index tensor is created once per device.
static px_status cut_rows(px_tensor **made, px_tensor *const *tensors, int64_t n,
                          const int64_t *indices, int64_t count) {
  PX_SCOPED(px_tensor) index = NULL;
  for (int64_t i = 0; i < n; i++) {
    px_device device = px_tensor_device(tensors[i]);
    if (!index || !px_device_equal(px_tensor_device(index), device)) {
      px_release(index), index = NULL;
      PX_TRY(px_tensor_from_data(&index, indices, 1, &count, PX_INT64, device));
    }
    PX_TRY(px_index_select(&made[i], tensors[i], 0, index));
  }
  return PX_OK;
}

px_status px_collate_rows(px_list **out, px_tensor *const *tensors, int64_t n,
                          const int64_t *indices, int64_t count) {
  PX_GIVEN(out);
  PX_GIVEN_N(tensors, n);
  PX_GIVEN_N(indices, count);
  *out = NULL;
  for (int64_t i = 0; i < n; i++)
    PX_CHECK(tensors[i], PX_TYPE, "tensor %lld of a batch is missing", (long long)i);
  px_tensor **made;
  PX_TRY(px_alloc((void **)&made, (size_t)n * sizeof *made));
  px_status status = cut_rows(made, tensors, n, indices, count);
  if (status == PX_OK) status = px_list_new(out, made, n);
  for (int64_t i = 0; i < n; i++) px_release(made[i]);
  px_free(made);
  return status;
}
