// SPDX-License-Identifier: Apache-2.0
// Writes the checks of an op's arguments, `check CONDITION : CODE "text"`, as a C function called
// by the driver first. Checks after `check device` are part of the run function (results.c).
// Conditions are translated by condition.c; their functions on tensors are in src/call/checks.h.
#include "opgen/opgen.h"

static const og_function functions[] = {
    {"ndim", "px__ndim_of", 1, OG_INT, "dimension", "%s.dim()"},
    {"numel", "px__numel_of", 1, OG_INT, "element", "%s.numel()"},
    {"len", "px__length_of", 1, OG_INT, "entry", "len(%s)"},
    {"isfloat", "px__is_float", 1, OG_BOOL, "is floating point", NULL},
    {"iscomplex", "px__is_complex", 1, OG_BOOL, "is complex", NULL},
    {"isdtype", "px__is_dtype", 1, OG_BOOL, "is given", NULL},
    {"widens", "px__widens", 2, OG_BOOL, "is no wider than %s", NULL},
    {"isbool", "px__is_bool", 1, OG_BOOL, "is bool", NULL},
    {"isint64", "px__is_int64", 1, OG_BOOL, "is int64", NULL},
    {"isindex", "px__is_index", 1, OG_BOOL, "is int32 or int64", NULL},
    {"istensor", "px__is_tensor", 1, OG_BOOL, "is a tensor", NULL},
    {"needs_grad", "px__is_differentiated", 1, OG_BOOL, "requires grad", NULL},
    {"mapped", "PX__MAPPED", 1, OG_BOOL, NULL, NULL},
    {"lowest", "px__lowest", 1, OG_FLOAT, NULL, NULL},
    {"batched", "px__is_batched_value", 1, OG_BOOL, "is batched", NULL},
    {"autocasts", "px__autocasts", 1, OG_BOOL, "is cast by autocast", NULL},
    {"on_cpu", "px__on_cpu", 1, OG_BOOL, "is on the CPU", NULL},
    {"on_meta", "px__on_meta", 1, OG_BOOL, "has no data", NULL},
    {"same_device", "px__same_device", 2, OG_BOOL, "is on the device of %s", NULL},
    {"same", "px__same_sizes", 2, OG_BOOL, "has the shape of %s", NULL},
    {"same_dtype", "px__same_dtype", 2, OG_BOOL, "has the dtype of %s", NULL},
    {"fits", "px__number_fits", 2, OG_BOOL, "fits the dtype of %s", NULL},
    {"fits_wide", "px__number_fits_wide", 2, OG_BOOL, "fits the dtype of %s", NULL},
    {"isnarrow", "px__is_narrow", 1, OG_BOOL, "is floating point of 8 or 16 bits", NULL},
    {"suffix", "px__has_suffix", 2, OG_BOOL, "has the trailing sizes %s", NULL},
    {"rows", "px__rows_of", 2, OG_INT, NULL, NULL},
    {"classes", "px__classes", 2, OG_BOOL, NULL, NULL},
    {"batch", "PX__BATCH_TEXT", 1, OG_TEXT, NULL, NULL},
    {"shape", "PX__SHAPE_TEXT", 1, OG_TEXT, NULL, NULL},
    {"dtype", "px__class_of", 1, OG_TEXT, NULL, NULL},
    {"ctype", "px__ctype_of", 1, OG_TEXT, NULL, NULL},
    {"ctype_wide", "px__wide_ctype_of", 1, OG_TEXT, NULL, NULL},
    {"cname", "px__cname_of", 1, OG_TEXT, NULL, NULL},
    {"numbers", "PX__NUMBERS_TEXT", 1, OG_TEXT, NULL, NULL},
    {"full_digits", "PX__FULL_DIGITS_TEXT", 1, OG_TEXT, NULL, NULL},
    {"python_repr", "PX__PYTHON_REPR_TEXT", 1, OG_TEXT, NULL, NULL},
    {"braced", "PX__BRACED_TEXT", 1, OG_TEXT, NULL, NULL},
    {"dtype_max", "PX__MAX_TEXT", 1, OG_TEXT, NULL, NULL}};
enum { FUNCTIONS = sizeof functions / sizeof *functions };
const og_function *og_function_of(const char *name) {
  for (int i = 0; i < FUNCTIONS; i++)
    if (!strcmp(functions[i].name, name)) return &functions[i];
  return NULL;
}
// Functions with a number after the names.
static const struct {
  const char *name, *c;
  int count;
  og_type type;
} numbered[] = {
    {"size", "px__size_of", 1, OG_INT},     // size of a dimension; negative counts from the end
    {"element", "px__size_of", 1, OG_INT},  // of a list: x[i]
    {"same_leading", "px__same_leading", 2, OG_BOOL},  // equal sizes except the last
    {"same_except", "px__same_except", 2, OG_BOOL}};   // equal sizes except one dimension
enum { NUMBERED = sizeof numbered / sizeof *numbered };

// Returns a name as a px_value.
static const char *value_of(const og_scope *names, const og_node *n) {
  int i = n->kind == OG_NAME ? og_param_find(names->op, n->text) : -1;
  if (i >= 0) return og_format("a[%d]", i);
  og_value v = {0};
  if (n->kind == OG_NAME && names->other) v = names->other(n, names->context);
  if (!v.c || v.type != OG_TENSOR)
    og_die(n->location, "unknown name '%s' in a line of %s", n->text, names->op->name);
  return v.c;
}

// Returns the first `count` arguments, which must be names.
static const char *names_of(const og_scope *names, const og_node *n, int count) {
  const char *list = "";
  for (int i = 0; i < count; i++)
    list = og_format("%s%s%s", list, i ? ", " : "", value_of(names, n->items[i]));
  return list;
}

static og_value call_of(const og_scope *names, const og_node *n) {
  const og_function *f = og_function_of(n->text);
  if (f && f->count == n->count)
    return (og_value){.type = f->type,
                      .c = og_format("%s(%s)", f->c, names_of(names, n, n->count))};
  for (int i = 0; i < NUMBERED; i++) {
    int count = numbered[i].count;
    if (strcmp(numbered[i].name, n->text) || count + 1 != n->count) continue;
    og_value last = og_number(n->items[count], og_resolve, (void *)names);
    return (og_value){
        .type = numbered[i].type,
        .c = og_format("%s(%s, %s)", numbered[i].c, names_of(names, n, count), last.c)};
  }
  og_die(n->location, "unknown function '%s' of %d arguments in a line of %s", n->text, n->count,
         names->op->name);
}

bool og_is_condition_call(const og_node *n) {
  bool known = og_function_of(n->text) || !strcmp(n->text, "is_word") || !strcmp(n->text, "list");
  for (int i = 0; i < NUMBERED; i++) known |= !strcmp(numbered[i].name, n->text);
  return n->kind == OG_CALL && known && !og_find(n->text);
}

og_value og_resolve(const og_node *n, void *context) {
  const og_scope *names = context;
  if (n->kind != OG_NAME) return call_of(names, n);
  int i = og_param_find(names->op, n->text);
  og_value v = {0};
  if (i < 0 && names->other) v = names->other(n, names->context);
  if (v.c && v.type != OG_TENSOR) return v;
  if (i < 0 && !v.c && og_constant_named(n->text))
    return (og_value){.type = OG_FLOAT, .c = og_constant_named(n->text)};
  const char *a = v.c ? v.c : value_of(names, n);
  og_type type = i < 0 ? OG_TENSOR : names->op->params[i].type;
  v = (og_value){.type = type, .absent = og_format("%s.kind == PX_ARG_NONE", a)};
  if (type == OG_INT || type == OG_BOOL) v.c = og_format("px_value_int(%s)", a);
  if (type == OG_FLOAT || type == OG_SCALAR || type == OG_TENSOR)
    v.c = og_format("px_value_float(%s)", a);  // a number may be passed for a tensor
  if (type == OG_TENSOR || type == OG_SCALAR) v.type = OG_FLOAT;
  if (type == OG_TEXT) v.c = og_format("%s.v.text", a);
  if (type == OG_DTYPE) v.c = og_format("px__dtype_of(%s)", a);
  if (type == OG_INTS) v.c = og_format("%s.v.ints", a), v.n = og_format("%s.n", a);
  if (!v.c) og_die(n->location, "'%s' has no value in a line of %s", n->text, names->op->name);
  if (i >= 0 && names->op->params[i].worded)
    v.worded = og_format("(%s.kind == PX_ARG_TEXT)", a), v.text = og_format("%s.v.text", a);
  return v;
}

// Appends the printf conversion and the value of an expression in braces.
static void write_part(const og_scope *names, const og_check *c, const char *text,
                       const char **format, const char **list) {
  if (!strcmp(text, "op")) {
    *format = og_format("%s%%s", *format), *list = og_format("%s, call->op->name", *list);
    return;
  }
  og_value v = og_number(og_formula(text, c->location), og_resolve, (void *)names);
  bool is_integer = v.type == OG_INT || v.type == OG_BOOL;
  *format = og_format("%s%s", *format, is_integer ? "%lld" : v.type == OG_FLOAT ? "%g" : "%s");
  *list = og_format("%s, %s%s", *list, is_integer ? "(long long)" : "", v.c);
}

// Writes `check NAME of TENSOR`: NAME, unless absent, must be a dimension of it, or of a list of
// sizes. The text is in the library.
static bool write_dimension(FILE *to, const og_op *op, const og_field *field) {
  char *dim, *tensor;
  if (!og_check_dimension(field, &dim, &tensor)) return false;
  int d = og_param_find(op, dim), t = og_param_find(op, tensor);
  bool sized = t >= 0 && (op->params[t].type == OG_TENSOR || op->params[t].type == OG_INTS);
  if (d < 0 || op->params[d].type != OG_INT || !sized)
    og_die(field->location, "%s has no int '%s', or no tensor or list '%s'", op->name, dim, tensor);
  fprintf(to, "  ");
  if (op->params[d].optional) fprintf(to, "if (a[%d].kind != PX_ARG_NONE) ", d);
  fprintf(to, "PX_TRY(px__check_dim(a[%d], px_value_int(a[%d])));\n", t, d);
  return true;
}

static void write_check(FILE *to, const og_scope *names, const og_field *field) {
  if (write_dimension(to, names->op, field)) return;
  og_check c = og_check_parse(field);
  const char *format = "", *list = "";
  for (const char *at = c.text; *at;) {
    if (!strncmp(at, "{{", 2)) {  // a brace
      format = og_format("%s{", format);
      at += 2;
      continue;
    }
    const char *end = *at == '{' ? strchr(at, '}') : NULL;
    if (!end) {
      format = og_format("%s%s%c", format, *at == '%' ? "%" : "", *at);
      at++;
      continue;
    }
    write_part(names, &c, og_copy(at + 1, (size_t)(end - at - 1)), &format, &list);
    at = end + 1;
  }
  const char *test = og_condition(c.test, og_resolve, (void *)names);
  if (!strcmp(c.code, "WARN"))
    fprintf(to, "  if (!%s) PX_TRY(px_warn(PX_WARN_USER, %s%s));\n", test, og_quote(format), list);
  else
    fprintf(to, "  PX_CHECK(%s, PX_%s, %s%s);\n", test, c.code, og_quote(format), list);
}

// Returns the index of the last let that a check names, or -1.
static int let_named(const og_op *op, const og_field *field) {
  char *dim, *tensor;
  if (!strcmp(field->text, "device") || og_check_dimension(field, &dim, &tensor)) return -1;
  og_node *test = og_check_parse(field).test;
  for (int k = op->let_count; k-- > 0;)
    for (int i = 0; i < op->lets[k].count; i++)
      if (og_mentions(test, op->lets[k].names[i])) return k;
  return -1;
}
int og_check_let(const og_op *op, const og_field *field) {
  int last = op->let_count ? let_named(op, field) : -1;
  for (const og_field *before = op->checks; before < field && last >= 0; before++) {
    int let = let_named(op, before);
    if (let > last) last = let;
  }
  return last;
}
void og_write_let_checks(FILE *to, const og_scope *names, int let) {
  for (int i = 0; i < names->op->check_count; i++)
    if (og_check_let(names->op, &names->op->checks[i]) == let)
      write_check(to, names, &names->op->checks[i]);
}

// Writes the checks [from, to) that read no let.
static void write_checks(FILE *file, const og_op *op, int from, int to) {
  for (int i = from; i < to; i++)
    if (og_check_let(op, &op->checks[i]) < 0)
      write_check(file, &(og_scope){.op = op}, &op->checks[i]);
}

// Returns the index of `check device`, or the number of checks if there is none.
static int device_check(const og_op *op) {
  for (int i = 0; i < op->check_count; i++)
    if (!strcmp(op->checks[i].text, "device")) return i;
  return op->check_count;
}
bool og_has_checks(const og_op *op) {
  for (int i = 0; i < device_check(op); i++)
    if (og_check_let(op, &op->checks[i]) < 0) return true;
  return false;
}

void og_write_checks(FILE *to, const og_op *op) {
  int early = device_check(op);
  if (early < op->check_count && !op->result_field_count)
    og_die(op->checks[early].location, "check device of %s requires a result line", op->name);
  if (!og_has_checks(op)) return;
  fprintf(to,
          "static px_status check_%s(const px_call *call) {\n  const px_value *a = call->args;\n",
          op->name);
  write_checks(to, op, 0, early);
  fprintf(to, "  return PX_OK;\n}\n");
}

void og_write_formula_checks(FILE *to, const og_op *formula) {
  write_checks(to, formula, 0, formula->check_count);
}

void og_write_late_checks(FILE *to, const og_op *op) {
  write_checks(to, op, device_check(op) + 1, op->check_count);
}

// A `work` line may name results.
static og_value result_of(const og_node *n, void *op) {
  int r = og_result_find(op, n->text);
  return (og_value){.type = OG_TENSOR, .c = r < 0 ? NULL : og_format("PX_T(call->results[%d])", r)};
}
static void write_number(FILE *to, const og_op *op, const char *what, const char *text,
                         og_location at) {
  og_scope names = {op, result_of, (void *)op};
  fprintf(to,
          "static int64_t %s_%s(const px_call *call) {\n  const px_value *a = call->args;\n"
          "  return (void)a, %s;\n}\n",
          what, op->name, og_integer(og_formula(text, at), og_resolve, &names));
}

void og_write_work(FILE *to, const og_op *op) {
  const char *counted = op->flops.text ? strchr(op->flops.text, '=') : NULL;
  if (op->work.text) write_number(to, op, "work", op->work.text, op->work.location);
  if (counted) write_number(to, op, "flops", counted + 1, op->flops.location);
}

void og_write_flops(FILE *to, const og_op *op) {
  if (!op->flops.text) return;
  int length = (int)strcspn(op->flops.text, "=");
  while (length && op->flops.text[length - 1] == ' ') length--;
  fprintf(to, ".flops = \"%.*s\", .counted = %s_%s, ", length, op->flops.text,
          op->flops.text[strcspn(op->flops.text, "=")] ? "flops" : "work", op->name);
}
