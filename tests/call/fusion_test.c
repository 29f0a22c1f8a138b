// SPDX-License-Identifier: Apache-2.0
// Fusion (phlox/fuse.h): results, gradients and memory of calls within a scope.
#include "devices.h"

#include "phlox/extend.h"
#include "phlox/graph.h"

#include <pthread.h>

static px_device home;

// A test on the CPU and on a simulated device.
#define PX_TEST_EACH(name) \
  static void name(void); \
  PX_TEST(name##_on_the_cpu) { \
    home = px_cpu(); \
    name(); \
  } \
  PX_TEST(name##_on_a_device) { \
    simulate(1); \
    home = px_cuda(0); \
    name(); \
  } \
  static void name(void)

static px_tensor *counted(int64_t rows, int64_t columns) {
  px_tensor *flat, *t;
  OK(px_arange(&flat, px_int(1), px_int(1 + rows * columns), px_int(1), PX_FLOAT32, home, false,
               false));
  OK(px_reshape(&t, flat, (int64_t[]){rows, columns}, 2));
  px_release(flat);
  return t;
}

// relu(x * factor - 3) / 2
static px_status chain(px_tensor **out, px_tensor *x, px_scalar factor) {
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  PX_SCOPED(px_tensor) c = NULL;
  PX_TRY(px_mul_scalar(&a, x, factor));
  PX_TRY(px_sub_scalar(&b, a, px_int(3), px_int(1)));
  PX_TRY(px_relu(&c, b));
  return px_div_scalar(out, c, px_int(2));
}

static void check_equal(const px_tensor *a, const px_tensor *b) {
  size_t bytes = (size_t)px_tensor_numel(a) * sizeof(float);
  CHECK_EQ(px_tensor_numel(a), px_tensor_numel(b));
  float *values = malloc(bytes), *others = malloc(bytes);
  OK(px_tensor_read(a, values, bytes));
  OK(px_tensor_read(b, others, bytes));
  CHECK(!memcmp(values, others, bytes));
  free(values);
  free(others);
}

static double value(const px_tensor *t) {
  px_scalar number;
  OK(px_tensor_item(&number, t));
  return px_scalar_float(number);
}

static int64_t allocated(void) {
  int64_t bytes = 0;
  if (home.type == PX_CUDA) OK(px_memory_stat_get(&bytes, 0, "allocated_bytes.all.current"));
  return bytes;
}

PX_TEST_EACH(chain_equals_single_calls) {
  PX_SCOPED(px_tensor) x = counted(7, 9);
  PX_SCOPED(px_tensor) single = NULL;
  PX_SCOPED(px_tensor) fused = NULL;
  OK(chain(&single, x, px_float(0.3)));
  OK(px_fuse_begin());
  OK(chain(&fused, x, px_float(0.3)));
  OK(px_fuse_end(PX_OK));
  check_equal(single, fused);
}

PX_TEST_EACH(results_are_computed_when_they_are_read) {
  PX_SCOPED(px_tensor) x = counted(1, 4);
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) last = NULL;
  OK(px_fuse_begin());
  OK(px_mul_scalar(&y, x, px_int(2)));
  OK(px_narrow(&last, y, 1, 3, 1));
  CHECK_EQ(value(last), 8);
  OK(px_fuse_end(PX_OK));
  CHECK_EQ(value(last), 8);
}

PX_TEST_EACH(write_to_an_input_computes_its_readers_first) {
  PX_SCOPED(px_tensor) x = counted(1, 1);
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) z = NULL;
  OK(px_fuse_begin());
  OK(px_mul_scalar(&y, x, px_int(10)));
  OK(px_add_scalar_(x, px_int(4), px_int(1)));
  OK(px_mul_scalar(&z, x, px_int(10)));
  OK(px_fuse_end(PX_OK));
  CHECK_EQ(value(y), 10);
  CHECK_EQ(value(z), 50);
}

PX_TEST_EACH(write_to_a_result_does_not_reach_earlier_readers) {
  PX_SCOPED(px_tensor) x = counted(1, 1);
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) z = NULL;
  OK(px_fuse_begin());
  OK(px_mul_scalar(&y, x, px_int(10)));
  OK(px_add_scalar(&z, y, px_int(1), px_int(1)));
  OK(px_zero_(y));
  OK(px_fuse_end(PX_OK));
  CHECK_EQ(value(y), 0);
  CHECK_EQ(value(z), 11);
}

PX_TEST_EACH(write_ends_a_chain) {
  PX_SCOPED(px_tensor) x = counted(4, 4);
  PX_SCOPED(px_tensor) expected = counted(4, 4);
  PX_SCOPED(px_tensor) single = NULL;
  PX_SCOPED(px_tensor) fused = NULL;
  OK(chain(&single, expected, px_float(0.9)));
  OK(px_add_(expected, single, px_int(3)));
  OK(px_fuse_begin());
  OK(chain(&fused, x, px_float(0.9)));
  OK(px_add_(x, fused, px_int(3)));
  OK(px_fuse_end(PX_OK));
  check_equal(x, expected);
  check_equal(fused, single);
}

PX_TEST_EACH(write_of_a_chain_needs_no_memory) {
  PX_SCOPED(px_tensor) x = counted(512, 512);
  PX_SCOPED(px_tensor) sum = counted(512, 512);
  PX_SCOPED(px_tensor) product = NULL;
  int64_t before = allocated();
  OK(px_fuse_begin());
  OK(chain(&product, x, px_int(2)));
  OK(px_add_(sum, product, px_int(1)));
  CHECK_EQ(allocated(), before);
  px_release(product);
  product = NULL;
  OK(px_fuse_end(PX_OK));
  CHECK_EQ(allocated(), before);
}

PX_TEST_EACH(conversions_are_part_of_chains) {
  PX_SCOPED(px_tensor) x = counted(8, 8);
  px_tensor *results[2] = {NULL};
  for (int fused = 0; fused < 2; fused++) {
    PX_SCOPED(px_tensor) half = NULL;
    PX_SCOPED(px_tensor) product = NULL;
    int64_t before = allocated();
    if (fused) OK(px_fuse_begin());
    OK(px_to(&half, x, PX_BFLOAT16, PX_DEVICE_NONE, false, false));
    OK(px_mul_scalar(&product, half, px_float(1.1)));
    OK(px_to(&results[fused], product, PX_FLOAT32, PX_DEVICE_NONE, false, false));
    if (fused) CHECK_EQ(allocated(), before);
    if (fused) OK(px_fuse_end(PX_OK));
  }
  check_equal(results[0], results[1]);
  px_release(results[0]);
  px_release(results[1]);
}

PX_TEST_EACH(results_that_nobody_holds_get_no_memory) {
  PX_SCOPED(px_tensor) x = counted(512, 512);
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) unused = NULL;
  int64_t before = allocated();
  OK(px_fuse_begin());
  OK(chain(&unused, x, px_int(2)));
  OK(chain(&y, x, px_int(3)));
  CHECK_EQ(allocated(), before);
  px_release(unused);
  unused = NULL;
  OK(px_fuse_end(PX_OK));
  if (home.type == PX_CUDA) CHECK_EQ(allocated() - before, 512 * 512 * 4);
}

PX_TEST_EACH(fold_reads_a_chain_without_memory) {
  PX_SCOPED(px_tensor) x = counted(512, 512);
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) single = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) columns = NULL;
  px_tensor *expected[2] = {NULL};
  OK(chain(&single, x, px_float(0.7)));
  OK(px_sum(&expected[0], single, (int64_t[]){1}, 1, false, PX_DTYPE_NONE));
  OK(px_mean(&expected[1], single, (int64_t[]){0}, 1, true, PX_DTYPE_NONE));
  int64_t before = allocated();
  OK(px_fuse_begin());
  OK(chain(&y, x, px_float(0.7)));
  OK(px_sum(&rows, y, (int64_t[]){1}, 1, false, PX_DTYPE_NONE));
  CHECK(allocated() - before < 512 * 512);
  OK(px_mean(&columns, y, (int64_t[]){0}, 1, true, PX_DTYPE_NONE));
  OK(px_fuse_end(PX_OK));
  check_equal(rows, expected[0]);
  check_equal(columns, expected[1]);
  check_equal(y, single);
  px_release(expected[0]);
  px_release(expected[1]);
}

PX_TEST_EACH(backward_recomputes_what_the_forward_pass_did_not_keep) {
  PX_SCOPED(px_tensor) x = counted(512, 512);
  PX_SCOPED(px_tensor) weights = counted(512, 512);
  px_tensor *grads[2] = {NULL};
  OK(px_tensor_set_requires_grad(x, true));
  int64_t kept[2];
  for (int fused = 0; fused < 2; fused++) {
    PX_SCOPED(px_tensor) a = NULL;
    PX_SCOPED(px_tensor) b = NULL;
    PX_SCOPED(px_tensor) y = NULL;
    int64_t before = allocated();
    if (fused) OK(px_fuse_begin());
    OK(px_tanh(&a, x));
    OK(px_sigmoid(&b, a));
    px_release(a);
    a = NULL;
    OK(px_mul(&y, b, weights));
    px_release(b);
    b = NULL;
    if (fused) OK(px_fuse_end(PX_OK));
    kept[fused] = allocated() - before;
    px_tensor *ones;
    OK(px_ones_like(&ones, y, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL));
    OK(px_backward(1, &y, &ones, false, false));
    px_release(ones);
    grads[fused] = px_tensor_grad(x);
    px_retain(grads[fused]);
    OK(px_tensor_set_grad(x, NULL));
  }
  check_equal(grads[0], grads[1]);
  if (home.type == PX_CUDA) {
    CHECK_EQ(kept[0], 3 * 512 * 512 * 4);
    CHECK_EQ(kept[1], 512 * 512 * 4);
  }
  px_release(grads[0]);
  px_release(grads[1]);
}

PX_TEST_EACH(result_held_for_a_gradient_alone_is_computed_when_it_is_read) {
  PX_SCOPED(px_tensor) x = counted(512, 512);
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) saved = NULL;
  PX_SCOPED(px_tensor) first = NULL;
  int64_t before = allocated();
  OK(px_fuse_begin());
  OK(chain(&y, x, px_int(4)));
  OK(px_tensor_share(&saved, y));
  px_tensor_mark_saved(saved);
  px_tensor_mark_saved(saved);
  px_release(y);
  y = NULL;
  OK(px_fuse_end(PX_OK));
  CHECK_EQ(allocated(), before);
  OK(px_as_strided(&first, saved, (int64_t[]){1}, 1, (int64_t[]){1}, 1, NULL));
  CHECK_EQ(value(first), 0.5);
}

PX_TEST_EACH(scopes_nest_and_pause) {
  PX_SCOPED(px_tensor) x = counted(1, 1);
  PX_SCOPED(px_tensor) y = NULL;
  CHECK(!px_fuse_active());
  OK(px_fuse_begin());
  OK(px_fuse_begin());
  OK(px_fuse_end(PX_OK));
  CHECK(px_fuse_active());
  bool before = px_fuse_pause();
  CHECK(!px_fuse_active());
  OK(chain(&y, x, px_int(5)));
  px_fuse_resume(before);
  CHECK(px_fuse_active());
  OK(px_fuse_end(PX_OK));
  CHECK(!px_fuse_active());
  CHECK_EQ(value(y), 1);
}

PX_TEST_EACH(fusion_stays_on_after_a_call_without_memory) {
  PX_SCOPED(px_tensor) x = counted(2, 2);
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  OK(px_fuse_begin());
  OK(px_mul_scalar(&y, x, px_int(2)));
  OK(px_fault_arm("alloc", 1, true));
  px_status status = px_mm(&product, y, y);
  px_fault_disarm_all();
  CHECK_EQ(status, PX_NOMEM);
  px_error_clear();
  CHECK(px_fuse_active());
  OK(px_mm(&product, y, y));
  OK(px_fuse_end(PX_OK));
  PX_SCOPED(px_tensor) sum = NULL;
  OK(px_sum_all(&sum, product, PX_DTYPE_NONE));
  CHECK_EQ(value(sum), 4 * (7 + 10 + 15 + 22));
}

PX_TEST_EACH(end_returns_an_earlier_error) {
  PX_SCOPED(px_tensor) x = counted(2, 3);
  PX_SCOPED(px_tensor) wrong = counted(2, 2);
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) z = NULL;
  OK(px_fuse_begin());
  OK(px_mul_scalar(&y, x, px_int(2)));
  px_status status = px_add(&z, y, wrong, px_int(1));
  CHECK_EQ(status, PX_RUNTIME);
  FAILS(px_fuse_end(status), PX_RUNTIME, "The size of tensor a (3) must match");
  FAILS(px_fuse_end(PX_OK), PX_RUNTIME, "no px_fuse_begin precedes it");
  PX_SCOPED(px_tensor) last = NULL;
  OK(px_narrow(&last, y, 1, 2, 1));
  PX_SCOPED(px_tensor) one = NULL;
  OK(px_narrow(&one, last, 0, 1, 1));
  CHECK_EQ(value(one), 12);
}

PX_TEST_EACH(long_chains_are_cut) {
  PX_SCOPED(px_tensor) x = counted(3, 50);
  px_tensor *results[2] = {NULL};
  for (int fused = 0; fused < 2; fused++) {
    px_tensor *now = px_retain(x);
    if (fused) OK(px_fuse_begin());
    for (int i = 0; i < 3 * PX_CHAIN_STEPS; i++) {
      px_tensor *next;
      OK(px_add(&next, now, x, px_float(1.0 / (i + 1))));
      px_release(now);
      now = next;
    }
    if (fused) OK(px_fuse_end(PX_OK));
    results[fused] = now;
  }
  check_equal(results[0], results[1]);
  px_release(results[0]);
  px_release(results[1]);
}

static void *read_elsewhere(void *tensor) {
  CHECK_EQ(value(tensor), 20);
  return NULL;
}

PX_TEST_EACH(another_thread_reads_a_result) {
  PX_SCOPED(px_tensor) x = counted(1, 1);
  PX_SCOPED(px_tensor) y = NULL;
  pthread_t thread;
  OK(px_fuse_begin());
  OK(px_mul_scalar(&y, x, px_int(20)));
  CHECK_EQ(pthread_create(&thread, NULL, read_elsewhere, y), 0);
  pthread_join(thread, NULL);
  OK(px_fuse_end(PX_OK));
}

PX_TEST(streams_are_ordered_after_recorded_launches) {
  simulate(1);
  home = px_cuda(0);
  PX_SCOPED(px_stream) side = NULL;
  px_stream *main;
  PX_SCOPED(px_tensor) x = counted(64, 64);
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  OK(px_stream_new(&side, px_cuda(0), 0));
  OK(px_stream_current(&main, px_cuda(0)));
  OK(px_fuse_begin());
  OK(px_mul_scalar(&y, x, px_int(2)));
  OK(px_stream_wait_stream(side, main));
  OK(px_stream_set_current(side));
  OK(px_sum_all(&sum, y, PX_DTYPE_NONE));
  OK(px_stream_set_current(main));
  OK(px_fuse_end(PX_OK));
  OK(px_stream_synchronize(side));
  CHECK_EQ(value(sum), 64.0 * 64 * (64 * 64 + 1));
}

PX_TEST(a_capture_does_not_contain_earlier_calls) {
  simulate(1);
  home = px_cuda(0);
  PX_SCOPED(px_stream) side = NULL;
  PX_SCOPED(px_graph) graph = NULL;
  PX_SCOPED(px_tensor) x = counted(1, 1);
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) z = NULL;
  OK(px_graph_new(&graph));
  OK(px_stream_new(&side, px_cuda(0), 0));
  OK(px_stream_set_current(side));
  OK(px_fuse_begin());
  OK(px_mul_scalar(&y, x, px_int(3)));
  OK(px_graph_begin(graph, (px_graph_pool){0}, PX_CAPTURE_GLOBAL));
  OK(px_mul(&z, y, y));
  OK(px_graph_end(graph));
  OK(px_fuse_end(PX_OK));
  CHECK_EQ(value(y), 3);
  OK(px_graph_replay(graph));
  CHECK_EQ(value(z), 9);
}
