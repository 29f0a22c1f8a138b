// SPDX-License-Identifier: Apache-2.0
// Element types: the tables, promotion, the half formats, numbers from the host.
#include "phlox/dtype.h"
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
  FAILS(px_dtype_parse(&none, "complex64"), PX_TYPE, "complex64");
  FAILS(px_dtype_parse(&none, "floot32"), PX_TYPE,
        "unknown dtype 'floot32': the nearest name is float32");
  CHECK_EQ(px_dtype_size(PX_BFLOAT16), 2);
  CHECK_TEXT(px_dtype_class(PX_INT64), "Long");
  CHECK_TEXT(px_dtype_name(PX_FLOAT16), "float16");
  CHECK(!px_dtype_is_integer(PX_BOOL) && px_dtype_is_integer(PX_UINT8));
}

PX_TEST(promotion_is_pytorchs_table) {
  // Rows and columns in the order of px_dtype: b u8 i8 i16 i32 i64 f16 bf16 f32 f64.
  static const char table[PX_DTYPE_COUNT][PX_DTYPE_COUNT + 1] = {
      "0123456789", "1133456789", "2323456789", "3333456789", "4444456789",
      "5555556789", "6666666889", "7777778789", "8888888889", "9999999999"};
  for (int a = 0; a < PX_DTYPE_COUNT; a++)
    for (int b = 0; b < PX_DTYPE_COUNT; b++)
      CHECK_EQ(px_dtype_promote((px_dtype)a, (px_dtype)b), table[a][b] - '0');
}

PX_TEST(a_result_is_not_stored_down_a_category) {
  CHECK(px_dtype_can_cast(PX_FLOAT64, PX_FLOAT16) && px_dtype_can_cast(PX_INT64, PX_UINT8));
  CHECK(px_dtype_can_cast(PX_BOOL, PX_INT8) && px_dtype_can_cast(PX_INT8, PX_FLOAT16));
  CHECK(!px_dtype_can_cast(PX_FLOAT16, PX_INT64) && !px_dtype_can_cast(PX_UINT8, PX_BOOL));
}

PX_TEST(every_half_survives_the_way_there_and_back) {
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

PX_TEST(numbers_become_elements_and_come_back) {
  for (int d = 0; d < PX_DTYPE_COUNT; d++) {
    uint64_t room = 0;
    px_scalar_store(px_int(1), (px_dtype)d, &room);
    CHECK_EQ(px_scalar_int(px_scalar_load((px_dtype)d, &room)), 1);
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

PX_TEST(the_default_dtype_is_a_floating_one) {
  CHECK_EQ(px_dtype_default(), PX_FLOAT32);
  OK(px_dtype_set_default(PX_FLOAT64));
  CHECK_EQ(px_scalar_dtype(px_float(1)), PX_FLOAT64);
  CHECK_EQ(px_scalar_dtype(px_int(1)), PX_INT64);
  FAILS(px_dtype_set_default(PX_INT64), PX_TYPE,
        "only floating-point types are supported as the default type");
}
