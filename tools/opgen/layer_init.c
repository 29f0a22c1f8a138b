// SPDX-License-Identifier: Apache-2.0
// Writes the initialisation of a layer: expands sizes over the dimensions, then runs checks,
// changed arguments and tensors in the order of the entry. Also writes the names of tensors indexed
// by `each`.
#include "opgen/layer.h"

typedef struct context {
  FILE *to;
  const og_layer *l;
} context;

static bool is_step(const char *field) {
  return !strcmp(field, "check") || !strcmp(field, "set") || !strcmp(field, "param") ||
         !strcmp(field, "buffer") || !strcmp(field, "init") || !strcmp(field, "fixed") ||
         !strcmp(field, "child");
}

static bool is_spread(const og_param *p) { return p->type == OG_INTS && p->size; }

bool og_layer_has_init(const og_layer *l) {
  for (int i = 0; i < l->e->field_count; i++)
    if (is_step(l->e->fields[i].name)) return true;
  for (int i = 0; i < l->e->param_count; i++)
    if (is_spread(&l->e->params[i])) return true;
  return false;
}

static const og_node *named(const og_named *all, int count, const char *name) {
  for (int i = 0; i < count; i++)
    if (!strcmp(all[i].name, name)) return all[i].value;
  return NULL;
}

// len(LIST) and size(LIST, NUMBER) of an argument.
static og_value of_list(const og_node *n, const context *x) {
  const char *name = n->count && n->items[0]->kind == OG_NAME ? n->items[0]->text : "";
  int p = og_layer_param(x->l, name), wanted = strcmp(n->text, "len") ? 2 : 1;
  if (p < 0 || x->l->e->params[p].type != OG_INTS || n->count != wanted ||
      (wanted == 2 && (strcmp(n->text, "size") || n->items[1]->kind != OG_NUMBER)))
    og_die(n->location, "unknown name '%s' in layer %s", n->text, x->l->e->name);
  og_value list = og_layer_param_value(&x->l->e->params[p]);
  const char *c = wanted == 1 ? og_format("(int64_t)%s", list.n)
                              : og_format("%s[%s]", list.c, n->items[1]->text);
  return (og_value){.type = OG_INT, .c = c};
}

// Resolves names: values of `let`, numbers of the `each` loops, and the constructor's arguments.
// Names of tensors are allowed only as arguments of initializers.
static og_value name_of(const og_node *n, void *with) {
  const context *x = with;
  const og_layer *l = x->l;
  if (n->kind == OG_CALL) return of_list(n, x);
  const og_node *let = n->kind == OG_NAME ? named(l->lets, l->let_count, n->text) : NULL;
  if (let) return og_number(let, name_of, with);
  if (n->kind == OG_NAME && named(l->each, l->each_count, n->text))
    return (og_value){.type = OG_INT, .c = n->text};
  int p = n->kind == OG_NAME ? og_layer_param(x->l, n->text) : -1;
  if (p < 0) og_die(n->location, "unknown name '%s' in layer %s", n->text, x->l->e->name);
  return og_layer_param_value(&x->l->e->params[p]);
}

// ---- check CONDITION : CODE "text"

static void write_check(context *x, const og_field *f) {
  og_check c = og_check_parse(f);
  const char *test = og_test(c.test, name_of, x);
  if (!strcmp(c.code, "WARN"))
    fprintf(x->to,
            "  if (self->stage < PX__MATERIALIZES && !(%s))\n    PX_TRY(px_warn(PX_WARN_USER, "
            "\"%%s\",\n",
            test);
  else
    fprintf(x->to, "  PX_CHECK(%s, PX_%s, \"%%s\",\n", test, c.code);
  fprintf(x->to, "           px__expand_template(self, %s, (char[PX__TEXT]){0}, PX__TEXT))%s;\n",
          og_quote(c.text), strcmp(c.code, "WARN") ? "" : ")");
}

// ---- set NAME = VALUE if CONDITION

static og_node *set_value(const og_field *f, og_node **condition) {
  const char *equals = strchr(f->text, '=');
  if (!equals) og_die(f->location, "expected `set NAME = VALUE`");
  return og_formula_if(equals + 1, f->location, condition);
}

static const char *as_value(context *x, const og_node *n, const og_param *p) {
  og_value v = og_number(n, name_of, x);
  const char *make = og_types[p->type].make;
  if (p->type == OG_INTS && v.type == OG_INTS)
    return n->kind == OG_NAME ? n->text : og_format("PX_IS(%s, %s)", v.c, v.n);
  if (v.type == OG_INTS || v.type == OG_TENSOR || (p->type == OG_TEXT) != (v.type == OG_TEXT))
    og_die(n->location, "'%s' has another type in layer %s", p->name, x->l->e->name);
  return og_format("%s(%s)", make, v.c);
}

static void write_set(context *x, const og_field *f) {
  og_node *condition = NULL, *value = set_value(f, &condition);
  const char *name = og_trimmed(f->text, strchr(f->text, '='));
  int p = og_layer_param(x->l, name);
  if (p < 0) og_die(f->location, "layer %s has no argument '%s'", x->l->e->name, name);
  const char *c = as_value(x, value, &x->l->e->params[p]);
  if (condition) fprintf(x->to, "  if (%s)\n  ", og_test(condition, name_of, x));
  fprintf(x->to, "  PX_TRY(px_module_set_attribute(self, \"%s\", %s));\n", name, c);
  fprintf(x->to, "  %s = px__argument(self, %d, \"%s\");\n", name, p, name);
}

// ---- param and buffer

// Initializers: the C call, with $t for the tensor and $1 and $2 for the arguments.
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
    og_die(own->location, "`%s` with %d arguments is not an initializer", n->text, n->count);
  const char *made = "";
  for (const char *at = starts[i].c; *at; at++)
    if (*at != '$')
      made = og_format("%s%c", made, *at);
    else if (*++at == 't')
      made = og_format("%sown_%s", made, own->id);
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
      og_die(n->location, "a size of %s is not a number, or `*` is not followed by a list",
             own->name);
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

// Returns the name of a tensor, "weight_l{layer}{reverse:_reverse}", as arguments of snprintf.
// `{reverse:_reverse}` is the text if the number is nonzero.
static const char *name_arguments(const context *x, const og_own *own) {
  const char *format = "", *arguments = "";
  for (const char *at = own->name; *at; at++) {
    if (*at != '{') {
      format = og_format("%s%c", format, *at);
      continue;
    }
    const char *end = strchr(at, '}'), *colon = strchr(at, ':');
    if (!end) og_die(own->location, "unmatched '{' in %s", own->name);
    bool text = colon && colon < end;
    const char *name = og_trimmed(at + 1, text ? colon : end);
    if (!named(x->l->each, x->l->each_count, name))
      og_die(own->location, "'%s' in %s is not a number of `each`", name, own->name);
    const char *word = text ? og_quote(og_trimmed(colon + 1, end)) : NULL;
    format = og_format("%s%%%s", format, text ? "s" : "d");
    arguments = og_format(text ? "%s, %s ? %s : \"\"" : "%s, (int)%s", arguments, name, word);
    at = end;
  }
  return og_format("\"%s\"%s", format, arguments);
}

// Opens the loops of `each` and returns the indent of their bodies.
static const char *open_loops(context *x) {
  const char *indent = "  ";
  for (int i = 0; i < x->l->each_count; i++) {
    const og_named *loop = &x->l->each[i];
    fprintf(x->to, "%sfor (int64_t %s = 0; %s < %s; %s++)%s\n", indent, loop->name, loop->name,
            og_integer(loop->value, name_of, x), loop->name, i + 1 < x->l->each_count ? "" : " {");
    indent = og_format("%s  ", indent);
  }
  return indent;
}

// Writes the tensors of one iteration of the loops. There is none if the condition does not hold.
static void write_each(context *x) {
  const char *indent = open_loops(x);
  fprintf(x->to, "%schar name[PX__TEXT];\n", indent);
  for (int i = 0; i < x->l->own_count; i++) {
    const og_own *own = &x->l->own[i];
    if (!own->each || own->buffer) og_die(own->location, "%s is not indexed by `each`", own->name);
    fprintf(x->to, "%spx_tensor *own_%s = NULL;\n", indent, own->id);
    fprintf(x->to, "%ssnprintf(name, sizeof name, %s);\n", indent, name_arguments(x, own));
    fprintf(x->to, "%sif (px__has_tensor(self, name, %s)) {\n", indent,
            own->condition ? og_test(own->condition, name_of, x) : "true");
    write_sizes(x, own);
    fprintf(x->to, "    PX_TRY(px__add_parameter(&own_%s, self, name, ndim, sizes));\n", own->id);
    fprintf(x->to, "    if (own_%s) PX_TRY(%s);\n%s}\n", own->id, start_of(x, own), indent);
  }
  fprintf(x->to, "  }\n");
}

// Writes the function returning the name of the i-th tensor.
static void write_names(context *x, const og_node *const *nodes, int count) {
  fprintf(x->to,
          "static bool tensor_name_%s(const px_module *self, int i, char *name, size_t room) {\n",
          x->l->e->name);
  for (int i = 0; i < x->l->e->param_count; i++)
    og_write_layer_argument(x->to, x->l, i, nodes, count);
  const char *indent = open_loops(x);
  for (int i = 0; i < x->l->own_count; i++) {
    const og_own *own = &x->l->own[i];
    fprintf(x->to, "%sif (%s%si-- == 0) return snprintf(name, room, %s), true;\n", indent,
            own->condition ? og_condition(own->condition, name_of, x) : "",
            own->condition ? " && " : "", name_arguments(x, own));
  }
  fprintf(x->to, "  }\n  return false;\n}\n");
}

static void write_own(context *x, const og_own *own) {
  const char *sort = own->buffer ? "buffer" : "parameter", *dtype = dtype_of(own);
  if (!*dtype) og_die(own->location, "unknown dtype '%s' of %s", own->dtype, own->name);
  if (own->given) {
    fprintf(x->to, "  PX_TRY(px__take_buffer(self, \"%s\"));\n", own->name);
    return;
  }
  fprintf(x->to, "  px_tensor *own_%s = NULL;\n", own->name);
  if (own->condition)
    fprintf(x->to, "  if (px__has_tensor(self, \"%s\", %s)) {\n", own->name,
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

// ---- child NAME = KIND(ARGUMENTS)

// Parses KIND(ARGUMENTS).
static og_node *child_call(const og_field *f) {
  const char *equals = strchr(f->text, '=');
  og_node *call = equals ? og_formula(equals + 1, f->location) : NULL;
  if (!call || call->kind != OG_CALL)
    og_die(f->location, "expected `child NAME = LAYER(ARGUMENTS)`");
  return call;
}
static const og_entry *kind_of(const og_node *call) {
  for (int i = 0; i < og.entry_count; i++)
    if (!strcmp(og.entries[i]->sort, "layer") && !strcmp(og.entries[i]->name, call->text))
      return og.entries[i];
  og_die(call->location, "unknown layer %s", call->text);
}
// Returns an argument by position or name; NULL if absent.
static const og_node *argument_of(const og_node *call, int position, const char *name) {
  for (int i = 0; i < call->count; i++)
    if (call->keys[i] ? !strcmp(call->keys[i], name) : i == position) return call->items[i];
  return NULL;
}

// device and dtype are passed on implicitly.
static const char *child_argument(context *x, const og_node *call, int i, const og_param *p) {
  const og_node *n = argument_of(call, i, p->name);
  if (n && p->type == OG_INTS) return og_format("PX_I(%s)", og_integer(n, name_of, x));
  if (n) return as_value(x, n, p);
  bool passes = (p->type == OG_DEVICE || p->type == OG_DTYPE) && og_layer_param(x->l, p->name) >= 0;
  return passes ? og_format("px_module_attribute(self, \"%s\")", p->name) : "{0}";
}

static void write_child(context *x, const og_field *f) {
  og_node *call = child_call(f);
  const og_entry *kind = kind_of(call);
  const char *values = "", *name = og_trimmed(f->text, og_word_end(f->text));
  for (int i = 0; i < kind->param_count; i++)
    values =
        og_format("%s%s%s", values, i ? ", " : "", child_argument(x, call, i, &kind->params[i]));
  fprintf(x->to, "  {\n    const px_value args[] = {%s};\n", values);
  fprintf(x->to, "    PX_TRY(px__add_child(self, \"%s\", \"%s\", args));\n  }\n", name, call->text);
}

// ---- the function

static int loop_nodes(const og_layer *l, const og_node **nodes) {
  for (int i = 0; i < l->each_count; i++) nodes[i] = l->each[i].value;
  return l->each_count;
}

// Collects the nodes read by the names of tensors.
static int naming_nodes(const og_layer *l, const og_node **nodes) {
  int count = loop_nodes(l, nodes);
  for (int i = 0; i < l->own_count; i++) nodes[count++] = l->own[i].condition;
  return count;
}

// Collects the nodes read by the steps, to declare the arguments.
static int nodes_of(const og_layer *l, const og_node **nodes) {
  int count = 0, own = 0;
  for (int i = 0; i < l->e->field_count; i++) {
    const og_field *f = &l->e->fields[i];
    og_node *condition = NULL;
    if (!strcmp(f->name, "check")) nodes[count++] = og_check_parse(f).test;
    if (!strcmp(f->name, "child")) nodes[count++] = child_call(f);
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
  for (int i = 0; i < l->let_count; i++) nodes[count++] = l->lets[i].value;
  return count + loop_nodes(l, nodes + count);
}

// ---- fixed NAME = VALUE

// A new attribute may move the existing ones; list pointers into them are read again.
static void read_lists_again(context *x, const og_node *const *nodes, int count) {
  for (int i = 0; i < x->l->e->param_count; i++) {
    const og_param *p = &x->l->e->params[i];
    if (p->type == OG_INTS && og_mentioned(nodes, count, p->name))
      fprintf(x->to, "  %s = px__argument(self, %d, \"%s\");\n", p->name, i, p->name);
  }
}

static void write_fixed(context *x, const og_named *let) {
  og_value v = og_number(let->value, name_of, x);
  if (v.type != OG_TEXT && v.type != OG_INT && v.type != OG_BOOL)
    og_die(let->value->location, "'%s' of layer %s is neither a string nor an integer", let->name,
           x->l->e->name);
  fprintf(x->to, "  PX_TRY(px_module_set_attribute(self, \"%s\", %s(%s)));\n", let->name,
          og_types[v.type].make, v.c);
}

static void write_step(context *x, const og_field *f, int *own) {
  if (!strcmp(f->name, "check")) write_check(x, f);
  if (!strcmp(f->name, "set")) write_set(x, f);
  if (!strcmp(f->name, "child")) write_child(x, f);
  bool tensor = !strcmp(f->name, "param") || !strcmp(f->name, "buffer");
  if (tensor && !x->l->each_count) write_own(x, &x->l->own[*own]);
  if (tensor && x->l->each_count && !*own) write_each(x);  // all in one loop
  *own += tensor;
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
  for (int i = 0; i < l->let_count; i++)
    if (l->lets[i].fixed) {
      write_fixed(&x, &l->lets[i]);
      read_lists_again(&x, nodes, count);
    }
  for (int i = 0; i < l->e->field_count; i++) write_step(&x, &l->e->fields[i], &own);
  fprintf(to, "  return PX_OK;\n}\n");
  if (l->each_count) write_names(&x, nodes, naming_nodes(l, nodes));
}
