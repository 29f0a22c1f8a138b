// SPDX-License-Identifier: Apache-2.0
// Kernels that compute each element of a row-major tensor from its place: arange, linspace, eye.
// Threads share the elements of arange; one thread writes the others in order.
#include "cpu/convert.h"
#include "cpu/dense.h"
#include "cpu/half.h"
#include "cpu/threads.h"
#include "kernel_args/factory.h"

static void store(const px_operand *o, int64_t i, double real, int64_t whole) {
  switch (o->dtype) {
    case PX_BOOL:
      ((uint8_t *)o->data)[i] = real != 0;
      break;
    case PX_UINT8:
      ((uint8_t *)o->data)[i] = (uint8_t)whole;
      break;
    case PX_INT8:
      ((int8_t *)o->data)[i] = (int8_t)whole;
      break;
    case PX_INT16:
      ((int16_t *)o->data)[i] = (int16_t)whole;
      break;
    case PX_INT32:
      ((int32_t *)o->data)[i] = (int32_t)whole;
      break;
    case PX_INT64:
      ((int64_t *)o->data)[i] = whole;
      break;
    case PX_FLOAT32:
      ((float *)o->data)[i] = (float)real;
      break;
    case PX_FLOAT64:
      ((double *)o->data)[i] = real;
      break;
    case PX_FLOAT16:
      ((uint16_t *)o->data)[i] = px__half_store((float)real);
      break;
    default:
      ((uint16_t *)o->data)[i] = px__bfloat_store((float)real);
  }
}

// ---- arange

typedef struct progress {
  void *to;
  double from, by;
  int64_t start, step;
  bool whole;  // start and step are integers
} progress;

// Numbers of 32 bits become double faster than those of 64.
enum { SHORT = 1 << 20 };
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
STEPS(steps_bool, uint8_t, false, real != 0)
STEPS(steps_u8, uint8_t, true, (uint8_t)(int64_t)real)
STEPS(steps_u16, uint16_t, true, (uint16_t)(int64_t)real)
STEPS(steps_u32, uint32_t, true, (uint32_t)(int64_t)real)
STEPS(steps_u64, uint64_t, true, (uint64_t)(int64_t)real)
STEPS(steps_f16, uint16_t, false, px__half_store((float)real))
STEPS(steps_bf16, uint16_t, false, px__bfloat_store((float)real))
STEPS(steps_f32, float, false, (float)real)
STEPS(steps_f64, double, false, real)

PX_KERNEL(arange) {
  static void (*const steps[PX_DTYPE_COUNT])(void *, int64_t, int64_t) = {
      [PX_BOOL] = steps_bool,   [PX_UINT8] = steps_u8,      [PX_INT8] = steps_u8,
      [PX_INT16] = steps_u16,   [PX_INT32] = steps_u32,     [PX_INT64] = steps_u64,
      [PX_FLOAT16] = steps_f16, [PX_BFLOAT16] = steps_bf16, [PX_FLOAT32] = steps_f32,
      [PX_FLOAT64] = steps_f64};
  progress p = {.to = args->out->data,
                .from = px_scalar_float(args->start),
                .by = px_scalar_float(args->step),
                .start = px_scalar_int(args->start),
                .step = px_scalar_int(args->step),
                .whole = args->start.kind != 'f' && args->step.kind != 'f'};
  px__cpu_parallel(px_operand_numel(args->out), 32768, steps[args->out->dtype], &p);
  return PX_OK;
}

// Symmetric: the second half counts from the end, so that it is exact there.
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
      store(o, i, real, (int64_t)real);
    }
  return PX_OK;
}

PX_KERNEL(eye) {
  const px_operand *o = args->out;
  int64_t rows = o->sizes[0], columns = o->sizes[1];
  if (!px__cpu_clear(o->data, (size_t)(rows * columns) * px__cpu_item[o->dtype])) return PX_OK;
  for (px__steps s = {.n = rows < columns ? rows : columns}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++) store(o, i * columns + i, 1, 1);
  return PX_OK;
}
