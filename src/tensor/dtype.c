// SPDX-License-Identifier: Apache-2.0
// The dtype table, promotion, and conversions of fp16 and bf16.
#include "base/base_impl.h"
#include "phlox/dtype.h"
#include "phlox/tables/float8.h"
#include "tensor/tensor_impl.h"

static const px_dtype_info rows[PX_DTYPE_COUNT] = {
#define XX(name_, suffix_, cell, number, alias_, ...) \
  {.suffix = #suffix_, .alias = #alias_, __VA_ARGS__},
    PX_DTYPE_MAP(XX)
#undef XX
};
const uint8_t px__dtype_bytes[PX_DTYPE_COUNT] = {
#define XX(name, suffix, cell, ...) sizeof(cell),
    PX_DTYPE_MAP(XX)
#undef XX
};

static bool known(px_dtype dtype) { return (unsigned)dtype < PX_DTYPE_COUNT; }
static char kind_of(px_dtype dtype) { return known(dtype) ? rows[dtype].kind : 0; }

const px_dtype_info *px_dtype_about(px_dtype dtype) { return known(dtype) ? &rows[dtype] : NULL; }
size_t px_dtype_size(px_dtype dtype) { return known(dtype) ? px__dtype_bytes[dtype] : 0; }
const char *px_dtype_name(px_dtype dtype) { return known(dtype) ? rows[dtype].name : "none"; }
const char *px_dtype_class(px_dtype dtype) { return known(dtype) ? rows[dtype].cls : "None"; }
bool px_dtype_is_float(px_dtype dtype) { return kind_of(dtype) == 'f'; }
bool px_dtype_is_integer(px_dtype dtype) { return kind_of(dtype) == 'i' || kind_of(dtype) == 'u'; }
bool px_dtype_is_complex(px_dtype dtype) { return kind_of(dtype) == 'c'; }
bool px_dtype_is_differentiable(px_dtype dtype) {
  return px_dtype_is_float(dtype) || px_dtype_is_complex(dtype);
}
bool px_dtype_is_signed(px_dtype dtype) { return known(dtype) && rows[dtype].min < 0; }

static const char *name_at(const void *names, int i) {
  if (i < PX_DTYPE_COUNT) return rows[i].name;
  return i < 2 * PX_DTYPE_COUNT ? rows[i - PX_DTYPE_COUNT].alias : NULL;
}

px_status px_dtype_parse(px_dtype *out, const char *name) {
  PX_GIVEN(out);
  PX_CHECK(name, PX_TYPE, "expected a dtype name, got NULL");
  for (int i = 0; i < PX_DTYPE_COUNT; i++)
    if (!strcmp(rows[i].name, name) || !strcmp(rows[i].alias, name))
      return *out = (px_dtype)i, PX_OK;
  PX_FAIL(PX_TYPE, "unknown dtype '%.64s': the nearest name is %s", name,
          px_name_suggest(name, name_at, NULL));
}

static const px_dtype parts[][2] = {
#define XX(name, suffix, cell, part, ...) {PX_##name, PX_##part},
    PX_DTYPE_COMPLEX_MAP(XX)
#undef XX
};

px_dtype px_dtype_to_complex(px_dtype dtype) {
  for (int i = 0; i < PX_COUNT_OF(parts); i++)
    if (parts[i][0] == dtype || parts[i][1] == dtype) return parts[i][0];
  return PX_DTYPE_NONE;
}

px_dtype px_dtype_to_real(px_dtype dtype) {
  for (int i = 0; i < PX_COUNT_OF(parts); i++)
    if (parts[i][0] == dtype) return parts[i][1];
  return dtype;
}

// Within a category the wider type wins, except for the two pairs in which neither includes the
// other.
static px_dtype promote_computed(px_dtype low, px_dtype high) {
  if (low == PX_UINT8 && high == PX_INT8) return PX_INT16;
  if (low == PX_FLOAT16 && high == PX_BFLOAT16) return PX_FLOAT32;
  return high;
}

static bool is_float8(px_dtype d) { return d >= PX_DTYPE_COMPUTED && kind_of(d) == 'f'; }
static bool is_wide_unsigned(px_dtype d) { return d >= PX_DTYPE_COMPUTED && kind_of(d) == 'u'; }

// The complex dtype of the promoted real parts; integers promote to the other operand's type.
static px_dtype promote_complex(px_dtype a, px_dtype b) {
  px_dtype x = px_dtype_to_real(a), y = px_dtype_to_real(b);
  if (!px_dtype_is_float(x)) return b;
  return px_dtype_is_float(y) ? px_dtype_to_complex(px_dtype_promote(x, y)) : a;
}

px_dtype px_dtype_promote(px_dtype a, px_dtype b) {
  px_dtype low = a < b ? a : b, high = a < b ? b : a;
  if (!known(low) || !known(high)) return known(high) ? high : PX_DTYPE_NONE;
  if (high < PX_DTYPE_COMPUTED) return promote_computed(low, high);
  if (low == high) return low;
  if (is_float8(low) || is_float8(high)) return PX_DTYPE_NONE;
  if (is_wide_unsigned(low) || is_wide_unsigned(high))
    return px_dtype_is_float(low) ? low : PX_DTYPE_NONE;
  return promote_complex(low, high);
}

px_status px_dtype_promote_or_fail(px_dtype *out, px_dtype a, px_dtype b) {
  PX_GIVEN(out);
  *out = px_dtype_promote(a, b);
  if (*out != PX_DTYPE_NONE) return PX_OK;
  bool float8 = is_float8(a) || is_float8(b);
  PX_FAIL(PX_RUNTIME, "Promotion for %s is not supported, attempted to promote %s and %s",
          float8 ? "Float8 Types" : "uint16, uint32, uint64 types", px_dtype_class(a),
          px_dtype_class(b));
}

bool px_dtype_can_cast(px_dtype from, px_dtype to) {
  if (px_dtype_is_complex(from) && !px_dtype_is_complex(to)) return false;
  if (px_dtype_is_float(from) && !px_dtype_is_float(to) && !px_dtype_is_complex(to)) return false;
  return from == PX_BOOL || to != PX_BOOL;
}

px_status px_dtype_check_grad(px_dtype dtype) {
  PX_CHECK(px_dtype_is_differentiable(dtype), PX_RUNTIME,
           "Only Tensors of floating point and complex dtype can require gradients");
  return PX_OK;
}

static px_dtype default_dtype = PX_FLOAT32;  // atomic

px_dtype px_dtype_default(void) { return __atomic_load_n(&default_dtype, __ATOMIC_RELAXED); }

px_status px_dtype_set_default(px_dtype dtype) {
  PX_CHECK(px_dtype_is_float(dtype) && dtype < PX_DTYPE_COMPUTED, PX_TYPE,
           "only floating-point types are supported as the default type");
  __atomic_store_n(&default_dtype, dtype, __ATOMIC_RELAXED);
  return PX_OK;
}

float px_half_to_float(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
  if (rest >= 0x7c00) return px_float8_of_bits(sign | 0x7f800000 | rest << 13);
  if (rest >= 0x0400) return px_float8_of_bits(sign | ((rest << 13) + (112u << 23)));
  float small = (float)rest * 0x1p-24f;  // zero and the subnormals: exact
  return px_float8_of_bits(sign | px_float8_bits_of(small));
}

// Rounds to nearest, ties to even. Adding 0.5 rounds subnormals in hardware: the sum has an ulp of
// 2^-24, like fp16 subnormals.
uint16_t px_float_to_half(float value) {
  uint32_t bits = px_float8_bits_of(value);
  uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return sign | 0x7e00;
  if (bits >= 0x477ff000) return sign | 0x7c00;  // from 65520 on
  if (bits < 0x38800000)
    return sign |
           (uint16_t)(px_float8_bits_of(px_float8_of_bits(bits) + 0.5f) - px_float8_bits_of(0.5f));
  bits += 0xfffu + (bits >> 13 & 1) - (112u << 23);
  return sign | (uint16_t)(bits >> 13);
}

float px_bfloat_to_float(uint16_t bfloat) { return px_float8_of_bits((uint32_t)bfloat << 16); }

uint16_t px_float_to_bfloat(float value) {
  uint32_t bits = px_float8_bits_of(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fc0;
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
