// SPDX-License-Identifier: Apache-2.0
// Random number generators, with PyTorch's numbers: the Mersenne Twister (mt19937) on the CPU;
// Philox4x32-10 on devices, whose state is (seed, offset).
#pragma once
#include "phlox/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

// Makes a generator for a device (cuda without an index: the current one), with seed
// 67280421310721.
PX_CALL px_generator_new(px_generator **out, px_device device);
// Returns the default generator of the CPU or of a device; borrowed.
PX_CALL px_generator_default(px_generator **out, px_device device);
PX_API px_device px_generator_device(const px_generator *generator);
// Fails only for a device generator while a graph is captured: PX_RUNTIME, unless the generator has
// that seed already.
PX_API px_status px_generator_seed(px_generator *generator, uint64_t seed);
PX_API uint64_t px_generator_initial_seed(const px_generator *generator);
// The state as PyTorch stores it: 5056 bytes for the CPU, 16 for devices (seed, offset).
PX_API size_t px_generator_state_size(const px_generator *generator);
PX_API void px_generator_get_state(px_generator *generator, void *state);
// Sets the state. PX_RUNTIME "RNG state is wrong size", or for an invalid state.
PX_CALL px_generator_set_state(px_generator *generator, const void *state, size_t bytes);
// The position in a device generator's stream, a multiple of 4. PX_RUNTIME for a CPU generator,
// which has none, and for other numbers.
PX_CALL px_generator_offset(uint64_t *out, const px_generator *generator);
PX_CALL px_generator_set_offset(px_generator *generator, uint64_t offset);
// Returns a new generator with a copy of the state.
PX_CALL px_generator_clone(px_generator **out, px_generator *generator);
// Several device generators may draw from one state. px_generator_alias returns a new generator
// with the state of `generator`. px_generator_share gives `generator` the state of `other`, also
// beside a capture: a graph keeps the states it draws from. PX_UNIMPLEMENTED for a CPU generator.
PX_CALL px_generator_alias(px_generator **out, px_generator *generator);
PX_CALL px_generator_share(px_generator *generator, px_generator *other);
// Returns 64 random bits for the host, usable as a seed. PyTorch's int64 random_() uses the
// lower 63.
PX_API uint64_t px_generator_next(px_generator *generator);
// Seeds the default generators of the CPU and of all devices, existing and future. Fails as
// px_generator_seed does, before any is seeded.
PX_API px_status px_manual_seed(uint64_t seed);

#ifdef __cplusplus
}
#endif
