// SPDX-License-Identifier: Apache-2.0
// Writes the descriptors: parameters with defaults, the private px__op_impl, and the px_op.
#include "opgen/opgen.h"

#include <ctype.h>

static const char *list_fallback(const og_owner *of, const og_param *p) {
  const char *t = p->fallback;
  if (*t != '[') t = og_format("[%s]", t);
  int count = 0;
  for (const char *at = t + 1; *at && *at != ']'; at++)
    if (isdigit((unsigned char)*at) && !isdigit((unsigned char)at[-1])) count++;
  if (count == 0) return "{.kind = PX_ARG_INTS}";
  return og_format("{.kind = PX_ARG_INTS, .n = %d, .v = {.ints = ints_%s_%s}}", count, of->name,
                   p->name);
}

static const char *number_fallback(const og_owner *of, const og_param *p) {
  const char *t = p->fallback, *kind = og_types[p->type].kind;
  if (!strcmp(t, "True") || !strcmp(t, "False"))
    return og_format("{.kind = %s, .category = 'b', .v = {.i = %d}}", kind, *t == 'T');
  char *end;
  strtod(t, &end);
  if (*end) og_die(of->location, "bad default '%s' of %s in %s %s", t, p->name, of->sort, of->name);
  bool real = p->type == OG_FLOAT || (p->type == OG_SCALAR && strpbrk(t, ".eEni"));
  if (!strcmp(t, "inf")) t = "__builtin_inf()";
  return og_format("{.kind = %s, .category = '%c', .v = {.%c = %s}}", kind, real ? 'f' : 'i',
                   real ? 'f' : 'i', t);
}

static const char *fallback_of(const og_owner *of, const og_param *p) {
  if (!p->fallback || !strcmp(p->fallback, "None")) return "{0}";
  switch (p->type) {
    case OG_INTS:
      return list_fallback(of, p);
    case OG_TEXT: {
      char *text = og_copy(p->fallback + 1, strlen(p->fallback) > 1 ? strlen(p->fallback) - 2 : 0);
      return og_format("{.kind = PX_ARG_TEXT, .v = {.text = %s}}", og_quote(text));
    }
    case OG_DTYPE: {
      char *upper = strdup(p->fallback);
      for (char *at = upper; *at; at++) *at = (char)toupper((unsigned char)*at);
      return og_format("{.kind = PX_ARG_DTYPE, .v = {.i = PX_%s}}", upper);
    }
    case OG_SCALAR:
    case OG_INT:
    case OG_FLOAT:
    case OG_BOOL:
      return number_fallback(of, p);
    default:
      og_die(of->location, "bad default '%s' of %s in %s %s", p->fallback, p->name, of->sort,
             of->name);
  }
}

void og_write_param_array(FILE *to, const og_owner *of, const og_param *params, int count) {
  for (int i = 0; i < count; i++) {
    const og_param *p = &params[i];
    if (p->type == OG_INTS && p->fallback && strstr(fallback_of(of, p), ".ints")) {
      const char *t = *p->fallback == '[' ? p->fallback + 1 : p->fallback;
      fprintf(to, "static const int64_t ints_%s_%s[] = {%.*s};\n", of->name, p->name,
              (int)strcspn(t, "]"), t);
    }
  }
  if (count == 0) return;
  fprintf(to, "static const px_param params_%s[] = {\n", of->name);
  for (int i = 0; i < count; i++) {
    const og_param *p = &params[i];
    fprintf(to, "    {.name = \"%s\", .kind = %s, .optional = %d, .keyword_only = %d", p->name,
            og_types[p->type].kind, p->optional || p->type == OG_MODULE, p->keyword);
    if (p->fallback)
      fprintf(to, ", .has_default = true, .fallback = %s, .fallback_text = %s", fallback_of(of, p),
              og_quote(p->fallback));
    if (p->worded) fprintf(to, ", .accepts_word = true");
    if (p->passing) fprintf(to, ", .no_attribute = true");
    if (p->owned) fprintf(to, ", .accepts_own_size = true");
    fprintf(to, "},\n");
  }
  fprintf(to, "};\n");
}

void og_write_params(FILE *to, const og_op *op) {
  og_owner of = {"op", op->name, op->location};
  og_write_param_array(to, &of, op->params, op->param_count);
}

static const char *promotion_of(const og_op *op) {
  if (og_has(op, OG_W_float)) return "PX__PROMOTE_FLOAT";
  if (og_has(op, OG_W_compare)) return "PX__PROMOTE_COMPARE";
  if (og_has(op, OG_W_whole)) return "PX__PROMOTE_INTEGER";
  if (og_has(op, OG_W_first)) return "PX__PROMOTE_FIRST";
  return og_has(op, OG_W_sum) ? "PX__PROMOTE_SUM" : "PX__PROMOTE";
}

bool og_results_are(const og_op *op, const char *dtype) {
  return op->result_dtype.text && !strcmp(op->result_dtype.text, dtype);
}

static const char *result_dtype(const og_op *op, int r) {
  const char *name = op->result_names[r];
  if (name && !strcmp(name, "indices")) return "PX_INT64";
  if (og_results_are(op, "bool") || og_has(op, OG_W_compare)) return "PX_BOOL";
  if (og_results_are(op, "real")) return "PX__DTYPE_REAL";
  return og_results_are(op, "int64") ? "PX_INT64" : "PX_DTYPE_NONE";
}

// True if a reduction of no elements is an error: its fold, or that of its kernel, has no identity,
// or without a fold it returns indices.
bool og_is_nonempty(const og_op *op) {
  const og_op *folded = op->kernel.text ? og_find(op->kernel.text) : op;
  if (folded && folded->fold.text) return og_fold_parse(folded).start;
  return og_is(op, "reduce") && (og_result_find(op, "indices") >= 0 || og_results_are(op, "int64"));
}

// Autocast policies: the value in the descriptor, and words.
static const struct {
  const char *name, *value, *words;
} policies[] = {{"none", "PX_AUTOCAST_NONE", NULL},
                {"lower", "PX_AUTOCAST_LOWER", "computes in the lower dtype"},
                {"float32", "PX_AUTOCAST_FLOAT32", "computes in float32"},
                {"widest", "PX_AUTOCAST_WIDEST", "computes in the widest dtype"},
                {"plain", "PX_AUTOCAST_PLAIN", NULL}};
enum { POLICIES = sizeof policies / sizeof *policies };

static int policy_named(const og_op *op, const char *name) {
  for (int i = 0; i < POLICIES; i++)
    if (!strcmp(name, policies[i].name)) return i;
  og_die(op->autocast.location, "unknown policy '%s' of %s", name, op->name);
}

// `POLICY` applies to all devices; `POLICY, cpu POLICY` to accelerators and to the CPU.
static og_policy policy_of(const og_op *op) {
  const char *text = op->autocast.text;
  if (!text) return (og_policy){0, 0};
  const char *comma = strchr(text, ','), *rest = comma ? og_skip(comma + 1) : NULL;
  if (rest && strncmp(rest, "cpu ", 4))
    og_die(op->autocast.location, "autocast of %s is `POLICY, cpu POLICY`", op->name);
  int cuda = policy_named(op, comma ? og_copy(text, (size_t)(comma - text)) : text);
  return (og_policy){cuda, rest ? policy_named(op, og_skip(rest + 4)) : cuda};
}

const char *og_autocast_words(const og_op *op) {
  og_policy p = policy_of(op);
  const char *cuda = policies[p.cuda].words, *cpu = policies[p.cpu].words;
  if (p.cuda == p.cpu) return cuda ? og_format("autocast %s", cuda) : NULL;
  if (cuda && cpu) return og_format("autocast %s, and %s on the CPU", cuda, cpu);
  return og_format("autocast %s on %s", cuda ? cuda : cpu, cuda ? "cuda" : "the CPU");
}

// Rules for the dtype of an out= tensor. Pointwise results are cast; other results are written
// directly.
static const struct {
  const char *name, *rule, *words;
} out_rules[] = {{"cast", "PX__OUT_CAST", ""},
                 {"same", "PX__OUT_SAME", " of the result's dtype"},
                 {"any", "PX__OUT_ANY", " of any dtype"},
                 {"computes", "PX__OUT_SETS_DTYPE", " and computes in its dtype"},
                 {"same_if_numbers", "PX__OUT_SAME_IF_UNARY", ""}};
static int out_rule(const og_op *op) {
  bool casts = og_is(op, "pointwise") || og_is(op, "reduce");
  const char *name = op->out.text ? op->out.text : casts ? "cast" : "same";
  for (size_t i = 0; i < sizeof out_rules / sizeof *out_rules; i++)
    if (!strcmp(name, out_rules[i].name)) return (int)i;
  og_die(op->out.location, "unknown rule '%s' of %s for out=", name, op->name);
}
const char *og_out_words(const og_op *op) { return out_rules[out_rule(op)].words; }

// Returns the mask of parameters in a field.
static unsigned mask_of(const og_op *op, og_field field) {
  unsigned mask = 0;
  char *names = field.text ? strdup(field.text) : NULL;
  for (char *one = names ? strtok(names, " ") : NULL; one; one = strtok(NULL, " ")) {
    int i = og_param_find(op, one);
    if (i < 0) og_die(field.location, "%s has no parameter '%s'", op->name, one);
    mask |= 1u << i;
  }
  free(names);
  return mask;
}

// Writes the positions of the parameters of a reduction read by the driver.
static void write_fold_places(FILE *to, const og_op *op) {
  static const char *const names[] = {"dim", "keepdim", "dtype"};
  for (int i = 0; i < 3; i++) {
    int at = og_param_find(op, names[i]);
    if (at > 0 && og_is(op, "reduce")) fprintf(to, ".%s = %d, ", names[i], at);
  }
}

// Returns the number of parameters up to the last tensor.
static int tensor_params(const og_op *op) {
  int n = op->param_count;
  while (n && op->params[n - 1].type != OG_TENSOR && op->params[n - 1].type != OG_TENSORS) n--;
  return n;
}

// Writes the function called for dtypes without a kernel.
static void write_composed(FILE *to, const og_op *op) {
  bool both = op->complex_node && op->of_unsigned.text;  // the formulas are equal
  if (op->complex_node)
    fprintf(to, ".complex = complex_%s, %s", op->name, both ? ".composed = PX__OF_BOTH, " : "");
  if (op->unsigned_node)
    fprintf(to, ".complex = unsigned_%s, .composed = PX__OF_UNSIGNED, ", op->name);
  if (og_has(op, OG_W_ordered))
    fprintf(to, ".complex = px__call_ordered, .composed = PX__OF_UINT64, ");
}

void og_write_impl(FILE *to, const og_op *op) {
  const char *run = op->body_node            ? og_format("body_%s", op->name)
                    : op->result_field_count ? og_format("make_%s", op->name)
                    : og_run(op)             ? og_run_function(op)
                                             : "NULL";
  const char *kernel = og_has_kernel(op) ? op->name : og_hand_kernel(op);
  fprintf(to,
          "static px_kernel found_%s[PX_DEVICE_TYPES];\n"
          "static const px__op_impl impl_%s = {.run = %s, .found = found_%s, .kernel = %s%s%s, "
          ".dtypes = 0x%x, .out = %s, ",
          op->name, op->name, run, op->name, kernel ? "\"" : "", kernel ? kernel : "NULL",
          kernel ? "\"" : "", og_dtype_mask(op), out_rules[out_rule(op)].rule);
  if (op->work.text) fprintf(to, ".work = work_%s, ", op->name);
  og_write_flops(to, op);
  write_composed(to, op);
  if (og_has_texts(op)) fprintf(to, ".texts = &texts_%s, ", op->name);
  og_policy policy = policy_of(op);
  if (og_has_checks(op))
    fprintf(to, ".check = check_%s, ", op->name);
  else if (policy.cuda || policy.cpu)
    fprintf(to, ".check = px__unchecked, ");
  bool chained = og_is(op, "pointwise") || og_is(op, "reduce");
  fprintf(to, ".chained = %d, ", chained && og_has_generated_kernel(op));
  fprintf(to, ".nonempty = %d, .any_scalars = %d, .idempotent = %d, .overlap = %d, .faults = %d, ",
          og_is_nonempty(op), op->mask_params && og_has(op, OG_W_promote),
          og_has(op, OG_W_idempotent),
          og_has(op, OG_W_noalias_others) ? 2 : og_has(op, OG_W_noalias), og_faults(op));
  bool row_major = op->order.text && !strcmp(op->order.text, "rows");
  fprintf(to, ".tensors = %d, .rows = %d, .format = 0x%x, .order = 0x%x, .row_major = %d, ",
          tensor_params(op), og_has(op, OG_W_pixel_rows), mask_of(op, op->format),
          row_major ? 0 : mask_of(op, op->order), row_major);
  fprintf(to, ".fits = 0x%x, .fits_wide = 0x%x, ", mask_of(op, op->fits),
          mask_of(op, op->fits_wide));
  int transposed = op->transposed.text ? og_param_find(op, op->transposed.text) : 0;
  if (transposed < 0)
    og_die(op->transposed.location, "%s has no parameter '%s'", op->name, op->transposed.text);
  write_fold_places(to, op);
  og_write_vmap(to, op);
  if (op->resolve.text && !strcmp(op->resolve.text, "never")) {
    fprintf(to, ".takes_conj_neg = true, ");
  } else if (op->resolve.text) {
    og_use("px_status px__conj_neg_%s(const px_value *args, void **results, bool *done);",
           op->resolve.text);
    fprintf(to, ".conj_neg = px__conj_neg_%s, ", op->resolve.text);
  }
  fprintf(to, ".promotion = %s, .transposed = %d, .masks = 0x%x, .result_dtypes = {",
          promotion_of(op), transposed, op->mask_params);
  for (int r = 0; r < OG_OP_RESULTS; r++)
    fprintf(to, "%s%s", r ? ", " : "",
            r < op->result_count ? result_dtype(op, r) : "PX_DTYPE_NONE");
  fprintf(to, "}};\n");
  if (og_has_backward(op)) {
    fprintf(to, "static const uint32_t save_for_%s[] = {", op->name);
    for (int i = 0; i < op->param_count; i++) fprintf(to, "%s0x%x", i ? ", " : "", op->save_for[i]);
    fprintf(to, "};\n");
  }
  if (op->result_count == 1 && !op->result_names[0]) return;
  fprintf(to, "static const char *const results_%s[] = {", op->name);
  for (int r = 0; r < op->result_count; r++)
    fprintf(to, "%s\"%s\"", r ? ", " : "", op->result_names[r]);
  fprintf(to, "};\n");
}

static const char *grad_name(const og_op *op) {
  if (op->gradname.text) return op->gradname.text;
  if (op->grad_all.text && !strcmp(op->grad_all.text, "unimplemented")) return "NotImplemented";
  char *name = malloc(strlen(op->name) + 16), *to = name;
  bool up = true;
  for (const char *at = op->name; *at; at++) {
    if (*at == '_') {
      up = true;
      continue;
    }
    *to++ = up ? (char)toupper((unsigned char)*at) : *at;
    up = false;
  }
  strcpy(to, "Backward0");
  return name;
}

static void write_flags(FILE *to, const og_op *op) {
  bool only = og_has(op, OG_W_onlyinplace), hidden = og_has(op, OG_W_hidden),
       nn = og_has(op, OG_W_nn);
  bool method =
      op->param_count && !strcmp(op->params[0].name, "self") && op->params[0].type == OG_TENSOR;
  fprintf(to, "0");
  if (method && !hidden && !nn && !og_has(op, OG_W_nomethod)) fprintf(to, " | PX_OP_IS_METHOD");
  if (!hidden && !only && !nn && !og_has(op, OG_W_nofunction)) fprintf(to, " | PX_OP_IS_FUNCTION");
  if (og_has_inplace(op)) fprintf(to, " | PX_OP_HAS_INPLACE");
  if (og_has(op, OG_W_out)) fprintf(to, " | PX_OP_HAS_OUT");
  if (op->result_list) fprintf(to, " | PX_OP_RETURNS_LIST");
  if (og_has(op, OG_W_factory)) fprintf(to, " | PX_OP_IS_FACTORY");
  if (nn) fprintf(to, " | PX_OP_IS_NN");
  if (og_has(op, OG_W_random)) fprintf(to, " | PX_OP_RANDOM");
  if (og_has(op, OG_W_numbers)) fprintf(to, " | PX_OP_TAKES_NUMBERS");
  if (og_has(op, OG_W_no_numbers)) fprintf(to, " | PX_OP_TENSORS_ONLY");
  if (og_has(op, OG_W_one_number)) fprintf(to, " | PX_OP_ONE_NUMBER");
  if (og_has(op, OG_W_unconjugated)) fprintf(to, " | PX_OP_UNCONJUGATED");
  if (only) fprintf(to, " | PX_OP_ONLY_INPLACE");
  if (strstr(op->name, "_of_complex")) fprintf(to, " | PX_OP_OF_COMPLEX");
  if (hidden) fprintf(to, " | PX_OP_HIDDEN");
  if (policy_of(op).cuda || policy_of(op).cpu) fprintf(to, " | PX_OP_AUTOCASTS");
}

static const char *upper_kind(const og_op *op) {
  char *upper = strdup(op->kind);
  for (char *at = upper; *at; at++) *at = (char)toupper((unsigned char)*at);
  return upper;
}

static const char *gradient_of(const og_op *op) {
  if (op->grad_all.text) {
    og_use("px_status px__grad_%s(px_op_gradient *b);", op->grad_all.text);
    return og_format("px__grad_%s", op->grad_all.text);
  }
  return og_has_backward(op) ? og_format("backward_%s", op->name) : "NULL";
}

void og_write_descriptor(FILE *to, const og_op *op) {
  bool named = op->result_count > 1 || op->result_names[0];
  fprintf(to, "const px_op px__op_%s = {\n    .name = \"%s\",\n    .schema = %s,\n    .doc = %s,\n",
          op->name, op->name, og_quote(op->schema), og_quote(op->doc.text));
  og_remarks r = og_remarks_of(op, false);
  const char *lines[][2] = {{"Shapes", r.shape}, {"Dtypes", r.dtypes}, {"Errors", r.errors}};
  fprintf(to, "    .remarks = \"\"");
  for (int i = 0; i < 3; i++)
    if (lines[i][1])
      fprintf(to, " %s \"\\n\"", og_quote(og_format("%s: %s.", lines[i][0], lines[i][1])));
  if (op->example.text)
    fprintf(to, " %s", og_quote(og_format("\nExample:%s\n", og_example_lines(&op->example))));
  fprintf(to, ",\n");
  fprintf(to, "    .grad_name = \"%s\", .result_names = %s%s, .params = %s%s,\n", grad_name(op),
          named ? "results_" : "NULL", named ? op->name : "", op->param_count ? "params_" : "NULL",
          op->param_count ? op->name : "");
  fprintf(to, "    .kind = PX_OP_%s, .param_count = %d, .result_count = %d,\n", upper_kind(op),
          op->param_count, op->result_count);
  fprintf(to, "    .flags = ");
  write_flags(to, op);
  fprintf(to,
          ",\n    .grad_mask = 0x%x, .save_mask = 0x%x, .shape_mask = 0x%x, .save_result_mask "
          "= 0x%x,\n",
          op->grad_mask, op->save_mask, op->shape_mask, op->save_result_mask);
  fprintf(to, "    .impl = &impl_%s, .save_for = %s%s, .python_name = \"%s\",\n", op->name,
          og_has_backward(op) ? "save_for_" : "NULL", og_has_backward(op) ? op->name : "",
          op->pyname.text ? op->pyname.text : op->name);
  og_policy policy = policy_of(op);
  fprintf(to, "    .autocast = {[PX_CPU] = %s, [PX_CUDA] = %s},\n", policies[policy.cpu].value,
          policies[policy.cuda].value);
  fprintf(to, "    .aliases = %s, .gradient = %s};\n",
          op->alias.text ? og_quote(op->alias.text) : "NULL", gradient_of(op));
}
