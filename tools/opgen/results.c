// SPDX-License-Identifier: Apache-2.0
// Writes the run function of a kernel op with lines `result NAMES = SIZES : DTYPE`. Numbers are
// those of conditions (condition.c); the functions of sizes are in src/call/shapes.h.
#include "opgen/opgen.h"

// ---- sizes: statements that add to the shape `s`

// Functions of several sizes: arguments are a tensor or a list of sizes, and numbers.
static const struct {
  const char *name, *c;
  int sizes, numbers;
  bool fails;
} shapes[] = {{"sizes", "px__shape_sizes", 1, 0, false},
              {"leading", "px__shape_leading", 1, 1, false},
              {"rows", "px__shape_rows", 1, 1, false},
              {"along", "px__shape_along", 1, 2, false},
              {"reduced", "px__shape_reduced", 1, 2, false},
              {"reduced", "px__shape_kept", 2, 0, false},
              {"range", "px__shape_range", 0, 2, false},
              {"only", "px__shape_only", 0, 2, false},
              {"others", "px__shape_others", 0, 2, false},
              {"between", "px__shape_between", 1, 2, false},
              {"each", "px__shape_each", 1, 1, false},
              {"broadcast", "px__shape_broadcast", 2, 0, true}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

// The names of sizes, the variable they are written to, and the indentation.
typedef struct place {
  FILE *to;
  const og_scope *names;
  const char *shape, *indent;
} place;
static void write_shape(const place *p, const og_node *n);

static bool has_sizes(const og_op *op, const og_node *n) {
  int i = n->kind == OG_NAME ? og_param_find(op, n->text) : -1;
  return i >= 0 && (op->params[i].type == OG_TENSOR || op->params[i].type == OG_INTS);
}
// Returns a tensor or a list of sizes as a px_value.
static const char *sized(const place *p, const og_node *n) {
  if (has_sizes(p->names->op, n)) return og_format("a[%d]", og_param_find(p->names->op, n->text));
  og_value v = {0};
  if (n->kind == OG_NAME && p->names->other) v = p->names->other(n, p->names->context);
  if (!v.c || v.type != OG_TENSOR)
    og_die(n->location, "'%s' in a line of %s is neither a tensor nor a list of sizes", n->text,
           p->names->op->name);
  return v.c;
}
static const char *integer(const place *p, const og_node *n) {
  return og_integer(n, og_resolve, (void *)p->names);
}

bool og_is_shape_call(const og_node *n) {
  bool known = false;
  for (int k = 0; k < SHAPES; k++) known |= !strcmp(shapes[k].name, n->text);
  return (n->kind == OG_SHAPE || (n->kind == OG_CALL && !og_find(n->text))) && known;
}
static void write_shape_of(const place *p, const og_node *n) {
  for (int k = 0; k < SHAPES; k++) {
    if (strcmp(shapes[k].name, n->text) || shapes[k].sizes + shapes[k].numbers != n->count)
      continue;
    fprintf(p->to, "%s%s%s(&%s", p->indent, shapes[k].fails ? "PX_TRY(" : "", shapes[k].c,
            p->shape);
    for (int i = 0; i < n->count; i++)
      fprintf(p->to, ", %s", i < shapes[k].sizes ? sized(p, n->items[i]) : integer(p, n->items[i]));
    fprintf(p->to, ")%s;\n", shapes[k].fails ? ")" : "");
    return;
  }
  og_die(n->location, "unknown shape '%s' of %d arguments in a line of %s", n->text, n->count,
         p->names->op->name);
}

static void write_choice(const place *p, const og_node *n) {
  place deeper = *p;
  deeper.indent = og_format("%s  ", p->indent);
  fprintf(p->to, "%sif (%s) {\n", p->indent, og_test(n->items[1], og_resolve, (void *)p->names));
  write_shape(&deeper, n->items[0]);
  fprintf(p->to, "%s}", p->indent);
  if (n->items[2]->kind == OG_LIST && n->items[2]->count == 0) {
    fprintf(p->to, "\n");
    return;
  }
  fprintf(p->to, " else {\n");
  write_shape(&deeper, n->items[2]);
  fprintf(p->to, "%s}\n", p->indent);
}

static void write_shape(const place *p, const og_node *n) {
  int i = n->kind == OG_NAME ? og_param_find(p->names->op, n->text) : -1;
  if (n->kind == OG_NAME && (i < 0 || p->names->op->params[i].type == OG_INTS)) {
    fprintf(p->to, "%spx__shape_sizes(&%s, %s);\n", p->indent, p->shape, sized(p, n));
    return;
  }
  if (n->kind == OG_CHOICE) {
    write_choice(p, n);
    return;
  }
  if (n->kind == OG_SHAPE || n->kind == OG_CALL) {
    write_shape_of(p, n);
    return;
  }
  if (n->kind != OG_LIST)
    og_die(n->location, "'%s' is not a shape in a line of %s", n->text, p->names->op->name);
  for (int i = 0; i < n->count; i++) {
    const og_node *item = n->items[i];
    if (item->kind == OG_SPREAD)
      write_shape(p, item->items[0]);
    else
      fprintf(p->to, "%spx__shape_add(&%s, %s);\n", p->indent, p->shape, integer(p, item));
  }
}

void og_write_shape(FILE *to, const og_scope *names, const og_node *n, const char *shape,
                    const char *indent) {
  write_shape(&(place){to, names, shape, indent}, n);
}

// Returns the parameter with exactly the sizes of a result, used without a copy; -1 if none.
static int param_of_sizes(const og_op *op, const og_node *n) {
  if (n->kind == OG_LIST && n->count == 1 && n->items[0]->kind == OG_SPREAD)
    n = n->items[0]->items[0];
  bool param = (n->kind == OG_SHAPE || n->kind == OG_CALL) && n->count == 1 &&
               !strcmp(n->text, "sizes") && has_sizes(op, n->items[0]);
  return param ? og_param_find(op, n->items[0]->text) : -1;
}

// ---- dtypes, as C expressions

static const char *dtype(const og_scope *names, const og_node *n);

static const char *named_dtype(const og_scope *names, const og_node *n) {
  static const char *const dtypes[][2] = {
      {"bool", "PX_BOOL"},           {"int64", "PX_INT64"},          {"int32", "PX_INT32"},
      {"uint64", "PX_UINT64"},       {"float32", "PX_FLOAT32"},      {"float64", "PX_FLOAT64"},
      {"complex64", "PX_COMPLEX64"}, {"complex128", "PX_COMPLEX128"}};
  int i = og_param_find(names->op, n->text);
  og_value let = {0};
  if (i >= 0 && names->op->params[i].type == OG_TENSOR) return og_format("px__dtype_of(a[%d])", i);
  if (i >= 0 && names->op->params[i].type == OG_DTYPE) return og_format("(px_dtype)a[%d].v.i", i);
  for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++)
    if (!strcmp(n->text, dtypes[k][0])) return dtypes[k][1];
  if (i < 0 && names->other) let = names->other(n, names->context);
  if (let.c && let.type == OG_TENSOR) return og_format("px__dtype_of(%s)", let.c);
  og_die(n->location, "'%s' has no dtype in a line of %s", n->text, names->op->name);
}

// `weight or input`: the dtype of the first one if present, else of the second.
static const char *first_dtype(const og_scope *names, const og_node *n) {
  const og_node *maybe = n->items[0];
  int i = maybe->kind == OG_NAME ? og_param_find(names->op, maybe->text) : -1;
  if (*n->text != 'o' || i < 0 || !names->op->params[i].optional)
    og_die(n->location, "'%s' in a dtype of %s requires an optional parameter on its left side",
           n->text, names->op->name);
  const char *absent = names->op->params[i].type == OG_DTYPE
                           ? og_format("px__is_dtype(a[%d])", i)
                           : og_format("a[%d].kind != PX_ARG_NONE", i);
  return og_format("(%s ? %s : %s)", absent, dtype(names, maybe), dtype(names, n->items[1]));
}

static const char *dtype(const og_scope *names, const og_node *n) {
  static const struct {
    const char *name, *c;
    int count;
  } functions[] = {{"promoted", "px_dtype_promote", 2},
                   {"long", "px__sum_dtype", 1},
                   {"acc", "px__acc_dtype", 1},
                   {"real", "px_dtype_to_real", 1},
                   {"floating", "px__floating_dtype", 1}};
  if (n->kind == OG_NAME) return named_dtype(names, n);
  if (n->kind == OG_SHAPE && !strcmp(n->text, "dtype")) return named_dtype(names, n->items[0]);
  if (n->kind == OG_LOGIC && n->count == 2) return first_dtype(names, n);
  if (n->kind == OG_CHOICE)
    return og_format("(%s ? %s : %s)", og_condition(n->items[1], og_resolve, (void *)names),
                     dtype(names, n->items[0]), dtype(names, n->items[2]));
  for (size_t k = 0; k < sizeof functions / sizeof *functions && n->kind == OG_CALL; k++) {
    if (strcmp(n->text, functions[k].name) || n->count != functions[k].count) continue;
    const char *list = dtype(names, n->items[0]);
    for (int i = 1; i < n->count; i++) list = og_format("%s, %s", list, dtype(names, n->items[i]));
    return og_format("%s(%s)", functions[k].c, list);
  }
  og_die(n->location, "'%s' is not a dtype in a line of %s", n->text, names->op->name);
}

const char *og_dtype_value(const og_scope *names, const og_node *n) {
  return og_format("PX_DT(%s)", dtype(names, n));
}

// ---- a line

og_result og_result_parse(const og_op *op, const og_field *field) {
  og_result r = {.location = field->location};
  const char *shape = field->text, *equals = strchr(shape, '='), *colon = strstr(shape, " : ");
  if (!colon) og_die(field->location, "expected `result NAMES = SIZES : DTYPE`");
  if (equals && equals < colon && equals[1] != '=' &&
      strspn(shape, OG_LETTERS ", ") == (size_t)(equals - shape)) {
    char *names = og_trimmed(shape, equals);
    for (char *name = strtok(names, ", "); name; name = strtok(NULL, ", ")) {
      int i = og_result_find(op, name);
      if (i < 0 || !op->result_names[i])
        og_die(field->location, "%s has no result '%s'", op->name, name);
      if (r.count == op->result_count)
        og_die(field->location, "a result of %s is named twice", op->name);
      r.results[r.count++] = i;
    }
    shape = equals + 1;
  } else if (op->result_count > 1) {
    og_die(field->location, "a result of %s requires a name: there are several", op->name);
  } else {
    r.count = 1;
  }
  r.shape = og_formula(og_trimmed(shape, colon), field->location);
  r.dtypes = og_formula(og_format("[%s]", og_skip(colon + 3)), field->location);
  if (r.dtypes->count != 1 && r.dtypes->count != r.count)
    og_die(field->location, "%d results of %s have %d dtypes", r.count, op->name, r.dtypes->count);
  return r;
}

// Writes the dtype of the following results; float(DTYPE) rejects other dtypes.
static void write_dtype(FILE *to, const og_op *op, const og_node *n) {
  bool only = n->kind == OG_CALL && !strcmp(n->text, "float") && n->count == 1;
  fprintf(to, "  d = %s;\n", dtype(&(og_scope){.op = op}, only ? n->items[0] : n));
  if (only)
    fprintf(to,
            "  if (!px_dtype_is_float(d)) return px__refuse_dtype(call->op, d, call->device);\n");
}

static void write_result(FILE *to, const og_op *op, const og_result *r, bool last) {
  int param = param_of_sizes(op, r->shape);
  if (param >= 0) {
    fprintf(to, "  x = px__sizes_of(a[%d]);\n", param);
  } else {
    fprintf(to, "  s.n = 0;\n");
    og_write_shape(to, &(og_scope){.op = op}, r->shape, "s", "  ");
    fprintf(to, "  x = px__shape_made(&s);\n");
  }
  for (int i = 0; i < r->count; i++) {
    bool end = last && i == r->count - 1;
    if (i < r->dtypes->count) write_dtype(to, op, r->dtypes->items[i]);
    fprintf(to, "  %spx__shape_result(call, %d, x, d)%s;\n", end ? "return " : "PX_TRY(",
            r->results[i], end ? "" : ")");
  }
}

// Writes `draws N by K`: the kernel draws N numbers, K at a time. `draws N of W words`: each of N
// numbers may take W words.
static void write_draws(FILE *to, const og_op *op) {
  const og_field *f = &op->draws;
  const char *by = f->text ? strstr(f->text, " by ") : NULL;
  const char *of = f->text ? strstr(f->text, " of ") : NULL,
             *words = of ? strstr(of, " words") : NULL;
  int generator = og_param_find(op, "generator");
  og_scope names = {.op = op};
  if (!f->text) return;
  if ((!by && !words) || generator < 0)
    og_die(f->location,
           "expected `draws NUMBER by NUMBER` or `draws NUMBER of NUMBER words` in an op with a "
           "generator");
  const char *end = by ? by : of, *last = by ? og_skip(by + 4) : og_trimmed(of + 4, words);
  const char *n = og_integer(og_formula(og_trimmed(f->text, end), f->location), og_resolve, &names);
  const char *each = og_integer(og_formula(last, f->location), og_resolve, &names);
  fprintf(to, "  PX_TRY(px__call_draws%s(call, a[%d].v.generator, %s, %s));\n", by ? "" : "_words",
          generator, n, each);
}

// Checks that every result has exactly one line.
static void check_results(const og_op *op, const og_result *lines) {
  unsigned made = 0;
  for (int k = 0; k < op->result_field_count; k++)
    for (int i = 0; i < lines[k].count; i++) {
      unsigned bit = 1u << lines[k].results[i];
      if (made & bit) og_die(lines[k].location, "a result of %s is already given", op->name);
      made |= bit;
    }
  if (made != (1u << op->result_count) - 1)
    og_die(op->location, "a result of %s has no result line", op->name);
}

void og_write_results(FILE *to, const og_op *op) {
  og_result lines[OG_MAX_RESULTS];
  if (!op->result_field_count) return;
  bool built = false;  // built from parts, not the sizes of a parameter
  for (int k = 0; k < op->result_field_count; k++) {
    lines[k] = og_result_parse(op, &op->result_fields[k]);
    built |= param_of_sizes(op, lines[k].shape) < 0;
  }
  check_results(op, lines);
  fprintf(to,
          "static px_status make_%s(px_call *call) {\n"
          "  const px_value *a = call->args;\n%s  px__sizes x;\n  px_dtype d;\n"
          "  PX_TRY(px__call_same_device(call));\n",
          op->name, built ? "  px__shape s;\n" : "");
  for (int i = 0; i < op->param_count; i++)
    if (op->params[i].type == OG_TENSOR && !op->params[i].optional)
      fprintf(to, "  px__assume_tensor(a[%d]);\n", i);
  og_write_late_checks(to, op);
  if (op->run.text) fprintf(to, "  PX_TRY(%s(call));\n", og_run_function(op));
  write_draws(to, op);
  for (int k = 0; k < op->result_field_count; k++)
    write_result(to, op, &lines[k], k == op->result_field_count - 1);
  fprintf(to, "}\n");
}
