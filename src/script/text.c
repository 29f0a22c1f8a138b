// SPDX-License-Identifier: Apache-2.0
// Texts of values, as Python prints them.
#include <stdio.h>
#include <stdlib.h>

#include "script/script_impl.h"

px_status px__string_add(px__string *b, const char *text, size_t length) {
  if (b->length + length + 1 > b->capacity) {
    size_t capacity = 2 * (b->length + length) + 32;
    void *memory = b->text;
    PX_TRY(px_realloc(&memory, capacity));
    b->text = memory;
    b->capacity = capacity;
  }
  if (length) memcpy(b->text + b->length, text, length);
  b->length += length;
  b->text[b->length] = 0;
  return PX_OK;
}
void px__string_free(px__string *b) { px_free(b->text); }

static px_status add(px__string *b, const char *text) {
  return px__string_add(b, text, strlen(text));
}

// The shortest digits that read back as the same number.
static px_status add_float(px__string *b, double number) {
  char text[40];
  if (number != number) return add(b, "nan");
  if (number - number != 0) return add(b, number > 0 ? "inf" : "-inf");
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, number);
    if (strtod(text, NULL) == number) break;
  }
  double size = number < 0 ? -number : number;
  if (size >= 1e-4 && size < 1e16 && strchr(text, 'e')) snprintf(text, sizeof text, "%.0f", number);
  if (!strpbrk(text, ".e")) memcpy(text + strlen(text), ".0", 3);
  return add(b, text);
}

static px_status add_quoted(px__string *b, const px__box *text) {
  PX_TRY(add(b, "'"));
  for (int64_t i = 0; i < text->count; i++) {
    char c = text->text[i];
    const char *escaped = c == '\n'   ? "\\n"
                          : c == '\t' ? "\\t"
                          : c == '\\' ? "\\\\"
                          : c == '\'' ? "\\'"
                                      : NULL;
    PX_TRY(escaped ? add(b, escaped) : px__string_add(b, &c, 1));
  }
  return add(b, "'");
}

static px_status add_items(px__string *b, const px__box *box, const char *brackets, int step,
                           int depth) {
  PX_TRY(px__string_add(b, brackets, 1));
  for (int64_t i = 0; i < box->count; i++) {
    if (i) PX_TRY(add(b, i % step ? ": " : ", "));
    PX_TRY(px__string_value(b, box->items[i], true, depth + 1));
  }
  if (*brackets == '(' && box->count == 1) PX_TRY(add(b, ","));
  return px__string_add(b, brackets + 1, 1);
}

static px_status add_tensor(px__string *b, const px_tensor *tensor) {
  char *text;
  PX_TRY(px_tensor_text(&text, tensor, "tensor("));
  px_status status = add(b, text);
  px_free(text);
  return status;
}

static px_status add_complex(px__string *b, px_complex c) {
  PX_TRY(add(b, "("));
  PX_TRY(add_float(b, c.real));
  if (!(c.imag < 0)) PX_TRY(add(b, "+"));
  PX_TRY(add_float(b, c.imag));
  return add(b, "j)");
}

px_status px__string_value(px__string *b, px__var v, bool repr, int depth) {
  char text[PX_DEVICE_TEXT + 32];
  PX_CHECK(depth < PX_TREE_DEPTH, PX_VALUE, "a value nested deeper than %d levels has no text",
           PX_TREE_DEPTH);
  switch (v.sort) {
    case PX__NONE:
      return add(b, "None");
    case PX__BOOL:
      return add(b, v.v.i ? "True" : "False");
    case PX__INT:
      snprintf(text, sizeof text, "%lld", (long long)v.v.i);
      return add(b, text);
    case PX__FLOAT:
      return add_float(b, v.v.f);
    case PX__COMPLEX:
      return add_complex(b, v.v.c);
    case PX__DEVICE:
      return add(b, px_device_format(v.v.device, text));
    case PX__TENSOR:
      return add_tensor(b, v.v.tensor);
    case PX__TEXT:
      return repr ? add_quoted(b, v.v.box)
                  : px__string_add(b, v.v.box->text, (size_t)v.v.box->count);
    case PX__LIST:
      return add_items(b, v.v.box, "[]", 1, depth);
    case PX__TUPLE:
      return add_items(b, v.v.box, "()", 1, depth);
    case PX__DICT:
      return add_items(b, v.v.box, "{}", 2, depth);
    default:
      PX_TRY(add(b, "<"));
      PX_TRY(add(b, px__sort_name(v)));
      return add(b, ">");
  }
}
