// SPDX-License-Identifier: Apache-2.0
// Writes the device kernels of pointwise ops and folds, and the host's table of them.
//
// A pointwise op becomes one function per dtype, e.g. `add_f32`; a fold three: rows, columns and
// the combination of partial results. Functions are distributed over several modules, which compile
// in parallel. The expressions are those of the CPU kernels; their functions are in
// backends/cuda/kernels/math.cuh.
#include "opgen/opgen.h"

enum { MODULES = 8 };  // Makefile: CUDAGEN
static bool returns_bool(const og_op *op) {
  return og_has(op, OG_W_compare) || og_results_are(op, "bool");
}
// True if the op maps complex numbers to real ones, e.g. abs or angle.
static bool returns_parts(const og_op *op, const og_stamp *s) {
  return s->kind == 'c' && og_results_are(op, "real");
}
static bool is_pointwise(const og_op *op) { return og_is(op, "pointwise") && op->expr.text; }
static bool is_complex(const og_stamp *s) { return s->kind == 'c'; }
static bool is_fold(const og_op *op) { return og_has_kernel(op) && !is_pointwise(op); }

// ---- pointwise

// Returns the index of a parameter among the op's numbers.
static int number_at(const og_op *op, int param) {
  int n = 0;
  for (int i = 0; i < param; i++) n += !og_is_tensor(&op->params[i]);
  if (n >= 8) og_die(op->location, "%s has too many numbers for a device kernel", op->name);
  return n;
}

static void write_locals(FILE *to, const og_op *op, const og_stamp *s, const og_expr *e) {
  for (int i = 0; i < op->param_count; i++) {
    const og_param *p = &op->params[i];
    if (!(e->used >> i & 1u)) continue;
    if (p->type != OG_TENSOR)
      fprintf(to, "  const %s %s = k_number_as<%s>(p.numbers[%d]);\n  (void)%s;\n", s->number,
              p->name, s->number, number_at(op, i), p->name);
    if (p->optional)
      fprintf(to, "  const bool has_%s = p.has >> %d & 1u;\n  (void)has_%s;\n", p->name, i,
              p->name);
  }
  if (e->extremes)
    fprintf(to,
            "  const %s highest = k_highest_%s(), lowest = k_lowest_%s();\n  (void)highest, "
            "(void)lowest;\n",
            s->c, s->suffix, s->suffix);
}

static void write_each(FILE *to, const og_op *op, const og_stamp *s, const og_expr *e) {
  const char *arguments = "", *inputs = "";
  int tensor = op->result_count;
  for (int i = 0; i < op->param_count; i++) {
    if (op->params[i].type != OG_TENSOR) continue;
    if (e->used >> i & 1u) {
      bool mask = op->mask_params >> i & 1u;
      arguments = og_format("%s%s%s %s", arguments, *arguments ? ", " : "", mask ? "bool" : s->c,
                            op->params[i].name);
      inputs = og_format("%s, %s<%s, %d, %d>(p)", inputs,
                         is_complex(s) && !mask ? "k_complex_in" : "k_in",
                         mask ? "k_bool" : s->storage, tensor, 16 / s->bytes);
    }
    tensor++;
  }
  bool bools = returns_bool(op), parts = returns_parts(op, s);
  const char *storage = bools ? "k_bool" : parts ? s->number : s->storage;
  const char *cast = bools   ? "(bool)"
                     : parts ? og_format("k_real_%s", s->math)
                             : og_format("(%s)", s->c);
  fprintf(to, "  k_each<%s, %d>(p, [&](%s) { return %s(%s); }%s);\n", storage, 16 / s->bytes,
          arguments, cast, e->text, inputs);
}

static void write_function(FILE *to, const og_op *op, const og_stamp *s) {
  og_expr e = og_rewrite(op, op->expr.text, op->expr.location, s->math, s->number, NULL, false);
  fprintf(to,
          "extern \"C\" __global__ void __launch_bounds__(K_LOOP)\n    %s_%s(const "
          "__grid_constant__ k_loop p) {\n  k_wait();\n",
          op->name, s->suffix);
  if (strstr(e.text, "(l, ")) fprintf(to, "  const k_where *l = &p.where;\n");
  write_locals(to, op, s, &e);
  if (e.has_test) {
    og_expr yes = og_rewrite(op, op->expr.text, op->expr.location, s->math, s->number, NULL, true);
    fprintf(to, "  if (p.truth) {\n  ");
    write_each(to, op, s, &yes);
    fprintf(to, "    return;\n  }\n");
  }
  write_each(to, op, s, &e);
  fprintf(to, "}\n");
}

// Parameters that the expression mentions, whatever is() returns.
static unsigned used_params(const og_op *op) {
  og_expr no = og_rewrite(op, op->expr.text, op->expr.location, "f32", "float", NULL, false);
  og_expr yes = og_rewrite(op, op->expr.text, op->expr.location, "f32", "float", NULL, true);
  return no.used | yes.used;
}

// The arguments of lambda_of: an operand or a number, and the parameter of a `has_NAME` after it.
static const char *arguments_of(const og_op *op) {
  const char *list = "";
  unsigned used = used_params(op);
  int tensor = op->result_count;
  for (int i = 0; i < op->param_count; i++) {
    const og_param *p = &op->params[i];
    bool is_tensor = p->type == OG_TENSOR;
    if (used >> i & 1u)
      list = og_format("%s{%d, %d, %d}, ", list, is_tensor ? tensor : -1,
                       is_tensor ? -1 : number_at(op, i), p->optional ? i : -1);
    tensor += is_tensor;
  }
  return list;
}

// Returns the expression as a C++ lambda of the used parameters, each optional one followed by
// `has_NAME`, and of the result of is(), if any.
static const char *lambda_of(const og_op *op, const og_stamp *s) {
  og_expr no = og_rewrite(op, op->expr.text, op->expr.location, s->math, s->number, NULL, false);
  og_expr yes = og_rewrite(op, op->expr.text, op->expr.location, s->math, s->number, NULL, true);
  const char *list = "", *locals = "";
  unsigned used = used_params(op);
  for (int i = 0; i < op->param_count; i++) {
    const og_param *p = &op->params[i];
    if (!(used >> i & 1u)) continue;
    bool mask = op->mask_params >> i & 1u;
    const char *type = p->type != OG_TENSOR ? s->number : mask ? "bool" : s->c;
    list = og_format("%s%s%s %s", list, *list ? ", " : "", type, p->name);
    if (p->optional) list = og_format("%s, bool has_%s", list, p->name);
  }
  if (no.has_test) list = og_format("%s%sbool truth", list, *list ? ", " : "");
  if (no.extremes)
    locals = og_format("const %s highest = k_highest_%s(), lowest = k_lowest_%s(); ", s->c,
                       s->suffix, s->suffix);
  const char *cast = returns_bool(op) ? "bool" : s->c;
  return no.has_test ? og_format("[&](%s) { %sreturn truth ? (%s)(%s) : (%s)(%s); }", list, locals,
                                 cast, yes.text, cast, no.text)
                     : og_format("[&](%s) { %sreturn (%s)(%s); }", list, locals, cast, no.text);
}

static void write_pointwise_row(FILE *to, const og_op *op, int module) {
  og_expr e = og_rewrite(op, op->expr.text, op->expr.location, "f32", "float", NULL, false);
  unsigned bools = returns_bool(op) ? 1 : 0;
  int tensor = op->result_count, numbers = 0, count;
  const char *list = "";
  for (int i = 0; i < op->param_count; i++) {
    if (op->params[i].type == OG_TENSOR) {
      bools |= (op->mask_params >> i & 1u) << tensor++;
    } else {
      // Texts are read only by is().
      list = og_format("%s%d, ", list, op->params[i].type == OG_TEXT ? -1 : i);
      numbers++;
    }
  }
  fprintf(to,
          "static px_status run_%s(const px_launch *l) {\n"
          "  static const px__cuda_pointwise op = {\n"
          "      .module = \"kernels_cuda_%d\", .operands = %d, .bools = 0x%x,\n"
          "      .parts = %d, .number_count = %d, .numbers = {%s},\n",
          op->name, module, tensor, bools, og_results_are(op, "real"), numbers, *list ? list : "0");
  if (e.has_test)
    fprintf(to, "      .test_param = %d, .test_text = %s,\n", e.test_param, og_quote(e.test_text));
  fprintf(to, "      .functions = {\n");
  const og_stamp *stamps = og_stamps(&count);
  for (int i = 0; i < count; i++)
    if (og_in_set(op, &stamps[i]))
      fprintf(to, "          [%s] = \"%s_%s\",\n", stamps[i].dtype, op->name, stamps[i].suffix);
  fprintf(to, "      },\n      .argument_count = %d, .arguments = {%s}, .lambdas = {\n",
          __builtin_popcount(used_params(op)), arguments_of(op));
  for (int i = 0; i < count; i++)
    if (og_in_set(op, &stamps[i]) && !is_complex(&stamps[i]))
      fprintf(to, "          [%s] = %s,\n", stamps[i].dtype, og_quote(lambda_of(op, &stamps[i])));
  fprintf(to, "      }};\n  return px__cuda_pointwise_run(l, &op);\n}\n");
  fprintf(to, "PX_CUDA_ROW(%s, \"%s\", run_%s);\n\n", op->name, op->name, op->name);
}

// ---- folds: accumulated in the element type, partial results in a wider type

typedef struct fold_stamp {
  const char *suffix, *c, *wide, *wide_c;
} fold_stamp;
static const fold_stamp fold_stamps[] = {{"i64", "int64_t", "i64", "int64_t"},
                                         {"f32", "float", "f64", "double"},
                                         {"f64", "double", "f64", "double"},
                                         {"c64", "k_complex_c64", "c128", "k_complex_c128"},
                                         {"c128", "k_complex_c128", "c128", "k_complex_c128"}};
enum { FOLDS = sizeof fold_stamps / sizeof *fold_stamps };

static const char *part_of(const og_op *op, bool wide, const fold_stamp *s, const char *name,
                           const char *arguments, const char *text) {
  static const char *const names[] = {"a", "b", "n", NULL};
  const char *c = wide ? s->wide_c : s->c, *suffix = wide ? s->wide : s->suffix;
  const char *number = og_stamp_of(suffix)->number;
  og_expr e = og_rewrite(op, text, op->fold.location, suffix, number, names, false);
  if (e.used) og_die(op->fold.location, "fold of %s mentions a parameter", op->name);
  return og_format("  static __device__ __forceinline__ %s %s(%s) { return (%s)(%s); }\n", c, name,
                   arguments, c, e.text);
}

// The members of a fold's struct.
static const char *members_of(const og_op *op, const fold_stamp *s) {
  og_fold f = og_fold_parse(op);
  return og_format(
      "  typedef %s T;\n  typedef %s D;\n%s%s%s%s%s", s->c, s->wide_c,
      part_of(op, true, s, "identity", "", f.identity),
      part_of(op, false, s, "map", og_format("%s b", s->c), f.map),
      part_of(op, false, s, "combine", og_format("%s a, %s b", s->c, s->c), f.combine),
      part_of(op, true, s, "merge", og_format("%s a, %s b", s->wide_c, s->wide_c), f.combine),
      part_of(op, true, s, "finish", og_format("%s a, int64_t n", s->wide_c), f.finish));
}

// Folds to bool or a count only test complex numbers for nonzero.
static bool fold_has(const og_op *op, int stamp_at) {
  const og_stamp *s = og_stamp_of(fold_stamps[stamp_at].suffix);
  bool truth = is_complex(s) && (returns_bool(op) || og_results_are(op, "int64"));
  return !truth && og_in_set(op, s);
}

static void write_fold(FILE *to, const og_op *op, bool complex) {
  fprintf(to, "// %s: %s\n", op->name, op->fold.text);
  for (int i = 0; i < FOLDS; i++) {
    const fold_stamp *s = &fold_stamps[i];
    if (!fold_has(op, i) || is_complex(og_stamp_of(s->suffix)) != complex) continue;
    fprintf(to, "struct fold_%s_%s : k_stored {\n%s};\nK_FOLD(%s, %s)\n", op->name, s->suffix,
            members_of(op, s), op->name, s->suffix);
  }
  fprintf(to, "\n");
}

static void write_fold_row(FILE *to, const og_op *op) {
  static const char *const ways[] = {"rows", "columns", "join"};
  fprintf(to,
          "static px_status run_%s(const px_launch *l) {\n"
          "  static const px__cuda_fold op = {\n      .functions = {\n",
          op->name);
  for (int i = 0; i < FOLDS; i++) {
    if (!fold_has(op, i)) continue;
    fprintf(to, "          [%d] = {", i);
    for (int k = 0; k < 3; k++)
      fprintf(to, "%s\"%s_%s_%s\"", k ? ", " : "", op->name, fold_stamps[i].suffix, ways[k]);
    fprintf(to, "},\n");
  }
  fprintf(to, "      },\n      .members = {\n");
  for (int i = 0; i < FOLDS; i++)
    if (fold_has(op, i) && !is_complex(og_stamp_of(fold_stamps[i].suffix)))
      fprintf(to, "          [%d] = %s,\n", i, og_quote(members_of(op, &fold_stamps[i])));
  fprintf(to, "      }};\n  return px__cuda_fold_run(l, &op);\n}\n");
  fprintf(to, "PX_CUDA_ROW(%s, \"%s\", run_%s);\n\n", op->name, op->name, op->name);
}

// ---- files

static FILE *create(const char *folder, const char *name, const char *include) {
  FILE *to = og_create(folder, name);
  fprintf(to,
          "// SPDX-License-Identifier: Apache-2.0\n"
          "// Generated by tools/opgen from ops/*.op. Do not edit.\n#include \"%s\"\n\n",
          include);
  return to;
}

// Device kernels of a pointwise op, the complex ones to `complex`.
static void write_functions(FILE *to, FILE *complex, const og_op *op) {
  int count;
  const og_stamp *stamps = og_stamps(&count);
  fprintf(to, "// %s: %s\n", op->name, op->expr.text);
  for (int k = 0; k < count; k++)
    if (og_in_set(op, &stamps[k]))
      write_function(is_complex(&stamps[k]) ? complex : to, op, &stamps[k]);
  fprintf(to, "\n");
}

void og_write_cuda_kernels(FILE *to, const og_op *op) {
  if (is_pointwise(op)) write_functions(to, to, op);
  if (!is_fold(op)) return;
  write_fold(to, op, false);
  write_fold(to, op, true);
}

void og_write_cuda(const char *folder) {
  FILE *modules[MODULES], *rows = create(folder, "kernels_cuda_rows.c", "cuda/host/ops/kernel.h");
  FILE *folds = create(folder, "kernels_cuda_fold.cu", "cuda/kernels/fold.cuh");
  FILE *complex = create(folder, "kernels_cuda_complex.cu", "cuda/kernels/complex.cuh");
  for (int m = 0; m < MODULES; m++)
    modules[m] = create(folder, og_format("kernels_cuda_%d.cu", m), "cuda/kernels/loop.cuh");
  for (int i = 0; i < og.count; i++) {
    const og_op *op = og.ops[i];
    if (is_pointwise(op)) {
      int m = og_shard(op, MODULES);
      write_functions(modules[m], complex, op);
      write_pointwise_row(rows, op, m);
    } else if (is_fold(op)) {
      write_fold(folds, op, false);
      write_fold(complex, op, true);
      write_fold_row(rows, op);
    }
  }
  for (int m = 0; m < MODULES; m++) og_finish(modules[m]);
  og_finish(folds);
  og_finish(complex);
  og_finish(rows);
}
