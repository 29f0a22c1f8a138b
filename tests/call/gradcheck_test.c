// SPDX-License-Identifier: Apache-2.0
// Each op of the tables on its samples: gradients and second derivatives against finite differences
// in float64, and results in lower precision against float64. Runs on the CPU and on the first
// device. GRADCHECK_OP=name in the environment selects one op.
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

// True if the last error is a known missing derivative (third derivatives of fused kernels,
// statistics returned with a normalised result), or the sample needs another device.
static bool is_known_to_lack(const sample *s) {
  if (sample_is_for_another(s)) return px_error_clear(), true;
  static const char *const known[] = {
      "derivative for aten::gelu_backward_thrice is not implemented",
      "Unsupported dtype Half",  // Fourier transforms
      "derivative for aten::heaviside is not implemented",
      "derivative for aten::floor_divide is not implemented",
      "derivative for aten::histogram is not implemented",
      "derivative for aten::_histogramdd_from_bin_tensors is not implemented",
      "derivative for aten::nextafter is not implemented",
      "derivative for aten::scatter is not implemented",
      "derivative for aten::_standard_gamma_grad is not implemented",
      "the derivative for 'zeta' is not implemented.",
      "the derivative for 'igamma: input' is not implemented.",
      "the derivative for 'igammac: input' is not implemented.",
      "derivative for aten::cumprod_backward is not implemented",
      "the gradient of native_batch_norm with respect to its",
      "the gradient of native_layer_norm with respect to its",
      "the gradient of grouped_norm with respect to its",
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

static int require_gradients(sample *s) {
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

// Checks each differentiable result. Adds their number to `checked`.
static bool check_sample(sample *s, checker check, const char *what, int *checked) {
  px_tensor *results[SAMPLE_RESULTS] = {0};
  int count = 0;
  bool fine = true, differentiable[SAMPLE_RESULTS];
  if (sample_call(s, s->tensors, results, &count) != PX_OK)
    return is_known_to_lack(s) || report(s, "the call", 0);
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
    else if (!is_known_to_lack(s))
      fine = report(s, what, k);
  }
  return fine;
}

// Samplers of a distribution are constants with respect to their parameters, as in PyTorch,
// although finite differences see the draws move. The gradient of _standard_gamma is taken at a
// fixed quantile, not along the path of the sampler, so finite differences do not apply.
static bool is_sampler(const sample *s) {
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
      if (s.op->grad_mask && !is_sampler(&s) && require_gradients(&s))
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

// Returns distinct values of the shape of `t`.
static px_tensor *distinct_values_like(px_tensor *t, double first) {
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

enum { MAX_TENSORS = SAMPLE_TENSORS + SAMPLE_RESULTS };
typedef struct flow_tensors {
  int inputs, outputs;
  px_tensor *in[MAX_TENSORS], *out[MAX_TENSORS], *tangents[MAX_TENSORS], *weights[MAX_TENSORS];
} flow_tensors;

// Reverse mode is the transpose of forward mode: dot(weights, J tangents) equals dot(J^T weights,
// tangents).
static px_status products_agree(const flow_tensors *f, bool *same) {
  px_tensor *output_tangents[MAX_TENSORS] = {0}, *grads[MAX_TENSORS] = {0};
  PX_TRY(px_jvp(output_tangents, f->outputs, f->out, f->inputs, f->in, f->tangents, false));
  px_status status =
      px_grad(grads, f->outputs, f->out, f->weights, f->inputs, f->in, true, false, true);
  if (status == PX_OK) {
    double forward = product(f->weights, output_tangents, f->outputs);
    double backward = product(f->tangents, grads, f->inputs);
    *same = fabs(forward - backward) <= 1e-9 * (1 + fabs(backward)) ||
            (isnan(forward) && isnan(backward));
  }
  for (int i = 0; i < MAX_TENSORS; i++) px_release(output_tangents[i]), px_release(grads[i]);
  return status;
}

static bool check_tangents(sample *s, px_tensor *const *results, int count, int *checked) {
  flow_tensors f = {0};
  bool same = true;
  for (int k = 0; k < s->tensor_count; k++)
    if (s->tensors[k] && px_tensor_requires_grad(s->tensors[k])) f.in[f.inputs++] = s->tensors[k];
  for (int k = 0; k < count; k++)
    if (results[k] && px_tensor_requires_grad(results[k])) f.out[f.outputs++] = results[k];
  for (int i = 0; i < f.inputs; i++) f.tangents[i] = distinct_values_like(f.in[i], 0.3);
  for (int i = 0; i < f.outputs; i++) f.weights[i] = distinct_values_like(f.out[i], 0.7);
  px_status status = f.outputs ? products_agree(&f, &same) : PX_OK;
  bool fine = status == PX_OK ? same : is_known_to_lack(s) || report(s, "the tangent", 0);
  if (!same) fprintf(stderr, "%s(%s): tangents are not the transpose\n", s->op_name, s->text);
  *checked += status == PX_OK && f.outputs;
  for (int i = 0; i < MAX_TENSORS; i++) px_release(f.tangents[i]), px_release(f.weights[i]);
  return fine;
}

static bool check_forward(sample *s, int *checked) {
  px_tensor *results[SAMPLE_RESULTS] = {0};
  int count = 0;
  if (sample_call(s, s->tensors, results, &count) != PX_OK)
    return is_known_to_lack(s) || report(s, "the call", 0);
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
    if (s.op->grad_mask && require_gradients(&s)) failed += !check_forward(&s, &checked);
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
    return is_known_to_lack(high) || report(high, "the call", 0);
  bool called = sample_call(low, low->tensors, a, &n) == PX_OK;
  bool fine = called ? n == m : is_known_to_lack(low) || report(low, "the call", 0);
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
      // Random numbers and uninitialised memory differ.
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
