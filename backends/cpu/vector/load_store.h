// SPDX-License-Identifier: Apache-2.0
// Load and store of one element, for each compute dtype. Floats convert to integers through int64.
#pragma once
#include "cpu/vector/fp16_bf16.h"
#include "phlox/backend.h"

#define PX__LOAD_BOOL(x) ((x) != 0)  // any nonzero byte is true
#define PX__LOAD_UINT8(x) (x)
#define PX__LOAD_INT8(x) (x)
#define PX__LOAD_INT16(x) (x)
#define PX__LOAD_INT32(x) (x)
#define PX__LOAD_INT64(x) (x)
#define PX__LOAD_FLOAT16(x) px__half_load(x)
#define PX__LOAD_BFLOAT16(x) px__bfloat_load(x)
#define PX__LOAD_FLOAT32(x) (x)
#define PX__LOAD_FLOAT64(x) (x)

#define PX__STORE_BOOL(x) ((x) != 0)
#define PX__STORE_UINT8(x) ((uint8_t)(int64_t)(x))
#define PX__STORE_INT8(x) ((int8_t)(int64_t)(x))
#define PX__STORE_INT16(x) ((int16_t)(int64_t)(x))
#define PX__STORE_INT32(x) ((int32_t)(int64_t)(x))
#define PX__STORE_INT64(x) ((int64_t)(x))
#define PX__STORE_FLOAT16(x) px__half_store((float)(x))
#define PX__STORE_BFLOAT16(x) px__bfloat_store((float)(x))
#define PX__STORE_FLOAT32(x) ((float)(x))
#define PX__STORE_FLOAT64(x) ((double)(x))

#define PX__PUT(name, suffix, cell, ...) \
  case PX_##name: \
    ((cell *)array)[i] = PX__STORE_##name(x); \
    break;

// Element i of an array of `dtype`: stored from a double or an int64, or loaded as a double.
static inline void px__cell_put(int dtype, void *array, int64_t i, double x) {
  switch (dtype) { PX_DTYPE_COMPUTED_MAP(PX__PUT) }
}
static inline void px__cell_put_int(int dtype, void *array, int64_t i, int64_t x) {
  switch (dtype) { PX_DTYPE_COMPUTED_MAP(PX__PUT) }
}
static inline double px__cell_get(int dtype, const void *array, int64_t i) {
  switch (dtype) {
#define XX(name, suffix, cell, ...) \
  case PX_##name: \
    return (double)PX__LOAD_##name(((const cell *)array)[i]);
    PX_DTYPE_COMPUTED_MAP(XX)
#undef XX
  }
  return 0;
}
