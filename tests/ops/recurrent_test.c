// SPDX-License-Identifier: Apache-2.0
// Recurrent nets as ops: one step against its formula, packed sequences against single ones, and
// refused arguments. On the CPU and on a simulated device.
#include "devices.h"
#include "ops_help.h"

enum { IN = 3, SIZE = 4, BATCH = 3, TIMES = 5, ROWS = 10, PARAMS = 8 };
static const int64_t counts[TIMES] = {3, 3, 2, 1, 1};  // sequences of length 5, 3 and 2

static const struct mode {
  const char *name;
  int gates;
} modes[] = {{"lstm", 4}, {"gru", 3}, {"rnn_tanh", 1}, {"rnn_relu", 1}};
enum { MODES = sizeof modes / sizeof *modes };

static px_tensor *randn(px_device device, int n, const int64_t *sizes) {
  PX_SCOPED(px_tensor) host = NULL;
  px_tensor *t = NULL;
  OK(px_randn(&host, sizes, n, NULL, PX_FLOAT64, px_cpu(), false, false));
  OK(px_to(&t, host, PX_FLOAT64, device, false, false));
  return t;
}
#define RANDN(device, ...) \
  randn(device, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})

// A bidirectional net of one layer.
typedef struct net {
  const struct mode *mode;
  px_device device;
  px_tensor *params[PARAMS], *h, *c;
} net;

static void net_begin(net *n, const struct mode *mode, px_device device) {
  int64_t rows = mode->gates * SIZE;
  *n = (net){.mode = mode, .device = device};
  px_manual_seed(3);
  for (int i = 0; i < PARAMS; i++)
    n->params[i] = i % 4 == 0   ? RANDN(device, rows, IN)
                   : i % 4 == 1 ? RANDN(device, rows, SIZE)
                                : RANDN(device, rows);
  n->h = RANDN(device, 2, BATCH, SIZE);
  n->c = RANDN(device, 2, BATCH, SIZE);
}
static void net_end(net *n) {
  for (int i = 0; i < PARAMS; i++) px_release(n->params[i]);
  px_release(n->h);
  px_release(n->c);
}

// Calls the op, packed if `sizes` is given. The results are output, h and, for an LSTM, c.
static px_status call(px_tensor **out, const net *n, const px_tensor *x, const px_tensor *sizes,
                      px_tensor *h, px_tensor *c) {
  char name[32];
  bool lstm = n->mode == modes;
  px_tensor *both[] = {h, c};
  px_value hx = lstm ? PX_TS(both, 2) : PX_T(h), params = PX_TS(n->params, PARAMS);
  px_value packed[] = {PX_T(x), PX_T(sizes), hx,         params,    PX_B(true),
                       PX_I(1), PX_F(0),     PX_B(true), PX_B(true)};
  px_value padded[] = {PX_T(x), hx,         params,     PX_B(true), PX_I(1),
                       PX_F(0), PX_B(true), PX_B(true), PX_B(false)};
  snprintf(name, sizeof name, "%s%s", n->mode->name, sizes ? "_packed" : "");
  return px_op_call(px_op_find(name), PX_CALL_NEW, sizes ? packed : padded, (void **)out);
}

static void release(px_tensor **all, int count) {
  for (int i = 0; i < count; i++) px_release(all[i]);
}

static px_tensor *batch_sizes(void) {
  px_tensor *t = NULL;
  OK(px_tensor_from_data(&t, counts, 1, (int64_t[]){TIMES}, PX_INT64, px_cpu()));
  return t;
}

// Row t of sequence k is row k of time step t.
static px_tensor *single_sequence(const px_tensor *rows, int k) {
  px_tensor *own[TIMES], *t = NULL, *sequence = NULL;
  int length = 0, first = 0;
  for (int i = 0; i < TIMES && counts[i] > k; first += (int)counts[i++])
    OK(px_select(&own[length++], rows, 0, first + k));
  OK(px_stack(&t, own, length, 0));
  OK(px_unsqueeze(&sequence, t, 1));
  release(own, length);
  px_release(t);
  return sequence;
}

static void check_packed(const net *n) {
  PX_SCOPED(px_tensor) x = RANDN(n->device, ROWS, IN);
  PX_SCOPED(px_tensor) sizes = batch_sizes();
  px_tensor *all[3] = {NULL};
  int states = n->mode == modes ? 2 : 1;
  OK(call(all, n, x, sizes, n->h, n->c));
  for (int k = 0; k < BATCH; k++) {
    PX_SCOPED(px_tensor) own = single_sequence(x, k);
    PX_SCOPED(px_tensor) wanted = single_sequence(all[0], k);
    PX_SCOPED(px_tensor) h = NULL;
    PX_SCOPED(px_tensor) c = NULL;
    px_tensor *single[3] = {NULL};
    OK(px_narrow(&h, n->h, 1, k, 1));
    OK(px_narrow(&c, n->c, 1, k, 1));
    OK(call(single, n, own, NULL, h, c));
    CHECK_NEAR(max_difference(single[0], wanted), 0, 1e-12);
    for (int s = 1; s <= states; s++) {
      PX_SCOPED(px_tensor) state = NULL;
      OK(px_narrow(&state, all[s], 1, k, 1));
      CHECK_NEAR(max_difference(single[s], state), 0, 1e-12);
    }
    release(single, 3);
  }
  release(all, 3);
}

static void each_net(void (*check)(const net *n)) {
  simulate(1);
  for (int d = 0; d < 2; d++)
    for (int i = 0; i < MODES; i++) {
      net n;
      net_begin(&n, &modes[i], d ? px_cuda(0) : px_cpu());
      check(&n);
      net_end(&n);
    }
}

PX_TEST(a_packed_batch_equals_single_sequences) { each_net(check_packed); }

// ---- one step

static px_tensor *made(int rows, int columns, const double *values) {
  px_tensor *t = NULL;
  OK(px_tensor_from_data(&t, values, 2, (int64_t[]){rows, columns}, PX_FLOAT64, px_cpu()));
  return t;
}
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static void is_number(const px_tensor *t, double wanted) {
  px_scalar number;
  OK(px_tensor_item(&number, t));
  CHECK_NEAR(px_scalar_float(number), wanted, 1e-14);
}

PX_TEST(an_lstm_step_matches_its_formula) {
  PX_SCOPED(px_tensor) x = made(1, 1, (double[]){0.5});
  PX_SCOPED(px_tensor) before = made(1, 1, (double[]){-0.3});
  PX_SCOPED(px_tensor) memory = made(1, 1, (double[]){0.8});
  PX_SCOPED(px_tensor) w = made(4, 1, (double[]){0.1, 0.2, -0.3, 0.4});
  PX_SCOPED(px_tensor) u = made(4, 1, (double[]){1, -1, 0.5, 2});
  PX_SCOPED(px_tensor) h = NULL;
  PX_SCOPED(px_tensor) c = NULL;
  px_tensor *states[] = {before, memory};
  OK(px_lstm_cell(&h, &c, x, states, 2, w, u, NULL, NULL));
  double in = sigmoid(0.05 - 0.3), keep = sigmoid(0.1 + 0.3), fresh = tanh(-0.15 - 0.15);
  double state = keep * 0.8 + in * fresh;
  is_number(c, state);
  is_number(h, sigmoid(0.2 - 0.6) * tanh(state));
}

PX_TEST(a_gru_resets_the_product_with_its_bias) {
  PX_SCOPED(px_tensor) x = made(1, 1, (double[]){0.5});
  PX_SCOPED(px_tensor) before = made(1, 1, (double[]){-0.3});
  PX_SCOPED(px_tensor) w = made(3, 1, (double[]){0.1, 0.2, -0.3});
  PX_SCOPED(px_tensor) u = made(3, 1, (double[]){1, -1, 0.5});
  PX_SCOPED(px_tensor) bias = NULL;
  PX_SCOPED(px_tensor) h = NULL;
  OK(px_tensor_from_data(&bias, (double[]){0, 0, 0.7}, 1, (int64_t[]){3}, PX_FLOAT64, px_cpu()));
  OK(px_gru_cell(&h, x, before, w, u, NULL, bias));
  double reset = sigmoid(0.05 - 0.3), keep = sigmoid(0.1 + 0.3);
  double fresh = tanh(-0.15 + reset * (-0.15 + 0.7));
  is_number(h, (1 - keep) * fresh + keep * -0.3);
}

// ---- refused arguments

PX_TEST(mismatched_arguments_are_refused) {
  net n;
  px_tensor *out[3] = {NULL};
  net_begin(&n, modes, px_cpu());
  PX_SCOPED(px_tensor) x = RANDN(px_cpu(), TIMES, BATCH, IN);
  PX_SCOPED(px_tensor) flat = RANDN(px_cpu(), ROWS, IN);
  PX_SCOPED(px_tensor) none = RANDN(px_cpu(), 0, BATCH, IN);
  PX_SCOPED(px_tensor) narrow = RANDN(px_cpu(), 2, BATCH + 1, SIZE);
  PX_SCOPED(px_tensor) one = RANDN(px_cpu(), 1, BATCH, SIZE);
  PX_SCOPED(px_tensor) growing = NULL;
  OK(px_tensor_from_data(&growing, (int64_t[]){3, 2, 3, 2}, 1, (int64_t[]){4}, PX_INT64, px_cpu()));
  FAILS(call(out, &n, flat, NULL, n.h, n.c), PX_RUNTIME, "input must have 3 dimensions, got 2");
  FAILS(call(out, &n, none, NULL, n.h, n.c), PX_RUNTIME, "Expected sequence length to be larger");
  FAILS(call(out, &n, x, NULL, one, one), PX_RUNTIME, "Expected more hidden states");
  FAILS(call(out, &n, x, NULL, narrow, narrow), PX_RUNTIME, "of batch size 3, got 4");
  FAILS(call(out, &n, flat, growing, n.h, n.c), PX_RUNTIME, "non-increasing");
  FAILS(call(out, &n, flat, flat, n.h, n.c), PX_RUNTIME, "1-D CPU tensor of int64");
  for (int i = 0; i < 3; i++) CHECK(!out[i]);
  net_end(&n);
}
