// SPDX-License-Identifier: Apache-2.0
// Kernels whose elements depend on the index only, for row-major tensors: arange, linspace, eye.
// Threads share the elements of arange; the others are written by one thread.
#include "cpu/vector/load_store.h"
#include "cpu/convert/convert.h"
#include "cpu/convert/dense.h"
#include "cpu/threads/threads.h"
#include "kernel_args/factory.h"

// ---- arange

typedef struct progress {
  void *to;
  double from, by;
  int64_t start, step;
  bool whole;  // start and step are integers
} progress;

enum { SHORT = 1 << 20 };  // elements of a block: 32-bit counters convert to double faster
#define STEPS(name, T, exact, rounded) \
  static void name(void *context, int64_t begin, int64_t end) { \
    const progress p = *(const progress *)context; \
    T *to = (T *)p.to + begin; \
    for (; begin < end; begin += SHORT, to += SHORT) { \
      int32_t n = end - begin < SHORT ? (int32_t)(end - begin) : SHORT; \
      if (p.whole && (exact)) \
        for (int32_t k = 0; k < n; k++) \
          to[k] = (T)((uint64_t)p.start + ((uint64_t)begin + (uint64_t)k) * (uint64_t)p.step); \
      else \
        for (int32_t k = 0; k < n; k++) { \
          double real = p.from + ((double)begin + (double)k) * p.by; \
          to[k] = rounded; \
        } \
    } \
  }
#define XX(name, suffix, cell, number, ...) \
  STEPS(steps_##name, cell, (number)0.5 == 0, PX__STORE_##name(real))
PX_DTYPE_COMPUTED_MAP(XX)
#undef XX

PX_KERNEL(arange) {
  static void (*const steps[])(void *, int64_t, int64_t) = {
#define XX(name, ...) steps_##name,
      PX_DTYPE_COMPUTED_MAP(XX)
#undef XX
  };
  progress p = {.to = args->out->data,
                .from = px_scalar_float(args->start),
                .by = px_scalar_float(args->step),
                .start = px_scalar_int(args->start),
                .step = px_scalar_int(args->step),
                .whole = args->start.kind != 'f' && args->step.kind != 'f'};
  px__cpu_parallel(px_operand_numel(args->out), 32768, steps[args->out->dtype], &p);
  return PX_OK;
}

// The second half counts from the end, so the last element is exact.
PX_KERNEL(linspace) {
  const px_operand *o = args->out;
  int64_t n = px_operand_numel(o);
  double from = px_scalar_float(args->start), to = px_scalar_float(args->end);
  double by = n > 1 ? (to - from) / (double)(n - 1) : 0;
  if (o->dtype == PX_FLOAT32) {
    float f = (float)from, t = (float)to, s = n > 1 ? (t - f) / (float)(n - 1) : 0;
    for (px__steps at = {.n = n}; px__step(&at);)
      for (int64_t i = at.begin; i < at.end; i++)
        ((float *)o->data)[i] = i < n / 2 ? f + s * (float)i : t - s * (float)(n - i - 1);
    if (n == 1) ((float *)o->data)[0] = f;
    return PX_OK;
  }
  for (px__steps at = {.n = n}; px__step(&at);)
    for (int64_t i = at.begin; i < at.end; i++) {
      double real = n == 1 || i < n / 2 ? from + by * (double)i : to - by * (double)(n - i - 1);
      px__cell_put(o->dtype, o->data, i, real);
    }
  return PX_OK;
}

PX_KERNEL(eye) {
  const px_operand *o = args->out;
  int64_t rows = o->sizes[0], columns = o->sizes[1];
  if (!px__cpu_clear(o->data, (size_t)(rows * columns) * px__cpu_item[o->dtype])) return PX_OK;
  for (px__steps s = {.n = rows < columns ? rows : columns}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++) px__cell_put(o->dtype, o->data, i * columns + i, 1);
  return PX_OK;
}
