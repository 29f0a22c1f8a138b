// SPDX-License-Identifier: Apache-2.0
// Writes views of layers' arguments: structs through which the C functions named by entries (`run`,
// `run_sized`, `method`) read inputs and arguments by name, and the functions of a kind that fill
// them. Entries naming one function have the same inputs, so one struct serves them.
#include "opgen/layer.h"

// A function named by an entry.
typedef struct named {
  const char *function, *word;  // word: prefix of the kind's function
  const og_method *method;      // NULL: the function takes tensors
  bool sized;
} named;
enum { MOST = OG_MAX_METHODS + 2 };

static int named_of(named *out, const og_layer *l) {
  int n = 0;
  const char *sized = og_layer_text(l, "run_sized");
  if (l->run && !l->lazy) out[n++] = (named){l->run, "forward", NULL, false};
  if (sized) out[n++] = (named){sized, "sized", NULL, true};
  for (int i = 0; i < l->method_count; i++)
    out[n++] =
        (named){l->methods[i].run, og_format("method_%s", l->methods[i].name), &l->methods[i], 0};
  return n;
}

// ---- the struct

static const char *members_of(const og_layer *l, const named *f) {
  const char *text = "";
  for (int i = 0; f->method && i < f->method->param_count; i++) {
    const og_param *p = &f->method->params[i];
    text = og_format("%s  %s%s;\n", text, og_field_type(p), p->name);
  }
  for (int i = 0; !f->method && i < l->input_count; i++) {
    const og_port *port = &l->inputs[i];
    const char *many = port->tensors > 1 ? og_format("[%d]", port->tensors) : "";
    text = og_format("%s  px_tensor *%s%s;%s\n", text, port->name, many,
                     port->optional ? "  // NULL if absent" : "");
  }
  if (f->sized) text = og_format("%s  px_value sizes;  // of the result\n", text);
  if (!f->method && !f->sized && l->run_arguments) text = og_format("%s  int64_t number;\n", text);
  return text;
}

// Writes each function once, with its struct.
void og_write_layer_views(FILE *to, og_layer *const *layers, int count) {
  static struct { const char *function, *members; } written[OG_MAX_OPS];
  named all[MOST];
  int n = 0;
  for (int i = 0; i < count; i++)
    for (int k = 0, functions = named_of(all, layers[i]); k < functions; k++) {
      const char *function = all[k].function, *members = members_of(layers[i], &all[k]);
      int at = 0;
      while (at < n && strcmp(written[at].function, function)) at++;
      if (at < n && strcmp(written[at].members, members))
        og_die(layers[i]->e->location, "%s() has other inputs in another layer", function);
      if (at < n) continue;
      written[n].function = function, written[n++].members = members;
      fprintf(to,
              "\ntypedef struct %s_args {\n%s} %s_args;\n"
              "px_status %s(px_tensor **out, px_module *self, const %s_args *args);\n",
              function, members, function, function, function);
    }
}

// ---- the functions that fill it

static void write_values(FILE *to, const og_layer *l, const named *f) {
  for (int i = 0; f->method && i < f->method->param_count; i++) {
    const og_param *p = &f->method->params[i];
    fprintf(to, "      .%s = %s,\n", p->name, og_field_value(p, og_format("values[%d]", i)));
  }
  for (int i = 0, at = 0; !f->method && i < l->input_count; i++) {
    const og_port *port = &l->inputs[i];
    fprintf(to, "      .%s = %s", port->name, port->tensors > 1 ? "{" : "");
    for (int k = 0; k < port->tensors; k++) fprintf(to, "%sinputs[%d]", k ? ", " : "", at++);
    fprintf(to, "%s,\n", port->tensors > 1 ? "}" : "");
  }
  if (f->sized) fprintf(to, "      .sizes = sizes,\n");
  if (!f->method && !f->sized && l->run_arguments)
    fprintf(to, "      .number = %s,\n", l->run_arguments);
}

void og_write_layer_calls(FILE *to, const og_layer *l) {
  named all[MOST];
  for (int i = 0, n = named_of(all, l); i < n; i++) {
    const named *f = &all[i];
    fprintf(to,
            "static px_status %s_%s(px_tensor **out, px_module *self, %s) {\n"
            "  const %s_args args = {\n",
            f->word, l->e->name,
            f->method  ? "const px_value *values"
            : f->sized ? "px_tensor *const *inputs, px_value sizes"
                       : "px_tensor *const *inputs, int count",
            f->function);
    write_values(to, l, f);
    fprintf(to, "  };\n  return %s(out, self, &args);\n}\n", f->function);
  }
}
