// SPDX-License-Identifier: Apache-2.0
// Parses an op: the schema line and the fields.
#include "opgen/opgen.h"

#include <ctype.h>

// ---- the schema line

static void parse_result(og_op *op, const char *text) {
  if (!strcmp(text, "Tensor") || !strcmp(text, "Tensor[]")) {
    op->result_count = 1;
    op->result_list = text[6] != 0;
    return;
  }
  if (*text != '(') og_die(op->location, "unknown result '%s'", text);
  const char *at = og_skip(text + 1);
  while (*at && *at != ')') {
    if (strncmp(at, "Tensor ", 7)) og_die(op->location, "a result is `Tensor NAME`, not '%s'", at);
    const char *name = og_skip(at + 7), *end = og_word_end(name);
    if (op->result_count == OG_MAX_RESULTS) og_die(op->location, "too many results");
    op->result_names[op->result_count++] = og_copy(name, (size_t)(end - name));
    at = og_skip(end);
    if (*at == ',') at = og_skip(at + 1);
  }
  if (op->result_count == 0) og_die(op->location, "unknown result '%s'", text);
}

og_op *og_op_begin(const char *sort, const char *text, og_location at) {
  og_op *op = calloc(1, sizeof *op);
  if (!op) exit(1);
  op->location = at;
  op->kind = "";
  const char *name = og_skip(text + strlen(sort)), *end = og_word_end(name);
  if (end == name || *end != '(') og_die(at, "expected `%s NAME(PARAMETERS) -> RESULT`", sort);
  op->name = og_copy(name, (size_t)(end - name));
  op->schema = og_trimmed(name, name + strlen(name));
  const char *rest = og_skip(og_read_params(end + 1, at, op->name, op->params, &op->param_count));
  if (!strcmp(sort, "helper")) return og.helpers[og.helper_count++] = op;
  if (strncmp(rest, "->", 2)) og_die(at, "%s %s: expected `->` and a result", sort, op->name);
  parse_result(op, og_trimmed(rest + 2, rest + strlen(rest)));
  if (!strcmp(sort, "formula")) return og.formulas[og.formula_count++] = op;
  op->library_only = !strcmp(sort, "library");
  if (!strcmp(sort, "kernel") || op->library_only) return og.kernels[og.kernel_count++] = op;
  if (op->result_count > OG_OP_RESULTS) og_die(at, "too many results of op %s", op->name);
  if (og.count == OG_MAX_OPS) og_die(at, "too many ops");
  return og.ops[og.count++] = op;
}

// ---- fields

static void set_once(og_op *op, og_field *field, const char *name, char *text, og_location at) {
  if (field->text)
    og_die(at, "%s of %s is already given at line %d", name, op->name, field->location.line);
  *field = (og_field){.text = text, .location = at};
}

static void parse_kind(og_op *op, const char *text, og_location at) {
  static const char *const kinds[] = {"pointwise", "reduce",   "view",
                                      "kernel",    "function", "composite"};
  static const char *const words[] = {
#define XX(w) #w,
      OG_WORDS(XX)
#undef XX
  };
  const char *end = og_word_end(text);
  char *kind = og_copy(text, (size_t)(end - text));
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (!strcmp(kind, kinds[i])) op->kind = kinds[i];
  if (!*op->kind) og_die(at, "unknown kind '%s' of %s", kind, op->name);
  for (text = og_skip(end); *text; text = og_skip(end)) {
    end = og_word_end(text);
    char *word = og_copy(text, end == text ? 1 : (size_t)(end - text));
    int found = -1;
    for (int i = 0; i < OG_WORD_COUNT; i++)
      if (!strcmp(word, words[i])) found = i;
    if (found < 0) og_die(at, "unknown word '%s' after the kind of %s", word, op->name);
    op->words |= 1u << found;
  }
}

// Parses `grad P, Q = FORMULA` or `grad * = FN`.
static void parse_grad(og_op *op, char *text, og_location at) {
  char *equals = strchr(text, '=');
  if (!equals) og_die(at, "expected `grad NAME = FORMULA`");
  char *formula = og_trimmed(equals + 1, equals + 1 + strlen(equals + 1));
  char *names = og_trimmed(text, equals);
  if (!strcmp(names, "*")) {
    if (*og_word_end(formula)) og_die(at, "`grad *` requires a function name, not '%s'", formula);
    set_once(op, &op->grad_all, "grad *", formula, at);
    return;
  }
  for (char *name = strtok(names, ", "); name; name = strtok(NULL, ", ")) {
    int i = og_param_find(op, name);
    if (i < 0) og_die(at, "grad of '%s', which is not a parameter of %s", name, op->name);
    if (op->params[i].type != OG_TENSOR)
      og_die(at, "grad of '%s', which is not a Tensor (use `grad * = FUNCTION`)", name);
    set_once(op, &op->grads[i], "grad", formula, og_advance(at, text, og_skip(equals + 1)));
  }
}

void og_op_field(og_op *op, char *line, og_location at) {
  const char *end = og_word_end(line);
  char *name = og_copy(line, (size_t)(end - line)), *text = og_trimmed(end, end + strlen(end));
  at = og_advance(at, line, og_skip(end));
  struct {
    const char *name;
    og_field *items;
    int *count, limit;
  } lists[] = {{"refuse", op->refusals, &op->refusal_count, OG_MAX_REFUSALS},
               {"check", op->checks, &op->check_count, OG_MAX_CHECKS},
               {"result", op->result_fields, &op->result_field_count, OG_MAX_RESULTS},
               {"let", op->let_fields, &op->let_count, OG_MAX_LETS},
               {"do", op->let_fields, &op->let_count, OG_MAX_LETS},
               {"sample", op->samples, &op->sample_count, OG_MAX_SAMPLES}};
  struct {
    const char *name;
    og_field *field;
  } fields[] = {{"kind", &op->kind_field},
                {"expr", &op->expr},
                {"fold", &op->fold},
                {"dtypes", &op->dtypes},
                {"run", &op->run},
                {"kernel", &op->kernel},
                {"body", &op->body},
                {"gradname", &op->gradname},
                {"pyname", &op->pyname},
                {"note", &op->note},
                {"doc", &op->doc},
                {"saves", &op->saves},
                {"domain", &op->domain},
                {"nograd", &op->nograd},
                {"transposed", &op->transposed},
                {"alias", &op->alias},
                {"wrapper", &op->wrapper},
                {"autocast", &op->autocast},
                {"shape", &op->shape},
                {"errors", &op->errors},
                {"example", &op->example},
                {"draws", &op->draws},
                {"out", &op->out},
                {"expand_warning", &op->expand_warning},
                {"resolve", &op->resolve},
                {"format", &op->format},
                {"order", &op->order},
                {"fits", &op->fits},
                {"fits_wide", &op->fits_wide},
                {"vmap", &op->vmap},
                {"complex", &op->complex},
                {"work", &op->work},
                {"flops", &op->flops},
                {"unsigned", &op->of_unsigned}};
  if (!strcmp(name, "grad")) {
    parse_grad(op, text, at);
    return;
  }
  if (!*text) og_die(at, "field '%s' of %s is empty", name, op->name);
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    if (strcmp(name, lists[i].name)) continue;
    if (*lists[i].count == lists[i].limit) og_die(at, "too many fields '%s' of %s", name, op->name);
    lists[i].items[(*lists[i].count)++] = (og_field){text, at, lists[i].name};
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

// Parses `result : DTYPE` of a pointwise op or a reduction.
static void parse_result_dtype(og_op *op) {
  static const char *const dtypes[] = {"bool", "int64", "real"};
  const og_field *f = op->result_fields;
  if (op->result_field_count != 1 || *f->text != ':') return;
  op->result_dtype = (og_field){.text = og_skip(f->text + 1), .location = f->location};
  op->result_field_count = 0;
  if (!og_is(op, "pointwise") && !og_is(op, "reduce"))
    og_die(f->location, "result of %s has no sizes", op->name);
  for (int i = 0; i < 3; i++)
    if (!strcmp(op->result_dtype.text, dtypes[i])) return;
  og_die(f->location, "expected in %s `result : bool`, `int64` or `real`", op->name);
}

void og_op_end(og_op *op) {
  og_location at = op->location;
  if (!*op->kind) og_die(at, "op %s has no kind", op->name);
  parse_result_dtype(op);
  if (!op->doc.text) og_die(at, "op %s has no doc", op->name);
  if (og_is(op, "pointwise") && !op->expr.text) og_die(at, "pointwise op %s has no expr", op->name);
  if (!og_is(op, "pointwise") && op->expr.text)
    og_die(at, "expr of %s, which is not pointwise", op->name);
  if (!og_is(op, "reduce") && op->fold.text)
    og_die(at, "fold of %s, which is not a reduce op", op->name);
  if (op->body.text && !og_is(op, "composite") && !og_is(op, "function"))
    og_die(at, "body of %s, which is neither a composite nor a function", op->name);
  if (op->complex.text && (op->result_count != 1 || og_is(op, "composite")))
    og_die(at, "complex of %s, which is composite or has several results", op->name);
  if (op->of_unsigned.text && (op->result_count != 1 || og_is(op, "composite")))
    og_die(at, "unsigned of %s, which is composite or has several results", op->name);
  if (op->of_unsigned.text && op->complex.text && strcmp(op->of_unsigned.text, op->complex.text))
    og_die(at, "unsigned of %s differs from its complex", op->name);
  if (op->work.text && (og_is(op, "view") || og_is(op, "composite") || og_is(op, "function")))
    og_die(op->work.location, "work of %s, which launches no kernel", op->name);
  if (op->flops.text && !op->work.text)
    og_die(op->flops.location, "flops of %s requires work", op->name);
  bool made = op->result_field_count > 0;
  if (made && !og_is(op, "kernel"))
    og_die(op->result_fields[0].location, "result of %s, which is not a kernel op", op->name);
  if (!made && op->draws.text) og_die(at, "draws of %s requires a result line", op->name);
  if (og_is(op, "reduce") && op->run.text) og_die(at, "run of %s, which is %s", op->name, op->kind);
  bool first = op->param_count && op->params[0].type == OG_TENSOR;
  if (og_has_inplace(op) && !first)
    og_die(at, "op %s cannot be in-place: its first parameter is not a Tensor", op->name);
  if (!og_is_hidden(op) && !og_shape_of(op)) og_die(at, "op %s has no shape", op->name);
}
