// SPDX-License-Identifier: Apache-2.0
// The table of element types. One row defines a dtype: its number, names, limits, formats in files
// and in other libraries, and the code instantiated for each dtype. Numbers are part of the ABI:
// new rows come last.
//
//   XX(NAME, suffix, cell, number, alias, ...)
//
// `suffix` ends the names of kernels, and is the dtype's name in texts of calls. `cell` is the C
// type of an element in memory, `number` its type in computations. `alias` is PyTorch's older name,
// used by conversion methods. The rest are fields of px_dtype_info (phlox/dtype.h).
#pragma once

// Dtypes with compute kernels. Within a category (bool, integer, float) they are in PyTorch's
// promotion order.
#define PX_DTYPE_COMPUTED_MAP(XX) \
  XX(BOOL, bool, uint8_t, bool, bool, .kind = 'b', .size = 1, .name = "bool", .cls = "Bool", \
     .c_name = "bool", .type_name = "bool", .numpy = "b1", .dlpack = 6, .safetensors = "BOOL", \
     .max = 1) \
  XX(UINT8, u8, uint8_t, uint8_t, byte, .kind = 'u', .size = 1, .name = "uint8", .cls = "Byte", \
     .c_name = "uint8_t", .type_name = "unsigned char", .numpy = "u1", .dlpack = 1, \
     .safetensors = "U8", .max = 255) \
  XX(INT8, i8, int8_t, int8_t, char, .kind = 'i', .size = 1, .name = "int8", .cls = "Char", \
     .c_name = "int8_t", .type_name = "signed char", .numpy = "i1", .dlpack = 0, \
     .safetensors = "I8", .min = -128, .max = 127) \
  XX(INT16, i16, int16_t, int16_t, short, .kind = 'i', .size = 2, .name = "int16", .cls = "Short", \
     .c_name = "int16_t", .type_name = "short int", .numpy = "i2", .dlpack = 0, \
     .safetensors = "I16", .min = -32768, .max = 32767) \
  XX(INT32, i32, int32_t, int32_t, int, .kind = 'i', .size = 4, .name = "int32", .cls = "Int", \
     .c_name = "int", .type_name = "int", .numpy = "i4", .dlpack = 0, .safetensors = "I32", \
     .min = -0x1p31, .max = 0x1p31 - 1) \
  XX(INT64, i64, int64_t, int64_t, long, .kind = 'i', .size = 8, .name = "int64", .cls = "Long", \
     .c_name = "int64_t", .type_name = "long int", .numpy = "i8", .dlpack = 0, \
     .safetensors = "I64", .min = -0x1p63, .max = 0x1p63 - 1024) \
  XX(FLOAT16, f16, uint16_t, float, half, .kind = 'f', .size = 2, .name = "float16", \
     .cls = "Half", .c_name = "c10::Half", .type_name = "c10::Half", .numpy = "f2", .dlpack = 2, \
     .safetensors = "F16", .min = -65504, .max = 65504, .resolution = 1e-3, .eps = 0x1p-10, \
     .tiny = 0x1p-14) \
  XX(BFLOAT16, bf16, uint16_t, float, bfloat16, .kind = 'f', .size = 2, .name = "bfloat16", \
     .cls = "BFloat16", .c_name = "c10::BFloat16", .type_name = "c10::BFloat16", .dlpack = 4, \
     .safetensors = "BF16", .min = -0x1.fep127, .max = 0x1.fep127, .resolution = 1e-2, \
     .eps = 0x1p-7, .tiny = 0x1p-126) \
  XX(FLOAT32, f32, float, float, float, .kind = 'f', .size = 4, .name = "float32", .cls = "Float", \
     .c_name = "float", .type_name = "float", .numpy = "f4", .dlpack = 2, .safetensors = "F32", \
     .min = -0x1.fffffep127, .max = 0x1.fffffep127, .resolution = 1e-6, .eps = 0x1p-23, \
     .tiny = 0x1p-126) \
  XX(FLOAT64, f64, double, double, double, .kind = 'f', .size = 8, .name = "float64", \
     .cls = "Double", .c_name = "double", .type_name = "double", .numpy = "f8", .dlpack = 2, \
     .safetensors = "F64", .min = -0x1.fffffffffffffp1023, .max = 0x1.fffffffffffffp1023, \
     .resolution = 1e-15, .eps = 0x1p-52, .tiny = 0x1p-1022)

// Storage-only dtypes: their tensors are made, viewed, moved, converted, compared, read and
// printed. Other ops reject them.
#define PX_DTYPE_UNSIGNED_MAP(XX) \
  XX(UINT16, u16, uint16_t, uint16_t, uint16, .kind = 'u', .size = 2, .name = "uint16", \
     .cls = "UInt16", .c_name = "uint16_t", .type_name = "short unsigned int", .numpy = "u2", \
     .dlpack = 1, .safetensors = "U16", .max = 65535) \
  XX(UINT32, u32, uint32_t, uint32_t, uint32, .kind = 'u', .size = 4, .name = "uint32", \
     .cls = "UInt32", .c_name = "uint32_t", .type_name = "unsigned int", .numpy = "u4", \
     .dlpack = 1, .safetensors = "U32", .max = 0x1p32 - 1) \
  XX(UINT64, u64, uint64_t, uint64_t, uint64, .kind = 'u', .size = 8, .name = "uint64", \
     .cls = "UInt64", .c_name = "uint64_t", .type_name = "long unsigned int", .numpy = "u8", \
     .dlpack = 1, .safetensors = "U64", .max = 0x1p64 - 2048)

// `number` is the dtype of the parts; limits are those of the parts. complex32 is storage-only. The
// others are computed in by ops marked `complex`.
#define PX_DTYPE_COMPLEX_MAP(XX) \
  PX_DTYPE_COMPLEX_KEPT_MAP(XX) \
  PX_DTYPE_COMPLEX_COMPUTED_MAP(XX)
#define PX_DTYPE_COMPLEX_KEPT_MAP(XX) \
  XX(COMPLEX32, c32, uint16_t[2], FLOAT16, chalf, .kind = 'c', .size = 4, .name = "complex32", \
     .cls = "ComplexHalf", .c_name = "c10::complex<c10::Half>", \
     .type_name = "c10::complex<c10::Half>", .dlpack = 5, .min = -65504, .max = 65504, \
     .resolution = 1e-3, .eps = 0x1p-10, .tiny = 0x1p-14)
#define PX_DTYPE_COMPLEX_COMPUTED_MAP(XX) \
  XX(COMPLEX64, c64, float[2], FLOAT32, cfloat, .kind = 'c', .size = 8, .name = "complex64", \
     .cls = "ComplexFloat", .c_name = "c10::complex<float>", .type_name = "c10::complex<float>", \
     .numpy = "c8", .dlpack = 5, .safetensors = "C64", .min = -0x1.fffffep127, \
     .max = 0x1.fffffep127, .resolution = 1e-6, .eps = 0x1p-23, .tiny = 0x1p-126) \
  XX(COMPLEX128, c128, double[2], FLOAT64, cdouble, .kind = 'c', .size = 16, .name = "complex128", \
     .cls = "ComplexDouble", .c_name = "c10::complex<double>", \
     .type_name = "c10::complex<double>", .numpy = "c16", .dlpack = 5, \
     .min = -0x1.fffffffffffffp1023, .max = 0x1.fffffffffffffp1023, .resolution = 1e-15, \
     .eps = 0x1p-52, .tiny = 0x1p-1022)

// `number` holds the fields of px_float8_format (phlox/tables/float8.h).
#define PX_DTYPE_FLOAT8_MAP(XX) \
  XX(FLOAT8_E4M3FN, f8e4m3fn, uint8_t, (3, 7, 0x7e, 0x7e, 0x7f), float8_e4m3fn, .kind = 'f', \
     .size = 1, .name = "float8_e4m3fn", .cls = "Float8_e4m3fn", .c_name = "c10::Float8_e4m3fn", \
     .type_name = "c10::Float8_e4m3fn", .dlpack = 10, .safetensors = "F8_E4M3", .min = -448, \
     .max = 448, .resolution = 1, .eps = 0x1p-3, .tiny = 0x1p-6) \
  XX(FLOAT8_E5M2, f8e5m2, uint8_t, (2, 15, 0x7b, 0x7c, 0x7f), float8_e5m2, .kind = 'f', .size = 1, \
     .name = "float8_e5m2", .cls = "Float8_e5m2", .c_name = "c10::Float8_e5m2", \
     .type_name = "c10::Float8_e5m2", .dlpack = 12, .safetensors = "F8_E5M2", .min = -57344, \
     .max = 57344, .resolution = 1, .eps = 0x1p-2, .tiny = 0x1p-14) \
  XX(FLOAT8_E4M3FNUZ, f8e4m3fnuz, uint8_t, (3, 8, 0x7f, 0x80, 0x80), float8_e4m3fnuz, .kind = 'f', \
     .size = 1, .name = "float8_e4m3fnuz", .cls = "Float8_e4m3fnuz", \
     .c_name = "c10::Float8_e4m3fnuz", .type_name = "c10::Float8_e4m3fnuz", .dlpack = 11, \
     .safetensors = "F8_E4M3FNUZ", .min = -240, .max = 240, .resolution = 1, .eps = 0x1p-3, \
     .tiny = 0x1p-7) \
  XX(FLOAT8_E5M2FNUZ, f8e5m2fnuz, uint8_t, (2, 16, 0x7f, 0x80, 0x80), float8_e5m2fnuz, \
     .kind = 'f', .size = 1, .name = "float8_e5m2fnuz", .cls = "Float8_e5m2fnuz", \
     .c_name = "c10::Float8_e5m2fnuz", .type_name = "c10::Float8_e5m2fnuz", .dlpack = 13, \
     .safetensors = "F8_E5M2FNUZ", .min = -57344, .max = 57344, .resolution = 1, .eps = 0x1p-2, \
     .tiny = 0x1p-15) \
  XX(FLOAT8_E8M0FNU, f8e8m0fnu, uint8_t, (0, 127, 0xfe, 0xff, 0xff), float8_e8m0fnu, .kind = 'f', \
     .size = 1, .name = "float8_e8m0fnu", .cls = "Float8_e8m0fnu", \
     .c_name = "c10::Float8_e8m0fnu", .type_name = "c10::Float8_e8m0fnu", .dlpack = 14, \
     .safetensors = "F8_E8M0", .min = 0x1p-127, .max = 0x1p127, .resolution = 1, .eps = 1, \
     .tiny = 0x1p-127)

#define PX_DTYPE_MAP(XX) \
  PX_DTYPE_COMPUTED_MAP(XX) \
  PX_DTYPE_UNSIGNED_MAP(XX) \
  PX_DTYPE_COMPLEX_MAP(XX) \
  PX_DTYPE_FLOAT8_MAP(XX)

// The dtype sets named by op entries and registered ops, by the kinds of their members.
#define PX_DTYPE_SET_MAP(XX) \
  XX("all", "buif") \
  XX("numeric", "uif") \
  XX("float", "f") \
  XX("integral", "bui") \
  XX("integer", "ui")
// Two more include storage-only dtypes, converted to a computed one.
#define PX_DTYPE_STORED_SET_MAP(XX) \
  XX("any", "buifc") \
  XX("real", "buif")
