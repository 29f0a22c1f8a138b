// SPDX-License-Identifier: Apache-2.0
// User code for one element: all elements get the values that C++ computes. On the CPU and on
// simulated devices.
#include "../faults.h"
#include "ops_help.h"

#define ONE "template <typename T> T f(T x"

// Calls the code with x and y. y may be NULL.
static px_tensor *call(const char *code, px_tensor *x, px_tensor *y) {
  px_tensor *args[] = {x, y}, *out = NULL;
  OK(px_jit_call(&out, 1, code, args, y ? 2 : 1));
  return out;
}
static void fails(const char *code, px_status status, const char *text) {
  PX_SCOPED(px_tensor) x = floats(2, 1., 2.);
  px_tensor *out = NULL;
  FAILS(px_jit_call(&out, 1, code, &x, 1), status, text);
  CHECK(!out);
}

PX_TEST(an_expression_is_computed_for_each_element) {
  PX_SCOPED(px_tensor) x = floats(3, 1., 2., 3.);
  PX_SCOPED(px_tensor) y = floats(3, 4., 5., 6.);
  PX_SCOPED(px_tensor) out = call(ONE ", T y) { return -x + 2 * y - (x < 2 ? 1.5f : x); }", x, y);
  IS(out, 3, 5.5, 6., 6.);
  CHECK(px_tensor_dtype(out) == PX_FLOAT32);
}

PX_TEST(operator_precedence_is_that_of_c) {
  PX_SCOPED(px_tensor) x = longs(2, 7, -7);
  PX_SCOPED(px_tensor)
  out = call(ONE ") { return x / 2 + x % 4 * 10 - (x & 3) + (1 << 2 + 1); }", x, NULL);
  IS(out, 2, 38., -26.);
  CHECK(px_tensor_dtype(out) == PX_INT64);
}

PX_TEST(branches_apply_per_element) {
  static const char *code = ONE
      ") {\n"
      "  T y = 0;  // by parts\n"
      "  if (x > 2) { if (x > 3) return 100; y += 10; } else if (x == 1) y = -1;\n"
      "  y *= 2;\n"
      "  return y + x;\n"
      "}";
  PX_SCOPED(px_tensor) x = floats(4, 1., 2., 3., 4.);
  PX_SCOPED(px_tensor) out = call(code, x, NULL);
  IS(out, 4, -1., 2., 23., 100.);
}

PX_TEST(branches_may_return_for_all_elements) {
  PX_SCOPED(px_tensor) x = floats(2, -1., 1.);
  PX_SCOPED(px_tensor)
  out = call(ONE ") { if (x > 0) return x; else return 5; x = 9; return x; }", x, NULL);
  IS(out, 2, 5., 1.);
}

PX_TEST(a_function_calls_another) {
  static const char *code =
      "template <typename U> U twice(U a, const U& b) { U c(a); return c + b; }" ONE
      ") { auto z = twice<T>(x, x); return ::fmax(z, std::sqrt(T(16))); }";
  PX_SCOPED(px_tensor) x = floats(2, 1., 3.);
  PX_SCOPED(px_tensor) out = NULL;
  // `U c(a)` is an unsupported declaration, and the error says so.
  FAILS(px_jit_call(&out, 1, code, &x, 1), PX_RUNTIME, "twice, line 1: expected ';', not '('");
}

PX_TEST(functions_of_the_code_and_of_cmath) {
  static const char *code =
      "template <typename U> U twice(U a, const U& b) { U c = a; return c + b; }" ONE
      ") { auto z = twice<T>(x, x); return ::fmax(z, std::sqrt(T(16))); }";
  PX_SCOPED(px_tensor) x = floats(2, 1., 3.);
  PX_SCOPED(px_tensor) out = call(code, x, NULL);
  IS(out, 2, 4., 6.);
}

PX_TEST(types_follow_the_template_and_casts) {
  PX_SCOPED(px_tensor) x = floats(2, 1.75, -1.75);
  PX_SCOPED(px_tensor)
  out = call(ONE ") { int a = x; bool b = a; return (T)a + static_cast<double>(b) + (x > 0) + b; }",
             x, NULL);
  IS(out, 2, 4., 1.);
}

PX_TEST(scalars_are_arguments) {
  PX_SCOPED(px_tensor) x = longs(2, 1, 2);
  PX_SCOPED(px_tensor) alpha = NULL;
  OK(px_tensor_from_scalar(&alpha, px_float(2.5)));
  PX_SCOPED(px_tensor) out = call(ONE ", double alpha) { return x * alpha + 0x10; }", x, alpha);
  IS(out, 2, 18., 21.);
  CHECK(px_tensor_dtype(out) == PX_INT64);
}

PX_TEST(tensors_are_promoted_and_broadcast) {
  PX_SCOPED(px_tensor) x = matrix();
  PX_SCOPED(px_tensor) y = longs(3, 1, 2, 3);
  PX_SCOPED(px_tensor) out = call(ONE ", T y) { return 7; }", y, x);
  IS(out, 6, 7., 7., 7., 7., 7., 7.);
  CHECK(px_tensor_dtype(out) == PX_FLOAT32 && px_tensor_is_contiguous(out));
}

PX_TEST(results_by_reference_do_not_alias) {
  static const char *code =
      "template <typename T> void f(T x, T& a, T& b) { a = x; b = a; if (x > 1) b = 0; a = b; }";
  PX_SCOPED(px_tensor) x = floats(2, 1., 2.);
  px_tensor *out[2];
  OK(px_jit_call(out, 2, code, &x, 1));
  PX_SCOPED(px_tensor) a = out[0];
  PX_SCOPED(px_tensor) b = out[1];
  OK(px_zero_(a));
  IS(b, 2, 1., 0.);
  IS(x, 2, 1., 2.);
}

PX_TEST(a_branch_not_taken_does_not_divide_by_zero) {
  PX_SCOPED(px_tensor) x = longs(3, 0, 2, -4);
  PX_SCOPED(px_tensor) out = call(ONE ") { return x == 0 ? 0 : 8 / x; }", x, NULL);
  IS(out, 3, 0., 4., -2.);
}

PX_TEST(results_have_no_gradient) {
  PX_SCOPED(px_tensor) x = floats(1, 2.);
  OK(px_tensor_set_requires_grad(x, true));
  PX_SCOPED(px_tensor) out = call(ONE ") { return x * x; }", x, NULL);
  CHECK(!px_tensor_requires_grad(out));
}

PX_TEST(invalid_functions_are_refused_before_they_run) {
  FAILS(px_jit_check("return 1;"), PX_RUNTIME,
        "Couldn't parse code, please check correctness:\n return 1;");
  FAILS(px_jit_check(ONE ") { return x;"), PX_RUNTIME, "Couldn't parse code");
  OK(px_jit_check(ONE ") { /* } */ return x; }"));
}

PX_TEST(errors_name_function_and_line) {
  fails(ONE ") {\n  return y; }", PX_RUNTIME, "f, line 2: unknown variable 'y'");
  fails(ONE ") { return (x; }", PX_RUNTIME, "f, line 1: expected ')', not ';'");
  fails(ONE ") { return x }", PX_RUNTIME, "f, line 1: expected ';', not '}'");
  fails(ONE ") { return 12q; }", PX_RUNTIME, "f, line 1: expected a number, not '12q'");
  fails(ONE ") { T y; return y; }", PX_RUNTIME, "f, line 1: use before assignment of 'y'");
  fails(ONE ") { x + 1; return x; }", PX_RUNTIME, "f, line 1: expected '=', not '+'");
  fails(ONE ") { T y = x; }", PX_RUNTIME, "f returns nothing");
  fails(ONE ", T y) { return y; }", PX_RUNTIME, "f takes 2 arguments, but 1 were given");
  fails(ONE ") { return pow(x); }", PX_RUNTIME, "pow takes 2 arguments, but 1 were given");
  fails("template <typename T> void f(T x, T& a, T& b) { a = x; }", PX_RUNTIME,
        "f has 2 reference parameters, expected 1");
  fails("template <typename T> void f(T x, T& a) { }", PX_RUNTIME, "f does not assign a");
  fails("template <typename T> void f(T x, T& a) { return x; }", PX_RUNTIME,
        "f, line 1: a void function returns 'x'");
}

PX_TEST(unsupported_syntax_is_refused_by_name) {
  fails(ONE ") { for (int i = 0; i < 3; i++) x += 1; return x; }", PX_UNIMPLEMENTED,
        "f, line 1: unsupported statement 'for'");
  fails(ONE ") { return sincos(x); }", PX_UNIMPLEMENTED,
        "f, line 1: unsupported function 'sincos'");
  fails(ONE ") { T y[2]; return x; }", PX_UNIMPLEMENTED, "f, line 1: unsupported array '['");
  fails(ONE ") { unsigned y = 1; return x; }", PX_UNIMPLEMENTED,
        "f, line 1: unsupported type 'unsigned'");
}

PX_TEST(too_deep_nesting_is_refused) {
  char deep[4096] = ONE ") { return ";
  memset(deep + strlen(deep), '(', 2000);
  strcat(deep, "x; }");
  fails(deep, PX_RECURSION, "code is nested more than 256 levels deep");
  char minus[4096] = ONE ") { return ";
  for (int i = 0; i < 1000; i++) strcat(minus, "- ");
  strcat(minus, "x; }");
  fails(minus, PX_RECURSION, "code is nested more than 256 levels deep");
  fails(ONE ") { if (x > 9) return x; return f(x + 1); }", PX_RECURSION,
        "f: calls are nested more than 16 deep");
}

PX_TEST(invalid_arguments_are_refused) {
  PX_SCOPED(px_tensor) number = NULL;
  px_tensor *out = NULL;
  OK(px_tensor_from_scalar(&number, px_int(1)));
  FAILS(px_jit_call(&out, 1, ONE ") { return x; }", &number, 1), PX_RUNTIME,
        "jiterator needs a tensor among its arguments");
  PX_SCOPED(px_tensor) x = floats(1, 1.);
  FAILS(px_jit_call(&out, 2, ONE ") { return x; }", &x, 1), PX_RUNTIME,
        "Return by value only works for single output.");
  FAILS(px_jit_call(&out, 0, ONE ") { return x; }", &number, 1), PX_VALUE,
        "jiterator supports up to 32 arguments");
}

PX_TEST(code_runs_on_devices) {
  simulate(2);
  PX_SCOPED(px_tensor) x = floats(2, 1., 4.);
  PX_SCOPED(px_tensor) on_device = NULL;
  OK(px_to(&on_device, x, PX_DTYPE_NONE, px_cuda(1), false, false));
  PX_SCOPED(px_tensor)
  out = call(ONE ") { if (x > 2) return sqrt(x); return 1.5; }", on_device, NULL);
  CHECK(px_tensor_device(out).type == PX_CUDA && px_tensor_device(out).index == 1);
  PX_SCOPED(px_tensor) number = call(ONE ") { return 3; }", on_device, NULL);
  CHECK(px_tensor_device(number).type == PX_CUDA && px_tensor_device(number).index == 1);
  IS(out, 2, 1.5, 2.);
  PX_SCOPED(px_tensor) elsewhere = NULL;
  OK(px_to(&elsewhere, x, PX_DTYPE_NONE, px_cuda(0), false, false));
  px_tensor *both[] = {on_device, elsewhere}, *none = NULL;
  FAILS(px_jit_call(&none, 1, ONE ", T y) { return x + y; }", both, 2), PX_RUNTIME,
        "Expected all tensors to be on the same device");
}

// All kinds of statements and values.
static px_status all(void *context) {
  static const char *code =
      "template <typename T> T half(T x) { return x / 2; }"
      "template <typename T> void f(T x, T by, T& a, T& b) {\n"
      "  T y = -x, z;\n"
      "  if (x > by && !(x > 3)) { z = half<T>(x) * 2; y += z; } else z = (int)sqrt(x);\n"
      "  a = y > 0 ? y : pow(z, by); b = x;\n"
      "}";
  job *j = context;
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) by = NULL;
  px_tensor *out[2];
  j->loss = 0;
  PX_TRY(px_arange(&x, px_int(0), px_int(5), px_int(1), PX_FLOAT32, j->device, false, false));
  PX_TRY(px_tensor_from_scalar(&by, px_int(2)));
  px_tensor *args[] = {x, by};
  PX_TRY(px_jit_call(out, 2, code, args, 2));
  PX_SCOPED(px_tensor) a = out[0];
  PX_SCOPED(px_tensor) b = out[1];
  PX_TRY(add_to_loss(j, a));
  return add_to_loss(j, b);
}
PX_TEST(every_failed_allocation_is_handled) {
  CHECK(fail_each("alloc", all, &(job){px_cpu(), NULL, 0, 0}) > 20);
  simulate(1);
  CHECK(fail_each("launch", all, &(job){px_cuda(0), NULL, 0, 0}) > 10);
}
