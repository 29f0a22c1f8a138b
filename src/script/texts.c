// SPDX-License-Identifier: Apache-2.0
// Functions of texts. Positions count bytes, as in PyTorch.
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "script/script_impl.h"

static px_status text(px__var *out, px_script *script, const char *bytes, int64_t length) {
  return px__text_new(out, script, bytes, (size_t)length);
}

// Position of `part` in `whole` from a position on, or -1.
static int64_t find(const px__box *whole, const px__box *part, int64_t from) {
  for (int64_t i = from; i + part->count <= whole->count; i++)
    if (!memcmp(whole->text + i, part->text, (size_t)part->count)) return i;
  return -1;
}
static int64_t find_last(const px__box *whole, const px__box *part) {
  for (int64_t i = whole->count - part->count; i >= 0; i--)
    if (!memcmp(whole->text + i, part->text, (size_t)part->count)) return i;
  return -1;
}

// ---- format

// "{}" stands for the next argument; PyTorch's format has no other fields.
static px_status format(px__var *out, px_script *script, const px__var *given, int count) {
  PX__SCOPED_STRING made = {0};
  const px__box *pattern = given[0].v.box;
  int used = 1;
  for (int64_t i = 0; i < pattern->count; i++) {
    bool field = pattern->text[i] == '{' && i + 1 < pattern->count && pattern->text[i + 1] == '}';
    if (field) {
      PX_CHECK(used < count, PX_RUNTIME, "Too few arguments for format string: %s", pattern->text);
      PX_TRY(px__string_value(&made, given[used++], false, 0));
      i++;
    } else {
      PX_TRY(px__string_add(&made, pattern->text + i, 1));
    }
  }
  PX_CHECK(used == count, PX_RUNTIME, "Too many arguments for format string: %s", pattern->text);
  return px__text_new(out, script, made.text, made.length);
}

static px_status percent_field(px__string *to, const char *pattern, size_t length, px__var value) {
  char spec[24], made[400];
  char kind = pattern[length - 1];
  if (kind == 's' || kind == 'r') return px__string_value(to, value, kind == 'r', 0);
  PX_CHECK(length < sizeof spec - 3 && px__is_number(value) && !memchr(pattern, '*', length),
           PX_TYPE, "%%%c requires a number", kind);
  bool whole = kind == 'd' || kind == 'i' || kind == 'x';
  snprintf(spec, sizeof spec, "%.*s%s%c", (int)length - 1, pattern, whole ? "ll" : "", kind);
  long long integer = value.sort == PX__FLOAT ? (long long)value.v.f : (long long)value.v.i;
  int size = whole ? snprintf(made, sizeof made, spec, integer)
                   : snprintf(made, sizeof made, spec, px__to_float(value));
  PX_CHECK(size >= 0 && size < (int)sizeof made, PX_VALUE, "a formatted number is too long");
  return px__string_add(to, made, (size_t)size);
}

static px_status percent_format(px__var *out, px_script *script, const px__var *given, int count) {
  PX__SCOPED_STRING made = {0};
  bool tuple = count == 2 && given[1].sort == PX__TUPLE;
  const px__var *values = tuple ? given[1].v.box->items : given + 1;
  int64_t used = 0, most = tuple ? given[1].v.box->count : count - 1;
  const char *at = given[0].v.box->text, *end = at + given[0].v.box->count;
  while (at < end) {
    size_t plain = strcspn(at, "%");
    PX_TRY(px__string_add(&made, at, plain));
    at += plain;
    if (!plain && !*at) at++;
    if (*at != '%' || at >= end) continue;
    size_t length = 1 + strspn(at + 1, "-+ #0123456789.");
    char kind = at[length];
    if (kind == '%' && length == 1) {
      PX_TRY(px__string_add(&made, "%", 1));
    } else {
      PX_CHECK(kind && strchr("srdixfegFEG", kind), PX_UNIMPLEMENTED,
               "the format %.10s is not supported", at);
      PX_CHECK(used < most, PX_RUNTIME, "Too few arguments for format string");
      PX_TRY(percent_field(&made, at, length + 1, values[used++]));
    }
    at += length + 1;
  }
  return px__text_new(out, script, made.text, made.length);
}

// ---- parts

static px_status split(px__var *out, px_script *script, const px__box *whole, const px__box *by) {
  PX__SCOPED_VAR list = {0};
  PX_CHECK(!by || by->count, PX_RUNTIME, "empty separator");
  PX_TRY(px__box_new(&list, script, PX__LIST));
  for (int64_t at = 0; at <= whole->count;) {
    PX__SCOPED_VAR part = {0};
    int64_t end = by ? find(whole, by, at) : at;
    while (!by && end < whole->count && !isspace((unsigned char)whole->text[end])) end++;
    if (end < 0) end = whole->count;
    if (by || end > at) {
      PX_TRY(text(&part, script, whole->text + at, end - at));
      PX_TRY(px__push(list.v.box, part));
    }
    at = end + (by ? by->count : 1);
  }
  *out = px__var_move(&list);
  return PX_OK;
}

static px_status join(px__var *out, px_script *script, const px__box *by, const px__box *list) {
  PX__SCOPED_STRING made = {0};
  for (int64_t i = 0; i < list->count; i++) {
    PX_CHECK(list->items[i].sort == PX__TEXT, PX_TYPE, "join() expects a list of str");
    if (i) PX_TRY(px__string_add(&made, by->text, (size_t)by->count));
    PX_TRY(px__string_value(&made, list->items[i], false, 0));
  }
  return px__text_new(out, script, made.text, made.length);
}

static px_status replace(px__var *out, px_script *script, const px__box *whole, const px__box *old,
                         const px__box *by) {
  PX__SCOPED_STRING made = {0};
  for (int64_t at = 0; at < whole->count;) {
    int64_t end = old->count ? find(whole, old, at) : -1;
    int64_t stop = end < 0 ? whole->count : end;
    PX_TRY(px__string_add(&made, whole->text + at, (size_t)(stop - at)));
    if (end >= 0) PX_TRY(px__string_add(&made, by->text, (size_t)by->count));
    at = end < 0 ? whole->count : end + old->count;
  }
  return px__text_new(out, script, made.text, made.length);
}

static px_status strip(px__var *out, px_script *script, const char *name, const px__box *whole,
                       const char *blanks) {
  int64_t begin = 0, end = whole->count;
  if (!px__is(name, "rstrip"))
    while (begin < end && strchr(blanks, whole->text[begin])) begin++;
  if (!px__is(name, "lstrip"))
    while (end > begin && strchr(blanks, whole->text[end - 1])) end--;
  return text(out, script, whole->text + begin, end - begin);
}

static px_status change_case(px__var *out, px_script *script, const char *name,
                             const px__box *whole) {
  PX_TRY(text(out, script, whole->text, whole->count));
  for (int64_t i = 0; i < whole->count; i++) {
    unsigned char c = (unsigned char)whole->text[i];
    bool up = px__is(name, "upper") || (px__is(name, "capitalize") && i == 0);
    out->v.box->text[i] = (char)(up ? toupper(c) : tolower(c));
  }
  return PX_OK;
}

// True if all characters satisfy a test, and there are some.
static bool each(const px__box *whole, int (*test)(int)) {
  for (int64_t i = 0; i < whole->count; i++)
    if (!test((unsigned char)whole->text[i])) return false;
  return whole->count > 0;
}

static px_status to_number(px__var *out, const char *name, const px__box *whole) {
  char *end;
  bool integer = px__is(name, "Int") || px__is(name, "int");
  double number = strtod(whole->text, &end);
  long long wide = integer ? strtoll(whole->text, &end, 10) : 0;
  while (isspace((unsigned char)*end)) end++;
  PX_CHECK(whole->count && !*end, PX_RUNTIME, "could not convert string to %s: '%s'",
           integer ? "int" : "float", whole->text);
  *out = integer ? px__of_int(wide) : px__of_float(number);
  return PX_OK;
}

// ---- by arguments

static px_status one(px__var *out, px_script *script, const char *name, const px__box *a,
                     bool *known) {
  if (px__is(name, "len")) return *out = px__of_int(a->count), PX_OK;
  if (px__is(name, "upper") || px__is(name, "lower") || px__is(name, "capitalize"))
    return change_case(out, script, name, a);
  if (px__is(name, "strip") || px__is(name, "lstrip") || px__is(name, "rstrip"))
    return strip(out, script, name, a, " \t\n\r\v\f");
  if (px__is(name, "split")) return split(out, script, a, NULL);
  if (px__is(name, "Int") || px__is(name, "int") || px__is(name, "Float") || px__is(name, "float"))
    return to_number(out, name, a);
  if (px__is(name, "isdigit")) return *out = px__of_bool(each(a, isdigit)), PX_OK;
  if (px__is(name, "isalpha")) return *out = px__of_bool(each(a, isalpha)), PX_OK;
  if (px__is(name, "isalnum")) return *out = px__of_bool(each(a, isalnum)), PX_OK;
  if (px__is(name, "isspace")) return *out = px__of_bool(each(a, isspace)), PX_OK;
  if (px__is(name, "ord")) {
    PX_CHECK(a->count == 1, PX_RUNTIME, "String for ord() must be 1 character, found: %lld",
             (long long)a->count);
    return *out = px__of_int((unsigned char)a->text[0]), PX_OK;
  }
  if (px__is(name, "device")) {
    *out = (px__var){.sort = PX__DEVICE};
    return px_device_parse(&out->v.device, a->text);
  }
  *known = false;
  return PX_OK;
}

static px_status two(px__var *out, px_script *script, const char *name, const px__box *a,
                     const px__box *b, bool *known) {
  PX__SCOPED_STRING sum = {0};
  bool fits = b->count <= a->count;
  int order = strcmp(a->text, b->text);
  if (px__is(name, "add")) {
    PX_TRY(px__string_add(&sum, a->text, (size_t)a->count));
    PX_TRY(px__string_add(&sum, b->text, (size_t)b->count));
    return px__text_new(out, script, sum.text, sum.length);
  }
  if (px__is(name, "lt")) return *out = px__of_bool(order < 0), PX_OK;
  if (px__is(name, "le")) return *out = px__of_bool(order <= 0), PX_OK;
  if (px__is(name, "gt")) return *out = px__of_bool(order > 0), PX_OK;
  if (px__is(name, "ge")) return *out = px__of_bool(order >= 0), PX_OK;
  if (px__is(name, "__contains__")) return *out = px__of_bool(find(a, b, 0) >= 0), PX_OK;
  if (px__is(name, "find")) return *out = px__of_int(find(a, b, 0)), PX_OK;
  if (px__is(name, "rfind")) return *out = px__of_int(find_last(a, b)), PX_OK;
  if (px__is(name, "startswith"))
    return *out = px__of_bool(fits && !memcmp(a->text, b->text, (size_t)b->count)), PX_OK;
  if (px__is(name, "endswith"))
    return *out = px__of_bool(fits &&
                              !memcmp(a->text + a->count - b->count, b->text, (size_t)b->count)),
           PX_OK;
  if (px__is(name, "split")) return split(out, script, a, b);
  if (px__is(name, "strip") || px__is(name, "lstrip") || px__is(name, "rstrip"))
    return strip(out, script, name, a, b->text);
  *known = false;
  return PX_OK;
}

px_status px__call_texts(px__var *out, px_script *script, const char *name, const px__var *given,
                         int count, bool *known) {
  if (!count || given[0].sort != PX__TEXT) return PX_OK;
  const px__box *a = given[0].v.box;
  bool texts = count > 1 && given[1].sort == PX__TEXT;
  *known = true;
  if (px__is(name, "format")) return format(out, script, given, count);
  if (px__is(name, "percentFormat")) return percent_format(out, script, given, count);
  if (px__is(name, "join") && count == 2 && given[1].sort == PX__LIST)
    return join(out, script, a, given[1].v.box);
  if (px__is(name, "replace") && count >= 3 && texts && given[2].sort == PX__TEXT)
    return replace(out, script, a, given[1].v.box, given[2].v.box);
  // Defaults of the schemas, which PyTorch writes.
  bool all = count == 3 && px__is(name, "split") && given[2].sort == PX__INT && given[2].v.i == -1;
  if (all && given[1].sort == PX__NONE) return split(out, script, a, NULL);
  if (all && texts) return split(out, script, a, given[1].v.box);
  if (count == 1) return one(out, script, name, a, known);
  if (count == 2 && texts) return two(out, script, name, a, given[1].v.box, known);
  *known = false;
  return PX_OK;
}
