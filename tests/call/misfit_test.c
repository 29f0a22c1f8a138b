// SPDX-License-Identifier: Apache-2.0
// Each op of the tables, including internal ones, called by name with mismatched arguments. The
// call returns an error or a result and does not crash. The test replaces each argument of each
// sample, one at a time. Then it replaces
// - each integer, and each pair of them, by extreme values,
// - each tensor by an empty one with extreme sizes,
// - each tensor and scalar by one of another dtype.
// Out-of-bounds reads without a crash and integer overflow are left to the sanitizers.

// Sanitizer allocators return NULL, too, instead of aborting.
#define TSAN_DEFAULTS "allocator_may_return_null=1:atexit_sleep_ms=20"
#include "test.h"

#include "devices.h"
#include "hidden.h"
#include "samples.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define LENGTH(array) (int)(sizeof(array) / sizeof *(array))

// The sanitizer runtime finds this by name.
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void) {
  return "allocator_may_return_null=1:max_allocation_size_mb=512";
}

// Returns tensors of other sizes and dtypes, then NULL.
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

// Replaces argument i by its `which`-th mismatch. Returns false after the last.
static bool replace_argument(px_value *a, int kind, int which, px_tensor **made, px_tensor **list) {
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

// Runs backward from a result that requires grad. An error is fine.
static void run_backward(px_tensor *t) {
  PX_SCOPED(px_tensor) ones = NULL;
  if (!t || !px_tensor_requires_grad(t) || px_tensor_numel(t) > 1 << 16) return;
  if (px_ones_like(&ones, t, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL) == PX_OK &&
      px_backward(1, &t, &ones, false, false) == PX_OK)
    return;
  CHECK(*px_error_last()->message);
  px_error_clear();
}

static void call(const px_op *op, const px_value *args) {
  void *results[4] = {NULL};
  px_call_mode mode = op->flags & PX_OP_ONLY_INPLACE ? PX_CALL_INPLACE : PX_CALL_NEW;
  if (px_op_call(op, mode, args, results) != PX_OK) {
    CHECK(*px_error_last()->message);
    px_error_clear();
    return;
  }
  for (int i = 0; i < op->result_count && !(op->flags & PX_OP_RETURNS_LIST); i++)
    run_backward(results[i]);
  for (int i = 0; i < 4; i++) px_release(results[i]);
}

// Opens a sample whose tensors require grad.
static void open_with_gradients(sample *s, int row, px_dtype dtype) {
  sample_open(s, row, dtype, px_cpu());
  for (int i = 0; i < s->tensor_count && !(s->op->flags & PX_OP_ONLY_INPLACE); i++)
    if (s->smooth[i] && px_dtype_is_float(dtype))
      OK(px_tensor_set_requires_grad(s->tensors[i], true));
}

// Tries all mismatches of one sample. `shown` holds the current call for the report of a crash.
static void replace_all(int row, char *shown) {
  sample s;
  sample_open(&s, row, PX_FLOAT32, px_cpu());
  if (px_op_find(s.op_name))
    for (int i = 0; i < s.op->param_count; i++)
      for (int which = 0;; which++) {
        px_value args[SAMPLE_PARAMS];
        px_tensor *made = NULL, *list[2];
        memcpy(args, s.args, sizeof args);
        if (!replace_argument(&args[i], s.op->params[i].kind, which, &made, list)) break;
        snprintf(shown, 200, "%s(%s), '%s' exchanged with its misfit %d", s.op_name, s.text,
                 s.op->params[i].name, which);
        call(s.op, args);
        px_release(made);
      }
  sample_close(&s);
}

// ---- extreme integers

// The writable integers among a sample's arguments, including list elements and defaults.
typedef struct integers {
  int64_t *at[SAMPLE_INTS], ints[SAMPLE_INTS];
  int count, used;
} integers;

static void add_integer(integers *p, int64_t *at) {
  CHECK(p->count < SAMPLE_INTS);
  p->at[p->count++] = at;
}
static void find_integers(integers *p, const px_op *op, px_value *args) {
  p->count = p->used = 0;
  for (int i = 0; i < op->param_count; i++) {
    px_value *a = &args[i];
    if (a->kind == PX_ARG_NONE && op->params[i].has_default) *a = op->params[i].fallback;
    if (a->kind == PX_ARG_NONE && op->params[i].kind == PX_ARG_INT) *a = PX_I(0);
    if (a->kind == PX_ARG_INT) add_integer(p, &a->v.i);
    if (a->kind != PX_ARG_INTS) continue;
    int64_t *list = p->ints + p->used;
    for (int k = 0; k < a->n; k++) list[k] = a->v.ints[k];
    a->v.ints = list, p->used += a->n;
    for (int k = 0; k < a->n; k++) add_integer(p, &list[k]);
  }
}

static const int64_t edges[] = {INT64_MAX,           INT64_MAX - 1,    INT64_MIN, INT64_C(1) << 62,
                                -(INT64_C(1) << 62), INT64_C(1) << 61, 4,         0};

// Replaces one integer, and each pair, by all extreme values.
static void replace_integers(int row, char *shown) {
  integers p;
  sample s;
  open_with_gradients(&s, row, PX_FLOAT32);
  find_integers(&p, s.op, s.args);
  for (int i = 0; i < p.count; i++)
    for (int k = i; k < p.count; k++)
      for (int which = 0; which < LENGTH(edges) * LENGTH(edges); which++) {
        int64_t *a = p.at[i], *b = p.at[k], before[] = {*a, *b};
        *a = edges[which % LENGTH(edges)], *b = edges[which / LENGTH(edges)];
        snprintf(shown, 200, "%s(%s) with numbers %d and %d: %lld, %lld", s.op_name, s.text, i, k,
                 (long long)*a, (long long)*b);
        call(s.op, s.args);
        *a = before[0], *b = before[1];
      }
  sample_close(&s);
}

// ---- no elements, but sizes with a product beyond int64

// An empty tensor with the dtype of `like`: size `none` is 0, size `large` is extreme, and so are
// the strides.
static px_tensor *empty_extreme(const px_tensor *like, int none, int large) {
  int64_t sizes[PX_MAX_DIMS], strides[PX_MAX_DIMS];
  PX_SCOPED(px_tensor) nothing = NULL;
  px_tensor *made = NULL;
  int n = px_tensor_ndim(like);
  for (int d = 0; d < n; d++)
    sizes[d] = px_tensor_sizes(like)[d], strides[d] = d == none ? 0 : INT64_C(1) << 62;
  sizes[large] = INT64_C(1) << 62, sizes[none] = 0;
  OK(px_zeros(&nothing, &(int64_t){0}, 1, px_tensor_dtype(like), PX_DEVICE_NONE, false, false));
  OK(px_tensor_as_strided(&made, nothing, n, sizes, strides, 0));
  if (px_tensor_requires_grad(like)) OK(px_tensor_set_requires_grad(made, true));
  return made;
}

// The empty argument, and the arguments replaced along with it: none, those of equal sizes (ALIKE),
// or all with as many dimensions. With ALL, the others have size 0 in dimension `other`.
typedef struct empty_arguments {
  int argument, none, large, other;
  enum { ALONE, ALIKE, ALL } with;
} empty_arguments;

static bool is_replaced(const empty_arguments *h, const px_value *args, int k) {
  const px_tensor *t = args[h->argument].v.tensor, *other = args[k].v.tensor;
  if (k == h->argument) return true;
  if (args[k].kind != PX_ARG_TENSOR || px_tensor_ndim(other) != px_tensor_ndim(t)) return false;
  size_t bytes = (size_t)px_tensor_ndim(t) * sizeof(int64_t);
  return h->with == ALL ||
         (h->with == ALIKE && !memcmp(px_tensor_sizes(other), px_tensor_sizes(t), bytes));
}
static void call_with_empty(const sample *s, const empty_arguments *h) {
  px_value args[SAMPLE_PARAMS];
  px_tensor *made[SAMPLE_PARAMS] = {NULL};
  memcpy(args, s->args, sizeof args);
  for (int k = 0; k < s->op->param_count; k++)
    if (is_replaced(h, s->args, k)) {
      bool differs = h->with == ALL && k != h->argument;
      made[k] = empty_extreme(s->args[k].v.tensor, differs ? h->other : h->none, h->large);
      args[k] = PX_T(made[k]);
    }
  call(s->op, args);
  for (int k = 0; k < s->op->param_count; k++) px_release(made[k]);
}
static void replace_by_empty(int row, char *shown) {
  sample s;
  open_with_gradients(&s, row, PX_FLOAT32);
  for (int i = 0; i < s.op->param_count; i++) {
    int n = s.args[i].kind == PX_ARG_TENSOR ? px_tensor_ndim(s.args[i].v.tensor) : 0;
    for (int which = 0; which < n * n * (n + 2); which++) {
      empty_arguments h = {i, which % n, which / n % n, which / n / n, ALL};
      if (h.other >= n) h.with = h.other == n ? ALONE : ALIKE;
      snprintf(shown, 200, "%s(%s), '%s' hollow (%d)", s.op_name, s.text, s.op->params[i].name,
               which);
      call_with_empty(&s, &h);
    }
  }
  sample_close(&s);
}

// ---- other dtypes and scalars of other kinds

// Returns NULL after the last.
static const px_scalar *odd_scalar(int which) {
  static px_scalar scalars[9];
  if (which == 0) {
    px_scalar all[] = {px_float(2.5),     px_float(INFINITY), px_float(NAN),
                       px_float(1e300),   px_int(65536),      px_int(INT64_MIN),
                       px_int(INT64_MAX), px_bool(true),      px_int(0)};
    memcpy(scalars, all, sizeof all);
  }
  return which < LENGTH(scalars) ? &scalars[which] : NULL;
}
// Replaces a scalar by the `which`-th one, or a tensor by a copy of dtype `which`.
static bool replace_kind(px_value *a, int kind, int which, px_tensor **made) {
  const px_scalar *scalar = kind == PX_ARG_SCALAR ? odd_scalar(which) : NULL;
  if (scalar) *a = PX_S(*scalar);
  if (a->kind != PX_ARG_TENSOR || which >= PX_DTYPE_COUNT) return scalar != NULL;
  if (px_to(made, a->v.tensor, (px_dtype)which, PX_DEVICE_NONE, false, true) != PX_OK) return false;
  *a = PX_T(*made);
  return true;
}
static void replace_kinds(int row, char *shown) {
  for (int dtype = 0; dtype < PX_DTYPE_COUNT; dtype++) {
    sample s;
    open_with_gradients(&s, row, (px_dtype)dtype);
    for (int i = 0; i < s.op->param_count; i++)
      for (int which = 0;; which++) {
        px_value args[SAMPLE_PARAMS];
        px_tensor *made = NULL;
        memcpy(args, s.args, sizeof args);
        if (!replace_kind(&args[i], s.op->params[i].kind, which, &made)) break;
        snprintf(shown, 200, "%s(%s) of %s, '%s' exchanged with %d of another kind", s.op_name,
                 s.text, px_dtype_name((px_dtype)dtype), s.op->params[i].name, which);
        call(s.op, args);
        px_release(made);
      }
    sample_close(&s);
  }
}

// Runs a sweep of one sample in a process for at most ten seconds. Memory is limited, as on a
// machine without overcommit.
static bool dies(int row, void (*sweep)(int row, char *shown)) {
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

static int deaths(void (*sweep)(int row, char *shown)) {
  int dead = 0;
  const char *only = getenv("MISFIT_OP");
  for (int row = 0; row < SAMPLE_ROWS; row++)
    if (!only || !strcmp(sample_rows[row].op_name, only)) dead += dies(row, sweep);
  return dead;
}

PX_TEST(mismatched_arguments_are_refused) { CHECK_EQ(deaths(replace_all), 0); }
PX_TEST(extreme_integers_are_refused) { CHECK_EQ(deaths(replace_integers), 0); }
PX_TEST(mismatched_dtypes_are_refused) { CHECK_EQ(deaths(replace_kinds), 0); }
PX_TEST(sizes_of_empty_tensors_may_be_large) { CHECK_EQ(deaths(replace_by_empty), 0); }

// ---- regressions found by random calls (tests/fuzz/ops.c)

static px_tensor *ones(int ndim, const int64_t *sizes, px_dtype dtype, px_device device) {
  px_tensor *t = NULL;
  OK(px_ones(&t, sizes, ndim, dtype, device, false, false));
  return t;
}

PX_TEST(attention_without_memory_for_a_tile_is_an_error) {
  PX_SCOPED(px_tensor) one = ones(4, (int64_t[]){1, 1, 1, 1}, PX_FLOAT32, px_cpu());
  for (int bits = 40; bits < 62; bits += 20) {
    PX_SCOPED(px_tensor) wide = NULL;
    px_tensor *y = NULL;
    OK(px_expand(&wide, one, (int64_t[]){1, 1, 1, INT64_C(1) << bits}, 4));
    FAILS(px_scaled_dot_product_attention(&y, wide, wide, one, NULL, 0, false, NULL, false),
          PX_NOMEM, "scratch memory");
    CHECK(!y);
  }
}

PX_TEST(backward_ops_check_sizes) {
  int64_t sizes[] = {4, 5}, wrong[] = {2, 3, 0}, negative[] = {-4, 2}, three = 3;
  PX_SCOPED(px_tensor) x = ones(2, sizes, PX_FLOAT32, px_cpu());
  PX_SCOPED(px_tensor) one = ones(0, sizes, PX_FLOAT32, px_cpu());
  PX_SCOPED(px_tensor) integers_tensor = ones(2, sizes, PX_INT64, px_cpu());
  PX_SCOPED(px_tensor) transposed = NULL;
  px_tensor *y = NULL;
  OK(px_transpose(&transposed, x, 0, 1));
  int64_t window[] = {1, 1, 2, 2}, pixel[] = {1, 1, 1, 1}, nine = 9;
  PX_SCOPED(px_tensor) plane = ones(4, window, PX_FLOAT32, px_cpu());
  PX_SCOPED(px_tensor) far_grad = ones(4, pixel, PX_FLOAT32, px_cpu());
  PX_SCOPED(px_tensor) far = NULL;
  OK(px_tensor_from_data(&far, &nine, 4, pixel, PX_INT64, px_cpu()));
  FAILS(HIDDEN(cumprod_backward, (&y), PX_T(x), PX_T(x), PX_I(2)), PX_INDEX, "out of range");
  FAILS(HIDDEN(gather_backward, (&y), PX_T(x), PX_IS(wrong, 3), PX_I(1), PX_T(integers_tensor)),
        PX_RUNTIME, "same number of dimensions");
  FAILS(HIDDEN(slice_backward, (&y), PX_T(one), PX_IS(NULL, 0), PX_I(0), PX_I(4), PX_I(9), PX_I(1)),
        PX_INDEX, "0-dim tensor");
  FAILS(HIDDEN(select_backward, (&y), PX_T(one), PX_IS(NULL, 0), PX_I(0), PX_I(4)), PX_INDEX,
        "0-dim tensor");
  FAILS(HIDDEN(as_strided_backward, (&y), PX_T(x), PX_IS(negative, 2), PX_IS(sizes, 2), PX_I(0),
               PX_IS(sizes, 2), PX_IS(sizes, 2), PX_I(0)),
        PX_RUNTIME, "within 64-bit memory");
  FAILS(HIDDEN(as_strided_backward, (&y), PX_T(x), PX_IS(sizes, 2), PX_IS(sizes, 1), PX_I(0),
               PX_IS(sizes, 2), PX_IS(sizes, 2), PX_I(0)),
        PX_RUNTIME, "mismatch in length");
  FAILS(HIDDEN(masked_select_backward, (&y), PX_T(x), PX_IS(sizes, 2), PX_T(x)), PX_RUNTIME,
        "expected BoolTensor");
  FAILS(HIDDEN(_unsafe_view, (&y), PX_T(transposed), PX_IS((int64_t[]){20}, 1)), PX_RUNTIME,
        "not compatible with the strides");
  FAILS(HIDDEN(max_pool2d_pick, (&y), PX_T(plane), PX_T(far)), PX_INDEX, "index 9, size 4");
  FAILS(HIDDEN(max_pool2d_backward, (&y), PX_T(far_grad), PX_T(far), PX_IS(window, 4)), PX_INDEX,
        "index 9, size 4");
  FAILS(px_unflatten(&y, one, 0, &three, 1), PX_INDEX, "has no dimensions");
  CHECK(!y);
}

// Once conjugate tensors exist, px_op_call resolves them in the operands and results. This op has
// one result.
PX_TEST(an_op_without_out_does_not_read_results) {
  const px_op *op = px_op_find("nadam_step_by");
  PX_SCOPED(px_tensor) x = ones(1, (int64_t[]){2}, PX_FLOAT32, px_cpu());
  PX_SCOPED(px_tensor) z = ones(1, (int64_t[]){2}, PX_COMPLEX64, px_cpu());
  PX_SCOPED(px_tensor) conjugate = NULL;
  OK(px_conj(&conjugate, z));
  px_value args[8] = {PX_T(x), PX_T(x), PX_T(x), PX_T(x), PX_T(x), PX_T(x), PX_T(x), PX_I(0)};
  void *results[8] = {x, (void *)1, (void *)1, (void *)1,
                      (void *)1};  // px_op_call reads only the first
  FAILS(px_op_call(op, PX_CALL_OUT, args, results), PX_TYPE, "does not support writing to out=");
  args[1] = PX_T(conjugate);
  FAILS(px_op_call(op, PX_CALL_OUT, args, results), PX_TYPE, "does not support writing to out=");
}

// A number in place of a tensor is stored on the host, out of reach of a device's kernels.
PX_TEST(numbers_with_device_tensors_are_refused) {
  simulate(1);
  px_device there = {PX_CUDA, 0};
  int64_t four = 4;
  PX_SCOPED(px_tensor) mask = ones(1, &four, PX_BOOL, there);
  PX_SCOPED(px_tensor) param = ones(0, NULL, PX_FLOAT32, there);
  PX_SCOPED(px_tensor) host = ones(1, &four, PX_FLOAT32, px_cpu());
  PX_SCOPED(px_tensor) chances = ones(1, &four, PX_FLOAT32, there);
  px_tensor *y = NULL;
  FAILS(HIDDEN(masked_select, (&y), PX_I(7), PX_T(mask)), PX_RUNTIME, "on the same device");
  FAILS(HIDDEN(masked_select, (&y), PX_T(chances), PX_B(true)), PX_RUNTIME, "on the same device");
  FAILS(HIDDEN(sgd_step, (&y), PX_T(param), PX_I(3), PX_NONE(), PX_F(0), PX_F(0), PX_F(1), PX_F(1),
               PX_F(0), PX_F(0), PX_F(0)),
        PX_RUNTIME, "gradient must be on the parameter's device");
  FAILS(HIDDEN(_amp_unscale, (&y), PX_T(param), PX_F(0), PX_T(param)), PX_RUNTIME,
        "a device kernel cannot write to a 0-dim CPU tensor");
  FAILS(px_bernoulli_tensor_(host, chances, NULL), PX_RUNTIME, "same device");
  OK(px_device_synchronize(0));
}
