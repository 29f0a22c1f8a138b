// SPDX-License-Identifier: Apache-2.0
// Every element type: a row makes the dtype. Its number, names, limits, formats in files and in
// other libraries, and the code that is stamped out for each dtype follow from here. Numbers are
// part of the ABI: new rows come last.
//
//   XX(NAME, suffix, cell, number, alias, ...)
//
// suffix ends the names of kernels, and is the dtype's name in the texts of calls; `cell` is the C
// type of an element in memory, `number` what it is while it is computed with; `alias` PyTorch's
// older name, that of the methods that convert. The rest is of px_dtype_info (phlox/dtype.h).
#pragma once

// Kernels compute in these. Within a category (bool, integer, float) they are in PyTorch's order of
// promotion.
#define PX_DTYPE_COMPUTED_MAP(XX) \
  XX(BOOL, bool, uint8_t, bool, bool, .kind = 'b', .size = 1, .name = "bool", .cls = "Bool", \
     .c_name = "bool", .type_name = "bool", .numpy = "b1", .dlpack = 6, .safetensors = "BOOL", \
     .greatest = 1) \
  XX(UINT8, u8, uint8_t, uint8_t, byte, .kind = 'u', .size = 1, .name = "uint8", .cls = "Byte", \
     .c_name = "uint8_t", .type_name = "unsigned char", .numpy = "u1", .dlpack = 1, \
     .safetensors = "U8", .greatest = 255) \
  XX(INT8, i8, int8_t, int8_t, char, .kind = 'i', .size = 1, .name = "int8", .cls = "Char", \
     .c_name = "int8_t", .type_name = "signed char", .numpy = "i1", .dlpack = 0, \
     .safetensors = "I8", .least = -128, .greatest = 127) \
  XX(INT16, i16, int16_t, int16_t, short, .kind = 'i', .size = 2, .name = "int16", .cls = "Short", \
     .c_name = "int16_t", .type_name = "short int", .numpy = "i2", .dlpack = 0, \
     .safetensors = "I16", .least = -32768, .greatest = 32767) \
  XX(INT32, i32, int32_t, int32_t, int, .kind = 'i', .size = 4, .name = "int32", .cls = "Int", \
     .c_name = "int", .type_name = "int", .numpy = "i4", .dlpack = 0, .safetensors = "I32", \
     .least = -0x1p31, .greatest = 0x1p31 - 1) \
  XX(INT64, i64, int64_t, int64_t, long, .kind = 'i', .size = 8, .name = "int64", .cls = "Long", \
     .c_name = "int64_t", .type_name = "long int", .numpy = "i8", .dlpack = 0, \
     .safetensors = "I64", .least = -0x1p63, .greatest = 0x1p63 - 1024) \
  XX(FLOAT16, f16, uint16_t, float, half, .kind = 'f', .size = 2, .name = "float16", \
     .cls = "Half", .c_name = "at::Half", .type_name = "c10::Half", .numpy = "f2", .dlpack = 2, \
     .safetensors = "F16", .least = -65504, .greatest = 65504, .resolution = 1e-3, .eps = 0x1p-10, \
     .tiny = 0x1p-14) \
  XX(BFLOAT16, bf16, uint16_t, float, bfloat16, .kind = 'f', .size = 2, .name = "bfloat16", \
     .cls = "BFloat16", .c_name = "at::BFloat16", .type_name = "c10::BFloat16", .dlpack = 4, \
     .safetensors = "BF16", .least = -0x1.fep127, .greatest = 0x1.fep127, .resolution = 1e-2, \
     .eps = 0x1p-7, .tiny = 0x1p-126) \
  XX(FLOAT32, f32, float, float, float, .kind = 'f', .size = 4, .name = "float32", .cls = "Float", \
     .c_name = "float", .type_name = "float", .numpy = "f4", .dlpack = 2, .safetensors = "F32", \
     .least = -0x1.fffffep127, .greatest = 0x1.fffffep127, .resolution = 1e-6, .eps = 0x1p-23, \
     .tiny = 0x1p-126) \
  XX(FLOAT64, f64, double, double, double, .kind = 'f', .size = 8, .name = "float64", \
     .cls = "Double", .c_name = "double", .type_name = "double", .numpy = "f8", .dlpack = 2, \
     .safetensors = "F64", .least = -0x1.fffffffffffffp1023, .greatest = 0x1.fffffffffffffp1023, \
     .resolution = 1e-15, .eps = 0x1p-52, .tiny = 0x1p-1022)

#define PX_DTYPE_MAP(XX) PX_DTYPE_COMPUTED_MAP(XX)

// The sets of dtypes that entries of ops and registered ops name, by the kinds of their members.
#define PX_DTYPE_SET_MAP(XX) \
  XX("all", "buif") \
  XX("numeric", "uif") \
  XX("float", "f") \
  XX("integral", "bui") \
  XX("integer", "ui")
