// SPDX-License-Identifier: Apache-2.0
// Operands on several simulated devices: supported combinations, and the exact error texts of
// others.
#include "test.h"

#include "ops_help.h"
#include "phlox/memory.h"
#include "phlox/stream.h"

static px_tensor *on(int device, px_tensor *source) {
  px_tensor *moved = NULL;
  setenv("PHLOX_SIM_DEVICES", "2", 1);
  OK(px_to_cuda(&moved, source, px_cuda(device), false));
  px_release(source);
  return moved;
}

PX_TEST(results_are_on_the_operands_device) {
  PX_SCOPED(px_tensor) a = on(1, matrix());
  PX_SCOPED(px_tensor) b = NULL;
  OK(px_mul_scalar(&b, a, px_float(2)));
  CHECK(px_device_equal(px_tensor_device(b), px_cuda(1)));
  IS(b, 6, 0., 2., 4., 6., 8., 10.);
}

PX_TEST(element_wise_ops_name_the_first_two_devices) {
  PX_SCOPED(px_tensor) a = on(0, matrix());
  PX_SCOPED(px_tensor) b = on(1, matrix());
  PX_SCOPED(px_tensor) c = matrix();
  px_tensor *out = NULL;
  FAILS(px_add(&out, a, b, px_int(1)), PX_RUNTIME,
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and "
        "cuda:1!");
  FAILS(px_add(&out, c, a, px_int(1)), PX_RUNTIME, "cuda:0 and cpu!");
  PX_SCOPED(px_tensor) mask = NULL;
  OK(px_gt_scalar(&mask, c, px_int(0)));
  FAILS(px_masked_fill(&out, a, mask, px_int(0)), PX_RUNTIME,
        "expected self and mask to be on the same device, but got mask on cpu and self on cuda:0");
  FAILS(px_add_out(b, a, a, px_int(1)), PX_RUNTIME, "cuda:1 and cuda:0!");
}

PX_TEST(one_cpu_scalar_may_join_device_operands) {
  PX_SCOPED(px_tensor) a = on(0, matrix());
  PX_SCOPED(px_tensor) s = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  OK(px_scalar_tensor(&s, px_float(3), PX_DTYPE_NONE, PX_DEVICE_NONE, false, false));
  OK(px_add(&b, s, a, px_int(1)));
  IS(b, 6, 3., 4., 5., 6., 7., 8.);
  px_tensor *out = NULL;
  FAILS(px_addcmul(&out, a, s, s, px_int(1)), PX_RUNTIME,
        "Trying to pass too many CPU scalars to non-CPU kernel!");
}

PX_TEST(other_ops_name_the_argument) {
  PX_SCOPED(px_tensor) a = on(0, matrix());
  PX_SCOPED(px_tensor) b = on(1, matrix());
  PX_SCOPED(px_tensor) t = NULL;
  px_tensor *both[2] = {a, b}, *out = NULL;
  OK(px_t(&t, b));
  FAILS(px_mm(&out, a, t), PX_RUNTIME,
        "Expected all tensors to be on the same device, but got mat2 is on cuda:1, different from "
        "other tensors on cuda:0 (when checking argument in method wrapper_CUDA_mm)");
  FAILS(px_cat(&out, both, 2, 0), PX_RUNTIME,
        "but got tensors is on cuda:1, different from other tensors on cuda:0 (when checking "
        "argument in method wrapper_CUDA_cat)");
}

PX_TEST(device_errors_precede_size_and_dtype_errors) {
  PX_SCOPED(px_tensor) a = on(0, matrix());
  PX_SCOPED(px_tensor) b = on(1, matrix());
  PX_SCOPED(px_tensor) whole = on(1, longs(1, 1));
  px_tensor *out = NULL;
  FAILS(px_mm(&out, a, b), PX_RUNTIME, "but got mat2 is on cuda:1");
  FAILS(px_dot(&out, b, whole), PX_RUNTIME, "1D tensors expected, but got 2D and 1D tensors");
  FAILS(px_addmm(&out, a, b, a, px_int(1), px_int(1)), PX_RUNTIME, "but got mat1 is on cuda:1");
}

PX_TEST(an_index_may_be_on_the_cpu) {
  PX_SCOPED(px_tensor) a = on(0, matrix());
  PX_SCOPED(px_tensor) i = longs(1, 1);
  PX_SCOPED(px_tensor) y = NULL;
  const int64_t dim = 0;
  OK(px_index(&y, a, &i, 1, &dim, 1));
  IS(y, 3, 3., 4., 5.);
  PX_SCOPED(px_tensor) on_device = on(0, longs(1, 1));
  PX_SCOPED(px_tensor) c = matrix();
  px_tensor *out = NULL;
  FAILS(px_index(&out, c, &on_device, 1, &dim, 1), PX_RUNTIME,
        "indices should be either on cpu or on the same device as the indexed tensor (cpu)");
}

PX_TEST(a_non_blocking_copy_to_the_cpu_is_readable_at_once) {
  PX_SCOPED(px_tensor) a = on(0, matrix());
  PX_SCOPED(px_tensor) b = NULL;
  px_race_enable(0, false);  // the checker would report the missing wait
  OK(px_to(&b, a, PX_DTYPE_NONE, px_cpu(), true, false));
  CHECK(px_tensor_is_pinned(b));
  IS(b, 6, 0., 1., 2., 3., 4., 5.);
}

PX_TEST(only_cpu_tensors_are_pinned) {
  PX_SCOPED(px_tensor) a = on(0, matrix());
  px_tensor *out = NULL;
  FAILS(px_pin_memory(&out, a), PX_RUNTIME,
        "cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned");
  FAILS(px_to_cuda(&out, a, px_cpu(), false), PX_RUNTIME, "Invalid device, must be cuda device");
}

PX_TEST(gradients_reach_the_leaf_on_its_device) {
  setenv("PHLOX_SIM_DEVICES", "2", 1);
  PX_SCOPED(px_tensor) leaf = matrix();
  PX_SCOPED(px_tensor) on_device = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  OK(px_tensor_set_requires_grad(leaf, true));
  OK(px_to_cuda(&on_device, leaf, px_cuda(1), false));
  OK(px_sum(&sum, on_device, NULL, 0, false, PX_DTYPE_NONE));
  OK(px_backward(1, &sum, NULL, false, false));
  CHECK(px_tensor_device(px_tensor_grad(leaf)).type == PX_CPU);
  IS(px_tensor_grad(leaf), 6, 1., 1., 1., 1., 1., 1.);
}

PX_TEST(masks_must_be_bool) {
  PX_SCOPED(px_tensor) m = matrix();
  px_tensor *out = NULL;
  FAILS(px_where(&out, m, m, m), PX_RUNTIME,
        "where expected condition to be a boolean tensor, but got a tensor with dtype Float");
  FAILS(px_masked_fill(&out, m, m, px_int(0)), PX_RUNTIME,
        "masked_fill only supports boolean masks, but got mask with dtype float");
}

// ---- operands on peers
// Two devices with peer access and work that lags behind the host.
static void simulate_two_peers(void) {
  setenv("PHLOX_SIM_DEVICES", "2", 1);
  setenv("PHLOX_SIM_DELAY", "500", 1);
  OK(px_device_enable_peer(0, 1));
  OK(px_device_enable_peer(1, 0));
  px_race_enable(1, true);
}

static px_tensor *full_on(int device, double value) {
  px_tensor *t = NULL;
  const int64_t size = 4096;
  OK(px_full(&t, &size, 1, px_float(value), PX_FLOAT32, px_cuda(device), false, false));
  return t;
}

static double first_of(const px_tensor *t) {
  PX_SCOPED(px_tensor) one = NULL;
  px_scalar value;
  OK(px_select(&one, t, 0, px_tensor_numel(t) - 1));
  OK(px_tensor_item(&value, one));
  return px_scalar_float(value);
}

PX_TEST(a_call_on_two_peers_is_ordered_with_both) {
  simulate_two_peers();
  PX_SCOPED(px_tensor) a = full_on(0, 1);
  PX_SCOPED(px_tensor) b = full_on(1, 1);
  for (int round = 0; round < 20; round++) {
    PX_SCOPED(px_tensor) c = NULL;
    OK(px_fill_(b, px_float(round)));
    OK(px_add(&c, a, b, px_int(1)));
    OK(px_zero_(b));
    CHECK(px_device_equal(px_tensor_device(c), px_cuda(0)));
    CHECK_EQ(first_of(c), 1 + round);
    CHECK_EQ(first_of(b), 0);
  }
  CHECK_EQ(px_race_count(), 0);
}

PX_TEST(a_call_on_two_peers_is_ordered_with_their_current_streams) {
  simulate_two_peers();
  px_stream *streams[2];
  for (int i = 0; i < 2; i++) {
    OK(px_stream_new(&streams[i], px_cuda(i), 0));
    OK(px_stream_set_current(streams[i]));
  }
  PX_SCOPED(px_tensor) a = full_on(0, 2);
  PX_SCOPED(px_tensor) b = full_on(1, 3);
  PX_SCOPED(px_tensor) c = NULL;
  OK(px_mul(&c, a, b));
  OK(px_add_(b, c, px_int(1)));  // written on cuda:1, read from cuda:0
  OK(px_zero_(c));
  CHECK_EQ(first_of(b), 9);
  CHECK_EQ(px_race_count(), 0);
  for (int i = 0; i < 2; i++) px_release(streams[i]);
}

PX_TEST(memory_read_by_a_peer_is_not_reused) {
  simulate_two_peers();
  PX_SCOPED(px_tensor) a = full_on(0, 1);
  for (int round = 0; round < 20; round++) {
    PX_SCOPED(px_tensor) c = NULL;
    px_tensor *b = full_on(1, round);
    OK(px_add(&c, a, b, px_int(1)));
    px_release(b);
    PX_SCOPED(px_tensor) other = full_on(1, -1);
    CHECK_EQ(first_of(c), 1 + round);
  }
  CHECK_EQ(px_race_count(), 0);
}

// z = sum(a * b + b), with a on cuda:0 and b on cuda:1. Each gradient is on its leaf's device.
static void check_backward_of_peers(px_tensor *a, px_tensor *b) {
  PX_SCOPED(px_tensor) product = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) z = NULL;
  OK(px_mul(&product, a, b));
  OK(px_add(&y, product, b, px_int(1)));
  OK(px_sum(&z, y, NULL, 0, false, PX_DTYPE_NONE));
  OK(px_backward(1, &z, NULL, false, false));
  px_grad_set_enabled(false);
  OK(px_zero_(a));
  OK(px_zero_(b));
  px_grad_set_enabled(true);
  CHECK(px_device_equal(px_tensor_device(px_tensor_grad(b)), px_cuda(1)));
  CHECK_EQ(first_of(px_tensor_grad(a)), 3);
  CHECK_EQ(first_of(px_tensor_grad(b)), 3);
}

PX_TEST(backward_of_a_call_on_two_peers_is_ordered) {
  simulate_two_peers();
  PX_SCOPED(px_stream) side = NULL;
  OK(px_stream_new(&side, px_cuda(1), 0));
  for (int round = 0; round < 10; round++) {
    if (round == 5) OK(px_stream_set_current(side));
    PX_SCOPED(px_tensor) a = full_on(0, 2);
    PX_SCOPED(px_tensor) b = full_on(1, 3);
    OK(px_tensor_set_requires_grad(a, true));
    OK(px_tensor_set_requires_grad(b, true));
    check_backward_of_peers(a, b);
  }
  CHECK_EQ(px_race_count(), 0);
}

PX_TEST(a_call_on_two_peers_survives_any_fault) {
  simulate_two_peers();
  PX_SCOPED(px_tensor) a = full_on(0, 1);
  PX_SCOPED(px_tensor) b = full_on(1, 2);
  bool failed = true;
  for (int64_t n = 1; failed; n++) {
    px_tensor *c = NULL;
    OK(px_fault_arm("alloc", n, false));
    failed = px_add(&c, a, b, px_int(1)) != PX_OK;
    px_fault_disarm_all();
    OK(px_fill_(b, px_float(n)));
    if (!failed) CHECK_EQ(first_of(c), 1 + (n == 1 ? 2 : (double)n - 1));
    px_release(c);
  }
  CHECK_EQ(px_race_count(), 0);
}
