// SPDX-License-Identifier: Apache-2.0
// Writes the launch of a hand-written device kernel: `cuda MODULE by NUMBER with NAME = NUMBER`;
// `cuda MODULE complex by ...` adds complex dtypes.
//
// The kernel NAME_f32 (and so on) in backends/cuda/kernels/MODULE.cu takes a struct k_NAME and runs
// a grid-stride loop over NUMBER threads. Tensors are row-major and have the dtype of the first
// one, unless the entry states another. The struct, the list of dtypes and the host function are
// generated here, so host and device agree.
#include "opgen/opgen.h"

typedef struct launch {
  const og_op *op;
  const char *module;
  bool complex;
  og_node *by, *with;  // `with`: a call node with keywords, or NULL
} launch;

static launch parse(const og_op *op) {
  const og_field *f = &op->cuda;
  const char *by = strstr(f->text, " by "), *with = strstr(f->text, " with ");
  launch x = {.op = op};
  if (!by || (with && with < by))
    og_die(f->location, "expected `cuda MODULE by NUMBER with NAME = NUMBER, ...`");
  const char *complex = strstr(f->text, " complex by ");
  x.complex = complex != NULL;
  x.module = og_trimmed(f->text, complex ? complex : by);
  x.by = og_formula(with ? og_trimmed(by + 4, with) : by + 4, f->location);
  if (with) x.with = og_formula(og_format("with(%s)", with + 6), f->location);
  for (int i = 0; x.with && i < x.with->count; i++)
    if (!x.with->keys[i] || og_param_find(op, x.with->keys[i]) >= 0)
      og_die(f->location, "`with` of %s requires NAME = NUMBER with new names", op->name);
  if (!op->param_count || op->params[0].type != OG_TENSOR || !op->result_field_count)
    og_die(f->location, "cuda of %s requires a Tensor as first parameter and a result line",
           op->name);
  if (og_has_inplace(op) || og_has(op, OG_W_mutates))
    og_die(f->location, "cuda of %s: ops that mutate a tensor are not supported", op->name);
  return x;
}

// ---- numbers, of the view `args` and of the struct `p`

static const char *operand(const og_op *op, const og_node *n) {
  for (int r = 0; n->kind == OG_NAME && r < op->result_count; r++)
    if (!strcmp(n->text, og_result_name(op, r))) return og_format("args->%s", n->text);
  int i = n->kind == OG_NAME ? og_param_find(op, n->text) : -1;
  if (i < 0 || op->params[i].type != OG_TENSOR || op->params[i].optional)
    og_die(n->location, "'%s' in the cuda line of %s is not a tensor", n->text, op->name);
  return og_format("args->%s", n->text);
}

static og_value resolve(const og_node *n, void *context) {
  static const struct {
    const char *name, *c;
    int count;
  } functions[] = {{"numel", "px_operand_numel", 1},
                   {"ndim", "px__operand_ndim", 1},
                   {"size", "px__operand_size", 2},
                   {"before", "px__operand_before", 2},
                   {"after", "px__operand_after", 2}};
  const launch *x = context;
  og_value v = {.type = OG_INT};
  for (size_t k = 0; n->kind != OG_NAME && k < sizeof functions / sizeof *functions; k++) {
    if (strcmp(n->text, functions[k].name) || n->count != functions[k].count) continue;
    v.c = og_format("%s(%s", functions[k].c, operand(x->op, n->items[0]));
    if (n->count > 1) v.c = og_format("%s, %s", v.c, og_integer(n->items[1], resolve, context));
    v.c = og_format("%s)", v.c);
    return v;
  }
  for (int i = 0; n->kind == OG_NAME && x->with && i < x->with->count; i++)
    if (!strcmp(n->text, x->with->keys[i])) v.c = og_format("p.%s", n->text);
  int i = n->kind == OG_NAME ? og_param_find(x->op, n->text) : -1;
  const og_param *p = i < 0 ? NULL : &x->op->params[i];
  if (p && !p->optional && (p->type == OG_INT || p->type == OG_FLOAT || p->type == OG_BOOL))
    v = (og_value){.type = p->type, .c = og_format("args->%s", n->text)};
  if (!v.c) og_die(n->location, "unknown '%s' in the cuda line of %s", n->text, x->op->name);
  return v;
}

// True if there is a kernel for a dtype.
static bool has_kernel(const launch *x, const og_stamp *s) {
  return (s->kind != 'c' || x->complex) && og_in_set(x->op, s);
}

// ---- members of the struct

// The dtype of elements; NULL: that of the first tensor.
typedef struct elements {
  const char *dtype, *c;
} elements;

static elements result_elements(const og_op *op, int r) {
  for (int k = 0; k < op->result_field_count; k++) {
    og_result line = og_result_parse(op, &op->result_fields[k]);
    for (int i = 0; i < line.count; i++) {
      if (line.results[i] != r) continue;
      const og_node *d = line.dtypes->items[line.dtypes->count == 1 ? 0 : i];
      if (d->kind == OG_NAME && og_param_find(op, d->text) == 0) return (elements){NULL, "void"};
      if (d->kind == OG_NAME && !strcmp(d->text, "int64")) return (elements){"PX_INT64", "int64_t"};
      if (d->kind == OG_NAME && !strcmp(d->text, "bool")) return (elements){"PX_BOOL", "uint8_t"};
      og_die(d->location, "cuda of %s: the dtype of the result is not static", op->name);
    }
  }
  og_die(op->location, "a result of %s has no result line", op->name);
}

// True if a condition requires isint64(NAME).
static bool requires_int64(const og_node *n, const char *name) {
  if (n->kind == OG_CALL && !strcmp(n->text, "isint64") && !strcmp(n->items[0]->text, name))
    return true;
  for (int i = 0; i < n->count; i++)
    if (requires_int64(n->items[i], name)) return true;
  return false;
}
static elements param_elements(const og_op *op, const char *name) {
  for (int i = 0; i < op->check_count; i++)
    if (strstr(op->checks[i].text, "isint64(") &&
        requires_int64(og_check_parse(&op->checks[i]).test, name))
      return (elements){"PX_INT64", "const int64_t"};
  return (elements){NULL, "const void"};
}

static const char *number_type(const og_param *p) {
  if (p->optional) return NULL;
  return p->type == OG_INT     ? "int64_t"
         : p->type == OG_FLOAT ? "double"
         : p->type == OG_BOOL  ? "int32_t"
                               : NULL;
}

void og_write_launch_struct(FILE *to, const og_op *op) {
  if (!op->cuda.text) return;
  launch x = parse(op);
  fprintf(to, "typedef struct k_%s {\n  k_where where;\n", op->name);
  for (int r = 0; r < op->result_count; r++)
    fprintf(to, "  %s *%s;\n", result_elements(op, r).c, og_result_name(op, r));
  for (int i = 0; i < op->param_count; i++) {
    const og_param *p = &op->params[i];
    if (p->type == OG_TENSORS)
      og_die(op->cuda.location, "cuda of %s: Tensor[] parameters are not supported", op->name);
    if (p->type == OG_TENSOR) fprintf(to, "  %s *%s;\n", param_elements(op, p->name).c, p->name);
    if (number_type(p)) fprintf(to, "  %s %s;\n", number_type(p), p->name);
  }
  for (int i = 0; x.with && i < x.with->count; i++) fprintf(to, "  int64_t %s;\n", x.with->keys[i]);
  fprintf(to, "} k_%s;\n#define K_KERNELS_%s", op->name, op->name);
  int count;
  const og_stamp *stamps = og_stamps(&count);
  for (int k = 0; k < count; k++)
    if (has_kernel(&x, &stamps[k]))
      fprintf(to, " \\\n  K_KERNEL(%s, %s, %s, k_%s)", op->name, stamps[k].suffix,
              stamps[k].storage, op->name);
  fprintf(to, "\n\n");
}

// ---- host function

static void write_operand(FILE *to, const char *way, elements e, const char *name) {
  fprintf(to, "      .%s = px__cuda_dense_%s(&d, args->%s, %s),\n", name, way, name,
          e.dtype ? e.dtype : "dtype");
}

void og_write_launch(FILE *to, const og_op *op) {
  if (!op->cuda.text) return;
  launch x = parse(op);
  fprintf(to,
          "#include \"conditions.h\"\n#include \"kernel_args/%s.h\"\n"
          "PX_CUDA_KERNEL(%s) {\n  static const char *const functions[PX_DTYPE_COUNT] = {\n",
          og_stem(op->location.file), op->name);
  int count;
  const og_stamp *stamps = og_stamps(&count);
  for (int k = 0; k < count; k++)
    if (has_kernel(&x, &stamps[k]))
      fprintf(to, "      [%s] = \"%s_%s\",\n", stamps[k].dtype, op->name, stamps[k].suffix);
  fprintf(to,
          "  };\n  int dtype = args->%s->dtype;\n  px__cuda_dense d = {.launch = l};\n"
          "  k_%s p = {\n      .where = px__cuda_where(l),\n",
          op->params[0].name, op->name);
  for (int r = 0; r < op->result_count; r++)
    write_operand(to, "out", result_elements(op, r), og_result_name(op, r));
  for (int i = 0; i < op->param_count; i++) {
    const og_param *p = &op->params[i];
    if (p->type == OG_TENSOR) write_operand(to, "in", param_elements(op, p->name), p->name);
    if (number_type(p)) fprintf(to, "      .%s = args->%s,\n", p->name, p->name);
  }
  fprintf(to, "  };\n  PX_CUDA_PASS(d.status);\n");
  for (int i = 0; x.with && i < x.with->count; i++)
    fprintf(to, "  p.%s = %s;\n", x.with->keys[i], og_integer(x.with->items[i], resolve, &x));
  fprintf(to,
          "  if (!functions[dtype]) return px__cuda_missing(l, dtype);\n"
          "  PX_CUDA_PASS(px__cuda_over(l, \"%s\", functions[dtype], %s, &p));\n"
          "  return px__cuda_dense_close(&d);\n}\n\n",
          x.module, og_integer(x.by, resolve, &x));
}
