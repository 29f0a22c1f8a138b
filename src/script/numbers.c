// SPDX-License-Identifier: Apache-2.0
// Functions of numbers. Integers wrap, as in PyTorch.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "script/script_impl.h"

// ---- two integers

static px_status integer(px__var *out, const char *name, int64_t a, int64_t b, bool *known) {
  uint64_t x = (uint64_t)a, y = (uint64_t)b;
  bool divides = px__is(name, "floordiv") || px__is(name, "remainder") || px__is(name, "div") ||
                 px__is(name, "fmod") || px__is(name, "floor_divide");
  PX_CHECK(!divides || b, PX_ZERO_DIVISION, "division by zero");
  int64_t quotient = !divides ? 0 : b == -1 ? (int64_t)-x : a / b;
  int64_t rest = !divides || b == -1 ? 0 : a % b;
  bool mixed = rest && (rest < 0) != (b < 0);
  if (px__is(name, "add")) return *out = px__of_int((int64_t)(x + y)), PX_OK;
  if (px__is(name, "sub")) return *out = px__of_int((int64_t)(x - y)), PX_OK;
  if (px__is(name, "mul")) return *out = px__of_int((int64_t)(x * y)), PX_OK;
  if (px__is(name, "floordiv") || px__is(name, "floor_divide"))
    return *out = px__of_int(quotient - mixed), PX_OK;
  if (px__is(name, "remainder")) return *out = px__of_int(mixed ? rest + b : rest), PX_OK;
  if (px__is(name, "__and__")) return *out = px__of_int(a & b), PX_OK;
  if (px__is(name, "__or__")) return *out = px__of_int(a | b), PX_OK;
  if (px__is(name, "__xor__")) return *out = px__of_int(a ^ b), PX_OK;
  bool shifts = b >= 0 && b < 64;
  if (px__is(name, "__lshift__") && shifts) return *out = px__of_int((int64_t)(x << b)), PX_OK;
  if (px__is(name, "__rshift__") && shifts) return *out = px__of_int(a >> b), PX_OK;
  if (px__is(name, "min")) return *out = px__of_int(a < b ? a : b), PX_OK;
  if (px__is(name, "max")) return *out = px__of_int(a > b ? a : b), PX_OK;
  if (px__is(name, "gcd")) {
    uint64_t p = a < 0 ? -x : x, q = b < 0 ? -y : y;
    while (q) {
      uint64_t left = p % q;
      p = q;
      q = left;
    }
    return *out = px__of_int((int64_t)p), PX_OK;
  }
  *known = false;
  return PX_OK;
}

// ---- two numbers

static px_status compare(px__var *out, const char *name, px__var a, px__var b, bool *known) {
  bool whole = a.sort != PX__FLOAT && b.sort != PX__FLOAT;
  double x = px__to_float(a), y = px__to_float(b);
  bool less = whole ? a.v.i < b.v.i : x < y, same = px__same(a, b);
  bool more = whole ? a.v.i > b.v.i : x > y;
  static const char *const names[] = {"lt", "le", "gt", "ge", "eq", "ne"};
  bool results[] = {less, less || same, more, more || same, same, !same};
  for (int i = 0; i < 6; i++)
    if (px__is(name, names[i])) return *out = px__of_bool(results[i]), PX_OK;
  *known = false;
  return PX_OK;
}

static double floor_remainder(double a, double b) {
  double rest = fmod(a, b);
  return rest && (rest < 0) != (b < 0) ? rest + b : rest;
}

static px_status floating(px__var *out, const char *name, double a, double b, bool *known) {
  bool divides = px__is(name, "div") || px__is(name, "floordiv") || px__is(name, "remainder");
  PX_CHECK(!divides || b != 0, PX_ZERO_DIVISION, "division by zero");
  const struct {
    const char *name;
    double value;
  } rows[] = {{"add", a + b},
              {"sub", a - b},
              {"mul", a * b},
              {"div", b != 0 ? a / b : 0},
              {"floordiv", b != 0 ? floor(a / b) : 0},
              {"remainder", b != 0 ? floor_remainder(a, b) : 0},
              {"pow", pow(a, b)},
              {"min", a < b ? a : b},
              {"max", a > b ? a : b},
              {"fmod", fmod(a, b)},
              {"atan2", atan2(a, b)},
              {"copysign", copysign(a, b)},
              {"log", log(a) / log(b)}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (px__is(name, rows[i].name)) return *out = px__of_float(rows[i].value), PX_OK;
  *known = false;
  return PX_OK;
}

static px_status two(px__var *out, const char *name, px__var a, px__var b, bool *known) {
  bool logic = a.sort == PX__BOOL && b.sort == PX__BOOL;
  PX_TRY(compare(out, name, a, b, known));
  if (*known) return PX_OK;
  *known = true;
  if (a.sort != PX__FLOAT && b.sort != PX__FLOAT) {
    PX_TRY(integer(out, name, a.v.i, b.v.i, known));
    if (*known && logic && !strncmp(name, "__", 2)) out->sort = PX__BOOL;
    if (*known) return PX_OK;
    *known = true;
  }
  return floating(out, name, px__to_float(a), px__to_float(b), known);
}

// ---- one number

static px_status rounded(px__var *out, double value) {
  PX_CHECK(value >= -9.2e18 && value <= 9.2e18, PX_RUNTIME,
           "the float %g cannot be converted to an integer", value);
  return *out = px__of_int((int64_t)value), PX_OK;
}

static px_status one_float(px__var *out, const char *name, double a, bool *known) {
  static const struct {
    const char *name;
    double (*function)(double);
  } rows[] = {{"sqrt", sqrt},   {"exp", exp},      {"log", log},      {"log1p", log1p},
              {"log2", log2},   {"log10", log10},  {"expm1", expm1},  {"sin", sin},
              {"cos", cos},     {"tan", tan},      {"asin", asin},    {"acos", acos},
              {"atan", atan},   {"sinh", sinh},    {"cosh", cosh},    {"tanh", tanh},
              {"asinh", asinh}, {"acosh", acosh},  {"atanh", atanh},  {"erf", erf},
              {"erfc", erfc},   {"gamma", tgamma}, {"lgamma", lgamma}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (px__is(name, rows[i].name)) return *out = px__of_float(rows[i].function(a)), PX_OK;
  if (px__is(name, "floor")) return rounded(out, floor(a));
  if (px__is(name, "ceil")) return rounded(out, ceil(a));
  if (px__is(name, "round")) return *out = px__of_float(rint(a)), PX_OK;
  if (px__is(name, "degrees")) return *out = px__of_float(a * (180 / M_PI)), PX_OK;
  if (px__is(name, "radians")) return *out = px__of_float(a * (M_PI / 180)), PX_OK;
  if (px__is(name, "isnan")) return *out = px__of_bool(isnan(a)), PX_OK;
  if (px__is(name, "isinf")) return *out = px__of_bool(isinf(a)), PX_OK;
  if (px__is(name, "isfinite")) return *out = px__of_bool(isfinite(a)), PX_OK;
  *known = false;
  return PX_OK;
}

static px_status one(px__var *out, const char *name, px__var a, bool *known) {
  bool whole = a.sort != PX__FLOAT;
  if (px__is(name, "neg"))
    return *out = whole ? px__of_int((int64_t) - (uint64_t)a.v.i) : px__of_float(-a.v.f), PX_OK;
  if (px__is(name, "abs"))
    return *out = whole ? px__of_int(a.v.i < 0 ? (int64_t) - (uint64_t)a.v.i : a.v.i)
                        : px__of_float(fabs(a.v.f)),
           PX_OK;
  if (px__is(name, "bitwise_not") && whole) return *out = px__of_int(~a.v.i), PX_OK;
  if (px__is(name, "Float") || px__is(name, "float"))
    return *out = px__of_float(px__to_float(a)), PX_OK;
  if (px__is(name, "Int") || px__is(name, "int"))
    return whole ? (*out = px__of_int(a.v.i), PX_OK) : rounded(out, trunc(a.v.f));
  if (px__is(name, "Bool") || px__is(name, "bool"))
    return *out = px__of_bool(px__to_float(a) != 0), PX_OK;
  if (px__is(name, "Complex") || px__is(name, "complex"))
    return *out = (px__var){PX__COMPLEX, {.c = {px__to_float(a), 0}}}, PX_OK;
  return one_float(out, name, px__to_float(a), known);
}

px_status px__call_numbers(px__var *out, px_script *script, const char *name, const px__var *given,
                           int count, bool *known) {
  (void)script;
  for (int i = 0; i < count; i++)
    if (!px__is_number(given[i])) return PX_OK;
  if (count < 1 || count > 2) {
    bool range = count == 3 && px__is(name, "__range_length");
    bool derived = count == 3 && px__is(name, "__derive_index");
    int64_t a = count == 3 ? given[0].v.i : 0, b = count == 3 ? given[1].v.i : 0;
    int64_t c = count == 3 ? given[2].v.i : 0, length = 0;
    *known = range || derived;
    if (derived)
      return *out = px__of_int((int64_t)((uint64_t)b + (uint64_t)a * (uint64_t)c)), PX_OK;
    PX_CHECK(!range || c, PX_RUNTIME, "range() arg 3 must not be zero");
    if (range && c > 0 && a < b)
      length = (int64_t)(((uint64_t)b - (uint64_t)a - 1) / (uint64_t)c + 1);
    if (range && c < 0 && a > b)
      length = (int64_t)(((uint64_t)a - (uint64_t)b - 1) / -(uint64_t)c + 1);
    if (range) *out = px__of_int(length);
    return PX_OK;
  }
  *known = true;
  return count == 1 ? one(out, name, given[0], known) : two(out, name, given[0], given[1], known);
}
