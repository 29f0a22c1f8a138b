// SPDX-License-Identifier: Apache-2.0
// The printed form of modules.
#include "nn/nn_impl.h"

#include <math.h>
#include <stdio.h>

// The shortest text that reads back as the same number, as Python prints floats.
static void float_text(double value, char *text, size_t room) {
  int precision = 1;
  if (value == floor(value) && fabs(value) < 1e16) {
    snprintf(text, room, "%.1f", value);
    return;
  }
  do snprintf(text, room, "%.*g", precision, value);
  while (precision++ < 17 && strtod(text, NULL) != value);
}

static void ints_text(px_value value, char *text, size_t room) {
  size_t used = (size_t)snprintf(text, room, "(");
  for (int i = 0; i < value.n && used < room; i++)
    used += (size_t)snprintf(text + used, room - used, "%s%lld", i ? ", " : "",
                             (long long)value.v.ints[i]);
  if (used < room) snprintf(text + used, room - used, value.n == 1 ? ",)" : ")");
}

void px__value_text(px_value value, char *text, size_t room) {
  bool truth = value.kind == PX_ARG_BOOL || (value.kind == PX_ARG_SCALAR && value.category == 'b');
  bool real = value.kind == PX_ARG_FLOAT || (value.kind == PX_ARG_SCALAR && value.category == 'f');
  if (value.kind == PX_ARG_NONE)
    snprintf(text, room, "None");
  else if (truth)
    snprintf(text, room, value.v.i ? "True" : "False");
  else if (real)
    float_text(value.v.f, text, room);
  else if (value.kind == PX_ARG_INTS && value.category == 'i')
    snprintf(text, room, "%lld", (long long)value.v.ints[0]);
  else if (value.kind == PX_ARG_INTS)
    ints_text(value, text, room);
  else if (value.kind == PX_ARG_TEXT)
    snprintf(text, room, "%s", value.v.text);
  else
    snprintf(text, room, "%lld", (long long)value.v.i);
}

// Fills a template: {name} becomes the attribute's text.
static void fill(const px_module *self, const char *format, char *text, size_t room) {
  size_t used = 0;
  while (*format && used + 1 < room) {
    const char *end = *format == '{' ? strchr(format, '}') : NULL;
    if (!end) {
      text[used++] = *format++;
      continue;
    }
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(end - format - 1), format + 1);
    px__value_text(px_module_attribute(self, name), text + used, room - used);
    used += strlen(text + used);
    format = end + 1;
  }
  text[used < room ? used : room - 1] = 0;
}

void px_module_extra_repr(const px_module *self, char *text, size_t room) {
  if (!room) return;
  *text = 0;
  if (self->kind->repr_fn)
    self->kind->repr_fn(self, text, room);
  else if (self->kind->repr)
    fill(self, self->kind->repr, text, room);
}

// A text that grows; `failed` once memory was short.
typedef struct growing {
  char *at;
  size_t length, room;
  bool failed;
} growing;

static void append(growing *g, const char *text, size_t length) {
  if (g->failed) return;
  if (g->length + length + 1 > g->room) {
    size_t room = (g->room + length + 1) * 2;
    if (px_realloc((void **)&g->at, room) != PX_OK) {
      g->failed = true;
      return;
    }
    g->room = room;
  }
  memcpy(g->at + g->length, text, length);
  g->at[g->length += length] = 0;
}

// Appends text with every line but the first indented by two.
static void append_indented(growing *g, const char *text) {
  for (; *text; text++) append(g, *text == '\n' ? "\n  " : text, *text == '\n' ? 3 : 1);
}

// One line "(key): child"; `key` holds the parentheses and what follows.
static px_status child_line(growing *g, const char *key, px_module *child) {
  append(g, "\n  ", 3);
  append(g, key, strlen(key));
  char *text = NULL;
  if (child) PX_TRY(px_module_text(&text, child));
  append_indented(g, text ? text : "None");
  px_free(text);
  return PX_OK;
}

// How many of the children after `from` print as it does.
static px_status run_length(const px_module *self, int from, px_module *child, int *last) {
  char *first, *other;
  px_module_entry next;
  PX_TRY(px_module_text(&first, child));
  px_status status = PX_OK;
  for (*last = from; px_module_entry_at(self, PX_ENTRY_MODULE, *last + 1, &next); ++*last) {
    status = px_module_text(&other, next.module);
    if (status != PX_OK) break;
    bool equal = !strcmp(first, other);
    px_free(other);
    if (!equal) break;
  }
  px_free(first);
  return status;
}

// Equal neighbours of a ModuleList are printed as one line, "(0-2): 3 x Linear(...)".
static px_status list_lines(growing *g, px_module *self) {
  px_module_entry entry;
  for (int i = 0, last = 0; px_module_entry_at(self, PX_ENTRY_MODULE, i, &entry); i = last + 1) {
    char key[64];
    PX_TRY(run_length(self, i, entry.module, &last));
    if (last == i)
      snprintf(key, sizeof key, "(%d): ", i);
    else
      snprintf(key, sizeof key, "(%d-%d): %d x ", i, last, last - i + 1);
    PX_TRY(child_line(g, key, entry.module));
  }
  return PX_OK;
}

static px_status child_lines(growing *g, px_module *self) {
  if (!strcmp(self->kind->name, "ModuleList")) return list_lines(g, self);
  px_module_entry entry;
  for (int i = 0; px_module_entry_at(self, PX_ENTRY_MODULE, i, &entry); i++) {
    char key[256];
    snprintf(key, sizeof key, "(%s): ", entry.name);
    PX_TRY(child_line(g, key, entry.module));
  }
  return PX_OK;
}

// What stands before the children: in the same line if it is one and there are none.
static void extra_lines(growing *g, const char *extra, bool inline_) {
  if (inline_) {
    append(g, extra, strlen(extra));
  } else if (*extra) {
    append(g, "\n  ", 3);
    append_indented(g, extra);
  }
}

px_status px_module_text(char **out, px_module *self) {
  PX_GIVEN(self);
  enum { EXTRA = 16384 };
  char *extra;
  growing g = {0};
  px_module_entry entry;
  *out = NULL;
  PX_TRY(px_alloc((void **)&extra, EXTRA));
  px_module_extra_repr(self, extra, EXTRA);
  append(&g, self->kind->name, strlen(self->kind->name));
  append(&g, "(", 1);
  bool children = px_module_entry_at(self, PX_ENTRY_MODULE, 0, &entry);
  bool one_line = !children && !strchr(extra, '\n');
  extra_lines(&g, extra, one_line);
  px_free(extra);
  px_status status = children ? child_lines(&g, self) : PX_OK;
  append(&g, one_line ? ")" : "\n)", one_line ? 1 : 2);
  if (status == PX_OK && g.failed)
    status = px_error_set(PX_NOMEM, 0, __FILE__, __LINE__, __func__, "out of memory");
  if (status == PX_OK)
    *out = g.at;
  else
    px_free(g.at);
  return status;
}
