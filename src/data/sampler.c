// SPDX-License-Identifier: Apache-2.0
// Orders of indices.
#include <stdio.h>
#include <string.h>

#include "phlox/data.h"
#include "phlox/ops/random.h"

struct px_sampler {
  px_object head;
  int64_t length;
  px_status (*draw)(px_sampler *self, int64_t *indices);
  px_generator *generator;  // may be NULL
  px_tensor *weights;       // of a weighted sampler
  bool replacement;
};

static void sampler_destroy(void *object) {
  px_sampler *self = object;
  px_release(self->generator);
  px_release(self->weights);
  px_object_end(self);
  px_free(self);
}

static const px_class sampler_class = {"sampler", sampler_destroy};

// ---- drawing indices

static px_status draw_in_order(px_sampler *self, int64_t *indices) {
  for (int64_t i = 0; i < self->length; i++) indices[i] = i;
  return PX_OK;
}

px_status px_seed_draw(int64_t *out, px_generator *generator) {
  PX_GIVEN(out);
  if (!generator) PX_TRY(px_generator_default(&generator, px_cpu()));
  *out = (int64_t)(px_generator_next(generator) & INT64_MAX);
  return PX_OK;
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

static px_status draw_random(px_sampler *self, int64_t *indices) {
  return px_random_order(indices, self->length, self->length, false, self->generator);
}

static px_status draw_weighted(px_sampler *self, int64_t *indices) {
  PX_SCOPED(px_tensor) drawn = NULL;
  PX_TRY(px_multinomial(&drawn, self->weights, self->length, self->replacement, self->generator));
  return px_tensor_read(drawn, indices, (size_t)self->length * sizeof *indices);
}

// ---- samplers

static px_status sampler_new(px_sampler **out, int64_t length,
                             px_status (*draw)(px_sampler *, int64_t *), px_generator *generator) {
  PX_TRY(px_alloc((void **)out, sizeof **out));
  px_object_init(*out, &sampler_class);
  (*out)->length = length;
  (*out)->draw = draw;
  (*out)->generator = px_retain(generator);
  return PX_OK;
}

px_status px_sampler_sequential(px_sampler **out, int64_t length) {
  PX_GIVEN(out);
  *out = NULL;
  PX_CHECK(length >= 0, PX_VALUE, "expected a length >= 0, got %lld", (long long)length);
  return sampler_new(out, length, draw_in_order, NULL);
}

static px_status check_samples(int64_t count) {
  PX_CHECK(count > 0, PX_VALUE,
           "num_samples should be a positive integer value, but got num_samples=%lld",
           (long long)count);
  return PX_OK;
}

px_status px_sampler_random(px_sampler **out, int64_t length, px_generator *generator) {
  PX_GIVEN(out);
  PX_TRY(check_samples(length));
  return sampler_new(out, length, draw_random, generator);
}

static px_status check_weights(const px_tensor *weights) {
  char shape[PX_MAX_DIMS * 24] = "";
  int ndim = px_tensor_ndim(weights);
  if (ndim == 1) return PX_OK;
  for (int d = 0, used = 0; d < ndim; d++)
    used += snprintf(shape + used, sizeof shape - (size_t)used, "%s%lld", d ? ", " : "",
                     (long long)px_tensor_sizes(weights)[d]);
  PX_FAIL(PX_VALUE, "weights should be a 1d sequence but given weights have shape (%s)", shape);
}

px_status px_sampler_weighted(px_sampler **out, px_tensor *weights, int64_t count, bool replacement,
                              px_generator *generator) {
  PX_GIVEN(out);
  PX_GIVEN(weights);
  PX_TRY(check_samples(count));
  PX_TRY(check_weights(weights));
  PX_TRY(sampler_new(out, count, draw_weighted, generator));
  (*out)->weights = px_retain(weights);
  (*out)->replacement = replacement;
  return PX_OK;
}

int64_t px_sampler_length(const px_sampler *self) { return self->length; }

px_status px_sampler_draw(px_sampler *self, int64_t *indices) {
  PX_GIVEN(self);
  PX_GIVEN_N(indices, self->length);
  return self->draw(self, indices);
}
