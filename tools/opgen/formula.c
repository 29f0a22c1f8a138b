// SPDX-License-Identifier: Apache-2.0
// Parses formulas and conditions into trees, and computes the saved tensors of gradients.
// compose.c writes the trees as C.
#include "opgen/opgen.h"

#include <ctype.h>

typedef struct lexer {
  const char *text, *at;
  og_location location;
} lexer;

static og_location here(const lexer *l) { return og_advance(l->location, l->text, l->at); }
static og_node *new_node(lexer *l, og_node_kind kind, const char *text) {
  og_node *n = calloc(1, sizeof *n);
  if (!n) exit(1);
  n->kind = kind, n->text = text, n->location = here(l);
  return n;
}
static char peek(lexer *l) {
  while (isspace((unsigned char)*l->at)) l->at++;
  return *l->at;
}
static bool take(lexer *l, char c) {
  if (peek(l) != c) return false;
  l->at++;
  return true;
}
static void want(lexer *l, char c) {
  if (!take(l, c)) og_die(here(l), "expected '%c' before '%s' in formula `%s`", c, l->at, l->text);
}
static void add_item(lexer *l, og_node *to, const char *key, og_node *item) {
  if (to->count == OG_MAX_PARAMS) og_die(here(l), "too many arguments in formula `%s`", l->text);
  to->keys[to->count] = key;
  to->items[to->count++] = item;
}

static og_node *parse_choice(lexer *l);
static og_node *parse_atom(lexer *l);

static char *take_word(lexer *l) {
  peek(l);
  const char *from = l->at;
  while (isalnum((unsigned char)*l->at) || *l->at == '_') l->at++;
  if (l->at == from) og_die(here(l), "expected a name before '%s' in formula `%s`", l->at, l->text);
  return og_copy(from, (size_t)(l->at - from));
}

// Consumes a keyword before an argument, e.g. `dim=`, and returns it; NULL if there is none.
static const char *take_key(lexer *l) {
  const char *from = (peek(l), l->at), *at = from;
  while (isalnum((unsigned char)*at) || *at == '_') at++;
  const char *end = at;
  while (*at == ' ') at++;
  if (end == from || isdigit((unsigned char)*from) || *at != '=' || at[1] == '=') return NULL;
  l->at = at + 1;
  return og_copy(from, (size_t)(end - from));
}

static og_node *parse_arguments(lexer *l, og_node *call) {
  want(l, '(');
  while (peek(l) != ')') {
    const char *key = take_key(l);
    add_item(l, call, key, parse_choice(l));
    if (peek(l) != ')') want(l, ',');
  }
  want(l, ')');
  return call;
}

static og_node *parse_number(lexer *l) {
  char *end;
  strtod(l->at, &end);
  og_node *n = new_node(l, OG_NUMBER, og_copy(l->at, (size_t)(end - l->at)));
  l->at = end;
  return n;
}

static og_node *parse_word(lexer *l) {
  char *word = take_word(l);
  if (!strcmp(word, "True") || !strcmp(word, "False") || !strcmp(word, "None"))
    return new_node(l, OG_CONSTANT, word);
  if (peek(l) != '(') return new_node(l, OG_NAME, word);
  static const char *const shapes[] = {"sizes",  "numel",  "dtype",  "ndim",  "is_transposed",
                                       "format", "number", "device", "least", "greatest"};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    if (!strcmp(word, shapes[i])) {
      og_node *n = parse_arguments(l, new_node(l, OG_SHAPE, word));
      if (n->count != 1 || n->items[0]->kind != OG_NAME)
        og_die(here(l), "%s() takes one name in formula `%s`", word, l->text);
      return n;
    }
  return parse_arguments(l, new_node(l, OG_CALL, word));
}

// `[a, b]`; `*a` spreads the elements of a.
static og_node *parse_list(lexer *l) {
  og_node *n = new_node(l, OG_LIST, "");
  while (peek(l) != ']') {
    og_node *all = take(l, '*') ? new_node(l, OG_SPREAD, "*") : NULL;
    og_node *item = parse_choice(l);
    if (all) add_item(l, all, NULL, item);
    add_item(l, n, NULL, all ? all : item);
    if (peek(l) != ']') want(l, ',');
  }
  want(l, ']');
  return n;
}

static og_node *parse_string(lexer *l) {
  const char *from = l->at;
  while (*l->at && *l->at != '\'') l->at++;
  og_node *n = new_node(l, OG_STRING, og_copy(from, (size_t)(l->at - from)));
  want(l, '\'');
  return n;
}

static og_node *parse_atom_here(lexer *l) {
  char c = peek(l);
  if (take(l, '(')) {
    og_node *inner = parse_choice(l);
    want(l, ')');
    return inner;
  }
  if (take(l, '-')) {
    og_node *n = new_node(l, OG_NEGATE, "-");
    add_item(l, n, NULL, parse_atom(l));
    return n;
  }
  if (take(l, '@')) return parse_arguments(l, new_node(l, OG_HELPER, take_word(l)));
  if (take(l, '[')) return parse_list(l);
  if (take(l, '\'')) return parse_string(l);
  return isdigit((unsigned char)c) || c == '.' ? parse_number(l) : parse_word(l);
}

static og_node *parse_atom(lexer *l) {
  const char *from = (peek(l), l->at);
  og_node *n = parse_atom_here(l);
  if (n->kind == OG_NAME && peek(l) == '[') {  // an element of a list
    og_node *element = new_node(l, OG_CALL, "element");
    l->at++;
    add_item(l, element, NULL, n);
    add_item(l, element, NULL, parse_choice(l));
    want(l, ']');
    n = element;
  }
  n->location = og_advance(l->location, l->text, from);
  return n;
}

// Consumes the next operator if it is in `words` and returns it, else NULL. Longer operators
// precede their prefixes in `words`.
static const char *take_operator(lexer *l, const char *const *words) {
  peek(l);
  for (; *words; words++) {
    size_t n = strlen(*words);
    bool name = isalpha((unsigned char)**words);
    if (strncmp(l->at, *words, n)) continue;
    if (name && (isalnum((unsigned char)l->at[n]) || l->at[n] == '_')) continue;
    l->at += n;
    return *words;
  }
  return NULL;
}

static og_node *two(lexer *l, og_node_kind kind, const char *text, og_node *a, og_node *b) {
  og_node *n = new_node(l, kind, text);
  n->location = a->location;
  add_item(l, n, NULL, a);
  add_item(l, n, NULL, b);
  return n;
}

static og_node *parse_chain(lexer *l, og_node_kind kind, const char *const *operators,
                            og_node *(*inner)(lexer *)) {
  og_node *left = inner(l);
  for (const char *text; (text = take_operator(l, operators));)
    left = two(l, kind, text, left, inner(l));
  return left;
}
static og_node *parse_power(lexer *l) {
  static const char *const words[] = {"**", NULL};
  return parse_chain(l, OG_BINARY, words, parse_atom);
}
static og_node *parse_product(lexer *l) {
  static const char *const words[] = {"*", "//", "/", "%", "@", NULL};
  return parse_chain(l, OG_BINARY, words, parse_power);
}
static og_node *parse_sum(lexer *l) {
  static const char *const words[] = {"+", "-", NULL};
  return parse_chain(l, OG_BINARY, words, parse_product);
}

// `a in [x, y]` is `a == x or a == y`.
static og_node *among(lexer *l, og_node *value, const og_node *list) {
  og_node *any = NULL;
  if (list->kind != OG_LIST || !list->count)
    og_die(here(l), "expected a list after 'in' in formula `%s`", l->text);
  for (int i = 0; i < list->count; i++) {
    og_node *one = two(l, OG_COMPARE, "==", value, list->items[i]);
    any = any ? two(l, OG_LOGIC, "or", any, one) : one;
  }
  return any;
}

// `a <= b < c` is `a <= b and b < c`.
static og_node *parse_comparison(lexer *l) {
  static const char *const words[] = {"<=", ">=", "==", "!=", "<", ">", "is not", "is", "in", NULL};
  og_node *left = parse_sum(l), *all = NULL;
  for (const char *text; (text = take_operator(l, words));) {
    og_node *right = parse_sum(l);
    og_node *one = *text == 'i' && text[1] == 'n' ? among(l, left, right)
                                                  : two(l, OG_COMPARE, text, left, right);
    all = all ? two(l, OG_LOGIC, "and", all, one) : one;
    left = right;
  }
  return all ? all : left;
}
static og_node *parse_not(lexer *l) {
  static const char *const words[] = {"not", NULL};
  if (!take_operator(l, words)) return parse_comparison(l);
  og_node *n = new_node(l, OG_LOGIC, "not");
  add_item(l, n, NULL, parse_not(l));
  return n;
}
static og_node *parse_and(lexer *l) {
  static const char *const words[] = {"and", NULL};
  return parse_chain(l, OG_LOGIC, words, parse_not);
}
static og_node *parse_or(lexer *l) {
  static const char *const words[] = {"or", NULL};
  return parse_chain(l, OG_LOGIC, words, parse_and);
}

// Parses `a if condition else b`; with `condition` also `a if condition`.
static og_node *parse_choice_or(lexer *l, og_node **condition) {
  static const char *const then[] = {"if", NULL}, *const otherwise[] = {"else", NULL};
  og_node *value = parse_or(l);
  if (!take_operator(l, then)) return value;
  og_node *test = parse_or(l);
  if (!take_operator(l, otherwise)) {
    if (!condition) og_die(here(l), "expected 'else' before '%s' in formula `%s`", l->at, l->text);
    *condition = test;
    return value;
  }
  og_node *n = two(l, OG_CHOICE, "if", value, test);
  add_item(l, n, NULL, parse_choice_or(l, condition));
  return n;
}
static og_node *parse_choice(lexer *l) { return parse_choice_or(l, NULL); }

og_node *og_formula_if(const char *text, og_location at, og_node **condition) {
  lexer l = {text, text, at};
  og_node *root = parse_choice_or(&l, condition);
  if (peek(&l)) og_die(here(&l), "unexpected '%s' in formula `%s`", l.at, text);
  return root;
}

og_node *og_formula(const char *text, og_location at) { return og_formula_if(text, at, NULL); }

// A let: a formula, or `STEP for INDEX in range(A, B) from NAME = START, ...`.
static og_node *parse_let(const char *text, og_location at) {
  static const char *const of[] = {"for", NULL}, *const in[] = {"in", NULL},
                           *const range[] = {"range", NULL}, *const from[] = {"from", NULL};
  lexer l = {text, text, at};
  og_node *step = parse_choice(&l);
  if (take_operator(&l, of)) {
    og_node *loop = new_node(&l, OG_LOOP, take_word(&l));
    add_item(&l, loop, NULL, step);
    bool ranges = take_operator(&l, in) && take_operator(&l, range);
    og_node *ends = parse_arguments(&l, new_node(&l, OG_LIST, ""));
    if (!ranges || ends->count != 2 || !take_operator(&l, from))
      og_die(here(&l), "expected `for NAME in range(A, B) from NAME = START` in formula `%s`",
             text);
    for (int i = 0; i < 2; i++) add_item(&l, loop, NULL, ends->items[i]);
    do {
      const char *name = take_key(&l);
      if (!name) og_die(here(&l), "expected `NAME = START` in formula `%s`", text);
      add_item(&l, loop, name, parse_choice(&l));
    } while (take(&l, ','));
    step = loop;
  }
  if (peek(&l)) og_die(here(&l), "unexpected '%s' in formula `%s`", l.at, text);
  return step;
}

bool og_in_vmap;
bool og_is_samples(const og_node *n) {
  return og_in_vmap && n->kind == OG_CALL && !strcmp(n->text, "samples") && n->count >= 1 &&
         n->count <= 2;
}
bool og_is_vmap_number(const char *name) {
  return og_in_vmap && (!strcmp(name, "batch") || !strcmp(name, "rank"));
}

const og_node *og_loop;
int og_loop_name(const char *name) {
  for (int i = 3; og_loop && i < og_loop->count; i++)
    if (!strcmp(og_loop->keys[i], name)) return i;
  return og_loop && !strcmp(og_loop->text, name);
}

// A body: one formula, or one for each result, `A, B`.
static og_node *parse_body(const char *text, og_location at) {
  lexer l = {text, text, at};
  og_node *first = parse_choice(&l), *all = NULL;
  while (take(&l, ',')) {
    if (!all) add_item(&l, all = new_node(&l, OG_LIST, ","), NULL, first);
    add_item(&l, all, NULL, parse_choice(&l));
  }
  if (peek(&l)) og_die(here(&l), "unexpected '%s' in formula `%s`", l.at, text);
  return all ? all : first;
}

// ---- saved tensors

int og_grad_find(const og_op *op, const char *name) {
  if (og_result_find(op, name) >= 0) return -1;
  if (!strcmp(name, "grad")) return 0;
  return strncmp(name, "grad_", 5) ? -1 : og_result_find(op, name + 5);
}

const og_let *og_let_find(const og_op *op, const char *name, int *which) {
  for (int k = 0; k < op->let_count; k++)
    for (int i = 0; i < op->lets[k].count; i++)
      if (!strcmp(op->lets[k].names[i], name)) return *which = i, &op->lets[k];
  return NULL;
}

static void walk(og_op *op, og_node *n, bool shape_only, bool body);

// The C expression of inf or nan; NULL for other names.
const char *og_constant_named(const char *name) {
  if (!strcmp(name, "inf")) return "(double)INFINITY";
  return strcmp(name, "nan") ? NULL : "(double)NAN";
}

static void save_name(og_op *op, og_node *n, bool shape_only, bool body) {
  int i = og_param_find(op, n->text), which;
  const og_let *let = og_let_find(op, n->text, &which);
  if (let) {
    const og_node *loop = og_loop;
    og_loop = NULL;
    walk(op, let->node, false, body);
    og_loop = loop;
    return;
  }
  if (!strcmp(n->text, "recording") || (i < 0 && og_loop_name(n->text))) return;
  if (i < 0 && og_is_vmap_number(n->text)) return;
  if (i < 0 && og_constant_named(n->text)) {
    n->kind = OG_NUMBER, n->text = og_constant_named(n->text);
    return;
  }
  if (i >= 0) {
    bool holds = op->params[i].type == OG_TENSOR || op->params[i].type == OG_TENSORS;
    if (holds && shape_only) op->shape_mask |= 1u << i;
    if (holds && !shape_only) op->save_mask |= 1u << i;
    return;
  }
  if (!body && og_grad_find(op, n->text) >= 0) return;
  i = og_result_find(op, n->text);
  if (i < 0 || body) og_die(n->location, "unknown name '%s' in formula of %s", n->text, op->name);
  op->save_result_mask |= 1u << i;
}

// Walks a dtype, in which tensors count as geometry.
static void walk_dtype(og_op *op, og_node *n, bool body) {
  int which;
  if (n->kind == OG_NAME && (og_param_find(op, n->text) >= 0 || og_let_find(op, n->text, &which)))
    save_name(op, n, true, body);
  for (int i = 0; i < n->count; i++)
    if (n->kind == OG_CHOICE && i == 1)
      walk(op, n->items[i], true, body);
    else
      walk_dtype(op, n->items[i], body);
}
// True if argument i of a call is a dtype.
static bool takes_dtype(const og_node *call, int i) {
  const og_op *op = og_callee(call->text);
  int at = op && call->keys[i] ? og_param_find(op, call->keys[i]) : i;
  return op && at >= 0 && at < op->param_count && op->params[at].type == OG_DTYPE;
}

static void walk_loop(og_op *op, og_node *n, bool body) {
  for (int i = 1; i < n->count; i++) walk(op, n->items[i], i < 3, body);
  og_loop = n;
  walk(op, n->items[0], false, body);
  og_loop = NULL;
}

static void walk(og_op *op, og_node *n, bool shape_only, bool body) {
  if (n->kind == OG_LOOP) {
    walk_loop(op, n, body);
    return;
  }
  if (n->kind == OG_NAME) save_name(op, n, shape_only, body);
  if (n->kind == OG_HELPER && !og_helper(n->text))
    og_die(n->location, "unknown helper '%s' in formula of %s", n->text, op->name);
  bool geometry = n->kind == OG_SHAPE || og_is_condition_call(n) || og_is_shape_call(n);
  if (n->kind == OG_CALL && !geometry && !og_is_read(n) && !og_is_samples(n) && !og_callee(n->text))
    og_die(n->location, "unknown op '%s' in formula of %s", n->text, op->name);
  for (int i = 0; i < n->count; i++)
    if (n->kind == OG_CALL && !geometry && takes_dtype(n, i))
      walk_dtype(op, n->items[i], body);
    else
      walk(op, n->items[i], geometry || shape_only, body);
}

// Tensors that are conditions of `select` in an expression are masks.
static void find_masks(og_op *op) {
  for (const char *at = op->expr.text; at && (at = strstr(at, "select("));) {
    at += strlen("select(");
    const char *end = og_word_end(at);
    int i = *end == ',' ? og_param_find(op, og_copy(at, (size_t)(end - at))) : -1;
    if (i >= 0 && og_is_tensor(&op->params[i])) op->mask_params |= 1u << i;
  }
}

// Analyses `saves self result`.
static void analyse_saves(og_op *op) {
  char *names = strdup(op->saves.text);
  for (char *name = strtok(names, ", "); name; name = strtok(NULL, ", ")) {
    int i = og_param_find(op, name), r = og_result_find(op, name);
    if (i >= 0) op->save_mask |= 1u << i;
    if (i < 0 && r >= 0) op->save_result_mask |= 1u << r;
    if (i < 0 && r < 0 && strcmp(name, "none") != 0)
      og_die(op->saves.location, "unknown name '%s' in a list of %s", name, op->name);
  }
}

// True if a list field contains a name.
static bool named(const og_field *field, const char *name) {
  bool found = false;
  char *names = strdup(field->text ? field->text : "");
  for (char *at = strtok(names, ", "); at; at = strtok(NULL, ", ")) found |= !strcmp(at, name);
  free(names);
  return found;
}

// `grad * = FN`: every tensor may get a gradient. FN reads the names in `saves`, by default all.
static void analyse_whole(og_op *op) {
  for (int i = 0; i < op->param_count; i++)
    if (op->params[i].type == OG_TENSOR || op->params[i].type == OG_TENSORS) {
      if (!named(&op->nograd, op->params[i].name)) op->grad_mask |= 1u << i;
      op->shape_mask |= 1u << i;
    }
  if (op->saves.text) {
    analyse_saves(op);
  } else {
    op->save_mask = op->shape_mask;
    op->save_result_mask = op->result_list ? 0 : (1u << op->result_count) - 1;
  }
}

// Returns the mask of values read by a formula: parameters in the low 16 bits, results in the high
// ones.
static unsigned reads(const og_op *op, const og_node *n) {
  unsigned mask = 0;
  if (n->kind == OG_SHAPE || og_is_condition_call(n) || og_is_shape_call(n)) return 0;
  if (n->kind == OG_NAME) {
    int which;
    const og_let *let = og_let_find(op, n->text, &which);
    if (let) return reads(op, let->node);
    int i = og_param_find(op, n->text), r = i < 0 ? og_result_find(op, n->text) : -1;
    if (i >= 0 && (op->params[i].type == OG_TENSOR || op->params[i].type == OG_TENSORS))
      mask = 1u << i;
    if (r >= 0) mask = 1u << (16 + r);
  }
  for (int i = 0; i < n->count; i++) mask |= reads(op, n->items[i]);
  return mask;
}

// Parses `do CALL` or `do CALL if CONDITION`, which is `CALL if CONDITION else None`.
static og_let act_of(const og_field *f) {
  og_node *test = NULL, *node = og_formula_if(f->text, f->location, &test);
  if (test) {
    lexer l = {f->text, f->text, f->location};
    node = two(&l, OG_CHOICE, "if", node, test);
    add_item(&l, node, NULL, new_node(&l, OG_CONSTANT, "None"));
  }
  return (og_let){{"do"}, 1, node, .acts = true};
}

// Parses `let NAMES = FORMULA`. A formula may read earlier lets.
static void analyse_lets(og_op *op) {
  int count = op->let_count;
  for (op->let_count = 0; op->let_count < count;) {
    const og_field *f = &op->let_fields[op->let_count];
    if (!strcmp(f->name, "do")) {
      if (!op->body.text) og_die(f->location, "do of %s, which has no body", op->name);
      op->lets[op->let_count++] = act_of(f);
      continue;
    }
    og_let let = {.count = 0};
    char *equals = strchr(f->text, '=');
    if (!equals) og_die(f->location, "expected `let NAME = FORMULA`");
    char *names = og_trimmed(f->text, equals);
    for (char *name = strtok(names, ", "); name; name = strtok(NULL, ", ")) {
      int which;
      if (let.count == OG_OP_RESULTS)
        og_die(f->location, "too many names in a let of %s", op->name);
      if (og_param_find(op, name) >= 0 || og_let_find(op, name, &which))
        og_die(f->location, "'%s' of %s is already a name", name, op->name);
      let.names[let.count++] = name;
    }
    const char *formula = og_skip(equals + 1);
    let.node = parse_let(formula, og_advance(f->location, f->text, formula));
    op->lets[op->let_count++] = let;
  }
}

// Walks a body, the calls before it, and the checks of its lets.
static void walk_body(og_op *op) {
  walk(op, op->body_node, false, true);
  for (int k = 0; k < op->let_count; k++)
    if (op->lets[k].acts) walk(op, op->lets[k].node, false, true);
  for (int i = 0; i < op->check_count; i++)
    if (og_check_let(op, &op->checks[i]) >= 0)
      walk(op, og_check_parse(&op->checks[i]).test, true, true);
}
void og_analyse_body(og_op *op) { walk_body(op); }

void og_analyse(og_op *op) {
  find_masks(op);
  analyse_lets(op);
  if (op->body.text) {
    op->body_node = parse_body(op->body.text, op->body.location);
    walk_body(op);
  }
  if (op->complex.text)
    walk(op, op->complex_node = og_formula(op->complex.text, op->complex.location), false, true);
  if (op->of_unsigned.text && !op->complex.text)
    walk(op, op->unsigned_node = og_formula(op->of_unsigned.text, op->of_unsigned.location), false,
         true);
  if (og_vmap_formula(op)) {
    op->vmap_node = og_formula(og_vmap_formula(op), op->vmap.location);
    const og_node *n = op->vmap_node;
    bool other = n->kind == OG_CHOICE && og_is_vmap_rule(n->items[2]);
    og_in_vmap = true;
    walk(op, other ? n->items[0] : op->vmap_node, false, true);
    og_in_vmap = false;
  }
  op->save_mask = op->shape_mask = 0;
  if (op->grad_all.text) analyse_whole(op);
  for (int i = 0; i < op->param_count; i++) {
    if (!op->grads[i].text) continue;
    if (op->grad_all.text)
      og_die(op->grads[i].location, "op %s has both `grad *` and `grad %s`", op->name,
             op->params[i].name);
    op->grad_nodes[i] = og_formula(op->grads[i].text, op->grads[i].location);
    walk(op, op->grad_nodes[i], false, false);
    op->grad_mask |= 1u << i;
    op->save_for[i] = reads(op, op->grad_nodes[i]);
  }
}

bool og_mentions(const og_node *n, const char *name) {
  if (!n) return false;
  if (n->kind == OG_NAME && !strcmp(n->text, name)) return true;
  for (int i = 0; i < n->count; i++)
    if (og_mentions(n->items[i], name)) return true;
  return false;
}

bool og_mentioned(const og_node *const *nodes, int count, const char *name) {
  for (int k = 0; k < count; k++)
    if (og_mentions(nodes[k], name)) return true;
  return false;
}
