// SPDX-License-Identifier: Apache-2.0
// Translates the arithmetic of optimisers and schedules to text: C in double precision, expressions
// of kernels (input of og_rewrite), and Python.
#include "opgen/opgen.h"

#include <ctype.h>

// Functions of formulas in each language.
static const struct {
  const char *name;
  int count;
  const char *host, *element, *python;  // NULL: not available
} functions[] = {{"sqrt", 1, "sqrt", "sqrt", "sqrt"},
                 {"exp", 1, "exp", "exp", "exp"},
                 {"abs", 1, "fabs", "abs", "abs"},
                 {"max", 2, "fmax", "max", "max"},
                 {"min", 2, "fmin", "min", "min"},
                 {"sign", 1, NULL, "sign", "sign"},
                 {"floor", 1, "floor", NULL, "floor"},
                 {"cos", 1, "cos", NULL, "cos"},
                 {"log", 1, "log", NULL, "log"},
                 {"milestones_hit", 0, "px__milestones_hit", NULL, NULL},
                 {"milestones_passed", 0, "px__milestones_passed", NULL, NULL},
                 {"restarts", 2, "px__restarts", NULL, NULL}};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

static const char *condition(const og_node *n, og_language in) {
  const char *text = og_arith(n, in);
  if (n->kind == OG_COMPARE || n->kind == OG_LOGIC || in == OG_PYTHON) return text;
  return og_format("(%s != 0)", text);
}

static const char *call(const og_node *n, og_language in) {
  const char *name = NULL, *list = "";
  for (int i = 0; i < FUNCTIONS; i++) {
    if (strcmp(functions[i].name, n->text) || functions[i].count != n->count) continue;
    name = in == OG_HOST      ? functions[i].host
           : in == OG_ELEMENT ? functions[i].element
                              : functions[i].python;
  }
  if (!name) og_die(n->location, "unknown function '%s' of %d arguments here", n->text, n->count);
  for (int i = 0; i < n->count; i++)
    list = og_format("%s%s%s", list, i ? ", " : "", og_arith(n->items[i], in));
  if (strncmp(name, "px__", 4)) return og_format("%s(%s)", name, list);
  return og_format("%s(at%s%s)", name, n->count ? ", " : "", list);  // function of a schedule
}

static const char *binary(const og_node *n, og_language in) {
  const char *a = og_arith(n->items[0], in), *b = og_arith(n->items[1], in);
  if (in == OG_PYTHON || strchr("+-*/", *n->text)) {
    if (in == OG_PYTHON || !n->text[1]) return og_format("(%s %s %s)", a, n->text, b);
    if (!strcmp(n->text, "**")) return og_format("pow(%s, %s)", a, b);
  }
  if (in == OG_HOST && !strcmp(n->text, "%")) return og_format("fmod(%s, %s)", a, b);
  og_die(n->location, "'%s' is not allowed here", n->text);
}

static const char *logic(const og_node *n, og_language in) {
  const char *a = condition(n->items[0], in);
  bool python = in == OG_PYTHON;
  if (n->count == 1) return og_format(python ? "(not %s)" : "!%s", a);
  const char *sign = python ? n->text : *n->text == 'a' ? "&&" : "||";
  return og_format("(%s %s %s)", a, sign, condition(n->items[1], in));
}

static const char *choice(const og_node *n, og_language in) {
  const char *yes = og_arith(n->items[0], in), *no = og_arith(n->items[2], in);
  const char *test = condition(n->items[1], in);
  return in == OG_PYTHON    ? og_format("choose(%s, lambda: %s, lambda: %s, param)", test, yes, no)
         : in == OG_ELEMENT ? og_format("select(%s, %s, %s)", test, yes, no)
                            : og_format("(%s ? %s : %s)", test, yes, no);
}

static const char *number(const char *text, og_language in) {
  return in == OG_HOST && !strpbrk(text, ".eE") ? og_format("%s.0", text) : text;
}

const char *og_arith(const og_node *n, og_language in) {
  switch (n->kind) {
    case OG_NAME:
      return n->text;
    case OG_NUMBER:
      return number(n->text, in);
    case OG_CONSTANT:
      return in == OG_PYTHON ? n->text : *n->text == 'T' ? "1" : "0";
    case OG_NEGATE:
      return og_format("(-%s)", og_arith(n->items[0], in));
    case OG_BINARY:
      return binary(n, in);
    case OG_COMPARE:
      if (!strncmp(n->text, "is", 2)) break;
      return og_format("(%s %s %s)", og_arith(n->items[0], in), n->text, og_arith(n->items[1], in));
    case OG_LOGIC:
      return logic(n, in);
    case OG_CHOICE:
      return choice(n, in);
    case OG_CALL:
      return call(n, in);
    default:
      break;
  }
  og_die(n->location, "'%s' is not allowed here", n->text);
}

const char *og_arith_test(const og_node *n, og_language in) { return condition(n, in); }

void og_names(const og_node *n, void (*each)(const og_node *name, void *context), void *context) {
  if (n->kind == OG_NAME) each(n, context);
  for (int i = 0; i < n->count; i++) og_names(n->items[i], each, context);
}

// ---- checks: CONDITION : CODE "text"

const char *og_with_lines(char *text) {
  for (char *at = strstr(text, "\\n"); at; at = strstr(at, "\\n")) {
    *at = '\n';
    memmove(at + 1, at + 2, strlen(at + 2) + 1);
  }
  return text;
}

og_check og_check_parse(const og_field *field) {
  const char *colon = strstr(field->text, " : ");
  og_check c = {.location = field->location};
  if (!colon) og_die(field->location, "expected `check CONDITION : CODE \"text\"`");
  c.test = og_formula(og_trimmed(field->text, colon), field->location);
  const char *code = og_skip(colon + 3), *end = og_word_end(code), *text = og_skip(end);
  c.code = og_copy(code, (size_t)(end - code));
  const char *last = text + strlen(text) - 1;
  if (*text != '"' || last == text || *last != '"')
    og_die(field->location, "expected a text in quotes, not '%s'", text);
  c.text = og_with_lines(og_copy(text + 1, (size_t)(last - text - 1)));
  return c;
}

bool og_check_dimension(const og_field *field, char **dim, char **tensor) {
  const char *end = og_word_end(field->text), *of = og_skip(end);
  if (strncmp(of, "of ", 3)) return false;
  *dim = og_copy(field->text, (size_t)(end - field->text));
  *tensor = og_trimmed(of + 3, of + strlen(of));
  return true;
}

// Turns the text into a printf format; its {names} are the arguments.
void og_write_check(FILE *to, const og_check *c, const og_param *params, int count) {
  const char *format = "", *arguments = "";
  for (const char *at = c->text; *at;) {
    if (*at == '{') {
      const char *end = strchr(at, '}');
      if (!end) og_die(c->location, "unmatched '{' in \"%s\"", c->text);
      const char *name = og_copy(at + 1, (size_t)(end - at - 1));
      int i = og_param_named(params, count, name);
      bool is_integer = i >= 0 && params[i].type == OG_INT;
      arguments =
          og_format("%s, PX__%s_TEXT(%s)", arguments, is_integer ? "WHOLE" : "NUMBER", name);
      format = og_format("%s%%s", format);
      at = end + 1;
    } else {
      format = og_format("%s%s%c", format, *at == '%' ? "%" : "", *at);
      at++;
    }
  }
  fprintf(to, "PX_CHECK(%s, PX_%s, %s%s);\n", og_arith_test(c->test, OG_HOST), c->code,
          og_quote(format), arguments);
}

// ---- bodies of functions

// True if a name occurs in C text.
static bool mentions(const char *text, const char *name) {
  size_t n = strlen(name);
  for (const char *at = text; (at = strstr(at, name)); at += n) {
    bool begins = at == text || !(isalnum((unsigned char)at[-1]) || at[-1] == '_');
    if (begins && !(isalnum((unsigned char)at[n]) || at[n] == '_')) return true;
  }
  return false;
}

void og_declare(FILE *to, const og_body *body, const char *name, const char *value) {
  if (mentions(body->text, name)) fprintf(to, "  const double %s = %s;\n", name, value);
}

FILE *og_body_begin(og_body *b) {
  b->file = open_memstream(&b->text, &b->length);
  if (!b->file) exit(1);
  return b->file;
}
void og_body_end(og_body *b) { fclose(b->file); }
