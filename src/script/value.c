// SPDX-License-Identifier: Apache-2.0
// Values of scripts and their containers.
#include <stdio.h>

#include "script/script_impl.h"

// Items are detached first: their release may reach the box again.
void px__box_empty(px__box *box) {
  px__var *items = box->items;
  int64_t count = box->count;
  px_module *module = box->module;
  box->items = NULL;
  box->module = NULL;
  box->count = box->capacity = 0;
  for (int64_t i = 0; i < count && items; i++) px__var_free(&items[i]);
  px_free(items);
  px_release(module);
}

// Unlinks a box and queues it. The first release on the stack frees the queue, so the depth of
// nested values does not matter.
static void box_release(px__box *box) {
  px_script *script = box->script;
  if (--box->refs) return;
  if (box->previous)
    box->previous->next = box->next;
  else
    script->boxes = box->next;
  if (box->next) box->next->previous = box->previous;
  box->next = script->dying;
  script->dying = box;
  if (script->frees) return;
  script->frees = true;
  while ((box = script->dying)) {
    script->dying = box->next;
    px__box_empty(box);
    px_free(box->text);
    px_free(box);
  }
  script->frees = false;
}

void px__var_free(px__var *var) {
  px__var old = px__var_move(var);
  if (old.sort == PX__TENSOR) px_release(old.v.tensor);
  bool boxed = (old.sort >= PX__TEXT && old.sort <= PX__OBJECT) || old.sort == PX__STORAGE;
  if (boxed) box_release(old.v.box);
}

px__var px__var_keep(px__var var) {
  if (var.sort == PX__TENSOR) px_retain(var.v.tensor);
  bool boxed = (var.sort >= PX__TEXT && var.sort <= PX__OBJECT) || var.sort == PX__STORAGE;
  if (boxed) var.v.box->refs++;
  return var;
}

px_scalar px__to_scalar(px__var v) {
  return v.sort == PX__FLOAT  ? px_float(v.v.f)
         : v.sort == PX__BOOL ? px_bool(v.v.i)
                              : px_int(v.v.i);
}

const char *px__sort_name(px__var var) {
  static const char *const names[] = {
      "nothing", "NoneType", "bool", "int",    "float", "complex", "Device",  "Tensor", "str",
      "List",    "Tuple",    "Dict", "object", "type",  "global",  "storage", "mark"};
  return var.sort == PX__OBJECT ? var.v.box->definition->own : names[var.sort];
}

px_status px__box_new(px__var *out, px_script *script, px__sort sort) {
  px__box *box;
  PX_TRY(px_alloc((void **)&box, sizeof *box));
  *box = (px__box){.refs = 1, .script = script, .next = script->boxes};
  if (script->boxes) script->boxes->previous = box;
  script->boxes = box;
  *out = (px__var){sort, {.box = box}};
  return PX_OK;
}

px_status px__text_new(px__var *out, px_script *script, const char *text, size_t length) {
  PX__SCOPED_VAR made = {0};
  PX_TRY(px__box_new(&made, script, PX__TEXT));
  PX_TRY(px_alloc((void **)&made.v.box->text, length + 1));
  if (length) memcpy(made.v.box->text, text, length);
  made.v.box->count = (int64_t)length;
  *out = px__var_move(&made);
  return PX_OK;
}

static px_status reserve(px__box *box, int64_t more) {
  int64_t wanted = box->count + more;
  if (wanted <= box->capacity) return PX_OK;
  int64_t capacity = wanted < 4 ? 4 : wanted + wanted / 2;
  void *memory = box->items;
  PX_TRY(px_realloc(&memory, (size_t)capacity * sizeof *box->items));
  box->items = memory;
  box->capacity = capacity;
  return PX_OK;
}

px_status px__insert(px__box *box, int64_t at, px__var value) {
  PX_TRY(reserve(box, 1));
  memmove(box->items + at + 1, box->items + at, (size_t)(box->count - at) * sizeof *box->items);
  box->items[at] = px__var_keep(value);
  box->count++;
  return PX_OK;
}
px_status px__push(px__box *box, px__var value) { return px__insert(box, box->count, value); }

void px__erase(px__box *box, int64_t at, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    px__var old = box->items[at];
    box->count--;
    memmove(box->items + at, box->items + at + 1, (size_t)(box->count - at) * sizeof *box->items);
    px__var_free(&old);
  }
}

// ---- equality

static bool same(px__var a, px__var b, int depth);

static bool same_items(const px__box *a, const px__box *b, int depth) {
  if (a == b) return true;
  if (a->count != b->count || depth > PX_TREE_DEPTH) return false;
  for (int64_t i = 0; i < a->count; i++)
    if (!same(a->items[i], b->items[i], depth + 1)) return false;
  return true;
}

static int64_t find(const px__box *dict, px__var key, int depth) {
  for (int64_t i = 0; i < dict->count; i += 2)
    if (same(dict->items[i], key, depth)) return i;
  return -1;
}

static bool same_dicts(const px__box *a, const px__box *b, int depth) {
  if (a->count != b->count || depth > PX_TREE_DEPTH) return false;
  for (int64_t i = 0; i < a->count; i += 2) {
    int64_t at = find(b, a->items[i], depth + 1);
    if (at < 0 || !same(a->items[i + 1], b->items[at + 1], depth + 1)) return false;
  }
  return true;
}

static bool same(px__var a, px__var b, int depth) {
  if (px__is_number(a) && px__is_number(b))
    return a.sort == PX__FLOAT || b.sort == PX__FLOAT ? px__to_float(a) == px__to_float(b)
                                                      : a.v.i == b.v.i;
  if (a.sort != b.sort) return false;
  switch (a.sort) {
    case PX__COMPLEX:
      return a.v.c.real == b.v.c.real && a.v.c.imag == b.v.c.imag;
    case PX__DEVICE:
      return a.v.device.type == b.v.device.type && a.v.device.index == b.v.device.index;
    case PX__TEXT:
      return a.v.box->count == b.v.box->count &&
             !memcmp(a.v.box->text, b.v.box->text, (size_t)a.v.box->count);
    case PX__LIST:
    case PX__TUPLE:
      return same_items(a.v.box, b.v.box, depth);
    case PX__DICT:
      return same_dicts(a.v.box, b.v.box, depth);
    case PX__TENSOR:
      return a.v.tensor == b.v.tensor;
    case PX__OBJECT:
      return a.v.box == b.v.box;
    default:
      return true;
  }
}

bool px__same(px__var a, px__var b) { return same(a, b, 0); }
int64_t px__dict_find(const px__box *dict, px__var key) { return find(dict, key, 0); }

px_status px__dict_set(px__box *dict, px__var key, px__var value) {
  int64_t at = px__dict_find(dict, key);
  if (at < 0) {
    PX_TRY(reserve(dict, 2));
    PX_TRY(px__push(dict, key));
    return px__push(dict, value);
  }
  px__var old = dict->items[at + 1];
  dict->items[at + 1] = px__var_keep(value);
  px__var_free(&old);
  return PX_OK;
}
