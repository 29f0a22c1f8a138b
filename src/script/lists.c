// SPDX-License-Identifier: Apache-2.0
// Functions of lists and tuples, and subscripts.
#include <stdio.h>
#include <stdlib.h>

#include "phlox/ops/view.h"
#include "script/script_impl.h"

static px_status index_of(int64_t *out, const char *of, px__var index, int64_t count) {
  PX_CHECK(index.sort == PX__INT, PX_TYPE, "%s indices must be integers, not %s", of,
           px__sort_name(index));
  *out = index.v.i < 0 ? index.v.i + count : index.v.i;
  PX_CHECK(*out >= 0 && *out < count, PX_INDEX, "%s index out of range", of);
  return PX_OK;
}

px_status px__subscript(px__var *out, px_script *script, px__var of, px__var index) {
  int64_t at;
  if (of.sort == PX__DICT) {
    at = px__dict_find(of.v.box, index);
    PX__SCOPED_STRING key = {0};
    if (at < 0) PX_TRY(px__string_value(&key, index, true, 0));
    PX_CHECK(at >= 0, PX_KEY, "%s", key.text);
    return *out = px__var_keep(of.v.box->items[at + 1]), PX_OK;
  }
  if (of.sort == PX__TENSOR && index.sort == PX__INT) {
    *out = (px__var){PX__TENSOR, {.tensor = NULL}};
    return px_select(&out->v.tensor, of.v.tensor, 0, index.v.i);
  }
  bool items = of.sort == PX__LIST || of.sort == PX__TUPLE || of.sort == PX__TEXT ||
               (of.sort == PX__OBJECT && !of.v.box->module);
  PX_CHECK(items, PX_TYPE, "'%s' object is not subscriptable", px__sort_name(of));
  PX_TRY(index_of(&at, of.sort == PX__TEXT ? "string" : "list", index, of.v.box->count));
  if (of.sort == PX__TEXT) return px__text_new(out, script, of.v.box->text + at, 1);
  *out = px__var_keep(of.v.box->items[at]);
  return PX_OK;
}

// ---- new lists

static px_status copy(px__var *out, px_script *script, px__sort sort, const px__box *a,
                      const px__box *b) {
  PX__SCOPED_VAR made = {0};
  PX_TRY(px__box_new(&made, script, sort));
  for (int64_t i = 0; i < a->count; i++) PX_TRY(px__push(made.v.box, a->items[i]));
  for (int64_t i = 0; b && i < b->count; i++) PX_TRY(px__push(made.v.box, b->items[i]));
  *out = px__var_move(&made);
  return PX_OK;
}

static px_status repeat(px__var *out, px_script *script, const px__box *a, int64_t times) {
  PX__SCOPED_VAR made = {0};
  PX_TRY(px__box_new(&made, script, PX__LIST));
  for (int64_t k = 0; a->count && k < times; k++) {
    PX_TRY(px_interrupt_poll());
    for (int64_t i = 0; i < a->count; i++) PX_TRY(px__push(made.v.box, a->items[i]));
  }
  *out = px__var_move(&made);
  return PX_OK;
}

static int64_t clip(px__var v, int64_t count, int64_t fallback) {
  int64_t at = v.sort == PX__INT ? v.v.i : fallback;
  if (at < 0) at += count;
  return at < 0 ? 0 : at > count ? count : at;
}

// slice(x, start, end, step)
static px_status slice(px__var *out, px_script *script, px__var of, const px__var *given,
                       int count) {
  int64_t size = of.v.box->count, step = count > 3 && given[3].sort == PX__INT ? given[3].v.i : 1;
  int64_t from = count > 1 ? clip(given[1], size, 0) : 0;
  int64_t to = count > 2 ? clip(given[2], size, size) : size;
  PX_CHECK(step > 0, PX_RUNTIME, "slice step must be positive");
  PX__SCOPED_VAR made = {0};
  PX__SCOPED_STRING text = {0};
  if (of.sort != PX__TEXT) PX_TRY(px__box_new(&made, script, of.sort));
  for (int64_t i = from; i < to; i += step) {
    PX_TRY(of.sort == PX__TEXT ? px__string_add(&text, of.v.box->text + i, 1)
                               : px__push(made.v.box, of.v.box->items[i]));
    if (step > to - i) break;
  }
  if (of.sort == PX__TEXT) return px__text_new(out, script, text.text, text.length);
  *out = px__var_move(&made);
  return PX_OK;
}

// ---- order

static bool before(px__var a, px__var b) {
  if (px__is_number(a) && px__is_number(b)) return px__to_float(a) < px__to_float(b);
  if (a.sort == PX__TEXT && b.sort == PX__TEXT) return strcmp(a.v.box->text, b.v.box->text) < 0;
  bool tuples = a.sort == PX__TUPLE && b.sort == PX__TUPLE;
  for (int64_t i = 0; tuples && i < a.v.box->count && i < b.v.box->count; i++) {
    px__var x = a.v.box->items[i], y = b.v.box->items[i];
    if (x.sort == PX__TUPLE || px__same(x, y)) continue;  // nested tuples keep their order
    return before(x, y);
  }
  return false;
}

static void merge(px__var *items, px__var *spare, int64_t count, bool reverse) {
  if (count < 2) return;
  int64_t half = count / 2, i = 0, k = half, n = 0;
  merge(items, spare, half, reverse);
  merge(items + half, spare, count - half, reverse);
  while (i < half && k < count) {
    bool later = reverse ? before(items[i], items[k]) : before(items[k], items[i]);
    spare[n++] = items[later ? k++ : i++];
  }
  while (i < half) spare[n++] = items[i++];
  memcpy(items, spare, (size_t)n * sizeof *items);
}

static px_status sort(px__box *list, bool reverse) {
  px__var *spare;
  PX_TRY(px_alloc((void **)&spare, (size_t)(list->count + 1) * sizeof *spare));
  merge(list->items, spare, list->count, reverse);
  px_free(spare);
  return PX_OK;
}

static void reverse(px__box *list) {
  for (int64_t i = 0, k = list->count - 1; i < k; i++, k--) {
    px__var other = list->items[i];
    list->items[i] = list->items[k];
    list->items[k] = other;
  }
}

// min, max, sum of a list of numbers.
static px_status fold(px__var *out, const char *name, const px__box *list) {
  px__var made = px__of_int(0);
  PX_CHECK(list->count || px__is(name, "sum"), PX_RUNTIME, "%s() arg is an empty sequence", name);
  for (int64_t i = 0; i < list->count; i++) {
    px__var item = list->items[i];
    PX_CHECK(px__is_number(item), PX_TYPE, "%s() expects a list of numbers", name);
    if (px__is(name, "sum")) {
      bool whole = made.sort == PX__INT && item.sort != PX__FLOAT;
      made = whole ? px__of_int((int64_t)((uint64_t)made.v.i + (uint64_t)item.v.i))
                   : px__of_float(px__to_float(made) + px__to_float(item));
    } else if (!i || (px__is(name, "min") ? before(item, made) : before(made, item))) {
      made = item;
    }
  }
  return *out = made, PX_OK;
}

static px_status any_all(px__var *out, const px__box *list, bool all) {
  bool truth = all;
  for (int64_t i = 0; i < list->count && truth == all; i++)
    PX_TRY(px__truth(&truth, list->items[i]));
  return *out = px__of_bool(truth), PX_OK;
}

// ---- changes

static px_status pop(px__var *out, px__box *list, px__var index) {
  int64_t at;
  PX_CHECK(list->count, PX_INDEX, "pop from empty list");
  PX_TRY(index_of(&at, "list", index, list->count));
  *out = px__var_keep(list->items[at]);
  return px__erase(list, at, 1), PX_OK;
}

static px_status set_item(px__box *list, px__var index, px__var value) {
  int64_t at;
  PX_TRY(index_of(&at, "list", index, list->count));
  px__var old = list->items[at];
  list->items[at] = px__var_keep(value);
  return px__var_free(&old), PX_OK;
}

static int64_t position(const px__box *list, px__var value, int64_t *times) {
  int64_t first = -1;
  *times = 0;
  for (int64_t i = 0; i < list->count; i++) {
    if (!px__same(list->items[i], value)) continue;
    if (!(*times)++) first = i;
  }
  return first;
}

static px_status change(px__var *out, const char *name, px__box *list, const px__var *given,
                        int count, bool *known) {
  int64_t times, at;
  *out = px__none();
  if (px__is(name, "clear") && count == 1) return px__erase(list, 0, list->count), PX_OK;
  if (px__is(name, "reverse") && count == 1) return reverse(list), PX_OK;
  if (px__is(name, "sort"))
    return sort(list, count > 1 && given[1].sort == PX__BOOL && given[1].v.i);
  if (px__is(name, "pop")) return pop(out, list, count > 1 ? given[1] : px__of_int(-1));
  if (px__is(name, "append") && count == 2) return px__push(list, given[1]);
  if (px__is(name, "_set_item") && count == 3) return set_item(list, given[1], given[2]);
  if (px__is(name, "insert") && count == 3)
    return px__insert(list, clip(given[1], list->count, 0), given[2]);
  if (px__is(name, "extend") && count == 2 && given[1].sort == PX__LIST) {
    int64_t more = given[1].v.box->count;  // the list may be extended by itself
    for (int64_t i = 0; i < more; i++) PX_TRY(px__push(list, given[1].v.box->items[i]));
    return PX_OK;
  }
  if (px__is(name, "remove") && count == 2) {
    at = position(list, given[1], &times);
    PX_CHECK(at >= 0, PX_RUNTIME, "list.remove(x): x not in list");
    return px__erase(list, at, 1), PX_OK;
  }
  if ((px__is(name, "Delete") || px__is(name, "__delitem__")) && count == 2) {
    PX_TRY(index_of(&at, "list", given[1], list->count));
    return px__erase(list, at, 1), PX_OK;
  }
  *known = false;
  return PX_OK;
}

static px_status query(px__var *out, px_script *script, const char *name, px__var of,
                       const px__var *given, int count, bool *known) {
  px__box *list = of.v.box;
  px__sort sort_of = of.sort == PX__OBJECT ? PX__TUPLE : of.sort;
  int64_t times, at;
  if (px__is(name, "len") && count == 1) return *out = px__of_int(list->count), PX_OK;
  if (px__is(name, "slice")) return slice(out, script, of, given, count);
  if ((px__is(name, "list") || px__is(name, "copy")) && count == 1)
    return copy(out, script, px__is(name, "list") ? PX__LIST : sort_of, list, NULL);
  if (px__is(name, "add") && count == 2 && given[1].sort == of.sort)
    return copy(out, script, sort_of, list, given[1].v.box);
  if (px__is(name, "mul") && count == 2 && given[1].sort == PX__INT)
    return repeat(out, script, list, given[1].v.i);
  if (px__is(name, "sorted")) {
    PX_TRY(copy(out, script, PX__LIST, list, NULL));
    return sort(out->v.box, count > 1 && given[1].sort == PX__BOOL && given[1].v.i);
  }
  if ((px__is(name, "min") || px__is(name, "max") || px__is(name, "sum")) && count == 1)
    return fold(out, name, list);
  if ((px__is(name, "any") || px__is(name, "all")) && count == 1)
    return any_all(out, list, px__is(name, "all"));
  if (px__is(name, "__getitem__") && count == 2) return px__subscript(out, script, of, given[1]);
  if (px__is(name, "__contains__") && count == 2)
    return *out = px__of_bool(position(list, given[1], &times) >= 0), PX_OK;
  if (px__is(name, "count") && count == 2)
    return position(list, given[1], &times), *out = px__of_int(times), PX_OK;
  if (px__is(name, "index") && count == 2) {
    at = position(list, given[1], &times);
    PX_CHECK(at >= 0, PX_RUNTIME, "value is not in the list");
    return *out = px__of_int(at), PX_OK;
  }
  *known = false;
  return PX_OK;
}

static bool has_tensors(px__var v) {
  return v.v.box->count && v.v.box->items[0].sort == PX__TENSOR;
}

px_status px__call_lists(px__var *out, px_script *script, const char *name, const px__var *given,
                         int count, bool *known) {
  if (!count) return PX_OK;
  *known = true;
  if (given[0].sort == PX__TEXT && px__is(name, "slice"))
    return slice(out, script, given[0], given, count);
  if (given[0].sort == PX__TEXT && px__is(name, "__getitem__") && count == 2)
    return px__subscript(out, script, given[0], given[1]);
  if (given[0].sort == PX__TEXT && px__is(name, "list") && count == 1) {
    PX_TRY(px__box_new(out, script, PX__LIST));
    for (int64_t i = 0; i < given[0].v.box->count; i++) {
      PX__SCOPED_VAR part = {0};
      PX_TRY(px__text_new(&part, script, given[0].v.box->text + i, 1));
      PX_TRY(px__push(out->v.box, part));
    }
    return PX_OK;
  }
  bool tuple =
      given[0].sort == PX__TUPLE || (given[0].sort == PX__OBJECT && !given[0].v.box->module);
  *known = given[0].sort == PX__LIST || tuple;
  if (!*known) return PX_OK;
  bool reduces =
      px__is(name, "min") || px__is(name, "max") || px__is(name, "sum") || px__is(name, "index");
  if (reduces && has_tensors(given[0])) return *known = false, PX_OK;
  PX_TRY(query(out, script, name, given[0], given, count, known));
  if (*known || tuple) return PX_OK;
  *known = true;
  return change(out, name, given[0].v.box, given, count, known);
}
