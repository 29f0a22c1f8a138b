// SPDX-License-Identifier: Apache-2.0
// Writes forward functions: a formula becomes direct calls of the ops' C functions. A name is an
// input, a tensor of the layer, or an argument of its constructor, in this order; `training` is the
// module's mode. A layer with an argument `inplace` calls its op in place if the argument is true.
#include "opgen/layer.h"

typedef struct context {
  FILE *to;
  const og_layer *l;
  int steps;
  const char *indent;
} context;

static const char *tensor_of(const og_layer *l, const char *name) {
  int input = og_layer_input(l, name);
  if (input >= 0) return og_format("inputs[%d]", og_port_tensors(l->inputs, input));
  return og_layer_own(l, name) >= 0 ? name : NULL;
}

static og_value name_of(const og_node *n, void *with) {
  const context *x = with;
  const og_node *name = n->kind == OG_SHAPE ? n->items[0] : n;
  const char *tensor = tensor_of(x->l, name->text);
  if (n->kind == OG_SHAPE) {
    if (!tensor || *n->text != 'n')
      og_die(n->location, "'%s' is not allowed in the forward of %s", n->text, x->l->e->name);
    return (og_value){.type = OG_INT, .c = og_format("px_tensor_%s(%s)", n->text, tensor)};
  }
  if (tensor) {  // inputs are required unless marked optional
    int input = og_layer_input(x->l, n->text);
    bool absent = input < 0 || x->l->inputs[input].optional;
    return (og_value){
        .type = OG_TENSOR, .c = tensor, .absent = absent ? og_format("!%s", tensor) : NULL};
  }
  if (!strcmp(n->text, "training")) return (og_value){.type = OG_BOOL, .c = "px__training(self)"};
  int p = og_layer_param(x->l, n->text);
  if (p < 0) og_die(n->location, "unknown name '%s' in the forward of %s", n->text, x->l->e->name);
  return og_layer_param_value(&x->l->e->params[p]);
}

static const char *write_tensor(context *x, const og_node *n);

// ---- arguments of ops

const char *og_layer_absent(const og_param *p) {
  switch (p->type) {
    case OG_INTS:
    case OG_TENSORS:
      return "NULL, 0";
    case OG_SCALAR:
      return "px_no_scalar()";
    case OG_DTYPE:
      return "PX_DTYPE_NONE";
    case OG_DEVICE:
      return "PX_DEVICE_NONE";
    default:
      return "NULL";
  }
}

// Writes a number for an optional parameter of the op: its address, or NULL.
static const char *optional_number(context *x, og_value v, og_type type) {
  const char *c = type == OG_INT ? "int64_t" : type == OG_FLOAT ? "double" : "bool";
  if (!v.absent) return og_format("&(%s){%s}", c, v.c);
  int step = ++x->steps;
  fprintf(x->to, "%sconst %s n%d = %s;\n", x->indent, c, step, v.c);
  return og_format("%s ? NULL : &n%d", v.absent, step);
}

static const char *scalar_argument(const og_node *n, og_value v) {
  if (n->kind == OG_NAME && v.type != OG_INTS) return og_format("px_value_scalar(%s)", n->text);
  return og_format("px_%s(%s)",
                   v.type == OG_FLOAT  ? "float"
                   : v.type == OG_BOOL ? "bool"
                                       : "int",
                   v.c);
}

static const char *list_argument(context *x, const og_node *n) {
  if (n->kind == OG_LIST) {
    const char *items = "";
    for (int i = 0; i < n->count; i++)
      items = og_format("%s%s%s", items, i ? ", " : "", og_number(n->items[i], name_of, x).c);
    return n->count ? og_format("(const int64_t[]){%s}, %d", items, n->count) : "NULL, 0";
  }
  og_value v = og_number(n, name_of, x);
  if (v.type == OG_INTS) return og_format("%s, %s", v.c, v.n);
  return og_format("(const int64_t[]){%s}, 1", v.c);
}

// Returns the C argument of a parameter of the op: the node's value, or the schema's default.
static const char *argument(context *x, const og_node *n, const og_op *op, const og_param *p) {
  if (!n && p->fallback) n = og_formula(p->fallback, op->location);
  bool none = !n || (n->kind == OG_CONSTANT && !strcmp(n->text, "None"));
  if (none && !p->optional)
    og_die(x->l->e->location, "%s requires '%s' in the forward of %s", op->name, p->name,
           x->l->e->name);
  if (none) return og_layer_absent(p);
  if (p->type == OG_TENSOR) return write_tensor(x, n);
  if (p->type == OG_INTS) return list_argument(x, n);
  og_value v = og_number(n, name_of, x);
  if (v.type == OG_TENSOR || v.type == OG_INTS || (v.type == OG_TEXT) != (p->type == OG_TEXT)) {
    if (p->type != OG_TEXT || !v.text)
      og_die(n->location, "'%s' of %s has another type in the forward of %s", p->name, op->name,
             x->l->e->name);
    return v.text;
  }
  if (p->type == OG_SCALAR) return scalar_argument(n, v);
  if (p->optional && p->type != OG_TEXT) return optional_number(x, v, p->type);
  return v.c;
}

// Returns the nodes of a call in the order of the op's parameters.
static const og_op *arguments_of(context *x, const og_node *call, const og_node **given,
                                 int results) {
  const og_op *op = og_find(call->text);
  const char *name = x->l->e->name;
  if (!op) og_die(call->location, "unknown op '%s' in the forward of %s", call->text, name);
  if (op->result_list || op->result_count != results || !og_has_new(op))
    og_die(call->location, "%s does not return %d tensors in the forward of %s", op->name, results,
           name);
  for (int i = 0; i < call->count; i++) {
    int at = call->keys[i] ? og_param_find(op, call->keys[i]) : i;
    if (at < 0 || at >= op->param_count)
      og_die(call->location, "%s has no argument of this name in the forward of %s", op->name,
             name);
    if (given[at])
      og_die(call->location, "'%s' is given twice in the forward of %s", op->params[at].name, name);
    given[at] = call->items[i];
  }
  return op;
}

// Returns the arguments of a call after the result, ", inputs[0], weight, bias)", and writes the
// statements they need.
static const char *rest_of(context *x, const og_node *call, int results) {
  const og_node *given[OG_MAX_PARAMS] = {NULL};
  const og_op *op = arguments_of(x, call, given, results);
  const char *c = "";
  og_use("%s", og_prototype(op));
  for (int i = 0; i < op->param_count; i++)
    c = og_format("%s, %s", c, argument(x, given[i], op, &op->params[i]));
  return og_format("%s)", c);
}

// ---- tensors

static bool is_tensor(const context *x, const og_node *n) {
  if (n->kind == OG_NAME) return tensor_of(x->l, n->text) != NULL;
  if (n->kind == OG_CALL) return og_find(n->text) != NULL;
  if (n->kind == OG_BINARY || n->kind == OG_NEGATE)
    return is_tensor(x, n->items[0]) || (n->count > 1 && is_tensor(x, n->items[1]));
  return false;
}

static og_node *call_node(const og_node *at, const char *op) {
  og_node *call = calloc(1, sizeof *call);
  if (!call) exit(1);
  *call = *at;
  call->kind = OG_CALL, call->text = op;
  return call;
}

// Rewrites an operator as a call of its op. A number on the left becomes a tensor, which takes part
// in promotion like a number.
static const og_node *as_call(context *x, const og_node *n) {
  static const char *const names[] = {"+", "add", "-", "sub", "*", "mul", "/", "div"};
  if (n->kind == OG_CALL) return n;
  if (n->kind == OG_NEGATE) return call_node(n, "neg");
  for (int i = 0; n->kind == OG_BINARY && i < 8; i += 2)
    if (!strcmp(names[i], n->text)) return call_node(n, names[i + 1]);
  og_die(n->location, "'%s' is not a tensor in the forward of %s", n->text, x->l->e->name);
}

static const char *number_tensor(context *x, const og_node *n) {
  og_value v = og_number(n, name_of, x);
  if (v.type != OG_INT && v.type != OG_FLOAT && v.type != OG_BOOL)
    og_die(n->location, "'%s' is not a tensor in the forward of %s", n->text, x->l->e->name);
  int step = ++x->steps;
  fprintf(x->to, "%sPX_SCOPED(px_tensor) t%d = NULL;\n%sPX_TRY(px_tensor_from_scalar(&t%d, %s));\n",
          x->indent, step, x->indent, step, scalar_argument(n, v));
  return og_format("t%d", step);
}

static const char *write_tensor(context *x, const og_node *n) {
  if (n->kind == OG_NAME && tensor_of(x->l, n->text)) return tensor_of(x->l, n->text);
  if (!is_tensor(x, n)) return number_tensor(x, n);
  const og_node *call = as_call(x, n);
  const char *rest = rest_of(x, call, 1);
  int step = ++x->steps;
  fprintf(x->to, "%sPX_SCOPED(px_tensor) t%d = NULL;\n", x->indent, step);
  fprintf(x->to, "%sPX_TRY(px_%s(&t%d%s);\n", x->indent, call->text, step, rest);
  return og_format("t%d", step);
}

static void write_result(context *x, const og_node *n) {
  const char *indent = x->indent;
  if (n->kind == OG_CHOICE) {
    fprintf(x->to, "%sif (%s) {\n", indent, og_test(n->items[1], name_of, x));
    x->indent = og_format("%s  ", indent);
    write_result(x, n->items[0]);
    x->indent = indent;
    fprintf(x->to, "%s}\n", indent);
    write_result(x, n->items[2]);
    return;
  }
  if (n->kind == OG_NAME && tensor_of(x->l, n->text)) {
    fprintf(x->to, "%s*out = px_retain(%s);\n%sreturn PX_OK;\n", indent, tensor_of(x->l, n->text),
            indent);
    return;
  }
  const og_node *call = as_call(x, n);
  const char *rest = rest_of(x, call, 1);
  fprintf(x->to, "%sreturn px_%s(out%s;\n", indent, call->text, rest);
}

// ---- in place

static const char *as_value(context *x, const og_node *n, const og_param *p) {
  if (!n) return "{0}";
  if (p->type == OG_TENSOR) return og_format("PX_T(%s)", write_tensor(x, n));
  og_value v = og_number(n, name_of, x);
  if (p->type == OG_SCALAR) return og_format("PX_S(%s)", scalar_argument(n, v));
  if (n->kind == OG_NAME && og_layer_param(x->l, n->text) >= 0) return n->text;
  return og_format("%s(%s)", og_types[v.type].make, v.c);
}

static void write_inplace(context *x, const og_node *n) {
  const og_node *given[OG_MAX_PARAMS] = {NULL};
  const char *values = "", *name = x->l->e->name;
  if (n->kind != OG_CALL || !n->count || n->items[0]->kind != OG_NAME ||
      og_layer_input(x->l, n->items[0]->text) != 0)
    og_die(n->location, "%s has `inplace`: its forward is one op, and begins with its input", name);
  const og_op *op = arguments_of(x, n, given, 1);
  fprintf(x->to, "  if (px_value_int(inplace) != 0) {\n");
  x->indent = "    ";
  for (int i = 0; i < op->param_count; i++)
    values = og_format("%s%s%s", values, i ? ", " : "", as_value(x, given[i], &op->params[i]));
  fprintf(x->to, "    const px_value args[] = {%s};\n", values);
  fprintf(x->to, "    return px__forward_inplace(out, \"%s\", args);\n  }\n", op->name);
  x->indent = "  ";
}

// ---- the function

const char *og_layer_forward_name(const og_layer *l) {
  if (l->lazy) return "px__lazy_forward";
  if (l->method_count) return "px__method_forward";
  return l->run || l->forward ? og_format("forward_%s", l->e->name) : NULL;
}

// A name of both a tensor and an argument means the tensor.
static void write_locals(FILE *to, const og_layer *l, const og_node *formula,
                         const og_node *other) {
  const og_node *nodes[] = {formula, other};
  for (int i = 0; i < l->own_count; i++)
    if (og_mentions(formula, l->own[i].name))
      fprintf(to, "  px_tensor *%s = px__own(self, %d, \"%s\");\n", l->own[i].name, i,
              l->own[i].name);
  for (int i = 0; i < l->e->param_count; i++)
    if (!tensor_of(l, l->e->params[i].name)) og_write_layer_argument(to, l, i, nodes, 2);
}

// Writes a function with two results, or one if the condition does not hold.
static void write_pair(FILE *to, const og_layer *l) {
  context x = {to, l, 0, "  "};
  fprintf(to,
          "static px_status pair_%s(px_tensor **out, px_tensor **second, px_module *self,\n"
          "    px_tensor *const *inputs, int count) {\n",
          l->e->name);
  write_locals(to, l, l->pair, l->pair_if);
  fprintf(to, "  *second = NULL;\n  if (!(%s)) return forward_%s(out, self, inputs, count);\n",
          og_test(l->pair_if, name_of, &x), l->e->name);
  fprintf(to, "  return px_%s(out, second%s;\n}\n", l->pair->text, rest_of(&x, l->pair, 2));
}

void og_write_layer_forward(FILE *to, const og_layer *l) {
  static og_node inplace = {.kind = OG_NAME, .text = "inplace"};
  context x = {to, l, 0, "  "};
  const char *formula = og_layer_text(l, "forward");
  if (formula) formula = og_one_line(formula);
  if (l->lazy || !l->forward) return;
  if (formula) fprintf(to, "// %s\n", formula);
  fprintf(
      to,
      "static px_status forward_%s(px_tensor **out, px_module *self, px_tensor *const *inputs,\n"
      "    int count) {\n",
      l->e->name);
  write_locals(to, l, l->forward, &inplace);
  if (og_layer_param(l, "inplace") >= 0) write_inplace(&x, l->forward);
  write_result(&x, l->forward);
  fprintf(to, "}\n");
  if (l->pair) write_pair(to, l);
}
