// SPDX-License-Identifier: Apache-2.0
// Writes PyTorch's error texts and names for rejected arguments, from the fields `wrapper` and
// `refuse`.
#include "opgen/opgen.h"

// Returns `CODE "text"` as the initialiser of a px__refusal. Each kind of refusal supplies the
// values of %s.
static const char *refusal(const og_op *op, const og_field *f, const char *at) {
  const char *quote = strchr(at, '"'), *end = strrchr(at, '"');
  if (!quote || quote == end || end[1])
    og_die(f->location, "expected in %s `refuse WHAT : CODE \"text\"`", op->name);
  const char *code = og_trimmed(at, quote);
  return og_format("{PX_%s, %s}", code,
                   og_quote(og_with_lines(og_copy(quote + 1, (size_t)(end - quote - 1)))));
}

static const char *wrapper_of(const og_op *op) {
  if (!op->wrapper.text) return og_is(op, "pointwise") ? "NULL" : og_quote(op->name);
  return strcmp(op->wrapper.text, "none") ? og_quote(op->wrapper.text) : "NULL";
}

// Writes `name CPU CUDA`: PyTorch's names of the kernels.
static void write_kernel_names(FILE *to, const char *names) {
  static const char *const fields[] = {"cpu_kernel", "cuda_kernel"};
  for (int i = 0; i < 2 && *names; i++) {
    const char *end = og_word_end(names);
    fprintf(to, ".%s = %s, ", fields[i], og_quote(og_copy(names, (size_t)(end - names))));
    names = og_skip(end);
  }
}

static void write_refusal(FILE *to, const og_op *op, const og_field *f) {
  static const char *const kinds[] = {"bool", "dtype", "device", "out", "second", "sizes"};
  const char *end = og_word_end(f->text), *rest = og_skip(end);
  if (!strncmp(f->text, "name ", 5)) {
    write_kernel_names(to, rest);
    return;
  }
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (!strncmp(f->text, kinds[i], (size_t)(end - f->text)) && *rest == ':') {
      fprintf(to, ".of_%s = %s, ", kinds[i], refusal(op, f, og_skip(rest + 1)));
      return;
    }
  og_die(f->location, "unknown refusal '%s' of %s", f->text, op->name);
}

bool og_has_texts(const og_op *op) {
  return op->wrapper.text || op->refusal_count || op->expand_warning.text;
}

void og_write_texts(FILE *to, const og_op *op) {
  if (!og_has_texts(op)) return;
  fprintf(to, "static const px__op_texts texts_%s = {", op->name);
  for (int i = 0; i < op->refusal_count; i++) write_refusal(to, op, &op->refusals[i]);
  if (op->expand_warning.text)
    fprintf(to, ".expand_warning = %s, ", og_quote(op->expand_warning.text));
  fprintf(to, ".wrapper = %s};\n", wrapper_of(op));
}
