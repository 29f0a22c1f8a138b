// SPDX-License-Identifier: Apache-2.0
// Writes the C constructors of layers: a struct of the arguments, a macro of their defaults, a
// macro px_NAME_new with positional required arguments and named optional ones, and its function.
#include "opgen/layer.h"

#include <ctype.h>

enum { LIST_CAPACITY = 4 };  // elements of an int[]

static const char *upper(const char *text) {
  char *made = strdup(text);
  for (char *at = made; *at; at++) *at = (char)toupper((unsigned char)*at);
  return made;
}

static bool required(const og_param *p) { return !p->fallback && !p->optional; }

// ---- the struct

static int list_capacity(const og_param *p) { return p->size ? p->size : LIST_CAPACITY; }

static void write_member(FILE *to, const og_entry *e, const og_param *p) {
  if (p->type == OG_MODULE) return;  // Python only
  static const char *const types[OG_TYPE_COUNT] = {
      [OG_TENSOR] = "px_tensor *", [OG_INT] = "int64_t ",     [OG_FLOAT] = "double ",
      [OG_BOOL] = "bool ",         [OG_INTS] = "int64_t ",    [OG_DTYPE] = "px_dtype ",
      [OG_DEVICE] = "px_device ",  [OG_TEXT] = "const char *"};
  const char *type = p->type == OG_BOOL && p->optional ? "int " : types[p->type];
  if (p->worded) fprintf(to, "  const char *%s_word;  // overrides the numbers\n", p->name);
  fprintf(to, "  %s%s", type, p->name);
  if (p->type == OG_INTS) fprintf(to, "[%d]", list_capacity(p));
  fprintf(to, ";  // %s%s\n", og_argument_text(e, p->name),
          type[0] == 'i' && type[3] == ' ' ? " (-1: None)" : "");
}

// ---- the defaults

static const char *list_default(const og_param *p) {
  const char *items = "", *at = p->fallback;
  bool none = !at || !strcmp(at, "None");
  for (int i = 0; i < list_capacity(p); i++)
    items = og_format("%s%s%s", items, i ? ", " : "", i || none ? "PX_NO_INT" : at);
  return og_format("{%s}", items);
}

static const char *default_of(const og_entry *e, const og_param *p) {
  bool none = !p->fallback || !strcmp(p->fallback, "None");
  if (p->type == OG_INTS && p->fallback && *p->fallback == '[')
    og_die(e->location, "%s: a default list is one number for all", e->name);
  switch (p->type) {
    case OG_INTS:
      return list_default(p);
    case OG_INT:
      return none ? "PX_NO_INT" : p->fallback;
    case OG_FLOAT:
      return none ? "PX_NO_FLOAT" : p->fallback;
    case OG_BOOL:
      return none ? "-1" : !strcmp(p->fallback, "True") ? "true" : "false";
    case OG_TEXT:
      return none ? "NULL" : og_quote(og_copy(p->fallback + 1, strlen(p->fallback) - 2));
    default:
      return og_layer_absent(p);
  }
}

static void write_defaults(FILE *to, const og_layer *l) {
  fprintf(to, "#define PX_%s_ARGS NULL", upper(l->cname));
  for (int i = 0; i < l->e->param_count; i++)
    if (l->e->params[i].type != OG_MODULE)
      fprintf(to, ", %s%s", l->e->params[i].worded ? "NULL, " : "",
              default_of(l->e, &l->e->params[i]));
  fprintf(to, ", 0\n");
}

static void write_macro(FILE *to, const og_layer *l) {
  const char *needed = "", *set = "";
  for (int i = 0; i < l->e->param_count; i++) {
    const char *name = l->e->params[i].name;
    if (!required(&l->e->params[i])) continue;
    needed = og_format("%s, %s_", needed, name);
    set = og_format("%s, .%s = %s_", set, name, name);
  }
  fprintf(to,
          "#define px_%s_new(...) PX_%s_NEW(__VA_ARGS__, .by_name = 0)\n"
          "#define PX_%s_NEW(out_%s, ...) \\\n"
          "  PX_BY_NAME(px_%s_make, px_%s_args, PX_%s_ARGS, .out = (out_)%s, \\\n"
          "             .by_name = 0, __VA_ARGS__)\n\n",
          l->cname, upper(l->cname), upper(l->cname), needed, l->cname, l->cname, upper(l->cname),
          set);
}

// ---- the comment

static const char *example_value(const og_param *p) {
  return p->type == OG_INT || p->type == OG_INTS ? "2" : p->type == OG_FLOAT ? "0.5" : "NULL";
}

static void write_comment(FILE *to, const og_layer *l) {
  const char *shape = og_layer_text(l, "shape");
  fprintf(to, "// %s\n//   %s\n", og_layer_text(l, "doc"), l->e->schema);
  if (shape) fprintf(to, "//   shapes: %s\n", shape);
  const char *inputs = og_layer_text(l, "inputs"), *results = og_layer_text(l, "results");
  if (results)
    fprintf(to, "//   tensors in: %s; out: %s (?: optional, may be NULL)\n",
            inputs ? inputs : "input", results);
  for (const og_field *f = NULL; (f = og_entry_next(l->e, "check", f));)
    fprintf(to, "//   raises: %s\n", og_check_sentence(f, "PX_"));
  fprintf(to, "//   px_%s_new(&layer", l->cname);
  for (int i = 0; i < l->e->param_count; i++)
    if (required(&l->e->params[i])) fprintf(to, ", %s", example_value(&l->e->params[i]));
  fprintf(to, ")\n");
}

void og_write_layer_header(FILE *to, const og_layer *l) {
  if (l->children || og_layer_takes_modules(l, false)) return;
  write_comment(to, l);
  fprintf(to, "typedef struct px_%s_args {\n  px_module **out;\n", l->cname);
  for (int i = 0; i < l->e->param_count; i++) write_member(to, l->e, &l->e->params[i]);
  fprintf(to, "  char by_name;\n} px_%s_args;\nPX_CALL px_%s_make(const px_%s_args *args);\n",
          l->cname, l->cname, l->cname);
  write_defaults(to, l);
  write_macro(to, l);
}

// ---- the function

static const char *given_value(const og_param *p) {
  const char *n = p->name, *maybe = p->optional ? "true" : "false";
  switch (p->type) {
    case OG_INTS:
      if (p->worded)
        return og_format(
            "args->%s_word ? PX_TX(args->%s_word) : px__given_ints(args->%s, %d, %d, %s)", n, n, n,
            list_capacity(p), p->size, maybe);
      return og_format("px__given_ints(args->%s, %d, %d, %s)", n, list_capacity(p), p->size, maybe);
    case OG_INT:
      return og_format("px__given_int(args->%s, %s)", n, maybe);
    case OG_FLOAT:
      return og_format("px__given_float(args->%s, %s)", n, maybe);
    case OG_BOOL:
      if (p->optional) return og_format("args->%s < 0 ? PX_GIVEN_NONE() : PX_B(args->%s)", n, n);
      return og_format("PX_B(args->%s)", n);
    case OG_MODULE:
      return "PX_NONE()";
    default:
      return og_format("%s(args->%s)", og_types[p->type].make, n);
  }
}

void og_write_layer_maker(FILE *to, const og_layer *l) {
  if (l->children || og_layer_takes_modules(l, false)) return;
  fprintf(to, "px_status px_%s_make(const px_%s_args *args) {\n  PX_GIVEN(args);\n", l->cname,
          l->cname);
  if (l->e->param_count) {
    fprintf(to, "  const px_value values[] = {");
    for (int i = 0; i < l->e->param_count; i++)
      fprintf(to, "%s\n      %s", i ? "," : "", given_value(&l->e->params[i]));
    fprintf(to, "};\n");
  }
  fprintf(to, "  return px_module_new(args->out, px_module_kind_find(\"%s\"), %s, NULL);\n}\n\n",
          l->e->name, l->e->param_count ? "values" : "NULL");
}
