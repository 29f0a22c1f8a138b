// SPDX-License-Identifier: Apache-2.0
// Writes what a layer does when it is made: sizes spread over the dimensions, then checks, changed
// arguments and tensors, in the order of the entry.
#include "opgen_layer.h"

typedef struct context {
  FILE *to;
  const og_layer *l;
} context;

static bool is_step(const char *field) {
  return !strcmp(field, "check") || !strcmp(field, "set") || !strcmp(field, "param") ||
         !strcmp(field, "buffer") || !strcmp(field, "init");
}

static bool is_spread(const og_param *p) { return p->type == OG_INTS && p->size; }

bool og_layer_has_init(const og_layer *l) {
  for (int i = 0; i < l->e->field_count; i++)
    if (is_step(l->e->fields[i].name)) return true;
  for (int i = 0; i < l->e->param_count; i++)
    if (is_spread(&l->e->params[i])) return true;
  return false;
}

// Names are the constructor's arguments; those of tensors mean them where a start takes one.
static og_value name_of(const og_node *n, void *with) {
  const context *x = with;
  int p = n->kind == OG_NAME ? og_layer_param(x->l, n->text) : -1;
  if (p < 0) og_die(n->place, "unknown name '%s' in layer %s", n->text, x->l->e->name);
  return og_layer_param_value(&x->l->e->params[p]);
}

// ---- check CONDITION : CODE "text"

static void write_check(context *x, const og_field *f) {
  og_check c = og_check_parse(f);
  fprintf(x->to, "  PX_CHECK(%s, PX_%s, \"%%s\",\n", og_test(c.test, name_of, x), c.code);
  fprintf(x->to, "           px__filled(self, %s, (char[PX__TEXT]){0}, PX__TEXT));\n",
          og_quote(c.text));
}

// ---- set NAME = VALUE if CONDITION

static og_node *set_value(const og_field *f, og_node **condition) {
  const char *equals = strchr(f->text, '=');
  if (!equals) og_die(f->place, "expected `set NAME = VALUE`");
  return og_formula_if(equals + 1, f->place, condition);
}

static const char *as_value(context *x, const og_node *n, const og_param *p) {
  og_value v = og_number(n, name_of, x);
  const char *make = og_types[p->type].make;
  if (p->type == OG_INTS && v.type == OG_INTS)
    return n->kind == OG_NAME ? n->text : og_format("PX_IS(%s, %s)", v.c, v.n);
  if (v.type == OG_INTS || v.type == OG_TENSOR || (p->type == OG_TEXT) != (v.type == OG_TEXT))
    og_die(n->place, "'%s' cannot be that in layer %s", p->name, x->l->e->name);
  return og_format("%s(%s)", make, v.c);
}

static void write_set(context *x, const og_field *f) {
  og_node *condition = NULL, *value = set_value(f, &condition);
  const char *name = og_trimmed(f->text, strchr(f->text, '='));
  int p = og_layer_param(x->l, name);
  if (p < 0) og_die(f->place, "layer %s has no argument '%s'", x->l->e->name, name);
  const char *c = as_value(x, value, &x->l->e->params[p]);
  if (condition) fprintf(x->to, "  if (%s)\n  ", og_test(condition, name_of, x));
  fprintf(x->to, "  PX_TRY(px_module_set_attribute(self, \"%s\", %s));\n", name, c);
  fprintf(x->to, "  %s = px__argument(self, %d, \"%s\");\n", name, p, name);
}

// ---- param and buffer

// How a tensor starts: the C call, in which $t is the tensor, $1 and $2 the arguments.
static const struct {
  const char *name;
  int count;
  const char *c;
} starts[] = {
    {"zeros", 0, "px_init_constant($t, 0)"},
    {"ones", 0, "px_init_constant($t, 1)"},
    {"constant", 1, "px_init_constant($t, $1)"},
    {"uniform", 2, "px_init_uniform($t, $1, $2, NULL)"},
    {"normal", 2, "px_init_normal($t, $1, $2, NULL)"},
    {"kaiming_uniform", 1, "px_init_kaiming_uniform($t, $1, false, \"leaky_relu\", NULL)"},
    {"xavier_uniform", 1, "px_init_xavier_uniform($t, $1, NULL)"},
    {"fan_uniform", 1, "px__init_fan_uniform($t, $1)"}};

static const char *start_argument(context *x, const og_node *n) {
  int own = n->kind == OG_NAME ? og_layer_own(x->l, n->text) : -1;
  return own >= 0 ? og_format("px__tensor_of(self, \"%s\")", n->text) : og_number(n, name_of, x).c;
}

static const char *start_of(context *x, const og_own *own) {
  const og_node *n = own->start;
  size_t i = 0, count = sizeof starts / sizeof *starts;
  while (i < count && strcmp(starts[i].name, n->text)) i++;
  if (i == count || starts[i].count != n->count)
    og_die(own->place, "`%s` with %d arguments starts no tensor", n->text, n->count);
  const char *made = "";
  for (const char *at = starts[i].c; *at; at++)
    if (*at != '$')
      made = og_format("%s%c", made, *at);
    else if (*++at == 't')
      made = og_format("%sown_%s", made, own->name);
    else
      made = og_format("%s%s", made, start_argument(x, n->items[*at - '1']));
  return made;
}

static void write_sizes(context *x, const og_own *own) {
  fprintf(x->to, "    int64_t sizes[PX_MAX_DIMS];\n    int ndim = 0;\n");
  for (int i = 0; i < own->sizes->count; i++) {
    const og_node *n = own->sizes->items[i];
    og_value v = og_number(n->kind == OG_SPREAD ? n->items[0] : n, name_of, x);
    if ((v.type == OG_INTS) != (n->kind == OG_SPREAD))
      og_die(n->place, "a size of %s is no number, or `*` stands at no list", own->name);
    if (n->kind == OG_SPREAD)
      fprintf(x->to, "    for (int i = 0; i < %s; i++) sizes[ndim++] = %s[i];\n", v.n, v.c);
    else
      fprintf(x->to, "    sizes[ndim++] = %s;\n", v.c);
  }
}

static const char *dtype_of(const og_own *own) {
  if (!own->dtype) return "PX_DTYPE_NONE";
  return !strcmp(own->dtype, "int64") ? "PX_INT64" : !strcmp(own->dtype, "bool") ? "PX_BOOL" : "";
}

static void write_own(context *x, const og_own *own) {
  const char *sort = own->buffer ? "buffer" : "parameter", *dtype = dtype_of(own);
  if (!*dtype) og_die(own->place, "unknown dtype '%s' of %s", own->dtype, own->name);
  if (own->given) {
    fprintf(x->to, "  PX_TRY(px__take_buffer(self, \"%s\"));\n", own->name);
    return;
  }
  fprintf(x->to, "  px_tensor *own_%s = NULL;\n", own->name);
  if (own->condition)
    fprintf(x->to, "  if (px__wanted(self, \"%s\", %s)) {\n", own->name,
            og_test(own->condition, name_of, x));
  else
    fprintf(x->to, "  {\n");
  write_sizes(x, own);
  fprintf(x->to, "    PX_TRY(px__add_%s(&own_%s, self, \"%s\", ndim, sizes%s%s));\n", sort,
          own->name, own->name, own->buffer ? ", " : "", own->buffer ? dtype : "");
  fprintf(x->to, "    if (own_%s) PX_TRY(%s);\n  }", own->name, start_of(x, own));
  if (own->condition)
    fprintf(x->to, " else {\n    PX_TRY(px_module_register_%s(self, \"%s\", NULL%s));\n  }", sort,
            own->name, own->buffer ? ", true" : "");
  fprintf(x->to, "\n");
}

// ---- the function

// All that the steps read, to know the arguments.
static int nodes_of(const og_layer *l, const og_node **nodes) {
  int count = 0, own = 0;
  for (int i = 0; i < l->e->field_count; i++) {
    const og_field *f = &l->e->fields[i];
    og_node *condition = NULL;
    if (!strcmp(f->name, "check")) nodes[count++] = og_check_parse(f).test;
    if (!strcmp(f->name, "set")) {
      og_node *target = calloc(1, sizeof *target);
      if (!target) exit(1);
      *target = (og_node){.kind = OG_NAME, .text = og_trimmed(f->text, strchr(f->text, '='))};
      nodes[count++] = set_value(f, &condition);
      nodes[count++] = condition;
      nodes[count++] = target;
    }
    if (strcmp(f->name, "param") && strcmp(f->name, "buffer")) continue;
    nodes[count++] = l->own[own].sizes;
    nodes[count++] = l->own[own].start;
    nodes[count++] = l->own[own++].condition;
  }
  return count;
}

static void write_step(context *x, const og_field *f, int *own) {
  if (!strcmp(f->name, "check")) write_check(x, f);
  if (!strcmp(f->name, "set")) write_set(x, f);
  if (!strcmp(f->name, "param") || !strcmp(f->name, "buffer")) write_own(x, &x->l->own[(*own)++]);
  if (!strcmp(f->name, "init")) fprintf(x->to, "  PX_TRY(%s(self));\n", f->text);
}

void og_write_layer_init(FILE *to, const og_layer *l) {
  context x = {to, l};
  const og_node *nodes[3 * OG_MAX_FIELDS];
  int own = 0;
  if (!og_layer_has_init(l)) return;
  if (l->lazy) {
    og_write_lazy_init(to, l);
    return;
  }
  fprintf(to, "static px_status init_%s(px_module *self) {\n", l->e->name);
  for (int i = 0; i < l->e->param_count; i++)
    if (is_spread(&l->e->params[i]))
      fprintf(to, "  PX_TRY(px__spread(self, \"%s\", %d));\n", l->e->params[i].name,
              l->e->params[i].size);
  int count = nodes_of(l, nodes);
  for (int i = 0; i < l->e->param_count; i++) og_write_layer_argument(to, l, i, nodes, count);
  for (int i = 0; i < l->e->field_count; i++) write_step(&x, &l->e->fields[i], &own);
  fprintf(to, "  return PX_OK;\n}\n");
}
