// SPDX-License-Identifier: Apache-2.0
// Writes the kernels of optimiser updates for the CPU and CUDA: one loop over elements, one pass
// over memory. Formulas come from the entry; their functions are those of pointwise kernels.
#include "opgen/optim.h"

typedef void (*writer)(FILE *to, const optim *o);

typedef og_stamp stamp;  // element type of formulas

// Lists the modified tensors: the parameter, then the tensor states.
static int changed(const optim *o, const char **names) {
  int count = 0;
  names[count++] = "param";
  for (int i = 0; i < o->state_count; i++)
    if (!o->states[i].scalar) names[count++] = o->states[i].name;
  return count;
}

static const og_op *op_of(const optim *o) { return og_find(o->op); }

// Writes the element-wise lines; their names are declared before.
static void write_body(FILE *to, const optim *o, const stamp *s) {
  const char *names[OPTIM_STATES + OPTIM_LINES + 3];
  int count = changed(o, names);
  names[count++] = "grad";
  for (int i = 0; i < o->line_count; i++)
    if (o->lines[i].sort == OPTIM_LET) names[count++] = o->lines[i].name;
  names[count] = NULL;
  if (optim_has_option(o, "maximize")) fprintf(to, "    grad = turn_ * grad;\n");
  for (int i = 0; i < o->line_count; i++) {
    const optim_line *line = &o->lines[i];
    if (line->sort != OPTIM_LET && line->sort != OPTIM_SET) continue;
    og_expr e = og_rewrite(op_of(o), og_arith(line->tree, OG_ELEMENT), line->location, s->math,
                           s->c, names, false);
    fprintf(to, "    %s%s%s = %s;\n", line->sort == OPTIM_LET ? "const " : "",
            line->sort == OPTIM_LET ? og_format("%s ", s->c) : "", line->name, e.text);
  }
}

static void write_numbers(FILE *to, const optim *o, const stamp *s, const char *from) {
  for (int i = 0; i < o->number_count; i++)
    fprintf(to, "  const %s %s = (%s)%s%d%c;\n", s->c, o->numbers[i], s->c, from, i,
            strchr(from, '[') ? ']' : ')');
  // A factor, not a branch: the compiler may duplicate the loop for each branch.
  if (optim_has_option(o, "maximize"))
    fprintf(to, "  const %s turn_ = maximize != 0 ? -1 : 1;\n", s->c);
}

static bool is_optional(const optim *o, const char *name) {
  for (int i = 0; i < o->state_count; i++)
    if (!strcmp(o->states[i].name, name)) return o->states[i].needed != NULL;
  return false;
}

// ---- the CPU

// Writes the loop. Each combination of optional states has its own function, so the compiler sees a
// plain loop.
static void write_cpu_loop(FILE *to, const optim *o, const stamp *s, const char **names,
                           int count) {
  fprintf(to,
          "static inline __attribute__((always_inline)) void %s_%s_of(\n"
          "    const px__update *u, int64_t begin, int64_t end, unsigned has) {\n",
          o->op, s->suffix);
  write_numbers(to, o, s, "u->numbers[");
  fprintf(to, "  const %s *restrict at_grad = u->at[0];\n", s->c);
  for (int i = 0; i < count; i++)
    fprintf(to, "  %s *restrict at_%s = u->at[%d];\n", s->c, names[i], i + 1);
  fprintf(to, "  for (int64_t i = begin; i < end; i++) {\n    %s grad = at_grad[i];\n", s->c);
  for (int i = 0; i < count; i++) {
    const char *load = og_format("at_%s[i]", names[i]);
    if (is_optional(o, names[i])) load = og_format("has >> %d & 1 ? %s : 0", i, load);
    fprintf(to, "    %s %s = %s;\n", s->c, names[i], load);
  }
  write_body(to, o, s);
  for (int i = 0; i < count; i++) {
    if (is_optional(o, names[i])) fprintf(to, "    if (has >> %d & 1)\n  ", i);
    fprintf(to, "    at_%s[i] = %s;\n", names[i], names[i]);
  }
  fprintf(to, "  }\n}\n");
}

static void write_cpu_rows(FILE *to, const optim *o, const stamp *s) {
  const char *names[OPTIM_STATES + 1];
  int count = changed(o, names);
  unsigned optional = 0;
  for (int i = 0; i < count; i++)
    if (is_optional(o, names[i])) optional |= 1u << i;
  write_cpu_loop(to, o, s, names, count);
  fprintf(to, "static void %s_%s(const px__update *u, int64_t begin, int64_t end) {\n", o->op,
          s->suffix);
  if (optional)
    fprintf(to,
            "  unsigned has = 0;\n"
            "  for (int i = 0; i < %d; i++) has |= (unsigned)(u->at[i + 1] != NULL) << i;\n"
            "  switch (has & 0x%xu) {\n",
            count, optional);
  for (unsigned some = 0; optional && some < 1u << count; some++)
    if (!(some & ~optional))
      fprintf(to, "    case 0x%xu:\n      %s_%s_of(u, begin, end, 0x%xu);\n      break;\n", some,
              o->op, s->suffix, some);
  fprintf(to, optional ? "  }\n}\n" : "  %s_%s_of(u, begin, end, 0);\n}\n", o->op, s->suffix);
}

// Writes the tensors of a kernel by the names of its operands; `inout(NAME)` opens a tensor.
static void write_tensors(FILE *to, const optim *o, const char *opener, const char *dtype) {
  const char *names[OPTIM_STATES + 1];
  int count = changed(o, names);
  fprintf(to, "      .at = {");
  for (int i = 0; i < count; i++)
    fprintf(to, "%s%s_inout(&d, args->new_%s, %s)", i ? ",\n             " : "", opener, names[i],
            dtype);
  fprintf(to, "},\n      .grad = %s_in(&d, args->grad, %s),\n", opener, dtype);
}

// Writes the numbers: by value, or as a row on the device together with the scalars.
static void write_given(FILE *to, const optim *o, const char *opener, bool on_device) {
  for (int i = 0; i < optim_scalars(o) && on_device; i++)
    fprintf(to, "      .scalars[%d] = %s_inout(&d, args->new_%s, PX_FLOAT32),\n", i, opener,
            o->states[i].name);
  if (on_device)
    fprintf(to, "      .line = %s_in(&d, args->numbers, PX_FLOAT64)", opener);
  else
    fprintf(to, "      .numbers = {");
  for (int i = 0; i < o->number_count && !on_device; i++)
    fprintf(to, "%sargs->%s", i ? ", " : "", o->numbers[i]);
  fprintf(to, on_device ? "};\n  if (u.line) u.line += args->line * PX_NUMBERS_ROW;\n" : "}};\n");
}

// Writes the options in order, and the index of the learning rate.
static void write_options(FILE *to, const optim *o, const char *type) {
  int rate = -1;
  for (int i = 0; i < o->option_count; i++)
    if (!strcmp(o->options[i]->name, "lr")) rate = i;
  fprintf(to, "  %s p = {.each = %d, .rate_at = %d, .first = args->first, .options = {", type,
          optim_scalars(o), rate);
  for (int i = 0; i < o->option_count; i++)
    fprintf(to, "%sargs->%s", i ? ", " : "", o->options[i]->name);
  fprintf(to, "}};\n");
}

static void write_cpu_kernel(FILE *to, const optim *o, const char *by) {
  const char *names[OPTIM_STATES + 1];
  int count = changed(o, names);
  fprintf(to, "PX_KERNEL(%s%s) {\n  px__dense d = {.launch = l};\n  px__update u = {\n", o->op, by);
  write_given(to, o, "px__dense", *by != 0);
  fprintf(to,
          "  static const px__update_rows rows[] = {%s_f32, %s_f64};\n"
          "  const px_operand *const tensors[] = {args->grad",
          o->op, o->op);
  for (int i = 0; i < count; i++) fprintf(to, ", args->new_%s", names[i]);
  fprintf(to, "};\n  return px__cpu_update(&d, &u, rows, tensors, %d);\n}\n\n", count + 1);
}

void optim_write_cpu(FILE *to, const optim *o) {
  write_cpu_rows(to, o, og_stamp_of("f32"));
  write_cpu_rows(to, o, og_stamp_of("f64"));
  write_cpu_kernel(to, o, "");
  write_cpu_kernel(to, o, "_by");
  fprintf(to, "static void %s_of(const double *o, double *s, double first, double *n) {\n",
          o->numbers_op);
  optim_write_numbers(to, o, false);
  fprintf(to, "}\nPX_KERNEL(%s) {\n", o->numbers_op);
  write_options(to, o, "px__step_inputs");
  fprintf(to,
          "  return px__cpu_numbers(l, &p, %s_of, args->out, args->rate, args->found_inf,\n"
          "                         args->list);\n}\n\n",
          o->numbers_op);
}

// ---- CUDA

static void write_cuda_function(FILE *to, const optim *o, const stamp *s) {
  const char *names[OPTIM_STATES + 1];
  int count = changed(o, names);
  fprintf(to,
          "extern \"C\" __global__ void __launch_bounds__(1024)\n"
          "    %s_%s(const __grid_constant__ k_updates p) {\n  k_wait();\n",
          o->op, s->suffix);
  fprintf(
      to,
      "  const k_update_part part = k_update_part_of(p);\n  if (k_update_begin(part)) return;\n");
  write_numbers(to, o, s, "k_update_number(p, part, ");
  fprintf(to, "  k_update_each<%s, %d>(part, [&](%s grad, %s *e) {\n", s->storage, count, s->c,
          s->c);
  for (int i = 0; i < count; i++) fprintf(to, "    %s %s = e[%d];\n", s->c, names[i], i);
  write_body(to, o, s);
  for (int i = 0; i < count; i++) fprintf(to, "    e[%d] = %s;\n", i, names[i]);
  fprintf(to, "  });\n}\n");
}

// Numbers are computed in double precision, as on the host.
static void write_cuda_numbers(FILE *to, const optim *o) {
  fprintf(to,
          "extern \"C\" __global__ void %s(const __grid_constant__ k_numbers p) {\n  k_wait();\n"
          "  k_numbers_each(p, [](const double *o, double *s, double first, double *n) {\n",
          o->numbers_op);
  optim_write_numbers(to, o, false);
  fprintf(to, "  });\n}\n");
}

void optim_write_cuda(FILE *to, const optim *o) {
  int count;
  const stamp *stamps = og_stamps(&count);
  for (int i = 0; i < count; i++)
    if (stamps[i].kind == 'f') write_cuda_function(to, o, &stamps[i]);
  write_cuda_numbers(to, o);
  fprintf(to, "\n");
}

static void write_cuda_kernel(FILE *to, const optim *o, const char *by) {
  fprintf(to,
          "PX_CUDA_KERNEL(%s%s) {\n  px__cuda_dense d = {.launch = l, .last = "
          "px__cuda_wants_last(args->new_param, NULL, 0)};\n  px__cuda_step u = {\n",
          o->op, by);
  write_tensors(to, o, "px__cuda_dense", "args->new_param->dtype");
  write_given(to, o, "px__cuda_dense", *by != 0);
  fprintf(to, "  return px__cuda_update(&d, &u, \"%s\", args->new_param);\n}\n\n", o->op);
}

void optim_write_cuda_row(FILE *to, const optim *o) {
  write_cuda_kernel(to, o, "");
  write_cuda_kernel(to, o, "_by");
  fprintf(to, "PX_CUDA_KERNEL(%s) {\n", o->numbers_op);
  write_options(to, o, "k_numbers");
  fprintf(to,
          "  return px__cuda_numbers(l, &p, \"%s\", args->out, args->rate, args->found_inf,\n"
          "                          args->list);\n}\n\n",
          o->numbers_op);
}

// ---- one entry, for reading

static const struct {
  const char *title;
  writer write;
} parts[] = {{"phlox/optimizers.h", optim_write_constructor},
             {"optim_kinds.c", optim_write_kind},
             {"kernels_cpu_optim.c", optim_write_cpu},
             {"kernels_cuda_optim.cu", optim_write_cuda},
             {"_kinds.py", optim_write_python},
             {"_formulas.py", optim_write_formula},
             {"optim.md", optim_write_page}};
enum { PARTS = sizeof parts / sizeof *parts };

bool og_show_optim(const char *name) {
  int k = 0;
  while (optim_at(k) && strcmp(optim_at(k)->entry->name, name)) k++;
  for (int i = 0; optim_at(k) && i < PARTS; i++) {
    printf("---- %s\n", parts[i].title);
    parts[i].write(stdout, optim_at(k));
  }
  return optim_at(k) != NULL;
}

void og_optim_dry_run(FILE *sink) {
  for (int k = 0; optim_at(k); k++)
    for (int i = 0; i < PARTS; i++) parts[i].write(sink, optim_at(k));
}

// ---- files

static FILE *create(const char *folder, const char *name, const char *includes) {
  FILE *to = og_create(folder, name);
  fprintf(to,
          "// SPDX-License-Identifier: Apache-2.0\n"
          "// Generated by tools/opgen from optim/*.optim. Do not edit.\n%s\n",
          includes);
  return to;
}

static void each(FILE *to, writer write) {
  for (int k = 0; optim_at(k); k++) write(to, optim_at(k));
  og_finish(to);
}

void og_optim_write(const char *folder) {
  each(create(folder, "kernels_cpu_optim.c",
              "#include \"cpu/vector/math.h\"\n#include \"cpu/loop/optim.h\"\n"
              "#include \"kernel_args/optimizers.h\"\n"),
       optim_write_cpu);
  each(create(folder, "kernels_cuda_optim.cu", "#include \"cuda/kernels/update.cuh\"\n"),
       optim_write_cuda);
  each(create(folder, "kernels_cuda_optim_rows.c",
              "#include \"cuda/host/ops/kernel.h\"\n#include \"kernel_args/optimizers.h\"\n"),
       optim_write_cuda_row);
  FILE *to = create(folder, "optim_kinds.c", "");
  og_optim_write_kinds(to);
  og_finish(to);
  to = create(folder, "phlox/optimizers.h",
              "// Constructors of optimisers for `count` parameters, which are retained. Options "
              "are named and "
              "have\n// defaults; *out is a new reference. `by_name` is that of phlox/layers.h.");
  og_optim_write_header(to);
  og_finish(to);
}
