// SPDX-License-Identifier: Apache-2.0
// The generator: errors of tables with file, line and cause, and its output for valid tables. Runs
// the generator of the build (OPGEN, or build/opgen).
#include "test.h"

static char text[65536];
static int status;

// Runs opgen --show NAME on a table of these lines. `text` receives the whole output.
static const char *show(const char *name, const char *table) {
  char path[] = "/tmp/opgen_test_XXXXXX", command[256];
  int fd = mkstemp(path);
  CHECK(fd >= 0 && write(fd, table, strlen(table)) == (ssize_t)strlen(table));
  close(fd);
  const char *opgen = getenv("OPGEN");
  snprintf(command, sizeof command, "%s --show %s %s 2>&1", opgen ? opgen : "build/opgen", name,
           path);
  if (access(opgen ? opgen : "build/opgen", X_OK)) SKIP("no generator at build/opgen");
  FILE *pipe = popen(command, "r");
  CHECK(pipe != NULL);
  text[fread(text, 1, sizeof text - 1, pipe)] = 0;
  status = pclose(pipe);
  unlink(path);
  return text;
}
// The table is refused with this message after the file name.
#define REFUSED(table, message) \
  do { \
    show("x", table); \
    CHECK(WEXITSTATUS(status) == 1); \
    const char *said_ = strchr(text, ':') ? strchr(text, ':') + 1 : text; \
    CHECK_TEXT(said_, message "\n"); \
  } while (0)
#define OP "op x(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor\n"
#define GOOD OP "  kind pointwise promote\n  expr self + other * alpha\n  doc Adds.\n"

PX_TEST(unknown_names_in_formulas) {
  REFUSED(GOOD "  grad self = grad * othr\n", "5:22: unknown name 'othr' in formula of x");
  REFUSED(GOOD "  grad self = nosuch(grad)\n", "5:15: unknown op 'nosuch' in formula of x");
  REFUSED(GOOD "  grad slf = grad\n", "5:8: grad of 'slf', which is not a parameter of x");
  REFUSED(GOOD "  grad self = x(grad)\n", "5:15: x requires 'other' in formula of x");
  REFUSED(GOOD "  grad self = x(grad, other, beta=2)\n",
          "5:15: x has no parameter 'beta' in formula of x");
  REFUSED(GOOD "  grad self = x(grad, other, alpha=self)\n",
          "5:15: 'alpha' cannot be a tensor in formula of x");
}
PX_TEST(broken_formulas) {
  REFUSED(GOOD "  grad self = (grad\n", "5:20: expected ')' before '' in formula `(grad`");
  REFUSED(GOOD "  grad self = grad grad\n", "5:20: unexpected 'grad' in formula `grad grad`");
  REFUSED(GOOD "  grad self = sizes(grad * 2)\n",
          "5:30: sizes() takes one name in formula `sizes(grad * 2)`");
  REFUSED(GOOD "  grad self = 3\n", "5:15: '3' is not a tensor in formula of x");
  REFUSED(GOOD "  grad self = grad\n  grad * = f\n",
          "5:15: op x has both `grad *` and `grad self`");
}
PX_TEST(bad_expressions) {
  REFUSED(OP "  kind pointwise\n  doc D.\n  expr self + beta\n",
          "4: unknown name 'beta' in expr of x");
  REFUSED(OP "  kind pointwise\n  doc D.\n  expr erfx(self)\n",
          "4: unknown function 'erfx' in expr of x");
  REFUSED(OP "  kind pointwise\n  doc D.\n  expr exp(self, other)\n",
          "4: exp takes 1 arguments, not 2, in expr of x");
}
PX_TEST(bad_entries) {
  REFUSED("op x(Tensr self) -> Tensor\n  kind view\n", "1: unknown type 'Tensr'");
  REFUSED("op x(Tensor self -> Tensor\n", "1: the schema has no closing parenthesis");
  REFUSED("op x(Tensor self) -> Tensr\n  kind view\n", "1: unknown result 'Tensr'");
  REFUSED("op x(Tensor self, int self) -> Tensor\n", "1: parameter 'self' is given twice");
  REFUSED("# a comment\n\nop x(Tensor self) -> Tensor\n  kind viw\n", "4: unknown kind 'viw' of x");
  REFUSED(OP "  kind pointwise quickly\n", "2: unknown word 'quickly' after the kind of x");
  REFUSED(OP "  knd pointwise\n", "2: unknown field 'knd' of x");
  REFUSED(OP "  kind pointwise\n  kind view\n", "3: kind of x is already given at line 2");
  REFUSED(OP "  doc D.\n", "1: op x has no kind");
  REFUSED(OP "  kind pointwise\n  doc D.\n", "1: pointwise op x has no expr");
  REFUSED("op x(Tensor self) -> Tensor\n  kind view\n  doc D.\n", "1: op x has no shape");
  REFUSED("  kind view\n", "1: a field outside of an entry");
  REFUSED(GOOD "  dtypes floating\n", "5: unknown dtypes 'floating' of x");
  REFUSED("op x(Tensor self, int n=abc) -> Tensor\n  kind view\n  run f\n  shape any\n  doc D.\n",
          "1: bad default 'abc' of n in op x");
}

#define KERNEL(schema, fields) "op x(" schema "\n  kind kernel\n  doc D.\n  shape any\n" fields
#define ONE(fields) KERNEL("Tensor self, int dim, Tensor? other) -> Tensor", fields)
#define TWO(fields) KERNEL("Tensor self, int[] size) -> (Tensor a, Tensor b)", fields)
PX_TEST(bad_results) {
  REFUSED(ONE("  result sizes(self)\n"), "5: expected `result NAMES = SIZES : DTYPE`");
  REFUSED(ONE("  result sizes(slf) : self\n"),
          "5: 'slf' in a line of x is neither a tensor nor a list of sizes");
  REFUSED(ONE("  result sizes(dim) : self\n"),
          "5: 'dim' in a line of x is neither a tensor nor a list of sizes");
  REFUSED(ONE("  result size : self\n"),
          "5: 'size' in a line of x is neither a tensor nor a list of sizes");
  REFUSED(ONE("  result along(self, dim) : self\n"),
          "5: unknown shape 'along' of 2 arguments in a line of x");
  REFUSED(ONE("  result [dm] : self\n"), "5: unknown name 'dm' in a line of x");
  REFUSED(ONE("  result [self] : self\n"), "5: 'self' is not an integer");
  REFUSED(ONE("  result [dim / 2] : self\n"), "5: '/' is not an integer");
  REFUSED(ONE("  result [dim] : dim\n"), "5: 'dim' has no dtype in a line of x");
  REFUSED(ONE("  result [] : halved(self)\n"), "5: 'halved' is not a dtype in a line of x");
  REFUSED(ONE("  result [] : self or other\n"),
          "5: 'or' in a dtype of x requires an optional parameter on its left side");
  REFUSED(ONE("  result out = [] : self\n"), "5: x has no result 'out'");
  REFUSED(ONE("  result [] : self, int64\n"), "5: 1 results of x have 2 dtypes");
  REFUSED(ONE("  result [] : self\n  result [] : self\n"), "6: a result of x is already given");
  REFUSED(TWO("  result [] : self\n"), "5: a result of x requires a name: there are several");
  REFUSED(TWO("  result a, a, b = [] : self\n"), "5: a result of x is named twice");
  REFUSED(TWO("  result b = [] : self\n"), "1: a result of x has no result line");
  REFUSED(TWO("  result a, b = [] : self\n  result a = [] : self\n"),
          "6: a result of x is already given");
  REFUSED(ONE("  result [] : self\n  draws 4\n"),
          "6: expected `draws NUMBER by NUMBER` or `draws NUMBER of NUMBER words` in an op with a "
          "generator");
  REFUSED(ONE("  draws 4 by 4\n"), "1: draws of x requires a result line");
  REFUSED(ONE("  check device\n"), "5: check device of x requires a result line");
  REFUSED(ONE("  check dm of self\n"), "5: x has no int 'dm', or no tensor or list 'self'");
  REFUSED(GOOD "  result [] : self\n", "5: result of x, which is not a kernel op");
  REFUSED(GOOD "  result : int32\n", "5: expected in x `result : bool`, `int64` or `real`");
  REFUSED(ONE("  result : bool\n"), "5: result of x has no sizes");
  REFUSED("op x(Tensor self) -> Tensor\n  kind kernel\n  doc D.\n  result [1] : self\n",
          "1: op x has no shape");
}
PX_TEST(results_generate_run_functions) {
  show("x",
       ONE("  check dim of self\n  check device\n  check ndim(self) > 1 : RUNTIME \"few\"\n"
           "  run f\n"
           "  result [*leading(self, 1), 2 * dim] if dim > 0 else [] : float(other or self)\n"));
  CHECK_EQ(status, 0);
  CHECK(strstr(text, ".run = make_x,"));
  const char *early = strstr(text, "PX_TRY(px__check_dim(a[0], px_value_int(a[1])));");
  const char *device = strstr(text, "PX_TRY(px__call_same_device(call));");
  const char *late = strstr(text, "\"few\""), *run = strstr(text, "PX_TRY(px__run_f(call));");
  CHECK(early && early < device && device < late && late < run);
  CHECK(strstr(text, "px__shape_add(&s, px__product(2, px_value_int(a[1])));"));
  CHECK(strstr(text, "px__refuse_dtype(call->op, d, call->device);"));
  show("x",
       TWO("  result b = sizes(size) : int64\n  result a = rows(self, len(size)) : acc(self)\n"));
  CHECK(strstr(text, "return px__shape_result(call, 0, x, d);"));
  CHECK(strstr(text, "x = px__sizes_of(a[1]);"));
  CHECK(strstr(text, "PX_TRY(px__shape_result(call, 1, x, d));"));
}
PX_TEST(shapes_are_documented_from_results) {
  show("x", "op x(Tensor self) -> Tensor\n  kind kernel\n  doc D.\n  result sizes(self) : self\n");
  CHECK(strstr(text, "Shapes: any; the result has the shape of self."));
  show("x",
       "op x(Tensor self, int dim, bool keepdim) -> (Tensor a, Tensor b)\n  kind kernel\n"
       "  doc D.\n  result a, b = reduced(self, dim, keepdim) : self, int64\n");
  CHECK(strstr(text, "any; a and b omit the dimension dim, or keep it with size 1 if keepdim"));
}

// Conditions as worded in the header, the page and the docstring.
PX_TEST(checks_are_documented) {
  static const char *const rows[][2] = {
      {"alpha >= 0", "unless alpha >= 0"},
      {"0 <= alpha < 1", "unless 0 <= alpha < 1"},
      {"not isfloat(alpha) or isfloat(self) or isfloat(other)",
       "if alpha is floating point, unless self or other is floating point"},
      {"not isbool(self) and not isbool(other)", "if self or other is bool"},
      {"not isbool(self) or not isbool(other)", "if self and other are bool"},
      {"same(self, other) and same_dtype(self, other)",
       "unless self has the shape of other and the dtype of other"},
      {"alpha is None or ndim(self) == 1 and numel(self) == numel(other)",
       "if alpha is given, unless self has 1 dimension and as many elements as other"},
      {"2 <= ndim(self) <= 3 and ndim(other) >= 2",
       "unless self has 2 or 3 dimensions and other has at least 2 dimensions"},
      {"numel(self) > 0 and ndim(other) != 0", "if self is empty or other has no dimensions"},
      {"ndim(self) != 2 or not ndim(other) < 3",
       "if self has 2 dimensions and other has fewer than 3 dimensions"},
      {"size(self, 0) % 2 == 0 or (isint64(self) and isint64(other))",
       "unless self.size(0) % 2 == 0 or (self and other are int64)"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char table[512], words[256];
    snprintf(table, sizeof table, GOOD "  check %s : VALUE \"no\"\n", rows[i][0]);
    snprintf(words, sizeof words, "PX_VALUE %s.", rows[i][1]);
    CHECK(strstr(show("x", table), words));
  }
}

#define LAYER "layer X(int size=1)\n"
PX_TEST(bad_entries_of_other_kinds) {
  REFUSED("layr X()\n",
          "1: expected `op`, `formula`, `kernel`, `helper` or `layer`, not 'layr X()'");
  REFUSED("layer X\n", "1: expected `layer NAME(PARAMETERS)`");
  REFUSED("layer X() -> Tensor\n", "1: unexpected '-> Tensor' after the parameters of X");
  REFUSED("layer X(int a, int a)\n", "1: parameter 'a' is given twice");
  REFUSED(LAYER "  forwrad input\n", "2: unknown field 'forwrad' of X");
  REFUSED(LAYER "  forward\n", "2:3: field 'forward' of X is empty");
  REFUSED(LAYER "  doc D.\n  doc E.\n", "3: doc of X is already given at line 2");
  REFUSED(LAYER "  forward input\n", "1: layer X has no doc");
}
#define OPTIMIZER "optimizer X(float lr=0.1)\n  argument lr the rate\n  paper P\n  doc D.\n"
PX_TEST(bad_optimizers) {
  REFUSED("optimizer X(float lr)\n  paper P\n  doc D.\n",
          "1: option 'lr' of X is not a float or bool with a default");
  REFUSED("optimizer X(float lr=0.1)\n  doc D.\n", "1: optimizer X has no paper");
  REFUSED(OPTIMIZER "  set param = param - lr * grd\n", "5: unknown name 'grd' in a line of X");
  REFUSED(OPTIMIZER "  set avg = grad\n", "5: 'avg' cannot be set: it is not a state");
  REFUSED(OPTIMIZER "  let lr = grad\n", "5:7: 'lr' cannot be set here, or is already set");
  REFUSED(OPTIMIZER "  number n = grad\n", "5: unknown name 'grad' in a line of X");
  REFUSED(OPTIMIZER "  state avg = grad\n", "5: unknown name 'grad' in a line of X");
  REFUSED(OPTIMIZER "  state avg from 0\n",
          "5: expected `= NUMBER` or `if CONDITION`, not 'from 0'");
  REFUSED(OPTIMIZER "  next step = 1\n", "5: 'step' cannot be set: it is not a state");
  REFUSED(OPTIMIZER "  tuple ls = lr, beta\n", "5: expected `tuple NAME = OPTION, OPTION`");
  REFUSED(OPTIMIZER "  check lr > 0\n", "5: expected `check CONDITION : CODE \"text\"`");
  REFUSED(OPTIMIZER "  set param = relu(grad)\n", "5: unknown function 'relu' of 1 arguments here");
  REFUSED(OPTIMIZER "  extends Y\n", "5: expected `NAME, OPTION=VALUE`");
  REFUSED("loop X(float lr)\n  paper P\n  doc D.\n", "1: loop X has no sample");
  REFUSED(OPTIMIZER "  set param = grad // 2\n", "5: '//' is not allowed here");
}
PX_TEST(schedules) {
  REFUSED("schedule X(int n=1)\n  next lr * m\n  argument n N.\n  doc D.\n",
          "2: unknown name 'm' in a formula of X");
  REFUSED("schedule X(str w='a')\n  words w a, b\n  argument w W.\n  doc D.\n",
          "2: expected `words NAME = WORD, WORD : \"text with {}\"`");
  show("X", "schedule X(int n=1)\n  next lr * n if epoch > 0 else lr\n  argument n N.\n  doc D.\n");
  CHECK(strstr(text, "return ((epoch > 0.0) ? (lr * n) : lr);"));
  CHECK(strstr(text, "self._make(optimizer, last_epoch, n)"));
}
PX_TEST(an_optimizer_generates_kernels_and_classes) {
  show("X", OPTIMIZER
       "  state avg if lr > 1\n  set avg = max(avg, grad)\n"
       "  set param = param - lr * (avg if lr > 1 else grad)\n  sample lr=2.0\n");
  CHECK_EQ(status, 0);
  CHECK(strstr(text, "#define PX_X_NEW(out_, parameters_, count_, ...)"));
  CHECK(strstr(text, "if (k == 0) return (lr > 1.0);"));
  CHECK(strstr(text, "float avg = has >> 1 & 1 ? at_avg[i] : 0;"));
  CHECK(strstr(text, "avg = k_max_f32(avg, grad);"));
  CHECK(strstr(text, "class X(KindOptimizer):"));
  CHECK(strstr(text, "    lr = number(options[\"lr\"])\n    avg = state.get(\"avg\", 0.0)\n"));
  CHECK(strstr(text, "choose((lr > 1), lambda: avg, lambda: grad, param)))\n    new = {}\n"));
  CHECK(strstr(text, "    if (lr > 1):\n        new[\"avg\"] = avg\n    return param, new\n"));
}
#define LAYER_OF(fields) LAYER fields "  doc D.\n  sample ; f(2) -> (2)\n  argument size S.\n"
PX_TEST(bad_layers) {
  REFUSED(LAYER "  forward input\n  doc D.\n", "1: layer X has no sample");
  REFUSED(LAYER_OF(""), "1: layer X has no forward");
  REFUSED(LAYER_OF("  forward input\n  run f\n"), "2:11: layer X has both forward and run");
  REFUSED(LAYER_OF("  forward inptu\n"), "2:11: unknown name 'inptu' in formula of X");
  REFUSED(LAYER_OF("  forward nosuch(input)\n"), "2:11: unknown op 'nosuch' in formula of X");
  REFUSED(LAYER_OF("  forward input\n  check sizes > 0 : VALUE \"s\"\n"),
          "3: unknown name 'sizes' in layer X");
  REFUSED(LAYER_OF("  forward input\n  check size > 0\n"),
          "3: expected `check CONDITION : CODE \"text\"`");
  REFUSED(LAYER_OF("  forward input\n  set site = 1\n"), "3: layer X has no argument 'site'");
  REFUSED(LAYER_OF("  forward input\n  inputs input? other\n"),
          "3: `other` is not allowed in the inputs of X");
  REFUSED(LAYER_OF("  forward input\n  results a[5] b[4]\n"),
          "3: too many tensors in the results of X");
  REFUSED(LAYER_OF("  method call(Tensor x) = f\n"), "2: the first method of X is not forward");
  REFUSED(LAYER_OF("  method forward(Tensor x)\n"), "2: method forward has no function");
  REFUSED(LAYER_OF("  method forward = f\n"), "2: expected `method NAME(PARAMETERS) = FN`");
  REFUSED(LAYER_OF("  forward input\n  child c = Y(size)\n"), "3: unknown layer Y");
  REFUSED(LAYER_OF("  forward input\n  child c Y\n"),
          "3: expected `child NAME = LAYER(ARGUMENTS)`");
  REFUSED(LAYER_OF("  forward input\n  child c = X(sise)\n"), "3: unknown name 'sise' in layer X");
  REFUSED(LAYER_OF("  forward input\n  callable sise\n"), "3: layer X has no argument 'sise'");
  REFUSED(LAYER_OF("  run f\n  each k < size\n  param w{n} [size] = zeros()\n"),
          "4: 'n' in w{n} is not a number of `each`");
  REFUSED(LAYER_OF("  forward input\n  let size\n"), "3:7: expected `let NAME = VALUE`");
  REFUSED(LAYER_OF("  forward input\n  param w [size] = onse()\n"),
          "3: `onse` with 0 arguments is not an initializer");
  REFUSED(LAYER_OF("  forward input\n  param w = ones()\n"), "3: expected `w [SIZES] = START`");
  REFUSED(LAYER_OF("  forward input\n  buffer w\n"),
          "3: buffer w has no sizes, and X has no Tensor of this name");
  REFUSED(LAYER_OF("  forward input\n  like Y\n"), "3: no entry 'Y' in this file for X");
  REFUSED(LAYER "  forward input\n  doc D.\n  sample ; f(2) -> (2)\n",
          "1: no description of argument 'size' of X");
  REFUSED(LAYER "  forward input\n  doc D.\n  sample f(2)\n  argument size S.\n",
          "4: expected `sample ARGUMENTS ; INPUTS -> (SIZES)` of X");
}
PX_TEST(forwards_are_formulas) {
  show("X", GOOD LAYER_OF("  param w [size, 2] = zeros() if size > 1\n"
                          "  forward x(input, x(w, 2), alpha=size) if training else input\n"));
  CHECK_EQ(status, 0);
  CHECK(strstr(text, "if (px__has_tensor(self, \"w\", px_value_int(size) > 1)) {"));
  CHECK(strstr(text,
               "const px_value a[] = {PX_T(inputs[0]), PX_T(px__own(self, 0, \"w\")), "
               "px__argument(self, 0, \"size\"), PX_B(px__training(self))};"));
  CHECK(strstr(text, "px__f_call(&results[0], &px__op_x, a2)"));
  CHECK(strstr(text, "results[0] = px__f_tensor(a[0]);"));
  CHECK(strstr(text, "#define PX_X_NEW(out_, ...)"));
  CHECK(strstr(text, "class X(Module):"));
}
PX_TEST(bad_choices_and_lets) {
  REFUSED(GOOD "  grad self = x(grad, other ** 2)\n",
          "5:23: '**' is not allowed in a formula of x");
  REFUSED(GOOD "  grad self = grad if alpha\n",
          "5:28: expected 'else' before '' in formula `grad if alpha`");
  REFUSED(GOOD "  grad self = grad if alpha < 1 else 0\n",
          "5:38: '0' is not a tensor in formula of x");
  REFUSED(GOOD "  grad self = grad if gamma < 1 else other\n",
          "5:23: unknown name 'gamma' in formula of x");
  REFUSED(GOOD "  grad self = grad if alpha in 1 else other\n",
          "5:34: expected a list after 'in' in formula `grad if alpha in 1 else other`");
  REFUSED(GOOD "  let half\n  grad self = half\n", "5:7: expected `let NAME = FORMULA`");
  REFUSED(GOOD "  let other = grad\n", "5:7: 'other' of x is already a name");
  REFUSED(GOOD "  let a = b\n  let b = grad\n  grad self = a\n",
          "5:11: 'b' is used before its let");
  REFUSED(GOOD "  let a, b = x(grad, other)\n  grad self = a\n",
          "5:14: 'x' does not have 2 results in formula of x");
  REFUSED("formula f(Tensor self) -> Tensor\n" GOOD, "1: formula f has no body");
  REFUSED(GOOD "  grad self = f(grad)\n", "5:15: unknown op 'f' in formula of x");
}
// A let is written once, under the condition of its use.
PX_TEST(lets_are_computed_if_they_are_read) {
  show("x", GOOD
       "  let half = x(grad, other)\n  let n = numel(self) // 2\n"
       "  grad self = half\n  grad other = half if alpha in [1, 2] else x(grad, n)\n");
  CHECK_EQ(status, 0);
  CHECK(strstr(text,
               "const bool c1 = (px_value_float(a[2]) == 1) || "
               "(px_value_float(a[2]) == 2);"));
  CHECK(strstr(text, "if ((((b->needs & 1u)) || ((b->needs & 2u) && c1))) {  // half"));
  CHECK(strstr(text, " = px__quotient(px__numel_of(a[0]), 2);"));
  CHECK(strstr(text, "px__f_release(&t") == NULL);
  show("x", GOOD "  grad self = x(x(grad, other), other)\n");
  CHECK(strstr(text, "px__f_release(&t[0]);"));
}
PX_TEST(lets_are_released_after_their_last_reader) {
  show("x", GOOD
       "  let a = x(grad, other)\n  let b = x(a, a)\n  let c = x(b, other)\n"
       "  grad self = x(c, b)\n");
  CHECK_EQ(status, 0);
  const char *a = strstr(text, "px__f_release(&t[0]);"), *c = strstr(text, "{  // c");
  CHECK(a && c && a > strstr(text, "{  // b") && a < c);
  CHECK(!strstr(text, "px__f_release(&t[1]);"));
}
// Each step of a loop replaces the values of the one before.
PX_TEST(loops_repeat_formulas) {
  show("x", OP
       "  kind composite\n  let s = x(before, other, alpha=k) for k in range(1, ndim(self)) from "
       "before = x(self, other)\n  body s\n  shape any\n  doc D.\n");
  CHECK_EQ(status, 0);
  CHECK(strstr(text,
               "    for (int64_t i2 = 1; i2 < e2; i2++) {\n"
               "      const px_value a3[] = {PX_T(t[0]), a[1], PX_F_INT(i2)};\n"
               "      PX_F_TRY(px__f_call(&t[1], &px__op_x, a3));\n"
               "      px__f_release(&t[0]);\n      t[0] = PX_MOVE(t[1]);\n    }\n"));
  REFUSED(OP
          "  kind composite\n  let s = x(b, b) for k in range(2) from b = self\n  body s\n"
          "  shape any\n  doc D.\n",
          "3:36: expected `for NAME in range(A, B) from NAME = START` in formula `x(b, b) for k in "
          "range(2) from b = self`");
  REFUSED(OP
          "  kind composite\n  let s = x(b, k) for k in range(1, 2) from b = self\n  body b\n"
          "  shape any\n  doc D.\n",
          "4:8: unknown name 'b' in formula of x");
}
PX_TEST(calls_of_do_lines_precede_the_body) {
  show("x", OP
       "  kind composite inplace\n  let a = x(self, self)\n  let b = x(a, other)\n"
       "  do x_(a, other) if numel(self) > 0\n  body a\n  shape any\n  doc D.\n");
  CHECK_EQ(status, 0);
  CHECK(strstr(text,
               "  {  // do\n    if (c1) {\n"
               "      const px_value a2[] = {PX_T(t[0]), a[1], {0}};\n"
               "      PX_F_TRY(px__f_call_in_place(&t[1], &px__op_x, a2));\n    }\n  }\n"
               "  px__f_release(&t[1]);\n  results[0] = px__f_tensor(PX_T(t[0]));\n"));
  CHECK(!strstr(text, "// b"));
  REFUSED(GOOD "  do x(self, other)\n", "5:6: do of x, which has no body");
}
// Elements are read only where the choice needs them. Checks of lets follow the lets.
PX_TEST(some_reads_elements) {
  show("x", GOOD
       "  let found = some(other)\n"
       "  grad self = x(grad, other) if not recording else grad if found else x(grad, inf)\n");
  CHECK_EQ(status, 0);
  CHECK(strstr(text,
               "  bool n1 = false;\n  if ((b->needs & 1u) && !c1) {  // found\n"
               "    PX_F_TRY(px__any_of_samples(&n1, (a[1]).v.tensor));\n"));
  CHECK(strstr(text, "PX_F_FLOAT((double)INFINITY)"));
  REFUSED(GOOD "  grad self = grad if some(other) else other\n",
          "5:23: unknown function 'some' of 1 arguments in a line of x");
  show("x", OP
       "  kind composite\n  let n = item(other) if ndim(self) == 2 else 7\n"
       "  check n > 0 : VALUE \"n is {n}\"\n  check ndim(self) > 1 : VALUE \"d\"\n"
       "  body x(self, other, alpha=n)\n  shape any\n  doc D.\n");
  CHECK_EQ(status, 0);
  CHECK(strstr(text,
               "  int64_t n1 = 7;\n  if (px__ndim_of(a[0]) == 2) {  // n\n"
               "    PX_F_TRY(px__item_of(&n1, (a[1]).v.tensor));\n  }\n"
               "  PX_CHECK((n1 > 0), PX_VALUE, \"n is %lld\", (long long)n1);\n"));
  show("f",
       "op eye(int n, *, Dtype? dtype=None, Device? device=None) -> Tensor\n  kind composite\n"
       "  run f\n  shape any\n  doc D.\n"
       "formula f(Tensor self, int[]? dims) -> Tensor\n  let size = reduced(self, dims)\n"
       "  body g(eye(2, dtype=bool, device=device(self)), size)\n"
       "formula g(Tensor self, int[] size) -> Tensor\n  body self\n" GOOD);
  CHECK(strstr(text, "PX_DT(PX_BOOL), px__f_device(a[0])"));
  CHECK(strstr(text, "px__shape_kept(&l1, a[0], a[1]);"));
}
PX_TEST(gradients_tested_for_none_are_optional) {
  show("x",
       "op x(Tensor self) -> (Tensor a, Tensor b)\n  kind view\n  run f\n  shape any\n"
       "  doc D.\n  grad self = grad_a if grad_b is None else grad_b\n");
  CHECK_EQ(status, 0);
  CHECK(strstr(text, "if ((b->needs & 1u) && b->grads[0] && (b->grads[1])) {"));
}
PX_TEST(gradients_of_results_are_refused) {
  const char *two =
      "op x(Tensor self) -> (Tensor a, Tensor b)\n  kind view\n  run f\n  shape any\n"
      "  doc D.\n  grad self = grad_a\n  nograd ";
  char table[512];
  snprintf(table, sizeof table, "%sb\n", two);
  show("x", table);
  CHECK(strstr(text,
               "PX_CHECK(!b->grads[1], PX_UNIMPLEMENTED, \"the gradient of x with respect to "
               "its b is not implemented\");"));
  snprintf(table, sizeof table, "%sself\n", two);
  REFUSED(table, "7: x has no result 'self'");
}
PX_TEST(names_of_formulas_are_unique) {
  show("x", "formula x(Tensor self) -> Tensor\n  body self\n" GOOD);
  CHECK(strstr(text, ":1: the name of formula 'x' is taken at "));
  show("x", GOOD
       "formula f(Tensor self) -> Tensor\n  body self\n"
       "formula f(Tensor self) -> Tensor\n  body self\n");
  CHECK(strstr(text, ":7: the name of formula 'f' is taken at "));
}
PX_TEST(formulas_are_functions) {
  show("f",
       "formula f(Tensor self, int[] size, int n=2) -> (Tensor a, Tensor b)\n"
       "  check n > 0 : VALUE \"n is {n}\"\n  body x(self, self), x(self, self, alpha=n)\n" GOOD);
  CHECK_EQ(status, 0);
  CHECK(strstr(
      text,
      "__attribute__((cold)) px_status px__formula_f(px_tensor **results, const px_value *a) {"));
  CHECK(strstr(text, "PX_CHECK((px_value_int(a[2]) > 0), PX_VALUE, \"n is %lld\""));
  CHECK(strstr(text, "results[1] = PX_MOVE("));
}
PX_TEST(arguments_may_be_dtypes_and_chosen_lists) {
  show("f",
       "formula f(Tensor self, int? dim, Dtype? dtype) -> Tensor\n"
       "  let dims = [dim] if dim is not None else others(ndim(self), -1)\n"
       "  body g(self, dims, dtype=float32 if isbool(self) else promoted(dtype or self, self))\n"
       "op g(Tensor self, int[] dim=[], *, Dtype? dtype=None) -> Tensor\n  kind function\n"
       "  shape any\n  doc D.\n");
  CHECK_EQ(status, 0);
  CHECK(strstr(text, "px__shape_others(&l1, px__ndim_of(a[0]), -1);"));
  CHECK(strstr(text,
               "PX_DT((px__is_bool(a[0]) ? PX_FLOAT32 : px_dtype_promote((px__is_dtype(a[2]) ? "
               "(px_dtype)a[2].v.i : px__dtype_of(a[0])), px__dtype_of(a[0]))))"));
}
PX_TEST(bodies_of_lists_and_functions) {
  show("g",
       "op g(Tensor self) -> Tensor[]\n  kind function\n  body [h(self), self]\n  shape any\n"
       "  doc D.\nop h(Tensor self) -> Tensor\n  kind function\n  shape any\n  doc D.\n");
  CHECK_EQ(status, 0);
  CHECK(strstr(text, "px_tensor *const l2[] = {(PX_T(t[0])).v.tensor, (a[0]).v.tensor};"));
  CHECK(strstr(text, "PX_TRY(px_list_new(&call->list, list.v.tensors, list.n));"));
}

PX_TEST(numbers_fold_and_tensors_call_ops) {
  show("x", GOOD "  grad self = x(grad, other, alpha=2 * alpha)\n");
  CHECK_EQ(status, 0);
  CHECK(strstr(text, "px__f_arith('*', PX_F_INT(2), a[2])"));
  CHECK(strstr(text, "PX_F_TRY(px__f_call(&b->out[0], &px__op_x, a1));"));
}
PX_TEST(masks_list_saved_tensors) {
  show("x", "helper spread(Tensor grad, int[] sizes, Tensor like)\n" GOOD
            "  grad self = x(grad, other)\n  grad other = @spread(grad, sizes(self), result)\n");
  CHECK(strstr(text,
               ".grad_mask = 0x3, .save_mask = 0x2, .shape_mask = 0x1, .save_result_mask = 0x1"));
  CHECK(strstr(text, "save_for_x[] = {0x2, 0x10000, 0x0}"));
}
PX_TEST(a_joint_backward_saves_the_listed_tensors) {
  show("x", GOOD "  grad * = f\n");
  CHECK(strstr(text,
               ".grad_mask = 0x3, .save_mask = 0x3, .shape_mask = 0x3, .save_result_mask = 0x1"));
  show("x", GOOD "  grad * = f\n  saves other\n  nograd other\n");
  CHECK(strstr(text,
               ".grad_mask = 0x1, .save_mask = 0x2, .shape_mask = 0x3, .save_result_mask = 0x0"));
}
PX_TEST(forms_follow_the_flags) {
  show("x", OP "  kind pointwise promote inplace out\n  expr self\n  doc D.\n");
  CHECK(strstr(
      text,
      "px_x(px_tensor **out, const px_tensor *self, const px_tensor *other, px_scalar alpha);"));
  CHECK(strstr(text, "px_x_(px_tensor *self, const px_tensor *other, px_scalar alpha);"));
  CHECK(strstr(
      text,
      "px_x_out(px_tensor *out, const px_tensor *self, const px_tensor *other, px_scalar alpha);"));
  CHECK(strstr(
      text,
      "px_x_scalar(px_tensor **out, const px_tensor *self, px_scalar other, px_scalar alpha);"));
}
PX_TEST(long_fields_continue_on_indented_lines) {
  show("x", OP "  kind pointwise\n  expr self +\n      other\n  doc Adds\n      much.\n");
  CHECK_EQ(status, 0);
  CHECK(strstr(text, "// Adds much."));
}

// Returns the files that change if an entry is appended to a table. Names of numbered files end in
// N.
static const char *changed(const char *table, const char *entry) {
  static const char script[] =
      "set -e; export LC_ALL=C; place=$(mktemp -d); trap 'rm -r $place' EXIT\n"
      "write() { (cd $place; mkdir -p $1/phlox/ops $1/hidden $1/run_functions $1/kernel_args "
      "$1/vmap_rules);"
      " $OPGEN $place/$1 $(cd $place && ls -d $place/*/*.op $place/*/*.layer $place/*/*.optim); }\n"
      "cp -r ops layers optim $place; write old; printf '\\n%s' \"$ENTRY\" >>$place/$TABLE; write "
      "new\n"
      "cd $place/old; for f in $(find . -type f | sort); do cmp -s $f ../new/$f || echo $f; done"
      " | sed 's/_[0-9][0-9]*[.]/_N./' 2>&1";
  const char *opgen = getenv("OPGEN");
  if (access("ops/pointwise.op", R_OK) || access(opgen ? opgen : "build/opgen", X_OK))
    SKIP("no tables, or no generator at build/opgen");
  if (!opgen) setenv("OPGEN", "build/opgen", 1);
  setenv("ENTRY", entry, 1), setenv("TABLE", table, 1);
  FILE *pipe = popen(script, "r");
  CHECK(pipe != NULL);
  text[fread(text, 1, sizeof text - 1, pipe)] = 0;
  CHECK_EQ(pclose(pipe), 0);
  if (!opgen) unsetenv("OPGEN");
  return text;
}
PX_TEST(a_new_op_changes_one_file_of_each_kind) {
  CHECK_TEXT(changed("ops/pointwise.op",
                     "op squareplus(Tensor self) -> Tensor\n  kind pointwise float inplace out\n"
                     "  expr (self + sqrt(self * self + 4)) / 2\n  grad self = grad * self\n"
                     "  doc Gives half of self plus a root.\n"),
             "./kernels_cpu_N.c\n./kernels_cpu_table.c\n./kernels_cuda_N.cu\n"
             "./kernels_cuda_rows.c\n./ops.md\n./ops_N.c\n./ops_table.c\n"
             "./phlox/ops/pointwise.h\n./samples.inc\n./typed_calls.inc\n");
}
