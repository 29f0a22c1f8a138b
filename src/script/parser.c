// SPDX-License-Identifier: Apache-2.0
// Syntax trees of source files. Operators become calls of the ops that PyTorch's compiler emits.
#include <stdio.h>

#include "script/script_impl.h"

typedef struct parser {
  px__lexer lexer;
  const char *qualifier, *file;
  const char **names;  // local names of the current function
  int name_count, name_capacity, nesting;
} parser;

static px_status parse_value(px__node **out, parser *p);
static px_status parse_unary(px__node **out, parser *p);

// ---- helpers

static bool at_sign(const parser *p, const char *sign) {
  const px__lexer *l = &p->lexer;
  return l->token == PX__SIGN && l->length == strlen(sign) && !memcmp(l->text, sign, l->length);
}
static bool at_word(const parser *p, const char *word) {
  const px__lexer *l = &p->lexer;
  return l->token == PX__WORD && l->length == strlen(word) && !memcmp(l->text, word, l->length);
}
static px_status advance(parser *p) { return px__lexer_next(&p->lexer); }
static px_status expect(parser *p, const char *sign) {
  if (!at_sign(p, sign) && !at_word(p, sign)) PX__FAIL_SYNTAX(&p->lexer, "expected '%s'", sign);
  return advance(p);
}
static px_status expect_token(parser *p, px__token token, const char *what) {
  if (p->lexer.token != token) PX__FAIL_SYNTAX(&p->lexer, "expected %s", what);
  return advance(p);
}
static px_status expect_name(const char **out, parser *p) {
  if (p->lexer.token != PX__WORD) PX__FAIL_SYNTAX(&p->lexer, "expected a name");
  PX_TRY(px__arena_text(out, p->lexer.script, p->lexer.text, p->lexer.length));
  return advance(p);
}

static px_status node_new(px__node **out, parser *p, px__node_kind kind) {
  PX_TRY(px__arena_alloc((void **)out, p->lexer.script, sizeof **out));
  **out = (px__node){.kind = kind, .line = p->lexer.line, .slot = -1};
  return PX_OK;
}

// Makes room for one more item of an array in the arena, which grows at powers of two.
static px_status grow(void *array, size_t size, int count, px_script *script) {
  void **old = array, *grown;
  if (count & (count - 1)) return PX_OK;
  PX_TRY(px__arena_alloc(&grown, script, (count ? 2 * (size_t)count : 1) * size));
  if (count) memcpy(grown, *old, (size_t)count * size);
  *old = grown;
  return PX_OK;
}

static px_status add_part(parser *p, px__node *node, px__node *part) {
  PX_TRY(grow(&node->parts, sizeof *node->parts, node->count, p->lexer.script));
  node->parts[node->count++] = part;
  return PX_OK;
}

// "a.b" of "a" and "b".
static px_status join(const char **out, parser *p, const char *before, const char *name) {
  size_t length = strlen(before) + strlen(name) + 2;
  char *text;
  PX_TRY(px__arena_alloc((void **)&text, p->lexer.script, length));
  snprintf(text, length, "%s.%s", before, name);
  *out = text;
  return PX_OK;
}

static px_status enter(parser *p) {
  if (p->nesting++ == PX__SCRIPT_NESTING)
    PX__FAIL_SYNTAX(&p->lexer, "the code is nested too deeply");
  return PX_OK;
}

// ---- names

static int slot_of(const parser *p, const char *name) {
  for (int i = p->name_count - 1; i >= 0; i--)
    if (px__is(p->names[i], name)) return i;
  return -1;
}

static px_status slot_new(int *out, parser *p, const char *name) {
  *out = slot_of(p, name);
  if (*out >= 0) return PX_OK;
  if (p->name_count == p->name_capacity) {
    void *memory = p->names;
    PX_TRY(px_realloc(&memory, (2 * (size_t)p->name_capacity + 16) * sizeof *p->names));
    p->names = memory;
    p->name_capacity = 2 * p->name_capacity + 16;
  }
  *out = p->name_count++;
  p->names[*out] = name;
  return PX_OK;
}

// Makes the names of a target local.
static px_status bind(parser *p, px__node *target) {
  if (target->kind == PX__NAME) {
    target->path = NULL;
    return slot_new(&target->slot, p, target->name);
  }
  bool list = target->kind == PX__TUPLE_OF || target->kind == PX__LIST_OF;
  for (int i = 0; list && i < target->count; i++) PX_TRY(bind(p, target->parts[i]));
  if (!list && target->kind != PX__ATTRIBUTE && target->kind != PX__SUBSCRIPT)
    PX__FAIL_SYNTAX(&p->lexer, "cannot assign to this expression");
  return PX_OK;
}

static px_status name_node(px__node **out, parser *p) {
  PX_TRY(node_new(out, p, PX__NAME));
  PX_TRY(expect_name(&(*out)->name, p));
  (*out)->slot = slot_of(p, (*out)->name);
  if ((*out)->slot < 0) (*out)->path = (*out)->name;
  return PX_OK;
}

static px_status attribute_node(px__node **node, parser *p) {
  px__node *of = *node;
  PX_TRY(node_new(node, p, PX__ATTRIBUTE));
  PX_TRY(add_part(p, *node, of));
  PX_TRY(expect_name(&(*node)->name, p));
  return of->path ? join(&(*node)->path, p, of->path, (*node)->name) : PX_OK;
}

// ---- expressions

static px_status literal(px__node **out, parser *p, px__var value) {
  PX_TRY(node_new(out, p, PX__LITERAL));
  (*out)->value = value;
  return advance(p);
}

static px_status string_literal(px__node **out, parser *p) {
  PX__SCOPED_VAR text = {0};
  PX__SCOPED_STRING whole = {0};
  while (p->lexer.token == PX__STRING) {  // adjacent strings are one
    PX_TRY(px__string_add(&whole, p->lexer.text, p->lexer.length));
    PX_TRY(advance(p));
  }
  PX_TRY(px__text_new(&text, p->lexer.script, whole.text, whole.length));
  PX_TRY(node_new(out, p, PX__LITERAL));
  (*out)->value = px__var_move(&text);
  return PX_OK;
}

// Reads expressions up to a closing sign; a comma may follow the last.
static px_status parse_parts(px__node *to, parser *p, const char *end, bool *comma) {
  *comma = false;
  while (!at_sign(p, end)) {
    px__node *part, *value;
    PX_TRY(parse_value(&part, p));
    if (to->kind == PX__CALL && part->kind == PX__NAME && at_sign(p, "=")) {
      PX_TRY(advance(p));
      PX_TRY(parse_value(&value, p));
      part->kind = PX__KEYWORD;
      PX_TRY(add_part(p, part, value));
    }
    PX_TRY(add_part(p, to, part));
    if (to->kind == PX__DICT_OF) {
      PX_TRY(expect(p, ":"));
      PX_TRY(parse_value(&value, p));
      PX_TRY(add_part(p, to, value));
    }
    *comma = at_sign(p, ",");
    if (!*comma) break;
    PX_TRY(advance(p));
  }
  return expect(p, end);
}

static px_status parse_brackets(px__node **out, parser *p, px__node_kind kind, const char *end) {
  bool comma;
  PX_TRY(node_new(out, p, kind));
  PX_TRY(advance(p));
  PX_TRY(parse_parts(*out, p, end, &comma));
  if (kind == PX__TUPLE_OF && (*out)->count == 1 && !comma) *out = (*out)->parts[0];
  return PX_OK;
}

static px_status parse_atom(px__node **out, parser *p) {
  const px__lexer *l = &p->lexer;
  if (l->token == PX__NUMBER) return literal(out, p, l->value);
  if (l->token == PX__STRING) return string_literal(out, p);
  if (at_word(p, "None")) return literal(out, p, px__none());
  if (at_word(p, "True")) return literal(out, p, px__of_bool(true));
  if (at_word(p, "False")) return literal(out, p, px__of_bool(false));
  if (l->token == PX__WORD) return name_node(out, p);
  if (at_sign(p, "(")) return parse_brackets(out, p, PX__TUPLE_OF, ")");
  if (at_sign(p, "[")) return parse_brackets(out, p, PX__LIST_OF, "]");
  if (at_sign(p, "{")) return parse_brackets(out, p, PX__DICT_OF, "}");
  PX__FAIL_SYNTAX(l, "expected an expression");
}

static px_status parse_postfix(px__node **out, parser *p) {
  bool comma;
  PX_TRY(parse_atom(out, p));
  for (int length = 0;; length++) {
    px__node *of = *out, *index;
    if (length == PX__SCRIPT_NESTING) PX__FAIL_SYNTAX(&p->lexer, "the code is nested too deeply");
    if (at_sign(p, ".")) {
      PX_TRY(advance(p));
      PX_TRY(attribute_node(out, p));
    } else if (at_sign(p, "(")) {
      PX_TRY(node_new(out, p, PX__CALL));
      PX_TRY(add_part(p, *out, of));
      PX_TRY(advance(p));
      PX_TRY(parse_parts(*out, p, ")", &comma));
    } else if (at_sign(p, "[")) {
      PX_TRY(node_new(out, p, PX__SUBSCRIPT));
      PX_TRY(parse_brackets(&index, p, PX__TUPLE_OF, "]"));
      PX_TRY(add_part(p, *out, of));
      PX_TRY(add_part(p, *out, index));
    } else {
      return PX_OK;
    }
  }
}

// A call of an op for an operator.
static px_status operator_call(px__node **out, parser *p, const char *path, px__node *a,
                               px__node *b) {
  px__node *callee;
  PX_TRY(node_new(&callee, p, PX__ATTRIBUTE));
  callee->path = path;
  PX_TRY(node_new(out, p, PX__CALL));
  PX_TRY(add_part(p, *out, callee));
  PX_TRY(add_part(p, *out, a));
  return b ? add_part(p, *out, b) : PX_OK;
}

static px_status parse_unary_here(px__node **out, parser *p) {
  px__node *of;
  bool minus = at_sign(p, "-"), invert = at_sign(p, "~"), not = at_word(p, "not");
  if (minus || invert || not ) {
    PX_TRY(advance(p));
    PX_TRY(parse_unary(&of, p));
    bool is_float = of->kind == PX__LITERAL && of->value.sort == PX__FLOAT;
    bool is_int = of->kind == PX__LITERAL && of->value.sort == PX__INT;
    if (!minus || !(is_float || is_int))
      return operator_call(out, p,
                           minus    ? "torch.neg"
                           : invert ? "torch.bitwise_not"
                                    : "torch.__not__",
                           of, NULL);
    if (is_float)
      of->value.v.f = -of->value.v.f;
    else
      of->value.v.i = (int64_t) - (uint64_t)of->value.v.i;
    *out = of;
    return PX_OK;
  }
  PX_TRY(parse_postfix(out, p));
  if (!at_sign(p, "**")) return PX_OK;
  px__node *base = *out;
  PX_TRY(advance(p));
  PX_TRY(parse_unary(&of, p));
  return operator_call(out, p, "torch.pow", base, of);
}
static px_status parse_unary(px__node **out, parser *p) {
  PX_TRY(enter(p));
  PX_TRY(parse_unary_here(out, p));
  p->nesting--;
  return PX_OK;
}

// Binary operators, from the loosest on.
static const struct {
  int level;
  const char *sign, *path;
} operators[] = {
    {0, "<", "torch.lt"},
    {0, "<=", "torch.le"},
    {0, ">", "torch.gt"},
    {0, ">=", "torch.ge"},
    {0, "==", "torch.eq"},
    {0, "!=", "torch.ne"},
    {0, "in", "in"},
    {0, "is", "torch.__is__"},
    {1, "|", "torch.__or__"},
    {2, "^", "torch.__xor__"},
    {3, "&", "torch.__and__"},
    {4, "<<", "torch.__lshift__"},
    {4, ">>", "torch.__rshift__"},
    {5, "+", "torch.add"},
    {5, "-", "torch.sub"},
    {6, "*", "torch.mul"},
    {6, "/", "torch.div"},
    {6, "//", "torch.floordiv"},
    {6, "%", "torch.remainder"},
    {6, "@", "torch.matmul"},
};
enum { OPERATORS = sizeof operators / sizeof *operators, LEVELS = 7 };

static int operator_at(const parser *p, int level) {
  for (int i = 0; i < OPERATORS; i++)
    if (operators[i].level == level &&
        (at_sign(p, operators[i].sign) || at_word(p, operators[i].sign)))
      return i;
  return -1;
}

static px_status parse_binary(px__node **out, parser *p, int level) {
  if (level == LEVELS) return parse_unary(out, p);
  PX_TRY(parse_binary(out, p, level + 1));
  for (int at, length = 0; (at = operator_at(p, level)) >= 0; length++) {
    px__node *right, *left = *out;
    if (length == PX__SCRIPT_NESTING) PX__FAIL_SYNTAX(&p->lexer, "the code is nested too deeply");
    PX_TRY(advance(p));
    bool is_not = px__is(operators[at].sign, "is") && at_word(p, "not");
    if (is_not) PX_TRY(advance(p));
    PX_TRY(parse_binary(&right, p, level + 1));
    if (px__is(operators[at].sign, "in"))
      PX_TRY(operator_call(out, p, "torch.__contains__", right, left));
    else
      PX_TRY(operator_call(out, p, is_not ? "torch.__isnot__" : operators[at].path, left, right));
  }
  return PX_OK;
}

static px_status parse_logic(px__node **out, parser *p, bool or) {
  PX_TRY(or ? parse_logic(out, p, false) : parse_binary(out, p, 0));
  for (int length = 0; at_word(p, or ? "or" : "and"); length++) {
    px__node *left = *out, *right;
    if (length == PX__SCRIPT_NESTING) PX__FAIL_SYNTAX(&p->lexer, "the code is nested too deeply");
    PX_TRY(advance(p));
    PX_TRY(or ? parse_logic(&right, p, false) : parse_binary(&right, p, 0));
    PX_TRY(node_new(out, p, or ? PX__OR : PX__AND));
    PX_TRY(add_part(p, *out, left));
    PX_TRY(add_part(p, *out, right));
  }
  return PX_OK;
}

static px_status parse_choice(px__node **out, parser *p) {
  px__node *condition, *other, *value;
  PX_TRY(parse_logic(&value, p, true));
  *out = value;
  if (!at_word(p, "if")) return PX_OK;
  PX_TRY(advance(p));
  PX_TRY(parse_logic(&condition, p, true));
  PX_TRY(expect(p, "else"));
  PX_TRY(parse_value(&other, p));
  PX_TRY(node_new(out, p, PX__CHOICE));
  PX_TRY(add_part(p, *out, condition));
  PX_TRY(add_part(p, *out, value));
  return add_part(p, *out, other);
}
static px_status parse_value(px__node **out, parser *p) {
  PX_TRY(enter(p));
  PX_TRY(parse_choice(out, p));
  p->nesting--;
  return PX_OK;
}

// One expression, or a tuple without brackets: "a, b".
static px_status parse_tuple(px__node **out, parser *p) {
  px__node *part;
  PX_TRY(parse_value(out, p));
  if (!at_sign(p, ",")) return PX_OK;
  part = *out;
  PX_TRY(node_new(out, p, PX__TUPLE_OF));
  PX_TRY(add_part(p, *out, part));
  while (at_sign(p, ",")) {
    PX_TRY(advance(p));
    if (at_sign(p, "=") || p->lexer.token == PX__NEWLINE) break;
    PX_TRY(parse_value(&part, p));
    PX_TRY(add_part(p, *out, part));
  }
  return PX_OK;
}

// ---- statements

static px_status parse_block(px__node **out, parser *p);

static px_status parse_if(px__node *node, parser *p) {
  px__node *part;
  PX_TRY(parse_value(&part, p));
  PX_TRY(add_part(p, node, part));
  PX_TRY(parse_block(&part, p));
  PX_TRY(add_part(p, node, part));
  if (at_word(p, "elif")) {
    px__node *inner;
    PX_TRY(node_new(&inner, p, PX__IF));
    PX_TRY(advance(p));
    PX_TRY(enter(p));
    PX_TRY(parse_if(inner, p));
    p->nesting--;
    return add_part(p, node, inner);
  }
  if (!at_word(p, "else")) return PX_OK;
  PX_TRY(advance(p));
  PX_TRY(parse_block(&part, p));
  return add_part(p, node, part);
}

static px_status parse_while(px__node *node, parser *p) {
  px__node *part;
  PX_TRY(parse_value(&part, p));
  PX_TRY(add_part(p, node, part));
  PX_TRY(parse_block(&part, p));
  return add_part(p, node, part);
}

static px_status parse_for(px__node *node, parser *p) {
  px__node *target;
  PX_TRY(parse_postfix(&target, p));
  PX_TRY(bind(p, target));
  PX_TRY(add_part(p, node, target));
  PX_TRY(expect(p, "in"));
  return parse_while(node, p);
}

static px_status parse_with(px__node *node, parser *p) {
  px__node *context, *target = NULL, *block;
  PX_TRY(parse_value(&context, p));
  if (at_word(p, "as")) {
    PX_TRY(advance(p));
    PX_TRY(name_node(&target, p));
    PX_TRY(bind(p, target));
  }
  PX_TRY(parse_block(&block, p));
  PX_TRY(add_part(p, node, context));
  PX_TRY(add_part(p, node, block));
  return target ? add_part(p, node, target) : PX_OK;
}

static px_status parse_return(px__node *node, parser *p) {
  px__node *value;
  if (p->lexer.token != PX__NEWLINE) {
    PX_TRY(parse_tuple(&value, p));
    PX_TRY(add_part(p, node, value));
  }
  return expect_token(p, PX__NEWLINE, "the end of the line");
}

static px_status parse_pass(px__node *node, parser *p) {
  (void)node;
  return expect_token(p, PX__NEWLINE, "the end of the line");
}

static const struct {
  const char *word;
  px__node_kind kind;
  px_status (*parse)(px__node *node, parser *p);
} statements[] = {{"if", PX__IF, parse_if},
                  {"while", PX__WHILE, parse_while},
                  {"for", PX__FOR, parse_for},
                  {"with", PX__WITH, parse_with},
                  {"return", PX__RETURN, parse_return},
                  {"pass", PX__PASS, parse_pass}};

// An expression, an assignment or a declaration.
static px_status parse_simple(px__node **out, parser *p) {
  px__node *first, *second;
  PX_TRY(parse_tuple(&first, p));
  bool declares = at_sign(p, ":"), assigns = at_sign(p, "=");
  PX_TRY(node_new(out, p, declares ? PX__DECLARE : assigns ? PX__ASSIGN : PX__VALUE));
  PX_TRY(add_part(p, *out, first));
  if (declares || assigns) {
    PX_TRY(advance(p));
    PX_TRY(parse_tuple(&second, p));
    PX_TRY(add_part(p, *out, second));
  }
  if (declares && at_sign(p, "=")) {
    PX_TRY(advance(p));
    PX_TRY(parse_tuple(&second, p));
    PX_TRY(add_part(p, *out, second));
    assigns = true;
  }
  if (assigns) PX_TRY(bind(p, first));
  return expect_token(p, PX__NEWLINE, "the end of the line");
}

static px_status parse_statement(px__node **out, parser *p) {
  for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
    if (!at_word(p, statements[i].word)) continue;
    PX_TRY(node_new(out, p, statements[i].kind));
    PX_TRY(advance(p));
    return statements[i].parse(*out, p);
  }
  return parse_simple(out, p);
}

static px_status parse_block(px__node **out, parser *p) {
  PX_TRY(enter(p));
  PX_TRY(expect(p, ":"));
  PX_TRY(expect_token(p, PX__NEWLINE, "the end of the line"));
  PX_TRY(expect_token(p, PX__INDENT, "an indented block"));
  PX_TRY(node_new(out, p, PX__BLOCK));
  while (p->lexer.token != PX__DEDENT) {
    px__node *statement;
    PX_TRY(parse_statement(&statement, p));
    PX_TRY(add_part(p, *out, statement));
  }
  p->nesting--;
  return advance(p);
}

// ---- definitions

static px_status definition_new(px__definition **out, parser *p, px__definition *owner) {
  px_script *script = p->lexer.script;
  const char *before = owner ? owner->name : p->qualifier;
  PX_TRY(px__arena_alloc((void **)out, script, sizeof **out));
  **out = (px__definition){.owner = owner, .file = p->file, .next = script->definitions};
  PX_TRY(expect_name(&(*out)->own, p));
  return join(&(*out)->name, p, before, (*out)->own);
}

static px_status parse_parameter(px__parameter *out, parser *p) {
  int slot, before = p->name_count;
  *out = (px__parameter){0};
  PX_TRY(expect_name(&out->name, p));
  if (at_sign(p, ":")) {
    PX_TRY(advance(p));
    PX_TRY(parse_value(&out->type, p));
  }
  if (at_sign(p, "=")) {
    PX_TRY(advance(p));
    PX_TRY(parse_value(&out->fallback, p));
  }
  PX_TRY(slot_new(&slot, p, out->name));
  if (slot != before) PX__FAIL_SYNTAX(&p->lexer, "two parameters have the name '%.60s'", out->name);
  return PX_OK;
}

static px_status parse_parameters(px__definition *to, parser *p) {
  enum { MOST = 250 };
  PX_TRY(px__arena_alloc((void **)&to->parameters, p->lexer.script, MOST * sizeof *to->parameters));
  PX_TRY(expect(p, "("));
  while (!at_sign(p, ")")) {
    if (to->parameter_count == MOST) PX__FAIL_SYNTAX(&p->lexer, "more than 250 parameters");
    PX_TRY(parse_parameter(&to->parameters[to->parameter_count++], p));
    if (!at_sign(p, ",")) break;
    PX_TRY(advance(p));
  }
  return expect(p, ")");
}

static px_status parse_function(parser *p, px__definition *owner) {
  px__definition *made;
  px__node *type;
  p->name_count = 0;
  PX_TRY(advance(p));
  PX_TRY(definition_new(&made, p, owner));
  PX_TRY(parse_parameters(made, p));
  if (at_sign(p, "->")) {
    PX_TRY(advance(p));
    PX_TRY(parse_value(&type, p));
  }
  PX_TRY(parse_block(&made->body, p));
  made->slots = p->name_count;
  p->name_count = 0;
  if (owner) {  // in the order of the file
    px__definition **last = &owner->methods;
    while (*last) last = &(*last)->next_method;
    *last = made;
  } else {
    p->lexer.script->definitions = made;
  }
  return PX_OK;
}

static px_status add_attribute(px__definition *cls, px_script *script, const char *name,
                               px__node *type, px__node *value) {
  int n = cls->attribute_count;
  PX_TRY(grow(&cls->attributes, sizeof *cls->attributes, n, script));
  PX_TRY(grow(&cls->types, sizeof *cls->types, n, script));
  PX_TRY(grow(&cls->values, sizeof *cls->values, n, script));
  PX_TRY(grow(&cls->kinds, sizeof *cls->kinds, n, script));
  cls->attributes[n] = name;
  cls->types[n] = type;
  cls->values[n] = value;
  bool final = type && type->kind == PX__SUBSCRIPT && type->parts[0]->path &&
               px__is(type->parts[0]->path, "Final");
  cls->kinds[n] = final ? 'f' : 0;
  cls->attribute_count++;
  return PX_OK;
}

// The texts of __parameters__ or __buffers__, which precede the attributes.
typedef struct tensor_names {
  const px__node *parameters, *buffers;
} tensor_names;

static bool lists(const px__node *list, const char *name) {
  for (int i = 0; list && list->kind == PX__LIST_OF && i < list->count; i++) {
    px__var text = list->parts[i]->value;
    if (list->parts[i]->kind == PX__LITERAL && text.sort == PX__TEXT &&
        px__is(text.v.box->text, name))
      return true;
  }
  return false;
}

static px_status member(px__definition *cls, parser *p, px__node *s, tensor_names *names) {
  px_script *script = p->lexer.script;
  px__node *to = s->count ? s->parts[0] : NULL;
  if (s->kind == PX__PASS || s->kind == PX__VALUE) return PX_OK;
  if (s->kind == PX__DECLARE && to->kind == PX__NAME)
    return add_attribute(cls, script, to->name, s->parts[1], s->count > 2 ? s->parts[2] : NULL);
  if (s->kind == PX__ASSIGN && to->kind == PX__SUBSCRIPT && to->parts[1]->kind == PX__LITERAL &&
      to->parts[1]->value.sort == PX__TEXT)  // __annotations__["0"] = type
    return add_attribute(cls, script, to->parts[1]->value.v.box->text, s->parts[1], NULL);
  if (s->kind != PX__ASSIGN || to->kind != PX__NAME)
    PX__FAIL_SYNTAX(&p->lexer, "unexpected statement in class %.100s", cls->own);
  if (px__is(to->name, "__parameters__")) return names->parameters = s->parts[1], PX_OK;
  if (px__is(to->name, "__buffers__")) return names->buffers = s->parts[1], PX_OK;
  if (!strncmp(to->name, "__", 2)) return PX_OK;  // hooks, by name: they are methods
  return add_attribute(cls, script, to->name, NULL, s->parts[1]);
}

static px_status parse_class(parser *p) {
  px__definition *made;
  px__node *base = NULL, *statement;
  tensor_names names = {0};
  PX_TRY(advance(p));
  PX_TRY(definition_new(&made, p, NULL));
  made->is_class = true;
  made->base = "";
  if (at_sign(p, "(")) {
    PX_TRY(advance(p));
    if (!at_sign(p, ")")) PX_TRY(parse_value(&base, p));
    PX_TRY(expect(p, ")"));
    if (base && base->path) made->base = base->path;
  }
  p->lexer.script->definitions = made;
  PX_TRY(expect(p, ":"));
  PX_TRY(expect_token(p, PX__NEWLINE, "the end of the line"));
  PX_TRY(expect_token(p, PX__INDENT, "an indented block"));
  while (p->lexer.token != PX__DEDENT) {
    p->name_count = 0;
    if (at_word(p, "def")) {
      PX_TRY(parse_function(p, made));
      continue;
    }
    PX_TRY(parse_statement(&statement, p));
    PX_TRY(member(made, p, statement, &names));
  }
  for (int i = 0; i < made->attribute_count; i++)
    if (!made->kinds[i])
      made->kinds[i] = lists(names.parameters, made->attributes[i]) ? 'p'
                       : lists(names.buffers, made->attributes[i])  ? 'b'
                                                                    : 0;
  return advance(p);
}

static px_status parse_definitions(parser *p) {
  px__node *ignored;
  PX_TRY(advance(p));
  while (p->lexer.token != PX__END) {
    p->name_count = 0;
    if (at_word(p, "def"))
      PX_TRY(parse_function(p, NULL));
    else if (at_word(p, "class"))
      PX_TRY(parse_class(p));
    else if (at_word(p, "import"))  // of older versions: names are found by their files
      while (p->lexer.token != PX__NEWLINE) PX_TRY(advance(p));
    else if (p->lexer.token == PX__NEWLINE)
      PX_TRY(advance(p));
    else  // "op_version_set = 1" of older versions
      PX_TRY(parse_simple(&ignored, p));
  }
  return PX_OK;
}

px_status px__parse_file(px_script *script, const char *file, const char *qualifier, char *text) {
  parser p = {
      .lexer = {.script = script, .file = file, .at = text, .token = PX__NEWLINE, .line = 1},
      .qualifier = qualifier,
      .file = file};
  px_status status = parse_definitions(&p);
  px_free(p.names);
  return status;
}
