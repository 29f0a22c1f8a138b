// SPDX-License-Identifier: Apache-2.0
// Element types: tables, promotion, fp16 and bf16, and scalars.
#include "phlox/dtype.h"
#include "phlox/tensor.h"
#include "test.h"

PX_TEST(names_and_aliases_find_their_dtype) {
  static const struct {
    const char *name;
    px_dtype dtype;
  } rows[] = {{"bool", PX_BOOL},         {"byte", PX_UINT8},    {"uint8", PX_UINT8},
              {"char", PX_INT8},         {"short", PX_INT16},   {"int", PX_INT32},
              {"long", PX_INT64},        {"int64", PX_INT64},   {"half", PX_FLOAT16},
              {"bfloat16", PX_BFLOAT16}, {"float", PX_FLOAT32}, {"double", PX_FLOAT64}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    px_dtype found;
    OK(px_dtype_parse(&found, rows[i].name));
    CHECK_EQ(found, rows[i].dtype);
  }
  px_dtype none;
  FAILS(px_dtype_parse(&none, "quint8"), PX_TYPE, "quint8");
  FAILS(px_dtype_parse(&none, "floot32"), PX_TYPE,
        "unknown dtype 'floot32': the nearest name is float32");
  CHECK_EQ(px_dtype_size(PX_BFLOAT16), 2);
  CHECK_TEXT(px_dtype_class(PX_INT64), "Long");
  CHECK_TEXT(px_dtype_name(PX_FLOAT16), "float16");
  CHECK(!px_dtype_is_integer(PX_BOOL) && px_dtype_is_integer(PX_UINT8));
}

PX_TEST(promotion_matches_pytorchs_table) {
  // Rows and columns in the order of px_dtype, with `a` for bool and a dot for none.
  static const char table[PX_DTYPE_COUNT][PX_DTYPE_COUNT + 1] = {
      "abcdefghij...nop.....", "bbddefghij...nop.....", "cdcdefghij...nop.....",
      "ddddefghij...nop.....", "eeeeefghij...nop.....", "ffffffghij...nop.....",
      "gggggggiijgggnop.....", "hhhhhhihijhhhoop.....", "iiiiiiiiijiiioop.....",
      "jjjjjjjjjjjjjppp.....", "......ghijk..........", "......ghij.l.........",
      "......ghij..m........", "nnnnnnnoop...nop.....", "ooooooooop...oop.....",
      "pppppppppp...ppp.....", "................q....", ".................r...",
      "..................s..", "...................t.", "....................u"};
  for (int a = 0; a < PX_DTYPE_COUNT; a++)
    for (int b = 0; b < PX_DTYPE_COUNT; b++) {
      int wanted = table[a][b] == '.' ? PX_DTYPE_NONE : table[a][b] - 'a';
      CHECK_EQ(px_dtype_promote((px_dtype)a, (px_dtype)b), wanted);
    }
  px_dtype made;
  FAILS(px_dtype_promote_or_fail(&made, PX_UINT16, PX_INT32), PX_RUNTIME,
        "Promotion for uint16, uint32, uint64 types is not supported, attempted to promote UInt16 "
        "and Int");
}

PX_TEST(complex_dtypes_and_their_parts) {
  CHECK_EQ(px_dtype_to_complex(PX_FLOAT64), PX_COMPLEX128);
  CHECK_EQ(px_dtype_to_real(PX_COMPLEX32), PX_FLOAT16);
  CHECK_EQ(px_dtype_to_complex(PX_INT8), PX_DTYPE_NONE);
  CHECK_EQ(px_dtype_to_real(PX_INT8), PX_INT8);
  float element[2];
  px_complex_store((px_complex){1.5, -2}, PX_COMPLEX64, element);
  CHECK(element[0] == 1.5f && element[1] == -2);
  CHECK_EQ(px_complex_load(PX_COMPLEX64, element).imag, -2);
  CHECK_EQ(px_complex_load(PX_FLOAT32, element).imag, 0);
  PX_SCOPED(px_tensor) number = NULL;
  px_complex read;
  px_scalar real;
  OK(px_tensor_from_complex(&number, (px_complex){0, 3}));
  CHECK(px_tensor_is_wrapped(number) && px_tensor_dtype(number) == PX_COMPLEX128);
  OK(px_tensor_item_complex(&read, number));
  CHECK_EQ(read.imag, 3);
  FAILS(px_tensor_item(&real, number), PX_RUNTIME, "cannot be converted to type double");
}

PX_TEST(integers_beyond_int64_are_unsigned_scalars) {
  uint64_t largest = UINT64_MAX, stored = 0;
  px_scalar s = px_scalar_load(PX_UINT64, &largest);
  CHECK(s.kind == 'u' && px_scalar_float(s) == 0x1p64 && px_scalar_dtype(s) == PX_UINT64);
  px_scalar_store(s, PX_UINT64, &stored);
  CHECK(stored == largest && px_scalar_fits(s, PX_UINT64) && !px_scalar_fits(s, PX_INT64));
  CHECK_EQ(px_uint(7).kind, 'i');
}

// Each row has its size, and each name finds it.
PX_TEST(table_rows_are_complete) {
  for (int i = 0; i < PX_DTYPE_COUNT; i++) {
    const px_dtype_info *about = px_dtype_about((px_dtype)i);
    px_dtype found;
    CHECK_EQ(px_dtype_size((px_dtype)i), about->size);
    OK(px_dtype_parse(&found, about->name));
    CHECK_EQ(found, i);
    OK(px_dtype_parse(&found, about->alias));
    CHECK_EQ(found, i);
    CHECK(about->cls && about->suffix && about->c_name && about->type_name && about->max);
  }
  CHECK(!px_dtype_about(PX_DTYPE_NONE));
}

PX_TEST(results_cannot_be_cast_to_a_lower_category) {
  CHECK(px_dtype_can_cast(PX_FLOAT64, PX_FLOAT16) && px_dtype_can_cast(PX_INT64, PX_UINT8));
  CHECK(px_dtype_can_cast(PX_BOOL, PX_INT8) && px_dtype_can_cast(PX_INT8, PX_FLOAT16));
  CHECK(!px_dtype_can_cast(PX_FLOAT16, PX_INT64) && !px_dtype_can_cast(PX_UINT8, PX_BOOL));
}

PX_TEST(every_half_survives_a_round_trip) {
  for (uint32_t bits = 0; bits < 0x10000; bits++) {
    bool nan = (bits & 0x7c00) == 0x7c00 && bits & 0x3ff;
    uint16_t back = px_float_to_half(px_half_to_float((uint16_t)bits));
    CHECK_EQ(back, nan ? (bits & 0x8000) | 0x7e00 : bits);
    nan = (bits & 0x7f80) == 0x7f80 && bits & 0x7f;
    CHECK_EQ(px_float_to_bfloat(px_bfloat_to_float((uint16_t)bits)), nan ? 0x7fc0 : bits);
  }
}

PX_TEST(halves_round_to_nearest_ties_to_even) {
  static const struct {
    float from;
    uint16_t half, bfloat;
  } rows[] = {{65504.f, 0x7bff, 0x4780},         {65519.99f, 0x7bff, 0x4780},
              {65520.f, 0x7c00, 0x4780},         {0x1p-24f, 0x0001, 0x3380},
              {0x1p-25f, 0x0000, 0x3300},        {0x1.8p-24f, 0x0002, 0x33c0},
              {0x1.000002p-25f, 0x0001, 0x3300}, {1 + 0x1p-11f, 0x3c00, 0x3f80},
              {1 + 0x3p-11f, 0x3c02, 0x3f80},    {1 + 0x1p-8f, 0x3c04, 0x3f80},
              {1 + 0x3p-8f, 0x3c0c, 0x3f82},     {-1e-8f, 0x8000, 0xb22c},
              {0x1.ff8p-15f, 0x03ff, 0x3880}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    CHECK_EQ(px_float_to_half(rows[i].from), rows[i].half);
    CHECK_EQ(px_float_to_bfloat(rows[i].from), rows[i].bfloat);
  }
}

PX_TEST(scalars_survive_storing_and_loading) {
  for (int d = 0; d < PX_DTYPE_COUNT; d++) {
    uint64_t storage[2] = {0};  // as wide as the widest dtype, complex128
    px_scalar_store(px_int(1), (px_dtype)d, storage);
    CHECK_EQ(px_scalar_int(px_scalar_load((px_dtype)d, storage)), 1);
  }
  int64_t i;
  px_scalar_store(px_float(-2.9), PX_INT64, &i);
  CHECK_EQ(i, -2);
  px_scalar_store(px_float(NAN), PX_INT64, &i);
  CHECK_EQ(i, INT64_MIN);
  uint8_t b;
  px_scalar_store(px_float(0.5), PX_BOOL, &b);
  CHECK_EQ(b, 1);
}

PX_TEST(the_default_dtype_is_floating) {
  CHECK_EQ(px_dtype_default(), PX_FLOAT32);
  OK(px_dtype_set_default(PX_FLOAT64));
  CHECK_EQ(px_scalar_dtype(px_float(1)), PX_FLOAT64);
  CHECK_EQ(px_scalar_dtype(px_int(1)), PX_INT64);
  FAILS(px_dtype_set_default(PX_INT64), PX_TYPE,
        "only floating-point types are supported as the default type");
}
