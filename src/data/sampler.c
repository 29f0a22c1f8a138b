// SPDX-License-Identifier: Apache-2.0
// Orders of indices.
#include "phlox/data.h"
#include "phlox/ops.h"

struct px_sampler {
  px_object head;
  int64_t length;
  bool random;
  px_generator *generator;  // NULL: a fresh one a pass, seeded from the default generator
};

static void sampler_destroy(void *object) {
  px_sampler *self = object;
  px_release(self->generator);
  px_object_end(self);
  px_free(self);
}

static const px_class sampler_class = {"sampler", sampler_destroy};

static px_status sampler_new(px_sampler **out, int64_t length, bool random,
                             px_generator *generator) {
  PX_TRY(px_alloc((void **)out, sizeof **out));
  px_object_init(*out, &sampler_class);
  (*out)->length = length;
  (*out)->random = random;
  (*out)->generator = px_retain(generator);
  return PX_OK;
}

px_status px_sampler_sequential(px_sampler **out, int64_t length) {
  *out = NULL;
  PX_CHECK(length >= 0, PX_VALUE, "a sampler cannot have %lld samples", (long long)length);
  return sampler_new(out, length, false, NULL);
}

px_status px_sampler_random(px_sampler **out, int64_t length, px_generator *generator) {
  PX_CHECK(length > 0, PX_VALUE,
           "num_samples should be a positive integer value, but got num_samples=%lld",
           (long long)length);
  return sampler_new(out, length, true, generator);
}

int64_t px_sampler_length(const px_sampler *self) { return self->length; }

px_status px_seed_draw(int64_t *out, px_generator *generator) {
  if (!generator) PX_TRY(px_generator_default(&generator, px_cpu()));
  *out = (int64_t)(px_generator_next(generator) & INT64_MAX);
  return PX_OK;
}

// PyTorch's RandomSampler draws a seed from the default generator, and the order from a generator
// of that seed.
// From a generator that it was given it draws the order, and behind it one more that nobody sees.
static px_status draw_random(px_sampler *self, int64_t *indices) {
  if (self->generator) {
    PX_SCOPED(px_tensor) unseen = NULL;
    PX_TRY(px_random_permutation(indices, self->length, self->generator));
    return px_randperm(&unseen, self->length, self->generator, PX_INT64, px_cpu(), false, false);
  }
  PX_SCOPED(px_generator) fresh = NULL;
  int64_t seed;
  PX_TRY(px_seed_draw(&seed, NULL));
  PX_TRY(px_generator_new(&fresh, px_cpu()));
  px_generator_seed(fresh, (uint64_t)seed);
  return px_random_permutation(indices, self->length, fresh);
}

px_status px_sampler_draw(px_sampler *self, int64_t *indices) {
  PX_GIVEN(self);
  if (self->random) return draw_random(self, indices);
  for (int64_t i = 0; i < self->length; i++) indices[i] = i;
  return PX_OK;
}
