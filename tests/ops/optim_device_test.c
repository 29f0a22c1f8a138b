// SPDX-License-Identifier: Apache-2.0
// Optimizer steps with rates and counters on the device.
#include "phlox/phlox.h"
#include "test.h"

static void fetch(const px_tensor *t, float *values) {
  CHECK(t);
  OK(px_tensor_read(t, values, (size_t)px_tensor_numel(t) * sizeof *values));
}

enum { MEMBERS = 11 };  // more than one launch handles
static void members(px_tensor **p, bool on_device) {
  setenv("PHLOX_SIM_DEVICES", "1", 1);
  for (int i = 0; i < MEMBERS; i++) {
    PX_SCOPED(px_tensor) grad = NULL;
    OK(px_tensor_from_data(&p[i], (float[]){1, -2, (float)i}, 1, (int64_t[]){3}, PX_FLOAT32,
                           on_device ? px_cuda(0) : px_cpu()));
    OK(px_mul_scalar(&grad, p[i], px_float(0.5)));
    OK(px_tensor_set_requires_grad(p[i], true));
    OK(px_tensor_set_grad(p[i], grad));
  }
}
static void release_members(px_tensor **p) {
  for (int i = 0; i < MEMBERS; i++) px_release(p[i]);
}
static float first_of(const px_tensor *t) {
  float values[3];
  fetch(t, values);
  return values[0];
}

PX_TEST(a_capturable_step_equals_the_hosts) {
  px_tensor *on_cpu[MEMBERS], *on_gpu[MEMBERS];
  PX_SCOPED(px_optimizer) plain = NULL;
  PX_SCOPED(px_optimizer) capturable = NULL;
  members(on_cpu, false), members(on_gpu, true);
  OK(px_nadam_new(&plain, on_cpu, MEMBERS, .lr = 0.1));
  OK(px_nadam_new(&capturable, on_gpu, MEMBERS, .lr = 0.1, .capturable = true));
  for (int k = 0; k < 3; k++) {
    OK(px_optimizer_step(plain));
    OK(px_optimizer_step(capturable));
  }
  for (int i = 0; i < MEMBERS; i++) {
    float wanted[3], values[3];
    px_tensor *product = px_optimizer_state(capturable, 0, i, "mu_product");
    fetch(on_cpu[i], wanted), fetch(on_gpu[i], values);
    // Powers and roots on a device may differ in the last digit.
    for (int k = 0; k < 3; k++) CHECK_NEAR(values[k], wanted[k], 1e-6);
    CHECK(px_tensor_device(product).type == PX_CUDA && px_tensor_ndim(product) == 0);
    CHECK_NEAR(first_of(product), first_of(px_optimizer_state(plain, 0, i, "mu_product")), 1e-6);
  }
  release_members(on_cpu), release_members(on_gpu);
}

PX_TEST(a_tensor_rate_is_read_at_each_step) {
  px_tensor *p[MEMBERS];
  PX_SCOPED(px_tensor) rate = NULL;
  PX_SCOPED(px_tensor) two = NULL;
  PX_SCOPED(px_optimizer) o = NULL;
  members(p, true);
  OK(px_full(&rate, NULL, 0, px_float(0.5), PX_FLOAT32, px_cuda(0), false, false));
  OK(px_full(&two, (int64_t[]){2}, 1, px_float(0.5), PX_FLOAT32, px_cuda(0), false, false));
  OK(px_sgd_new(&o, p, MEMBERS, .lr = 9));
  FAILS(px_optimizer_set_rate(o, 0, two), PX_VALUE, "Tensor lr must be 1-element");
  FAILS(px_optimizer_set_rate(o, 1, rate), PX_INDEX, "there is no parameter group 1");
  OK(px_optimizer_set_rate(o, -1, rate));
  OK(px_optimizer_step(o));
  CHECK_NEAR(first_of(p[0]), 0.75, 0);
  OK(px_fill_(rate, px_float(1)));
  OK(px_optimizer_step(o));
  CHECK_NEAR(first_of(p[10]), 0.25, 0);
  OK(px_optimizer_set_rate(o, 0, NULL));
  OK(px_optimizer_step(o));
  CHECK_NEAR(first_of(p[0]), -4.25, 0);
  release_members(p);
}

PX_TEST(a_step_is_skipped_after_an_inf_or_nan_gradient) {
  for (int on_device = 0; on_device < 2; on_device++) {
    px_tensor *p[MEMBERS], *state[PX_OPTIMIZER_STATES] = {0};
    PX_SCOPED(px_tensor) found = NULL;
    const px_optimizer_kind *kind = px_optimizer_kind_find("RMSprop");
    const double options[] = {0.1, 0.99, 1e-8, 0, 0, 0, 0, 0};
    members(p, on_device);
    OK(px_full(&found, NULL, 0, px_float(1), PX_FLOAT32, px_tensor_device(p[0]), false, false));
    px_step_options manner = {.on_device = on_device, .found_inf = found};
    OK(px_optimizer_kind_step(kind, options, &manner, p, state, 1));
    CHECK_NEAR(first_of(p[0]), 1, 0);
    OK(px_fill_(found, px_float(0)));
    OK(px_optimizer_kind_step(kind, options, &manner, p, state, 1));
    CHECK(first_of(p[0]) < 1);
    CHECK_NEAR(first_of(state[0]), 1, 0);
    for (int k = 0; k < PX_OPTIMIZER_STATES; k++) px_release(state[k]);
    release_members(p);
  }
}

PX_TEST(counters_of_capturable_optimizers_are_on_the_device) {
  px_tensor *on_cpu[MEMBERS], *on_gpu[MEMBERS];
  PX_SCOPED(px_optimizer) o = NULL;
  PX_SCOPED(px_optimizer) late = NULL;
  members(on_cpu, false), members(on_gpu, true);
  OK(px_asgd_new(&o, on_cpu, MEMBERS, .capturable = true));
  FAILS(px_optimizer_step(o), PX_ASSERTION,
        "If capturable=True, params, mus, etas, and state_steps must be on supported devices");
  CHECK(!px_optimizer_state(o, 0, 0, "step"));
  OK(px_adam_new(&late, on_gpu, MEMBERS));
  OK(px_optimizer_step(late));
  OK(px_optimizer_set(late, -1, "capturable", 1));
  FAILS(px_optimizer_step(late), PX_ASSERTION, "params and state_steps must be on");
  release_members(on_cpu), release_members(on_gpu);
}

// After any failure, a parameter and its states have either made the step or not.
PX_TEST(a_failed_step_on_the_device_keeps_parameter_and_state) {
  static const char *const points[] = {"alloc", "device.alloc", "launch"};
  for (int i = 0; i < 3; i++) {
    bool failed = true;
    for (int64_t n = 1; failed; n++) {
      px_tensor *p[MEMBERS];
      int moved = 0;
      PX_SCOPED(px_optimizer) o = NULL;
      members(p, true);
      OK(px_adam_new(&o, p, MEMBERS, .lr = 0.1, .capturable = true));
      OK(px_fault_arm(points[i], n, false));
      failed = px_optimizer_step(o) != PX_OK;
      px_fault_disarm_all();
      for (int k = 0; k < MEMBERS; k++) {
        px_tensor *step = px_optimizer_state(o, 0, k, "step");
        CHECK((first_of(p[k]) != 1) == (step != NULL));
        CHECK(!step || first_of(step) == 1);
        moved += step != NULL;
      }
      CHECK(failed ? moved < MEMBERS : moved == MEMBERS);
      release_members(p);
    }
  }
}
