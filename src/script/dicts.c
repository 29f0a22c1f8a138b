// SPDX-License-Identifier: Apache-2.0
// Functions of dicts.
#include "script/script_impl.h"

// keys (part 0), values (part 1) or items (part -1) as a list.
static px_status parts(px__var *out, px_script *script, const px__box *dict, int part) {
  PX__SCOPED_VAR list = {0};
  PX_TRY(px__box_new(&list, script, PX__LIST));
  for (int64_t i = 0; i < dict->count; i += 2) {
    PX__SCOPED_VAR pair = {0};
    if (part < 0) {
      PX_TRY(px__box_new(&pair, script, PX__TUPLE));
      PX_TRY(px__push(pair.v.box, dict->items[i]));
      PX_TRY(px__push(pair.v.box, dict->items[i + 1]));
    }
    PX_TRY(px__push(list.v.box, part < 0 ? pair : dict->items[i + part]));
  }
  *out = px__var_move(&list);
  return PX_OK;
}

// Adds the pairs of a dict, or of a list of pairs.
static px_status update(px__box *to, px__var from) {
  const px__box *box = from.v.box;
  for (int64_t i = 0; from.sort == PX__DICT && i < box->count; i += 2)
    PX_TRY(px__dict_set(to, box->items[i], box->items[i + 1]));
  for (int64_t i = 0; from.sort == PX__LIST && i < box->count; i++) {
    px__var pair = box->items[i];
    PX_CHECK(pair.sort == PX__TUPLE && pair.v.box->count == 2, PX_TYPE,
             "dict() expects a list of pairs");
    PX_TRY(px__dict_set(to, pair.v.box->items[0], pair.v.box->items[1]));
  }
  return PX_OK;
}

static px_status lookup(px__var *out, const char *name, px__box *dict, const px__var *given,
                        int count, bool *known) {
  px__var fallback = count > 2 ? given[2] : px__none();
  int64_t at = px__dict_find(dict, given[1]);
  *out = px__none();
  if (px__is(name, "__contains__")) return *out = px__of_bool(at >= 0), PX_OK;
  if (px__is(name, "_set_item") && count == 3) return px__dict_set(dict, given[1], given[2]);
  if (px__is(name, "get"))
    return *out = px__var_keep(at >= 0 ? dict->items[at + 1] : fallback), PX_OK;
  if (px__is(name, "setdefault")) {
    *out = px__var_keep(at >= 0 ? dict->items[at + 1] : fallback);
    return at >= 0 ? PX_OK : px__dict_set(dict, given[1], fallback);
  }
  bool removes = px__is(name, "Delete") || px__is(name, "__delitem__");
  if (px__is(name, "pop") || removes) {
    PX_CHECK(at >= 0 || count > 2, PX_KEY, "KeyError");
    if (!removes) *out = px__var_keep(at >= 0 ? dict->items[at + 1] : fallback);
    if (at >= 0) px__erase(dict, at, 2);
    return PX_OK;
  }
  *known = false;
  return PX_OK;
}

static px_status pop_item(px__var *out, px_script *script, px__box *dict) {
  PX__SCOPED_VAR pair = {0};
  PX_CHECK(dict->count, PX_RUNTIME, "popitem(): dictionary is empty");
  PX_TRY(px__box_new(&pair, script, PX__TUPLE));
  PX_TRY(px__push(pair.v.box, dict->items[dict->count - 2]));
  PX_TRY(px__push(pair.v.box, dict->items[dict->count - 1]));
  px__erase(dict, dict->count - 2, 2);
  *out = px__var_move(&pair);
  return PX_OK;
}

px_status px__call_dicts(px__var *out, px_script *script, const char *name, const px__var *given,
                         int count, bool *known) {
  if (px__is(name, "dict")) {
    *known = true;
    PX_TRY(px__box_new(out, script, PX__DICT));
    return count ? update(out->v.box, given[0]) : PX_OK;
  }
  if (!count || given[0].sort != PX__DICT) return PX_OK;
  px__box *dict = given[0].v.box;
  *known = true;
  *out = px__none();
  if (px__is(name, "len")) return *out = px__of_int(dict->count / 2), PX_OK;
  if (px__is(name, "keys") || px__is(name, "list")) return parts(out, script, dict, 0);
  if (px__is(name, "values")) return parts(out, script, dict, 1);
  if (px__is(name, "items")) return parts(out, script, dict, -1);
  if (px__is(name, "clear")) return px__erase(dict, 0, dict->count), PX_OK;
  if (px__is(name, "popitem")) return pop_item(out, script, dict);
  if (px__is(name, "copy")) {
    PX_TRY(px__box_new(out, script, PX__DICT));
    return update(out->v.box, given[0]);
  }
  if (px__is(name, "update") && count == 2) return update(dict, given[1]);
  if (px__is(name, "__getitem__") && count == 2)
    return px__subscript(out, script, given[0], given[1]);
  *known = false;
  if (count < 2) return PX_OK;
  *known = true;
  return lookup(out, name, dict, given, count, known);
}
