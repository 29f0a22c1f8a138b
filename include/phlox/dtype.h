// SPDX-License-Identifier: Apache-2.0
// Element types, listed in phlox/tables/dtypes.h, and host numbers.
#pragma once
#include "phlox/base.h"
#include "phlox/tables/dtypes.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef enum px_dtype {
#define XX(name, ...) PX_##name,
  PX_DTYPE_MAP(XX)
#undef XX
      PX_DTYPE_COUNT,
// The number of dtypes with compute kernels; they come first.
#define XX(name, ...) +1
  PX_DTYPE_COMPUTED = PX_DTYPE_COMPUTED_MAP(XX),
#undef XX
  PX_DTYPE_NONE = -1  // "not given": use the call's default
} px_dtype;

// Properties of a dtype: its row of phlox/tables/dtypes.h.
typedef struct px_dtype_info {
  char kind;                // b bool, u unsigned and i signed integer, f floating-point, c complex
  uint8_t size;             // bytes of an element
  uint8_t dlpack;           // DLPack type code
  const char *name, *cls;   // "float16", and PyTorch's class name, "Half"
  const char *alias;        // PyTorch's older name, "half"
  const char *suffix;       // "f16"
  const char *c_name;       // the C++ type in PyTorch's texts: "c10::Half"
  const char *type_name;    // the same as spelt by compilers: "long int"
  const char *numpy;        // "f2"; NULL: no NumPy equivalent
  const char *safetensors;  // name in safetensors files, "F16"; NULL: not supported by the format
  double min, max;          // finite range; for int64 the maximum is the largest double that fits
  // Floating point: decimal resolution, distance from 1 to the next number, and smallest positive
  // normal number.
  double resolution, eps, tiny;
} px_dtype_info;
// Returns the properties of a dtype; NULL for an invalid dtype.
PX_API const px_dtype_info *px_dtype_about(px_dtype dtype);

// Return the bytes of an element, the name ("float32"), and PyTorch's class name ("Float"). Static
// strings.
PX_API size_t px_dtype_size(px_dtype dtype);
PX_API const char *px_dtype_name(px_dtype dtype);
PX_API const char *px_dtype_class(px_dtype dtype);
// Finds a dtype by name ("float32", "float", "half", "long"...). PX_TYPE if unknown.
PX_CALL px_dtype_parse(px_dtype *out, const char *name);
PX_API bool px_dtype_is_float(px_dtype dtype);
// True for integer types, without bool.
PX_API bool px_dtype_is_integer(px_dtype dtype);
PX_API bool px_dtype_is_complex(px_dtype dtype);
// True if tensors of the dtype can require gradients: floating-point and complex types.
PX_API bool px_dtype_is_differentiable(px_dtype dtype);
// Return the complex dtype with parts of `dtype`, or the real dtype of the parts. A complex (or
// real) dtype maps to itself. PX_DTYPE_NONE if there is none.
PX_API px_dtype px_dtype_to_complex(px_dtype dtype);
PX_API px_dtype px_dtype_to_real(px_dtype dtype);
// True if the dtype has negative numbers.
PX_API bool px_dtype_is_signed(px_dtype dtype);
// Returns the promoted type of two types, by PyTorch's table: uint8 and int8 give int16, float16
// and bfloat16 give float32, int64 and float16 give float16. PX_DTYPE_NONE without a common type:
// float8 types do not promote; uint16 to uint64 promote with floating-point types only.
PX_API px_dtype px_dtype_promote(px_dtype a, px_dtype b);
// The same; PX_RUNTIME, with PyTorch's text, without a common type.
PX_CALL px_dtype_promote_or_fail(px_dtype *out, px_dtype a, px_dtype b);
// True if a result of type `from` may be stored into an existing tensor of type `to`: the category
// (bool, integer, floating-point, complex) must not decrease.
PX_API bool px_dtype_can_cast(px_dtype from, px_dtype to);
// Fails with PX_RUNTIME unless tensors of the type can require gradients.
PX_CALL px_dtype_check_grad(px_dtype dtype);
// The process's default floating-point type for new tensors; float32 unless set. Setting fails with
// PX_TYPE for a type that is not floating-point.
PX_API px_dtype px_dtype_default(void);
PX_CALL px_dtype_set_default(px_dtype dtype);

// Convert one element between float and the bits of float16 or bfloat16.
PX_API float px_half_to_float(uint16_t bits);
PX_API uint16_t px_float_to_half(float value);
PX_API float px_bfloat_to_float(uint16_t bits);
PX_API uint16_t px_float_to_bfloat(float value);

// A host number with its category: a Python bool, int or float.
typedef struct px_scalar {
  char kind;  // 'b' 'i' 'f'; 'u' for an integer beyond int64 (as bits); 0 for "none given"
  union {
    bool b;
    int64_t i;
    double f;
  } v;
} px_scalar;
// "None given". Inline functions use the common subset of C and C++.
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
static inline px_scalar px_uint(uint64_t u) {
  px_scalar s = px_no_scalar();
  s.kind = u >> 63 ? 'u' : 'i';
  s.v.i = (int64_t)u;
  return s;
}
static inline px_scalar px_float(double f) {
  px_scalar s = px_no_scalar();
  s.kind = 'f';
  s.v.f = f;
  return s;
}
static inline double px_scalar_float(px_scalar s) {
  return s.kind == 'f'   ? s.v.f
         : s.kind == 'b' ? (double)s.v.b
         : s.kind == 'u' ? (double)(uint64_t)s.v.i
                         : (double)s.v.i;
}
static inline int64_t px_scalar_int(px_scalar s) {
  return s.kind == 'f' ? (int64_t)s.v.f : s.kind == 'b' ? s.v.b : s.v.i;
}
// Returns the dtype of a tensor made from the number: bool, int64 or the default floating-point
// type.
PX_API px_dtype px_scalar_dtype(px_scalar s);
// True if an element of `dtype` can hold the number, after rounding. Floating-point types hold
// infinities and NaN; unsigned types hold negative integers, which wrap (uint8 from -255); bool
// holds any number.
PX_API bool px_scalar_fits(px_scalar s, px_dtype dtype);
// Write the number as one element of `dtype`, or read one; for complex dtypes the real part.
PX_API void px_scalar_store(px_scalar s, px_dtype dtype, void *element);
PX_API px_scalar px_scalar_load(px_dtype dtype, const void *element);

// A complex host number.
typedef struct px_complex {
  double real, imag;
} px_complex;
// Write the number as one element of `dtype`, or read one. A real dtype stores the real part.
PX_API void px_complex_store(px_complex value, px_dtype dtype, void *element);
PX_API px_complex px_complex_load(px_dtype dtype, const void *element);

#ifdef __cplusplus
}
#endif
