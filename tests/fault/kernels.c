// SPDX-License-Identifier: Apache-2.0
// Long kernels of the CPU that are ended wherever they ask: the call fails, nothing is lost, and
// the next call gives what it should. The rows are samples (tests/ops/samples.h), large enough that
// their kernels ask.
#include "../ops/samples.h"
#include "faults.h"

// clang-format off
static const struct {
  const char *op, *args;
} rows[] = {
  {"add", "f(400,350) f(350)"},
  {"sin", "f(140000)"},
  {"clone", "f(400,350)"},
  {"arange", "140000"},
  {"linspace", "0 1 140000"},
  {"tril", "f(400,350)"},
  {"sort", "f(140000)"},
  {"sort", "f(400,350) 0"},
  {"topk", "f(140000) 70000"},
  {"topk", "f(140000) 5"},
  {"kthvalue", "f(140000) 70000"},
  {"median", "f(140000)"},
  {"unique", "i(140000;50) True True True"},
  {"unique", "i(140000;140000) True True True"},
  {"nonzero", "b(400,350)"},
  {"masked_select", "f(400,350) b(400,350)"},
  {"index", "f(140000) {i(140000;140000)} [0]"},
  {"index_put", "f(140000) {i(140000;140000)} [0] f(140000) True"},
  {"index_add", "f(400,350) 0 i(400;400) f(400,350)"},
  {"gather", "f(140000) 0 i(140000;140000)"},
  {"scatter_add", "f(140000) 0 i(140000;140000) f(140000)"},
  {"randperm", "140000"},
  {"rand", "[140000]"},
  {"randn", "[140005]"},
  {"randint", "0 9 [140000]"},
  {"bernoulli", "u(140000)"},
  {"multinomial", "p(140000) 70000 True"},
  {"multinomial", "p(70000) 3"},
  {"sum", "f(200,700) [0]"},
  {"sum", "f(140000) [0]"},
  {"var", "f(140000)"},
  {"norm", "f(140000) 3"},
  {"logsumexp", "f(140000) [0]"},
  {"argmax", "f(140000)"},
  {"max_dim", "f(700,200) 0"},
  {"cumsum", "f(140000) 0"},
  {"cumsum", "f(700,200) 0"},
  {"cumprod", "f(140000) 0"},
  {"cummax", "f(140000) 0"},
  {"mm", "f(200,250) f(250,200)"},
  {"mm", "i(100,200;9) i(200,100;9)"},
  {"mv", "f(400,350) f(350)"},
  {"bmm", "f(2000,10,10) f(2000,10,10)"},
  {"conv2d", "f(4,8,40,40) f(8,8,3,3)"},
  {"max_pool2d", "f(1,1,400,350) 2"},
  {"softmax", "f(140000) 0"},
  {"softmax", "f(1400,100) 0"},
  {"lstm_cell", "f(200,35) {f(200,350) f(200,350)} f(1400,35) f(1400,350)"},
  {"gru_cell", "f(200,35) f(200,350) f(1050,35) f(1050,350)"},
  {"layer_norm", "f(400,350) [350] f(350) f(350)"},
  {"batch_norm", "f(4,3,120,120) None None f(3) f(3) True"},
  {"nll_loss", "f(100000,2) i(100000;2)"},
  {"mse_loss", "f(140000) f(140000)"},
};
// clang-format on

static sample current;

// What the results sum to.
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

static void end_each(int threads) {
  OK(px_set_num_threads(threads));
  px_interrupt_set_check(goes_on);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    current = (sample){.op_name = rows[i].op, .text = rows[i].args, .lo = -2, .hi = 2};
    current.dtype = PX_FLOAT32;
    current.op = px_op_find(rows[i].op);
    CHECK(current.op);
    sample_read(&current);
    int64_t asked = fail_each("interrupt", run, &(job){px_cpu(), NULL, 0, 0});
    if (asked < 2) fprintf(stderr, "%s %s: %lld\n", rows[i].op, rows[i].args, (long long)asked);
    CHECK(asked >= 2);
    sample_close(&current);
  }
}

PX_TEST(kernels_of_one_thread_may_be_ended_wherever_they_ask) { end_each(1); }
PX_TEST(kernels_of_several_threads_may_be_ended_wherever_they_ask) { end_each(3); }
