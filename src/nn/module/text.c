// SPDX-License-Identifier: Apache-2.0
// The printed form of modules.
#include "nn/module/nn_impl.h"

#include <math.h>
#include <stdio.h>

// Shortest text that reads back as the same number, as in Python's repr.
static void float_text(double value, char *text, size_t size) {
  int precision = 1;
  if (value == floor(value) && fabs(value) < 1e16) {
    snprintf(text, size, "%.1f", value);
    return;
  }
  do snprintf(text, size, "%.*g", precision, value);
  while (precision++ < 17 && strtod(text, NULL) != value);
}

const char *px__comma_text(char *text, size_t size, int count, const int64_t *numbers) {
  size_t used = 0;
  *text = 0;
  for (int i = 0; i < count && used < size; i++) {
    bool own = numbers[i] == PX_OWN_SIZE;
    used += (size_t)snprintf(text + used, size - used, own ? "%sNone" : "%s%lld", i ? ", " : "",
                             (long long)numbers[i]);
  }
  return text;
}

static void ints_text(px_value value, char *text, size_t size) {
  size_t used = (size_t)snprintf(text, size, "(");
  used += strlen(px__comma_text(text + used, size - used, value.n, value.v.ints));
  snprintf(text + used, size - used, value.n == 1 ? ",)" : ")");
}

void px__value_text(px_value value, char *text, size_t size) {
  bool truth = value.kind == PX_ARG_BOOL || (value.kind == PX_ARG_SCALAR && value.category == 'b');
  bool real = value.kind == PX_ARG_FLOAT || (value.kind == PX_ARG_SCALAR && value.category == 'f');
  if (value.kind == PX_ARG_NONE)
    snprintf(text, size, "None");
  else if (truth)
    snprintf(text, size, value.v.i ? "True" : "False");
  else if (real)
    float_text(value.v.f, text, size);
  else if (value.kind == PX_ARG_INTS && value.category == 'i')
    snprintf(text, size, "%lld", (long long)value.v.ints[0]);
  else if (value.kind == PX_ARG_INTS)
    ints_text(value, text, size);
  else if (value.kind == PX_ARG_TEXT)
    snprintf(text, size, "%s", value.v.text);
  else
    snprintf(text, size, "%lld", (long long)value.v.i);
}

// ---- templates

// A text of fixed size; longer output is truncated.
typedef struct space {
  char *text;
  size_t used, size;
} space;

static void put(space *to, const char *text, size_t length) {
  size_t free = to->size - 1 - to->used;
  if (length > free) length = free;
  memcpy(to->text + to->used, text, length);
  to->text[to->used += length] = 0;
}

static const px_param *param_of(const px_module *self, const char *name) {
  for (int i = 0; i < self->kind->param_count; i++)
    if (!strcmp(self->kind->params[i].name, name)) return &self->kind->params[i];
  return NULL;
}

// Value to print for a name: whether a tensor exists, else the attribute.
static px_value named_value(const px_module *self, const char *name) {
  px_module_entry entry;
  if (px_module_entry_find(self, name, &entry)) return PX_B(entry.tensor != NULL);
  return px_module_attribute(self, name);
}

// True if a name has its default value. A default number also matches lists of it.
static bool is_default(const px_module *self, const char *name) {
  px_value value = named_value(self, name);
  const px_param *param = param_of(self, name);
  if (!param) return false;
  px_value default_value = param->fallback;
  if (value.kind == PX_ARG_TEXT && default_value.kind == PX_ARG_TEXT)
    return !strcmp(value.v.text, default_value.v.text);
  if (value.kind == PX_ARG_INTS && default_value.kind == PX_ARG_INTS && default_value.n == 1) {
    for (int i = 0; i < value.n; i++)
      if (value.v.ints[i] != default_value.v.ints[0]) return false;
    return true;
  }
  if (value.kind == PX_ARG_FLOAT) return px_value_float(default_value) == value.v.f;
  return value.kind == default_value.kind &&
         (value.kind == PX_ARG_NONE || value.v.i == default_value.v.i);
}

// Parses {name} at `at`. Returns NULL if there is none. *end is past the brace.
static const char *name_in(const char *at, char *name, size_t size, const char **end) {
  size_t n = *at == '{' ? strspn(at + 1, "abcdefghijklmnopqrstuvwxyz_0123456789") : 0;
  if (!n || at[n + 1] != '}' || n >= size) return NULL;
  memcpy(name, at + 1, n);
  name[n] = 0;
  *end = at + n + 2;
  return name;
}

static void fill_part(space *to, const px_module *self, const char *at, const char *end) {
  char name[64], text[256];
  while (at < end) {
    const char *after = at + 1;
    if (!name_in(at, name, sizeof name, &after)) {
      put(to, at, 1);
    } else if (!strcmp(name, "class")) {
      put(to, self->kind->name, strlen(self->kind->name));
    } else {
      px__value_text(named_value(self, name), text, sizeof text);
      put(to, text, strlen(text));
    }
    at = after;
  }
}

// True if a part mentions a name with a non-default value.
static bool has_non_default(const px_module *self, const char *at, const char *end) {
  char name[64];
  for (const char *after; at < end; at = after) {
    after = at + 1;
    if (name_in(at, name, sizeof name, &after) && !is_default(self, name)) return true;
  }
  return false;
}

// [a|b]: prints the first alternative with a non-default value. `at` is past the bracket.
static const char *fill_option(space *to, const px_module *self, const char *at) {
  const char *end = strchr(at, ']');
  bool done = false;
  while (at < end) {
    const char *stop = at + strcspn(at, "|]");
    if (!done && has_non_default(self, at, stop)) fill_part(to, self, at, stop), done = true;
    at = stop + 1;
  }
  return end + 1;
}

const char *px__expand_template(const px_module *self, const char *format, char *text,
                                size_t size) {
  space to = {text, 0, size};
  *text = 0;
  fill_part(&to, self, format, format + strlen(format));
  return text;
}

void px_module_extra_repr(const px_module *self, char *text, size_t size) {
  if (!size) return;
  *text = 0;
  space to = {text, 0, size};
  for (const char *at = self->kind->repr; at && *at;) {
    const char *next = at + strcspn(at, "[");
    fill_part(&to, self, at, next);
    at = *next ? fill_option(&to, self, next + 1) : next;
  }
}

// Text of a binding's kind, or the expanded template.
static void extra_text(const px_module *self, char *text, size_t size) {
  *text = 0;
  if (self->kind->repr_fn)
    self->kind->repr_fn(self, text, size);
  else
    px_module_extra_repr(self, text, size);
}

// A growing text. `failed`: out of memory.
typedef struct growing {
  char *at;
  size_t length, capacity;
  bool failed;
} growing;

static void append(growing *g, const char *text, size_t length) {
  if (g->failed) return;
  if (g->length + length + 1 > g->capacity) {
    size_t capacity = (g->capacity + length + 1) * 2;
    if (px_realloc((void **)&g->at, capacity) != PX_OK) {
      g->failed = true;
      return;
    }
    g->capacity = capacity;
  }
  memcpy(g->at + g->length, text, length);
  g->at[g->length += length] = 0;
}

// Appends text with all lines but the first indented by two.
static void append_indented(growing *g, const char *text) {
  for (; *text; text++) append(g, *text == '\n' ? "\n  " : text, *text == '\n' ? 3 : 1);
}

// Appends a line "(key): child", or "(key): 3 x child" with `times` "3 x ".
static px_status child_line(growing *g, const char *key, const char *times, px_module *child) {
  append(g, "\n  (", 4);
  append(g, key, strlen(key));
  append(g, "): ", 3);
  append(g, times, strlen(times));
  char *text = NULL;
  if (child) PX_TRY(px_module_text(&text, child));
  append_indented(g, text ? text : "None");
  px_free(text);
  return PX_OK;
}

// *last: the last of the children from `from` on that print identically.
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

// Identical neighbours of a ModuleList are printed on one line, "(0-2): 3 x Linear(...)".
static px_status list_lines(growing *g, px_module *self) {
  px_module_entry entry;
  for (int i = 0, last = 0; px_module_entry_at(self, PX_ENTRY_MODULE, i, &entry); i = last + 1) {
    char key[32], times[16] = "";
    PX_TRY(run_length(self, i, entry.module, &last));
    int length = snprintf(key, sizeof key, "%d", i);
    if (last > i) {
      snprintf(key + length, sizeof key - (size_t)length, "-%d", last);
      snprintf(times, sizeof times, "%d x ", last - i + 1);
    }
    PX_TRY(child_line(g, key, times, entry.module));
  }
  return PX_OK;
}

static px_status child_lines(growing *g, px_module *self) {
  if (!strcmp(self->kind->name, "ModuleList")) return list_lines(g, self);
  px_module_entry entry;
  for (int i = 0; px_module_entry_next(self, PX_ENTRY_MODULE, &i, &entry);)
    PX_TRY(child_line(g, entry.name, "", entry.module));
  return PX_OK;
}

// Text before the children. It is on the same line if it is a single line and there are none.
static void extra_lines(growing *g, const char *extra, bool inline_) {
  if (inline_) {
    append(g, extra, strlen(extra));
  } else if (*extra) {
    append(g, "\n  ", 3);
    append_indented(g, extra);
  }
}

px_status px_module_text(char **out, px_module *self) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  PX__READS(self);
  enum { EXTRA = 16384 };
  char *extra;
  growing g = {0};
  px_module_entry entry;
  *out = NULL;
  PX_TRY(px_alloc((void **)&extra, EXTRA));
  extra_text(self, extra, EXTRA);
  append(&g, self->kind->name, strlen(self->kind->name));
  append(&g, "(", 1);
  bool children = px_module_entry_at(self, PX_ENTRY_MODULE, 0, &entry);
  bool one_line = !children && !strchr(extra, '\n');
  extra_lines(&g, extra, one_line);
  px_free(extra);
  px_status status = children ? px__nn_enter(self) : PX_OK;
  if (children && status == PX_OK) {
    status = child_lines(&g, self);
    px__nn_leave();
  }
  append(&g, one_line ? ")" : "\n)", one_line ? 1 : 2);
  if (status == PX_OK && g.failed)
    status = px_error_set(PX_NOMEM, 0, __FILE__, __LINE__, __func__, "out of memory");
  if (status == PX_OK)
    *out = g.at;
  else
    px_free(g.at);
  return status;
}
