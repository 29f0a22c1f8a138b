// SPDX-License-Identifier: Apache-2.0
// Kernels that fill a row-major tensor by a rule of the place: arange, linspace, eye.
#include "cpu/convert.h"
#include "cpu/half.h"
#include "cpu_kernels.h"

#include <string.h>

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

static int64_t count(const px_operand *o) {
  int64_t n = 1;
  for (int d = 0; d < o->ndim; d++) n *= o->sizes[d];
  return n;
}

static bool is_whole(px_value v) {
  return v.kind != PX_ARG_FLOAT && !(v.kind == PX_ARG_SCALAR && v.category == 'f');
}

// params: start, step.
px_status px__cpu_arange(const px_launch *l) {
  const px_operand *o = &l->operands[0];
  int64_t n = count(o), start = px_value_int(l->params[0]), step = px_value_int(l->params[1]);
  double from = px_value_float(l->params[0]), by = px_value_float(l->params[1]);
  bool whole = is_whole(l->params[0]) && is_whole(l->params[1]);
  for (int64_t i = 0; i < n; i++) {
    double real = from + (double)i * by;
    store(o, i, real, whole ? start + i * step : (int64_t)real);
  }
  return PX_OK;
}

// params: start, end. Symmetric: the second half counts from the end, so that it is exact there.
px_status px__cpu_linspace(const px_launch *l) {
  const px_operand *o = &l->operands[0];
  int64_t n = count(o);
  double from = px_value_float(l->params[0]), to = px_value_float(l->params[1]);
  double by = n > 1 ? (to - from) / (double)(n - 1) : 0;
  if (o->dtype == PX_FLOAT32) {
    float f = (float)from, t = (float)to, s = n > 1 ? (t - f) / (float)(n - 1) : 0;
    for (int64_t i = 0; i < n; i++)
      ((float *)o->data)[i] = i < n / 2 ? f + s * (float)i : t - s * (float)(n - i - 1);
    if (n == 1) ((float *)o->data)[0] = f;
    return PX_OK;
  }
  for (int64_t i = 0; i < n; i++) {
    double real = n == 1 || i < n / 2 ? from + by * (double)i : to - by * (double)(n - i - 1);
    store(o, i, real, (int64_t)real);
  }
  return PX_OK;
}

px_status px__cpu_eye(const px_launch *l) {
  const px_operand *o = &l->operands[0];
  int64_t rows = o->sizes[0], columns = o->sizes[1];
  memset(o->data, 0, (size_t)(rows * columns) * px__cpu_item[o->dtype]);
  for (int64_t i = 0; i < rows && i < columns; i++) store(o, i * columns + i, 1, 1);
  return PX_OK;
}
