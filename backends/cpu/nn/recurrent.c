// SPDX-License-Identifier: Apache-2.0
// Element-wise part of recurrent cells' steps, after the matrix products. Threads share the rows:
// the sequences of a batch.
#include "cpu/convert/dense.h"
#include "cpu/gemm/gemm.h"
#include "cpu/vector/math.h"
#include "cpu/threads/threads.h"
#include "kernel_args/recurrent.h"

enum { GRAIN = 4 * 1024 };  // elements per thread, min

// Contiguous rows of `size` elements, or of `size` per gate. NULL: absent from the launch.
typedef struct step {
  void *gates, *hidden, *kept, *c, *c_before, *h, *h_before, *output;
  void *grad_gates, *grad_hidden, *grad_h, *grad_c;
  const void *grad_output;
  int64_t size;
  bool relu;
} step;

#define TARGET
#define BOTH "cpu/nn/recurrent_rows.h"
#include "cpu/vector/for_f32_f64.h"
#undef TARGET

// AVX-512 variant for float, selected at run time: a quarter of a small LSTM's time was spent here.
#if defined(__AVX2__)
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define T float
#define NAME(x) x##_f32_512
#define k_sigmoid_f32_512 k_sigmoid_f32
#define k_tanh_f32_512 k_tanh_f32
#include "cpu/nn/recurrent_rows.h"
#undef T
#undef NAME
#undef TARGET
static bool has_512(void) { return px_cpu_level_used() >= PX_CPU_AVX512; }
#define NARROW(name) (has_512() ? name##_f32_512 : name##_f32)
#else
#define NARROW(name) name##_f32
#endif

typedef void (*rows_of)(void *context, int64_t begin, int64_t end);
typedef void *(*opener)(px__dense *d, const px_operand *o, int dtype);

typedef struct opening {
  void *at;  // address of a member of the step
  const px_operand *operand;
  opener open;
} opening;

// Opens the operands, runs `narrow` (float) or `wide` (double) over the rows of `shape`, and
// closes.
static px_status run(const px_launch *l, step *s, const px_operand *shape, const opening *openings,
                     int count, rows_of narrow, rows_of wide) {
  px__dense d = {.launch = l};
  int compute = px__compute_of(shape->dtype);
  s->size = shape->sizes[1];
  for (int i = 0; i < count; i++) {
    void *opened = openings[i].open(&d, openings[i].operand, compute);
    memcpy(openings[i].at, &opened, sizeof opened);
  }
  int64_t grain = s->size > GRAIN ? 1 : GRAIN / (s->size + 1) + 1;
  if (!d.failed && s->size)
    px__cpu_parallel(shape->sizes[0], grain, compute == PX_FLOAT64 ? wide : narrow, s);
  px__dense_close(&d);
  return PX_OK;
}
#define RUN(name, shape) \
  run(l, &s, shape, openings, sizeof openings / sizeof *openings, NARROW(name), name##_f64)

PX_KERNEL(lstm_step) {
  step s = {0};
  const opening openings[] = {{&s.gates, args->gates, px__dense_inout},
                              {&s.c, args->c, px__dense_inout},
                              {&s.c_before, args->c_before, px__dense_out},
                              {&s.output, args->output, px__dense_out},
                              {&s.h, args->h, px__dense_inout},
                              {&s.h_before, args->h_before, px__dense_out}};
  return RUN(lstm, args->output);
}

PX_KERNEL(gru_step) {
  step s = {0};
  const opening openings[] = {
      {&s.gates, args->gates, px__dense_inout}, {&s.hidden, args->hidden, px__dense_in},
      {&s.kept, args->kept, px__dense_out},     {&s.output, args->output, px__dense_out},
      {&s.h, args->h, px__dense_inout},         {&s.h_before, args->h_before, px__dense_out}};
  return RUN(gru, args->output);
}

PX_KERNEL(rnn_step) {
  step s = {.relu = args->relu};
  const opening openings[] = {{&s.gates, args->gates, px__dense_inout},
                              {&s.output, args->output, px__dense_out},
                              {&s.h, args->h, px__dense_inout},
                              {&s.h_before, args->h_before, px__dense_out}};
  return RUN(rnn, args->output);
}

PX_KERNEL(lstm_step_back) {
  step s = {0};
  const opening openings[] = {{&s.gates, args->gates, px__dense_in},
                              {&s.c_before, args->c_before, px__dense_in},
                              {&s.grad_h, args->grad_h, px__dense_inout},
                              {&s.grad_output, args->grad_output, px__dense_in},
                              {&s.grad_gates, args->grad_gates, px__dense_out},
                              {&s.grad_c, args->grad_c, px__dense_inout}};
  return RUN(lstm_back, args->grad_c);
}

PX_KERNEL(gru_step_back) {
  step s = {0};
  const opening openings[] = {{&s.gates, args->gates, px__dense_in},
                              {&s.kept, args->kept, px__dense_in},
                              {&s.h_before, args->h_before, px__dense_in},
                              {&s.grad_output, args->grad_output, px__dense_in},
                              {&s.grad_gates, args->grad_gates, px__dense_out},
                              {&s.grad_hidden, args->grad_hidden, px__dense_out},
                              {&s.grad_h, args->grad_h, px__dense_inout}};
  return RUN(gru_back, args->grad_h);
}

PX_KERNEL(rnn_step_back) {
  step s = {.relu = args->relu};
  const opening openings[] = {{&s.gates, args->gates, px__dense_in},
                              {&s.grad_h, args->grad_h, px__dense_inout},
                              {&s.grad_output, args->grad_output, px__dense_in},
                              {&s.grad_gates, args->grad_gates, px__dense_out}};
  return RUN(rnn_back, args->grad_gates);
}

// ---- products with the state; float and double only

PX_KERNEL(weight_pack) {
  const px_operand *b = args->weight;
  const px__gemm g = {
      .k = b->sizes[0], .n = b->sizes[1], .b = b->data, .br = b->strides[0], .bc = b->strides[1]};
  px__gemm_pack(&g, b->dtype == PX_FLOAT64, args->packed->data);
  return PX_OK;
}

PX_KERNEL(weight_product) {
  const px_operand *a = args->rows, *c = args->to;
  const px__gemm g = {.m = c->sizes[0],
                      .n = c->sizes[1],
                      .k = a->sizes[1],
                      .a = a->data,
                      .ar = a->strides[0],
                      .ac = a->strides[1],
                      .packed = args->packed->data,
                      .c = c->data,
                      .cr = c->strides[0],
                      .cc = c->strides[1],
                      .s = args->add ? c->data : NULL,
                      .sr = c->strides[0],
                      .sc = c->strides[1],
                      .alpha = 1,
                      .beta = args->add};
  if (!(c->dtype == PX_FLOAT64 ? px__gemm_f64 : px__gemm_f32)(&g, true))
    px_kernel_fault(l, PX_FAULT_NOMEM, (int64_t)1 << 20, 0, 0);
  return PX_OK;
}
