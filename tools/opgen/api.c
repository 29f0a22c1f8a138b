// SPDX-License-Identifier: Apache-2.0
// Writes the public C prototypes and functions, the reference page, and the samples of the op
// tests.
#include "opgen/opgen.h"

typedef enum form { NEW, INPLACE, OUT, WITH_SCALAR, SCALAR_INPLACE, FORMS } form;
static bool in_place(form f) { return f == INPLACE || f == SCALAR_INPLACE; }
static bool with_number(form f) { return f == WITH_SCALAR || f == SCALAR_INPLACE; }

bool og_has_new(const og_op *op) { return !og_has(op, OG_W_onlyinplace); }
bool og_has_inplace(const og_op *op) {
  return og_has(op, OG_W_inplace) || og_has(op, OG_W_onlyinplace);
}
static bool has_scalar(const og_op *op) {
  return og_is(op, "pointwise") && op->param_count > 1 && og_has_new(op) &&
         (!strcmp(op->params[1].name, "other") || !strcmp(op->params[1].name, "exponent")) &&
         op->params[1].type == OG_TENSOR;
}

static const char *result_type(const og_op *op) {
  return op->result_list ? "px_list" : "px_tensor";
}

static void write_results(FILE *to, const og_op *op) {
  if (op->result_count == 1) {
    fprintf(to, "%s **%s", result_type(op), op->result_names[0] ? op->result_names[0] : "out");
    return;
  }
  for (int i = 0; i < op->result_count; i++)
    fprintf(to, "%spx_tensor **%s", i ? ", " : "", op->result_names[i]);
}

static const char *const suffixes[] = {"", "_", "_out", "_scalar", "_scalar_"};

static void write_signature(FILE *to, const og_op *op, form f) {
  fprintf(to, "px_%s%s(", op->name, suffixes[f]);
  if (f == OUT)
    for (int i = 0; i < op->result_count; i++)
      fprintf(to, "%spx_tensor *%s", i ? ", " : "",
              op->result_names[i] ? op->result_names[i] : "out");
  else if (!in_place(f))
    write_results(to, op);
  for (int i = 0; i < op->param_count; i++) {
    const og_param *p = &op->params[i];
    if (i || !in_place(f)) fprintf(to, ", ");
    if (i == 0 && in_place(f))
      fprintf(to, "px_tensor *%s", p->name);
    else if (i == 1 && with_number(f))
      fprintf(to, "px_scalar %s", p->name);
    else
      fprintf(to, "%s%s", p->optional ? og_types[p->type].c_maybe : og_types[p->type].c, p->name);
    if (p->type == OG_TENSORS || p->type == OG_INTS) fprintf(to, ", int64_t %s_n", p->name);
  }
  fprintf(to, ")");
}

// A leading underscore would yield px__NAME, the prefix of private functions.
bool og_is_hidden(const og_op *op) { return og_has(op, OG_W_hidden) || *op->name == '_'; }

static bool has_form(const og_op *op, form f) {
  bool has[] = {og_has_new(op), og_has_inplace(op), og_has(op, OG_W_out), has_scalar(op),
                has_scalar(op) && og_has_inplace(op)};
  return has[f];
}

static void write_comment(FILE *to, const og_op *op) {
  og_remarks r = og_remarks_of(op, true);
  fprintf(to, "// %s\n//   %s\n", op->doc.text, op->schema);
  if (r.shape) fprintf(to, "// Shapes: %s.\n", r.shape);
  if (r.dtypes) fprintf(to, "// Dtypes: %s.\n", r.dtypes);
  if (r.errors) fprintf(to, "// Errors: %s.\n", r.errors);
  if (!og_is_hidden(op)) fprintf(to, "// Example: %s\n", og_example(op));
}

static const char *prototype(const og_op *op, form f) {
  og_body b;
  FILE *to = og_body_begin(&b);
  fprintf(to, og_is_hidden(op) ? "__attribute__((warn_unused_result)) px_status " : "PX_CALL ");
  write_signature(to, op, f);
  og_body_end(&b);
  return og_format("%s;", b.text);
}
const char *og_prototype(const og_op *op) { return prototype(op, NEW); }

void og_write_prototypes(FILE *to, const og_op *op) {
  static const char *const notes[] = {"", "in place", "writes to `out`", "with a number",
                                      "with a number, in place"};
  write_comment(to, op);
  for (int f = NEW; f < FORMS; f++)
    if (has_form(op, (form)f))
      fprintf(to, *notes[f] ? "%s  // %s\n" : "%s\n", prototype(op, (form)f), notes[f]);
  fprintf(to, "\n");
}

// ---- ops_N.c: the C functions

static void write_argument(FILE *to, const og_param *p, bool scalar) {
  const char *n = p->name, *make = og_types[p->type].make;
  if (scalar)
    fprintf(to, "PX_S(%s)", n);
  else if (p->type == OG_TENSORS || (p->type == OG_INTS && !p->optional))
    fprintf(to, "%s(%s, %s_n)", make, n, n);
  else if (p->type == OG_INTS)
    fprintf(to, "%s ? PX_IS(%s, %s_n) : PX_NONE()", n, n, n);
  else if (p->optional && (p->type == OG_INT || p->type == OG_FLOAT || p->type == OG_BOOL))
    fprintf(to, "%s ? %s(*%s) : PX_NONE()", n, make, n);
  else
    fprintf(to, "%s(%s)", make, n);
}

static void write_arguments(FILE *to, const og_op *op, form f) {
  if (op->param_count == 0) {
    fprintf(to, "  const px_value args[1] = {{0}};\n");
    return;
  }
  fprintf(to, "  const px_value args[] = {");
  for (int i = 0; i < op->param_count; i++) {
    if (i) fprintf(to, ", ");
    write_argument(to, &op->params[i], with_number(f) && i == 1);
  }
  fprintf(to, "};\n");
}

static const char *out_name(const og_op *op, int i) {
  return op->result_names[i] ? op->result_names[i] : "out";
}

static void write_new(FILE *to, const og_op *op) {
  const char *call = og_format("px_op_call(&px__op_%s, PX_CALL_NEW, args,", op->name);
  if (op->result_count == 1) {
    fprintf(to, "  return %s (void **)%s);\n}\n\n", call, out_name(op, 0));
    return;
  }
  fprintf(to, "  void *results[%d] = {NULL};\n  PX_TRY(%s results));\n", op->result_count, call);
  for (int i = 0; i < op->result_count; i++)
    fprintf(to, "  *%s = results[%d];\n", out_name(op, i), i);
  fprintf(to, "  return PX_OK;\n}\n\n");
}

static void write_into(FILE *to, const og_op *op, form f) {
  int count = in_place(f) ? 1 : op->result_count;
  fprintf(to, "  void *results[%d] = {", count > op->result_count ? count : op->result_count);
  for (int i = 0; f == OUT && i < count; i++) fprintf(to, "%s%s", i ? ", " : "", out_name(op, i));
  fprintf(to, "%s};\n", in_place(f) ? "NULL" : "");
  fprintf(to, "  PX_TRY(px_op_call(&px__op_%s, PX_CALL_%s, args, results));\n", op->name,
          in_place(f) ? "INPLACE" : "OUT");
  for (int i = 0; i < count; i++) fprintf(to, "  px_release(results[%d]);\n", i);
  fprintf(to, "  return PX_OK;\n}\n\n");
}

void og_write_api(FILE *to, const og_op *op) {
  for (int f = NEW; f < FORMS; f++) {
    if (!has_form(op, (form)f)) continue;
    og_use("%s", prototype(op, (form)f));
    fprintf(to, "px_status ");
    write_signature(to, op, (form)f);
    fprintf(to, " {\n");
    write_arguments(to, op, (form)f);
    if (in_place((form)f) || f == OUT)
      write_into(to, op, (form)f);
    else
      write_new(to, op);
  }
}

// ---- texts

void og_write_page(FILE *to, const og_op *op) {
  if (og_has(op, OG_W_hidden)) return;
  fprintf(to, "## %s\n\n`%s`\n\n%s\n", op->name, op->schema, op->doc.text);
  if (op->note.text) fprintf(to, "\n%s\n", op->note.text);
  og_remarks r = og_remarks_of(op, false);
  fprintf(to, "\n");
  if (r.shape) fprintf(to, "- Shapes: %s.\n", r.shape);
  if (r.dtypes) fprintf(to, "- Dtypes: %s.\n", r.dtypes);
  if (r.errors) fprintf(to, "- Errors: %s.\n", r.errors);
  if (op->pyname.text) fprintf(to, "- Python: `%s`\n", op->pyname.text);
  if (og_has_inplace(op)) fprintf(to, "- In place: `%s_`\n", op->name);
  if (og_has(op, OG_W_out)) fprintf(to, "- Supports `out=`%s.\n", og_out_words(op));
  if (op->expr.text) fprintf(to, "- Each element: `%s`\n", op->expr.text);
  if (op->body.text && !op->let_count)
    fprintf(to, "- Equivalent: `%s`\n", og_one_line(op->body.text));
  fprintf(to, "- %s.\n",
          op->grad_mask            ? "Differentiable"
          : og_is(op, "composite") ? "Differentiable through the ops it calls"
                                   : "Not differentiable");
  for (int i = 0; i < op->param_count; i++)
    if (op->grads[i].text)
      fprintf(to, "- Gradient of `%s`: `%s`\n", op->params[i].name, og_one_line(op->grads[i].text));
  if (op->example.text) fprintf(to, "\nExample:\n%s\n", og_example_lines(&op->example));
  fprintf(to, "\n");
}

// The call of a public C function with arguments by type and position, for the fuzzer.
static void write_typed_call(FILE *to, const og_op *op, form f) {
  static const char *const forms[] = {"NEW", "INPLACE", "OUT", "SCALAR", "SCALAR_INPLACE"};
  fprintf(to, "PX_TYPED(%s, %s, px_%s%s(", op->name, forms[f], op->name, suffixes[f]);
  const char *result = f == OUT ? "OUT" : op->result_list ? "NEW_LIST" : "NEW", *comma = "";
  for (int i = 0; i < op->result_count && !in_place(f); i++, comma = ", ")
    fprintf(to, "%s%s(%d)", comma, result, i);
  for (int i = 0; i < op->param_count; i++, comma = ", ") {
    const og_param *p = &op->params[i];
    bool pointer = p->optional && strcmp(og_types[p->type].c, og_types[p->type].c_maybe) != 0;
    const char *type = with_number(f) && i == 1 ? "SCALAR" : og_types[p->type].kind + 7;
    fprintf(to, "%s%s%s(%d)", comma, pointer ? "MAYBE_" : "", type, i);
  }
  fprintf(to, "))\n");
}
void og_write_typed_calls(FILE *to, const og_op *op) {
  for (int f = NEW; f < FORMS && !og_is_hidden(op); f++)
    if (has_form(op, (form)f)) write_typed_call(to, op, (form)f);
}

void og_write_samples(FILE *to, const og_op *op) {
  double low = -2, high = 2;
  if (op->domain.text && sscanf(op->domain.text, "%lf %lf", &low, &high) != 2)
    og_die(op->domain.location, "domain of %s requires two numbers", op->name);
  for (int i = 0; i < op->sample_count; i++)
    fprintf(to, "PX_SAMPLE(\"%s\", %s, %g, %g)\n", op->name, og_quote(op->samples[i].text), low,
            high);
  if (op->sample_count == 0 && og_is(op, "pointwise")) {
    const char *args = "";
    for (int i = 0; i < op->param_count && !op->params[i].keyword; i++) {
      const og_param *p = &op->params[i];
      const char *one =
          p->type == OG_TENSOR ? (op->mask_params >> i & 1 ? "b(2,3)" : "f(2,3)") : NULL;
      if (p->type != OG_TENSOR && !p->fallback)
        og_die(op->location, "op %s requires a sample for '%s'", op->name, p->name);
      if (one) args = og_format("%s%s%s", args, *args ? " " : "", one);
    }
    fprintf(to, "PX_SAMPLE(\"%s\", %s, %g, %g)\n", op->name, og_quote(args), low, high);
  }
}
