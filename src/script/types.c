// SPDX-License-Identifier: Apache-2.0
// Types: tests of values, truth, and TorchScript's numbers of dtypes.
#include <stdio.h>

#include "script/script_impl.h"

static const px_dtype dtypes[] = {  // in the order of c10::ScalarType
    PX_UINT8,      PX_INT8,       PX_INT16,      PX_INT32,     PX_INT64,      PX_FLOAT16,
    PX_FLOAT32,    PX_FLOAT64,    PX_DTYPE_NONE, PX_COMPLEX64, PX_COMPLEX128, PX_BOOL,
    PX_DTYPE_NONE, PX_DTYPE_NONE, PX_DTYPE_NONE, PX_BFLOAT16};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

int px__dtype_number(px_dtype dtype) {
  for (int i = 0; i < DTYPES; i++)
    if (dtypes[i] == dtype) return i;
  return -1;
}
px_dtype px__dtype_of(int64_t number) {
  return number >= 0 && number < DTYPES ? dtypes[number] : PX_DTYPE_NONE;
}

px_status px__truth(bool *out, px__var v) {
  px_scalar item;
  switch (v.sort) {
    case PX__NONE:
      return *out = false, PX_OK;
    case PX__BOOL:
    case PX__INT:
      return *out = v.v.i != 0, PX_OK;
    case PX__FLOAT:
      return *out = v.v.f != 0, PX_OK;
    case PX__TENSOR:
      PX_TRY(px_tensor_item(&item, v.v.tensor));
      return *out = px_scalar_float(item) != 0, PX_OK;
    case PX__TEXT:
    case PX__LIST:
    case PX__DICT:
      return *out = v.v.box->count != 0, PX_OK;
    default:
      PX_FAIL(PX_RUNTIME, "Could not cast value of type %s to bool", px__sort_name(v));
  }
}

// ---- instances

static bool is_instance(px_script *script, px__var v, const px__node *type, int depth);

// The parameters of a type: one, or the parts of a tuple.
static int parameters(const px__node *type, px__node *const **out) {
  px__node *inside = type->parts[1];
  bool many = inside->kind == PX__TUPLE_OF;
  *out = many ? inside->parts : &type->parts[1];
  return many ? inside->count : 1;
}

static bool all_items(px_script *script, px__var v, px__node *const *types, int count, int depth) {
  const px__box *box = v.v.box;
  for (int64_t i = 0; i < box->count; i++)
    if (!is_instance(script, box->items[i], types[i % count], depth + 1)) return false;
  return true;
}

static bool is_generic(px_script *script, px__var v, const px__node *type, int depth) {
  const char *name = type->parts[0]->path ? type->parts[0]->path : "";
  px__node *const *inner;
  int count = parameters(type, &inner);
  if (px__is(name, "Optional"))
    return v.sort == PX__NONE || is_instance(script, v, inner[0], depth + 1);
  if (px__is(name, "Final")) return is_instance(script, v, inner[0], depth + 1);
  if (px__is(name, "List")) return v.sort == PX__LIST && all_items(script, v, inner, 1, depth);
  if (px__is(name, "Dict"))
    return v.sort == PX__DICT && count == 2 && all_items(script, v, inner, 2, depth);
  if (px__is(name, "Tuple")) {
    if (v.sort != PX__TUPLE) return false;
    return v.v.box->count == count && (!count || all_items(script, v, inner, count, depth));
  }
  for (int i = 0; px__is(name, "Union") && i < count; i++)
    if (is_instance(script, v, inner[i], depth + 1)) return true;
  return strcmp(name, "Union") != 0;  // Future, RRef and others are checked where they are used
}

static bool is_plain(px_script *script, px__var v, const char *name) {
  static const struct {
    const char *name;
    px__sort sort;
  } rows[] = {{"Tensor", PX__TENSOR}, {"int", PX__INT},      {"float", PX__FLOAT},
              {"bool", PX__BOOL},     {"str", PX__TEXT},     {"complex", PX__COMPLEX},
              {"NoneType", PX__NONE}, {"list", PX__LIST},    {"tuple", PX__TUPLE},
              {"dict", PX__DICT},     {"Device", PX__DEVICE}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (px__is(name, rows[i].name)) return v.sort == rows[i].sort;
  if (px__is(name, "number")) return px__is_number(v) || v.sort == PX__COMPLEX;
  const px__definition *cls = px__definition_find(script, name);
  if (!cls || !cls->is_class) return true;
  if (px__is(cls->base, "Enum")) return v.sort == PX__TUPLE;
  bool tuple = px__is(cls->base, "NamedTuple") && v.sort == PX__TUPLE;
  bool interface = strstr(cls->base, "Interface") != NULL;
  return tuple || (v.sort == PX__OBJECT && (interface || v.v.box->definition == cls));
}

static bool is_instance(px_script *script, px__var v, const px__node *type, int depth) {
  if (!type || depth > PX_TREE_DEPTH) return true;
  if (type->kind == PX__SUBSCRIPT) return is_generic(script, v, type, depth);
  if (type->kind == PX__LITERAL) return type->value.sort != PX__NONE || v.sort == PX__NONE;
  for (int i = 0; type->kind == PX__TUPLE_OF && i < type->count; i++)
    if (is_instance(script, v, type->parts[i], depth + 1)) return true;
  if (type->kind == PX__TUPLE_OF) return false;
  return !type->path || is_plain(script, v, type->path);
}

px_status px__is_instance(bool *out, px_script *script, px__var value, const px__node *type) {
  *out = is_instance(script, value, type, 0);
  return PX_OK;
}
