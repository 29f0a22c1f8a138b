// SPDX-License-Identifier: Apache-2.0
// Formulas: text to tree, and what a tree saves of the call. Writing them as C is
// opgen_backward.c's.
#include "opgen.h"

#include <ctype.h>

typedef struct lexer {
  const char *text, *at;
  og_place place;
} lexer;

static og_node *new_node(lexer *l, og_node_kind kind, const char *text) {
  og_node *n = calloc(1, sizeof *n);
  if (!n) exit(1);
  n->kind = kind, n->text = text, n->place = l->place;
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
  if (!take(l, c)) og_die(l->place, "expected '%c' before '%s' in formula `%s`", c, l->at, l->text);
}
static void add_item(lexer *l, og_node *to, const char *key, og_node *item) {
  if (to->count == OG_MAX_PARAMS) og_die(l->place, "too many arguments in formula `%s`", l->text);
  to->keys[to->count] = key;
  to->items[to->count++] = item;
}

static og_node *parse_sum(lexer *l);

static char *take_word(lexer *l) {
  peek(l);
  const char *from = l->at;
  while (isalnum((unsigned char)*l->at) || *l->at == '_') l->at++;
  if (l->at == from)
    og_die(l->place, "expected a name before '%s' in formula `%s`", l->at, l->text);
  return og_copy(from, (size_t)(l->at - from));
}

// A keyword before an argument: `dim=`; NULL if there is none.
static const char *take_key(lexer *l) {
  const char *from = (peek(l), l->at), *at = from;
  while (isalnum((unsigned char)*at) || *at == '_') at++;
  const char *end = at;
  while (*at == ' ') at++;
  if (end == from || isdigit((unsigned char)*from) || *at != '=') return NULL;
  l->at = at + 1;
  return og_copy(from, (size_t)(end - from));
}

static og_node *parse_arguments(lexer *l, og_node *call) {
  want(l, '(');
  while (peek(l) != ')') {
    const char *key = take_key(l);
    add_item(l, call, key, parse_sum(l));
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
  static const char *const shapes[] = {"sizes", "numel", "dtype", "ndim", "turned"};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    if (!strcmp(word, shapes[i])) {
      og_node *n = parse_arguments(l, new_node(l, OG_SHAPE, word));
      if (n->count != 1 || n->items[0]->kind != OG_NAME)
        og_die(l->place, "%s() wants one name in formula `%s`", word, l->text);
      return n;
    }
  return parse_arguments(l, new_node(l, OG_CALL, word));
}

static og_node *parse_atom(lexer *l) {
  char c = peek(l);
  if (take(l, '(')) {
    og_node *inner = parse_sum(l);
    want(l, ')');
    return inner;
  }
  if (take(l, '-')) {
    og_node *n = new_node(l, OG_NEGATE, "-");
    add_item(l, n, NULL, parse_atom(l));
    return n;
  }
  if (take(l, '@')) return parse_arguments(l, new_node(l, OG_HELPER, take_word(l)));
  if (take(l, '[')) {
    og_node *n = new_node(l, OG_LIST, "");
    while (peek(l) != ']') {
      add_item(l, n, NULL, parse_sum(l));
      if (peek(l) != ']') want(l, ',');
    }
    want(l, ']');
    return n;
  }
  if (take(l, '\'')) {
    const char *from = l->at;
    while (*l->at && *l->at != '\'') l->at++;
    og_node *n = new_node(l, OG_STRING, og_copy(from, (size_t)(l->at - from)));
    want(l, '\'');
    return n;
  }
  return isdigit((unsigned char)c) || c == '.' ? parse_number(l) : parse_word(l);
}

static og_node *parse_chain(lexer *l, const char *operators, og_node *(*inner)(lexer *)) {
  og_node *left = inner(l);
  while (peek(l) && strchr(operators, *l->at)) {
    og_node *n = new_node(l, OG_BINARY, og_copy(l->at++, 1));
    add_item(l, n, NULL, left);
    add_item(l, n, NULL, inner(l));
    left = n;
  }
  return left;
}
static og_node *parse_product(lexer *l) { return parse_chain(l, "*/", parse_atom); }
static og_node *parse_sum(lexer *l) { return parse_chain(l, "+-", parse_product); }

og_node *og_formula(const char *text, og_place at) {
  lexer l = {text, text, at};
  og_node *root = parse_sum(&l);
  if (peek(&l)) og_die(at, "unexpected '%s' in formula `%s`", l.at, text);
  return root;
}

// ---- what a formula saves

static int grad_index(const og_op *op, const char *name) {
  if (!strcmp(name, "grad")) return 0;
  return strncmp(name, "grad_", 5) ? -1 : og_result_find(op, name + 5);
}

static void save_name(og_op *op, const og_node *n, bool shape_only, bool body) {
  int i = og_param_find(op, n->text);
  if (i >= 0) {
    bool holds = op->params[i].type == OG_TENSOR || op->params[i].type == OG_TENSORS;
    if (holds && shape_only) op->shape_mask |= 1u << i;
    if (holds && !shape_only) op->save_mask |= 1u << i;
    return;
  }
  if (!body && grad_index(op, n->text) >= 0) return;
  i = og_result_find(op, n->text);
  if (i < 0 || body) og_die(n->place, "unknown name '%s' in formula of %s", n->text, op->name);
  op->save_result_mask |= 1u << i;
}

static void note_helper(const char *name) {
  for (int i = 0; i < og.helper_count; i++)
    if (!strcmp(og.helpers[i], name)) return;
  og.helpers[og.helper_count++] = name;
}

static void walk(og_op *op, const og_node *n, bool shape_only, bool body) {
  if (n->kind == OG_NAME) save_name(op, n, shape_only, body);
  if (n->kind == OG_HELPER) note_helper(n->text);
  if (n->kind == OG_CALL && !og_find(n->text))
    og_die(n->place, "unknown op '%s' in formula of %s", n->text, op->name);
  for (int i = 0; i < n->count; i++) walk(op, n->items[i], n->kind == OG_SHAPE, body);
}

// Names of a list field: `masks condition`, `saves self result`.
static void analyse_names(og_op *op, const og_field *field, bool saves) {
  if (!field->text) return;
  char *names = strdup(field->text);
  for (char *name = strtok(names, ", "); name; name = strtok(NULL, ", ")) {
    int i = og_param_find(op, name), r = og_result_find(op, name);
    if (i >= 0 && saves) op->save_mask |= 1u << i;
    if (i >= 0 && !saves) op->mask_params |= 1u << i;
    if (i < 0 && saves && r >= 0) op->save_result_mask |= 1u << r;
    if (i < 0 && (r < 0 || !saves) && !(saves && !strcmp(name, "none")))
      og_die(field->place, "unknown name '%s' in a list of %s", name, op->name);
  }
}

// Whether a list field has a name.
static bool named(const og_field *field, const char *name) {
  bool found = false;
  char *names = strdup(field->text ? field->text : "");
  for (char *at = strtok(names, ", "); at; at = strtok(NULL, ", ")) found |= !strcmp(at, name);
  free(names);
  return found;
}

// `grad * = FN`: every tensor may get a gradient; what FN reads is in `saves`, else it is all.
static void analyse_whole(og_op *op) {
  for (int i = 0; i < op->param_count; i++)
    if (op->params[i].type == OG_TENSOR || op->params[i].type == OG_TENSORS) {
      if (!named(&op->nograd, op->params[i].name)) op->grad_mask |= 1u << i;
      op->shape_mask |= 1u << i;
    }
  if (op->saves.text) {
    analyse_names(op, &op->saves, true);
  } else {
    op->save_mask = op->shape_mask;
    op->save_result_mask = op->result_list ? 0 : (1u << op->result_count) - 1;
  }
}

// What one formula reads of the call: parameters in the low 16 bits, results in the high ones.
static unsigned reads(const og_op *op, const og_node *n) {
  unsigned mask = 0;
  if (n->kind == OG_SHAPE) return 0;
  if (n->kind == OG_NAME) {
    int i = og_param_find(op, n->text), r = i < 0 ? og_result_find(op, n->text) : -1;
    if (i >= 0 && (op->params[i].type == OG_TENSOR || op->params[i].type == OG_TENSORS))
      mask = 1u << i;
    if (r >= 0) mask = 1u << (16 + r);
  }
  for (int i = 0; i < n->count; i++) mask |= reads(op, n->items[i]);
  return mask;
}

void og_analyse(og_op *op) {
  analyse_names(op, &op->masks, false);
  if (op->body.text)
    walk(op, op->body_node = og_formula(op->body.text, op->body.place), false, true);
  op->save_mask = op->shape_mask = 0;
  if (op->grad_all.text) analyse_whole(op);
  for (int i = 0; i < op->param_count; i++) {
    if (!op->grads[i].text) continue;
    if (op->grad_all.text)
      og_die(op->grads[i].place, "op %s has both `grad *` and `grad %s`", op->name,
             op->params[i].name);
    op->grad_nodes[i] = og_formula(op->grads[i].text, op->grads[i].place);
    walk(op, op->grad_nodes[i], false, false);
    op->grad_mask |= 1u << i;
    op->save_for[i] = reads(op, op->grad_nodes[i]);
  }
}
