// SPDX-License-Identifier: Apache-2.0
// Random numbers match PyTorch: the CPU stream by golden values, the device streams on simulated
// devices.
#include "hidden.h"
#include "kernels_help.h"
#include "phlox/device.h"

static void simulate_device(void) { setenv("PHLOX_SIM_DEVICES", "1", 1); }
static px_device gpu(void) { return (px_device){PX_CUDA, 0}; }

PX_TEST(rand_then_randn_on_the_cpu) {
  PX_SCOPED(px_tensor) u = NULL;
  PX_SCOPED(px_tensor) n = NULL;
  px_manual_seed(0);
  OK(px_rand(&u, SIZES(5), 1, NULL, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false));
  ELEMENTS(u, 5e-5, .4963, .7682, .0885, .1320, .3074);
  OK(px_randn(&n, SIZES(5), 1, NULL, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false));
  ELEMENTS(n, 5e-5, .5507, .2704, .6472, .2490, -.3354);
}
PX_TEST(sixteen_and_more_normals_are_drawn_in_blocks) {
  PX_SCOPED(px_tensor) n = NULL;
  px_manual_seed(0);
  OK(px_randn(&n, SIZES(20), 1, NULL, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false));
  CHECK_NEAR(element(n, 0), -1.1258, 5e-5);
  CHECK_NEAR(element(n, 1), -1.1524, 5e-5);
}
// normal() with tensors draws standard normals of the broadcast shape, then scales and shifts them.
// Values are PyTorch's of seed 0.
PX_TEST(normal_of_means_and_deviations) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(3), VALUES(1, 2, 3));
  PX_SCOPED(px_tensor) both = NULL;
  PX_SCOPED(px_tensor) means = NULL;
  PX_SCOPED(px_tensor) widths = NULL;
  px_manual_seed(0);
  OK(px_normal_of(&both, x, x, NULL));
  ELEMENTS(both, 5e-5, 2.5410, 1.4131, -3.5364);
  px_manual_seed(0);
  OK(px_normal_around(&means, x, 2, NULL));
  ELEMENTS(means, 5e-5, 4.0820, 1.4131, -1.3576);
  px_manual_seed(0);
  OK(px_normal_wide(&widths, 1, x, NULL));
  ELEMENTS(widths, 5e-5, 2.5410, 0.4131, -5.5364);
}
PX_TEST(negative_deviations_are_refused) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(2), VALUES(1, -1));
  px_tensor *none = NULL;
  FAILS(px_normal_of(&none, x, x, NULL), PX_RUNTIME, "normal expects all elements of std >= 0.0");
  FAILS(px_normal_wide(&none, 0, x, NULL), PX_RUNTIME, "normal expects all elements of std >= 0.0");
  FAILS(px_normal_around(&none, x, -1, NULL), PX_RUNTIME,
        "normal expects std >= 0.0, but found std -1");
}
PX_TEST(randint_like_and_bernoulli_like) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(3), VALUES(1, 2, 3));
  PX_SCOPED(px_tensor) below = NULL;
  PX_SCOPED(px_tensor) between = NULL;
  PX_SCOPED(px_tensor) coins = NULL;
  px_manual_seed(0);
  OK(px_randint_like_below(&below, x, 10, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL));
  ELEMENTS(below, 0, 4, 9, 3);
  px_manual_seed(0);
  OK(px_randint_like(&between, x, 2, 10, PX_INT64, PX_DEVICE_NONE, false, false, NULL));
  ELEMENTS(between, 0, 6, 9, 7);
  CHECK_EQ(px_tensor_dtype(between), PX_INT64);
  px_manual_seed(0);
  OK(px_bernoulli_like(&coins, x, 0.5, NULL));
  ELEMENTS(coins, 0, 0, 0, 1);
}
PX_TEST(uniform_weights_of_seed_0) {
  PX_SCOPED(px_tensor) w = NULL;
  px_manual_seed(0);
  OK(px_tensor_empty(&w, S(2, 3), PX_FLOAT32, px_cpu()));
  double bound = 1 / sqrt(3);
  OK(px_uniform_(w, -bound, bound, NULL));
  ELEMENTS(w, 5e-5, -0.0043, 0.3097, -0.4752, -0.4249, -0.2224, 0.1548);
}
PX_TEST(a_seed_reproduces_its_stream) {
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  PX_SCOPED(px_generator) g = NULL;
  OK(px_generator_new(&g, px_cpu()));
  px_generator_seed(g, 42);
  OK(px_randperm(&a, 10, g, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false));
  px_manual_seed(42);
  OK(px_randperm(&b, 10, NULL, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false));
  for (int i = 0; i < 10; i++) CHECK_EQ(element(a, i), element(b, i));
}
PX_TEST(device_streams_are_philox) {
  simulate_device();
  PX_SCOPED(px_tensor) u = NULL;
  PX_SCOPED(px_tensor) n = NULL;
  px_manual_seed(0);
  OK(px_rand(&u, SIZES(5), 1, NULL, PX_DTYPE_NONE, gpu(), false, false));
  ELEMENTS(u, 6e-10, 0.399046481, 0.516679168, 0.024930386, 0.940079391, 0.945854127);
  px_manual_seed(0);
  OK(px_randn(&n, SIZES(3), 1, NULL, PX_DTYPE_NONE, gpu(), false, false));
  ELEMENTS(n, 1e-6, -0.924662411, -0.425344229, -2.643845797);
}
PX_TEST(device_integers_and_permutations) {
  simulate_device();
  PX_SCOPED(px_tensor) i = NULL;
  PX_SCOPED(px_tensor) p = NULL;
  px_manual_seed(0);
  OK(px_randint(&i, 0, 100, SIZES(5), 1, NULL, PX_DTYPE_NONE, gpu(), false, false));
  ELEMENTS(i, 0, 41, 97, 91, 72, 53);
  px_manual_seed(0);
  OK(px_randperm(&p, 5, NULL, PX_DTYPE_NONE, gpu(), false, false));
  ELEMENTS(p, 0, 1, 4, 2, 0, 3);
}
// The same draws as randn, randint, and bernoulli of a filled tensor.
PX_TEST(like_factories_on_a_device) {
  simulate_device();
  PX_SCOPED(px_tensor) one = NULL;
  PX_SCOPED(px_tensor) n = NULL;
  PX_SCOPED(px_tensor) i = NULL;
  PX_SCOPED(px_tensor) coins = NULL;
  OK(px_full(&one, SIZES(3), 1, px_float(1), PX_FLOAT32, gpu(), false, false));
  px_manual_seed(0);
  OK(px_normal_of(&n, one, one, NULL));
  ELEMENTS(n, 1e-6, 1 - 0.924662411, 1 - 0.425344229, 1 - 2.643845797);
  px_manual_seed(0);
  OK(px_randint_like_below(&i, one, 100, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL));
  ELEMENTS(i, 0, 41, 97, 91);
  px_manual_seed(0);
  OK(px_bernoulli_like(&coins, one, 0.5, NULL));  // rand's .399 .517 .025 compared with a half
  ELEMENTS(coins, 0, 1, 0, 1);
}
PX_TEST(bernoulli_with_a_tensor_of_probabilities) {
  PX_SCOPED(px_tensor) x = made(PX_INT64, S(2, 3), VALUES(7, 7, 7, 7, 7, 7));
  PX_SCOPED(px_tensor) p = made(PX_FLOAT32, S(3), VALUES(0, 1, 1));
  OK(px_bernoulli_tensor_(x, p, NULL));
  ELEMENTS(x, 0, 0, 1, 1, 0, 1, 1);
}
PX_TEST(a_generator_of_another_device_is_refused) {
  simulate_device();
  PX_SCOPED(px_generator) g = NULL;
  px_tensor *none = NULL;
  OK(px_generator_new(&g, px_cpu()));
  FAILS(px_rand(&none, SIZES(2), 1, g, PX_DTYPE_NONE, gpu(), false, false), PX_RUNTIME,
        "Expected a 'cuda' device type for generator but found 'cpu'");
}
PX_TEST(bounds_are_checked) {
  px_tensor *none = NULL;
  PX_SCOPED(px_tensor) t = made(PX_FLOAT32, S(1), VALUES(2));
  FAILS(px_randint(&none, 5, 5, SIZES(1), 1, NULL, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false),
        PX_RUNTIME, "random_ expects 'from' to be less than 'to', but got from=5 >= to=5");
  FAILS(px_bernoulli_scalar_(t, 2, NULL), PX_RUNTIME,
        "bernoulli_ expects p to be in [0, 1], but got p=2");
  FAILS(px_bernoulli(&none, t, NULL), PX_RUNTIME,
        "Expected p_in >= 0 && p_in <= 1 to be true, but got false.");
}
// PyTorch's sort treats 32-bit keys as signed. The values are of an H200, in this sequence.
PX_TEST(permutations_with_keys_of_32_bits) {
  static const int64_t lengths[] = {1, 2, 5, 100, 1000, 29999, 30000, 30001};
  simulate_device();
  px_manual_seed(3);
  for (int i = 0; i < 8; i++) {
    PX_SCOPED(px_tensor) p = NULL;
    OK(px_tensor_empty(&p, 1, &lengths[i], PX_INT64, gpu()));
    OK(HIDDEN_INPLACE(randperm_fill, PX_T(p)));
    if (i < 7) continue;
    const double first[] = {24285, 2394, 22154, 9409};
    for (int k = 0; k < 4; k++) CHECK_NEAR(element(p, k), first[k], 0);
  }
}
// Returns the dropout mask for p = 1/2 as 0 and 1.
static px_tensor *dropped(px_dtype dtype, int64_t n) {
  px_tensor *ones = NULL, *out = NULL, *kept = NULL;
  simulate_device();
  px_manual_seed(3);
  OK(px_ones(&ones, &n, 1, dtype, gpu(), false, false));
  OK(px_dropout(&out, ones, 0.5, true));
  OK(px_gt_scalar(&kept, out, px_float(0)));
  px_release(ones), px_release(out);
  return kept;
}
// PyTorch's kernel processes 16 bytes per thread if there is no remainder, and draws floats.
PX_TEST(dropout_draws_vectors_of_neighbours) {
  PX_SCOPED(px_tensor) half = dropped(PX_FLOAT16, 16);
  PX_SCOPED(px_tensor) single = dropped(PX_FLOAT32, 16);
  PX_SCOPED(px_tensor) wide = dropped(PX_FLOAT64, 16);
  PX_SCOPED(px_tensor) odd = dropped(PX_FLOAT64, 15);
  ELEMENTS(half, 0, 0, 1, 0, 0, 1, 0, 1, 0, 1, 0, 0, 1, 0, 0, 1, 1);
  ELEMENTS(single, 0, 0, 1, 0, 0, 1, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0);
  ELEMENTS(wide, 0, 0, 1, 1, 0, 1, 0, 1, 1, 1, 0, 1, 1, 0, 0, 1, 0);
  ELEMENTS(odd, 0, 0, 1, 1, 1, 1, 1, 0, 1, 0, 1, 1, 0, 1, 1, 1);
}
PX_TEST(bernoulli_advances_the_offset_by_twelve) {
  unsigned char state[16];
  simulate_device();
  PX_SCOPED(px_tensor) p = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  px_generator *g = NULL;
  OK(px_full(&p, SIZES(5), 1, px_float(1), PX_FLOAT32, gpu(), false, false));
  px_manual_seed(3);
  OK(px_bernoulli(&y, p, NULL));
  ELEMENTS(y, 0, 1, 1, 1, 1, 1);
  OK(px_generator_default(&g, gpu()));
  px_generator_get_state(g, state);
  CHECK_EQ(state[8], 12);
}

PX_TEST(a_clone_of_a_generator_draws_the_same_numbers_alone) {
  simulate_device();
  for (int type = PX_CPU; type <= PX_CUDA; type++) {
    PX_SCOPED(px_generator) g = NULL;
    PX_SCOPED(px_generator) clone = NULL;
    OK(px_generator_new(&g, (px_device){(int16_t)type, type == PX_CPU ? -1 : 0}));
    px_generator_seed(g, 7);
    px_generator_next(g);
    OK(px_generator_clone(&clone, g));
    CHECK_EQ(px_generator_initial_seed(clone), 7);
    CHECK_EQ(px_generator_next(clone), px_generator_next(g));
    px_generator_seed(clone, 8);
    CHECK_EQ(px_generator_initial_seed(g), 7);
  }
}

PX_TEST(generators_may_share_a_state) {
  simulate_device();
  PX_SCOPED(px_generator) one = NULL;
  PX_SCOPED(px_generator) two = NULL;
  PX_SCOPED(px_generator) alias = NULL;
  uint64_t offset;
  OK(px_generator_new(&one, gpu()));
  OK(px_generator_new(&two, gpu()));
  OK(px_generator_alias(&alias, one));
  OK(px_generator_share(two, alias));
  px_generator_next(two);
  OK(px_generator_offset(&offset, one));
  CHECK_EQ(offset, 4);
  OK(px_generator_set_offset(alias, 12));
  OK(px_generator_offset(&offset, two));
  CHECK_EQ(offset, 12);
  FAILS(px_generator_set_offset(one, 2), PX_RUNTIME, "offset must be a multiple of 4");
}

PX_TEST(a_cpu_generator_has_no_offset_and_no_shared_state) {
  simulate_device();
  PX_SCOPED(px_generator) host = NULL;
  PX_SCOPED(px_generator) device = NULL;
  px_generator *alias = NULL;
  uint64_t offset;
  OK(px_generator_new(&host, px_cpu()));
  OK(px_generator_new(&device, gpu()));
  FAILS(px_generator_offset(&offset, host), PX_RUNTIME, "CPU Generator does not use offset");
  FAILS(px_generator_set_offset(host, 4), PX_RUNTIME, "CPU Generator does not use offset");
  FAILS(px_generator_alias(&alias, host), PX_UNIMPLEMENTED, "graphsafe_get_state is not supported");
  FAILS(px_generator_share(host, device), PX_UNIMPLEMENTED, "graphsafe_set_state is not supported");
  FAILS(px_generator_share(device, host), PX_RUNTIME, "Expected a CUDA Generator");
}
