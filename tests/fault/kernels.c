// SPDX-License-Identifier: Apache-2.0
// Long CPU kernels interrupted at each poll: the call fails, nothing leaks, and the next call is
// right. Rows are samples (tests/ops/samples.h), large enough that each loop of a kernel polls,
// with the minimum number of polls.
#include "../ops/samples.h"
#include "faults.h"

// clang-format off
typedef struct row {
  const char *op, *args;
  int polls;
} row;
static const row floats[] = {
  {"add", "f(400,350) f(350)", 1},
  {"sin", "f(140000)", 1},
  {"clone", "f(400,350)", 1},
  {"arange", "140000", 1},
  {"linspace", "0 1 140000", 1},
  {"tril", "f(400,350)", 1},
  {"sort", "f(140000)", 1},
  {"sort", "f(400,350) 0", 1},
  {"sort", "f(33,513) 0", 1026},
  {"topk", "f(140000) 70000", 1},
  {"topk", "f(140000) 5", 1},
  {"kthvalue", "f(140000) 70000", 1},
  {"median", "f(140000)", 1},
  {"unique", "i(140000;50) True True True", 1},
  {"unique", "i(140000;140000) True True True", 1},
  {"nonzero", "b(400,350)", 8},
  {"nonzero", "b(140000)", 8},
  {"masked_select", "f(400,350) b(400,350)", 1},
  {"index", "f(140000) {i(140000;140000)} [0]", 1},
  {"index_put", "f(140000) {i(140000;140000)} [0] f(140000) True", 1},
  {"index_add", "f(400,350) 0 i(400;400) f(400,350)", 1},
  {"gather", "f(140000) 0 i(140000;140000)", 1},
  {"scatter_add", "f(140000) 0 i(140000;140000) f(140000)", 1},
  {"randperm", "140000", 1},
  {"rand", "[140000]", 1},
  {"randn", "[140005]", 1},
  {"randint", "0 9 [140000]", 1},
  {"bernoulli", "u(140000)", 1},
  {"multinomial", "p(140000) 70000 True", 1},
  {"multinomial", "p(70000) 3", 1},
  {"sum", "f(200,700) [0]", 1},
  {"sum", "f(140000) [0]", 1},
  {"var", "f(140000)", 1},
  {"norm", "f(140000) 3", 1},
  {"logsumexp", "f(140000) [0]", 1},
  {"argmax", "f(140000)", 1},
  {"max_dim", "f(700,200) 0", 1},
  {"cumsum", "f(140000) 0", 1},
  {"cumsum", "f(700,200) 0", 1},
  {"cumprod", "f(140000) 0", 1},
  {"cummax", "f(140000) 0", 1},
  {"mm", "f(200,250) f(250,200)", 1},
  {"mm", "i(100,200;9) i(200,100;9)", 1},
  {"mv", "f(400,350) f(350)", 1},
  {"bmm", "f(2000,10,10) f(2000,10,10)", 1},
  {"linalg_cholesky_ex", "d(4000,8,8)", 1},
  {"linalg_inv_ex", "d(4000,8,8)", 1},
  {"fft_fft", "f(400,350)", 1},
  {"fft_irfft2", "f(200,700)", 2},
  {"linalg_solve", "d(4000,8,8) f(8,2)", 2},
  {"linalg_qr", "f(4000,8,4)", 2},
  {"linalg_eigh", "d(2000,6,6)", 1},
  {"linalg_eig", "d(2000,6,6)", 1},
  {"linalg_svdvals", "f(2000,6,6)", 1},
  {"conv2d", "f(4,8,40,40) f(8,8,3,3)", 1},
  {"conv2d", "f(2,32,60,60) f(32,32,3,3)", 1},
  {"max_pool2d", "f(1,1,400,350) 2", 1},
  {"softmax", "f(140000) 0", 1},
  {"softmax", "f(1400,100) 0", 1},
  {"recurrent_layer", "f(400,35) f(200,350) f(200,350) f(1400,35) f(1400,350) None None None None "
                      "'lstm' True", 1},
  {"lstm_cell", "f(200,35) {f(200,350) f(200,350)} f(1400,35) f(1400,350)", 1},
  {"gru_cell", "f(200,35) f(200,350) f(1050,35) f(1050,350)", 1},
  {"tiled_attention", "f(1,2,200,8) f(1,1,600,8) f(1,1,600,8) None 0.0 True 0.3", 6},
  {"tiled_attention_backward", "f(1,1,200,8) f(1,1,200,8) f(1,1,600,8) f(1,1,600,8) None "
                               "f(1,1,200,8) p(1,1,200) i(0;1) 0.0 False 0.3", 6},
  {"attention_dropout", "f(2,400,350) i(2;9) 0.5", 1},
  {"layer_norm", "f(400,350) [350] f(350) f(350)", 1},
  {"batch_norm", "f(4,3,120,120) None None f(3) f(3) True", 1},
  {"nll_loss", "f(100000,2) i(100000;2)", 1},
  {"mse_loss", "f(140000) f(140000)", 1},
  {"eye", "400", 9},
  {"zeros", "[2200000]", 1},
  {"one_hot", "i(140000;2)", 6},
  {"place_along", "f(140000) i(140000;140000) 0 [140000]", 21},
  {"sum", "f(16,140000) [1]", 32},
  {"max_pool2d_backward", "f(1,1,400,350) i(1,1,400,350;140000) [1,1,400,350] 1", 10},
  {"max_pool2d_pick", "f(1,1,400,350) i(1,1,400,350;140000)", 2},
  {"conv1d", "f(1,8,20000) f(4,8,9)", 3},
  {"softmax", "f(70000,2) 0", 3},
  {"log_softmax", "f(140000) 0", 6},
  {"softmax_backward", "f(140000) p(140000) 0", 4},
  {"log_softmax_backward", "f(70000,2) f(70000,2) 0", 2},
  {"layer_norm", "f(1,140000) [140000] f(140000) f(140000)", 6},
  {"layer_norm_backward", "f(1,140000) f(1,140000) [140000] f(1) p(1) f(140000)", 20},
  {"native_batch_norm", "f(1,1,140000) None None None None True 1e-05", 7},
  {"native_batch_norm", "f(70000,2) None None None None True 1e-05", 3},
  {"batch_norm_backward", "f(1,1,140000) f(1,1,140000) f(1) None None f(1) p(1) True 1e-05", 7},
  {"batch_norm_backward", "f(70000,2) f(70000,2) f(2) None None f(2) p(2) True 1e-05", 2},
};
static const row doubles[] = {  // with longer keys
  {"kthvalue", "f(140000) 70000", 10},
  {"sort", "f(140000) 0", 16},
};
// clang-format on

static sample current;

// Adds the sums of the results to the job.
static px_status run(void *context) {
  job *j = context;
  px_tensor *results[SAMPLE_RESULTS];
  int count = 0;
  px_status status = PX_OK;
  j->loss = 0;
  PX_TRY(sample_call(&current, current.tensors, results, &count));
  for (int i = 0; i < count; i++) {
    PX_SCOPED(px_tensor) sum = NULL;
    px_scalar number = px_int(0);
    if (status == PX_OK) status = px_sum_all(&sum, results[i], PX_FLOAT64);
    if (status == PX_OK) status = px_tensor_item(&number, sum);
    j->loss += (float)px_scalar_float(number);
    px_release(results[i]);
  }
  return status;
}

// Returns the number of polls of an uninterrupted call.
static int64_t polls(void) {
  px_tensor *results[SAMPLE_RESULTS];
  int count = 0;
  OK(px_fault_arm("interrupt", INT64_MAX, false));
  OK(sample_call(&current, current.tensors, results, &count));
  int64_t seen = px_fault_seen("interrupt");
  px_fault_disarm_all();
  for (int i = 0; i < count; i++) px_release(results[i]);
  return seen;
}

static void interrupt_rows(const row *rows, size_t count, px_dtype dtype) {
  for (const row *r = rows; r < rows + count; r++) {
    current = (sample){.op_name = r->op, .text = r->args, .lo = -2, .hi = 2, .dtype = dtype};
    current.op = px_op_find(r->op);
    CHECK(current.op);
    sample_read(&current);
    int64_t seen = polls(), min_polls = px_num_threads() > 1 ? 1 : r->polls;
    if (seen < min_polls) fprintf(stderr, "%s %s: %lld\n", r->op, r->args, (long long)seen);
    CHECK(seen >= min_polls);
    (void)fail_each("interrupt", run, &(job){px_cpu(), NULL, 0, 0});
    sample_close(&current);
  }
}
static void interrupt_each(int threads) {
  OK(px_set_num_threads(threads));
  px_interrupt_set_check(never_interrupt);
  interrupt_rows(floats, sizeof floats / sizeof *floats, PX_FLOAT32);
  interrupt_rows(doubles, sizeof doubles / sizeof *doubles, PX_FLOAT64);
}

PX_TEST(kernels_of_one_thread_can_be_interrupted_at_each_poll) { interrupt_each(1); }
PX_TEST(kernels_of_several_threads_can_be_interrupted_at_each_poll) { interrupt_each(3); }
