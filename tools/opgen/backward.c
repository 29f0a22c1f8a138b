// SPDX-License-Identifier: Apache-2.0
// Writes formulas as C: each step calls an op on px_values and stores the result in a scoped
// temporary. Numbers stay px_values and are folded at run time of the backward function.
#include "opgen/opgen.h"

typedef enum sort { IS_TENSOR, IS_NUMBER, IS_OTHER } sort;
// The C expression of a px_value.
typedef struct value {
  sort sort;
  const char *c;
  const og_node *list;  // a list literal: written once its type is known
} value;
typedef struct context {
  FILE *to;
  const og_op *op;
  int steps;
  const char *indent, *args;
  bool body;
} context;

static value write_node(context *x, const og_node *n);

static sort sort_of(og_type type) {
  if (type == OG_TENSOR) return IS_TENSOR;
  return type == OG_SCALAR || type == OG_INT || type == OG_FLOAT || type == OG_BOOL ? IS_NUMBER
                                                                                    : IS_OTHER;
}

static value write_name(context *x, const og_node *n) {
  int i = og_param_find(x->op, n->text);
  if (i >= 0) return (value){sort_of(x->op->params[i].type), og_format("%s[%d]", x->args, i), NULL};
  if (!strcmp(n->text, "grad")) return (value){IS_TENSOR, "PX_T(b->grads[0])", NULL};
  int r = og_result_find(x->op, n->text);
  if (r < 0)
    return (value){IS_TENSOR, og_format("PX_T(b->grads[%d])", og_result_find(x->op, n->text + 5)),
                   NULL};
  return (value){IS_TENSOR, og_format("PX_T(b->results[%d])", r), NULL};
}

static value write_number(const og_node *n) {
  bool is_integer = !strpbrk(n->text, ".eE");
  return (value){IS_NUMBER,
                 is_integer ? og_format("PX_S(px_int(%s))", n->text)
                            : og_format("PX_S(px_float(%s))", n->text),
                 NULL};
}

// Writes a list literal as int[] or Tensor[].
static const char *write_list(context *x, const og_node *n, og_type type) {
  const char *items = "";
  for (int i = 0; i < n->count; i++) {
    value v = write_node(x, n->items[i]);
    items = og_format(type == OG_TENSORS ? "%s%s(%s).v.tensor" : "%s%spx_value_int(%s)", items,
                      i ? ", " : "", v.c);
  }
  int step = ++x->steps;
  const char *c = type == OG_TENSORS ? "px_tensor *const" : "const int64_t";
  if (n->count == 0) return type == OG_TENSORS ? "PX_TS(NULL, 0)" : "PX_IS(NULL, 0)";
  fprintf(x->to, "%s%s l%d[] = {%s};\n", x->indent, c, step, items);
  return og_format("%s(l%d, %d)", og_types[type].make, step, n->count);
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
    return write_list(x, v.list, p->type);
  }
  if (v.sort == IS_TENSOR && p->type != OG_TENSOR)
    og_die(n->location, "'%s' cannot be a tensor in formula of %s", p->name, x->op->name);
  if (v.sort == IS_NUMBER && p->type == OG_INTS) {
    int step = ++x->steps;
    fprintf(x->to, "%sconst int64_t l%d[] = {px_value_int(%s)};\n", x->indent, step, v.c);
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
  const char *parameter = og_format("%s[", x->args);
  if (x->body || !og_is(op, "pointwise") || !og_is(x->op, "pointwise") || x->op->param_count < 2 ||
      og_is(x->op, "no_numbers"))
    return false;
  for (int i = 0; i < op->param_count; i++)
    if (op->params[i].type == OG_TENSOR && given[i] && strncmp(given[i], "px__f_scalar(", 13) &&
        strncmp(given[i], parameter, strlen(parameter)))
      return false;
  return true;
}

static value write_call(context *x, const og_node *call) {
  const og_op *op = og_find(call->text);
  const char *given[OG_MAX_PARAMS] = {NULL};
  if (op->result_list)
    og_die(call->location, "%s returns a list in formula of %s", op->name, x->op->name);
  for (int i = 0; i < call->count; i++) {
    int at = target_of(x, call, op, i);
    if (given[at])
      og_die(call->location, "'%s' is given twice in formula of %s", op->params[at].name,
             x->op->name);
    given[at] = coerce(x, write_node(x, call->items[i]), &op->params[at], call);
  }
  for (int i = 0; i < op->param_count; i++)
    if (!given[i] && !op->params[i].fallback && !op->params[i].optional)
      og_die(call->location, "%s requires '%s' in formula of %s", op->name, op->params[i].name,
             x->op->name);
  int step = ++x->steps;
  fprintf(x->to, "%sPX_SCOPED(px_tensor) t%d = NULL;\n", x->indent, step);
  fprintf(x->to, "%sconst px_value a%d[] = {", x->indent, step);
  for (int i = 0; i < op->param_count; i++)
    fprintf(x->to, "%s%s", i ? ", " : "", given[i] ? given[i] : "{0}");
  fprintf(x->to, "};\n%sPX_TRY(px__f_call%s(&t%d, %s, a%d));\n", x->indent,
          may_have_numbers_only(x, op, given) ? "_wide" : "", step, descriptor(op->name), step);
  return (value){IS_TENSOR, og_format("PX_T(t%d)", step), NULL};
}

// A helper takes typed arguments, as declared in its line.
static value write_helper(context *x, const og_node *n) {
  const og_op *helper = og_helper(n->text);
  const char *items = "";
  if (n->count != helper->param_count)
    og_die(n->location, "%s takes %d arguments in formula of %s", n->text, helper->param_count,
           x->op->name);
  for (int i = 0; i < n->count; i++) {
    const char *c = coerce(x, write_node(x, n->items[i]), &helper->params[i], n);
    items = og_format("%s, %s", items, og_helper_argument(helper, i, og_format("(%s)", c)));
  }
  int step = ++x->steps;
  og_use("%s", og_helper_prototype(helper));
  fprintf(x->to, "%sPX_SCOPED(px_tensor) t%d = NULL;\n", x->indent, step);
  fprintf(x->to, "%sPX_TRY(px__grad_%s(&t%d%s));\n", x->indent, n->text, step, items);
  return (value){IS_TENSOR, og_format("PX_T(t%d)", step), NULL};
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
  value left = write_node(x, n->items[0]), right = write_node(x, n->items[1]);
  int step = ++x->steps;
  fprintf(x->to, "%sPX_SCOPED(px_tensor) t%d = NULL;\n", x->indent, step);
  fprintf(x->to, "%sPX_TRY(px__f_scale(&t%d, %s, %s, %s));\n", x->indent, step, descriptor("mul"),
          left.c, right.c);
  return (value){IS_TENSOR, og_format("PX_T(t%d)", step), NULL};
}

static bool is_number(context *x, const og_node *n) {
  if (n->kind == OG_NAME) return write_name(x, n).sort == IS_NUMBER;
  if (n->kind == OG_BINARY || n->kind == OG_NEGATE)
    return is_number(x, n->items[0]) && (n->count < 2 || is_number(x, n->items[1]));
  return n->kind == OG_NUMBER || (n->kind == OG_SHAPE && (*n->text == 'n'));
}

static value write_binary(context *x, const og_node *n) {
  static const char *const names[] = {"+", "add", "-", "sub", "*", "mul", "/", "div"};
  if (!strchr("+-*/", *n->text) || n->text[1])
    og_die(n->location, "'%s' is not allowed in a formula of %s", n->text, x->op->name);
  if (is_number(x, n)) {
    value left = write_node(x, n->items[0]), right = write_node(x, n->items[1]);
    return (value){IS_NUMBER, og_format("px__f_arith('%s', %s, %s)", n->text, left.c, right.c),
                   NULL};
  }
  if (*n->text == '*' && is_number(x, n->items[1])) return write_scaling(x, n);
  for (int i = 0; i < 8; i += 2)
    if (!strcmp(names[i], n->text)) return write_operator(x, names[i + 1], n);
  og_die(n->location, "unknown operator '%s'", n->text);
}

static value write_negate(context *x, const og_node *n) {
  if (!is_number(x, n)) return write_operator(x, "neg", n);
  return (value){IS_NUMBER,
                 og_format("px__f_arith('-', PX_S(px_int(0)), %s)", write_node(x, n->items[0]).c),
                 NULL};
}

static value write_constant(const og_node *n) {
  if (!strcmp(n->text, "None")) return (value){IS_OTHER, "PX_NONE()", NULL};
  return (value){IS_NUMBER, !strcmp(n->text, "True") ? "PX_B(true)" : "PX_B(false)", NULL};
}

static value write_node(context *x, const og_node *n) {
  switch (n->kind) {
    case OG_NAME:
      return write_name(x, n);
    case OG_NUMBER:
      return write_number(n);
    case OG_STRING:
      return (value){IS_OTHER, og_format("PX_TX(%s)", og_quote(n->text)), NULL};
    case OG_CONSTANT:
      return write_constant(n);
    case OG_LIST:
      return (value){IS_OTHER, "", n};
    case OG_BINARY:
      return write_binary(x, n);
    case OG_NEGATE:
      return write_negate(x, n);
    case OG_CALL:
      return write_call(x, n);
    case OG_HELPER:
      return write_helper(x, n);
    case OG_SHAPE:
      return (value){*n->text == 'n' ? IS_NUMBER : IS_OTHER,
                     og_format("px__f_%s(%s)", n->text, write_name(x, n->items[0]).c), NULL};
    default:
      og_die(n->location, "'%s' is not allowed in a formula of %s", n->text, x->op->name);
  }
}

// Returns the mask of gradients read by a formula. If all of them are undefined, the result is
// zero.
static unsigned grads_read(const og_op *op, const og_node *n) {
  unsigned mask = 0;
  if (n->kind == OG_NAME && og_param_find(op, n->text) < 0) {
    if (!strcmp(n->text, "grad")) mask = 1;
    if (!strncmp(n->text, "grad_", 5) && og_result_find(op, n->text) < 0)
      mask = 1u << og_result_find(op, n->text + 5);
  }
  for (int i = 0; i < n->count; i++) mask |= grads_read(op, n->items[i]);
  return mask;
}

static bool is_zero(const og_node *n) { return n->kind == OG_NUMBER && strtod(n->text, NULL) == 0; }

// Defined zeros: a leaf upstream gets a gradient, as in PyTorch.
static void write_zeros(FILE *to, const og_node *n, int i) {
  const og_op *zeros = og_find("zeros_like");
  if (!zeros) og_die(n->location, "the gradient 0 requires the op zeros_like");
  og_use("%s", og_prototype(zeros));
  fprintf(to,
          "  if (b->needs & %uu)\n"
          "    PX_TRY(px_zeros_like(&b->out[%d], b->grads[0], PX_DTYPE_NONE, PX_DEVICE_NONE,\n"
          "                         false, false, NULL));\n",
          1u << i, i);
}

static void write_gradient(FILE *to, const og_op *op, int i) {
  const og_node *n = op->grad_nodes[i];
  if (is_zero(n)) {
    write_zeros(to, n, i);
    return;
  }
  context x = {to, op, 0, "    ", "b->args", false};
  fprintf(to, "  if (b->needs & %uu", 1u << i);
  unsigned grads = grads_read(op, n);
  for (int r = 0; r < op->result_count && op->result_count > 1; r++)
    if (grads >> r & 1u) fprintf(to, " && b->grads[%d]", r);
  fprintf(to, ") {  // %s = %s\n", op->params[i].name, op->grads[i].text);
  value v = write_node(&x, n);
  if (v.sort != IS_TENSOR)
    og_die(n->location, "the gradient of %s is not a tensor: `%s`", op->name, op->grads[i].text);
  fprintf(to, "    b->out[%d] = px_retain((%s).v.tensor);\n  }\n", i, v.c);
}

bool og_has_backward(const og_op *op) { return op->grad_mask && !op->grad_all.text; }

void og_write_backward(FILE *to, const og_op *op) {
  if (!og_has_backward(op)) return;
  // Compiled for size: the time is spent in the called ops.
  fprintf(to, "__attribute__((cold)) static px_status backward_%s(px_op_gradient *b) {\n",
          op->name);
  for (int i = 0; i < op->param_count; i++)
    if (op->grad_nodes[i]) write_gradient(to, op, i);
  fprintf(to, "  return PX_OK;\n}\n\n");
}

// Writes the run function of a composite op given as a formula.
static void write_composed(FILE *to, const og_op *op, const char *role, const og_field *field,
                           const og_node *node) {
  if (!node) return;
  context x = {to, op, 0, "  ", "call->args", true};
  fprintf(to, "// %s\nstatic px_status %s_%s(px_call *call) {\n", field->text, role, op->name);
  value v = write_node(&x, node);
  if (v.sort != IS_TENSOR) og_die(field->location, "the %s of %s is not a tensor", role, op->name);
  fprintf(to, "  call->results[0] = px_retain((%s).v.tensor);\n  return PX_OK;\n}\n\n", v.c);
}

void og_write_body(FILE *to, const og_op *op) {
  write_composed(to, op, "body", &op->body, op->body_node);
  write_composed(to, op, "complex", &op->complex, op->complex_node);
  write_composed(to, op, "unsigned", &op->of_unsigned, op->unsigned_node);
}
