// SPDX-License-Identifier: Apache-2.0
// Reads the schema line of a registered op:
//
//   [NAMESPACE::]NAME(TYPE NAME[=DEFAULT], ..., *, TYPE NAME, ...) -> RESULT
//
// Names and texts are copied to the schema's own memory. Errors contain the position of the
// offending character, counted from 1.
#include <ctype.h>
#include <stdio.h>

#include "call/registered.h"

typedef struct reader {
  px__schema *to;
  const char *schema_text;  // the complete schema
  const char *at;           // read position
  char *write_at;           // write position in to->text
} reader;

static px_status bad(const reader *r, const char *at, const char *format, ...) PX_PRINTF(3, 4);
static px_status bad(const reader *r, const char *at, const char *format, ...) {
  char message[256];
  va_list list;
  va_start(list, format);
  vsnprintf(message, sizeof message, format, list);
  va_end(list);
  PX_FAIL(PX_VALUE, "bad schema \"%s\", character %d: %s", r->schema_text,
          (int)(at - r->schema_text) + 1, message);
}

// ---- pieces of text

static void skip(reader *r) {
  while (*r->at == ' ' || *r->at == '\t' || *r->at == '\n') r->at++;
}

// Skips `text` and returns true if it comes next.
static bool take(reader *r, const char *text) {
  skip(r);
  size_t length = strlen(text);
  if (strncmp(r->at, text, length)) return false;
  r->at += length;
  return true;
}

static px_status expect(reader *r, const char *text) {
  if (take(r, text)) return PX_OK;
  return *r->at ? bad(r, r->at, "expected '%s', not '%.12s'", text, r->at)
                : bad(r, r->at, "expected '%s', but it ends here", text);
}

static const char *keep(reader *r, const char *from, size_t length) {
  char *to = r->write_at;
  memcpy(to, from, length);
  to[length] = 0;
  r->write_at += length + 1;
  return to;
}

static size_t word_length(const char *at) {
  size_t n = 0;
  if (isdigit((unsigned char)*at)) return 0;
  while (isalnum((unsigned char)at[n]) || at[n] == '_') n++;
  return n;
}

static px_status word(reader *r, const char **out, const char *expected) {
  skip(r);
  size_t length = word_length(r->at);
  if (!length) return bad(r, r->at, "expected %s, not '%.12s'", expected, r->at);
  *out = keep(r, r->at, length);
  r->at += length;
  return PX_OK;
}

// ---- types

static const struct {
  const char *text;
  uint8_t kind, list;  // list: kind of a list of them; PX_ARG_NONE if unsupported
} types[] = {
    {"Tensor", PX_ARG_TENSOR, PX_ARG_TENSORS}, {"Scalar", PX_ARG_SCALAR, PX_ARG_NONE},
    {"int", PX_ARG_INT, PX_ARG_INTS},          {"SymInt", PX_ARG_INT, PX_ARG_INTS},
    {"float", PX_ARG_FLOAT, PX_ARG_NONE},      {"bool", PX_ARG_BOOL, PX_ARG_NONE},
    {"Dtype", PX_ARG_DTYPE, PX_ARG_NONE},      {"ScalarType", PX_ARG_DTYPE, PX_ARG_NONE},
    {"Device", PX_ARG_DEVICE, PX_ARG_NONE},    {"str", PX_ARG_TEXT, PX_ARG_NONE},
};

// Skips aliasing annotations: "(a)" for shared memory, "(a!)" for writes.
static px_status skip_aliasing(reader *r) {
  if (*r->at != '(') return PX_OK;
  const char *start = r->at++;
  r->at += word_length(r->at);
  r->at += *r->at == '!';
  if (r->at == start + 1 || *r->at != ')')
    return bad(r, start, "expected '(a)' or '(a!)', not '%.12s'", start);
  r->at++;
  return PX_OK;
}

static px_status read_type(reader *r, px_param *p) {
  skip(r);
  const char *start = r->at;
  size_t length = word_length(start);
  int i = 0;
  while (i < PX_COUNT_OF(types) &&
         (strlen(types[i].text) != length || strncmp(types[i].text, start, length) != 0))
    i++;
  if (i == PX_COUNT_OF(types))
    return bad(r, start, "unknown type '%.*s'", length ? (int)length : 12, start);
  r->at += length;
  p->kind = types[i].kind;
  PX_TRY(skip_aliasing(r));
  if (*r->at == '[') {
    r->at++;
    while (isdigit((unsigned char)*r->at)) r->at++;
    PX_TRY(expect(r, "]"));
    p->kind = types[i].list;
    if (p->kind == PX_ARG_NONE)
      return bad(r, start, "lists of %s are not supported", types[i].text);
  }
  p->optional = *r->at == '?';
  r->at += p->optional;
  return PX_OK;
}

// ---- defaults

static px_status read_number(reader *r, px_param *p) {
  const char *start = r->at;
  bool is_true = take(r, "True"), is_bool = is_true || take(r, "False");
  if (is_bool) {
    if (p->kind != PX_ARG_BOOL && p->kind != PX_ARG_SCALAR)
      return bad(r, start, "a bool is not a valid default of '%s'", p->name);
    p->fallback = p->kind == PX_ARG_BOOL ? PX_B(is_true) : PX_S(px_bool(is_true));
    return PX_OK;
  }
  char *end;
  double real = strtod(start, &end);
  size_t length = (size_t)(end - start);
  if (!length || p->kind == PX_ARG_BOOL)
    return bad(r, start, "'%.12s' is not a valid default of '%s'", start, p->name);
  bool is_integer = strspn(start, "+-0123456789") >= length;
  if (p->kind == PX_ARG_INT && !is_integer)
    return bad(r, start, "expected an integer, not '%.*s'", (int)length, start);
  int64_t parsed = is_integer ? strtoll(start, NULL, 10) : 0;
  p->fallback = p->kind == PX_ARG_FLOAT ? PX_F(real)
                : p->kind == PX_ARG_INT ? PX_I(parsed)
                                        : PX_S(is_integer ? px_int(parsed) : px_float(real));
  r->at = end;
  return PX_OK;
}

// "[1, 2]", or a single number for a list of one.
static px_status read_ints(reader *r, px_param *p) {
  int64_t *first = r->to->ints + r->to->int_count;
  int count = 0;
  px_param one = {.name = p->name, .kind = PX_ARG_INT};
  bool list = take(r, "[");
  while (!(list && take(r, "]"))) {
    if (count == PX_MAX_DIMS) return bad(r, r->at, "the default of '%s' is too long", p->name);
    if (list && count) PX_TRY(expect(r, ","));
    skip(r);
    PX_TRY(read_number(r, &one));
    first[count++] = one.fallback.v.i;
    if (!list) break;
  }
  r->to->int_count += count;
  p->fallback = PX_IS(first, count);
  return PX_OK;
}

static px_status read_text(reader *r, px_param *p) {
  char quote = *r->at;
  const char *end = quote == '\'' || quote == '"' ? strchr(r->at + 1, quote) : NULL;
  if (!end) return bad(r, r->at, "the default of '%s' must be a quoted string", p->name);
  p->fallback = PX_TX(keep(r, r->at + 1, (size_t)(end - r->at - 1)));
  r->at = end + 1;
  return PX_OK;
}

static px_status read_dtype(reader *r, px_param *p) {
  const char *start = r->at, *name;
  px_dtype dtype;
  PX_TRY(word(r, &name, "a dtype"));
  if (px_dtype_parse(&dtype, name) != PX_OK) {
    px_error_clear();
    return bad(r, start, "unknown dtype '%s'", name);
  }
  p->fallback = PX_DT(dtype);
  return PX_OK;
}

static px_status read_default(reader *r, px_param *p) {
  skip(r);
  const char *start = r->at;
  p->has_default = true;
  p->fallback = PX_NONE();
  if (take(r, "None")) {
    bool may = p->optional || p->kind == PX_ARG_DTYPE || p->kind == PX_ARG_DEVICE;
    if (!may) return bad(r, start, "'%s' may not be None: its type has no '?'", p->name);
  } else if (p->kind == PX_ARG_INTS) {
    PX_TRY(read_ints(r, p));
  } else if (p->kind == PX_ARG_TEXT) {
    PX_TRY(read_text(r, p));
  } else if (p->kind == PX_ARG_DTYPE) {
    PX_TRY(read_dtype(r, p));
  } else {
    bool number = p->kind == PX_ARG_SCALAR || p->kind == PX_ARG_INT || p->kind == PX_ARG_FLOAT ||
                  p->kind == PX_ARG_BOOL;
    if (!number) return bad(r, start, "the default of '%s' can only be None", p->name);
    PX_TRY(read_number(r, p));
  }
  p->fallback_text = keep(r, start, (size_t)(r->at - start));
  return PX_OK;
}

// ---- parameters and results

static px_status read_param(reader *r, bool keyword_only) {
  px__schema *to = r->to;
  if (to->param_count == PX__MAX_PARAMS)
    return bad(r, r->at, "at most %d parameters are supported", PX__MAX_PARAMS);
  px_param *p = &to->params[to->param_count];
  PX_TRY(read_type(r, p));
  skip(r);
  const char *start = r->at;
  PX_TRY(word(r, &p->name, "the name of a parameter"));
  for (int i = 0; i < to->param_count; i++)
    if (!strcmp(to->params[i].name, p->name))
      return bad(r, start, "duplicate parameter '%s'", p->name);
  p->keyword_only = keyword_only;
  to->param_count++;
  return take(r, "=") ? read_default(r, p) : PX_OK;
}

static px_status read_params(reader *r) {
  bool keyword_only = false, first = true;
  PX_TRY(expect(r, "("));
  while (!take(r, ")")) {
    if (!first) PX_TRY(expect(r, ","));
    first = false;
    if (!keyword_only && take(r, "*"))
      keyword_only = true;
    else
      PX_TRY(read_param(r, keyword_only));
  }
  return PX_OK;
}

// Unnamed results are named by their index.
static px_status result_name(reader *r, const char **out) {
  static const char *const names[PX__MAX_RESULTS] = {"result0", "result1", "result2", "result3",
                                                     "result4"};
  skip(r);
  if (word_length(r->at)) return word(r, out, "the name of a result");
  if (*r->at && !strchr(",)", *r->at))
    return bad(r, r->at, "expected the name of a result, not '%.12s'", r->at);
  *out = names[r->to->result_count];
  return PX_OK;
}

static px_status read_results(reader *r) {
  px__schema *to = r->to;
  PX_TRY(expect(r, "->"));
  if (take(r, "Tensor")) {
    to->result_names[to->result_count++] = "result";
    return skip_aliasing(r);
  }
  PX_TRY(expect(r, "("));
  if (take(r, ")")) return PX_OK;
  do {
    if (to->result_count == PX__MAX_RESULTS)
      return bad(r, r->at, "at most %d results are supported", PX__MAX_RESULTS);
    PX_TRY(expect(r, "Tensor"));
    PX_TRY(skip_aliasing(r));
    PX_TRY(result_name(r, &to->result_names[to->result_count]));
    to->result_count++;
  } while (take(r, ","));
  return expect(r, ")");
}

static px_status read_name(reader *r) {
  const char *first = NULL;
  skip(r);
  const char *start = r->at;
  PX_TRY(word(r, &first, "the name of the op"));
  r->to->name = r->to->bare = first;
  if (!take(r, "::")) return PX_OK;
  PX_TRY(word(r, &r->to->bare, "the name of the op"));
  r->to->name = keep(r, start, (size_t)(r->at - start));
  return PX_OK;
}

px_status px__schema_read(px__schema *out, const char *schema) {
  reader r = {.to = out, .schema_text = schema, .at = schema};
  // Each character is copied at most twice (a name and a default's text). Each text ends in 0.
  PX_TRY(px__alloc((void **)&out->text, 4 * strlen(schema) + 4));
  r.write_at = out->text;
  PX_TRY(read_name(&r));
  PX_TRY(read_params(&r));
  PX_TRY(read_results(&r));
  skip(&r);
  return *r.at ? bad(&r, r.at, "expected the end, not '%.12s'", r.at) : PX_OK;
}

void px__schema_end(px__schema *schema) {
  px__free(schema->text);
  schema->text = NULL;
}
