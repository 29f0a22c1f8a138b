// SPDX-License-Identifier: Apache-2.0
// The table of element types, promotion, and the two half formats.
#include "base/base_impl.h"
#include "phlox/dtype.h"
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
bool px_dtype_is_signed(px_dtype dtype) { return known(dtype) && rows[dtype].least < 0; }

static const char *name_at(const void *names, int i) {
  if (i < PX_DTYPE_COUNT) return rows[i].name;
  return i < 2 * PX_DTYPE_COUNT ? rows[i - PX_DTYPE_COUNT].alias : NULL;
}

px_status px_dtype_parse(px_dtype *out, const char *name) {
  PX_GIVEN(out);
  PX_CHECK(name, PX_TYPE, "a dtype needs a name");
  for (int i = 0; i < PX_DTYPE_COUNT; i++)
    if (!strcmp(rows[i].name, name) || !strcmp(rows[i].alias, name))
      return *out = (px_dtype)i, PX_OK;
  PX_FAIL(PX_TYPE, "unknown dtype '%.64s': the nearest name is %s", name,
          px_name_nearest(name, name_at, NULL));
}

// Within a category the wider type wins, but for the two pairs neither of which holds the other.
px_dtype px_dtype_promote(px_dtype a, px_dtype b) {
  px_dtype low = a < b ? a : b, high = a < b ? b : a;
  if (!known(low) || !known(high)) return known(high) ? high : PX_DTYPE_NONE;
  if (low == PX_UINT8 && high == PX_INT8) return PX_INT16;
  if (low == PX_FLOAT16 && high == PX_BFLOAT16) return PX_FLOAT32;
  return high;
}

bool px_dtype_can_cast(px_dtype from, px_dtype to) {
  if (px_dtype_is_float(from) && !px_dtype_is_float(to)) return false;
  return from == PX_BOOL || to != PX_BOOL;
}

static px_dtype default_dtype = PX_FLOAT32;  // atomic

px_dtype px_dtype_default(void) { return __atomic_load_n(&default_dtype, __ATOMIC_RELAXED); }

px_status px_dtype_set_default(px_dtype dtype) {
  PX_CHECK(px_dtype_is_float(dtype), PX_TYPE,
           "only floating-point types are supported as the default type");
  __atomic_store_n(&default_dtype, dtype, __ATOMIC_RELAXED);
  return PX_OK;
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

float px_half_to_float(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
  if (rest >= 0x7c00) return float_of(sign | 0x7f800000 | rest << 13);
  if (rest >= 0x0400) return float_of(sign | ((rest << 13) + (112u << 23)));
  float small = (float)rest * 0x1p-24f;  // zero and the subnormals: exact
  return float_of(sign | bits_of(small));
}

// Rounds to nearest, ties to even. Adding 0.5 lets the hardware round a subnormal: the sum's last
// bit weighs 2^-24, as the subnormals' does.
uint16_t px_float_to_half(float value) {
  uint32_t bits = bits_of(value);
  uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return sign | 0x7e00;
  if (bits >= 0x477ff000) return sign | 0x7c00;  // from 65520 on
  if (bits < 0x38800000) return sign | (uint16_t)(bits_of(float_of(bits) + 0.5f) - bits_of(0.5f));
  bits += 0xfffu + (bits >> 13 & 1) - (112u << 23);
  return sign | (uint16_t)(bits >> 13);
}

float px_bfloat_to_float(uint16_t bfloat) { return float_of((uint32_t)bfloat << 16); }

uint16_t px_float_to_bfloat(float value) {
  uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fc0;
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
