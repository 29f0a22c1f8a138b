// SPDX-License-Identifier: Apache-2.0
// Every op of the tables on its samples: gradients against differences in float64, second
// derivatives likewise, and results in lower precision against float64. On the CPU, and on the
// first device where there is one. GRADCHECK_OP=name in the environment: that op alone.
#include "samples.h"

static bool chosen(int row) {
  const char *only = getenv("GRADCHECK_OP");
  return !only || !strcmp(only, sample_rows[row].op_name);
}

static int each_device(px_device *devices) {
  devices[0] = px_cpu();
  devices[1] = px_cuda(0);
  return px_device_count(PX_CUDA) > 0 ? 2 : 1;
}

typedef struct which {
  const sample *s;
  int result;
} which;

static px_status one_result(px_tensor **out, px_tensor *const *inputs, void *context) {
  const which *w = context;
  px_tensor *results[SAMPLE_RESULTS] = {0};
  int count = 0;
  PX_TRY(sample_call(w->s, inputs, results, &count));
  for (int k = 0; k < count; k++)
    if (k == w->result)
      *out = results[k];
    else
      px_release(results[k]);
  return PX_OK;
}

// What has no derivative, neither here nor as ops: third derivatives of fused kernels, and
// statistics beside a normalised result. And what needs a device.
static bool lacking(const sample *s) {
  if (sample_is_for_another(s)) return px_error_clear(), true;
  static const char *const known[] = {
      "derivative for aten::gelu_backward_twice is not implemented",
      "Unsupported dtype Half",  // of Fourier transforms
      "derivative for aten::heaviside is not implemented",
      "derivative for aten::nextafter is not implemented",
      "derivative for aten::scatter is not implemented",
      "derivative for aten::_standard_gamma_grad is not implemented",
      "the derivative for 'zeta' is not implemented.",
      "the derivative for 'igamma: input' is not implemented.",
      "the derivative for 'igammac: input' is not implemented.",
      "derivative for aten::cumprod_backward is not implemented",
      "the gradient of batch_norm with respect to its statistics",
      "the gradient of native_layer_norm with respect to its mean and rstd",
      "the gradient of grouped_norm with respect to its mean and rstd",
      "the gradient of class_losses with respect to its logsumexp",
      "the gradient of a recurrent layer with respect to its saved tensors",
      "the gradient of attention with respect to its logsumexp",
      "not implemented for",
      "is not implemented for GPUs",
      "Low precision dtypes not supported",
      "handle types other than float and double",
      "of float, double, cfloat or cdouble types",
      "quantile() input tensor must be either float or double dtype",
      "no pinned memory allocator",
      "only dense CPU tensors can be pinned",
      "No CUDA GPUs are available"};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strstr(px_error_last()->message, known[i])) return px_error_clear(), true;
  return false;
}

static bool report(const sample *s, const char *what, int result) {
  char device[PX_DEVICE_TEXT];
  fprintf(stderr, "%s(%s) on %s, %s, result %d: %s\n", s->op_name, s->text,
          px_device_format(s->device, device), what, result, px_error_last()->message);
  const px_error *e = px_error_last();
  for (int i = 0; i < e->frame_count && getenv("GRADCHECK_OP"); i++)
    fprintf(stderr, "  at %s:%d %s\n", e->frames[i].file, e->frames[i].line, e->frames[i].function);
  px_error_clear();
  return false;
}

static int ask_for_gradients(sample *s) {
  int count = 0;
  for (int k = 0; k < s->tensor_count; k++) {
    if (!s->smooth[k]) continue;
    OK(px_tensor_set_requires_grad(s->tensors[k], true));
    count++;
  }
  return count;
}

typedef px_status (*checker)(px_status (*fn)(px_tensor **, px_tensor *const *, void *), void *, int,
                             px_tensor *const *, double, double, double);

// Checks each result that has a gradient; counts those.
static bool check_sample(sample *s, checker check, const char *what, int *checked) {
  px_tensor *results[SAMPLE_RESULTS] = {0};
  int count = 0;
  bool fine = true, differentiable[SAMPLE_RESULTS];
  if (sample_call(s, s->tensors, results, &count) != PX_OK)
    return lacking(s) || report(s, "the call", 0);
  for (int k = 0; k < count; k++) {
    differentiable[k] = results[k] && px_tensor_requires_grad(results[k]);
    px_release(results[k]);
  }
  for (int k = 0; k < count && fine; k++) {
    which w = {s, k};
    if (!differentiable[k]) continue;
    px_status status = check(one_result, &w, s->tensor_count, s->tensors, 1e-6, 2e-5, 1e-3);
    if (status == PX_OK)
      ++*checked;
    else if (!lacking(s))
      fine = report(s, what, k);
  }
  return fine;
}

// Draws around a mean and counts of successes are constants, as in PyTorch, although they move with
// their parameters; a draw of the gamma distribution has the gradient that keeps its rank, and not
// that of the way to it.
static bool counts_as_constant(const sample *s) {
  static const char *const draws[] = {"normal_", "binomial", "_standard_gamma"};
  bool found = false;
  for (size_t i = 0; i < sizeof draws / sizeof *draws; i++)
    found |= !strncmp(s->op_name, draws[i], strlen(draws[i])) && !strstr(s->op_name, "_grad");
  return found;
}

static int check_all(checker check, const char *what) {
  px_device devices[2];
  int failed = 0, checked = 0;
  for (int d = 0; d < each_device(devices); d++)
    for (int i = 0; i < SAMPLE_ROWS; i++) {
      sample s;
      if (!chosen(i)) continue;
      sample_open(&s, i, PX_FLOAT64, devices[d]);
      if (s.op->grad_mask && !counts_as_constant(&s) && ask_for_gradients(&s))
        failed += !check_sample(&s, check, what, &checked);
      sample_close(&s);
    }
  fprintf(stderr, "%s: %d results checked, %d samples failed\n", what, checked, failed);
  return failed;
}

// ---- tangents

static double product(px_tensor *const *a, px_tensor *const *b, int count) {
  double sum = 0;
  for (int i = 0; i < count; i++) {
    PX_SCOPED(px_tensor) both = NULL;
    PX_SCOPED(px_tensor) all = NULL;
    PX_SCOPED(px_tensor) real = NULL;
    PX_SCOPED(px_tensor) conj = NULL;
    px_scalar number;
    if (!a[i] || !b[i]) continue;
    OK(px_conj(&conj, a[i]));
    OK(px_mul(&both, conj, b[i]));
    OK(px_sum(&all, both, NULL, 0, false, PX_DTYPE_NONE));
    OK(px_real(&real, all));
    OK(px_tensor_item(&number, real));
    sum += px_scalar_float(number);
  }
  return sum;
}

// Numbers for what flows: some, all different.
static px_tensor *some_like(px_tensor *t, double first) {
  PX_SCOPED(px_tensor) zeros = NULL;
  PX_SCOPED(px_tensor) count = NULL;
  PX_SCOPED(px_tensor) steps = NULL;
  px_tensor *out = NULL;
  OK(px_zeros_like(&zeros, t, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, "contiguous_format"));
  OK(px_ones_like(&count, zeros, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL));
  OK(px_reshape(&steps, count, (int64_t[]){-1}, 1));
  PX_SCOPED(px_tensor) sums = NULL;
  PX_SCOPED(px_tensor) sines = NULL;
  PX_SCOPED(px_tensor) moved = NULL;
  OK(px_cumsum(&sums, steps, 0, PX_DTYPE_NONE));
  OK(px_add_scalar(&moved, sums, px_float(first), px_int(1)));
  OK(px_sin(&sines, moved));
  OK(px_reshape(&out, sines, px_tensor_sizes(t), px_tensor_ndim(t)));
  return out;
}

enum { FLOWS = SAMPLE_TENSORS + SAMPLE_RESULTS };
typedef struct flows {
  int inputs, outputs;
  px_tensor *in[FLOWS], *out[FLOWS], *tangents[FLOWS], *weights[FLOWS];
} flows;

// The tangents are the transpose of the gradients: with any tangents and weights, the products of
// weights with what tangents give, and of tangents with what weights give, are equal.
static px_status transposed(const flows *f, bool *same) {
  px_tensor *changes[FLOWS] = {0}, *grads[FLOWS] = {0};
  PX_TRY(px_jvp(changes, f->outputs, f->out, f->inputs, f->in, f->tangents, false));
  px_status status =
      px_grad(grads, f->outputs, f->out, f->weights, f->inputs, f->in, true, false, true);
  if (status == PX_OK) {
    double forth = product(f->weights, changes, f->outputs);
    double back = product(f->tangents, grads, f->inputs);
    *same = fabs(forth - back) <= 1e-9 * (1 + fabs(back)) || (isnan(forth) && isnan(back));
  }
  for (int i = 0; i < FLOWS; i++) px_release(changes[i]), px_release(grads[i]);
  return status;
}

static bool check_tangents(sample *s, px_tensor *const *results, int count, int *checked) {
  flows f = {0};
  bool same = true;
  for (int k = 0; k < s->tensor_count; k++)
    if (s->tensors[k] && px_tensor_requires_grad(s->tensors[k])) f.in[f.inputs++] = s->tensors[k];
  for (int k = 0; k < count; k++)
    if (results[k] && px_tensor_requires_grad(results[k])) f.out[f.outputs++] = results[k];
  for (int i = 0; i < f.inputs; i++) f.tangents[i] = some_like(f.in[i], 0.3);
  for (int i = 0; i < f.outputs; i++) f.weights[i] = some_like(f.out[i], 0.7);
  px_status status = f.outputs ? transposed(&f, &same) : PX_OK;
  bool fine = status == PX_OK ? same : lacking(s) || report(s, "the tangent", 0);
  if (!same) fprintf(stderr, "%s(%s): tangents are not the transpose\n", s->op_name, s->text);
  *checked += status == PX_OK && f.outputs;
  for (int i = 0; i < FLOWS; i++) px_release(f.tangents[i]), px_release(f.weights[i]);
  return fine;
}

static bool check_forward(sample *s, int *checked) {
  px_tensor *results[SAMPLE_RESULTS] = {0};
  int count = 0;
  if (sample_call(s, s->tensors, results, &count) != PX_OK)
    return lacking(s) || report(s, "the call", 0);
  bool fine = check_tangents(s, results, count, checked);
  for (int k = 0; k < count; k++) px_release(results[k]);
  return fine;
}

PX_TEST(tangents_of_all_ops) {
  int failed = 0, checked = 0;
  for (int i = 0; i < SAMPLE_ROWS; i++) {
    sample s;
    if (!chosen(i)) continue;
    sample_open(&s, i, PX_FLOAT64, px_cpu());
    if (s.op->grad_mask && ask_for_gradients(&s)) failed += !check_forward(&s, &checked);
    sample_close(&s);
  }
  fprintf(stderr, "tangents: %d calls checked, %d samples failed\n", checked, failed);
  CHECK_EQ(failed, 0);
}

PX_TEST(gradients_of_all_ops) { CHECK_EQ(check_all(px_gradcheck, "gradient"), 0); }

PX_TEST(second_derivatives_of_all_ops) {
  CHECK_EQ(check_all(px_gradgradcheck, "second derivative"), 0);
}

// ---- precision

static double *doubles_of(const px_tensor *t) {
  int64_t n = px_tensor_numel(t);
  size_t item = px_dtype_size(px_tensor_dtype(t));
  char *raw = malloc((size_t)n * item + 1);
  double *values = malloc(((size_t)n + 1) * sizeof *values);
  OK(px_tensor_read(t, raw, (size_t)n * item));
  for (int64_t i = 0; i < n; i++)
    values[i] = px_scalar_float(px_scalar_load(px_tensor_dtype(t), raw + (size_t)i * item));
  free(raw);
  return values;
}

static bool near(double a, double b, double tolerance) {
  return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= tolerance * (1 + fabs(b));
}

static bool same_result(const sample *s, const px_tensor *low, const px_tensor *high,
                        double tolerance) {
  if (px_tensor_numel(low) != px_tensor_numel(high)) return false;
  double *a = doubles_of(low), *b = doubles_of(high);
  bool same = true;
  for (int64_t i = 0; i < px_tensor_numel(low) && same; i++) {
    same =
        near(a[i], b[i], tolerance) || (sample_has_free_signs(s) && near(-a[i], b[i], tolerance));
    if (!same)
      fprintf(stderr, "%s(%s) in %s: element %lld is %.9g, in float64 %.9g\n", s->op_name, s->text,
              px_dtype_name(s->dtype), (long long)i, a[i], b[i]);
  }
  free(a);
  free(b);
  return same;
}

static bool compare_precision(sample *low, sample *high, double tolerance) {
  px_tensor *a[SAMPLE_RESULTS] = {0}, *b[SAMPLE_RESULTS] = {0};
  int n = 0, m = 0;
  if (sample_call(high, high->tensors, b, &m) != PX_OK)
    return lacking(high) || report(high, "the call", 0);
  bool called = sample_call(low, low->tensors, a, &n) == PX_OK;
  bool fine = called ? n == m : lacking(low) || report(low, "the call", 0);
  for (int k = 0; k < n && fine && called; k++)
    if (a[k] && px_dtype_is_float(px_tensor_dtype(a[k])))
      fine = same_result(low, a[k], b[k], tolerance);
  for (int k = 0; k < SAMPLE_RESULTS; k++) px_release(a[k]), px_release(b[k]);
  return fine;
}

static int compare_all(px_dtype dtype, double tolerance) {
  px_device devices[2];
  int failed = 0;
  px_setting_set(PX_SETTING_CUDNN_TF32, false);
  for (int d = 0; d < each_device(devices); d++)
    for (int i = 0; i < SAMPLE_ROWS; i++) {
      sample low, high;
      if (!chosen(i)) continue;
      sample_open(&low, i, dtype, devices[d]);
      sample_open(&high, i, PX_FLOAT64, px_cpu());
      // Random numbers and uninitialised memory need not agree.
      bool random = (low.op->flags & PX_OP_RANDOM) || !strncmp(low.op_name, "empty", 5) ||
                    !strncmp(low.op_name, "new_empty", 9);
      if (!random) failed += !compare_precision(&low, &high, tolerance);
      sample_close(&low);
      sample_close(&high);
    }
  return failed;
}

PX_TEST(float32_agrees_with_float64) { CHECK_EQ(compare_all(PX_FLOAT32, 1e-4), 0); }
PX_TEST(float16_agrees_with_float64) { CHECK_EQ(compare_all(PX_FLOAT16, 3e-2), 0); }
