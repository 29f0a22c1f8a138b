// SPDX-License-Identifier: Apache-2.0
// Steps of recurrent cells: the element-wise part after the matrix products.
//
// One thread per element of the state, with its gates at stride `size` in the row. The previous
// state is kept for the backward pass.
#include "device.cuh"

#define NUMBER typename k_type<S>::number

template <typename S>
static __device__ __forceinline__ NUMBER load(const void *array, int64_t i) {
  return (NUMBER)k_get(((const S *)array)[i]);
}
template <typename S>
static __device__ __forceinline__ void store(void *array, int64_t i, NUMBER x) {
  k_put((S *)array + i, x);
}
template <typename C>
static __device__ __forceinline__ C sigmoid(C x) {
  return 1 / (1 + (C)exp(-x));
}

// Stores the new state to the output and, unless it is projected first, to the state.
template <typename S>
static __device__ __forceinline__ void store_state(const k_step &p, int64_t i, NUMBER fresh) {
  store<S>(p.output, i, fresh);
  if (!p.h) return;
  ((S *)p.h_before)[i] = ((const S *)p.h)[i];
  store<S>(p.h, i, fresh);
}

template <typename S>
static __device__ __forceinline__ void lstm_step_body(const k_step &p) {
  for (int64_t i = k_thread(); i < p.n; i += k_threads()) {
    int64_t at = i / p.size * 3 * p.size + i;
    NUMBER in = sigmoid(load<S>(p.gates, at)), keep = sigmoid(load<S>(p.gates, at + p.size));
    NUMBER fresh = tanh(load<S>(p.gates, at + 2 * p.size));
    NUMBER out = sigmoid(load<S>(p.gates, at + 3 * p.size));
    NUMBER before = load<S>(p.c, i), state = keep * before + in * fresh;
    store<S>(p.gates, at, in), store<S>(p.gates, at + p.size, keep);
    store<S>(p.gates, at + 2 * p.size, fresh), store<S>(p.gates, at + 3 * p.size, out);
    store<S>(p.kept, i, before), store<S>(p.c, i, state);
    store_state<S>(p, i, out * tanh(state));
  }
}
K_FLOATS(lstm_step, k_step)

template <typename S>
static __device__ __forceinline__ void gru_step_body(const k_step &p) {
  for (int64_t i = k_thread(); i < p.n; i += k_threads()) {
    int64_t at = i / p.size * 2 * p.size + i, second = at + p.size, third = second + p.size;
    NUMBER reset = sigmoid(load<S>(p.gates, at) + load<S>(p.hidden, at));
    NUMBER keep = sigmoid(load<S>(p.gates, second) + load<S>(p.hidden, second));
    NUMBER hidden = load<S>(p.hidden, third);
    NUMBER fresh = tanh(load<S>(p.gates, third) + reset * hidden);
    store<S>(p.gates, at, reset), store<S>(p.gates, second, keep);
    store<S>(p.gates, third, fresh), store<S>(p.kept, i, hidden);
    store_state<S>(p, i, fresh + keep * (load<S>(p.h, i) - fresh));
  }
}
K_FLOATS(gru_step, k_step)

template <typename S>
static __device__ __forceinline__ void rnn_step_body(const k_step &p) {
  for (int64_t i = k_thread(); i < p.n; i += k_threads()) {
    NUMBER x = load<S>(p.gates, i), y = p.relu ? (x < 0 ? 0 : x) : (NUMBER)tanh(x);
    store<S>(p.gates, i, y);
    store_state<S>(p, i, y);
  }
}
K_FLOATS(rnn_step, k_step)

// ---- backward

// Gradient of the state: from the next step, and from this step's output.
template <typename S>
static __device__ __forceinline__ NUMBER state_gradient(const k_step &p, int64_t i) {
  NUMBER dh = load<S>(p.grad_h, i);
  return p.grad_output ? dh + load<S>(p.grad_output, i) : dh;
}

template <typename S>
static __device__ __forceinline__ void lstm_step_back_body(const k_step &p) {
  for (int64_t i = k_thread(); i < p.n; i += k_threads()) {
    int64_t at = i / p.size * 3 * p.size + i;
    NUMBER in = load<S>(p.gates, at), keep = load<S>(p.gates, at + p.size);
    NUMBER fresh = load<S>(p.gates, at + 2 * p.size), out = load<S>(p.gates, at + 3 * p.size);
    NUMBER before = load<S>(p.kept, i), top = tanh(keep * before + in * fresh);
    NUMBER dh = state_gradient<S>(p, i), dc = load<S>(p.grad_c, i) + dh * out * (1 - top * top);
    store<S>(p.grad_gates, at, dc * fresh * in * (1 - in));
    store<S>(p.grad_gates, at + p.size, dc * before * keep * (1 - keep));
    store<S>(p.grad_gates, at + 2 * p.size, dc * in * (1 - fresh * fresh));
    store<S>(p.grad_gates, at + 3 * p.size, dh * top * out * (1 - out));
    store<S>(p.grad_c, i, dc * keep);
  }
}
K_FLOATS(lstm_step_back, k_step)

// Sets grad_h to the previous state's gradient, without the part of the matrix products.
template <typename S>
static __device__ __forceinline__ void gru_step_back_body(const k_step &p) {
  for (int64_t i = k_thread(); i < p.n; i += k_threads()) {
    int64_t at = i / p.size * 2 * p.size + i, second = at + p.size, third = second + p.size;
    NUMBER reset = load<S>(p.gates, at), keep = load<S>(p.gates, second);
    NUMBER fresh = load<S>(p.gates, third), dh = state_gradient<S>(p, i);
    NUMBER dn = dh * (1 - keep) * (1 - fresh * fresh);
    NUMBER dr = dn * load<S>(p.kept, i) * reset * (1 - reset);
    NUMBER dz = dh * (load<S>(p.h_before, i) - fresh) * keep * (1 - keep);
    store<S>(p.grad_gates, at, dr), store<S>(p.grad_hidden, at, dr);
    store<S>(p.grad_gates, second, dz), store<S>(p.grad_hidden, second, dz);
    store<S>(p.grad_gates, third, dn), store<S>(p.grad_hidden, third, dn * reset);
    store<S>(p.grad_h, i, dh * keep);
  }
}
K_FLOATS(gru_step_back, k_step)

template <typename S>
static __device__ __forceinline__ void rnn_step_back_body(const k_step &p) {
  for (int64_t i = k_thread(); i < p.n; i += k_threads()) {
    NUMBER h = load<S>(p.gates, i), dh = state_gradient<S>(p, i);
    store<S>(p.grad_gates, i, p.relu ? (h > 0 ? dh : 0) : dh * (1 - h * h));
  }
}
K_FLOATS(rnn_step_back, k_step)
