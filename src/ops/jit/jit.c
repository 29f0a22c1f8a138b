// SPDX-License-Identifier: Apache-2.0
// Interprets element functions (phlox/jit.h) on whole tensors, one op per operation. A branch runs
// under the mask `live` of the elements whose condition holds. Assignments keep the old value of
// other elements. Both branches run, one after the other.
//
// A value is a tensor: an argument, a number as a 0-dim tensor, or the result of an op.
#include "ops/jit/jit_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "call/call_impl.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/view.h"

enum { MAX_VARIABLES = 64, MAX_CALL_DEPTH = 16, MAX_NESTING = 256 };

typedef struct variable {
  px__jit_token name;
  px__jit_type type;
  px_tensor *value;  // owned; NULL before the first assignment
} variable;
// Activation of one function.
typedef struct frame {
  const px__jit_function *function;
  variable variables[MAX_VARIABLES];
  int count;
  px_tensor *live;   // owned: mask of running elements; NULL: all
  bool over;         // all elements have returned
  px_tensor *given;  // owned: the returned value
} frame;
typedef struct run {
  px__tokens words;
  px_dtype element;
  frame *frame;
  int depth;   // call depth
  int nested;  // nesting depth of the code
} run;
typedef struct values {
  px_tensor *items[PX_JIT_ARGS];  // owned
  int count;
} values;

static void release_values(values *v) {
  while (v->count > 0) px_release(v->items[--v->count]);
}
static void release_variables(frame *f, int count) {
  while (f->count > count) px_release(f->variables[--f->count].value);
}
static void release_frame(frame *f) {
  release_variables(f, 0);
  px_release(f->live);
  px_release(f->given);
}
static void set(px_tensor **slot, px_tensor *value_take) {
  px_release(*slot);
  *slot = value_take;
}
static px_status expression(run *r, px_tensor **out);

// Reads a construct that can contain itself.
static px_status nested(run *r, px_status (*read)(run *r, px_tensor **out), px_tensor **out) {
  PX_CHECK(r->nested < MAX_NESTING, PX_RECURSION, "code is nested more than %d levels deep",
           MAX_NESTING);
  r->nested++;
  px_status status = read(r, out);
  r->nested--;
  return status;
}

// ---- ops

// Calls an op with one or two operands.
static px_status op(const char *name, px_tensor **out, const px_tensor *a, const px_tensor *b) {
  px_value args[16] = {PX_T(a), PX_T(b)};
  void *made = NULL;
  PX_TRY(px_op_call(px_op_find(name), PX_CALL_NEW, args, &made));
  *out = made;
  return PX_OK;
}
static px_status to_dtype(px_tensor **value, px_dtype dtype) {
  px_tensor *made = NULL;
  if (dtype == PX_DTYPE_NONE || px_tensor_dtype(*value) == dtype) return PX_OK;
  PX_TRY(px_to(&made, *value, dtype, PX_DEVICE_NONE, false, false));
  set(value, made);
  return PX_OK;
}
// Integer promotion as in C++.
static px_status promote_bool(px_tensor **value) {
  return px_tensor_dtype(*value) == PX_BOOL ? to_dtype(value, PX_INT32) : PX_OK;
}
static bool is_integer(const px_tensor *t) {
  return !px_dtype_is_float(px_tensor_dtype(t)) && !px_dtype_is_complex(px_tensor_dtype(t));
}
static px_status to_bool(px_tensor **value) {
  px_tensor *made = NULL;
  if (px_tensor_dtype(*value) == PX_BOOL) return PX_OK;
  PX_TRY(px_ne_scalar(&made, *value, px_int(0)));
  set(value, made);
  return PX_OK;
}
// Quotient or remainder. Masked elements may divide by 0, an error for integers. Divisors of 0 are
// replaced by 1.
static px_status divide(const char *name, px_tensor **out, const px_tensor *a, const px_tensor *b) {
  PX_SCOPED(px_tensor) zero = NULL;
  PX_SCOPED(px_tensor) one = NULL;
  PX_SCOPED(px_tensor) divisor = NULL;
  if (!is_integer(a) || !is_integer(b)) return op(name, out, a, b);
  PX_TRY(px_eq_scalar(&zero, b, px_int(0)));
  PX_TRY(px_tensor_from_scalar(&one, px_int(1)));
  PX_TRY(px_where(&divisor, zero, one, b));
  return strcmp(name, "div") == 0 ? px_div_mode(out, a, divisor, "trunc")
                                  : op(name, out, a, divisor);
}

typedef enum rule { LOGICAL, BITS, COMPARES, ARITHMETIC, DIVIDES } rule;
static const struct {
  char sign[3];
  int8_t level;  // precedence; higher binds closer
  int8_t rule;
  const char *op;
} binaries[] = {
    {"||", 1, LOGICAL, "logical_or"},
    {"&&", 2, LOGICAL, "logical_and"},
    {"|", 3, BITS, "bitwise_or"},
    {"^", 4, BITS, "bitwise_xor"},
    {"&", 5, BITS, "bitwise_and"},
    {"==", 6, COMPARES, "eq"},
    {"!=", 6, COMPARES, "ne"},
    {"<", 7, COMPARES, "lt"},
    {"<=", 7, COMPARES, "le"},
    {">", 7, COMPARES, "gt"},
    {">=", 7, COMPARES, "ge"},
    {"<<", 8, ARITHMETIC, "bitwise_left_shift"},
    {">>", 8, ARITHMETIC, "bitwise_right_shift"},
    {"+", 9, ARITHMETIC, "add"},
    {"-", 9, ARITHMETIC, "sub"},
    {"*", 10, ARITHMETIC, "mul"},
    {"/", 10, DIVIDES, "div"},
    {"%", 10, DIVIDES, "fmod"},
};
enum { BINARIES = sizeof binaries / sizeof *binaries };

// Replaces *a by the result of the operator. May convert *b.
static px_status operate(int i, px_tensor **a, px_tensor **b) {
  px_tensor *made = NULL;
  rule how = (rule)binaries[i].rule;
  if (how >= ARITHMETIC) {
    PX_TRY(promote_bool(a));
    PX_TRY(promote_bool(b));
  }
  if (how == DIVIDES)
    PX_TRY(divide(binaries[i].op, &made, *a, *b));
  else
    PX_TRY(op(binaries[i].op, &made, *a, *b));
  set(a, made);
  return PX_OK;
}

// ---- functions of <cmath>

static const struct {
  const char *name, *op;
  int count;
} functions[] = {{"abs", "abs", 1},           {"fabs", "abs", 1},
                 {"sin", "sin", 1},           {"cos", "cos", 1},
                 {"tan", "tan", 1},           {"asin", "asin", 1},
                 {"acos", "acos", 1},         {"atan", "atan", 1},
                 {"sinh", "sinh", 1},         {"cosh", "cosh", 1},
                 {"tanh", "tanh", 1},         {"asinh", "asinh", 1},
                 {"acosh", "acosh", 1},       {"atanh", "atanh", 1},
                 {"exp", "exp", 1},           {"exp2", "exp2", 1},
                 {"expm1", "expm1", 1},       {"log", "log", 1},
                 {"log2", "log2", 1},         {"log10", "log10", 1},
                 {"log1p", "log1p", 1},       {"sqrt", "sqrt", 1},
                 {"rsqrt", "rsqrt", 1},       {"ceil", "ceil", 1},
                 {"floor", "floor", 1},       {"trunc", "trunc", 1},
                 {"rint", "round", 1},        {"nearbyint", "round", 1},
                 {"erf", "erf", 1},           {"erfc", "erfc", 1},
                 {"erfinv", "erfinv", 1},     {"lgamma", "lgamma", 1},
                 {"isnan", "isnan", 1},       {"isinf", "isinf", 1},
                 {"isfinite", "isfinite", 1}, {"signbit", "signbit", 1},
                 {"pow", "pow", 2},           {"min", "minimum", 2},
                 {"max", "maximum", 2},       {"fmin", "fmin", 2},
                 {"fmax", "fmax", 2},         {"atan2", "atan2", 2},
                 {"hypot", "hypot", 2},       {"fmod", "fmod", 2},
                 {"copysign", "copysign", 2}, {"nextafter", "nextafter", 2}};
static const struct {
  const char *name;
  double value;
} constants[] = {{"M_PI", 3.14159265358979323846}, {"INFINITY", INFINITY}, {"NAN", NAN}};

static px_status call_math(const px__tokens *at, px_tensor **out, const values *args) {
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    if (!px__token_is(&at->word, functions[i].name)) continue;
    PX_CHECK(args->count == functions[i].count, PX_RUNTIME,
             "%s takes %d arguments, but %d were given", functions[i].name, functions[i].count,
             args->count);
    return op(functions[i].op, out, args->items[0], args->count > 1 ? args->items[1] : NULL);
  }
  return px__tokens_fail(at, PX_UNIMPLEMENTED, "unsupported function");
}

// ---- statements

static variable *find_variable(frame *f, const px__jit_token *name) {
  for (int i = f->count; i-- > 0;)
    if (px__token_same(&f->variables[i].name, name)) return &f->variables[i];
  return NULL;
}
static px_status add_variable(run *r, px__jit_token name, px__jit_type type, variable **out) {
  frame *f = r->frame;
  PX_CHECK(name.kind == PX__TOKEN_NAME, PX_RUNTIME, "a variable of %.*s has no name",
           f->function->name.length, f->function->name.at);
  PX_CHECK(f->count < MAX_VARIABLES, PX_RUNTIME, "%.*s has more than %d variables",
           f->function->name.length, f->function->name.at, MAX_VARIABLES);
  *out = &f->variables[f->count++];
  **out = (variable){.name = name, .type = type};
  return PX_OK;
}
// Keeps the old value for elements that are not running.
static px_status merge_old(const run *r, px_tensor *old, px_tensor **value) {
  px_tensor *made = NULL;
  if (!r->frame->live || !old) return PX_OK;
  PX_TRY(px_where(&made, r->frame->live, *value, old));
  set(value, made);
  return PX_OK;
}
static px_status assign(run *r, variable *to, px_tensor **value) {
  PX_TRY(to_dtype(value, to->type.dtype));
  if (r->frame->over) return PX_OK;
  PX_TRY(merge_old(r, to->value, value));
  set(&to->value, PX_MOVE(*value));
  return PX_OK;
}

// type name = expression, name;
static px_status declaration(run *r, px__jit_type type) {
  do {
    PX_SCOPED(px_tensor) value = NULL;
    variable *made;
    px__jit_token name = r->words.word;
    PX_TRY(add_variable(r, name, type, &made));
    px__tokens_next(&r->words);
    if (px__token_is(&r->words.word, "["))
      return px__tokens_fail(&r->words, PX_UNIMPLEMENTED, "unsupported array");
    if (!px__tokens_take(&r->words, "=")) continue;
    PX_TRY(expression(r, &value));
    PX_TRY(assign(r, made, &value));
  } while (px__tokens_take(&r->words, ","));
  return px__tokens_expect(&r->words, ";");
}

// name = expression; or name += expression;
static px_status assignment(run *r) {
  PX_SCOPED(px_tensor) value = NULL;
  PX_SCOPED(px_tensor) old = NULL;
  variable *to = find_variable(r->frame, &r->words.word);
  if (!to) return px__tokens_fail(&r->words, PX_RUNTIME, "unknown variable");
  px__tokens_next(&r->words);
  px__jit_token sign = r->words.word;
  int with = -1;
  for (int i = 0; i < BINARIES; i++) {
    size_t n = strlen(binaries[i].sign);
    if ((size_t)sign.length == n + 1 && sign.at[n] == '=' && binaries[i].rule != COMPARES &&
        memcmp(sign.at, binaries[i].sign, n) == 0)
      with = i;
  }
  if (with < 0 && !px__token_is(&sign, "=")) return px__tokens_expect(&r->words, "=");
  px__tokens_next(&r->words);
  PX_TRY(expression(r, &value));
  if (with >= 0) {
    PX_CHECK(to->value, PX_RUNTIME, "%.*s is used before assignment", to->name.length, to->name.at);
    old = px_retain(to->value);
    PX_TRY(operate(with, &old, &value));
    set(&value, PX_MOVE(old));
  }
  PX_TRY(assign(r, to, &value));
  return px__tokens_expect(&r->words, ";");
}

static px_status return_statement(run *r) {
  PX_SCOPED(px_tensor) value = NULL;
  frame *f = r->frame;
  if (px__tokens_take(&r->words, ";")) {
    f->over = true;
    return PX_OK;
  }
  px__tokens returns = r->words;
  px__jit_type type;
  bool found;
  PX_TRY(expression(r, &value));
  if (!f->function->returns_value)
    return px__tokens_fail(&returns, PX_RUNTIME, "a void function returns");
  px__tokens_at(&returns, f->function->returns);
  PX_TRY(px__tokens_type(&returns, r->element, &type, &found));
  if (!found) return px__tokens_fail(&returns, PX_RUNTIME, "expected a type, not");
  PX_TRY(to_dtype(&value, type.dtype));
  if (!f->over) {
    PX_TRY(merge_old(r, f->given, &value));
    set(&f->given, PX_MOVE(value));
    f->over = true;
  }
  return px__tokens_expect(&r->words, ";");
}

static px_status statement(run *r);

// State after a branch: the elements still running, if changed.
typedef struct path {
  px_tensor *live;  // owned
  bool over, changed;
} path;
static void release_path(path *p) { px_release(p->live); }

// Runs a statement with the mask added to `live`.
static px_status branch(run *r, const px_tensor *mask, path *left) {
  frame *f = r->frame;
  px_tensor *before = f->live, *masked = NULL;
  if (before)
    PX_TRY(px_logical_and(&masked, before, mask));
  else
    masked = px_retain(mask);
  f->live = masked;
  px_status status = statement(r);
  *left = (path){f->live, f->over, f->over || f->live != masked};
  f->live = before;
  return status;
}
// Continues with the elements still running after either branch.
static px_status join(frame *f, const path *yes, const path *no) {
  px_tensor *made = NULL;
  f->over = yes->over && no->over;
  if (f->over || (!yes->changed && !no->changed)) return PX_OK;
  if (yes->over || no->over)
    made = px_retain(yes->over ? no->live : yes->live);
  else
    PX_TRY(px_logical_or(&made, yes->live, no->live));
  set(&f->live, made);
  return PX_OK;
}
// if (mask) statement else statement
static px_status if_statement(run *r) {
  static const char *const nothing = ";";
  PX_SCOPED(px_tensor) mask = NULL;
  PX_SCOPED(px_tensor) other = NULL;
  __attribute__((cleanup(release_path))) path yes = {0};
  __attribute__((cleanup(release_path))) path no = {0};
  frame *f = r->frame;
  bool over = f->over;
  (void)px__tokens_take(&r->words, "constexpr");
  PX_TRY(px__tokens_expect(&r->words, "("));
  PX_TRY(expression(r, &mask));
  PX_TRY(px__tokens_expect(&r->words, ")"));
  PX_TRY(to_bool(&mask));
  PX_TRY(px_logical_not(&other, mask));
  PX_TRY(branch(r, mask, &yes));
  f->over = over;
  px__tokens after = r->words;
  bool has_else = px__tokens_take(&r->words, "else");
  if (!has_else) px__tokens_at(&r->words, nothing);
  PX_TRY(branch(r, other, &no));
  if (!has_else) r->words = after;
  return join(f, &yes, &no);
}

static px_status block(run *r) {
  int count = r->frame->count;
  while (!px__tokens_take(&r->words, "}")) PX_TRY(statement(r));
  release_variables(r->frame, count);
  return PX_OK;
}

static px_status statement_inside(run *r, px_tensor **unused) {
  static const char *const unsupported[] = {"for",  "while", "do",    "switch",
                                            "goto", "using", "struct"};
  px__tokens *w = &r->words;
  px__jit_type type;
  bool found;
  (void)unused;
  if (px__tokens_take(w, "{")) return block(r);
  if (px__tokens_take(w, ";")) return PX_OK;
  if (px__tokens_take(w, "if")) return if_statement(r);
  if (px__tokens_take(w, "return")) return return_statement(r);
  for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++)
    if (px__token_is(&w->word, unsupported[i]))
      return px__tokens_fail(w, PX_UNIMPLEMENTED, "unsupported statement");
  PX_TRY(px__tokens_type(w, r->element, &type, &found));
  return found ? declaration(r, type) : assignment(r);
}
static px_status statement(run *r) { return nested(r, statement_inside, NULL); }

// ---- calls

// Binds the parameters. T& parameters are outputs.
static px_status bind(run *r, const values *args, variable **outs, int out_count) {
  px__tokens *w = &r->words;
  int given = 0, references = 0;
  px__tokens_at(w, r->frame->function->params);
  PX_TRY(px__tokens_expect(w, "("));
  while (!px__token_is(&w->word, ")")) {
    px__jit_type type;
    bool found;
    variable *made;
    PX_TRY(px__tokens_type(w, r->element, &type, &found));
    if (!found) return px__tokens_fail(w, PX_RUNTIME, "expected a type, not");
    PX_TRY(add_variable(r, w->word, type, &made));
    px__tokens_next(w);
    if (type.out) {
      if (references < out_count) outs[references] = made;
      references++;
    } else if (given++ < args->count) {
      made->value = px_retain(args->items[given - 1]);
      PX_TRY(to_dtype(&made->value, type.dtype));
    }
    if (!px__tokens_take(w, ",")) break;
  }
  px__jit_token name = r->frame->function->name;
  PX_CHECK(given == args->count, PX_RUNTIME, "%.*s takes %d arguments, but %d were given",
           name.length, name.at, given, args->count);
  PX_CHECK(references == out_count, PX_RUNTIME, "%.*s has %d reference parameters, expected %d",
           name.length, name.at, references, out_count);
  return px__tokens_expect(w, ")");
}
// Calls a function of the code. Returns its result, or the values of its last out_count parameters.
static px_status call_function(run *r, const px__jit_function *function, const values *args,
                               px_tensor **results, int out_count) {
  __attribute__((cleanup(release_frame))) frame f = {.function = function};
  variable *outs[PX_JIT_ARGS];
  px__tokens words = r->words;
  frame *before = r->frame;
  PX_CHECK(r->depth < MAX_CALL_DEPTH, PX_RECURSION, "%.*s: calls are nested more than %d deep",
           function->name.length, function->name.at, MAX_CALL_DEPTH);
  r->depth++, r->frame = &f, r->words.function = function;
  PX_TRY(bind(r, args, outs, out_count));
  PX_TRY(px__tokens_expect(&r->words, "{"));
  // Variables of the body follow the parameters. block() removes the former only.
  PX_TRY(block(r));
  r->depth--, r->frame = before, r->words = words;
  PX_CHECK(out_count || f.given, PX_RUNTIME, "%.*s returns nothing", function->name.length,
           function->name.at);
  if (!out_count) results[0] = PX_MOVE(f.given);
  for (int i = 0; i < out_count; i++)
    PX_CHECK(outs[i]->value, PX_RUNTIME, "%.*s does not assign %.*s", function->name.length,
             function->name.at, outs[i]->name.length, outs[i]->name.at);
  for (int i = 0; i < out_count; i++) results[i] = PX_MOVE(outs[i]->value);
  return PX_OK;
}

static px_status arguments(run *r, values *args) {
  while (!px__tokens_take(&r->words, ")")) {
    PX_CHECK(args->count < PX_JIT_ARGS, PX_RUNTIME, "a function takes at most %d arguments",
             PX_JIT_ARGS);
    args->items[args->count] = NULL;
    PX_TRY(expression(r, &args->items[args->count]));
    args->count++;
    if (!px__tokens_take(&r->words, ",") && !px__token_is(&r->words.word, ")"))
      return px__tokens_expect(&r->words, ")");
  }
  return PX_OK;
}
// name(arguments). `at` is the position of the name.
static px_status call_by_name(run *r, const px__tokens *at, px_tensor **out) {
  __attribute__((cleanup(release_values))) values args = {.count = 0};
  const px__jit_code *code = r->words.code;
  PX_TRY(arguments(r, &args));
  for (int i = code->count; i-- > 0;)
    if (px__token_same(&code->functions[i].name, &at->word))
      return call_function(r, &code->functions[i], &args, out, 0);
  return call_math(at, out, &args);
}

// ---- expressions

static px_status number(run *r, px_tensor **out) {
  px__jit_token word = r->words.word;
  char text[64], *end;
  bool hex = word.length > 1 && (word.at[1] == 'x' || word.at[1] == 'X');
  snprintf(text, sizeof text, "%.*s", word.length, word.at);
  bool is_int = !text[strcspn(text, hex ? "." : ".eEfF")];
  px_scalar value = is_int ? px_int(strtoll(text, &end, 0)) : px_float(strtod(text, &end));
  if (end[strspn(end, "fFlLuU")] || word.length >= (int)sizeof text)
    return px__tokens_fail(&r->words, PX_RUNTIME, "expected a number, not");
  px__tokens_next(&r->words);
  return px_tensor_from_scalar(out, value);
}
static bool constant(const px__jit_token *word, px_scalar *value) {
  bool yes = px__token_is(word, "true");
  *value = px_bool(yes);
  if (yes || px__token_is(word, "false")) return true;
  for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
    if (!px__token_is(word, constants[i].name)) continue;
    *value = px_float(constants[i].value);
    return true;
  }
  return false;
}
// Operand of T(...) and static_cast<T>(...).
static px_status cast(run *r, px_dtype dtype, px_tensor **out) {
  PX_TRY(px__tokens_expect(&r->words, "("));
  PX_TRY(expression(r, out));
  PX_TRY(px__tokens_expect(&r->words, ")"));
  return to_dtype(out, dtype);
}
// A variable, a constant, or a call: sin, ::sin, std::sin, f<T>.
static px_status named(run *r, px_tensor **out) {
  px__tokens *w = &r->words;
  px_scalar value;
  px__jit_type type;
  bool found;
  if ((px__tokens_take(w, "std") || px__tokens_take(w, "c10")) && !px__token_is(&w->word, "::"))
    return px__tokens_expect(w, "::");
  (void)px__tokens_take(w, "::");
  px__tokens at = *w;
  variable *v = find_variable(r->frame, &w->word);
  px__tokens_next(w);
  if (px__token_is(&w->word, "<") && !v) {  // f<T>(...)
    px__tokens template = *w;
    px__tokens_next(&template);
    PX_TRY(px__tokens_type(&template, r->element, &type, &found));
    if (found && px__tokens_take(&template, ">")) *w = template;
  }
  if (px__tokens_take(w, "(")) return call_by_name(r, &at, out);
  if (constant(&at.word, &value)) return px_tensor_from_scalar(out, value);
  if (!v) return px__tokens_fail(&at, PX_RUNTIME, "unknown variable");
  if (!v->value) return px__tokens_fail(&at, PX_RUNTIME, "use before assignment of");
  *out = px_retain(v->value);
  return PX_OK;
}

static px_status unary(run *r, px_tensor **out);
static px_status with_op(run *r, const char *name, bool arithmetic, px_tensor **out) {
  PX_SCOPED(px_tensor) value = NULL;
  PX_TRY(unary(r, &value));
  if (arithmetic) PX_TRY(promote_bool(&value));
  if (name) return op(name, out, value, NULL);
  *out = PX_MOVE(value);
  return PX_OK;
}
// (T)x, or (x).
static px_status parenthesis(run *r, px_tensor **out) {
  px__jit_type type;
  bool found;
  px__tokens lookahead = r->words;
  PX_TRY(px__tokens_type(&lookahead, r->element, &type, &found));
  if (found && px__tokens_take(&lookahead, ")")) {
    r->words = lookahead;
    PX_TRY(unary(r, out));
    return to_dtype(out, type.dtype);
  }
  PX_TRY(expression(r, out));
  return px__tokens_expect(&r->words, ")");
}
static px_status unary_inside(run *r, px_tensor **out) {
  px__tokens *w = &r->words;
  px__jit_type type;
  bool found;
  if (px__tokens_take(w, "-")) return with_op(r, "neg", true, out);
  if (px__tokens_take(w, "+")) return with_op(r, NULL, true, out);
  if (px__tokens_take(w, "!")) return with_op(r, "logical_not", false, out);
  if (px__tokens_take(w, "~")) return with_op(r, "bitwise_not", true, out);
  if (px__tokens_take(w, "(")) return parenthesis(r, out);
  if (w->word.kind == PX__TOKEN_NUMBER) return number(r, out);
  if (px__tokens_take(w, "static_cast")) {
    PX_TRY(px__tokens_expect(w, "<"));
    PX_TRY(px__tokens_type(w, r->element, &type, &found));
    if (!found) return px__tokens_fail(w, PX_RUNTIME, "expected a type, not");
    PX_TRY(px__tokens_expect(w, ">"));
    return cast(r, type.dtype, out);
  }
  PX_TRY(px__tokens_type(w, r->element, &type, &found));
  if (found) return cast(r, type.dtype, out);
  if (w->word.kind == PX__TOKEN_NAME || px__token_is(&w->word, "::")) return named(r, out);
  return px__tokens_fail(w, PX_RUNTIME, "expected a value, not");
}
static px_status unary(run *r, px_tensor **out) { return nested(r, unary_inside, out); }

// The next binary operator with at least this precedence; -1 if there is none.
static int next_binary(const run *r, int level) {
  for (int i = 0; i < BINARIES; i++)
    if (px__token_is(&r->words.word, binaries[i].sign) && binaries[i].level >= level) return i;
  return -1;
}
static px_status binary(run *r, int level, px_tensor **out) {
  PX_SCOPED(px_tensor) a = NULL;
  PX_TRY(unary(r, &a));
  for (int i; (i = next_binary(r, level)) >= 0;) {
    PX_SCOPED(px_tensor) b = NULL;
    px__tokens_next(&r->words);
    PX_TRY(binary(r, binaries[i].level + 1, &b));
    PX_TRY(operate(i, &a, &b));
  }
  *out = PX_MOVE(a);
  return PX_OK;
}
// c ? a : b, the only operator of lower precedence.
static px_status expression_inside(run *r, px_tensor **out) {
  PX_SCOPED(px_tensor) mask = NULL;
  PX_SCOPED(px_tensor) yes = NULL;
  PX_SCOPED(px_tensor) no = NULL;
  PX_TRY(binary(r, 1, &mask));
  if (!px__tokens_take(&r->words, "?")) {
    *out = PX_MOVE(mask);
    return PX_OK;
  }
  PX_TRY(to_bool(&mask));
  PX_TRY(expression(r, &yes));
  PX_TRY(px__tokens_expect(&r->words, ":"));
  PX_TRY(expression(r, &no));
  return px_where(out, mask, yes, no);
}
static px_status expression(run *r, px_tensor **out) { return nested(r, expression_inside, out); }

// ---- the entry point

// Common form of all results.
typedef struct shape {
  int ndim;
  int64_t sizes[PX_MAX_DIMS];
  px_dtype dtype;
  px_device device;
} shape;

static px_status shape_of(shape *s, px_tensor *const *args, int count) {
  bool found = false;
  *s = (shape){.dtype = PX_DTYPE_NONE, .device = px_cpu()};
  PX_TRY(px__promote_tensors(&s->dtype, args, count));
  for (int i = 0; i < count; i++) {
    if (px_tensor_is_wrapped(args[i])) continue;
    found = true;
    if (px_tensor_device(args[i]).type != PX_CPU) s->device = px_tensor_device(args[i]);
    int64_t sizes[PX_MAX_DIMS];
    int ndim = s->ndim;
    memcpy(sizes, s->sizes, sizeof sizes);
    PX_TRY(px__broadcast(&s->ndim, s->sizes, ndim, sizes, px_tensor_ndim(args[i]),
                         px_tensor_sizes(args[i])));
  }
  PX_CHECK(found, PX_RUNTIME, "jiterator needs a tensor among its arguments");
  return PX_OK;
}
// Converts a result and gives it its own memory, not shared with arguments or other results.
static px_status finish(px_tensor **result, const shape *s, px_tensor *const *args, int count,
                        px_tensor *const *others, int other_count) {
  px_tensor *made = NULL;
  PX_TRY(px_to(&made, *result, s->dtype, s->device, false, false));
  set(result, made);
  bool shared = false;
  for (int i = 0; i < count; i++)
    shared |= px_tensor_storage(args[i]) == px_tensor_storage(*result);
  for (int i = 0; i < other_count; i++)
    shared |= px_tensor_storage(others[i]) == px_tensor_storage(*result);
  bool has_result_size = px_tensor_has_sizes(*result, s->ndim, s->sizes);
  if (!shared && has_result_size) return PX_OK;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_TRY(px_expand(&wide, *result, s->sizes, s->ndim));
  PX_TRY(px_clone(&made, wide, has_result_size ? NULL : "contiguous_format"));
  set(result, made);
  return PX_OK;
}

// Detaches the arguments from autograd.
static px_status detach_all(values *to, px_tensor *const *args, int count) {
  for (; to->count < count; to->count++) {
    px_tensor *t = args[to->count];
    if (px_tensor_is_wrapped(t))
      to->items[to->count] = px_retain(t);
    else
      PX_TRY(px_tensor_detach(&to->items[to->count], t));
  }
  return PX_OK;
}

px_status px_jit_call(px_tensor **results, int result_count, const char *code,
                      px_tensor *const *args, int count) {
  __attribute__((cleanup(release_values))) values inputs = {.count = 0};
  __attribute__((cleanup(release_values))) values made = {.count = 0};
  px__jit_code read;
  shape s;
  PX_GIVEN(results);
  PX_GIVEN(code);
  PX_GIVEN_EACH(args, count);
  PX_CHECK(count <= PX_JIT_ARGS && result_count >= 1 && result_count <= PX_JIT_ARGS, PX_VALUE,
           "jiterator supports up to %d arguments and 1 to %d results", PX_JIT_ARGS, PX_JIT_ARGS);
  PX_TRY(px__jit_read(&read, code));
  PX_TRY(shape_of(&s, args, count));
  PX_TRY(detach_all(&inputs, args, count));
  run r = {.words.code = &read, .element = s.dtype};
  const px__jit_function *last = &read.functions[read.count - 1];
  bool by_reference = !last->returns_value;
  PX_CHECK(by_reference || result_count == 1, PX_RUNTIME,
           "Return by value only works for single output.");
  PX_TRY(call_function(&r, last, &inputs, made.items, by_reference ? result_count : 0));
  made.count = result_count;
  for (int i = 0; i < result_count; i++)
    PX_TRY(finish(&made.items[i], &s, inputs.items, count, made.items, i));
  memcpy(results, made.items, sizeof *results * (size_t)result_count);
  made.count = 0;
  return PX_OK;
}
