// SPDX-License-Identifier: Apache-2.0
// Op lookup by number and name. Calls as text.
#include "call/op_impl.h"
#include "phlox/base.h"

#include <stdio.h>

int px_op_count(void) { return px__op_table_count + px__registered_count(); }

const px_op *px_op_at(int i) {
  if (i >= 0 && i < px__op_table_count) return px__op_table[i];
  return px__registered_at(i - px__op_table_count);
}

// Open-addressed hash table of ops by name, built at the first lookup.
enum { SLOTS = 4096 };
static const px_op *slots[SLOTS];
static pthread_once_t built = PTHREAD_ONCE_INIT;

static uint32_t hash(const char *name) {
  uint32_t h = 2166136261u;
  for (; *name; name++) h = (h ^ (unsigned char)*name) * 16777619u;
  return h;
}

static void build(void) {
  for (int i = 0; i < px__op_table_count && i < SLOTS / 2; i++) {
    uint32_t at = hash(px__op_table[i]->name) % SLOTS;
    while (slots[at]) at = (at + 1) % SLOTS;
    slots[at] = px__op_table[i];
  }
}

static const char *name_at(const void *names, int i) {
  return i < px_op_count() ? px_op_at(i)->name : NULL;
}
px_status px__no_op(void) {
  const char *missed = px_name_missed(slots);
  PX_CHECK(missed, PX_ATTRIBUTE, "there is no such op");
  PX_FAIL(PX_ATTRIBUTE, "there is no op '%s': the nearest name is %s", missed,
          px_name_suggest(missed, name_at, NULL));
}

const px_op *px_op_find(const char *name) {
  pthread_once(&built, build);
  for (uint32_t at = hash(name) % SLOTS; slots[at]; at = (at + 1) % SLOTS)
    if (!strcmp(slots[at]->name, name)) return slots[at];
  const px_op *op = px__registered_find(name);
  if (!op) px_name_miss(slots, name);
  return op;
}

typedef struct line {
  char *at;
  size_t capacity, length;
} line;
static void add(line *l, const char *format, ...) PX_PRINTF(2, 3);
static void add(line *l, const char *format, ...) {
  va_list list;
  va_start(list, format);
  size_t left = l->length < l->capacity ? l->capacity - l->length : 0;
  int n = vsnprintf(left ? l->at + l->length : NULL, left, format, list);
  va_end(list);
  if (n > 0) l->length += (size_t)n;
}

static void add_tensor(line *l, const px_tensor *t) {
  char device[PX_DEVICE_TEXT];
  if (!t) {
    add(l, "None");
    return;
  }
  add(l, "%s[", px_dtype_about((px_dtype)t->dtype)->suffix);
  for (int i = 0; i < t->ndim; i++) add(l, "%s%lld", i ? "," : "", (long long)t->sizes[i]);
  add(l, "]@%s", px_device_format(px__tensor_device(t), device));
}

static void add_list(line *l, px_value a) {
  add(l, "[");
  for (int i = 0; i < a.n; i++) {
    if (i) add(l, ", ");
    if (a.kind == PX_ARG_TENSORS)
      add_tensor(l, a.v.tensors[i]);
    else
      add(l, "%lld", (long long)a.v.ints[i]);
  }
  add(l, "]");
}

static void add_value(line *l, px_value a) {
  char device[PX_DEVICE_TEXT];
  bool is_float = a.kind == PX_ARG_FLOAT || (a.kind == PX_ARG_SCALAR && a.category == 'f');
  bool is_bool = a.kind == PX_ARG_BOOL || (a.kind == PX_ARG_SCALAR && a.category == 'b');
  if (a.kind == PX_ARG_TENSOR)
    add_tensor(l, a.v.tensor);
  else if (a.kind == PX_ARG_TENSORS || a.kind == PX_ARG_INTS)
    add_list(l, a);
  else if (is_float)
    add(l, "%g", a.v.f);
  else if (is_bool)
    add(l, a.v.i ? "True" : "False");
  else if (a.kind == PX_ARG_SCALAR || a.kind == PX_ARG_INT)
    add(l, "%lld", (long long)a.v.i);
  else if (a.kind == PX_ARG_DTYPE)
    add(l, "%s", px_dtype_name((px_dtype)a.v.i));
  else if (a.kind == PX_ARG_DEVICE)
    add(l, "%s", px_device_format(a.v.device, device));
  else if (a.kind == PX_ARG_TEXT)
    add(l, "'%s'", a.v.text);
  else
    add(l, a.kind == PX_ARG_GENERATOR ? "generator" : "None");
}

const char *px_op_describe(const px_op *op, const px_value *args, char *text, size_t capacity) {
  line l = {text, capacity, 0};
  if (capacity) text[0] = 0;
  add(&l, "%s(", op->name);
  bool first = true;
  for (int i = 0; i < op->param_count; i++) {
    if (args[i].kind == PX_ARG_NONE) continue;
    if (!first) add(&l, ", ");
    if (op->params[i].keyword_only) add(&l, "%s=", op->params[i].name);
    add_value(&l, args[i]);
    first = false;
  }
  add(&l, ")");
  return text;
}
