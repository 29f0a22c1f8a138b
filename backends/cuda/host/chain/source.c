// SPDX-License-Identifier: Apache-2.0
// Writes the program of a chain; its fixed part is kernels/chain.cuh. Values are named by kind and
// number: a3 is operand 3, o3 the vector stored to it, r5 the result of step 5.
#include "cuda/host/chain/chain.h"

static const px_operand *array_at(const px__cuda_chain *c, int i) {
  const px_operand *o = &c->launch->operands[i];
  return px__cuda_absent(o) ? NULL : o;
}

// Operands that steps read, or store to.
typedef struct uses {
  bool read[PX__CHAIN_OPERANDS], stored[PX__CHAIN_OPERANDS];
} uses;

static void find_uses(const px__cuda_chain *c, uses *u) {
  *u = (uses){0};
  for (int k = 0; k < c->count; k++) {
    const px_chain_step *s = &c->steps[k];
    if (s->stores >= 0) u->stored[s->stores] = true;
    for (int i = 1; i < s->operand_count; i++)
      if (s->sources[i] >= 0 && array_at(c, s->sources[i])) u->read[s->sources[i]] = true;
  }
}

// ---- loads

static void write_inputs(FILE *to, const px__cuda_chain *c, const uses *u) {
  for (int i = 0; i < c->launch->operand_count; i++) {
    const char *type = px__cuda_suffix(c->launch->operands[i].dtype);
    if (!u->read[i]) continue;
    if (c->operands[i].reading == PX__ONE)
      fprintf(to, "  k_%s a%d;\n", type, i);
    else
      fprintf(to, "  k_loaded<k_%s, N> a%d;\n", type, i);
  }
}

static void write_load(FILE *to, const px__cuda_chain *c, const uses *u) {
  fprintf(to, "  __device__ __forceinline__ void load(const k_chain &p, int64_t at) {\n");
  for (int i = 0; i < c->launch->operand_count; i++) {
    const px__cuda_chained *o = &c->operands[i];
    const char *type = px__cuda_suffix(c->launch->operands[i].dtype);
    if (!u->read[i]) continue;
    if (o->reading == PX__ONE)
      fprintf(to, "    a%d = *k_array<const k_%s>(p.words[%d]);\n", i, type, o->word);
    else if (o->reading == PX__FLAT)
      fprintf(to, "    a%d = k_flat<k_%s, N>(p.words[%d], at);\n", i, type, o->word);
    else
      fprintf(to, "    a%d = k_gather<k_%s, N, %d>(p.words + %d, at);\n", i, type, o->dims,
              o->word);
  }
  fprintf(to, "  }\n");
}

// ---- steps

static void write_source(FILE *to, const px__cuda_chain *c, int source) {
  if (source < 0)
    fprintf(to, "r%d", ~source);
  else
    fprintf(to, "a%d%s", source, c->operands[source].reading == PX__ONE ? "" : "[k]");
}

// The dtype in which a pointwise kernel reads or stores operand i.
static const char *stored_as(const px__cuda_pointwise *row, int i, int compute) {
  return row->bools >> i & 1u ? "bool" : px__cuda_suffix(compute);
}

static void write_arguments(FILE *to, const px__cuda_chain *c, int k) {
  const px_chain_step *s = &c->steps[k];
  const px__cuda_pointwise *row = c->rows[k];
  int word = c->first_number[k];
  for (int i = 0; i < row->argument_count; i++) {
    const px__cuda_argument *a = &row->arguments[i];
    int source = a->operand > 0 ? s->sources[a->operand] : 0;
    const char *type =
        a->operand > 0 ? stored_as(row, a->operand, s->compute) : px__cuda_suffix(s->compute);
    if (i) fprintf(to, ", ");
    if (a->operand > 0 && (source < 0 || array_at(c, source))) {
      fprintf(to, "k_input<k_%s>(", type);
      write_source(to, c, source);
      fprintf(to, ", zero)");
    } else {
      fprintf(to, "k_number_as<typename k_type<k_%s>::number>(p.words[%d])", type, word++);
    }
    if (a->has >= 0) fprintf(to, ", %s", c->has[k] >> a->has & 1u ? "true" : "false");
  }
  if (row->test_text)
    fprintf(to, "%s%s", row->argument_count ? ", " : "", c->truth[k] ? "true" : "false");
}

static void write_step(FILE *to, const px__cuda_chain *c, int k) {
  enum { RESULT, SOURCE };
  const px_chain_step *s = &c->steps[k];
  const px__cuda_pointwise *row = c->rows[k];
  const char *type = px__cuda_suffix(s->dtype);
  if (row) {
    fprintf(to, "      // %s\n      const k_%s r%d = k_result<k_%s, k_%s>(\n          %s(", s->op,
            type, k, stored_as(row, RESULT, s->compute), type, row->lambdas[s->compute]);
    write_arguments(to, c, k);
    fprintf(to, "));\n");
  } else {
    fprintf(to, "      const k_%s r%d = k_cast<k_%s>(", type, k, type);
    write_source(to, c, s->sources[SOURCE]);
    fprintf(to, ", zero);\n");
  }
  if (s->stores >= 0) fprintf(to, "      o%d.v[k] = r%d;\n", s->stores, k);
}

static void write_run(FILE *to, const px__cuda_chain *c, const uses *u) {
  const char *last = px__cuda_suffix(c->steps[c->count - 1].dtype);
  fprintf(to,
          "  __device__ __forceinline__ k_loaded<k_%s, N> run(const k_chain &p, int64_t at) {\n"
          "    const k_where *l = &p.where;\n    (void)l;\n"
          "    const uint32_t zero = (uint64_t)p.n >> 63;\n    k_loaded<k_%s, N> last;\n",
          last, last);
  for (int i = 0; i < c->launch->operand_count; i++)
    if (u->stored[i])
      fprintf(to, "    k_vector<k_%s, N> o%d;\n", px__cuda_suffix(c->launch->operands[i].dtype), i);
  fprintf(to, "#pragma unroll\n    for (int k = 0; k < N; k++) {\n");
  for (int k = 0; k < c->count; k++) write_step(to, c, k);
  fprintf(to, "      last.put(k, r%d);\n    }\n", c->count - 1);
  for (int i = 0; i < c->launch->operand_count; i++)
    if (u->stored[i]) fprintf(to, "    k_scatter(p.words[%d], at, o%d);\n", c->operands[i].word, i);
  fprintf(to, "    return last;\n  }\n");
}

// ---- the program

static void write_loop(FILE *to, const px__cuda_chain *c) {
  fprintf(to,
          "extern \"C\" __global__ void __launch_bounds__(K_LOOP)\n"
          "    chain(const __grid_constant__ k_chain p) {\n"
          "  k_wait();\n  k_store_all<k_steps, %d, %d>(p);\n}\n",
          c->each, c->flight);
}

static void write_fold(FILE *to, const px__cuda_chain *c) {
  fprintf(to,
          "struct k_ends {\n  k_fold fold;\n  k_chain chain;\n};\n"
          "struct k_end : k_stored {\n%s};\n"
          "extern \"C\" __global__ void __launch_bounds__(K_BLOCK)\n"
          "    chain(const __grid_constant__ k_ends p) {\n"
          "  k_wait();\n  k_fold_%s<k_chain_fold<k_end, k_steps, k_%s, k_chain, %d>>(p.fold);\n}\n",
          c->members, c->columns ? "columns" : "rows",
          px__cuda_suffix(c->steps[c->count - 1].dtype), c->ahead);
}

void px__cuda_chain_write(FILE *to, const px__cuda_chain *c) {
  uses u;
  find_uses(c, &u);
  fprintf(to,
          "#include \"chain.cuh\"\n"
          "struct k_chain {\n  int64_t n;\n  k_where where;\n  k_number words[%d];\n};\n"
          "template <int N>\nstruct k_steps {\n",
          c->word_count ? c->word_count : 1);
  write_inputs(to, c, &u);
  write_load(to, c, &u);
  write_run(to, c, &u);
  fprintf(to, "};\n");
  c->members ? write_fold(to, c) : write_loop(to, c);
}
