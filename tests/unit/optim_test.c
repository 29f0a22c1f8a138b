// SPDX-License-Identifier: Apache-2.0
// Optimizers and schedules against values of PyTorch 1.13.1, their options and their state.
#include <math.h>

#include "phlox/phlox.h"
#include "test.h"

static px_tensor *leaf(const float *values, int64_t n) {
  px_tensor *t = NULL;
  OK(px_tensor_from_data(&t, values, 1, &n, PX_FLOAT32, px_cpu()));
  OK(px_tensor_set_requires_grad(t, true));
  return t;
}

static void give_grad(px_tensor *t, const float *values) {
  PX_SCOPED(px_tensor) grad = NULL;
  OK(px_tensor_from_data(&grad, values, 1, px_tensor_sizes(t), PX_FLOAT32, px_cpu()));
  OK(px_tensor_set_grad(t, grad));
}

static void fetch(const px_tensor *t, float *values) {
  CHECK(t);
  OK(px_tensor_read(t, values, (size_t)px_tensor_numel(t) * sizeof *values));
}

static px_optimizer *optimizer(const char *kind, px_tensor *parameter) {
  px_optimizer *made = NULL;
  OK(px_optimizer_new(&made, kind));
  OK(px_optimizer_add(made, &parameter, 1));
  return made;
}

typedef struct option {
  const char *name;
  double value;
} option;

static void set_all(px_optimizer *o, const option *options) {
  for (; options->name; options++) OK(px_optimizer_set(o, -1, options->name, options->value));
}

// The k-th gradient: half the parameter plus (0.1, -0.2, 0.3) k.
static void slope(px_tensor *p, int k) {
  static const float ramp[] = {0.1f, -0.2f, 0.3f};
  float at[3], grad[3];
  fetch(p, at);
  for (int i = 0; i < 3; i++) grad[i] = at[i] * 0.5f + ramp[i] * (float)k;
  give_grad(p, grad);
}

// Checks the parameter after four steps from (1, -2, 3).
static void check_steps(const char *kind, const option *options, const float *wanted) {
  PX_SCOPED(px_tensor) p = leaf((float[]){1, -2, 3}, 3);
  PX_SCOPED(px_optimizer) o = optimizer(kind, p);
  float values[3];
  set_all(o, options);
  for (int k = 1; k <= 4; k++) {
    slope(p, k);
    OK(px_optimizer_step(o));
  }
  fetch(p, values);
  for (int i = 0; i < 3; i++) CHECK_NEAR(values[i], wanted[i], 2e-6);
}
#define OPTIONS(...) ((const option[]){__VA_ARGS__, {NULL, 0}})
#define VALUES(...) ((const float[]){__VA_ARGS__})

PX_TEST(sgd_descends) {
  check_steps("SGD", OPTIONS({"lr", 0.1}), VALUES(0.719382465f, -1.43876493f, 2.15814734f));
}

PX_TEST(sgd_with_momentum) {
  check_steps("SGD", OPTIONS({"lr", 0.1}, {"momentum", 0.9}),
              VALUES(0.405327529f, -0.810655057f, 1.21598268f));
}

PX_TEST(sgd_with_dampening) {
  check_steps("SGD", OPTIONS({"lr", 0.1}, {"momentum", 0.9}, {"dampening", 0.5}),
              VALUES(0.595445335f, -1.19089067f, 1.78633595f));
}

PX_TEST(sgd_with_weight_decay) {
  check_steps("SGD", OPTIONS({"lr", 0.1}, {"momentum", 0.9}, {"weight_decay", 0.01}),
              VALUES(0.397813201f, -0.795626402f, 1.19343948f));
}

PX_TEST(sgd_with_nesterov_momentum) {
  check_steps("SGD", OPTIONS({"lr", 0.1}, {"momentum", 0.9}, {"nesterov", 1}),
              VALUES(0.231978923f, -0.463957846f, 0.695936859f));
}

PX_TEST(sgd_ascends_with_maximize) {
  check_steps("SGD", OPTIONS({"lr", 0.1}, {"maximize", 1}),
              VALUES(1.32063258f, -2.64126515f, 3.96189761f));
}

PX_TEST(adam_steps_by_its_rate) {
  check_steps("Adam", OPTIONS({"lr", 0.1}), VALUES(0.598916888f, -1.59883296f, 2.59885478f));
}

PX_TEST(adam_with_all_its_options) {
  check_steps(
      "Adam",
      OPTIONS({"lr", 0.05}, {"beta1", 0.8}, {"beta2", 0.9}, {"eps", 1e-3}, {"weight_decay", 0.1}),
      VALUES(0.799580574f, -1.79941189f, 2.7993629f));
}

PX_TEST(adam_ascends_with_maximize) {
  check_steps("Adam", OPTIONS({"lr", 0.1}, {"maximize", 1}),
              VALUES(1.40034091f, -2.40075064f, 3.40086198f));
}

PX_TEST(adamw_decouples_weight_decay) {
  check_steps("AdamW", OPTIONS({"lr", 0.1}), VALUES(0.595526934f, -1.59144485f, 2.58747101f));
  check_steps(
      "AdamW",
      OPTIONS({"lr", 0.05}, {"beta1", 0.8}, {"beta2", 0.9}, {"weight_decay", 0.1}, {"amsgrad", 1}),
      VALUES(0.780928135f, -1.76107121f, 2.74122405f));
}

PX_TEST(adadelta_scales_by_previous_steps) {
  check_steps("Adadelta", OPTIONS({"rho", 0.9}), VALUES(0.985439241f, -1.98542833f, 2.98542452f));
  check_steps("Adadelta", OPTIONS({"lr", 20}, {"rho", 0.5}, {"eps", 1e-2}, {"weight_decay", 0.1}),
              VALUES(1.70790064f, 0.123010278f, -2.67751741f));
}

PX_TEST(amsgrad_keeps_the_max_second_moment) {
  PX_SCOPED(px_tensor) p = leaf((float[]){1, -2, 3}, 3);
  PX_SCOPED(px_optimizer) o = optimizer("Adam", p);
  float values[3];
  set_all(o, OPTIONS({"lr", 0.1}, {"amsgrad", 1}));
  for (float part = 1; part > 0.01f; part /= 4) {
    give_grad(p, (float[]){part, -2 * part, 3 * part});
    OK(px_optimizer_step(o));
  }
  fetch(p, values);  // without amsgrad: 0.69244206
  CHECK_NEAR(values[0], 0.692463815, 1e-6);
  CHECK(px_optimizer_state(o, 0, 0, "max_exp_avg_sq"));
}

PX_TEST(a_parameter_without_a_gradient_is_unchanged) {
  PX_SCOPED(px_tensor) p = leaf((float[]){1}, 1);
  PX_SCOPED(px_optimizer) o = optimizer("Adam", p);
  float value;
  OK(px_optimizer_step(o));
  fetch(p, &value);
  CHECK_NEAR(value, 1, 0);
  CHECK(!px_optimizer_state(o, 0, 0, "step"));
  CHECK(!px_optimizer_state(o, 0, 0, "exp_avg"));
}

PX_TEST(gradients_are_cleared_to_none_or_to_zeros) {
  PX_SCOPED(px_tensor) p = leaf((float[]){1}, 1);
  PX_SCOPED(px_optimizer) o = optimizer("SGD", p);
  float value;
  give_grad(p, (float[]){5});
  OK(px_optimizer_zero_grad(o, false));
  fetch(px_tensor_grad(p), &value);
  CHECK_NEAR(value, 0, 0);
  OK(px_optimizer_zero_grad(o, true));
  CHECK(!px_tensor_grad(p));
}

PX_TEST(a_missing_parameter_is_refused_before_a_gradient_is_cleared) {
  PX_SCOPED(px_tensor) p = leaf((float[]){1}, 1);
  give_grad(p, (float[]){5});
  FAILS(px_clear_grads((px_tensor *[]){p, NULL}, 2, true), PX_TYPE, "parameter 1 is missing");
  CHECK(px_tensor_grad(p));
}

PX_TEST(groups_have_their_own_options) {
  PX_SCOPED(px_tensor) p = leaf((float[]){1}, 1);
  PX_SCOPED(px_tensor) q = leaf((float[]){1}, 1);
  PX_SCOPED(px_optimizer) o = optimizer("SGD", p);
  double lr;
  float value;
  OK(px_optimizer_add(o, &q, 1));
  OK(px_optimizer_set(o, 0, "lr", 0.5));
  OK(px_optimizer_set(o, 1, "lr", 0.25));
  OK(px_optimizer_get(&lr, o, 1, "lr"));
  CHECK_NEAR(lr, 0.25, 0);
  give_grad(p, (float[]){1}), give_grad(q, (float[]){1});
  OK(px_optimizer_step(o));
  fetch(p, &value);
  CHECK_NEAR(value, 0.5, 0);
  fetch(q, &value);
  CHECK_NEAR(value, 0.75, 0);
}

// Two steps equal one step, a new optimizer with the state of the first, and another step.
static void check_resume(const char *kind, const option *options) {
  PX_SCOPED(px_tensor) p = leaf((float[]){1, -2, 3}, 3);
  PX_SCOPED(px_tensor) q = leaf((float[]){1, -2, 3}, 3);
  PX_SCOPED(px_optimizer) through = optimizer(kind, p);
  PX_SCOPED(px_optimizer) before = optimizer(kind, q);
  PX_SCOPED(px_optimizer) after = optimizer(kind, q);
  float wanted[3], values[3];
  set_all(through, options), set_all(before, options), set_all(after, options);
  for (int k = 1; k <= 2; k++) {
    slope(p, k), slope(q, k);
    OK(px_optimizer_step(through));
    OK(px_optimizer_step(k == 1 ? before : after));
    for (int s = 0; k == 1 && px_optimizer_kind_state(px_optimizer_kind_of(before), s); s++) {
      const char *name = px_optimizer_kind_state(px_optimizer_kind_of(before), s);
      px_tensor *state = px_optimizer_state(before, 0, 0, name);
      if (state) OK(px_optimizer_set_state(after, 0, 0, name, state));
    }
  }
  fetch(p, wanted), fetch(q, values);
  CHECK(!memcmp(wanted, values, sizeof values));
}

PX_TEST(state_can_be_saved_and_restored) {
  check_resume("SGD", OPTIONS({"lr", 0.1}, {"momentum", 0.9}));
  check_resume("Adam", OPTIONS({"lr", 0.1}, {"amsgrad", 1}));
  check_resume("AdamW", OPTIONS({"lr", 0.1}));
  check_resume("Adadelta", OPTIONS({"lr", 0.5}));
}

PX_TEST(non_leaves_and_duplicates_are_refused) {
  PX_SCOPED(px_optimizer) o = NULL;
  PX_SCOPED(px_tensor) p = leaf((float[]){1}, 1);
  PX_SCOPED(px_tensor) made = NULL;
  px_optimizer *none = NULL;
  OK(px_optimizer_new(&o, "SGD"));
  OK(px_mul_scalar(&made, p, px_int(2)));
  FAILS(px_optimizer_add(o, NULL, 0), PX_VALUE, "optimizer got an empty parameter list");
  FAILS(px_optimizer_add(o, &made, 1), PX_VALUE, "can't optimize a non-leaf Tensor");
  OK(px_optimizer_add(o, &p, 1));
  FAILS(px_optimizer_add(o, &p, 1), PX_VALUE,
        "some parameters appear in more than one parameter group");
  FAILS(px_optimizer_new(&none, "LBFGS"), PX_UNIMPLEMENTED, "LBFGS");
  FAILS(px_optimizer_new(&none, "Adan"), PX_UNIMPLEMENTED,
        "there is no optimizer 'Adan': the nearest name is Adam");
  CHECK_EQ(px_optimizer_groups(o), 1);
}

PX_TEST(options_out_of_range_are_refused) {
  PX_SCOPED(px_tensor) p = leaf((float[]){1}, 1);
  PX_SCOPED(px_optimizer) sgd = optimizer("SGD", p);
  PX_SCOPED(px_optimizer) adam = optimizer("Adam", p);
  double value;
  FAILS(px_optimizer_set(sgd, 0, "lr", -1), PX_VALUE, "Invalid learning rate: -1.0");
  FAILS(px_optimizer_set(sgd, 0, "momentum", -0.5), PX_VALUE, "Invalid momentum value: -0.5");
  FAILS(px_optimizer_set(sgd, 0, "weight_decay", -1), PX_VALUE, "Invalid weight_decay value: -1.0");
  FAILS(px_optimizer_set(adam, 0, "beta1", 1), PX_VALUE, "Invalid beta parameter at index 0: 1.0");
  FAILS(px_optimizer_set(adam, 0, "beta2", -1), PX_VALUE,
        "Invalid beta parameter at index 1: -1.0");
  FAILS(px_optimizer_set(adam, 0, "eps", -1), PX_VALUE, "Invalid epsilon value: -1.0");
  FAILS(px_optimizer_set(sgd, 0, "beta1", 0), PX_KEY, "beta1");
  FAILS(px_optimizer_get(&value, sgd, 0, "momentun"), PX_KEY,
        "SGD has no option 'momentun': the nearest name is momentum");
  FAILS(px_optimizer_get(&value, sgd, 1, "lr"), PX_INDEX, "parameter group 1");
}

PX_TEST(nesterov_needs_momentum) {
  PX_SCOPED(px_tensor) p = leaf((float[]){1}, 1);
  PX_SCOPED(px_optimizer) o = optimizer("SGD", p);
  float value;
  OK(px_optimizer_set(o, 0, "nesterov", 1));
  give_grad(p, (float[]){1});
  FAILS(px_optimizer_step(o), PX_VALUE, "Nesterov momentum requires a momentum and zero dampening");
  fetch(p, &value);
  CHECK_NEAR(value, 1, 0);
}

// ---- schedules

// The first rates of a group with rate `base`.
static void check_rates(px_schedule schedule, double base, const double *rates, int count) {
  PX_SCOPED(px_tensor) p = leaf((float[]){1}, 1);
  PX_SCOPED(px_optimizer) o = optimizer("SGD", p);
  OK(px_optimizer_set(o, 0, "lr", base));
  for (int i = 0; i < count; i++) {
    double lr;
    OK(px_optimizer_schedule(o, &schedule, i));
    OK(px_optimizer_get(&lr, o, 0, "lr"));
    CHECK_NEAR(lr, rates[i], 1e-15);
    OK(px_optimizer_step(o));
  }
}

PX_TEST(step_lr_matches_pytorch) {
  px_schedule stairs = {.kind = px_scheduler_kind_find("StepLR"), .options = (double[]){2, 0.5}};
  check_rates(stairs, 0.1, (double[]){0.1, 0.1, 0.05, 0.05, 0.025, 0.025, 0.0125, 0.0125}, 8);
}

PX_TEST(cosine_annealing_matches_pytorch) {
  px_schedule wave = {.kind = px_scheduler_kind_find("CosineAnnealingLR"),
                      .options = (double[]){4, 0.01}};
  check_rates(wave, 0.1,
              (double[]){0.10000000000000001, 0.086819805153394644, 0.055000000000000007,
                         0.023180194846605363, 0.01, 0.023180194846605363, 0.055000000000000021,
                         0.086819805153394686, 0.10000000000000006},
              9);
}

// Options of each kind, in order.
static const struct {
  const char *name;
  double options[12];
} schedules[] = {{"StepLR", {3, 0.5}},
                 {"MultiStepLR", {0, 0.5}},
                 {"ConstantLR", {0.25, 4}},
                 {"LinearLR", {0.25, 0.75, 5}},
                 {"ExponentialLR", {0.9}},
                 {"PolynomialLR", {12, 2}},
                 {"CosineAnnealingLR", {5, 0.01}},
                 {"CosineAnnealingWarmRestarts", {3, 2, 0.01}},
                 {"OneCycleLR", {0.4, 12, NAN, NAN, 0.3, 1, 0, NAN, NAN, 25, 1e4, 0}},
                 {"CyclicLR", {0.1, 0.5, 3, NAN, 1, 1, NAN, 0, 0}},
                 {"SWALR", {0.05, 4, 1}}};

PX_TEST(kinds_list_their_options) {
  int count, total = 0;
  for (int i = 0; px_scheduler_kind_at(i); i++, total++) {
    const px_scheduler_kind *kind = px_scheduler_kind_at(i);
    CHECK(px_scheduler_kind_find(px_scheduler_kind_name(kind)) == kind);
    const px_option *options = px_scheduler_kind_options(kind, &count);
    CHECK(count > 0 && *options[0].name);
  }
  CHECK_EQ(total, 12);
  const px_option *adam = px_optimizer_kind_options(px_optimizer_kind_find("Adam"), &count);
  CHECK_EQ(count, 9);
  CHECK_TEXT(adam[2].name, "beta2");
  CHECK_TEXT(adam[2].pair, "betas");
  CHECK_NEAR(adam[2].fallback, 0.999, 0);
}

// The rate after `lr` by a kind's recursive formula.
static double next_rate(const px_scheduler_kind *kind, px_schedule_point at, double lr) {
  double next, momentum;
  at.lr = lr;
  OK(px_scheduler_kind_rate(&next, &momentum, kind, &at, false));
  return next;
}

PX_TEST(recursive_and_closed_forms_agree) {
  for (size_t k = 0; k < sizeof schedules / sizeof *schedules; k++) {
    const px_scheduler_kind *kind = px_scheduler_kind_find(schedules[k].name);
    double first = px_scheduler_kind_first(kind, schedules[k].options);
    double base = isnan(first) ? 1 : first, lr = base, rates[12];
    const int64_t milestones[] = {7, 2, 7};
    for (int epoch = 0; epoch < 12; epoch++) {
      px_schedule_point at = {
          schedules[k].options, milestones, 3, epoch, base, lr, epoch, epoch == 0};
      rates[epoch] = lr = next_rate(kind, at, lr);
    }
    check_rates((px_schedule){kind, schedules[k].options, milestones, 3}, base, rates, 12);
  }
}

PX_TEST(one_cycle_ends_on_time_and_cycles_momentum) {
  PX_SCOPED(px_tensor) p = leaf((float[]){1}, 1);
  PX_SCOPED(px_optimizer) o = optimizer("SGD", p);
  double value, options[12] = {0.5, 4};
  for (int i = 2; i < 12; i++) options[i] = NAN;
  px_schedule cycle = {.kind = px_scheduler_kind_find("OneCyleLR"), .options = options};
  FAILS(px_optimizer_schedule(o, &cycle, 0), PX_ATTRIBUTE,
        "there is no schedule 'OneCyleLR': the nearest name is OneCycleLR");
  cycle.kind = px_scheduler_kind_find("OneCycleLR");
  for (int i = 0; i <= 4; i++) OK(px_optimizer_schedule(o, &cycle, i));
  FAILS(px_optimizer_schedule(o, &cycle, 5), PX_VALUE,
        "Tried to step 5 times. The specified number of total steps is 4");
  OK(px_optimizer_schedule(o, &cycle, 0));
  OK(px_optimizer_get(&value, o, 0, "lr"));
  CHECK_NEAR(value, 0.02, 1e-15);
  OK(px_optimizer_get(&value, o, 0, "momentum"));
  CHECK_NEAR(value, 0.95, 1e-15);
}

PX_TEST(a_cycle_of_momentum_requires_momentum) {
  PX_SCOPED(px_tensor) p = leaf((float[]){1}, 1);
  PX_SCOPED(px_optimizer) o = optimizer("Adagrad", p);
  double options[12];
  memcpy(options, schedules[8].options, sizeof options);
  options[6] = 1;
  px_schedule cycle = {.kind = px_scheduler_kind_find("OneCycleLR"), .options = options};
  FAILS(px_optimizer_schedule(o, &cycle, 0), PX_VALUE, "optimizer must support momentum or beta1");
}

PX_TEST(reduce_on_plateau_lowers_the_rate) {
  PX_SCOPED(px_tensor) p = leaf((float[]){1}, 1);
  PX_SCOPED(px_optimizer) o = optimizer("SGD", p);
  static const double metrics[] = {3, 2, 2, 2, 1}, rates[] = {0.1, 0.1, 0.1, 0.05, 0.05};
  double lr = 0.1, options[] = {0, 0.5, 1, 1e-4, 0, 0, 0, 1e-8};
  px_plateau state = {.best = INFINITY};
  for (int i = 0; i < 5; i++) {
    if (px_plateau_step(&state, options, metrics[i])) lr = px_plateau_rate(options, lr);
    CHECK_NEAR(lr, rates[i], 1e-15);
  }
  CHECK_NEAR(state.best, 1, 0);
  px_schedule plateau = {.kind = px_scheduler_kind_find("ReduceLROnPlateau"), .options = options};
  FAILS(px_optimizer_schedule(o, &plateau, 0), PX_TYPE,
        "missing 1 required positional argument: 'metrics'");
}

PX_TEST(a_schedule_resumes_from_an_epoch) {
  PX_SCOPED(px_tensor) p = leaf((float[]){1}, 1);
  PX_SCOPED(px_optimizer) o = optimizer("SGD", p);
  px_schedule stairs = {.kind = px_scheduler_kind_find("StepLR"), .options = (double[]){2, 0.5}};
  double lr;
  OK(px_optimizer_set_initial_lr(o, 0, 0.8));
  OK(px_optimizer_schedule(o, &stairs, 4));
  OK(px_optimizer_get(&lr, o, 0, "lr"));
  CHECK_NEAR(lr, 0.2, 1e-16);
  CHECK_NEAR(px_optimizer_initial_lr(o, 0), 0.8, 0);
  FAILS(px_optimizer_set_initial_lr(o, 7, 1), PX_INDEX, "there is no parameter group 7");
}

PX_TEST(a_resumed_schedule_keeps_the_rate_until_its_first_step) {
  static const struct {
    const char *name;
    double options[3], after;
  } rows[] = {{"ExponentialLR", {0.5}, 0.2},
              {"LinearLR", {0.25, 0.75, 5}, 0.4 * (1 + 0.5 / 3.25)},
              {"PolynomialLR", {12, 1}, 0.4 * 7 / 8},
              {"CosineAnnealingLR", {4, 0}, 0.4 + 0.5 * (1 - cos(M_PI / 4))},
              {"SWALR", {0.1, 2, 1}, 0.25}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const px_scheduler_kind *kind = px_scheduler_kind_find(rows[i].name);
    px_schedule_point at = {.options = rows[i].options, .epoch = 4, .base = 1, .initial = true};
    CHECK_NEAR(next_rate(kind, at, 0.4), 0.4, 1e-16);
    at.epoch = 5, at.step = 1, at.initial = false;
    CHECK_NEAR(next_rate(kind, at, 0.4), rows[i].after, 1e-12);
  }
}

PX_TEST(invalid_schedule_options_are_refused) {
  static const struct {
    const char *name;
    double options[12];
    const char *text;
  } rows[] = {
      {"LinearLR", {0}, "Starting multiplicative factor expected to be greater than 0"},
      {"LinearLR", {0.5, 2}, "Ending multiplicative factor expected to be between 0 and 1."},
      {"ConstantLR", {2}, "Constant multiplicative factor expected to be between 0 and 1."},
      {"CosineAnnealingWarmRestarts", {0}, "Expected positive integer T_0, but got 0"},
      {"CosineAnnealingWarmRestarts", {3, 0.5}, "Expected integer T_mult >= 1, but got 0.5"},
      {"ReduceLROnPlateau", {0, 1}, "Factor should be < 1.0."},
      {"StepLR", {0, 0.5}, "expected step_size to be a positive integer"},
      {"OneCycleLR", {0.1, NAN, NAN, NAN}, "You must define either total_steps OR"},
      {"OneCycleLR", {0.1, 10, NAN, NAN, 2}, "Expected float between 0 and 1 pct_start"}};
  for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
    PX_SCOPED(px_tensor) p = leaf((float[]){1}, 1);
    PX_SCOPED(px_optimizer) o = optimizer("SGD", p);
    px_schedule schedule = {.kind = px_scheduler_kind_find(rows[k].name),
                            .options = rows[k].options};
    FAILS(px_optimizer_schedule(o, &schedule, 0), PX_VALUE, rows[k].text);
    CHECK(isnan(px_optimizer_initial_lr(o, 0)));
  }
}

// ---- L-BFGS

// Rosenbrock's function at w. Counts its evaluations.
typedef struct rosenbrock {
  px_tensor *w;
  int evaluations, fails_at;
} rosenbrock;
static px_status evaluate(double *loss, void *context) {
  rosenbrock *v = context;
  float w[2], grad[2];
  if (++v->evaluations == v->fails_at) PX_FAIL(PX_RUNTIME, "no loss");
  PX_TRY(px_tensor_read(v->w, w, sizeof w));
  float up = w[1] - w[0] * w[0];
  *loss = 100 * (double)up * up + (1 - (double)w[0]) * (1 - (double)w[0]);
  grad[0] = -400 * w[0] * up - 2 * (1 - w[0]), grad[1] = 200 * up;
  px_tensor *g = NULL;
  PX_TRY(px_tensor_from_data(&g, grad, 1, (int64_t[]){2}, PX_FLOAT32, px_cpu()));
  px_status status = px_tensor_set_grad(v->w, g);
  px_release(g);
  return status;
}
static const px_lbfgs_options usual = {.lr = 1,
                                       .max_iter = 100,
                                       .max_eval = 200,
                                       .history_size = 10,
                                       .tolerance_grad = 1e-5,
                                       .tolerance_change = 1e-12,
                                       .line_search = true};

PX_TEST(lbfgs_minimises_rosenbrock) {
  PX_SCOPED(px_tensor) w = leaf((float[]){-1.2f, 1}, 2);
  px_lbfgs_memory memory = {.scale = 1};
  rosenbrock v = {.w = w};
  float at[2];
  OK(px_lbfgs_step(&memory, &usual, &w, 1, evaluate, &v));
  fetch(w, at);
  CHECK_NEAR(at[0], 1, 1e-3);
  CHECK_NEAR(at[1], 1, 1e-3);
  CHECK_EQ(memory.calls, v.evaluations);
  CHECK(memory.iterations > 10 && memory.count <= 10);
  px_lbfgs_clear(&memory);
  CHECK(!memory.history && !memory.direction && memory.scale == 1);
}

PX_TEST(lbfgs_leaks_nothing_after_a_failure) {
  for (int n = 1; n < 12; n++) {
    PX_SCOPED(px_tensor) w = leaf((float[]){-1.2f, 1}, 2);
    px_lbfgs_memory memory = {.scale = 1};
    FAILS(px_lbfgs_step(&memory, &usual, &w, 1, evaluate, &(rosenbrock){w, 0, n}), PX_RUNTIME,
          "no loss");
    px_lbfgs_clear(&memory);
  }
  bool failed = true;
  for (int64_t n = 1; failed && n < 400; n++) {
    PX_SCOPED(px_tensor) w = leaf((float[]){-1.2f, 1}, 2);
    px_lbfgs_memory memory = {.scale = 1};
    px_lbfgs_options few = usual;
    few.max_iter = 3;
    OK(px_fault_arm("alloc", n, false));
    failed = px_lbfgs_step(&memory, &few, &w, 1, evaluate, &(rosenbrock){w, 0, 0}) != PX_OK;
    px_fault_disarm_all();
    px_lbfgs_clear(&memory);
  }
  CHECK(!failed);
  px_tensor *missing = NULL;
  px_lbfgs_memory memory = {.scale = 1};
  FAILS(px_lbfgs_step(&memory, &usual, &missing, 1, evaluate, NULL), PX_TYPE, "missing");
  FAILS(px_lbfgs_step(&memory, &usual, NULL, 0, evaluate, NULL), PX_VALUE, "empty parameter list");
  FAILS(px_lbfgs_remember(&memory, NULL, NULL, 1, 1), PX_TYPE, "change");
}

// ---- clipping

static void check_clipping(double type, double norm, const double *wanted) {
  PX_SCOPED(px_tensor) a = leaf((float[]){0, 0}, 2);
  PX_SCOPED(px_tensor) b = leaf((float[]){0}, 1);
  PX_SCOPED(px_tensor) total = NULL;
  px_scalar number;
  float values[3];
  give_grad(a, (float[]){3, 4}), give_grad(b, (float[]){12});
  OK(px_clip_grad_norm(&total, (px_tensor *[]){a, b}, 2, 1, type, false));
  OK(px_tensor_item(&number, total));
  CHECK_NEAR(px_scalar_float(number), norm, 1e-6);
  fetch(px_tensor_grad(a), values), fetch(px_tensor_grad(b), values + 2);
  for (int i = 0; i < 3; i++) CHECK_NEAR(values[i], wanted[i], 1e-7);
}

PX_TEST(gradients_are_scaled_by_their_common_norm) {
  check_clipping(2, 13, (double[]){0.230769217, 0.307692289, 0.923076868});
  check_clipping(INFINITY, 12, (double[]){0.249999985, 0.333333313, 0.99999994});
  check_clipping(1, 19, (double[]){0.157894716, 0.210526288, 0.631578863});
}

PX_TEST(small_gradients_are_not_scaled) {
  PX_SCOPED(px_tensor) p = leaf((float[]){0}, 1);
  float value;
  OK(px_clip_grad_norm(NULL, &p, 1, 1, 2, false));  // without a gradient it is a no-op
  give_grad(p, (float[]){0.5f});
  OK(px_clip_grad_norm(NULL, &p, 1, 1, 2, false));
  fetch(px_tensor_grad(p), &value);
  CHECK_NEAR(value, 0.5, 0);
}

PX_TEST(an_inf_or_nan_norm_is_refused_unchanged) {
  PX_SCOPED(px_tensor) p = leaf((float[]){1, 1}, 2), *total = NULL;
  PX_SCOPED(px_tensor) grad = leaf((float[]){3, INFINITY}, 2);
  OK(px_tensor_set_requires_grad(grad, false));
  OK(px_tensor_set_grad(p, grad));
  FAILS(px_clip_grad_norm(&total, &p, 1, 1, 2, true), PX_RUNTIME,
        "The total norm of order 2.0 for gradients from `parameters` is non-finite");
  CHECK(!total);
  float values[2];
  OK(px_tensor_read(px_tensor_grad(p), values, sizeof values));
  CHECK(values[0] == 3 && values[1] == INFINITY);
}

PX_TEST(gradients_are_scaled_by_a_given_norm) {
  PX_SCOPED(px_tensor) p = leaf((float[]){0, 0}, 2);
  PX_SCOPED(px_tensor) total = NULL;
  PX_SCOPED(px_tensor) twice = NULL;
  px_scalar number;
  float values[2];
  give_grad(p, (float[]){3, 4});
  px_tensor *grad = px_tensor_grad(p);
  OK(px_total_norm(&total, &grad, 1, 2, true));
  OK(px_tensor_item(&number, total));
  CHECK_NEAR(px_scalar_float(number), 5, 1e-6);
  OK(px_mul_scalar(&twice, total, px_int(2)));  // as if another process contributed as much
  OK(px_clip_grads_with_norm(&p, 1, 5, twice));
  fetch(px_tensor_grad(p), values);
  CHECK_NEAR(values[0], 1.5, 1e-6);
  CHECK_NEAR(values[1], 2, 1e-6);
  FAILS(px_clip_grads_with_norm(&p, 1, 5, NULL), PX_TYPE, "total_norm");
  FAILS(px_total_norm(&twice, (px_tensor *[]){NULL}, 1, 2, false), PX_TYPE, "missing");
}

PX_TEST(elements_of_gradients_are_clamped) {
  PX_SCOPED(px_tensor) p = leaf((float[]){0, 0}, 2);
  float values[2];
  OK(px_clip_grad_value(&p, 1, 0.5));  // without a gradient it is a no-op
  give_grad(p, (float[]){3, -0.25f});
  OK(px_clip_grad_value(&p, 1, 0.5));
  fetch(px_tensor_grad(p), values);
  CHECK(values[0] == 0.5f && values[1] == -0.25f);
}

PX_TEST(the_step_count_increments_and_is_writable) {
  PX_SCOPED(px_tensor) p = leaf((float[]){1}, 1);
  PX_SCOPED(px_tensor) grad = NULL;
  PX_SCOPED(px_tensor) integers = NULL;
  PX_SCOPED(px_optimizer) o = optimizer("Adam", p);
  px_scalar steps;
  OK(px_ones_like(&grad, p, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL));
  OK(px_tensor_set_grad(p, grad));
  OK(px_optimizer_step(o));
  px_tensor *count = px_optimizer_state(o, 0, 0, "step");
  OK(px_optimizer_step(o));
  CHECK_NEAR(*(float *)px_tensor_data(count), 2, 0);
  OK(px_fill_(count, px_int(7)));
  OK(px_optimizer_step(o));
  CHECK_NEAR(*(float *)px_tensor_data(count), 8, 0);
  OK(px_fill_(count, px_float(NAN)));
  FAILS(px_optimizer_step(o), PX_VALUE, "expected step >= 0, but got nan");
  OK(px_tensor_from_data(&integers, &(int64_t){3}, 0, NULL, PX_INT64, px_cpu()));
  OK(px_optimizer_set_state(o, 0, 0, "step", integers));
  OK(px_optimizer_step(o));
  OK(px_tensor_item(&steps, integers));
  CHECK_EQ(px_scalar_int(steps), 4);
}

PX_TEST(all_kinds_take_options_by_name) {
  PX_SCOPED(px_tensor) p = leaf((float[]){1, -2, 3}, 3);
  PX_SCOPED(px_optimizer) sgd = NULL;
  PX_SCOPED(px_optimizer) adam = NULL;
  PX_SCOPED(px_optimizer) plain = NULL;
  px_optimizer *none = NULL;
  double value;
  float values[3];
  OK(px_sgd_new(&sgd, &p, 1, .lr = 0.1, .momentum = 0.9));
  OK(px_optimizer_get(&value, sgd, 0, "momentum"));
  CHECK_NEAR(value, 0.9, 0);
  for (int k = 1; k <= 4; k++) {
    slope(p, k);
    OK(px_optimizer_step(sgd));
  }
  fetch(p, values);
  CHECK_NEAR(values[0], 0.405327529, 2e-6);
  OK(px_adam_new(&adam, &p, 1, .amsgrad = true));
  OK(px_optimizer_get(&value, adam, 0, "beta2"));
  CHECK_NEAR(value, 0.999, 0);
  OK(px_adadelta_new(&plain, &p, 1));
  OK(px_optimizer_get(&value, plain, 0, "lr"));
  CHECK_NEAR(value, 1, 0);
  FAILS(px_adamw_new(&none, &p, 1, .beta1 = 1), PX_VALUE, "Invalid beta parameter at index 0: 1.0");
  FAILS(px_sgd_new(&none, &p, 1, .nesterov = true), PX_VALUE, "Nesterov momentum requires");
  FAILS(px_optimizer_make(&none, "LBFGS", &value, &p, 1), PX_UNIMPLEMENTED, "LBFGS");
}

// Sets the same gradient for a complex parameter and for its parts.
static void give_both_grads(px_tensor *whole, px_tensor *parts, int k) {
  float values[6];
  for (int i = 0; i < 6; i++) values[i] = (float)((i * 7 + k * 5) % 6) - 2.5f;
  PX_SCOPED(px_tensor) grad = NULL;
  OK(px_tensor_from_data(&grad, values, 1, px_tensor_sizes(whole), PX_COMPLEX64, px_cpu()));
  OK(px_tensor_set_grad(whole, grad));
  give_grad(parts, values);
}

// Also for each failing allocation: a failed step changes nothing.
PX_TEST(complex_parameters_step_as_their_parts) {
  static const float start[] = {1, -2, 3, 0.5f, -0.25f, 4};
  for (int i = 0; px_optimizer_kind_at(i); i++) {
    const char *name = px_optimizer_kind_name(px_optimizer_kind_at(i));
    PX_SCOPED(px_tensor) whole = NULL;
    PX_SCOPED(px_tensor) parts = leaf(start, 6);
    OK(px_tensor_from_data(&whole, start, 1, (int64_t[]){3}, PX_COMPLEX64, px_cpu()));
    OK(px_tensor_set_requires_grad(whole, true));
    PX_SCOPED(px_optimizer) one = optimizer(name, whole);
    PX_SCOPED(px_optimizer) other = optimizer(name, parts);
    for (int k = 0; k < 3; k++) {
      float before[6], after[6], wanted[6];
      bool failed = true;
      give_both_grads(whole, parts, k);
      OK(px_tensor_read(whole, before, sizeof before));
      for (int64_t n = 1; failed; n++) {
        OK(px_fault_arm("alloc", n, false));
        failed = px_optimizer_step(one) != PX_OK;
        px_fault_disarm_all();
        px_error_clear();
        OK(px_tensor_read(whole, after, sizeof after));
        CHECK_EQ(failed, !memcmp(before, after, sizeof before));
      }
      OK(px_optimizer_step(other));
      fetch(parts, wanted);
      CHECK(!memcmp(after, wanted, sizeof wanted));
    }
  }
}

// Each kind with one failing kernel: no parameter has changed and no state was created.
PX_TEST(a_failed_step_keeps_parameter_and_state) {
  for (int i = 0; px_optimizer_kind_at(i); i++) {
    const px_optimizer_kind *kind = px_optimizer_kind_at(i);
    PX_SCOPED(px_tensor) p = leaf((float[]){1, -2, 3}, 3);
    PX_SCOPED(px_optimizer) o = optimizer(px_optimizer_kind_name(kind), p);
    for (int steps = 0; steps < 2; steps++) {
      float before[3], after[3], kept[2][PX_OPTIMIZER_STATES][3];
      bool failed = true;
      slope(p, 1);
      fetch(p, before);
      for (int k = 0; px_optimizer_kind_state(kind, k); k++) {
        px_tensor *state = px_optimizer_state(o, 0, 0, px_optimizer_kind_state(kind, k));
        CHECK(steps == 1 || !state);
        if (state) fetch(state, kept[0][k]);
      }
      for (int64_t n = 1; failed; n++) {
        OK(px_fault_arm("alloc", n, false));
        failed = px_optimizer_step(o) != PX_OK;
        px_fault_disarm_all();
        px_error_clear();
        fetch(p, after);
        if (!failed) continue;
        CHECK(!memcmp(before, after, sizeof before));
        for (int k = 0; px_optimizer_kind_state(kind, k); k++) {
          px_tensor *state = px_optimizer_state(o, 0, 0, px_optimizer_kind_state(kind, k));
          CHECK(steps == 1 || !state);
          if (!state) continue;
          fetch(state, kept[1][k]);
          CHECK(!memcmp(kept[0][k], kept[1][k], (size_t)px_tensor_numel(state) * sizeof(float)));
        }
      }
      CHECK(memcmp(before, after, sizeof before));
    }
  }
}

PX_TEST(a_replaced_state_lives_until_the_reader_ends) {
  PX_SCOPED(px_tensor) w = leaf((float[]){1}, 1);
  PX_SCOPED(px_optimizer) o = optimizer("SGD", w);
  int64_t before = px_live_objects("tensor");
  px_tensor *state = leaf((float[]){2}, 1);
  OK(px_optimizer_set_state(o, 0, 0, "momentum_buffer", state));
  px_release(state);
  int reader = px_optimizer_read_begin(o);
  state = px_optimizer_state(o, 0, 0, "momentum_buffer");
  OK(px_optimizer_set_state(o, 0, 0, "momentum_buffer", NULL));
  CHECK_EQ(px_tensor_numel(state), 1);
  px_optimizer_read_end(o, reader);
  CHECK_EQ(px_live_objects("tensor"), before);
}

PX_TEST(missing_groups_and_parameters_are_errors) {
  PX_SCOPED(px_tensor) w = leaf((float[]){1}, 1);
  PX_SCOPED(px_optimizer) o = optimizer("SGD", w);
  px_tensor *missing = NULL;
  FAILS(px_optimizer_add(o, &missing, 1), PX_TYPE, "one of the params is NoneType");
  FAILS(px_optimizer_set(o, 1, "lr", 1), PX_INDEX, "no parameter group 1");
  FAILS(px_optimizer_set(o, -2, "lr", 1), PX_INDEX, "no parameter group -2");
  FAILS(px_optimizer_set_state(o, 0, 1, "momentum_buffer", w), PX_INDEX, "parameter 1 in group 0");
  CHECK(!px_optimizer_parameter(o, 1, 0) && !px_optimizer_parameter(o, 0, -1));
  CHECK(!px_optimizer_state(o, 3, 0, "momentum_buffer"));
  CHECK_EQ(px_optimizer_group_size(o, 1), 0);
  FAILS(px_clip_grad_norm(NULL, &missing, 1, 1, 2, false), PX_TYPE, "missing");
  FAILS(px_clip_grad_norm(NULL, &w, -1, 1, 2, false), PX_VALUE, "-1");
}

PX_TEST(a_group_added_after_the_first_epoch_starts_from_its_own_rate) {
  PX_SCOPED(px_tensor) a = leaf((float[]){1}, 1);
  PX_SCOPED(px_tensor) b = leaf((float[]){1}, 1);
  PX_SCOPED(px_optimizer) o = optimizer("SGD", a);
  px_schedule stairs = {.kind = px_scheduler_kind_find("StepLR"), .options = (double[]){1, 0.5}};
  double lr;
  OK(px_optimizer_set(o, -1, "lr", 1));
  OK(px_optimizer_schedule(o, &stairs, 0));
  OK(px_optimizer_add(o, &b, 1));
  OK(px_optimizer_set(o, 1, "lr", 8));
  OK(px_optimizer_schedule(o, &stairs, 1));
  OK(px_optimizer_get(&lr, o, 0, "lr"));
  CHECK_NEAR(lr, 0.5, 0);
  OK(px_optimizer_get(&lr, o, 1, "lr"));
  CHECK_NEAR(lr, 4, 0);
}
