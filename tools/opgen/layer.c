// SPDX-License-Identifier: Apache-2.0
// Layers (layers/*.layer): reads the fields of their entries and writes the generated files.
// layers/GRAMMAR.md describes the language. Output files are written as for ops, in the same
// folder.
#include "opgen/layer.h"

#include <ctype.h>

const char *og_layer_text(const og_layer *l, const char *field) {
  const og_field *f = og_entry_field(l->e, field);
  return f ? f->text : NULL;
}
int og_layer_own(const og_layer *l, const char *name) {
  for (int i = 0; i < l->own_count; i++)
    if (!strcmp(l->own[i].name, name)) return i;
  return -1;
}
int og_layer_input(const og_layer *l, const char *name) {
  for (int i = 0; i < l->input_count; i++)
    if (!strcmp(l->inputs[i].name, name)) return i;
  return -1;
}
int og_port_tensors(const og_port *ports, int count) {
  int tensors = 0;
  for (int i = 0; i < count; i++) tensors += ports[i].tensors;
  return tensors;
}
int og_layer_param(const og_layer *l, const char *name) {
  return og_param_named(l->e->params, l->e->param_count, name);
}

// ---- reading

// Converts to snake case. "LeakyReLU" becomes leaky_re_lu: such layers have a field `cname`.
static const char *snake(const char *name) {
  char *made = malloc(2 * strlen(name) + 1), *to = made;
  if (!made) exit(1);
  for (const char *at = name; *at; at++) {
    bool upper = isupper((unsigned char)*at), after = at > name && !isupper((unsigned char)at[-1]);
    bool begins = at > name && islower((unsigned char)at[1]);
    if (upper && (after || begins)) *to++ = '_';
    *to++ = (char)tolower((unsigned char)*at);
  }
  *to = 0;
  return made;
}

// Parses `input hx[2]? lengths[]`: the name, the number of tensors, `?` for optional (as are all
// later ports), and `[]` for a list of numbers.
static int read_ports(const og_layer *l, og_port *ports, const char *field, const char *otherwise) {
  const og_field *f = og_entry_field(l->e, field);
  char *names = strdup(f ? f->text : otherwise);
  int count = 0;
  for (char *word = strtok(names, ", "); word; word = strtok(NULL, ", ")) {
    const char *end = og_word_end(word);
    if (count == OG_MAX_INPUTS) og_die(f->location, "too many %s of %s", field, l->e->name);
    og_port *port = &ports[count++];
    bool numbers = !strcmp(end, "[]");
    *port =
        (og_port){og_copy(word, (size_t)(end - word)), *end == '[' && !numbers ? atoi(end + 1) : 1,
                  word[strlen(word) - 1] == '?', numbers};
    if (port->tensors < 1 || (count > 1 && port[-1].optional && !port->optional))
      og_die(f->location, "`%s` is not allowed in the %s of %s", word, field, l->e->name);
  }
  if (og_port_tensors(ports, count) > OG_MAX_INPUTS)
    og_die(f->location, "too many tensors in the %s of %s", field, l->e->name);
  return count;
}

// Parses `let NAME = VALUE`, `fixed NAME = VALUE`, and `each NAME < COUNT, NAME < COUNT`.
static og_named read_named(const og_field *f, const char *text, const char *sign) {
  const char *at = strstr(text, sign);
  if (!at) og_die(f->location, "expected `%s NAME %s VALUE`", f->name, sign);
  return (og_named){og_trimmed(text, at), og_formula(at + strlen(sign), f->location),
                    *f->name == 'f'};
}
static void read_lets(og_layer *l) {
  for (int i = 0; i < l->e->field_count; i++) {
    const og_field *let = &l->e->fields[i];
    if (strcmp(let->name, "let") && strcmp(let->name, "fixed")) continue;
    if (l->let_count == OG_MAX_LETS)
      og_die(let->location, "too many `let` fields of %s", l->e->name);
    l->lets[l->let_count++] = read_named(let, let->text, "=");
  }
  const og_field *f = og_entry_field(l->e, "each");
  char *loops = f ? strdup(f->text) : NULL;
  for (char *loop = loops ? strtok(loops, ",") : NULL; loop; loop = strtok(NULL, ",")) {
    if (l->each_count == OG_MAX_LOOPS)
      og_die(f->location, "too many `each` loops of %s", l->e->name);
    l->each[l->each_count++] = read_named(f, loop, "<");
  }
}

// Parses `param NAME [SIZES] = START if CONDITION`. A buffer may have a dtype after the sizes, or
// only a name: then it is the constructor's argument.
static void read_own(og_layer *l, const og_field *f) {
  const char *end = f->text + strcspn(f->text, " "), *at = og_skip(end);
  if (l->own_count == OG_MAX_OWN) og_die(f->location, "too many tensors of %s", l->e->name);
  og_own *own = &l->own[l->own_count++];
  *own = (og_own){.name = og_copy(f->text, (size_t)(end - f->text)),
                  .id = og_copy(f->text, (size_t)(og_word_end(f->text) - f->text)),
                  .each = strchr(f->text, '{') && strchr(f->text, '{') < end,
                  .buffer = *f->name == 'b',
                  .location = f->location};
  if (!*at && own->buffer) {
    int p = og_layer_param(l, own->name);
    if (p < 0 || l->e->params[p].type != OG_TENSOR)
      og_die(f->location, "buffer %s has no sizes, and %s has no Tensor of this name", own->name,
             l->e->name);
    own->given = true;
    return;
  }
  const char *close = strchr(at, ']');
  if (*at != '[' || !close) og_die(f->location, "expected `%s [SIZES] = START`", own->name);
  own->sizes = og_formula(og_copy(at, (size_t)(close + 1 - at)), f->location);
  at = og_skip(close + 1), end = og_word_end(at);
  if (end > at) own->dtype = og_copy(at, (size_t)(end - at));
  at = og_skip(end);
  if (*at != '=') og_die(f->location, "expected `%s [SIZES] = START`", own->name);
  own->start = og_formula_if(at + 1, f->location, &own->condition);
  if (own->start->kind != OG_CALL) og_die(f->location, "`%s` is not an initializer", at + 1);
}

// Parses `method NAME(PARAMETERS) = FN`. The tensors of the first method are the inputs of the
// layer.
static void read_method(og_layer *l, const og_field *f) {
  const char *end = og_word_end(f->text);
  if (l->method_count == OG_MAX_METHODS) og_die(f->location, "too many methods of %s", l->e->name);
  if (*end != '(') og_die(f->location, "expected `method NAME(PARAMETERS) = FN`");
  og_method *m = &l->methods[l->method_count++];
  m->name = og_copy(f->text, (size_t)(end - f->text)), m->location = f->location;
  const char *rest =
      og_skip(og_read_params(end + 1, f->location, m->name, m->params, &m->param_count));
  if (*rest != '=') og_die(f->location, "method %s has no function", m->name);
  m->run = og_trimmed(rest + 1, rest + strlen(rest));
}
static void read_methods(og_layer *l) {
  for (int i = 0; i < l->e->field_count; i++)
    if (!strcmp(l->e->fields[i].name, "method")) read_method(l, &l->e->fields[i]);
  const og_method *forward = &l->methods[0];
  if (!l->method_count) return;
  if (strcmp(forward->name, "forward"))
    og_die(forward->location, "the first method of %s is not forward", l->e->name);
  l->input_count = 0;
  for (int i = 0; i < forward->param_count; i++) {
    const og_param *p = &forward->params[i];
    if (p->type != OG_TENSOR) continue;
    if (l->input_count == OG_MAX_INPUTS)
      og_die(forward->location, "too many tensors of %s", l->e->name);
    l->inputs[l->input_count++] = (og_port){p->name, 1, p->optional, false};
  }
}

// Parses `run FN` or `run FN(ARGUMENTS)`.
static void read_run(og_layer *l) {
  const char *text = og_layer_text(l, "run"), *open = text ? strchr(text, '(') : NULL;
  if (!text) return;
  l->run = open ? og_trimmed(text, open) : text;
  l->run_arguments = open ? og_trimmed(open + 1, strrchr(open, ')')) : NULL;
}

static bool names_fixed(const og_layer *l, const og_node *n) {
  for (int i = 0; i < l->let_count; i++)
    if (l->lets[i].fixed && og_mentions(n, l->lets[i].name)) return true;
  return false;
}

// Drops checks of arguments of another entry (`like`) that this one fixes.
static void drop_checks(const og_layer *l) {
  og_entry *e = (og_entry *)l->e;
  int kept = 0;
  for (int i = 0; i < e->field_count; i++)
    if (strcmp(e->fields[i].name, "check") || !names_fixed(l, og_check_parse(&e->fields[i]).test))
      e->fields[kept++] = e->fields[i];
  e->field_count = kept;
}

static bool has_word(const char *words, const char *word) {
  size_t n = strlen(word);
  for (const char *at = words ? words : ""; *at; at = og_skip(og_word_end(at)))
    if (!strncmp(at, word, n) && og_word_end(at) == at + n) return true;
  return false;
}

// Marks arguments without an attribute: device and dtype, modules, names of tensors, `init_only`,
// and the deprecated forms of `reduction`. Marks the arguments in `input_sized`.
static void mark_passing(og_layer *l) {
  for (int i = 0; i < l->e->param_count; i++) {
    og_param *p = &((og_entry *)l->e)->params[i];
    p->passing = p->type == OG_DEVICE || p->type == OG_DTYPE || p->type == OG_MODULE ||
                 og_layer_own(l, p->name) >= 0 ||
                 has_word(og_layer_text(l, "init_only"), p->name) ||
                 has_word("size_average reduce", p->name);
    p->owned = has_word(og_layer_text(l, "input_sized"), p->name);
  }
}

bool og_layer_takes_modules(const og_layer *l, bool optional_too) {
  for (int i = 0; i < l->e->param_count; i++)
    if (l->e->params[i].type == OG_MODULE && (optional_too || !l->e->params[i].optional))
      return true;
  return false;
}

// True if another entry has this one as its base.
static bool names_as_base(const og_entry *e) {
  for (int i = 0; i < og.entry_count; i++) {
    const og_field *base = og_entry_field(og.entries[i], "base");
    if (base && !strcmp(base->text, e->name)) return true;
  }
  return false;
}

static og_layer *read_layer(const og_entry *e) {
  og_layer *l = calloc(1, sizeof *l);
  if (!l) exit(1);
  l->e = e;
  const char *cname = og_layer_text(l, "cname");
  l->cname = cname ? cname : snake(e->name);
  l->children = og_layer_text(l, "children");
  l->input_count = read_ports(l, l->inputs, "inputs", "input");
  l->result_count = read_ports(l, l->results, "results", "result");
  read_lets(l);
  drop_checks(l);
  for (int i = 0; i < e->field_count; i++)
    if (!strcmp(e->fields[i].name, "param") || !strcmp(e->fields[i].name, "buffer"))
      read_own(l, &e->fields[i]);
  mark_passing(l);
  read_run(l);
  read_methods(l);
  const og_field *forward = og_entry_field(e, "forward");
  if (forward) l->forward = og_formula(forward->text, forward->location);
  const og_field *pair = og_entry_field(e, "forward_pair");
  if (pair) l->pair = og_formula_if(pair->text, pair->location, &l->pair_if);
  if (pair && !l->pair_if) og_die(pair->location, "expected `forward_pair FORMULA if CONDITION`");
  bool callable = forward || l->run || l->method_count, is_base = names_as_base(e);
  if (!callable && !l->children && !is_base)
    og_die(e->location, "layer %s has no forward", e->name);
  if (forward && l->run) og_die(forward->location, "layer %s has both forward and run", e->name);
  if (!l->children && !is_base && !og_layer_takes_modules(l, false) && !og_entry_field(e, "sample"))
    og_die(e->location, "layer %s has no sample", e->name);
  return l;
}

og_value og_layer_param_value(const og_param *p) {
  og_value v = {.type = p->type};
  if (p->optional) v.absent = og_format("%s.kind == PX_ARG_NONE", p->name);
  switch (p->type) {
    case OG_INT:
      v.c = og_format("px_value_int(%s)", p->name);
      break;
    case OG_FLOAT:
      v.c = og_format("px_value_float(%s)", p->name);
      break;
    case OG_BOOL:
      v.c = og_format("(px_value_int(%s) != 0)", p->name);
      break;
    case OG_TEXT:
      v.c = og_format("%s.v.text", p->name);
      break;
    case OG_INTS:
      v.c = og_format("%s.v.ints", p->name), v.n = og_format("%s.n", p->name);
      break;
    default:
      v.c = p->name;
  }
  if (p->worded) {
    v.worded = og_format("(%s.kind == PX_ARG_TEXT)", p->name);
    v.text = og_format("%s.v.text", p->name);
  }
  return v;
}

// ---- locals

void og_write_layer_argument(FILE *to, const og_layer *l, int param, const og_node *const *nodes,
                             int count) {
  const char *name = l->e->params[param].name;
  if (og_mentioned(nodes, count, name))
    fprintf(to, "  px_value %s = px__argument(self, %d, \"%s\");\n", name, param, name);
  if (l->e->params[param].owned)
    fprintf(to, "  int64_t %s_room[PX_MAX_DIMS];\n  %s = px__own_sizes(%s_room, %s, inputs[0]);\n",
            name, name, name, name);
}

// ---- writing

static void write_ports(FILE *to, const og_layer *l, const char *role, const og_port *ports,
                        int count) {
  fprintf(to, "static const px_module_port %s_%s[] = {", role, l->e->name);
  for (int i = 0; i < count; i++)
    fprintf(to, "%s{\"%s\", %d, %s, %s}", i ? ", " : "", ports[i].name, ports[i].tensors,
            ports[i].optional ? "true" : "false", ports[i].numbers ? "true" : "false");
  fprintf(to, "};\n");
}

static void write_methods(FILE *to, const og_layer *l) {
  for (int i = 0; i < l->method_count; i++) {
    const og_method *m = &l->methods[i];
    og_owner of = {"method", og_format("%s_%s", l->e->name, m->name), m->location};
    og_write_param_array(to, &of, m->params, m->param_count);
  }
  fprintf(to, "static const px_module_method methods_%s[] = {\n", l->e->name);
  for (int i = 0; i < l->method_count; i++) {
    const og_method *m = &l->methods[i];
    fprintf(to, "    {\"%s\", %s,\n     params_%s_%s, %d, method_%s_%s},\n", m->name,
            og_quote(og_method_signature(l, m)), l->e->name, m->name, m->param_count, m->name,
            l->e->name);
  }
  fprintf(to, "};\n");
}

static void write_kind_parts(FILE *to, const og_layer *l) {
  const og_entry *e = l->e;
  og_owner of = {"layer", e->name, e->location};
  og_write_param_array(to, &of, e->params, e->param_count + (l->lazy != NULL));
  if (l->own_count && !l->each_count)
    fprintf(to, "static const char *const tensors_%s[] = {", e->name);
  for (int i = 0; i < l->own_count && !l->each_count; i++)
    fprintf(to, "\"%s\"%s", l->own[i].name, i + 1 < l->own_count ? ", " : "};\n");
  write_ports(to, l, "inputs", l->inputs, l->input_count);
  write_ports(to, l, "results", l->results, l->result_count);
  og_write_layer_calls(to, l);
  if (l->method_count) write_methods(to, l);
  if (og_layer_text(l, "fixed")) fprintf(to, "static const char *const fixed_%s[] = {", e->name);
  for (int i = 0; i < l->let_count; i++)
    if (l->lets[i].fixed) fprintf(to, "\"%s\", ", l->lets[i].name);
  if (og_layer_text(l, "fixed")) fprintf(to, "NULL};\n");
  og_write_layer_init(to, l);
  og_write_layer_forward(to, l);
  fprintf(to, "\n");
}

// Writes the arguments with types checked in Python, in the order of the checks, and the text.
static void write_typed(FILE *to, const og_layer *l) {
  const char *typed = og_layer_text(l, "strict"), *colon = typed ? strstr(typed, " : ") : NULL;
  if (!typed) return;
  if (!colon)
    og_die(og_entry_field(l->e, "strict")->location, "typed of %s requires a text", l->e->name);
  fprintf(to, "     .typed = %s, .typed_text = %s,\n", og_quote(og_trimmed(typed, colon)),
          colon + 3);
}

static void write_row(FILE *to, const og_layer *l) {
  const og_entry *e = l->e;
  const char *repr = og_layer_text(l, "repr"), *forward = og_layer_forward_name(l);
  fprintf(to, "    {.name = \"%s\",\n     .doc = %s,\n", e->name, og_quote(og_layer_docstring(l)));
  if (e->param_count)
    fprintf(to, "     .params = params_%s, .param_count = %d,\n", e->name, e->param_count);
  if (og_layer_has_init(l)) fprintf(to, "     .init = init_%s,\n", e->name);
  if (forward) fprintf(to, "     .forward = %s,\n", forward);
  if (repr) fprintf(to, "     .repr = %s,\n", og_quote(repr));
  for (int i = 0; i < l->own_count; i++)
    if (!l->own[i].given) {
      fprintf(to, "     .starts = true,\n");
      break;
    }
  if (!l->own_count && l->method_count && og_layer_text(l, "init"))
    fprintf(to, "     .starts = true,\n");
  if (l->lazy) fprintf(to, "     .lazy = &lazy_%s,\n", e->name);
  if (l->pair) fprintf(to, "     .pair = pair_%s,\n", e->name);
  if (og_layer_text(l, "run_sized")) fprintf(to, "     .sized = sized_%s,\n", e->name);
  const char *formula = og_layer_text(l, "forward"), *pair = og_layer_text(l, "forward_pair");
  if (l->pair) formula = og_format("%s else %s", pair, formula);
  if (formula) fprintf(to, "     .formula = %s,\n", og_quote(og_one_line(formula)));
  const char *base = og_layer_text(l, "base");
  if (base) fprintf(to, "     .base = \"%s\",\n", base);
  if (l->method_count)
    fprintf(to, "     .methods = methods_%s, .method_count = %d,\n", e->name, l->method_count);
  const char *named = og_layer_text(l, "tuple_name"), *function = og_layer_text(l, "callable");
  if (named) fprintf(to, "     .named = \"%s\",\n", named);
  if (function && og_layer_param(l, function) < 0)
    og_die(og_entry_field(e, "callable")->location, "layer %s has no argument '%s'", e->name,
           function);
  if (function) fprintf(to, "     .callable = \"%s\",\n", function);
  write_typed(to, l);
  if (og_layer_text(l, "fixed")) fprintf(to, "     .fixed = fixed_%s,\n", e->name);
  if (l->each_count)
    fprintf(to, "     .tensor_name = tensor_name_%s,\n", e->name);
  else if (l->own_count)
    fprintf(to, "     .tensors = tensors_%s, .tensor_count = %d,\n", e->name, l->own_count);
  fprintf(to, "     .results = results_%s, .result_count = %d,\n", e->name, l->result_count);
  fprintf(to, "     .inputs = inputs_%s, .input_count = %d},\n", e->name, l->input_count);
}

typedef void (*layer_writer)(FILE *to, const og_layer *l);
static og_layer *layers[OG_MAX_OPS];
static int layer_count;
static void each(FILE *to, layer_writer write) {
  for (int i = 0; i < layer_count; i++) write(to, layers[i]);
}

static const char license[] =
    "// SPDX-License-Identifier: Apache-2.0\n// Generated by tools/opgen from layers/*.layer. Do "
    "not edit.\n";

// True if the i-th layer is the first one with this text of a field.
static bool is_first(int i, const char *field) {
  const char *own = og_layer_text(layers[i], field);
  for (int k = 0; own && k < i; k++) {
    const char *other = og_layer_text(layers[k], field);
    if (other && !strcmp(other, own)) return false;
  }
  return own != NULL;
}

// Writes the prototypes of functions named by entries, each once.
static void write_functions(const char *folder) {
  FILE *to = og_create(folder, "layer_functions.h");
  fprintf(to, "%s#pragma once\n#include \"phlox/nn.h\"\n", license);
  for (int i = 0; i < layer_count; i++) {
    if (is_first(i, "init"))
      fprintf(to, "px_status %s(px_module *self);\n", og_layer_text(layers[i], "init"));
  }
  og_write_layer_views(to, layers, layer_count);
  og_finish(to);
}

static const char header_comment[] =
    "//\n"
    "// Constructors of layers and losses. Arguments without a default are positional, others\n"
    "// named:\n"
    "//\n"
    "//   px_conv2d_new(&conv, 1, 32, 3, .padding = 1, .bias = false)\n"
    "//   px_conv2d_new(&conv, 1, 32, PX_SIZES(3, 5), .stride = {1, 2})\n"
    "//\n"
    "// A size is one number for all dimensions, or a list with one per dimension. A list of any\n"
    "// length ends at its first 0. PX_NO_INT and PX_NO_FLOAT are None. *out is a new module.\n"
    "// Errors: PX_TYPE for a missing argument, and those of the layer after `raises`.\n"
    "// `by_name`, the last member, follows the positional arguments: an extra one gets a "
    "compiler\n"
    "// warning.\n"
    "//\n"
    "// In C++, or to set arguments one by one: px_conv2d_args args =\n"
    "// {PX_CONV2D_ARGS}; args.out = &conv; ...; px_conv2d_make(&args).\n";

static void write_code(const char *folder) {
  FILE *to = og_create(folder, "layers.c");
  fprintf(to,
          "%s#include \"phlox/layers.h\"\n#include \"layer_functions.h\"\n"
          "#include \"nn/layers/layer_code.h\"\n#include \"autograd/rules/formula.h\"\n#include "
          "\"call/checks.h\"\n\n#include <math.h>\n#include "
          "<stdio.h>\n\n",
          license);
  og_body b;
  each(og_body_begin(&b), write_kind_parts);
  og_body_write(to, &b);
  fprintf(to, "const px_module_kind px__layers[] = {\n");
  each(to, write_row);
  fprintf(to, "};\nconst int px__layer_count = %d;\n\n", layer_count);
  each(to, og_write_layer_maker);
  og_finish(to);
  to = og_create(folder, "phlox/layers.h");
  fprintf(to,
          "%s%s"
          "#pragma once\n#include \"phlox/nn.h\"\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n",
          license, header_comment);
  each(to, og_write_layer_header);
  fprintf(to, "#ifdef __cplusplus\n}\n#endif\n");
  og_finish(to);
}

static void write_texts(const char *folder) {
  FILE *to = og_create(folder, "_layers.pyi");
  fprintf(to,
          "# Generated by tools/opgen from layers/*.layer. Do not edit.\n"
          "from typing import Iterable, Mapping, Optional, Sequence, Tuple, Union, overload\n"
          "from . import Tensor, device, dtype\nfrom .nn import LazyModuleMixin, Module\n"
          "from .nn.utils.rnn import PackedSequence\n\n");
  each(to, og_write_layer_stub);
  og_finish(to);
  to = og_create(folder, "layers.md");
  fprintf(to, "# Layers and losses\n\nGenerated from `layers/*.layer`. %d entries, by name.\n\n",
          layer_count);
  each(to, og_write_layer_page);
  og_finish(to);
  to = og_create(folder, "layer_samples.inc");
  fprintf(to, "%s// PX_LAYER_SAMPLE(layer, constructor, inputs, sizes of the result)\n", license);
  each(to, og_write_layer_samples);
  og_finish(to);
}

static const struct {
  const char *title;
  layer_writer write;
} parts[] = {{"phlox/layers.h", og_write_layer_header},
             {"layers.c", write_kind_parts},
             {"", write_row},
             {"", og_write_layer_maker},
             {"_layers.pyi", og_write_layer_stub},
             {"layers.md", og_write_layer_page},
             {"layer_samples.inc", og_write_layer_samples}};
enum { PARTS = sizeof parts / sizeof *parts };

static int by_name(const void *a, const void *b) {
  return strcmp((*(og_layer *const *)a)->e->name, (*(og_layer *const *)b)->e->name);
}

static void add_layer(og_layer *l) {
  if (layer_count + 2 > OG_MAX_OPS) og_die(l->e->location, "too many layers");
  layers[layer_count++] = l;
  if ((l = og_lazy_layer(l))) layers[layer_count++] = l;
}

void og_analyse_layers(void) {
  for (int i = 0; i < og.entry_count; i++)
    if (!strcmp(og.entries[i]->sort, "layer")) add_layer(read_layer(og.entries[i]));
  qsort(layers, (size_t)layer_count, sizeof *layers, by_name);
  FILE *sink = fopen("/dev/null", "w");  // errors are reported before any output is opened
  for (int i = 0; sink && i < PARTS; i++) each(sink, parts[i].write);
  if (sink) fclose(sink);
}

bool og_show_layer(const char *name) {
  bool found = false;
  for (int k = 0; k < layer_count; k++)
    for (int i = 0; i < PARTS && !strcmp(layers[k]->e->name, name); i++) {
      found = true;
      if (*parts[i].title) printf("---- %s\n", parts[i].title);
      parts[i].write(stdout, layers[k]);
    }
  return found;
}

void og_write_layers(const char *folder) {
  write_functions(folder);
  write_code(folder);
  write_texts(folder);
}
