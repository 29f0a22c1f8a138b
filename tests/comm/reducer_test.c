// SPDX-License-Identifier: Apache-2.0
// The gradient reducer and synchronized batch norm in two processes, each with half of a batch, and
// callbacks at the end of a backward pass.
#include "phlox/phlox.h"

#include "ranks.h"

// A parameter with four elements of `value`.
static px_tensor *parameter(double value) {
  px_tensor *out;
  int64_t size = 4;
  OK(px_full(&out, &size, 1, px_float(value), PX_FLOAT32, px_cpu(), false, false));
  OK(px_tensor_set_requires_grad(out, true));
  return out;
}

// Backward of sum(factor * a * b).
static void step(px_reducer *reducer, px_tensor *a, px_tensor *b, double factor) {
  PX_SCOPED(px_tensor) product = NULL;
  PX_SCOPED(px_tensor) scaled = NULL;
  PX_SCOPED(px_tensor) loss = NULL;
  OK(px_tensor_set_grad(a, NULL));
  OK(px_tensor_set_grad(b, NULL));
  OK(px_reducer_begin(reducer));
  OK(px_mul(&product, a, b));
  OK(px_mul_scalar(&scaled, product, px_float(factor)));
  OK(px_sum(&loss, scaled, NULL, 0, false, PX_DTYPE_NONE));
  OK(px_reducer_expect(reducer, &loss, 1));
  OK(px_backward(1, &loss, NULL, false, false));
}

static void check_grad(const px_tensor *tensor, float value) {
  const float *at = px_tensor_data(px_tensor_grad(tensor));
  for (int i = 0; i < 4; i++) CHECK_NEAR(at[i], value, 0);
}

// Reduces a bucket to half its sum, synchronously.
static px_status halve(void **pending, const px_bucket *bucket, void *context) {
  PX_SCOPED(px_work) work = NULL;
  px_tensor *buffer = bucket->buffer;
  px_collective all = {.op = PX_ALL_REDUCE, .outputs = &buffer, .output_count = 1};
  PX_TRY(px_comm_run(&work, context, &all));
  PX_TRY(px_work_wait(work, 0));
  PX_TRY(px_mul_scalar_(buffer, px_float(0.25)));
  *pending = NULL;
  return PX_OK;
}
static px_status halved(px_tensor **out, void *pending, void *context) {
  *out = NULL;
  return PX_OK;
}
static void drop_pending(void *pending) {}

static void average_gradients(px_comm *comm, px_device device) {
  static const px_bucket_hook hook = {halve, halved, drop_pending, NULL};
  int rank = px_comm_rank(comm);
  px_tensor *parameters[] = {parameter(rank + 2), parameter(rank + 5)};
  OK(px_comm_check_parameters(comm, parameters, 2));
  OK(px_comm_copy_from(comm, 0, parameters, 2));  // 2 and 5
  for (int way = 0; way < 6;
       way++) {  // the first two without a limit on the buffer, the others with one
    px_reducer *reducer;
    px_reducer_options options = {.comm = comm,
                                  .parameters = parameters,
                                  .count = 2,
                                  .bucket_view = way == 1,
                                  .unbucketed_bytes = way < 2    ? -1
                                                      : way == 5 ? 17
                                                                 : 1,
                                  .first_bytes = 1,
                                  .bucket_bytes = 1};
    OK(px_reducer_new(&reducer, &options));
    CHECK_EQ(px_reducer_bucket_count(reducer), 2);
    if (way == 2) OK(px_reducer_compress(reducer, PX_BFLOAT16));
    if (way == 3) OK(px_reducer_set_hook(reducer, &hook, comm));
    if (way == 2 || way == 3)
      FAILS(px_reducer_compress(reducer, PX_FLOAT16), PX_RUNTIME, "can only be called once");
    for (int i = 0; i < 3; i++) step(reducer, parameters[0], parameters[1], rank ? 3 : 1);
    check_grad(parameters[0], way == 3 ? 5 : 10);
    check_grad(parameters[1], way == 3 ? 2 : 4);
    px_release(reducer);
  }
  px_release(parameters[0]);
  px_release(parameters[1]);
}
PX_TEST(gradients_are_averaged_over_ranks) { run_ranks(2, ON_CPU, average_gradients); }

// ---- mixed precision: bfloat16 rounds 1 + 2^-12 and 1 + 2^-8 to 1; float16 keeps 1 + 2^-8

static px_module *make_layer(double weight) {
  px_module *out;
  px_module_entry entry;
  OK(px_linear_new(&out, 4, 1, .bias = false));
  CHECK(px_module_entry_at(out, PX_ENTRY_PARAMETER, 0, &entry));
  bool was = px_grad_enabled();
  px_grad_set_enabled(false);
  OK(px_fill_(entry.tensor, px_float(weight)));
  px_grad_set_enabled(was);
  return out;
}

static px_tensor *weight_of(px_module *layer) {
  px_module_entry entry;
  CHECK(px_module_entry_at(layer, PX_ENTRY_PARAMETER, 0, &entry));
  return entry.tensor;
}

static px_reducer *mixed_reducer(px_comm *comm, px_module *layer, bool view, px_dtype reduce) {
  px_tensor *weight = weight_of(layer);
  px_reducer *out;
  px_reducer_options options = {
      .comm = comm, .parameters = &weight, .count = 1, .bucket_view = view};
  px_mixed_precision policy = {PX_BFLOAT16, reduce, PX_DTYPE_NONE};
  OK(px_reducer_new(&out, &options));
  OK(px_reducer_set_mixed_precision(out, layer, &policy, NULL, 0));
  FAILS(px_reducer_set_mixed_precision(out, layer, &policy, NULL, 0), PX_RUNTIME,
        "can only be called once");
  FAILS(px_reducer_compress(out, PX_FLOAT16), PX_RUNTIME, "can only be called once");
  return out;
}

static px_tensor *forward_low(px_reducer *reducer, px_module *layer, double value) {
  int64_t sizes[] = {1, 4};
  PX_SCOPED(px_tensor) x = NULL;
  px_tensor *out;
  OK(px_full(&x, sizes, 2, px_float(value), PX_BFLOAT16, px_cpu(), false, false));
  OK(px_reducer_cast_parameters(reducer));
  OK(px_module_call(&out, layer, x));
  OK(px_reducer_restore_parameters(reducer));
  return out;
}

static void trains_mixed(px_comm *comm, px_device device) {
  for (int way = 0; way < 4; way++) {
    PX_SCOPED(px_module) layer = make_layer(1 + 0x1p-12);
    px_tensor *weight = weight_of(layer);
    const px_storage *own = px_tensor_storage(weight);
    px_dtype reduce = way < 2 ? PX_FLOAT32 : way == 2 ? PX_DTYPE_NONE : PX_FLOAT16;
    PX_SCOPED(px_reducer) reducer = mixed_reducer(comm, layer, way == 1, reduce);
    for (int i = 0; i < 3; i++) {
      OK(px_tensor_set_grad(weight, NULL));
      OK(px_reducer_begin(reducer));
      PX_SCOPED(px_tensor) out = forward_low(reducer, layer, px_comm_rank(comm) ? 1 : 1 + 0x1p-7);
      CHECK_EQ(px_tensor_dtype(weight), PX_BFLOAT16);
      OK(px_reducer_expect(reducer, &out, 1));
      OK(px_backward(1, &out, NULL, false, false));
      CHECK_EQ(px_tensor_dtype(weight), PX_FLOAT32);
      CHECK(px_tensor_storage(weight) == own);
      CHECK_NEAR(*(float *)px_tensor_data(weight), 1 + 0x1p-12, 0);
      CHECK_EQ(px_tensor_dtype(px_tensor_grad(weight)), PX_FLOAT32);
      check_grad(weight, way == 2 ? 1 : 1 + 0x1p-8f);  // bfloat16 has seven bits
    }
  }
}
PX_TEST(compute_and_reduction_precision_may_differ) { run_ranks(2, ON_CPU, trains_mixed); }

static void check_lowering(px_comm *comm, px_device device) {
  PX_SCOPED(px_module) layer = make_layer(1 + 0x1p-12);
  PX_SCOPED(px_reducer) reducer = mixed_reducer(comm, layer, false, PX_FLOAT32);
  px_tensor *weight = weight_of(layer);
  // A pass without recording lowers no parameter, not even inside a recorded one.
  px_grad_set_enabled(false);
  px_release(forward_low(reducer, layer, 1));
  CHECK_EQ(px_tensor_dtype(weight), PX_FLOAT32);
  px_grad_set_enabled(true);
  PX_SCOPED(px_tensor) out = forward_low(reducer, layer, 1);
  px_grad_set_enabled(false);
  px_release(forward_low(reducer, layer, 1));
  CHECK_EQ(px_tensor_dtype(weight), PX_BFLOAT16);
  // A parameter written in between keeps the new values. The others get back their exact bits.
  OK(px_reducer_cast_parameters(reducer));
  OK(px_fill_(weight, px_float(3)));
  px_grad_set_enabled(true);
  OK(px_backward(1, &out, NULL, false, false));
  CHECK_EQ(px_tensor_dtype(weight), PX_FLOAT32);
  CHECK_NEAR(*(float *)px_tensor_data(weight), 3, 0);
  check_grad(weight, 1);
}
PX_TEST(parameters_are_lowered_from_forward_to_the_end_of_backward) {
  run_ranks(1, ON_CPU, check_lowering);
}

static void lowers_or_not(px_comm *comm, px_device device) {
  PX_SCOPED(px_module) layer = make_layer(1);
  px_tensor *weight = weight_of(layer);
  PX_SCOPED(px_reducer) reducer = mixed_reducer(comm, layer, false, PX_FLOAT32);
  bool failed = true;
  for (int64_t n = 1; failed; n++) {
    OK(px_fault_arm("alloc", n, false));
    failed = px_reducer_cast_parameters(reducer) != PX_OK;
    px_fault_disarm_all();
    CHECK_EQ(px_tensor_dtype(weight), failed ? PX_FLOAT32 : PX_BFLOAT16);
  }
  px_release(PX_MOVE(reducer));
  CHECK_EQ(px_tensor_dtype(weight), PX_FLOAT32);
  px_reducer_options options = {.comm = comm, .parameters = &weight, .count = 1};
  OK(px_reducer_new(&reducer, &options));
  px_mixed_precision policy = {PX_INT32, PX_DTYPE_NONE, PX_DTYPE_NONE};
  FAILS(px_reducer_set_mixed_precision(reducer, layer, &policy, NULL, 0), PX_RUNTIME,
        "Only Tensors of floating");
  policy.param_dtype = PX_FLOAT16;
  failed = true;
  for (int64_t n = 1; failed; n++) {
    OK(px_fault_arm("alloc", n, false));
    failed = px_reducer_set_mixed_precision(reducer, layer, &policy, NULL, 0) != PX_OK;
    px_fault_disarm_all();
  }
  OK(px_reducer_cast_parameters(reducer));
  CHECK_EQ(px_tensor_dtype(weight), PX_FLOAT16);
}
PX_TEST(lowering_parameters_is_all_or_nothing) { run_ranks(1, ON_CPU, lowers_or_not); }

// Rank 0 has three steps and rank 1 has one. Rank 1 shadows the others.
static void shadow_steps(px_comm *comm, px_device device) {
  bool has = px_comm_rank(comm) == 0;
  px_tensor *parameters[] = {parameter(2), parameter(5)};
  for (int way = 0; way < 3; way++) {
    PX_SCOPED(px_reducer) reducer = NULL;
    px_reducer_options options = {.comm = comm,
                                  .parameters = parameters,
                                  .count = 2,
                                  .bucket_view = way == 1,
                                  .unbucketed_bytes = way == 2 ? 1 : -1,
                                  .first_bytes = 1,
                                  .bucket_bytes = 1};
    OK(px_reducer_new(&reducer, &options));
    step(reducer, parameters[0], parameters[1], 1);
    for (int i = 1; i <= 2; i++) {
      OK(px_reducer_divide_by(reducer, 2 - i / 2));
      if (has)
        step(reducer, parameters[0], parameters[1], 4);
      else
        OK(px_reducer_shadow(reducer));
      check_grad(parameters[0], has ? 10 * (float)i : 5);
      check_grad(parameters[1], has ? 4 * (float)i : 2);
    }
    FAILS(px_reducer_divide_by(reducer, -1), PX_VALUE, "got -1");
  }
  px_release(parameters[0]);
  px_release(parameters[1]);
}
PX_TEST(a_rank_without_input_joins_the_reduction_with_zeros) { run_ranks(2, ON_CPU, shadow_steps); }

// Backward of sum(factor * p), reduced unless `reducer` is NULL.
static void pass(px_reducer *reducer, px_tensor *p, double factor) {
  PX_SCOPED(px_tensor) scaled = NULL;
  PX_SCOPED(px_tensor) loss = NULL;
  if (reducer) OK(px_reducer_begin(reducer));
  OK(px_mul_scalar(&scaled, p, px_float(factor)));
  OK(px_sum(&loss, scaled, NULL, 0, false, PX_DTYPE_NONE));
  if (reducer) OK(px_reducer_expect(reducer, &loss, 1));
  OK(px_backward(1, &loss, NULL, false, false));
}

static void passes_of_parts(px_comm *comm, px_device device) {
  double mine = px_comm_rank(comm) + 1;
  for (int view = 0; view < 2; view++) {
    px_tensor *parts[] = {parameter(1), parameter(1), parameter(1)};
    px_reducer *reducer;
    px_reducer_options options = {
        .comm = comm, .parameters = parts, .count = 3, .find_unused = true, .bucket_view = view};
    OK(px_reducer_new(&reducer, &options));
    pass(NULL, parts[0], mine);
    pass(reducer, parts[1], mine);
    check_grad(parts[0], 1.5);
    check_grad(parts[1], 1.5);
    CHECK(!px_tensor_grad(parts[2]));
    for (int i = 0; i < 3; i++) OK(px_tensor_set_grad(parts[i], NULL));
    pass(reducer, parts[2], mine);
    CHECK(!px_tensor_grad(parts[0]) && !px_tensor_grad(parts[1]));
    check_grad(parts[2], 1.5);
    px_release(reducer);
    for (int i = 0; i < 3; i++) px_release(parts[i]);
  }
}

PX_TEST(a_reduction_includes_gradients_of_passes_without_one) {
  run_ranks(2, ON_CPU, passes_of_parts);
}

static void differ(px_comm *comm, px_device device) {
  px_tensor *parameters[] = {parameter(1), parameter(1)};
  FAILS(px_comm_check_parameters(comm, parameters, 1 + px_comm_rank(comm)), PX_RUNTIME,
        "DDP expects same model across all ranks, but Rank");
  px_release(parameters[0]);
  px_release(parameters[1]);
}
PX_TEST(mismatched_modules_are_refused_on_all_ranks) { run_ranks(2, ON_CPU, differ); }

// Rank 0 has 1 and rank 1 has 3: over both, the mean is 2 and the variance 1.
static void normalises(px_comm *comm, px_device device) {
  int64_t sizes[] = {1, 1};
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) out = NULL;
  PX_SCOPED(px_tensor) vector = parameter(1);
  OK(px_full(&x, sizes, 2, px_float(1 + 2 * px_comm_rank(comm)), PX_FLOAT64, px_cpu(), false,
             false));
  OK(px_sync_batch_norm(&out, comm, x, NULL, NULL, NULL, NULL, 0.1, 0));
  CHECK_NEAR(*(double *)px_tensor_data(out), px_comm_rank(comm) ? 1 : -1, 1e-12);
  FAILS(px_sync_batch_norm(&x, comm, vector, NULL, NULL, NULL, NULL, 0.1, 0), PX_VALUE,
        "expected at least 2D input (got 1D input)");
}
PX_TEST(sync_batch_norm_normalises_over_all_ranks) { run_ranks(2, ON_CPU, normalises); }

// ---- tensors owned by one rank each

static px_tensor *of_size(int64_t size, double value) {
  px_tensor *out;
  OK(px_full(&out, &size, 1, px_float(value), PX_FLOAT32, px_cpu(), false, false));
  return out;
}

static void shares(px_comm *comm, px_device device) {
  px_tensor *list[4];
  int owners[4];
  int64_t loads[2] = {0};
  static const int64_t sizes[] = {2, 5, 4, 1};
  for (int i = 0; i < 4; i++) list[i] = of_size(sizes[i], px_comm_rank(comm) + 1);
  OK(px_partition(owners, loads, 2, list, 4));  // 5 and 1; 4 and 2
  CHECK(owners[0] == 1 && owners[1] == 0 && owners[2] == 1 && owners[3] == 0);
  CHECK(loads[0] == 6 && loads[1] == 6);
  OK(px_comm_broadcast_owned(comm, list, owners, 4));
  for (int i = 0; i < 4; i++)
    CHECK_NEAR(((float *)px_tensor_data(list[i]))[sizes[i] - 1], owners[i] + 1, 0);
  owners[3] = 2;
  FAILS(px_comm_broadcast_owned(comm, list, owners, 4), PX_VALUE, "rank 2 is not in a group of 2");
  for (int i = 0; i < 4; i++) px_release(list[i]);
}
PX_TEST(each_rank_broadcasts_its_partition) { run_ranks(2, ON_CPU, shares); }

// ---- callbacks at the end of backward

static char order[8];
static px_status note(void *context) {
  strcat(order, context);
  return PX_OK;
}
static void released(void *context) { strcat(order, "."); }
static px_status register_callback(px_tensor *tensor, void *context) {
  PX_TRY(px_backward_at_end(note, "a", released));
  return px_backward_at_end(note, "b", released);
}

PX_TEST(callbacks_of_hooks_run_at_the_end_of_backward) {
  PX_SCOPED(px_tensor) x = parameter(1);
  PX_SCOPED(px_tensor) loss = NULL;
  int64_t id;
  OK(px_tensor_add_accumulated_hook(&id, x, register_callback, NULL, NULL));
  OK(px_sum(&loss, x, NULL, 0, false, PX_DTYPE_NONE));
  OK(px_backward(1, &loss, NULL, false, false));
  CHECK(!strcmp(order, "a.b."));
  FAILS(px_backward_at_end(note, "c", released), PX_RUNTIME, "only be installed during backward");
  CHECK(!strcmp(order, "a.b.."));
}
