// SPDX-License-Identifier: Apache-2.0
// Element types, which phlox/dtypes.h lists, and numbers of the host.
#pragma once
#include "phlox/base.h"
#include "phlox/dtypes.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef enum px_dtype {
#define XX(name, ...) PX_##name,
  PX_DTYPE_MAP(XX)
#undef XX
      PX_DTYPE_COUNT,
// The number of those that kernels compute in, which come first.
#define XX(name, ...) +1
  PX_DTYPE_COMPUTED = PX_DTYPE_COMPUTED_MAP(XX),
#undef XX
  PX_DTYPE_NONE = -1  // "not given": the default for the call
} px_dtype;

// What is known of a dtype: its row of phlox/dtypes.h.
typedef struct px_dtype_info {
  char kind;                // b bool, u unsigned and i signed integer, f floating-point, c complex
  uint8_t size;             // bytes of an element
  uint8_t dlpack;           // code of its type in DLPack, beside the bits
  const char *name, *cls;   // "float16", and PyTorch's class name, "Half"
  const char *alias;        // PyTorch's older name, "half"
  const char *suffix;       // "f16"
  const char *c_name;       // the C++ type in PyTorch's texts: "at::Half"
  const char *type_name;    // the same as compilers name it: "c10::Half"
  const char *numpy;        // "f2"; NULL: NumPy lacks it
  const char *safetensors;  // its name in files of that format, "F16"; NULL: they lack it
  double least, greatest;   // finite numbers; of int64 the greatest double that it holds
  // Of floating point: the last decimal digit that is certain, the step from 1 to the next number,
  // and the least positive number with all its digits.
  double resolution, eps, tiny;
} px_dtype_info;
// Returns the row of a dtype; NULL if there is no such dtype.
PX_API const px_dtype_info *px_dtype_about(px_dtype dtype);

// Bytes of an element; the text, "float32"; PyTorch's class name, "Float". The strings are static.
PX_API size_t px_dtype_size(px_dtype dtype);
PX_API const char *px_dtype_name(px_dtype dtype);
PX_API const char *px_dtype_class(px_dtype dtype);
// Finds a dtype by name ("float32", "float", "half", "long"...). PX_TYPE if there is none.
PX_CALL px_dtype_parse(px_dtype *out, const char *name);
PX_API bool px_dtype_is_float(px_dtype dtype);
// Whether it is an integer type; bool is none.
PX_API bool px_dtype_is_integer(px_dtype dtype);
PX_API bool px_dtype_is_complex(px_dtype dtype);
// Whether tensors of it can require gradients: floating point and complex numbers.
PX_API bool px_dtype_is_differentiable(px_dtype dtype);
// Returns the complex dtype whose parts are of `dtype`, or the dtype of the parts; a complex, or a
// real, dtype itself. PX_DTYPE_NONE: there is none.
PX_API px_dtype px_dtype_to_complex(px_dtype dtype);
PX_API px_dtype px_dtype_to_real(px_dtype dtype);
// Whether it has negative numbers.
PX_API bool px_dtype_is_signed(px_dtype dtype);
// Returns the type that two types promote to, by PyTorch's table: uint8 and int8 give int16,
// float16 and bfloat16 give float32, int64 and float16 give float16. PX_DTYPE_NONE where there is
// none: float8 formats promote to nothing, uint16 to uint64 with floating point alone.
PX_API px_dtype px_dtype_promote(px_dtype a, px_dtype b);
// The same; PX_RUNTIME, with PyTorch's text, where there is none.
PX_CALL px_dtype_promote_or_fail(px_dtype *out, px_dtype a, px_dtype b);
// Whether a result of type `from` may be stored as `to` in place: not in a lower category.
PX_API bool px_dtype_can_cast(px_dtype from, px_dtype to);
// Fails with PX_RUNTIME unless tensors of the type can require gradients.
PX_CALL px_dtype_check_grad(px_dtype dtype);
// The floating-point type of the process's new tensors if none is given; float32 unless set.
// Setting gives PX_TYPE for a type that is not floating-point.
PX_API px_dtype px_dtype_default(void);
PX_CALL px_dtype_set_default(px_dtype dtype);

// Convert one element between float and the bits of float16 or bfloat16.
PX_API float px_half_to_float(uint16_t bits);
PX_API uint16_t px_float_to_half(float value);
PX_API float px_bfloat_to_float(uint16_t bits);
PX_API uint16_t px_float_to_bfloat(float value);

// A number of the host with its category: a Python bool, int or float.
typedef struct px_scalar {
  char kind;  // 'b' 'i' 'f', 'u' for an integer beyond int64 (its bits), or 0 for "none given"
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
// Returns the dtype of a tensor made from the number alone: bool, int64 or the default
// floating-point type.
PX_API px_dtype px_scalar_dtype(px_scalar s);
// Whether an element of `dtype` can hold the number, rounded. A floating-point type holds
// infinities and NaN; uint8 holds numbers from -255, which wrap; bool holds anything.
PX_API bool px_scalar_fits(px_scalar s, px_dtype dtype);
// Writes the number as one element of `dtype`, or reads one; of a complex one the real part.
PX_API void px_scalar_store(px_scalar s, px_dtype dtype, void *element);
PX_API px_scalar px_scalar_load(px_dtype dtype, const void *element);

// A complex number of the host.
typedef struct px_complex {
  double real, imag;
} px_complex;
// Writes the number as one element of `dtype`, of whose parts a real dtype takes the first; or
// reads one.
PX_API void px_complex_store(px_complex value, px_dtype dtype, void *element);
PX_API px_complex px_complex_load(px_dtype dtype, const void *element);

#ifdef __cplusplus
}
#endif
