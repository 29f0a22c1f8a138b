// SPDX-License-Identifier: Apache-2.0
// Translates numbers and conditions to C expressions: `in_channels // groups`, `0 <= p <= 1`,
// `stride is None`. The caller resolves names (og_resolver). Arithmetic is Python's on integers and
// floats, with the helpers of conditions.h where C differs.
#include "opgen/opgen.h"

static og_value plain(og_type type, const char *c) { return (og_value){.type = type, .c = c}; }

static bool is_number(og_type type) {
  return type == OG_INT || type == OG_FLOAT || type == OG_BOOL || type == OG_SCALAR;
}

static og_value number_of(const og_node *n, og_resolver resolve, void *context) {
  og_value v = og_number(n, resolve, context);
  if (!is_number(v.type)) og_die(n->location, "'%s' is not a number", n->text);
  return v;
}

static og_value integer_arithmetic(const og_node *n, const char *a, const char *b) {
  static const char *const functions[][2] = {
      {"+", "sum"}, {"-", "difference"}, {"*", "product"}, {"//", "quotient"}, {"%", "remainder"}};
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (!strcmp(n->text, functions[i][0]))
      return plain(OG_INT, og_format("px__%s(%s, %s)", functions[i][1], a, b));
  og_die(n->location, "'%s' is not defined for integers", n->text);
}

static og_value arithmetic(const og_node *n, og_resolver resolve, void *context) {
  og_value a = number_of(n->items[0], resolve, context);
  og_value b = number_of(n->items[1], resolve, context);
  bool real = a.type == OG_FLOAT || b.type == OG_FLOAT;
  if (!strcmp(n->text, "**")) return plain(OG_FLOAT, og_format("pow(%s, %s)", a.c, b.c));
  if (!strcmp(n->text, "/")) return plain(OG_FLOAT, og_format("((double)%s / %s)", a.c, b.c));
  if (!real) return integer_arithmetic(n, a.c, b.c);
  if (n->text[1] || *n->text == '%') og_die(n->location, "'%s' requires integers", n->text);
  return plain(OG_FLOAT, og_format("(%s %s %s)", a.c, n->text, b.c));
}

// `x is None`, `x is not None`.
static og_value absence(const og_node *n, og_resolver resolve, void *context) {
  const og_node *none = n->items[1];
  if (none->kind != OG_CONSTANT || strcmp(none->text, "None"))
    og_die(n->location, "'%s' requires None on its right side", n->text);
  og_value v = og_number(n->items[0], resolve, context);
  const char *absent = v.absent ? v.absent : "false";
  return plain(OG_BOOL, n->text[2] ? og_format("!(%s)", absent) : absent);
}

// An absent argument, or one without a text, differs from every text.
static og_value text_comparison(const og_node *n, og_value a, og_value b) {
  const char *no = !strcmp(n->text, "==") ? "" : "!", *text = a.worded ? a.text : a.c;
  if (*n->text != '=' && *n->text != '!') og_die(n->location, "strings support == and != only");
  const char *given = a.worded   ? og_format("%s && ", a.worded)
                      : a.absent ? og_format("!(%s) && ", a.absent)
                                 : "";
  return plain(OG_BOOL, og_format("%s(%s!strcmp(%s, %s))", no, given, text, b.c));
}

static og_value comparison(const og_node *n, og_resolver resolve, void *context) {
  if (!strncmp(n->text, "is", 2)) return absence(n, resolve, context);
  og_value a = og_number(n->items[0], resolve, context);
  og_value b = og_number(n->items[1], resolve, context);
  if (b.type == OG_TEXT && (a.type == OG_TEXT || a.worded)) return text_comparison(n, a, b);
  if (!is_number(b.type)) og_die(n->location, "'%s' compares a number with a non-number", n->text);
  if (a.type == OG_INTS)  // holds for all elements
    return plain(OG_BOOL, og_format("px__all(%s, %s, \"%s\", %s)", a.c, a.n, n->text, b.c));
  if (!is_number(a.type)) og_die(n->location, "'%s' compares a number with a non-number", n->text);
  return plain(OG_BOOL, og_format("(%s %s %s)", a.c, n->text, b.c));
}

static og_value logic(const og_node *n, og_resolver resolve, void *context) {
  const char *a = og_condition(n->items[0], resolve, context);
  if (!strcmp(n->text, "not")) return plain(OG_BOOL, og_format("!%s", a));
  const char *b = og_condition(n->items[1], resolve, context);
  return plain(OG_BOOL, og_format("(%s %s %s)", a, *n->text == 'a' ? "&&" : "||", b));
}

static og_value choice(const og_node *n, og_resolver resolve, void *context) {
  const char *test = og_condition(n->items[1], resolve, context);
  og_value first = og_number(n->items[0], resolve, context);
  og_value last = og_number(n->items[2], resolve, context);
  if (first.type == OG_TEXT && last.type == OG_TEXT)
    return plain(OG_TEXT, og_format("(%s ? %s : %s)", test, first.c, last.c));
  og_value a = number_of(n->items[0], resolve, context);
  og_value b = number_of(n->items[2], resolve, context);
  bool real = a.type == OG_FLOAT || b.type == OG_FLOAT;
  return plain(real ? OG_FLOAT : OG_INT, og_format("(%s ? %s : %s)", test, a.c, b.c));
}

// is_word(x): true if x is a word in place of numbers. list(x): x as a list; a single number is a
// list of one.
static og_value function(const og_node *n, og_resolver resolve, void *context) {
  if (strcmp(n->text, "is_word") && strcmp(n->text, "list")) return resolve(n, context);
  if (n->count != 1) og_die(n->location, "%s() takes one argument", n->text);
  og_value v = og_number(n->items[0], resolve, context);
  if (!strcmp(n->text, "is_word") && v.worded) return plain(OG_BOOL, v.worded);
  if (!strcmp(n->text, "list") && v.type == OG_INTS) return v.n ? v : plain(OG_INTS, v.c);
  og_die(n->location, "unknown function '%s' in a condition, or for that argument", n->text);
}

static og_value constant(const og_node *n) {
  if (!strcmp(n->text, "None")) return (og_value){.type = OG_TYPE_COUNT, .c = "", .absent = "true"};
  return plain(OG_BOOL, !strcmp(n->text, "True") ? "true" : "false");
}

og_value og_number(const og_node *n, og_resolver resolve, void *context) {
  switch (n->kind) {
    case OG_NAME:
    case OG_SHAPE:
      return resolve(n, context);
    case OG_NUMBER:
      return plain(strpbrk(n->text, ".eE") ? OG_FLOAT : OG_INT, n->text);
    case OG_STRING:
      return plain(OG_TEXT, og_quote(n->text));
    case OG_CONSTANT:
      return constant(n);
    case OG_NEGATE: {
      og_value v = number_of(n->items[0], resolve, context);
      if (v.type == OG_FLOAT || n->items[0]->kind == OG_NUMBER)
        return plain(v.type, og_format("-%s", v.c));
      return plain(OG_INT, og_format("px__difference(0, %s)", v.c));
    }
    case OG_BINARY:
      return arithmetic(n, resolve, context);
    case OG_COMPARE:
      return comparison(n, resolve, context);
    case OG_LOGIC:
      return logic(n, resolve, context);
    case OG_CHOICE:
      return choice(n, resolve, context);
    case OG_CALL:
      return function(n, resolve, context);
    default:
      og_die(n->location, "'%s' is not a number", n->text);
  }
}

const char *og_integer(const og_node *n, og_resolver resolve, void *context) {
  og_value v = og_number(n, resolve, context);
  if (v.type != OG_INT && v.type != OG_BOOL) og_die(n->location, "'%s' is not an integer", n->text);
  return v.c;
}

// Strips the outer parentheses: `if` has its own.
const char *og_test(const og_node *n, og_resolver resolve, void *context) {
  const char *c = og_condition(n, resolve, context);
  size_t length = strlen(c);
  int depth = 0;
  for (size_t i = 0; i < length; i++) {
    depth += (c[i] == '(') - (c[i] == ')');
    if (depth == 0 && i + 1 < length) return c;
  }
  return *c == '(' ? og_copy(c + 1, length - 2) : c;
}

const char *og_condition(const og_node *n, og_resolver resolve, void *context) {
  og_value v = number_of(n, resolve, context);
  return v.type == OG_BOOL ? v.c : og_format("(%s != 0)", v.c);
}
