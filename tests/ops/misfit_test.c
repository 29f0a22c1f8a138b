// SPDX-License-Identifier: Apache-2.0
// Every op of the tables, the library's own ones too, called by name with arguments that do not
// fit: an error or a result, and no crash. Each argument of each sample is exchanged, one at a
// time. (What is read out of bounds without a crash, the address sanitizer finds.)

// A sanitizer's allocator, too, says no by NULL.
#define TSAN_DEFAULTS "allocator_may_return_null=1:atexit_sleep_ms=20"
#include "test.h"

#include "samples.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define LENGTH(array) (int)(sizeof(array) / sizeof *(array))

// The sanitizer's library looks this up by name.
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }

// Tensors of other sizes and dtypes; NULL after the last.
static px_tensor *odd_tensor(int which) {
  static const struct {
    int ndim;
    int64_t sizes[5];
    px_dtype dtype;
  } shapes[] = {
      {0, {0}, PX_FLOAT32},          {1, {1}, PX_FLOAT64},        {1, {3}, PX_INT64},
      {2, {2, 3}, PX_FLOAT32},       {2, {0, 3}, PX_FLOAT32},     {3, {2, 1, 5}, PX_FLOAT32},
      {4, {1, 2, 3, 3}, PX_FLOAT32}, {4, {2, 3, 1, 1}, PX_INT64}, {5, {1, 1, 2, 1, 2}, PX_BOOL}};
  px_tensor *t = NULL;
  if (which >= LENGTH(shapes)) return NULL;
  OK(px_zeros(&t, shapes[which].sizes, shapes[which].ndim, shapes[which].dtype, PX_DEVICE_NONE,
              false, false));
  return t;
}

static const int64_t numbers[] = {-7, -1, 0, 1, 5, INT64_C(1) << 40, INT64_MIN};
static const struct {
  int n;
  int64_t ints[5];
} lists[] = {{0, {0}},
             {1, {0}},
             {1, {-3}},
             {1, {INT64_C(1) << 40}},
             {2, {3, -1}},
             {4, {1, 1, 1, 1}},
             {5, {0, 2, 1, 9, 1}},
             {2, {0, 0}}};

// Exchanges argument i with its `which`-th misfit; false after the last.
static bool exchange(px_value *a, int kind, int which, px_tensor **made, px_tensor **list) {
  bool more = false;
  if (kind == PX_ARG_TENSOR && (more = (*made = odd_tensor(which)) != NULL)) *a = PX_T(*made);
  if (kind == PX_ARG_TENSORS && (more = (*made = odd_tensor(which)) != NULL))
    list[0] = list[1] = *made, *a = PX_TS(list, 2);
  if (kind == PX_ARG_INT && (more = which < LENGTH(numbers))) *a = PX_I(numbers[which]);
  if (kind == PX_ARG_INTS && (more = which < LENGTH(lists)))
    *a = PX_IS(lists[which].ints, lists[which].n);
  if (kind == PX_ARG_FLOAT && (more = which < 3))
    *a = PX_F((const double[]){-2.5, 1 / 0.0, 0 / 0.0}[which]);
  if (kind == PX_ARG_TEXT && (more = which < 2)) *a = PX_TX(which ? "" : "nosuch");
  return more;
}

static void call(const px_op *op, const px_value *args) {
  void *results[4] = {NULL};
  px_call_mode mode = op->flags & PX_OP_ONLY_INPLACE ? PX_CALL_INPLACE : PX_CALL_NEW;
  if (px_op_call(op, mode, args, results) != PX_OK) {
    CHECK(*px_error_last()->message);
    px_error_clear();
    return;
  }
  for (int i = 0; i < 4; i++) px_release(results[i]);
}

// All misfits of one sample. What is being called stands in `shown`, for a crash.
static void sweep(int row, char *shown) {
  sample s;
  sample_open(&s, row, PX_FLOAT32, px_cpu());
  if (px_op_find(s.op_name))
    for (int i = 0; i < s.op->param_count; i++)
      for (int which = 0;; which++) {
        px_value args[SAMPLE_PARAMS];
        px_tensor *made = NULL, *list[2];
        memcpy(args, s.args, sizeof args);
        if (!exchange(&args[i], s.op->params[i].kind, which, &made, list)) break;
        snprintf(shown, 200, "%s(%s), '%s' exchanged with its misfit %d", s.op_name, s.text,
                 s.op->params[i].name, which);
        call(s.op, args);
        px_release(made);
      }
  sample_close(&s);
}

// Each sample in a process of its own, for ten seconds at most, with memory as on a machine that
// does not promise any.
static bool dies(int row) {
  static char *shown;
  if (!shown) shown = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    alarm(10);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    setrlimit(RLIMIT_AS, &(struct rlimit){4L << 30, 4L << 30});
#endif
    sweep(row, shown);
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  if (status) fprintf(stderr, "%s: died of %d\n", shown, WTERMSIG(status));
  return status != 0;
}

PX_TEST(arguments_that_do_not_fit_are_refused) {
  int dead = 0;
  const char *only = getenv("MISFIT_OP");
  for (int row = 0; row < SAMPLE_ROWS; row++)
    if (!only || !strcmp(sample_rows[row].op_name, only)) dead += dies(row);
  CHECK_EQ(dead, 0);
}
