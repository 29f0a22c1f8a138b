// SPDX-License-Identifier: Apache-2.0
// Writes what is said of an op beside its one sentence: shapes, dtypes, errors, an example. From
// the fields `shape`, `errors` and `check`, and from the kind where they say nothing. The C header,
// the reference page and Python's docstrings have it from here.
#include "opgen.h"

static const char *shape_of(const og_op *op) {
  if (op->shape.text) return op->shape.text;
  if (og_is(op, "pointwise")) return "the tensors broadcast to one shape, which the result has";
  if (!og_is(op, "reduce")) return NULL;
  if (og_param_find(op, "dim") < 0) return "any; the result has no dimensions";
  return "any; the result lacks the dimensions dim, or has size 1 there with keepdim";
}

// What the result's dtype is, by the words after the kind.
static const char *result_dtype(const og_op *op) {
  if (og_has(op, OG_W_compare) || og_has(op, OG_W_boolresult)) return "bool results";
  if (og_has(op, OG_W_longresult)) return "int64 results";
  if (og_has(op, OG_W_float)) return "integers become the default float";
  if (og_has(op, OG_W_sum)) return "integers and bool become int64";
  if (og_has(op, OG_W_promote) && op->param_count > 1) return "promoted to one dtype";
  return NULL;
}

// What is taken, where the entry does not say.
static const char *taken_dtypes(const og_op *op) {
  bool tensor = false;
  for (int i = 0; i < op->param_count; i++)
    tensor |= op->params[i].type == OG_TENSOR || op->params[i].type == OG_TENSORS;
  if (og_is(op, "composite") && !og_has(op, OG_W_factory)) return "those of the ops that it calls";
  if (tensor && !og_has(op, OG_W_factory)) return "all";
  if (og_param_find(op, "dtype") < 0) return NULL;
  return tensor ? "as dtype says, or self's" : "as dtype says, or a default one";
}
static const char *dtypes_of(const og_op *op) {
  static const char *const sets[][2] = {{"numeric", "all but bool"},
                                        {"float", "floating point"},
                                        {"integral", "bool and integers"},
                                        {"integer", "integers"}};
  const char *set = taken_dtypes(op), *result = result_dtype(op);
  for (int i = 0; op->dtypes.text && i < 4; i++)
    if (!strcmp(op->dtypes.text, sets[i][0])) set = sets[i][1];
  if (!set) return result;
  return result ? og_format("%s; %s", set, result) : set;
}

og_remarks og_remarks_of(const og_op *op, bool in_c) {
  og_remarks r = {.shape = shape_of(op), .dtypes = dtypes_of(op), .errors = op->errors.text};
  for (int i = 0; i < op->check_count; i++) {
    const char *one = og_check_sentence(&op->checks[i], in_c ? "PX_" : NULL);
    r.errors = r.errors ? og_format("%s; %s", r.errors, one) : one;
  }
  return r;
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
