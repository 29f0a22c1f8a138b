// SPDX-License-Identifier: Apache-2.0
// Reads one table: entries, their schema lines and fields.
#include "opgen.h"

#include <ctype.h>

const og_type_row og_types[OG_TYPE_COUNT] = {
    [OG_TENSOR] = {"Tensor", "PX_ARG_TENSOR", "const px_tensor *", "const px_tensor *", "PX_T",
                   "Tensor"},
    [OG_TENSORS] = {"Tensor[]", "PX_ARG_TENSORS", "px_tensor *const *", "px_tensor *const *",
                    "PX_TS", "Sequence[Tensor]"},
    [OG_SCALAR] = {"Scalar", "PX_ARG_SCALAR", "px_scalar ", "px_scalar ", "PX_S", "Number"},
    [OG_INT] = {"int", "PX_ARG_INT", "int64_t ", "const int64_t *", "PX_I", "int"},
    [OG_FLOAT] = {"float", "PX_ARG_FLOAT", "double ", "const double *", "PX_F", "float"},
    [OG_BOOL] = {"bool", "PX_ARG_BOOL", "bool ", "const bool *", "PX_B", "bool"},
    [OG_INTS] = {"int[]", "PX_ARG_INTS", "const int64_t *", "const int64_t *", "PX_IS",
                 "Union[int, Sequence[int]]"},
    [OG_DTYPE] = {"Dtype", "PX_ARG_DTYPE", "px_dtype ", "px_dtype ", "PX_DT", "dtype"},
    [OG_DEVICE] = {"Device", "PX_ARG_DEVICE", "px_device ", "px_device ", "PX_DV",
                   "Union[str, int, device]"},
    [OG_TEXT] = {"str", "PX_ARG_TEXT", "const char *", "const char *", "PX_TX", "str"},
    [OG_GENERATOR] = {"Generator", "PX_ARG_GENERATOR", "px_generator *", "px_generator *", "PX_G",
                      "Generator"},
};

static const char *skip(const char *at) {
  while (*at == ' ' || *at == '\t') at++;
  return at;
}
static const char *word_end(const char *at) {
  while (isalnum((unsigned char)*at) || *at == '_') at++;
  return at;
}
static char *trimmed(const char *from, const char *to) {
  while (from < to && isspace((unsigned char)*from)) from++;
  while (to > from && isspace((unsigned char)to[-1])) to--;
  return og_copy(from, (size_t)(to - from));
}

// ---- the schema line

// The end of a parameter's text: a comma or parenthesis outside of brackets and quotes.
static const char *param_end(const char *at, og_place place) {
  int depth = 0;
  bool quoted = false;
  for (; *at; at++) {
    if (*at == '\'') quoted = !quoted;
    if (quoted) continue;
    if (*at == '[' || *at == '(') depth++;
    if (*at == ']' || (*at == ')' && depth > 0)) {
      depth--;
      continue;
    }
    if (depth == 0 && (*at == ',' || *at == ')')) return at;
  }
  og_die(place, "the schema has no closing parenthesis");
}

static void parse_type(og_param *p, char *text, og_place at) {
  size_t n = strlen(text);
  if (n && text[n - 1] == '?') p->optional = true, text[--n] = 0;
  char *digits = strchr(text, '[');  // int[2] is int[]
  if (digits && isdigit((unsigned char)digits[1])) strcpy(digits, "[]");
  for (int i = 0; i < OG_TYPE_COUNT; i++)
    if (!strcmp(text, og_types[i].schema)) {
      p->type = (og_type)i;
      return;
    }
  og_die(at, "unknown type '%s'", text);
}

static void parse_param(og_op *op, char *text, bool keyword) {
  og_place at = op->place;
  if (op->param_count == OG_MAX_PARAMS) og_die(at, "op %s has too many parameters", op->name);
  og_param *p = &op->params[op->param_count];
  p->keyword = keyword;
  char *space = strchr(text, ' ');
  if (!space) og_die(at, "parameter '%s' has no name", text);
  *space = 0;
  char *name = trimmed(space + 1, space + 1 + strlen(space + 1));
  char *equals = strchr(name, '=');
  if (equals) {
    *equals = 0;
    p->fallback = trimmed(equals + 1, equals + 1 + strlen(equals + 1));
    name = trimmed(name, equals);
  }
  parse_type(p, text, at);
  if (*word_end(name) || !*name) og_die(at, "bad parameter name '%s'", name);
  p->name = name;
  if (og_param_find(op, name) >= 0) og_die(at, "parameter '%s' is given twice", name);
  op->param_count++;
}

static const char *parse_params(og_op *op, const char *at) {
  bool keyword = false;
  at = skip(at);
  while (*at != ')') {
    const char *end = param_end(at, op->place);
    char *text = trimmed(at, end);
    if (!strcmp(text, "*"))
      keyword = true;
    else
      parse_param(op, text, keyword);
    at = *end == ',' ? skip(end + 1) : end;
  }
  return at + 1;
}

static void parse_result(og_op *op, const char *text) {
  if (!strcmp(text, "Tensor") || !strcmp(text, "Tensor[]")) {
    op->result_count = 1;
    op->result_list = text[6] != 0;
    return;
  }
  if (*text != '(') og_die(op->place, "unknown result '%s'", text);
  const char *at = skip(text + 1);
  while (*at && *at != ')') {
    if (strncmp(at, "Tensor ", 7)) og_die(op->place, "a result is `Tensor NAME`, not '%s'", at);
    const char *name = skip(at + 7), *end = word_end(name);
    if (op->result_count == OG_MAX_RESULTS) og_die(op->place, "too many results");
    op->result_names[op->result_count++] = og_copy(name, (size_t)(end - name));
    at = skip(end);
    if (*at == ',') at = skip(at + 1);
  }
  if (op->result_count == 0) og_die(op->place, "unknown result '%s'", text);
}

static og_op *parse_schema(const char *text, og_place at) {
  og_op *op = calloc(1, sizeof *op);
  if (!op) exit(1);
  op->place = at;
  op->kind = "";
  const char *name = skip(text + 3), *end = word_end(name);
  if (end == name || *end != '(') og_die(at, "expected `op NAME(PARAMETERS) -> RESULT`");
  op->name = og_copy(name, (size_t)(end - name));
  op->schema = trimmed(name, name + strlen(name));
  const char *rest = skip(parse_params(op, end + 1));
  if (strncmp(rest, "->", 2)) og_die(at, "op %s: expected `->` and a result", op->name);
  parse_result(op, trimmed(rest + 2, rest + strlen(rest)));
  return op;
}

// ---- fields

static void set_once(og_op *op, og_field *field, const char *name, char *text, og_place at) {
  if (field->text)
    og_die(at, "%s of %s is already given at line %d", name, op->name, field->place.line);
  *field = (og_field){text, at};
}

static void parse_kind(og_op *op, const char *text, og_place at) {
  static const char *const kinds[] = {"pointwise", "reduce",   "view",
                                      "kernel",    "function", "composite"};
  static const char *const words[] = {
#define XX(w) #w,
      OG_WORDS(XX)
#undef XX
  };
  const char *end = word_end(text);
  char *kind = og_copy(text, (size_t)(end - text));
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (!strcmp(kind, kinds[i])) op->kind = kinds[i];
  if (!*op->kind) og_die(at, "unknown kind '%s' of %s", kind, op->name);
  for (text = skip(end); *text; text = skip(end)) {
    end = word_end(text);
    char *word = og_copy(text, end == text ? 1 : (size_t)(end - text));
    int found = -1;
    for (int i = 0; i < OG_WORD_COUNT; i++)
      if (!strcmp(word, words[i])) found = i;
    if (found < 0) og_die(at, "unknown word '%s' after the kind of %s", word, op->name);
    op->words |= 1u << found;
  }
}

// `grad P, Q = FORMULA` or `grad * = FN`.
static void parse_grad(og_op *op, char *text, og_place at) {
  char *equals = strchr(text, '=');
  if (!equals) og_die(at, "expected `grad NAME = FORMULA`");
  char *formula = trimmed(equals + 1, equals + 1 + strlen(equals + 1));
  char *names = trimmed(text, equals);
  if (!strcmp(names, "*")) {
    if (*word_end(formula)) og_die(at, "`grad *` wants the name of a function, not '%s'", formula);
    set_once(op, &op->grad_all, "grad *", formula, at);
    return;
  }
  for (char *name = strtok(names, ", "); name; name = strtok(NULL, ", ")) {
    int i = og_param_find(op, name);
    if (i < 0) og_die(at, "grad of '%s', which is no parameter of %s", name, op->name);
    if (op->params[i].type != OG_TENSOR)
      og_die(at, "grad of '%s', which is no Tensor (use `grad * = FUNCTION`)", name);
    set_once(op, &op->grads[i], "grad", formula, at);
  }
}

static void parse_field(og_op *op, char *line, og_place at) {
  const char *end = word_end(line);
  char *name = og_copy(line, (size_t)(end - line)), *text = trimmed(end, end + strlen(end));
  struct {
    const char *name;
    og_field *field;
  } fields[] = {{"kind", &op->kind_field}, {"expr", &op->expr},         {"fold", &op->fold},
                {"dtypes", &op->dtypes},   {"run", &op->run},           {"kernel", &op->kernel},
                {"body", &op->body},       {"gradname", &op->gradname}, {"pyname", &op->pyname},
                {"note", &op->note},       {"doc", &op->doc},           {"masks", &op->masks},
                {"saves", &op->saves},     {"domain", &op->domain},     {"nograd", &op->nograd}};
  if (!strcmp(name, "grad")) {
    parse_grad(op, text, at);
    return;
  }
  if (!*text) og_die(at, "field '%s' of %s is empty", name, op->name);
  if (!strcmp(name, "sample")) {
    if (op->sample_count == OG_MAX_SAMPLES) og_die(at, "too many samples of %s", op->name);
    op->samples[op->sample_count++] = (og_field){text, at};
    return;
  }
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    if (!strcmp(name, fields[i].name)) {
      set_once(op, fields[i].field, name, text, at);
      if (i == 0) parse_kind(op, text, at);
      return;
    }
  og_die(at, "unknown field '%s' of %s", name, op->name);
}

// ---- lines

typedef struct reader {
  og_op *op;
  char *field;  // the field being read; lines that are indented deeper go on with it
  og_place field_at;
  int field_indent;
} reader;

static void end_field(reader *r) {
  if (!r->field) return;
  if (r->field_indent == 0)
    og.ops[og.count++] = r->op = parse_schema(r->field, r->field_at);
  else
    parse_field(r->op, r->field, r->field_at);
  r->field = NULL;
}

static void take_line(reader *r, char *line, og_place at) {
  int indent = (int)(skip(line) - line);
  char *text = trimmed(line, line + strlen(line));
  if (!*text || *text == '#') return;
  if (r->field && indent > r->field_indent && r->field_indent > 0) {
    r->field = og_format("%s %s", r->field, text);
    return;
  }
  if (r->field && r->field_indent == 0 && indent > 4) {  // a long schema
    r->field = og_format("%s %s", r->field, text);
    return;
  }
  end_field(r);
  if (indent == 0 && !strncmp(text, "kernel ", 7)) {
    og.extras[og.extra_count++] = trimmed(text + 7, text + strlen(text));
    r->op = NULL;
    return;
  }
  if (indent == 0 && strncmp(text, "op ", 3))
    og_die(at, "expected `op` or `kernel`, not '%s'", text);
  if (indent > 0 && !r->op) og_die(at, "a field outside of an entry");
  if (og.count == OG_MAX_OPS) og_die(at, "too many ops");
  r->field = text, r->field_at = at, r->field_indent = indent;
}

static void check_entry(const og_op *op) {
  og_place at = op->place;
  if (!*op->kind) og_die(at, "op %s has no kind", op->name);
  if (!op->doc.text) og_die(at, "op %s has no doc", op->name);
  if (og_is(op, "pointwise") && !op->expr.text) og_die(at, "pointwise op %s has no expr", op->name);
  if (!og_is(op, "pointwise") && op->expr.text)
    og_die(at, "expr of %s, which is not pointwise", op->name);
  if (!og_is(op, "reduce") && op->fold.text)
    og_die(at, "fold of %s, which is no reduce op", op->name);
  bool wants_run =
      og_is(op, "view") || og_is(op, "function") || og_is(op, "kernel") || og_is(op, "composite");
  if (wants_run && !op->run.text && !op->body.text) og_die(at, "op %s has no run", op->name);
  if (op->body.text && !og_is(op, "composite"))
    og_die(at, "body of %s, which is not composite", op->name);
  if (og_is(op, "reduce") && op->run.text) og_die(at, "run of %s, which is %s", op->name, op->kind);
  bool first = op->param_count && op->params[0].type == OG_TENSOR;
  if (og_has_inplace(op) && !first)
    og_die(at, "op %s cannot be in-place: its first parameter is no Tensor", op->name);
}

void og_read(const char *path) {
  FILE *file = fopen(path, "r");
  if (!file) {
    perror(path);
    exit(1);
  }
  reader r = {0};
  char *line = NULL;
  size_t room = 0;
  og_place at = {path, 0};
  int first = og.count;
  while (getline(&line, &room, file) >= 0) {
    at.line++;
    line[strcspn(line, "\r\n")] = 0;
    take_line(&r, og_copy(line, strlen(line)), at);
  }
  end_field(&r);
  fclose(file);
  for (int i = first; i < og.count; i++) check_entry(og.ops[i]);
}
