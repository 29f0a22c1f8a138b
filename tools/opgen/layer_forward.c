// SPDX-License-Identifier: Apache-2.0
// Writes forward functions. A forward is a formula over the inputs, the tensors of the layer and
// the arguments of its constructor, in this order; `training` is the module's mode. A layer with an
// argument `inplace` calls its op in place if the argument is true.
#include "opgen/layer.h"

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

const char *og_layer_forward_name(const og_layer *l) {
  if (l->lazy) return "px__lazy_forward";
  if (l->method_count) return "px__method_forward";
  return l->run || l->forward ? og_format("forward_%s", l->e->name) : NULL;
}

// Adds a parameter to the formula, and its value to the array `a`.
static void add(FILE *to, og_op *formula, og_param param, const char *value) {
  if (formula->param_count == OG_MAX_PARAMS)
    og_die(formula->location, "the forward of %s has too many names", formula->name);
  // A program may have set an attribute to another kind of number, which is converted.
  param.optional = true;
  formula->params[formula->param_count++] = param;
  fprintf(to, "%s%s", formula->param_count > 1 ? ", " : "", value);
}

// Returns the formula of nodes, and writes the values that they mention.
static og_op *formula_of(FILE *to, const og_layer *l, og_node *body, const og_node *const *nodes,
                         int count) {
  og_op *f = calloc(1, sizeof *f);
  if (!f) exit(1);
  f->name = l->e->name, f->location = l->e->location, f->body_node = body, f->result_count = 1;
  for (int i = 0; i < l->e->param_count; i++)
    if (l->e->params[i].owned) og_write_layer_argument(to, l, i, nodes, count);
  fprintf(to, "  const px_value a[] = {");
  for (int i = 0; i < l->input_count; i++)
    if (i == 0 || og_mentioned(nodes, count, l->inputs[i].name))
      add(to, f, (og_param){.name = l->inputs[i].name, .type = OG_TENSOR},
          og_format("PX_T(inputs[%d])", og_port_tensors(l->inputs, i)));
  for (int i = 0; i < l->own_count; i++)
    if (og_mentioned(nodes, count, l->own[i].name))
      add(to, f, (og_param){.name = l->own[i].name, .type = OG_TENSOR},
          og_format("PX_T(px__own(self, %d, \"%s\"))", i, l->own[i].name));
  for (int i = 0; i < l->e->param_count; i++) {
    const og_param *p = &l->e->params[i];
    if (og_mentioned(nodes, count, p->name) && og_param_find(f, p->name) < 0)
      add(to, f, *p, p->owned ? p->name : og_format("px__argument(self, %d, \"%s\")", i, p->name));
  }
  if (og_mentioned(nodes, count, "training"))
    add(to, f, (og_param){.name = "training", .type = OG_BOOL}, "PX_B(px__training(self))");
  fprintf(to, "};\n");
  og_analyse_body(f);
  return f;
}

static void begin(FILE *to, const og_layer *l, const char *word) {
  fprintf(to,
          "static px_status %s_%s(px_tensor **results, px_module *self, px_tensor *const *inputs,\n"
          "    int count) {\n",
          word, l->e->name);
}

// Writes a function with two results, or one if the condition does not hold.
static void write_pair(FILE *to, const og_layer *l) {
  const og_node *nodes[] = {l->pair, l->pair_if};
  begin(to, l, "both");
  og_op *formula = formula_of(to, l, l->pair, nodes, 2);
  formula->result_count = 2;
  fprintf(to, "  if (!(%s)) return forward_%s(results, self, inputs, count);\n",
          og_test(l->pair_if, og_resolve, &(og_scope){.op = formula}), l->e->name);
  og_write_forward(to, formula);
  fprintf(to,
          "static px_status pair_%s(px_tensor **out, px_tensor **second, px_module *self,\n"
          "    px_tensor *const *inputs, int count) {\n  px_tensor *results[2] = {NULL};\n"
          "  PX_F_TRY(both_%s(results, self, inputs, count));\n"
          "  *out = results[0], *second = results[1];\n  return PX_OK;\n}\n",
          l->e->name, l->e->name);
}

void og_write_layer_forward(FILE *to, const og_layer *l) {
  static const og_node inplace = {.kind = OG_NAME, .text = "inplace"};
  const og_node *nodes[] = {l->forward, &inplace};
  if (l->lazy || !l->forward) return;
  fprintf(to, "// %s\n", og_one_line(og_layer_text(l, "forward")));
  begin(to, l, "forward");
  og_op *formula = formula_of(to, l, l->forward, nodes, 2);
  if (og_param_find(formula, "inplace") >= 0) og_write_forward_inplace(to, formula);
  og_write_forward(to, formula);
  if (l->pair) write_pair(to, l);
}
