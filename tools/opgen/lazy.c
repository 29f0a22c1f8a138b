// SPDX-License-Identifier: Apache-2.0
// The lazy layer of an entry with a field `lazy`: Linear has LazyLinear, constructed without its
// first argument, a size inferred from the first input.
#include "opgen/layer.h"

// `lazy SIZE = size(input, DIM) of MIN or MAX with ARGUMENT=DEFAULT, ...`; the input has MIN or MAX
// dimensions. `of` and `with` are optional.
typedef struct lazy_field {
  char size[32];
  int dim, min_dims, max_dims;
  const char *defaults;  // "affine=True, ...", or NULL
} lazy_field;

static lazy_field read_field(const og_field *f) {
  lazy_field lazy = {.size = ""};
  int used = 0, more = 0;
  sscanf(f->text, "%31[a-z_] = size(input, %d)%n", lazy.size, &lazy.dim, &used);
  if (!used) og_die(f->location, "expected `lazy NAME = size(input, NUMBER)`");
  sscanf(f->text + used, " of %d or %d%n", &lazy.min_dims, &lazy.max_dims, &more);
  const char *rest = og_skip(f->text + used + more);
  if (!strncmp(rest, "with ", 5))
    lazy.defaults = og_skip(rest + 5);
  else if (*rest)
    og_die(f->location, "unexpected `%s` in `lazy`", rest);
  return lazy;
}

// Returns the schema with the default of an argument replaced by NAME=DEFAULT.
static const char *with_default(const char *schema, const char *given, const og_field *f) {
  const char *equals = strchr(given, '=');
  const char *name = equals ? og_format(" %.*s", (int)(equals + 1 - given), given) : NULL;
  const char *at = name ? strstr(schema, name) : NULL;
  if (!at) og_die(f->location, "`%s` is not an argument with a default", given);
  at += strlen(name);
  return og_format("%.*s%s%s", (int)(at - schema), schema, equals + 1, at + strcspn(at, ",)"));
}

// Returns the schema without its first argument, the size.
static const char *lazy_schema(const og_entry *e, const lazy_field *lazy, const og_field *f) {
  const char *comma = strchr(e->schema, ',');
  if (!e->param_count || strcmp(e->params[0].name, lazy->size) || !comma)
    og_die(f->location, "%s is not the first argument of %s", lazy->size, e->name);
  const char *schema = og_format("Lazy%s(%s", e->name, og_skip(comma + 1));
  char *defaults = strdup(lazy->defaults ? lazy->defaults : "");
  for (char *one = strtok(defaults, ", "); one; one = strtok(NULL, ", "))
    schema = with_default(schema, one, f);
  return schema;
}

static const char *lazy_doc(const og_entry *e, const lazy_field *lazy) {
  return og_format("Infers %s of %s from its first input and then becomes it.", lazy->size,
                   e->name);
}

og_layer *og_lazy_layer(const og_layer *of) {
  const og_field *f = og_entry_field(of->e, "lazy");
  if (!f) return NULL;
  lazy_field lazy = read_field(f);
  og_entry *e = malloc(sizeof *e);
  og_layer *l = malloc(sizeof *l);
  if (!e || !l) exit(1);
  *e = *of->e, *l = *of;
  e->name = og_format("Lazy%s", of->e->name);
  e->schema = lazy_schema(of->e, &lazy, f);
  e->param_count = 0;
  og_read_params(strchr(e->schema, '(') + 1, e->location, e->name, e->params, &e->param_count);
  for (int i = 0; i < e->param_count; i++) e->params[i].passing = of->e->params[i + 1].passing;
  e->params[e->param_count] = of->e->params[0];  // after the constructor's arguments
  e->field_count = 0;
  for (int i = 0; i < of->e->field_count; i++) {
    og_field field = of->e->fields[i];
    if (!strcmp(field.name, "doc")) field.text = lazy_doc(of->e, &lazy);
    if (strcmp(field.name, "sample") && strcmp(field.name, "check"))
      e->fields[e->field_count++] = field;
  }
  l->e = e, l->cname = og_format("lazy_%s", of->cname), l->lazy = of;
  return l;
}

void og_write_lazy_init(FILE *to, const og_layer *l) {
  lazy_field lazy = read_field(og_entry_field(l->e, "lazy"));
  fprintf(to,
          "static const px_module_lazy lazy_%s = {.size = \"%s\", .becomes = \"%s\", .dim = %d, "
          ".min_dims = %d, .max_dims = %d};\n",
          l->e->name, lazy.size, l->lazy->e->name, lazy.dim, lazy.min_dims, lazy.max_dims);
  fprintf(
      to,
      "static px_status init_%s(px_module *self) {\n  return px__lazy_begin(self, &lazy_%s);\n}\n",
      l->e->name, l->e->name);
}

// Returns an example: the constructor of the entry's first sample without the size.
const char *og_lazy_example(const og_layer *l, const char *arguments, const char *inputs,
                            const char *sizes) {
  const char *comma = strchr(arguments, ',');
  return og_format("\n    >>> torch.nn.%s(%s)(%s).shape\n    torch.Size([%s])", l->e->name,
                   comma ? og_skip(comma + 1) : "", inputs, sizes);
}
