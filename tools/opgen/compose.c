// SPDX-License-Identifier: Apache-2.0
// Writes formulas as C: each step calls an op on px_values and stores the result in a scoped
// temporary. Temporaries are released after the call that reads them, and names of `let` after the
// last formula that reads them. Numbers stay px_values and are folded at run time, except those
// computed by functions of conditions.
#include "opgen/compose.h"

value og_write_node(context *x, const og_node *n);

static sort sort_of_type(og_type type) {
  if (type == OG_TENSOR) return IS_TENSOR;
  return type == OG_SCALAR || type == OG_INT || type == OG_FLOAT || type == OG_BOOL ? IS_NUMBER
                                                                                    : IS_OTHER;
}

static bool og_is_none(const og_node *n) {
  return n->kind == OG_CONSTANT && !strcmp(n->text, "None");
}

// True if a formula is a list: [a, b], leading(x, 1), [a] if c else [].
bool og_is_list(const og_node *n) {
  if (n->kind == OG_CHOICE) return og_is_list(n->items[0]) || og_is_list(n->items[2]);
  return n->kind == OG_LIST || ((n->kind == OG_CALL || n->kind == OG_SHAPE) && og_is_shape_call(n));
}

// True for an element of a list of tensors.
static bool is_element(const og_op *op, const og_node *n) {
  int i =
      n->kind == OG_CALL && !strcmp(n->text, "element") ? og_param_find(op, n->items[0]->text) : -1;
  return i >= 0 && op->params[i].type == OG_TENSORS;
}

// The sort of a formula's value.
sort og_sort_of(const og_op *op, const og_node *n) {
  int p, which;
  const og_let *let;
  switch (n->kind) {
    case OG_NAME:
      if ((p = og_param_find(op, n->text)) >= 0) return sort_of_type(op->params[p].type);
      if ((let = og_let_find(op, n->text, &which))) return og_sort_of(op, let->node);
      if (og_loop_name(n->text) == 1 || og_is_vmap_number(n->text)) return IS_NUMBER;
      return strcmp(n->text, "recording") ? IS_TENSOR : IS_NUMBER;
    case OG_NUMBER:
    case OG_COMPARE:
    case OG_LOGIC:
      return IS_NUMBER;
    case OG_CONSTANT:
      return og_is_none(n) ? IS_OTHER : IS_NUMBER;
    case OG_BINARY:
    case OG_NEGATE:
      for (int i = 0; i < n->count; i++)
        if (og_sort_of(op, n->items[i]) != IS_NUMBER) return IS_TENSOR;
      return IS_NUMBER;
    case OG_SHAPE:
      return *n->text == 'n' || *n->text == 'i' ? IS_NUMBER : IS_OTHER;
    case OG_CALL:
      if (og_is_shape_call(n)) return IS_OTHER;
      if (is_element(op, n) || og_is_samples(n)) return IS_TENSOR;
      return og_is_condition_call(n) || og_is_read(n) ? IS_NUMBER : IS_TENSOR;
    case OG_HELPER:
    case OG_LOOP:
      return IS_TENSOR;
    case OG_CHOICE:
      return og_is_list(n) ? IS_OTHER : og_sort_of(op, n->items[og_is_none(n->items[0]) ? 2 : 0]);
    default:
      return IS_OTHER;
  }
}

// Stores a tensor: the result of a call, or a new reference.
void og_write_into(context *x, const char *target, const og_node *n) {
  int first = x->temporary_count;
  x->target = target;
  value v = og_write_node(x, n);
  x->target = NULL;
  if (v.sort != IS_TENSOR)
    og_die(n->location, "'%s' is not a tensor in formula of %s", n->text, x->op->name);
  if (v.stored) return;
  if (x->temporary_count == first)
    fprintf(x->to, "%s%s = px__f_tensor(%s);\n", x->indent, target, v.c);
  else
    fprintf(x->to, "%s%s = PX_MOVE(t[%d]);\n", x->indent, target,
            x->temporaries[--x->temporary_count]);
}

// ---- names

static og_value *let_value(context *x, const char *name) {
  int which;
  const og_let *let = og_let_find(x->op, name, &which);
  return let ? &x->lets[let - x->op->lets][which] : NULL;
}

// Functions that read the elements of a tensor.
const og_read_function og_reads[] = {{"some", "px__any_of_samples", "bool", "false", OG_BOOL},
                                     {"every", "px__all_of_samples", "bool", "true", OG_BOOL},
                                     {"item", "px__item_of", "int64_t", "0", OG_INT},
                                     {"code", "px__code_of", "int64_t", "0", OG_INT}};
enum { READS = sizeof og_reads / sizeof *og_reads };
int og_read_of(const og_node *n) {
  for (int i = 0; i < READS; i++)
    if (n->kind == OG_CALL && !strcmp(n->text, og_reads[i].name) && n->count == 1) return i;
  return -1;
}
bool og_is_read(const og_node *n) { return og_read_of(n) >= 0; }
bool og_reads_elements(const og_node *n) {
  return og_is_read(n->kind == OG_CHOICE ? n->items[0] : n);
}

// Resolves the names of conditions that are not parameters.
static og_value other_name(const og_node *n, void *of) {
  context *x = of;
  og_value *let = let_value(x, n->text);
  if (let && !let->c) og_die(n->location, "'%s' is used before its let", n->text);
  if (let) return *let;
  if (og_is_vmap_number(n->text))
    return (og_value){.type = OG_INT, .c = *n->text == 'b' ? "b->size" : "px__vmap_rank(b)"};
  int item = og_loop_name(n->text);
  if (item == 1) return (og_value){.type = OG_INT, .c = og_format("i%d", x->index)};
  if (item) return (og_value){.type = OG_TENSOR, .c = og_format("PX_T(%s)", x->values[item - 3])};
  int r = x->body ? -1 : og_grad_find(x->op, n->text);
  if (r >= 0) return (og_value){.type = OG_TENSOR, .c = og_format("PX_T(b->grads[%d])", r)};
  r = x->body ? -1 : og_result_find(x->op, n->text);
  if (r >= 0) return (og_value){.type = OG_TENSOR, .c = og_format("PX_T(b->results[%d])", r)};
  if (strcmp(n->text, "recording")) return (og_value){.c = NULL};
  og_use("PX_API bool px_grad_enabled(void);");
  return (og_value){.type = OG_BOOL, .c = "px_grad_enabled()"};
}
og_scope og_names_of(context *x) { return (og_scope){x->op, other_name, x}; }

static value typed_number(og_type type, const char *c, const char *typed) {
  return (value){.sort = IS_NUMBER, .c = c, .typed = typed, .type = type};
}
static value number_value(og_value v, const og_node *n) {
  switch (v.type) {
    case OG_INT:
      return typed_number(v.type, og_format("PX_F_INT(%s)", v.c), v.c);
    case OG_FLOAT:
      return typed_number(v.type, og_format("PX_F_FLOAT(%s)", v.c), v.c);
    case OG_BOOL:
      return typed_number(v.type, og_format("PX_B(%s)", v.c), v.c);
    case OG_TEXT:
      return (value){.sort = IS_OTHER, .c = og_format("PX_TX(%s)", v.c)};
    default:
      og_die(n->location, "'%s' has no value in a formula", n->text);
  }
}

// A number of conditions: size(x, 0), a // b.
static value write_typed(context *x, const og_node *n) {
  og_scope names = og_names_of(x);
  return number_value(og_number(n, og_resolve, &names), n);
}

static value write_name(context *x, const og_node *n) {
  int i = og_param_find(x->op, n->text);
  const og_param *p = i < 0 ? NULL : &x->op->params[i];
  if (p) return (value){.sort = sort_of_type(p->type), .c = og_format("a[%d]", i), .param = p};
  const og_value *let = let_value(x, n->text);
  if (let || og_loop_name(n->text) || og_is_vmap_number(n->text) || !strcmp(n->text, "recording")) {
    og_value v = other_name(n, x);
    if (v.type != OG_TENSOR) return number_value(v, n);
    return (value){.sort = og_sort_of(x->op, n), .c = v.c};
  }
  int r = og_grad_find(x->op, n->text);
  if (r >= 0) return (value){.sort = IS_TENSOR, .c = og_format("PX_T(b->grads[%d])", r)};
  r = og_result_find(x->op, n->text);
  return (value){.sort = IS_TENSOR, .c = og_format("PX_T(b->results[%d])", r)};
}

// ---- temporaries

// Returns the number of a new temporary.
int og_new_temporary(context *x) {
  if (x->temporary_count == MAX_TEMPORARIES)
    og_die(x->op->location, "a formula of %s is too long", x->op->name);
  return x->temporaries[x->temporary_count++] = x->tensors++;
}
// Where a call stores its result: in the target, or in a new temporary.
typedef struct result {
  int first;           // temporaries from here on are read by the call
  const char *target;  // NULL for a temporary
} result;
// Begins a call, whose arguments are written next.
static result begin_call(context *x) {
  result r = {x->temporary_count, x->target};
  x->target = NULL;
  return r;
}
static const char *place_of(context *x, const result *r) {
  return r->target ? r->target : og_format("t[%d]", og_new_temporary(x));
}
// Ends a call: releases the temporaries that it read.
static value end_call(context *x, const result *r) {
  int read = x->temporary_count - !r->target, made = r->target ? 0 : x->temporaries[read];
  bool ends = r->target && !strncmp(r->target, "results", 7);  // the function releases the rest
  for (int i = r->first; i < read && !ends; i++)
    fprintf(x->to, "%spx__f_release(&t[%d]);\n", x->indent, x->temporaries[i]);
  x->temporary_count = r->first;
  if (r->target) return (value){.sort = IS_TENSOR, .stored = true};
  x->temporaries[x->temporary_count++] = made;
  return (value){.sort = IS_TENSOR, .c = og_format("PX_T(t[%d])", made)};
}

static value write_number(const char *text) {
  bool is_integer = !strpbrk(text, ".eE");
  const char *c = og_format(is_integer ? "PX_F_INT(%s)" : "PX_F_FLOAT(%s)", text);
  return typed_number(is_integer ? OG_INT : OG_FLOAT, c, text);
}

static bool is_whole(og_type type) { return type == OG_INT || type == OG_BOOL; }

// Writes a list literal as int[] or Tensor[].
const char *og_write_list(context *x, const og_node *n, og_type type) {
  const char *items = "";
  bool spreads = n->kind != OG_LIST;
  for (int i = 0; i < n->count; i++) spreads |= n->items[i]->kind == OG_SPREAD;
  if (spreads && type == OG_INTS) {
    og_scope names = og_names_of(x);
    int shape = ++x->steps;
    fprintf(x->to, "%spx__shape l%d;\n%sl%d.n = 0;\n", x->indent, shape, x->indent, shape);
    og_write_shape(x->to, &names, n, og_format("l%d", shape), x->indent);
    return og_format("px__shape_list(&l%d)", shape);
  }
  for (int i = 0; i < n->count; i++) {
    value v = og_write_node(x, n->items[i]);
    const char *format = type == OG_TENSORS            ? "%s%s(%s).v.tensor"
                         : v.typed && is_whole(v.type) ? "%s%s%s"
                                                       : "%s%spx_value_int(%s)";
    items = og_format(format, items, i ? ", " : "",
                      type != OG_TENSORS && v.typed && is_whole(v.type) ? v.typed : v.c);
  }
  int step = ++x->steps;
  const char *c = type == OG_TENSORS ? "px_tensor *const" : "const int64_t";
  if (n->count == 0) return type == OG_TENSORS ? "PX_TS(NULL, 0)" : "PX_IS(NULL, 0)";
  fprintf(x->to, "%s%s l%d[] = {%s};\n", x->indent, c, step, items);
  return og_format("%s(l%d, %d)", og_types[type].make, step, n->count);
}

// A number of known type as a parameter, or NULL.
static const char *coerce_typed(value v, og_type to) {
  if (v.param && v.param->type == to && !v.param->optional) return v.c;
  if (!v.typed) return NULL;
  if (to == OG_INT && is_whole(v.type)) return og_format("PX_I(%s)", v.typed);
  if (to == OG_FLOAT && v.type != OG_BOOL) return og_format("PX_F(%s)", v.typed);
  if (to == OG_BOOL && v.type == OG_BOOL) return v.c;
  return (to == OG_SCALAR || to == OG_TENSOR) && v.type != OG_BOOL ? v.c : NULL;
}

// Converts the value to the type of the parameter.
static const char *coerce(context *x, value v, const og_param *p, const og_node *n) {
  static const char *const casts[OG_TYPE_COUNT] = {[OG_TENSOR] = "scalar",
                                                   [OG_SCALAR] = "scalar",
                                                   [OG_INT] = "int",
                                                   [OG_FLOAT] = "float",
                                                   [OG_BOOL] = "bool"};
  if (v.list) {
    if (p->type != OG_INTS && p->type != OG_TENSORS)
      og_die(n->location, "'%s' cannot be a list in formula of %s", p->name, x->op->name);
    return og_write_list(x, v.list, p->type);
  }
  if (v.sort == IS_TENSOR && p->type != OG_TENSOR)
    og_die(n->location, "'%s' cannot be a tensor in formula of %s", p->name, x->op->name);
  const char *typed = v.sort == IS_NUMBER ? coerce_typed(v, p->type) : NULL;
  if (typed) return typed;
  if (v.sort == IS_NUMBER && p->type == OG_INTS) {
    int step = ++x->steps;
    const char *c = v.typed && is_whole(v.type) ? v.typed : og_format("px_value_int(%s)", v.c);
    fprintf(x->to, "%sconst int64_t l%d[] = {%s};\n", x->indent, step, c);
    return og_format("PX_IS(l%d, 1)", step);
  }
  if (v.sort == IS_NUMBER && casts[p->type]) return og_format("px__f_%s(%s)", casts[p->type], v.c);
  return v.c;
}

// Returns the index of the parameter of argument i of a call.
static int target_of(const context *x, const og_node *call, const og_op *op, int i) {
  int at = call->keys[i] ? og_param_find(op, call->keys[i]) : i;
  if (at < 0)
    og_die(call->location, "%s has no parameter '%s' in formula of %s", op->name, call->keys[i],
           x->op->name);
  if (at >= op->param_count)
    og_die(call->location, "too many arguments for %s in formula of %s", op->name, x->op->name);
  return at;
}

// Returns the C expression of an op's descriptor and declares it.
static const char *descriptor(const char *name) {
  og_use("extern const px_op px__op_%s;", name);
  return og_format("&px__op_%s", name);
}

// True if every tensor of a call in a gradient is a parameter or a number: all may be numbers.
static bool may_have_numbers_only(const context *x, const og_op *op, const char *const *given) {
  if (x->body || !og_is(op, "pointwise") || !og_is(x->op, "pointwise") || x->op->param_count < 2 ||
      og_is(x->op, "no_numbers"))
    return false;
  for (int i = 0; i < op->param_count; i++)
    if (op->params[i].type == OG_TENSOR && given[i] && strncmp(given[i], "px__f_scalar(", 13) &&
        strncmp(given[i], "PX_F_", 5) && strncmp(given[i], "a[", 2))
      return false;
  return true;
}

// Dtypes are those of results, except None, a parameter and dtype(x), which may be absent.
static const char *write_argument(context *x, const og_node *n, const og_param *p,
                                  const og_node *call) {
  int i = n->kind == OG_NAME ? og_param_find(x->op, n->text) : -1;
  bool passed =
      og_is_none(n) || n->kind == OG_SHAPE || (i >= 0 && x->op->params[i].type == OG_DTYPE);
  og_scope names = og_names_of(x);
  if (p->type == OG_DTYPE && !passed) return og_dtype_value(&names, n);
  // rows(x, 2) is a list here, and a number elsewhere.
  value list = {.sort = IS_OTHER, .c = "", .list = n};
  return coerce(
      x, p->type == OG_INTS && n->kind != OG_SHAPE && og_is_list(n) ? list : og_write_node(x, n), p,
      call);
}

// Writes the arguments of a call of an op or a formula as an array; returns its number.
int og_write_arguments(context *x, const og_node *call, const og_op *op, bool *wide) {
  const char *given[OG_MAX_PARAMS] = {NULL};
  bool driven = og_find(op->name) == op;  // the op fills in its defaults
  for (int i = 0; i < call->count; i++) {
    int at = target_of(x, call, op, i);
    if (given[at])
      og_die(call->location, "'%s' is given twice in formula of %s", op->params[at].name,
             x->op->name);
    given[at] = write_argument(x, call->items[i], &op->params[at], call);
  }
  for (int i = 0; i < op->param_count; i++) {
    const og_param *p = &op->params[i];
    if (!given[i] && !p->fallback && !p->optional)
      og_die(call->location, "%s requires '%s' in formula of %s", op->name, p->name, x->op->name);
    if (!given[i] && p->fallback && !driven)
      given[i] = coerce(x, og_write_node(x, og_formula(p->fallback, op->location)), p, call);
  }
  int step = ++x->steps;
  fprintf(x->to, "%sconst px_value a%d[] = {", x->indent, step);
  for (int i = 0; i < op->param_count; i++)
    fprintf(x->to, "%s%s", i ? ", " : "", given[i] ? given[i] : "{0}");
  fprintf(x->to, "};\n");
  *wide = may_have_numbers_only(x, op, given);
  return step;
}

const char *og_formula_prototype(const char *name) {
  return og_format("px_status px__formula_%s(px_tensor **results, const px_value *a)", name);
}
const char *og_formula_function(const char *name) {
  og_use("%s;", og_formula_prototype(name));
  return og_format("px__formula_%s", name);
}

// `add_` for the op add, called in place.
static bool is_in_place(const og_op *op, const og_node *call) {
  return strlen(call->text) > strlen(op->name);
}

static value write_call(context *x, const og_node *call) {
  const og_op *op = og_callee(call->text);
  bool wide, formula = op == og_formula_named(call->text);
  result r = begin_call(x);
  if (op->result_list)
    og_die(call->location, "%s returns a list in formula of %s", op->name, x->op->name);
  if (formula && op->result_count != 1)
    og_die(call->location, "%s has several results in formula of %s", call->text, x->op->name);
  int arguments = og_write_arguments(x, call, op, &wide);
  const char *to = place_of(x, &r);
  if (formula)
    fprintf(x->to, "%sPX_F_TRY(%s(&%s, a%d));\n", x->indent, og_formula_function(op->name), to,
            arguments);
  else
    fprintf(x->to, "%sPX_F_TRY(px__f_call%s(&%s, %s, a%d));\n", x->indent,
            is_in_place(op, call) ? "_in_place"
            : wide                ? "_wide"
                                  : "",
            to, descriptor(op->name), arguments);
  return end_call(x, &r);
}

// A body of Tensor[] is a call of an op that returns a list.
void og_write_list_call(context *x, const og_node *call) {
  const og_op *op = call->kind == OG_CALL ? og_find(call->text) : NULL;
  bool wide;
  if (!op || !op->result_list) og_die(call->location, "the body of %s is not a list", x->op->name);
  int arguments = og_write_arguments(x, call, op, &wide);
  fprintf(x->to, "%sPX_F_TRY(px_op_call(%s, PX_CALL_NEW, a%d, (void **)&call->list));\n", x->indent,
          descriptor(op->name), arguments);
}

// A helper takes typed arguments, as declared in its line.
static value write_helper(context *x, const og_node *n) {
  const og_op *helper = og_helper(n->text);
  const char *items = "";
  result r = begin_call(x);
  if (n->count != helper->param_count)
    og_die(n->location, "%s takes %d arguments in formula of %s", n->text, helper->param_count,
           x->op->name);
  for (int i = 0; i < n->count; i++) {
    const char *c = coerce(x, og_write_node(x, n->items[i]), &helper->params[i], n);
    items = og_format("%s, %s", items, og_helper_argument(helper, i, og_format("(%s)", c)));
  }
  og_use("%s", og_helper_prototype(helper));
  fprintf(x->to, "%sPX_F_TRY(px__grad_%s(&%s%s));\n", x->indent, n->text, place_of(x, &r), items);
  return end_call(x, &r);
}

// Writes an operator on tensors as a call of its op.
static value write_operator(context *x, const char *name, const og_node *n) {
  og_node call = *n;
  call.kind = OG_CALL, call.text = name;
  if (!og_find(name)) og_die(n->location, "the operator '%s' requires the op %s", n->text, name);
  return write_call(x, &call);
}

// A tensor times a number. The number is often 1: then the tensor is used as is.
static value write_scaling(context *x, const og_node *n) {
  result r = begin_call(x);
  value left = og_write_node(x, n->items[0]), right = og_write_node(x, n->items[1]);
  fprintf(x->to, "%sPX_F_TRY(px__f_scale(&%s, %s, %s, %s));\n", x->indent, place_of(x, &r),
          descriptor("mul"), left.c, right.c);
  return end_call(x, &r);
}

static bool is_number(context *x, const og_node *n) { return og_sort_of(x->op, n) == IS_NUMBER; }

// True if the types of a number are known: no part is a Scalar, which may be an integer or not.
static bool is_typed(const og_op *op, const og_node *n) {
  int which, i = n->kind == OG_NAME ? og_param_find(op, n->text) : -1;
  const og_let *let = n->kind == OG_NAME && i < 0 ? og_let_find(op, n->text, &which) : NULL;
  if (let) return is_typed(op, let->node);
  if (i >= 0 && (op->params[i].type == OG_SCALAR || op->params[i].type == OG_TENSOR)) return false;
  if (n->kind == OG_SHAPE) return false;
  for (int k = 0; k < n->count && !og_is_condition_call(n); k++)
    if (!is_typed(op, n->items[k])) return false;
  return true;
}

static value write_binary(context *x, const og_node *n) {
  static const char *const names[] = {"+",   "add", "-",   "sub", "*",
                                      "mul", "/",   "div", "@",   "matmul"};
  bool simple = strchr("+-*/@", *n->text) && !n->text[1];
  if (is_number(x, n)) {
    if (!simple || is_typed(x->op, n)) return write_typed(x, n);
    value left = og_write_node(x, n->items[0]), right = og_write_node(x, n->items[1]);
    return (value){.sort = IS_NUMBER,
                   .c = og_format("px__f_arith('%s', %s, %s)", n->text, left.c, right.c)};
  }
  if (!simple) og_die(n->location, "'%s' is not allowed in a formula of %s", n->text, x->op->name);
  if (*n->text == '*' && is_number(x, n->items[1])) return write_scaling(x, n);
  for (int i = 0; i < 10; i += 2)
    if (!strcmp(names[i], n->text)) return write_operator(x, names[i + 1], n);
  og_die(n->location, "unknown operator '%s'", n->text);
}

static value write_negate(context *x, const og_node *n) {
  if (!is_number(x, n)) return write_operator(x, "neg", n);
  if (n->items[0]->kind == OG_NUMBER) return write_number(og_format("-%s", n->items[0]->text));
  if (is_typed(x->op, n)) return write_typed(x, n);
  const char *c = og_write_node(x, n->items[0]).c;
  return (value){.sort = IS_NUMBER, .c = og_format("px__f_arith('-', PX_F_INT(0), %s)", c)};
}

// ---- choices

const char *og_test_of(context *x, const og_node *n) {
  og_scope names = og_names_of(x);
  const char *test = og_test(n, og_resolve, &names);
  for (int i = 0; i < x->condition_count; i++)
    if (!strcmp(x->conditions[i], test)) return og_format("c%d", i + 1);
  return test;
}
// Declares the condition, for several uses in a function.
const char *og_shared_test(context *x, const og_node *n) {
  const char *test = og_test_of(x, n);
  if (*test == 'c' && strspn(test + 1, "0123456789") == strlen(test + 1)) return test;
  if (x->condition_count == MAX_CONDITIONS)
    og_die(n->location, "too many choices in formula of %s", x->op->name);
  x->conditions[x->condition_count++] = test;
  fprintf(x->to, "%sconst bool c%d = %s;\n", x->indent, x->condition_count, test);
  return og_format("c%d", x->condition_count);
}

void og_write_many(context *x, const og_node *n, const char *const *to, int count);

// The values of the loop are in `to`; each step replaces them.
static void write_loop(context *x, const og_node *n, const char *const *to, int count) {
  const char *indent = x->indent, *next[OG_OP_RESULTS];
  int first = x->temporary_count;
  og_scope names = og_names_of(x);
  if (n->count != 3 + count)
    og_die(n->location, "expected %d values of a loop of %s", count, x->op->name);
  for (int i = 0; i < count; i++) og_write_many(x, n->items[3 + i], &to[i], 1);
  for (int i = 0; i < count; i++) next[i] = og_format("t[%d]", og_new_temporary(x));
  x->index = ++x->steps;
  fprintf(x->to, "%sconst int64_t e%d = %s;\n%sfor (int64_t i%d = %s; i%d < e%d; i%d++) {\n",
          indent, x->index, og_integer(n->items[2], og_resolve, &names), indent, x->index,
          og_integer(n->items[1], og_resolve, &names), x->index, x->index, x->index);
  og_loop = n, x->values = to, x->indent = og_format("%s  ", indent);
  og_write_many(x, n->items[0], next, count);
  for (int i = 0; i < count; i++)
    fprintf(x->to, "%spx__f_release(&%s);\n%s%s = PX_MOVE(%s);\n", x->indent, to[i], x->indent,
            to[i], next[i]);
  og_loop = NULL, x->indent = indent, x->temporary_count = first;
  fprintf(x->to, "%s}\n", indent);
}

void og_write_branch(context *x, const og_node *n, const char *const *to, int count) {
  const char *indent = x->indent;
  int first = x->temporary_count;
  x->indent = og_format("%s  ", indent);
  og_write_many(x, n, to, count);
  x->indent = indent, x->temporary_count = first;
}

// Stores the tensors of a formula: of a choice, of one call with `count` results, which are
// consecutive in memory, or one tensor. None leaves NULL.
void og_write_many(context *x, const og_node *n, const char *const *to, int count) {
  if (n->kind == OG_CHOICE) {
    fprintf(x->to, "%sif (%s) {\n", x->indent, og_test_of(x, n->items[1]));
    og_write_branch(x, n->items[0], to, count);
    if (!og_is_none(n->items[2])) {
      fprintf(x->to, "%s} else {\n", x->indent);
      og_write_branch(x, n->items[2], to, count);
    }
    fprintf(x->to, "%s}\n", x->indent);
    return;
  }
  if (og_is_none(n)) return;
  if (n->kind == OG_LOOP) {
    write_loop(x, n, to, count);
    return;
  }
  if (count == 1) {
    og_write_into(x, to[0], n);
    return;
  }
  const og_op *op = n->kind == OG_CALL ? og_callee(n->text) : NULL;
  bool wide;
  if (!op || op->result_count != count)
    og_die(n->location, "'%s' does not have %d results in formula of %s", n->text, count,
           x->op->name);
  int arguments = og_write_arguments(x, n, op, &wide);
  if (og_find(n->text))
    fprintf(x->to, "%sPX_F_TRY(px__f_call_all(&%s, %d, %s, a%d));\n", x->indent, *to, count,
            descriptor(op->name), arguments);
  else
    fprintf(x->to, "%sPX_F_TRY(%s(&%s, a%d));\n", x->indent, og_formula_function(n->text), *to,
            arguments);
}

static value write_choice(context *x, const og_node *n) {
  if (og_is_list(n)) return (value){.sort = IS_OTHER, .c = "", .list = n};
  if (og_sort_of(x->op, n) != IS_TENSOR) return write_typed(x, n);
  result r = begin_call(x);
  const char *to = place_of(x, &r);
  og_write_many(x, n, &to, 1);
  return r.target ? (value){.sort = IS_TENSOR, .stored = true}
                  : (value){.sort = IS_TENSOR, .c = og_format("PX_T(%s)", to)};
}

static value write_constant(const og_node *n) {
  if (!strcmp(n->text, "None")) return (value){.sort = IS_OTHER, .c = "PX_NONE()"};
  bool truth = !strcmp(n->text, "True");
  return typed_number(OG_BOOL, truth ? "PX_B(true)" : "PX_B(false)", truth ? "true" : "false");
}

// The physical tensor of a parameter; with a number, of at least that many dimensions a sample.
static value write_samples(context *x, const og_node *n) {
  int i = og_param_find(x->op, n->items[0]->text);
  result r = begin_call(x);
  og_scope names = og_names_of(x);
  if (i < 0 || !og_is_tensor(&x->op->params[i]))
    og_die(n->location, "samples() takes a tensor of %s", x->op->name);
  fprintf(x->to, "%sPX_F_TRY(px__vmap_%s(&%s, b, a[%d].v.tensor", x->indent,
          n->count == 1 ? "ensure_batch_dim" : "physical", place_of(x, &r), i);
  if (n->count == 2) fprintf(x->to, ", (int)%s", og_integer(n->items[1], og_resolve, &names));
  fprintf(x->to, "));\n");
  return end_call(x, &r);
}

static value write_element(context *x, const og_node *n) {
  og_scope names = og_names_of(x);
  return (value){
      .sort = IS_TENSOR,
      .c = og_format("PX_T(a[%d].v.tensors[%s])", og_param_find(x->op, n->items[0]->text),
                     og_integer(n->items[1], og_resolve, &names))};
}

value og_write_node(context *x, const og_node *n) {
  switch (n->kind) {
    case OG_NAME:
      return write_name(x, n);
    case OG_NUMBER:
      return write_number(n->text);
    case OG_STRING:
      return (value){.sort = IS_OTHER, .c = og_format("PX_TX(%s)", og_quote(n->text))};
    case OG_CONSTANT:
      return write_constant(n);
    case OG_LIST:
      return (value){.sort = IS_OTHER, .c = "", .list = n};
    case OG_COMPARE:
    case OG_LOGIC:
      return write_typed(x, n);
    case OG_CHOICE:
      return write_choice(x, n);
    case OG_BINARY:
      return write_binary(x, n);
    case OG_NEGATE:
      return write_negate(x, n);
    case OG_CALL:
      if (og_is_read(n)) og_die(n->location, "expected `let NAME = %s(...)`", n->text);
      if (og_is_samples(n)) return write_samples(x, n);
      if (is_element(x->op, n)) return write_element(x, n);
      if (og_is_condition_call(n)) return write_typed(x, n);
      return og_is_shape_call(n) ? (value){.sort = IS_OTHER, .c = "", .list = n} : write_call(x, n);
    case OG_HELPER:
      return write_helper(x, n);
    case OG_SHAPE:
      return (value){.sort = *n->text == 'n' ? IS_NUMBER : IS_OTHER,
                     .c = og_format("px__f_%s(%s)", n->text, write_name(x, n->items[0]).c)};
    default:
      og_die(n->location, "'%s' is not allowed in a formula of %s", n->text, x->op->name);
  }
}
