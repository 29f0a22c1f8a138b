// SPDX-License-Identifier: Apache-2.0
// Writes the CPU kernels of pointwise ops and folds. An expression becomes one row function per
// element type; its function calls become those of backends/cpu/vector/math.h for the type
// (`exp(x)` is `k_exp_f32(x)`), its literals are cast to the type.
#include "opgen/opgen.h"

#include <ctype.h>

typedef og_stamp stamp;

// Functions of the kernel math library available to the tables.
// `launch`: reports faults and takes the launch as first argument.
// `blocks`: how rows with the function are written:
// - BLOCKS, BLOCKS_F64: calls libm (for all floats, for double only) and needs loops in blocks.
// - NEAR: has a fast path k_near_NAME for floats and integers, valid on a subrange; marks elements
// outside it.
// - NEAR_WHOLE: the same for integers only.
// - NEAR_REAL: the same for floats only; compute-bound, not memory-bound.
// - NEAR_TWICE: as NEAR_REAL; for float a block with elements outside is recomputed as a whole, and
// a variant k_plain_NAME is tried first if the expression is this function of two tensors.
// - NEAR_F64: as NEAR_REAL for double; BLOCKS_F32 for float.
// - BLOCKS_F32: the float version has so many operations (math_f32_in_f64.h) that it needs a loop
// of its own.
// - PLAIN: has a shorter variant k_plain_NAME for blocks of ordinary numbers. PLAIN_F64: for double
// only.
// - OWN_F64: the double version has an AVX-512 implementation (math_avx512.h), as those of PLAIN
// have.
typedef struct math_row {
  const char *name;
  int count;
  bool launch;
  enum {
    NO_BLOCKS,
    BLOCKS,
    BLOCKS_F64,
    NEAR,
    NEAR_WHOLE,
    NEAR_REAL,
    NEAR_TWICE,
    NEAR_F64,
    BLOCKS_F32,
    PLAIN,
    PLAIN_F64,
    OWN_F64
  } blocks;
} math_row;
static const math_row math_rows[] = {
    {"exp", 1, 0, PLAIN_F64},
    {"exp2", 1, 0, BLOCKS},
    {"expm1", 1, 0, BLOCKS},
    {"log", 1, 0, PLAIN},
    {"log2", 1, 0, BLOCKS},
    {"log10", 1, 0, BLOCKS},
    {"log1p", 1, 0, BLOCKS},
    {"sqrt", 1, 0, OWN_F64},
    {"rsqrt", 1, 0, NO_BLOCKS},
    {"sin", 1, 0, BLOCKS},
    {"cos", 1, 0, BLOCKS},
    {"tan", 1, 0, BLOCKS},
    {"asin", 1, 0, BLOCKS_F64},
    {"acos", 1, 0, BLOCKS_F64},
    {"atan", 1, 0, BLOCKS_F64},
    {"sinh", 1, 0, BLOCKS},
    {"cosh", 1, 0, BLOCKS},
    {"tanh", 1, 0, BLOCKS_F64},
    {"asinh", 1, 0, BLOCKS},
    {"acosh", 1, 0, BLOCKS},
    {"atanh", 1, 0, BLOCKS},
    {"erf", 1, 0, BLOCKS_F64},
    {"erfc", 1, 0, BLOCKS},
    {"normal", 1, 0, BLOCKS_F64},
    {"density", 1, 0, BLOCKS_F64},
    {"sigmoid", 1, 0, BLOCKS_F64},
    {"floor", 1, 0, NO_BLOCKS},
    {"ceil", 1, 0, NO_BLOCKS},
    {"round", 1, 0, NO_BLOCKS},
    {"trunc", 1, 0, NO_BLOCKS},
    {"abs", 1, 0, NO_BLOCKS},
    {"sign", 1, 0, NO_BLOCKS},
    {"isnan", 1, 0, NO_BLOCKS},
    {"real", 1, 0, NO_BLOCKS},
    {"angle", 1, 0, NO_BLOCKS},
    {"conj", 1, 0, NO_BLOCKS},
    {"sgn", 1, 0, NO_BLOCKS},
    {"isreal", 1, 0, NO_BLOCKS},
    {"isinf", 1, 0, NO_BLOCKS},
    {"isfinite", 1, 0, NO_BLOCKS},
    {"bitnot", 1, 0, NO_BLOCKS},
    {"max", 2, 0, NO_BLOCKS},
    {"min", 2, 0, NO_BLOCKS},
    {"pow", 2, 0, NEAR_TWICE},
    {"atan2", 2, 0, BLOCKS},
    {"floordiv", 2, 1, NEAR},
    {"truncdiv", 2, 1, NEAR_WHOLE},
    {"remainder", 2, 1, NEAR},
    {"fmod", 2, 1, NEAR},
    {"select", 3, 0, NO_BLOCKS},
    {"copysign", 2, 0, NO_BLOCKS},
    {"signbit", 1, 0, NO_BLOCKS},
    {"nextafter", 3, 0, NO_BLOCKS},
    {"mantissa", 1, 0, NO_BLOCKS},
    {"exponent", 1, 0, NO_BLOCKS},
    {"shl", 2, 0, NO_BLOCKS},
    {"shr", 2, 0, NO_BLOCKS},
    {"gcd", 2, 0, NO_BLOCKS},
    // backends/special.h
    {"lgamma", 1, 0, NEAR_F64},
    {"digamma", 1, 0, NO_BLOCKS},
    {"polygamma", 2, 0, NO_BLOCKS},
    {"zeta", 2, 0, NO_BLOCKS},
    {"igamma", 2, 0, NO_BLOCKS},
    {"igammac", 2, 0, NO_BLOCKS},
    {"gamma_slope", 2, 0, NO_BLOCKS},
    {"erfinv", 1, 0, NEAR_REAL},
    {"erfcx", 1, 0, NO_BLOCKS},
    {"ndtr", 1, 0, BLOCKS},
    {"log_ndtr", 1, 0, NO_BLOCKS},
    {"ndtri", 1, 0, NO_BLOCKS},
    {"i0", 1, 0, BLOCKS_F32},
    {"i0e", 1, 0, BLOCKS_F32},
    {"i1", 1, 0, BLOCKS_F32},
    {"i1e", 1, 0, BLOCKS_F32},
    {"bessel_j0", 1, 0, NO_BLOCKS},
    {"bessel_j1", 1, 0, NO_BLOCKS},
    {"bessel_y0", 1, 0, NO_BLOCKS},
    {"bessel_y1", 1, 0, NO_BLOCKS},
    {"spherical_j0", 1, 0, NO_BLOCKS},
    {"k0", 1, 0, NO_BLOCKS},
    {"k1", 1, 0, NO_BLOCKS},
    {"k0e", 1, 0, NO_BLOCKS},
    {"k1e", 1, 0, NO_BLOCKS},
    {"airy_ai", 1, 0, NO_BLOCKS},
    {"chebyshev_t", 2, 0, NO_BLOCKS},
    {"chebyshev_u", 2, 0, NO_BLOCKS},
    {"chebyshev_v", 2, 0, NO_BLOCKS},
    {"chebyshev_w", 2, 0, NO_BLOCKS},
    {"hermite_h", 2, 0, NO_BLOCKS},
    {"hermite_he", 2, 0, NO_BLOCKS},
    {"laguerre", 2, 0, NO_BLOCKS},
    {"legendre", 2, 0, NO_BLOCKS},
};
static const math_row *math_find(const char *name) {
  for (size_t i = 0; i < sizeof math_rows / sizeof *math_rows; i++)
    if (!strcmp(math_rows[i].name, name)) return &math_rows[i];
  return NULL;
}

// True if the expression of an op has a function that may report faults for integers.
bool og_faults(const og_op *op) {
  for (const char *at = op->expr.text; at && *at;) {
    const char *end = og_word_end(at);
    const math_row *f = *end == '(' ? math_find(og_copy(at, (size_t)(end - at))) : NULL;
    if (f && f->launch) return true;
    at = end == at ? at + 1 : end;
  }
  return false;
}

// An expression being rewritten for one type.
typedef struct rewriter {
  const og_op *op;
  og_location at;
  const char *suffix, *c;
  const char *const *names;  // other allowed names, NULL-terminated
  const char *out;
  unsigned used;     // mask of used parameters
  bool extremes;     // uses `highest` or `lowest`
  const char *test;  // the condition of is(); one loop is written per answer
  bool truth;        // the answer assumed
  int test_param;    // the parameter and the text of is()
  const char *test_text;
  bool blocks;           // calls libm
  bool compute_bound;    // has a compute-bound function of floats
  bool is_wide;          // writes the version for wide vectors
  bool calls;            // calls a function
  bool near, has_near;   // use fast paths; there is one
  bool recompute_block;  // recompute a whole block if an element is outside the fast path
  const char *plain;     // the function of an expression with a k_plain variant
  const char *avx512;    // the function of an expression with an AVX-512 implementation
  const char *easy;      // the constant exponent of all powers
} rewriter;

static void emit(rewriter *w, const char *text) { w->out = og_format("%s%s", w->out, text); }

// True if the whole expression is f(self).
static bool is_plain(const math_row *f, const rewriter *w) {
  const char *text = w->op->expr.text;
  return text && !strcmp(text, og_format("%s(self)", f->name));
}
// Returns the `blocks` of a function for one element type. A compute-bound fast path is used only
// if it is the only call, to limit code size.
static int blocks_of(const math_row *f, const rewriter *w, bool real, bool wide, bool is_integer) {
  const char *text = w->op->expr.text, *call = text ? strchr(text, '(') : NULL;
  bool alone = call && !strchr(call + 1, '(');
  switch (f->blocks) {
    case NEAR_WHOLE:
      return is_integer ? NEAR : NO_BLOCKS;
    case NEAR:
      return real || is_integer ? NEAR : NO_BLOCKS;
    case NEAR_REAL:
    case NEAR_TWICE:
      return !real ? NO_BLOCKS : alone ? NEAR : BLOCKS;
    case NEAR_F64:
      return !wide ? BLOCKS_F32 : alone ? NEAR : BLOCKS;
    case PLAIN:
      return real && is_plain(f, w) ? PLAIN : BLOCKS_F64;
    case PLAIN_F64:
      return wide && is_plain(f, w) ? PLAIN : BLOCKS_F64;
    case OWN_F64:
      return NO_BLOCKS;
    default:
      return (int)f->blocks;
  }
}
static void emit_call(rewriter *w, const math_row *f) {
  bool real = w->suffix[0] == 'f', wide = real && !strcmp(w->suffix, "f64");
  bool is_integer = w->suffix[0] == 'u' || w->suffix[0] == 'i';
  int blocks = blocks_of(f, w, real, wide, is_integer);
  bool near = blocks == NEAR, memory = f->blocks == NEAR || f->blocks == NEAR_WHOLE;
  bool has_own = f->blocks == OWN_F64 || f->blocks == PLAIN || f->blocks == PLAIN_F64;
  if (blocks == PLAIN) w->plain = f->name;
  if (wide && has_own && is_plain(f, w)) w->avx512 = f->name;
  w->blocks |= near || blocks == PLAIN || (real && blocks == BLOCKS) ||
               (wide && blocks == BLOCKS_F64) || (real && !wide && blocks == BLOCKS_F32);
  w->calls = true;
  w->has_near |= near;
  w->recompute_block |= near && !wide && f->blocks == NEAR_TWICE;
  w->compute_bound |= w->avx512 != NULL;
  w->compute_bound |= real && !memory && blocks != NO_BLOCKS && !(wide && blocks == BLOCKS_F32);
  if (w->easy && !strcmp(f->name, "pow"))
    emit(w, og_format("k_easy_pow_%s(%s, ", w->suffix, w->easy));
  else if (near && w->near)
    emit(w, og_format("k_near_%s_%s(far_ + k_, ", f->name, w->suffix));
  else
    emit(w, og_format("k_%s_%s(%s", f->name, w->suffix, f->launch ? "l, " : ""));
}

static int count_arguments(const char *at) {
  int depth = 0, commas = 0;
  for (; *at; at++) {
    if (*at == '(') depth++;
    if (*at == ')' && --depth == 0) return commas + 1;
    if (*at == ',' && depth == 1) commas++;
  }
  return -1;
}

// is(NAME, 'text') and has(NAME) are evaluated before the loop.
static const char *rewrite_test(rewriter *w, const char *word, const char *at) {
  char name[64], text[64] = "";
  bool is = !strcmp(word, "is");
  int n = 0;
  if (is ? sscanf(at, "(%63[a-z0-9_], '%63[^']')%n", name, text, &n) != 2 || !n
         : sscanf(at, "(%63[a-z0-9_])%n", name, &n) != 1 || !n)
    og_die(w->at, "expected %s in expr of %s", is ? "is(NAME, 'text')" : "has(NAME)", w->op->name);
  int i = og_param_find(w->op, name);
  if (i < 0) og_die(w->at, "unknown name '%s' in expr of %s", name, w->op->name);
  if (is) {
    const char *test = og_format("px__cpu_is(&l->params[%d], \"%s\")", i, text);
    if (w->test && strcmp(w->test, test)) og_die(w->at, "expr of %s has two is()", w->op->name);
    w->test = test, w->test_param = i, w->test_text = og_copy(text, strlen(text));
    emit(w, w->truth ? "true" : "false");
  } else {
    emit(w, og_format("has_%s", name));
    w->used |= 1u << i;
  }
  return at + n;
}

static const char *rewrite_word(rewriter *w, const char *at) {
  const char *end = at;
  while (isalnum((unsigned char)*end) || *end == '_') end++;
  char *word = og_copy(at, (size_t)(end - at));
  if (*end == '(' && (!strcmp(word, "is") || !strcmp(word, "has")))
    return rewrite_test(w, word, end);
  if (*end == '(') {
    const math_row *f = math_find(word);
    if (!f) og_die(w->at, "unknown function '%s' in expr of %s", word, w->op->name);
    int count = count_arguments(end);
    if (count != f->count)
      og_die(w->at, "%s takes %d arguments, not %d, in expr of %s", word, f->count, count,
             w->op->name);
    emit_call(w, f);
    return end + 1;
  }
  int i = w->names ? -1 : og_param_find(w->op, word);
  bool extreme = !strcmp(word, "highest") || !strcmp(word, "lowest");
  bool known = i >= 0 || extreme;
  for (const char *const *name = w->names; name && *name; name++) known |= !strcmp(*name, word);
  if (i < 0 && (!strcmp(word, "inf") || !strcmp(word, "nan") || !strcmp(word, "max_value") ||
                !strcmp(word, "min_value"))) {
    emit(w, og_format("K_%s_%s", word, w->suffix));
    return end;
  }
  if (w->names && i < 0) i = og_param_find(w->op, word), known |= i >= 0;
  if (!known) og_die(w->at, "unknown name '%s' in expr of %s", word, w->op->name);
  if (i >= 0) w->used |= 1u << i;
  w->extremes |= extreme;
  emit(w, word);
  return end;
}

static const char *rewrite(rewriter *w, const char *text) {
  w->out = "";
  for (const char *at = text; *at;) {
    if (isalpha((unsigned char)*at) || *at == '_') {
      at = rewrite_word(w, at);
    } else if (isdigit((unsigned char)*at) || (*at == '.' && isdigit((unsigned char)at[1]))) {
      char *end;
      strtod(at, &end);
      emit(w, og_format("(%s)%s", w->c, og_copy(at, (size_t)(end - at))));
      at = end;
    } else {
      emit(w, og_copy(at++, 1));
    }
  }
  return w->out;
}

og_expr og_rewrite(const og_op *op, const char *text, og_location at, const char *suffix,
                   const char *c, const char *const *names, bool truth) {
  rewriter w = {.op = op, .at = at, .suffix = suffix, .c = c, .names = names, .truth = truth};
  const char *out = rewrite(&w, text);
  return (og_expr){out, w.used, w.extremes, w.test != NULL, w.test_param, w.test_text};
}

// ---- pointwise

static bool returns_bool(const og_op *op) {
  return og_has(op, OG_W_compare) || og_results_are(op, "bool");
}

// Writes the locals of number parameters and of presence tests.
static void write_locals(FILE *to, const og_op *op, const stamp *s, const rewriter *w) {
  int tensor = op->result_count;
  for (int i = 0; i < op->param_count; i++) {
    const og_param *p = &op->params[i];
    bool used = w->used >> i & 1u;
    if (p->type == OG_TENSOR) {
      if (used && p->optional) fprintf(to, "  PX__CPU_MAYBE(%s, %s, %d)\n", s->c, p->name, tensor);
      tensor++;
    } else if (used) {
      fprintf(to, "  const %s %s = k_number_%s(&l->params[%d]);\n", s->number, p->name, s->suffix,
              i);
      if (p->optional)
        fprintf(to, "  const bool has_%s = l->params[%d].kind != PX_ARG_NONE;\n  (void)has_%s;\n",
                p->name, i, p->name);
    }
  }
  if (w->extremes)
    fprintf(to,
            "  const %s highest = k_highest_%s(l), lowest = k_lowest_%s(l);\n  (void)highest, "
            "(void)lowest;\n",
            s->c, s->suffix, s->suffix);
}

// Returns the second operand of an expression pow(self, TENSOR), which has a k_plain variant; else
// NULL.
static const char *plain_other(const og_op *op) {
  const char *text = op->expr.text;
  for (int i = 1; i < op->param_count; i++)
    if (op->params[i].type == OG_TENSOR &&
        !strcmp(text, og_format("pow(self, %s)", op->params[i].name)))
      return op->params[i].name;
  return NULL;
}
// Writes blocks with a fast path and the recomputation of elements outside its range.
static void write_near(FILE *to, const stamp *s, const rewriter *w, const char *result,
                       const char *names, const char *near) {
  const char *other = plain_other(w->op);
  bool avx512 = other && w->is_wide && !strcmp(s->suffix, "f32");
  fprintf(to, "    PX__CPU_FAR(%s)\n", s->c);
  if (avx512)
    fprintf(to, "    PX__CPU_BUFFERED(%s)\n    PX__CPU_AVX512_FIRST(%s, pow, self, %s)\n", result,
            s->suffix, other);
  else if (other)
    fprintf(to, "    PX__CPU_BUFFERED(%s)\n    PX__CPU_PLAIN_FIRST(%s, %s, pow, self, %s)\n",
            result, s->c, s->suffix, other);
  const char *each =
      other ? "if (!plain_) PX__CPU_EACH_LANE" : og_format("PX__CPU_EACH_BUFFERED(%s)", result);
  if (!avx512) fprintf(to, "    %s { %sPX__CPU_SET(%s, %s) }\n", each, names, result, near);
  const char *unless = other ? "if (!done_) " : "";
  if (w->recompute_block)
    fprintf(to, "    %s{ PX__CPU_RECOMPUTE_BLOCK(%s, K_far_%s, %s, %s) }\n", unless, result,
            s->suffix, names, w->out);
  else
    fprintf(to, "    %s{ PX__CPU_RECOMPUTE(%s, K_far_%s, %sPX__CPU_SET(%s, %s)) }\n", unless,
            result, s->suffix, names, result, w->out);
}
static void write_blocks(FILE *to, const stamp *s, const rewriter *w, const char *result,
                         const char *loads, const char *names) {
  rewriter first = *w;
  first.near = true;
  rewrite(&first, w->op->expr.text);
  fprintf(to, "  PX__CPU_BLOCKS {\n%s", loads);
  if (w->has_near)
    write_near(to, s, w, result, names, first.out);
  else if (w->is_wide && w->avx512)
    fprintf(to, "    PX__CPU_EACH_AVX512(%s, %s, %s, self)\n", s->c, s->suffix, w->avx512);
  else if (w->plain)
    fprintf(to, "    PX__CPU_EACH_PLAIN(%s, %s, %s, self)\n", s->c, s->suffix, w->plain);
  else
    fprintf(to, "    PX__CPU_EACH(%s) { %sPX__CPU_SET(%s, %s) }\n", result, names, result,
            first.out);
  fprintf(to, "    PX__CPU_STORE(%s)\n  }\n", result);
}

// Writes the loop over an expression; its inputs are the used parameters.
static void write_loop(FILE *to, const og_op *op, const stamp *s, const rewriter *w) {
  const char *inputs = "", *loads = "", *names = "";
  int tensor = op->result_count, count = 0;
  for (int i = 0; i < op->param_count; i++) {
    if (op->params[i].type != OG_TENSOR) continue;
    if (w->used >> i & 1u) {
      const char *c = op->mask_params >> i & 1u ? "bool" : s->c;
      inputs = og_format("%s%s, %s, %d, ", inputs, c, op->params[i].name, tensor);
      loads = og_format("%s    PX__CPU_LOAD(%s, %s, %d)\n", loads, c, op->params[i].name, tensor);
      names = og_format("%sPX__CPU_TAKE(%s, %s) ", names, c, op->params[i].name);
      count++;
    }
    tensor++;
  }
  const char *result = returns_bool(op) ? "bool" : og_results_are(op, "real") ? s->number : s->c;
  if ((w->blocks || (w->is_wide && w->avx512)) && count)
    write_blocks(to, s, w, result, loads, names);
  else
    fprintf(to, "  PX__CPU_%sROW%d(%s, %s(%s))\n", w->is_wide ? "WIDE_" : "", count, result, inputs,
            w->out);
}

// Powers with a scalar exponent are mostly products, roots and reciprocals. Each special exponent
// has its own loop: a branch in the loop would cost more than the operation. Complex numbers have
// one special case, squares; integers have four. `scalar_base`: the operand before self is a
// scalar.
static void write_easy_powers(FILE *to, const og_op *op, const stamp *s, const rewriter *w,
                              bool scalar_base) {
  static const char *const easy[] = {"2", "0", "1", "3", "0.5", "-1", "-2", "-0.5"};
  const char *exponent = strstr(op->expr.text, "pow(self, ") + strlen("pow(self, ");
  const char *steps = "", *names = "", *ones = "PX__CPU_FROM(0); ";
  rewriter r = *w;
  const char *power = rewrite(&r, og_copy(exponent, strcspn(exponent, ")")));
  for (int i = 0; i < op->param_count; i++) {
    const char *name = op->params[i].name;
    int tensor = op->result_count + i;
    bool one = !strcmp(name, "exponent") || (scalar_base && strcmp(name, "self") != 0);
    const char *taken =
        og_format("%s(%s, %s, %d) ", one ? "PX__CPU_SCALAR" : "PX__CPU_NEXT", s->c, name, tensor);
    *(one ? &ones : &names) = og_format("%s%s", one ? ones : names, taken);
    if (!one) ones = og_format("%sPX__CPU_FROM(%d); ", ones, tensor);
    steps = og_format("%s && s_[%d] == %s", steps, tensor,
                      one ? "0" : og_format("(int64_t)sizeof(%s)", s->c));
  }
  if (!scalar_base && !strcmp(s->suffix, "c64") && !strcmp(op->expr.text, "pow(self, exponent)")) {
    fprintf(to, "  if (PX__CPU_IS_CONTIGUOUS(%s, 0)%s) {\n    PX__CPU_SCALAR(%s, exponent, 2)\n",
            s->c, steps, s->c);
    fprintf(to, "    if (exponent == 2) {\n      k_square_row_c64(p_, s_, n_);\n");
    fprintf(to, "      return;\n    }\n  }\n");
    return;
  }
  fprintf(to, "  if (PX__CPU_IS_CONTIGUOUS(%s, 0)%s) {\n    %s\n", s->c, steps, ones);
  fprintf(to, "    const %s power_ = %s;\n", s->c, power);
  size_t count = s->suffix[0] == 'c' ? 1 : s->suffix[0] == 'f' ? sizeof easy / sizeof *easy : 4;
  for (size_t i = 0; i < count; i++) {
    r.easy = easy[i];
    fprintf(to, "    if (power_ == (%s)%s) {\n      PX__CPU_LOOP { %sPX__CPU_PUT(%s, %s) }\n", s->c,
            easy[i], names, s->c, rewrite(&r, op->expr.text));
    fprintf(to, "      return;\n    }\n");
  }
  fprintf(to, "  }\n");
}
static bool has_easy_powers(const og_op *op, const stamp *s) {
  bool real = s->suffix[0] == 'f', other = s->suffix[0] != 'b' && plain_other(op) != NULL;
  return (real || other) && strstr(op->expr.text, "pow(self, ") && !strstr(op->expr.text, "log(");
}

// Counts results and tensors, including absent ones.
static int operand_count(const og_op *op) {
  int count = op->result_count;
  for (int i = 0; i < op->param_count; i++) count += op->params[i].type == OG_TENSOR;
  return count;
}

// Complex expressions with rows over split parts (backends/cpu/vector/complex_blocks.h).
static const struct {
  const char *expr, *name, *suffix;  // for this type only
  int operands;
} part_rows[] = {
    {"self * other", "mul", NULL, 2},    {"self / other", "div", NULL, 2},
    {"self * self", "square", "c64", 1}, {"1 / self", "reciprocal", NULL, 1},
    {"abs(self)", "abs", NULL, 1},       {"sgn(self)", "sgn", NULL, 1},
    {"angle(self)", "angle", "c64", 1},
};
// Returns false if the expression has no such row.
static bool write_part_row(FILE *to, const og_op *op, const stamp *s) {
  for (size_t i = 0; i < sizeof part_rows / sizeof *part_rows && s->kind == 'c'; i++) {
    const char *suffix = part_rows[i].suffix;
    if (strcmp(op->expr.text, part_rows[i].expr) != 0) continue;
    if (suffix && strcmp(suffix, s->suffix) != 0) continue;
    const char *args = "(char *const *p_, const int64_t *s_, int64_t n_, const px_launch *l)";
    const char *loop = og_format("  PX__CPU_PARTS_ROW%d(%s, %s, %s)\n", part_rows[i].operands,
                                 s->suffix, part_rows[i].name,
                                 og_results_are(op, "real") ? "k_store_reals" : "k_store_parts");
    const char *name = og_format("row_%s_%s", op->name, s->suffix);
    fprintf(to, "PX__CPU_WIDE static bool %s_wide%s {\n%s  return true;\n}\n", name, args, loop);
    fprintf(to, "static void %s%s {\n  PX__CPU_IF_WIDE(%s_wide, %d, %s)\n%s}\n", name, args, name,
            operand_count(op), s->c, loop);
    return true;
  }
  return false;
}

// Writes division of int32 and int64 by a scalar (backends/cpu/vector/divisor.h).
static void write_by_one(FILE *to, const og_op *op, const stamp *s, const rewriter *w) {
  static const char *const names[] = {"floordiv", "remainder", "truncdiv", "fmod"};
  const char *text = op->expr.text, *name = NULL;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(text, og_format("%s(self, other)", names[i])))
      name = og_format("k_%s_by_one_%s", names[i], s->suffix);
  if (w->test && strstr(text, "'floor'), floordiv(self, other), truncdiv(self, other))"))
    name = og_format("(%s ? k_floordiv_by_one_%s : k_truncdiv_by_one_%s)", w->test, s->suffix,
                     s->suffix);
  if (!name || (strcmp(s->suffix, "i32") != 0 && strcmp(s->suffix, "i64") != 0)) return;
  fprintf(to,
          "  if (PX__CPU_IS_CONTIGUOUS(%s, 0) && PX__CPU_IS_CONTIGUOUS(%s, 1) && s_[2] == 0 && "
          "%s(p_, n_)) return;\n",
          s->c, s->c, name);
}

static void write_row_as(FILE *to, const og_op *op, const stamp *s, const rewriter *w) {
  // Complex functions are calls per element, not vector loops: optimise for size.
  bool easy = has_easy_powers(op, s);
  const char *rare = s->suffix[0] == 'c' && w->calls && !easy ? "__attribute__((cold)) " : "";
  const char *head = w->is_wide ? "PX__CPU_WIDE static bool" : "static void";
  const char *end = w->is_wide ? "  return true;\n" : "";
  fprintf(to,
          "%s%s row_%s_%s%s(char *const *p_, const int64_t *s_, int64_t n_, const px_launch *l) "
          "{\n",
          rare, head, op->name, s->suffix, w->is_wide ? "_wide" : "");
  if (!w->is_wide && easy) {
    write_easy_powers(to, op, s, w, false);
    if (strcmp(op->params[0].name, "self") != 0) write_easy_powers(to, op, s, w, true);
  }
  if (!w->is_wide) write_by_one(to, op, s, w);
  if (w->compute_bound && !w->is_wide)
    fprintf(to, "  PX__CPU_IF_WIDE(row_%s_%s_wide, %d, %s)\n", op->name, s->suffix,
            operand_count(op), s->c);
  write_locals(to, op, s, w);
  if (w->test) {
    rewriter yes = *w;
    yes.truth = true;
    rewrite(&yes, op->expr.text);
    fprintf(to, "  if (%s) {\n", w->test);
    write_loop(to, op, s, &yes);
    fprintf(to, "  return%s;\n  }\n", w->is_wide ? " true" : "");
  }
  write_loop(to, op, s, w);
  fprintf(to, "%s}\n", end);
}
// Writes a row; a compute-bound one also has a version for wide vectors.
static void write_row(FILE *to, const og_op *op, const stamp *s) {
  if (write_part_row(to, op, s)) return;
  rewriter w = {.op = op, .at = op->expr.location, .suffix = s->suffix, .c = s->number};
  rewrite(&w, op->expr.text);
  rewriter wide = w;
  wide.is_wide = true;
  if (w.compute_bound) write_row_as(to, op, s, &wide);
  write_row_as(to, op, s, &w);
}

bool og_has_kernel(const og_op *op) {
  return (og_is(op, "pointwise") && op->expr.text) ||
         (og_is(op, "reduce") && op->fold.text && !op->kernel.text);
}

bool og_has_generated_kernel(const og_op *op) {
  const og_op *other = op->kernel.text ? og_find(op->kernel.text) : NULL;
  return og_has_kernel(op) || (other && og_has_kernel(other));  // `kernel sum` is that of a fold
}

const char *og_hand_kernel(const og_op *op) {
  if (op->kernel.text) return op->kernel.text;
  if (og_has_kernel(op)) return NULL;
  return og_is(op, "kernel") || og_is(op, "reduce") ? op->name : NULL;
}

// fp16 and bf16 are computed in float.
static bool has_row(const og_op *op, const stamp *s) { return og_is_wide(s) && og_in_set(op, s); }

// Expressions computed on the bits of fp16 and bf16.
static const char *sign_row(const og_op *op) {
  static const char *const rows[][2] = {
      {"-self", "neg"}, {"abs(self)", "abs"}, {"select(self < 0, 0, self)", "relu"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (!strcmp(op->expr.text, rows[i][0]) && operand_count(op) == 2) return rows[i][1];
  return NULL;
}
static void write_sign_rows(FILE *to, const og_op *op, const char *name) {
  static const char *const formats[][2] = {{"f16", "0x7c00"}, {"bf16", "0x7f80"}};
  for (int i = 0; i < 2; i++)
    fprintf(to,
            "static void row_%s_%s(char *const *p_, const int64_t *s_, int64_t n_, const px_launch "
            "*l) {\n  PX__CPU_SIGN_ROW(%s, %s)\n}\n",
            op->name, formats[i][0], name, formats[i][1]);
}

static void write_pointwise(FILE *to, const og_op *op) {
  unsigned masks = returns_bool(op) ? 1 : 0, tensors = 0;
  int tensor = op->result_count;
  for (int i = 0; i < op->param_count; i++)
    if (op->params[i].type == OG_TENSOR)
      masks |= (op->mask_params >> i & 1u) << tensor++, tensors |= 1u << i;
  og_expr e = og_rewrite(op, op->expr.text, op->expr.location, "f32", "float", NULL, false);
  fprintf(to, "// %s: %s\n", op->name, op->expr.text);
  int count;
  const stamp *stamps = og_stamps(&count);
  for (int i = 0; i < count; i++)
    if (has_row(op, &stamps[i])) write_row(to, op, &stamps[i]);
  const char *signs = sign_row(op);
  if (signs) write_sign_rows(to, op, signs);
  fprintf(to,
          "px_status px__cpu_op_%s(const px_launch *l);\n"
          "px_status px__cpu_op_%s(const px_launch *l) {\n"
          "  static const px__cpu_pointwise op = {.operands = %d, .bools = 0x%x, .alike = %d, "
          ".real = %d, .rows = {\n",
          op->name, op->name, operand_count(op), masks, !(e.used & tensors),
          og_results_are(op, "real"));
  for (int i = 0; i < count; i++)
    if (has_row(op, &stamps[i]))
      fprintf(to, "      [%s] = row_%s_%s,\n", stamps[i].dtype, op->name, stamps[i].suffix);
  if (signs)
    fprintf(to, "      [PX_FLOAT16] = row_%s_f16,\n      [PX_BFLOAT16] = row_%s_bf16,\n", op->name,
            op->name);
  fprintf(to, "  }};\n  return px__cpu_pointwise_run(l, &op);\n}\n\n");
}

// ---- folds

og_fold og_fold_parse(const og_op *op) {
  og_fold f = {.map = "b", .finish = "a"};
  struct {
    const char *name;
    const char **target;
  } parts[] = {{"identity ", &f.identity},
               {"start ", &f.identity},
               {"map ", &f.map},
               {"combine ", &f.combine},
               {"finish ", &f.finish}};
  char *copy = strdup(op->fold.text);
  for (char *part = strtok(copy, ";"); part; part = strtok(NULL, ";")) {
    while (*part == ' ') part++;
    bool found = false;
    for (int i = 0; i < 5; i++) {
      size_t n = strlen(parts[i].name);
      if (!strncmp(part, parts[i].name, n))
        *parts[i].target = part + n, found = true, f.start |= i == 1;
    }
    if (!found) og_die(op->fold.location, "unknown part '%s' in fold of %s", part, op->name);
  }
  if (!f.identity || !f.combine)
    og_die(op->fold.location, "fold of %s requires `identity` or `start`, and `combine`", op->name);
  return f;
}

static void write_fold_part(FILE *to, const og_op *op, const stamp *name, const stamp *s,
                            const char *part, const char *params, const char *text) {
  static const char *const names[] = {"a", "b", "n", NULL};
  rewriter w = {
      .op = op, .at = op->fold.location, .suffix = s->suffix, .c = s->number, .names = names};
  const char *expr = rewrite(&w, text);
  fprintf(to, "static inline %s %s_%s_%s(%s) {\n", s->c, part, op->name, name->suffix, params);
  if (!strcmp(part, "finish")) {
    fprintf(to, "  (void)n, (void)l;\n");
    write_locals(to, op, s, &w);
  }
  fprintf(to, "  return (%s)(%s);\n}\n", s->c, expr);
}

// Writes a fold of elements of type s, accumulated in s, with partial results in `wide`. Short
// integers have a first accumulator of their own type.
static void write_fold_stamp(FILE *to, const og_op *op, const stamp *s, const stamp *wide,
                             const og_fold *f) {
  bool shorter = wide->kind == 'i' && s != wide;
  write_fold_part(to, op, s, shorter ? s : wide, "identity", "void", f->identity);
  write_fold_part(to, op, s, s, "map", og_format("%s b", s->c), f->map);
  write_fold_part(to, op, s, s, "combine", og_format("%s a, %s b", s->c, s->c), f->combine);
  write_fold_part(to, op, s, wide, "merge", og_format("%s a, %s b", wide->c, wide->c), f->combine);
  write_fold_part(to, op, s, wide, "finish",
                  og_format("%s a, int64_t n, const px_launch *l", wide->c), f->finish);
  bool real = s->suffix[0] == 'f', plain = real && !strcmp(f->map, "b");
  const char *variant = "", *more = "";
  if (plain && !strcmp(f->combine, "max(a, b)"))
    variant = "_EXTREME", more = ", false";
  else if (plain && !strcmp(f->combine, "min(a, b)"))
    variant = "_EXTREME", more = ", true";
  else if (real && !strncmp(f->combine, "select(", 7))
    variant = "_CHOICE";
  else if (!strcmp(s->suffix, "u8"))
    variant = "_BYTES";
  else if (plain && !strcmp(s->suffix, "f32") && !strcmp(f->combine, "a + b"))
    variant = "_HALVES", more = ", +";
  else if (plain && !strcmp(s->suffix, "f32") && !strcmp(f->combine, "a * b"))
    variant = "_HALVES", more = ", *";
  fprintf(to, "PX__CPU_FOLD%s(%s, %s, %s, %s%s)\n", variant, op->name, s->suffix, s->c, wide->c,
          more);
}

static void write_fold(FILE *to, const og_op *op) {
  og_fold f = og_fold_parse(op);
  static const char *const widths[][2] = {{"u8", "i64"},   {"i32", "i64"}, {"i64", "i64"},
                                          {"f32", "f64"},  {"f64", "f64"}, {"c64", "c128"},
                                          {"c128", "c128"}};
  const char *list = "";
  fprintf(to, "// %s: %s\n", op->name, op->fold.text);
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
    const stamp *s = og_stamp_of(widths[i][0]);
    bool truth = s->kind == 'c' && (returns_bool(op) || og_results_are(op, "int64"));
    if (truth || !og_in_set(op, s)) continue;  // complex numbers are only tested for nonzero
    if (i < 2 && !f.start) continue;           // sums accumulate in int64
    write_fold_stamp(to, op, s, og_stamp_of(widths[i][1]), &f);
    list = og_format("%s[%s] = &fold_%s_%s, ", list, s->dtype, op->name, s->suffix);
  }
  fprintf(to,
          "px_status px__cpu_op_%s(const px_launch *l);\n"
          "px_status px__cpu_op_%s(const px_launch *l) {\n  static const px__cpu_fold *const "
          "folds[PX_DTYPE_COUNT] = {%s};\n  return px__cpu_fold_run(l, folds);\n}\n\n",
          op->name, op->name, list);
}

void og_write_kernel(FILE *to, const og_op *op) {
  if (!og_has_kernel(op)) return;
  if (og_is(op, "pointwise"))
    write_pointwise(to, op);
  else
    write_fold(to, op);
}
