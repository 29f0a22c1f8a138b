// SPDX-License-Identifier: Apache-2.0
// Composes the documentation of an op besides its `doc`: shapes, dtypes, errors, an example.
// Sources are the fields `shape`, `errors` and `check`; without them the `result` lines and the
// kind. Used by the C header, the reference page and Python docstrings.
#include "opgen/opgen.h"

// Counts the parameters of type Tensor and Tensor[].
static int tensors_of(const og_op *op) {
  int count = 0;
  for (int i = 0; i < op->param_count; i++)
    count += op->params[i].type == OG_TENSOR || op->params[i].type == OG_TENSORS;
  return count;
}

// Describes the sizes of a `result` line; NULL if the entry needs a `shape`.
static const char *shape_in_words(const og_op *op, const og_result *r) {
  const og_node *n = r->shape;
  bool of_self = (n->kind == OG_SHAPE || n->kind == OG_CALL) && n->count &&
                 n->items[0]->kind == OG_NAME && og_param_find(op, n->items[0]->text) == 0 &&
                 op->params[0].type == OG_TENSOR;
  if (!of_self) return NULL;
  bool lone = !op->result_names[0];
  const char *names = lone ? "the result" : "", *last = r->count > 1 ? " and " : "";
  for (int i = 0; !lone && i < r->count; i++)
    names = og_format("%s%s%s", names,
                      i == 0              ? ""
                      : i == r->count - 1 ? last
                                          : ", ",
                      op->result_names[r->results[i]]);
  if (!strcmp(n->text, "sizes"))
    return og_format("any; %s ha%s the shape of %s", names, r->count > 1 ? "ve" : "s",
                     n->items[0]->text);
  if (strcmp(n->text, "reduced") || n->items[1]->kind != OG_NAME) return NULL;
  return og_format("any; %s omit%s the dimension %s, or keep%s it with size 1 if %s", names,
                   r->count > 1 ? "" : "s", n->items[1]->text, r->count > 1 ? "" : "s",
                   n->items[2]->text);
}

const char *og_shape_of(const og_op *op) {
  if (op->shape.text) return op->shape.text;
  if (og_is(op, "pointwise") && tensors_of(op) > 1)
    return "the tensors broadcast to the shape of the result";
  if (og_is(op, "pointwise"))
    return og_format("any; the result has the shape of %s", op->params[0].name);
  if (op->result_field_count == 1) {
    og_result r = og_result_parse(op, &op->result_fields[0]);
    return shape_in_words(op, &r);
  }
  if (!og_is(op, "reduce")) return NULL;
  if (og_param_find(op, "dim") < 0) return "any; the result is 0-dim";
  return "any; the result omits the dimensions dim, or keeps them with size 1 if keepdim";
}

// Describes the dtype of the result by the words after the kind.
static const char *result_dtype(const og_op *op) {
  if (og_has(op, OG_W_compare) || og_results_are(op, "bool")) return "bool results";
  if (og_results_are(op, "int64")) return "int64 results";
  if (og_has(op, OG_W_float)) return "integers are converted to the default float dtype";
  if (og_has(op, OG_W_whole)) return "bool is converted to int64";
  if (og_has(op, OG_W_sum)) return "integers and bool are converted to int64";
  if (og_has(op, OG_W_promote) && op->param_count > 1) return "promoted to a common dtype";
  return NULL;
}

// Returns the supported dtypes, or NULL for all. Bool converted to int64 counts as supported.
static const char *limit_of(const og_op *op) {
  bool all = !op->dtypes.text || !strcmp(op->dtypes.text, "all") || og_has(op, OG_W_whole);
  return all ? NULL : op->dtypes.text;
}

// Describes the supported dtypes of an entry without `dtypes`.
static const char *taken_dtypes(const og_op *op) {
  bool tensor = tensors_of(op) > 0;
  if (og_is(op, "composite") && !og_has(op, OG_W_factory)) return "those of the ops it calls";
  if (tensor && !og_has(op, OG_W_factory)) return "all";
  if (og_param_find(op, "dtype") < 0) return NULL;
  return tensor ? "dtype, by default that of self" : "dtype, or a default";
}
static const char *dtypes_of(const og_op *op) {
  static const char *const sets[][2] = {{"numeric", "all except bool"},
                                        {"float", "floating point"},
                                        {"integral", "bool and integers"},
                                        {"integral unsigned", "bool and integers"},
                                        {"integer", "integers"}};
  const char *set = taken_dtypes(op), *result = result_dtype(op);
  for (int i = 0; limit_of(op) && i < (int)(sizeof sets / sizeof *sets); i++)
    if (!strcmp(limit_of(op), sets[i][0])) set = sets[i][1];
  if (!set) return result;
  return result ? og_format("%s; %s", set, result) : set;
}

// Describes the errors common to ops of the kind.
static const char *errors_of(const og_op *op) {
  if (op->errors.text) return op->errors.text;
  if (og_is(op, "pointwise") && tensors_of(op) > 1)
    return "RuntimeError if the shapes do not broadcast";
  if (!og_is(op, "reduce")) return NULL;
  if (og_param_find(op, "dim") < 0)
    return og_is_nonempty(op) ? "RuntimeError if self is empty" : NULL;
  return og_is_nonempty(op) ? "IndexError if a dim is out of range or of size 0"
                            : "IndexError if a dim is out of range";
}

// Describes the error for unsupported dtypes.
static const char *dtype_errors(const og_op *op) {
  if (!limit_of(op) || og_is(op, "composite")) return NULL;
  bool numeric = !strcmp(limit_of(op), "numeric");  // all except bool
  for (int i = 0; i < op->refusal_count; i++) {
    const char *refusal = op->refusals[i].text;
    bool for_dtype = !strncmp(refusal, "dtype ", 6) || (numeric && !strncmp(refusal, "bool ", 5));
    if (for_dtype && strstr(refusal, ": RUNTIME \"")) return "RuntimeError for other dtypes";
  }
  return "NotImplementedError for other dtypes";
}

static const char *joined(const char *a, const char *b) {
  return a && b ? og_format("%s; %s", a, b) : a ? a : b;
}

og_remarks og_remarks_of(const og_op *op, bool in_c) {
  og_remarks r = {.shape = og_shape_of(op),
                  .dtypes = joined(dtypes_of(op), og_autocast_words(op)),
                  .errors = joined(errors_of(op), dtype_errors(op))};
  for (int i = 0; i < op->check_count; i++)
    if (og_check_let(op, &op->checks[i]) < 0)
      r.errors = joined(r.errors, og_check_sentence(&op->checks[i], in_c ? "PX_" : NULL));
  return r;
}

// ---- examples
const char *og_example_lines(const og_field *f) {
  const char *arrow = strstr(f->text, " -> ");
  if (!arrow) og_die(f->location, "expected `example EXPRESSION -> TEXT`");
  return og_format("\n    >>> %s\n    %s", og_trimmed(f->text, arrow), og_skip(arrow + 4));
}

// ---- an example call in C

static const char *example_argument(const og_param *p) {
  const char *given = p->fallback && strcmp(p->fallback, "None") ? p->fallback : NULL;
  switch (p->type) {
    case OG_TENSOR:
      return p->optional ? "NULL" : p->name;
    case OG_TENSORS:
      return og_format("%s, n", p->name);
    case OG_SCALAR:
      if (p->optional && !given) return "px_no_scalar()";
      return og_format(given && strpbrk(given, ".ein") ? "px_float(%s)" : "px_int(%s)",
                       given ? given : "1");
    case OG_INTS:
      return p->optional && !given ? "NULL, 0" : og_format("%s, %s_n", p->name, p->name);
    case OG_DTYPE:
      return "PX_DTYPE_NONE";
    case OG_DEVICE:
      return "PX_DEVICE_NONE";
    case OG_TEXT:
      return given ? og_format("\"%.*s\"", (int)strlen(given) - 2, given + 1) : "NULL";
    case OG_GENERATOR:
      return "NULL";
    case OG_BOOL:
      if (p->optional) return "NULL";
      return given && *given == 'T' ? "true" : "false";
    default:
      if (p->optional) return "NULL";
      return given ? given : p->name;
  }
}

const char *og_example(const og_op *op) {
  const char *text = og_format("px_%s%s(", op->name, og_has_new(op) ? "" : "_");
  for (int r = 0; og_has_new(op) && r < op->result_count; r++)
    text = og_format("%s%s&%s", text, r ? ", " : "",
                     op->result_names[r] ? op->result_names[r] : "out");
  for (int i = 0; i < op->param_count; i++)
    text = og_format("%s%s%s", text, i || og_has_new(op) ? ", " : "",
                     example_argument(&op->params[i]));
  return og_format("PX_TRY(%s));", text);
}
