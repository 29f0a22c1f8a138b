// SPDX-License-Identifier: Apache-2.0
// Element types, in PyTorch's order of promotion within a category.
#pragma once
#include "phlox/base.h"
#ifdef __cplusplus
extern "C" {
#endif

// name, C type of one element as stored, bytes, category (b bool, i integer, f float), PyTorch's
// class name.
#define PX_DTYPE_MAP(XX) \
  XX(BOOL, bool, 1, 'b', "Bool", "bool") \
  XX(UINT8, uint8_t, 1, 'i', "Byte", "uint8") \
  XX(INT8, int8_t, 1, 'i', "Char", "int8") \
  XX(INT16, int16_t, 2, 'i', "Short", "int16") \
  XX(INT32, int32_t, 4, 'i', "Int", "int32") \
  XX(INT64, int64_t, 8, 'i', "Long", "int64") \
  XX(FLOAT16, uint16_t, 2, 'f', "Half", "float16") \
  XX(BFLOAT16, uint16_t, 2, 'f', "BFloat16", "bfloat16") \
  XX(FLOAT32, float, 4, 'f', "Float", "float32") \
  XX(FLOAT64, double, 8, 'f', "Double", "float64")
typedef enum px_dtype {
#define XX(name, ctype, bytes, category, cls, text) PX_##name,
  PX_DTYPE_MAP(XX)
#undef XX
      PX_DTYPE_COUNT,
  PX_DTYPE_NONE = -1  // "not given": the default for the call
} px_dtype;

// Bytes per element; text "float32"; PyTorch's class name "Float". Static strings.
PX_API size_t px_dtype_size(px_dtype dtype);
PX_API const char *px_dtype_name(px_dtype dtype);
PX_API const char *px_dtype_class(px_dtype dtype);
// Finds a dtype by name ("float32", "float", "half", "long"...). PX_TYPE if there is none.
PX_CALL px_dtype_parse(px_dtype *out, const char *name);
PX_API bool px_dtype_is_float(px_dtype dtype);
// Integer types without bool.
PX_API bool px_dtype_is_integer(px_dtype dtype);
// The type that holds both, by PyTorch's table (uint8+int8 = int16, float16+bfloat16 = float32,
// int64+float16 = float16).
PX_API px_dtype px_dtype_promote(px_dtype a, px_dtype b);
// Whether a result of type `from` may be stored in place as `to`: never down a category.
PX_API bool px_dtype_can_cast(px_dtype from, px_dtype to);
// The default floating type of the calling thread's factories; PX_TYPE unless it is a floating
// type.
PX_API px_dtype px_dtype_default(void);
PX_CALL px_dtype_set_default(px_dtype dtype);

// Conversions of one element between a half format's bits and float.
PX_API float px_half_to_float(uint16_t bits);
PX_API uint16_t px_float_to_half(float value);
PX_API float px_bfloat_to_float(uint16_t bits);
PX_API uint16_t px_float_to_bfloat(float value);

// A number from the host with its category: what a Python bool, int or float becomes.
typedef struct px_scalar {
  char kind;  // 'b' 'i' 'f', or 0 for "none given"
  union {
    bool b;
    int64_t i;
    double f;
  } v;
} px_scalar;
// "None given". What is inline keeps to what C and C++ share.
static inline px_scalar px_no_scalar(void) {
  px_scalar s = {0, {false}};
  s.v.i = 0;
  return s;
}
static inline px_scalar px_bool(bool b) {
  px_scalar s = px_no_scalar();
  s.kind = 'b';
  s.v.i = b;
  return s;
}
static inline px_scalar px_int(int64_t i) {
  px_scalar s = px_no_scalar();
  s.kind = 'i';
  s.v.i = i;
  return s;
}
static inline px_scalar px_float(double f) {
  px_scalar s = px_no_scalar();
  s.kind = 'f';
  s.v.f = f;
  return s;
}
static inline double px_scalar_float(px_scalar s) {
  return s.kind == 'f' ? s.v.f : s.kind == 'b' ? (double)s.v.b : (double)s.v.i;
}
static inline int64_t px_scalar_int(px_scalar s) {
  return s.kind == 'f' ? (int64_t)s.v.f : s.kind == 'b' ? s.v.b : s.v.i;
}
// The dtype that the number alone would make a tensor: bool, int64 or the default floating type.
PX_API px_dtype px_scalar_dtype(px_scalar s);
// Whether an element of `dtype` can hold the number, rounded: infinities and NaN where it is a
// floating type, numbers from -255 (they wrap) where it is uint8, anything where it is bool.
PX_API bool px_scalar_fits(px_scalar s, px_dtype dtype);
// Writes the number as one element of `dtype`, or reads one.
PX_API void px_scalar_store(px_scalar s, px_dtype dtype, void *element);
PX_API px_scalar px_scalar_load(px_dtype dtype, const void *element);

#ifdef __cplusplus
}
#endif
