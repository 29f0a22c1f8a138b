// SPDX-License-Identifier: Apache-2.0
// Describes checks in words for the C header, the reference pages and the docstrings: `not
// isfloat(alpha) or isfloat(self) or isfloat(other)` is "if alpha is floating point, unless self or
// other is floating point". Comparisons of numbers stay as written.
#include "opgen/opgen.h"

// "self is floating point", in parts. A clause without a verb is stored in `subject`.
typedef struct clause {
  const char *subject;
  const char *verb;  // singular affirmative form: a row of `verbs`
  bool affirmative;  // affirmative
  const char *rest;
  bool is_plural;  // `subject` is plural
} clause;
enum { MAX_CLAUSES = 16 };
typedef struct clauses {
  clause of[MAX_CLAUSES];
  int count;
} clauses;

static const char *const verbs[][4] = {{"is", "is not", "are", "are not"},
                                       {"has", "does not have", "have", "do not have"},
                                       {"fits", "does not fit", "fit", "do not fit"}};
static const char *conjugated(const clause *c) {
  for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
    if (!strcmp(c->verb, verbs[i][0])) return verbs[i][2 * c->is_plural + !c->affirmative];
  return c->verb;
}

static const char *clause_words(const og_node *n, bool affirmative);

// Returns `text` with its %s replaced by a word.
static const char *put(const char *text, const char *word) {
  const char *mark = strstr(text, "%s");
  return mark ? og_format("%.*s%s%s", (int)(mark - text), text, word, mark + 2) : text;
}

// ---- numbers

static const char *number_words(const og_node *n);

static const char *call_words(const og_node *n) {
  const og_function *f = og_function_of(n->text);
  if (!strcmp(n->text, "size") && n->count == 2)
    return og_format("%s.size(%s)", n->items[0]->text, number_words(n->items[1]));
  if (f && f->number && n->count) return put(f->number, n->items[0]->text);
  const char *list = "";
  for (int i = 0; i < n->count; i++)
    list = og_format("%s%s%s", list, i ? ", " : "", number_words(n->items[i]));
  return og_format("%s(%s)", n->text, list);
}

static const char *inner_words(const og_node *n) {
  const char *text = number_words(n);
  return n->kind == OG_BINARY ? og_format("(%s)", text) : text;
}

static const char *number_words(const og_node *n) {
  switch (n->kind) {
    case OG_NEGATE:
      return og_format("-%s", inner_words(n->items[0]));
    case OG_BINARY:
      return og_format("%s %s %s", inner_words(n->items[0]), n->text, inner_words(n->items[1]));
    case OG_CHOICE:
      return og_format("(%s if %s, else %s)", number_words(n->items[0]),
                       clause_words(n->items[1], true), number_words(n->items[2]));
    case OG_STRING:
      return og_format("'%s'", n->text);
    case OG_CALL:
    case OG_SHAPE:
      return call_words(n);
    default:
      return n->text;
  }
}

// ---- comparisons

static const char *inverse(const char *sign) {
  static const char *const pairs[][2] = {{"<", ">="}, {">", "<="}, {"==", "!="}};
  for (int i = 0; i < 3; i++) {
    if (!strcmp(sign, pairs[i][0])) return pairs[i][1];
    if (!strcmp(sign, pairs[i][1])) return pairs[i][0];
  }
  return sign;
}

static bool is_call(const og_node *n) { return n->kind == OG_CALL || n->kind == OG_SHAPE; }
// Returns the noun of a counting function ("dimension"), or NULL.
static const char *counted(const og_node *n) {
  const og_function *f = is_call(n) ? og_function_of(n->text) : NULL;
  return f && f->number ? f->predicate : NULL;
}
static const char *plural(const char *noun) {
  size_t end = strlen(noun) - 1;
  return noun[end] == 'y' ? og_format("%.*sies", (int)end, noun) : og_format("%ss", noun);
}

// "at least 2 dimensions"
static const char *amount(const char *sign, const og_node *count, const char *noun) {
  static const char *const words[][2] = {
      {">=", "at least "}, {">", "more than "}, {"<=", "at most "}, {"<", "fewer than "}};
  const char *number = number_words(count), *how = "";
  for (int i = 0; i < 4; i++)
    if (!strcmp(sign, words[i][0])) how = words[i][1];
  return og_format("%s%s %s", how, number, strcmp(number, "1") ? plural(noun) : noun);
}

// True for a test of a count against 0: any, or, with ==, none.
static bool tests_emptiness(const og_node *n) {
  return n->kind == OG_COMPARE && counted(n->items[0]) && !strcmp(n->items[1]->text, "0") &&
         strchr(">=!", *n->text) && strcmp(n->text, ">=");
}
static clause none_clause(const og_node *n, bool affirmative) {
  const og_node *of = n->items[0];
  bool none = (*n->text == '=') == affirmative, dims = !strcmp(of->text, "ndim");
  clause c = {
      .subject = of->items[0]->text, .verb = dims ? "has" : "is", .affirmative = dims || none};
  c.rest = dims ? og_format("%s%s", none ? "no " : "", plural(counted(of))) : "empty";
  return c;
}

static clause count_clause(const og_node *n, bool affirmative) {
  const og_node *a = n->items[0], *b = n->items[1];
  bool equal = n->text[1] == '=' && strchr("=!", *n->text);
  clause c = {.subject = a->items[0]->text,
              .verb = "has",
              .affirmative = !equal || affirmative == (*n->text == '=')};
  if (equal && is_call(b) && !strcmp(a->text, b->text))
    c.rest = og_format("as many %s as %s", plural(counted(a)), b->items[0]->text);
  else
    c.rest = amount(affirmative ? n->text : inverse(n->text), b, counted(a));
  return c;
}

// True for a <= b <= c, parsed as two comparisons that share b.
static bool is_chain(const og_node *n) {
  return n->kind == OG_LOGIC && *n->text == 'a' && n->items[0]->kind == OG_COMPARE &&
         n->items[1]->kind == OG_COMPARE && n->items[0]->items[1] == n->items[1]->items[0];
}
static clause chain_clause(const og_node *n, bool affirmative) {
  const og_node *low = n->items[0], *high = n->items[1], *middle = low->items[1];
  const char *a = number_words(low->items[0]), *b = number_words(high->items[1]);
  if (counted(middle) && low->text[1] && high->text[1])
    return (clause){.subject = middle->items[0]->text,
                    .verb = "has",
                    .affirmative = affirmative,
                    .rest = og_format("%s %s %s %s", a, atoi(a) + 1 == atoi(b) ? "or" : "to", b,
                                      plural(counted(middle)))};
  const char *text = og_format("%s %s %s %s %s", a, low->text, number_words(middle), high->text, b);
  return (clause){.subject = affirmative ? text : og_format("not %s", text)};
}

static clause comparison_clause(const og_node *n, bool affirmative) {
  const og_node *a = n->items[0], *b = n->items[1];
  if (!strncmp(n->text, "is", 2))
    return (clause){.subject = number_words(a),
                    .verb = "is",
                    .affirmative = affirmative == (n->text[2] != 0),
                    .rest = "given"};
  if (b->kind == OG_STRING)
    return (clause){.subject = number_words(a),
                    .verb = "is",
                    .affirmative = affirmative == (*n->text == '='),
                    .rest = number_words(b)};
  if (tests_emptiness(n)) return none_clause(n, affirmative);
  if (counted(a)) return count_clause(n, affirmative);
  return (clause){.subject = og_format("%s %s %s", number_words(a),
                                       affirmative ? n->text : inverse(n->text), number_words(b))};
}

// ---- clauses

// Returns the clause of a function: "has the shape of %s", the second argument.
static clause claim_of(const og_node *n, bool affirmative) {
  const og_function *f = og_function_of(n->text);
  const char *predicate = f ? f->predicate : !strcmp(n->text, "is_word") ? "is a word" : NULL;
  if (!predicate)
    return (clause){.subject = og_format("%s%s", affirmative ? "" : "not ", call_words(n))};
  const char *end = og_word_end(predicate);
  return (clause){.subject = n->items[0]->text,
                  .verb = og_copy(predicate, (size_t)(end - predicate)),
                  .affirmative = affirmative,
                  .rest = put(og_skip(end), n->count > 1 ? n->items[1]->text : "")};
}

static clause clause_of(const og_node *n, bool affirmative) {
  if (is_chain(n)) return chain_clause(n, affirmative);
  if (n->kind == OG_LOGIC && n->count == 1) return clause_of(n->items[0], !affirmative);
  if (n->kind == OG_LOGIC)
    return (clause){.subject = og_format("(%s)", clause_words(n, affirmative))};
  if (n->kind == OG_COMPARE) return comparison_clause(n, affirmative);
  if (is_call(n)) return claim_of(n, affirmative);
  return (clause){.subject = number_words(n),
                  .verb = "is",
                  .affirmative = true,
                  .rest = affirmative ? "true" : "false"};
}

// Joins "a and b" and c to "a, b and c".
static const char *listed(const char *subject, const char *joint, const char *more) {
  const char *word = og_format(" %s ", joint), *last = strstr(subject, word);
  if (last) subject = og_format("%.*s, %s", (int)(last - subject), subject, last + strlen(word));
  return og_format("%s%s%s", subject, word, more);
}
// Merges clauses with equal predicates: their subjects are joined.
static void add(clauses *all, const clause *c, const char *joint) {
  clause *last = all->count ? &all->of[all->count - 1] : NULL;
  if (last && last->verb && c->verb && !strcmp(last->verb, c->verb) &&
      last->affirmative == c->affirmative && !strcmp(last->rest, c->rest)) {
    last->subject = listed(last->subject, joint, c->subject);
    last->is_plural = *joint == 'a';
  } else if (all->count < MAX_CLAUSES) {
    all->of[all->count++] = *c;
  }
}

// Joins clauses; a repeated subject, or subject and verb, is omitted.
static const char *joined(const clauses *all, const char *joint) {
  const char *text = "";
  for (int i = 0; i < all->count; i++) {
    const clause *c = &all->of[i], *before = i ? c - 1 : NULL;
    bool goes_on = before && c->verb && before->verb && !strcmp(c->subject, before->subject);
    bool does = goes_on && !strcmp(c->verb, before->verb) && c->affirmative == before->affirmative;
    if (before) text = og_format("%s %s ", text, joint);
    if (!goes_on) text = og_format("%s%s%s", text, c->subject, c->verb ? " " : "");
    if (c->verb && !does) text = og_format("%s%s ", text, conjugated(c));
    if (c->verb) text = og_format("%s%s", text, c->rest);
  }
  return text;
}

static bool is_joint(const og_node *n) {
  return n->kind == OG_LOGIC && n->count == 2 && !is_chain(n);
}
// True for conditions that reject given or empty arguments: these read better with "if" than with
// "unless".
static bool refuses(const og_node *n) {
  if (n->kind == OG_COMPARE)
    return tests_emptiness(n) ? *n->text != '=' : !strcmp(n->text, "is") || !strcmp(n->text, "!=");
  return n->kind == OG_LOGIC && n->count == 1;
}
static bool demands(const og_node *n) { return !refuses(n); }

// Collects the conditions joined by `of`, filtered by `which`, negated if not `affirmative`.
static void collect(clauses *to, const og_node *n, const char *of, bool (*which)(const og_node *),
                    bool affirmative) {
  if (is_joint(n) && !strcmp(n->text, of)) {
    collect(to, n->items[0], of, which, affirmative);
    collect(to, n->items[1], of, which, affirmative);
  } else if (!which || which(n)) {
    clause c = clause_of(n, affirmative);
    add(to, &c, (*of == 'a') == affirmative ? "and" : "or");
  }
}
static const char *collected(const og_node *n, const char *of, bool (*which)(const og_node *),
                             bool affirmative) {
  clauses found = {.count = 0};
  collect(&found, n, of, which, affirmative);
  clause *only = found.count == 1 ? found.of : NULL;  // a single clause needs no parentheses
  if (only && *only->subject == '(' && !only->verb)
    return og_copy(only->subject + 1, strlen(only->subject) - 2);
  return joined(&found, (*of == 'a') == affirmative ? "and" : "or");
}
static const char *clause_words(const og_node *n, bool affirmative) {
  return collected(n, is_joint(n) ? n->text : "and", NULL, affirmative);
}

static const char *refusal_words(const og_node *n) {
  if (is_joint(n) && *n->text == 'a') {
    if (!*collected(n, "and", demands, true))
      return og_format("if %s", collected(n, "and", refuses, false));
    return og_format("unless %s", collected(n, "and", NULL, true));
  }
  const char *given = collected(n, "or", refuses, false),
             *wanted = collected(n, "or", demands, true);
  if (!*given) return og_format("unless %s", wanted);
  return og_format(*wanted ? "if %s, unless %s" : "if %s", given, wanted);
}

// Returns the Python exception of a status.
static const char *exception_of(const char *code) {
  static const char *const names[][2] = {
      {"RUNTIME", "RuntimeError"},     {"VALUE", "ValueError"},
      {"TYPE", "TypeError"},           {"INDEX", "IndexError"},
      {"ASSERTION", "AssertionError"}, {"UNIMPLEMENTED", "NotImplementedError"},
      {"WARN", "UserWarning"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(code, names[i][0])) return names[i][1];
  return code;
}

const char *og_check_sentence(const og_field *field, const char *prefix) {
  char *dim, *tensor;
  if (!strcmp(field->text, "device")) return NULL;  // common to all ops
  if (og_check_dimension(field, &dim, &tensor))
    return og_format("%s if %s is out of range", prefix ? "PX_INDEX" : "IndexError", dim);
  og_check c = og_check_parse(field);
  bool warns = !strcmp(c.code, "WARN");
  return og_format("%s%s %s", prefix ? prefix : "",
                   !prefix ? exception_of(c.code)
                   : warns ? "WARN_USER"
                           : c.code,
                   refusal_words(c.test));
}
