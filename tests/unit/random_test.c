// SPDX-License-Identifier: Apache-2.0
// Generators: PyTorch's streams, seeds and saved states.
#include "cpu/random/mt19937.h"
#include "cpu/random/philox.h"
#include "device_test.h"
#include "tensor/tensor_impl.h"

PX_TEST(the_cpu_engine_matches_pytorch) {
  static px_mt19937 mt;
  px_mt19937_seed(&mt, 5489);
  for (int i = 1; i < 10000; i++) (void)px_mt19937_random32(&mt);
  CHECK_EQ(px_mt19937_random32(&mt), 4123659995u);
  static const double uniform[] = {.4963, .7682, .0885, .1320, .3074};
  px_mt19937_seed(&mt, 0);
  for (int i = 0; i < 5; i++) CHECK_NEAR(px_mt19937_uniform_float(&mt), uniform[i], 5e-5);
}

PX_TEST(the_device_engine_matches_curand) {
  static const double uniform[] = {0.399046481, 0.516679168, 0.024930386, 0.940079391, 0.945854127};
  for (uint64_t thread = 0; thread < 5; thread++) {
    px_philox4 block = px_philox(0, thread, 0);
    CHECK_NEAR(px_philox_uniform_float(block.v[0]), uniform[thread], 5e-10);
  }
  px_philox4 zero = px_philox(0, 0, 0);
  CHECK(zero.v[0] == 0x6627e8d5 && zero.v[1] == 0xe169c58d && zero.v[2] == 0xbc57ac4c &&
        zero.v[3] == 0x9b00dbd8);
}

PX_TEST(a_seed_restarts_the_stream) {
  px_generator *g;
  OK(px_generator_default(&g, px_cpu()));
  CHECK_EQ(px_generator_initial_seed(g), 67280421310721);
  px_manual_seed(0);
  CHECK_EQ(px_generator_next(g) & INT64_MAX, 900450186894289455);
  uint64_t second = px_generator_next(g);
  px_generator_seed(g, 0);
  CHECK_EQ(px_generator_next(g) & INT64_MAX, 900450186894289455);
  CHECK_EQ(px_generator_next(g), second);
}

PX_TEST(a_saved_state_has_pytorchs_layout) {
  PX_SCOPED(px_generator) g = NULL;
  unsigned char state[5056];
  OK(px_generator_new(&g, px_cpu()));
  CHECK_EQ(px_generator_state_size(g), sizeof state);
  px_generator_seed(g, 7);
  for (int i = 0; i < 2; i++) (void)px_generator_next(g);
  px_generator_get_state(g, state);
  static const unsigned char head[24] = {7, 0, 0, 0, 0, 0, 0, 0, 109, 2, 0, 0, 1, 0, 0, 0, 4};
  CHECK(!memcmp(state, head, sizeof head));
  uint64_t next = px_generator_next(g);
  OK(px_generator_set_state(g, state, sizeof state));
  CHECK_EQ(px_generator_next(g), next);
  CHECK_EQ(px_generator_initial_seed(g), 7);
}

PX_TEST(an_invalid_state_is_refused_and_changes_nothing) {
  PX_SCOPED(px_generator) g = NULL;
  unsigned char state[5056], zeros[5056] = {0};
  OK(px_generator_new(&g, px_cpu()));
  px_generator_get_state(g, state);
  uint64_t next = px_generator_next(g);
  FAILS(px_generator_set_state(g, state, 100), PX_RUNTIME, "RNG state is wrong size");
  FAILS(px_generator_set_state(g, zeros, sizeof zeros), PX_RUNTIME, "Invalid mt19937 state");
  state[9] = 0xff;  // `left` out of range
  FAILS(px_generator_set_state(g, state, sizeof state), PX_RUNTIME, "Invalid mt19937 state");
  state[9] = 0;
  OK(px_generator_set_state(g, state, sizeof state));
  CHECK_EQ(px_generator_next(g), next);
}

PX_TEST(the_cached_normal_is_part_of_the_state) {
  px_launch launch = {0};
  unsigned char state[5056];
  PX_SCOPED(px_generator) g = NULL;
  OK(px_generator_new(&g, px_cpu()));
  OK(px__generator_use(&launch, g, px_cpu(), 0));
  px_mt19937 *mt = launch.mt19937;
  mt->has_normal_double = true, mt->normal_double = 1.5;
  px_generator_get_state(g, state);
  px_generator_seed(g, 1);
  CHECK(!mt->has_normal_double);
  OK(px_generator_set_state(g, state, sizeof state));
  CHECK(mt->has_normal_double && mt->normal_double == 1.5);
}

PX_TEST(a_device_launch_advances_the_offset) {
  simulate_plainly(2);
  px_manual_seed(3);
  px_launch launch = {0};
  OK(px__generator_use(&launch, NULL, px_cuda(1), 4));
  CHECK(launch.seed == 3 && launch.offset == 0 && !launch.mt19937);
  OK(px__generator_use(&launch, NULL, px_cuda(1), 5));
  CHECK_EQ(launch.offset, 4);
  px_generator *g;
  unsigned char state[16];
  OK(px_generator_default(&g, px_cuda(1)));
  px_generator_get_state(g, state);
  CHECK(state[0] == 3 && state[8] == 12);  // 5 words take two blocks
  OK(px__generator_use(&launch, NULL, px_cuda(0), 4));
  CHECK_EQ(launch.offset, 0);
}

PX_TEST(a_generator_requires_its_device_type) {
  simulate_plainly(1);
  px_launch launch = {0};
  PX_SCOPED(px_generator) host = NULL;
  PX_SCOPED(px_generator) any = NULL;
  OK(px_generator_new(&host, px_cpu()));
  OK(px_generator_new(&any, px_cuda(-1)));
  CHECK_EQ(px_generator_device(any).index, -1);
  FAILS(px__generator_use(&launch, host, px_cuda(0), 4), PX_RUNTIME,
        "Expected a 'cuda' device type for generator but found 'cpu'");
  FAILS(px__generator_use(&launch, any, px_cpu(), 4), PX_RUNTIME,
        "Expected a 'cpu' device type for generator but found 'cuda'");
}
