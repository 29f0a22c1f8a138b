// SPDX-License-Identifier: Apache-2.0
// Checks of the short-time Fourier transform and its inverse, whose texts repeat the call. The
// transforms are formulas of ops/fft.op.
#include "formulas.h"
#include "ops/core/run.h"
#include "run_functions/fft.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// The parameters of a call.
typedef struct frames {
  int64_t n_fft, hop, win;
  const px_tensor *window;  // or NULL
  char text[512];           // text of the call, for errors
} frames;

static int64_t number_or(px_value v, int64_t otherwise) {
  return px__given(v) ? px_value_int(v) : otherwise;
}
static const char *flag_text(px_value v) {
  return !px__given(v) ? "None" : px_value_int(v) ? "1" : "0";
}

// ---- texts of calls

// PyTorch's text of a tensor: "torch.FloatTensor[2, 40]". `around` holds braces for the sizes of a
// window. Complex dtypes have another type name.
static const char *tensor_text(char *buffer, size_t bytes, const px_tensor *t, const char *around) {
  char sizes[256];
  if (!t) return "None";
  bool cuda = px__tensor_device(t).type == PX_CUDA;
  const char *class = px_dtype_class((px_dtype)t->dtype);
  px__size_text(sizes, sizeof sizes, t);
  if (px_dtype_is_complex((px_dtype)t->dtype))
    snprintf(buffer, bytes, "%s%sType%.1s%s%s", cuda ? "CUDA" : "CPU", class, around, sizes,
             around + (*around != 0));
  else
    snprintf(buffer, bytes, "torch.%s%sTensor%.1s%s%s", cuda ? "cuda." : "", class, around, sizes,
             around + (*around != 0));
  return buffer;
}
static void start_frames(frames *f, const px_tensor *self, int64_t n_fft, px_value hop,
                         px_value win, const px_tensor *window, const char *name) {
  char first[320], second[320];
  f->n_fft = n_fft, f->window = window;
  f->hop = number_or(hop, n_fft >> 2), f->win = number_or(win, n_fft);
  snprintf(f->text, sizeof f->text,
           "%s(%s, n_fft=%lld, hop_length=%lld, win_length=%lld, window=%s", name,
           tensor_text(first, sizeof first, self, ""), (long long)n_fft, (long long)f->hop,
           (long long)f->win, tensor_text(second, sizeof second, window, "{}"));
}
static void add_text(frames *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add_text(frames *f, const char *format, ...) {
  size_t used = strlen(f->text);
  va_list list;
  va_start(list, format);
  vsnprintf(f->text + used, sizeof f->text - used, format, list);
  va_end(list);
}
static px_status check_device(const px_tensor *self, const px_tensor *window, const char *name) {
  char a[PX_DEVICE_TEXT], b[PX_DEVICE_TEXT];
  if (!window) return PX_OK;
  px_device x = px__tensor_device(self), y = px__tensor_device(window);
  PX_CHECK(px_device_equal(x, y), PX_RUNTIME,
           "%s input and window must be on the same device but got self on %s and window on %s",
           name, px_device_format(x, a), px_device_format(y, b));
  return PX_OK;
}
static px_status warn_of_no_window(const px_tensor *window, const char *why) {
  if (window) return PX_OK;
  return px_warn(PX_WARN_USER,
                 "A window was not provided. A rectangular window will be applied%s"
                 "To suppress this warning and use a rectangular window, explicitly set "
                 "`window=torch.ones(n_fft, device=<device>)`.",
                 why);
}

// ---- forward

static px_status check_stft(const px_tensor *self, frames *f, int64_t length) {
  const char *text = f->text;
  PX_CHECK(f->n_fft > 0 && f->n_fft <= length, PX_RUNTIME,
           "%s : expected 0 < n_fft < %lld, but got n_fft=%lld", text, (long long)length,
           (long long)f->win);
  PX_CHECK(f->hop > 0, PX_RUNTIME, "%s : expected hop_length > 0, but got hop_length=%lld", text,
           (long long)f->hop);
  PX_CHECK(f->win > 0 && f->win <= f->n_fft, PX_RUNTIME,
           "%s : expected 0 < win_length <= n_fft, but got win_length=%lld", text,
           (long long)f->win);
  char sizes[256];
  if (f->window && (f->window->ndim != 1 || f->window->sizes[0] != f->win))
    PX_FAIL(PX_RUNTIME,
            "%s : expected a 1D window tensor of size equal to win_length=%lld, but got window "
            "with size %s",
            text, (long long)f->win, px__size_text(sizes, sizeof sizes, f->window));
  return PX_OK;
}
// True if the result is complex. Real input requires an explicit return_complex.
static px_status read_complex(bool *out, const px_tensor *self, const px_tensor *window,
                              px_value requested) {
  bool complex = px_dtype_is_complex((px_dtype)self->dtype) ||
                 (window && px_dtype_is_complex((px_dtype)window->dtype));
  *out = px__given(requested) ? px_value_int(requested) : complex;
  PX_CHECK(*out || px__given(requested), PX_RUNTIME,
           "stft requires the return_complex parameter be given for real inputs, and will further "
           "require that return_complex=True in a future PyTorch release.");
  if (*out) return PX_OK;
  return px_warn(PX_WARN_USER,
                 "stft with return_complex=False is deprecated. In a future pytorch release, stft "
                 "will return complex tensors for all inputs, and return_complex=False will raise "
                 "an error.\nNote: you can still call torch.view_as_real on the complex output to "
                 "recover the old return format.");
}

PX_RUN(stft) {
  const px_tensor *self = args->self;
  frames f;
  bool as_complex;
  PX_SCOPED(px_tensor) signal = NULL;
  PX_CHECK(!args->center || !px__given(args->align_to_window), PX_RUNTIME,
           "stft align_to_window should only be set when center = false");
  const px_value centred[] = {PX_T(self), PX_I(args->n_fft / 2), PX_TX(args->pad_mode)};
  if (args->center)
    PX_TRY(px__formula_centred(&signal, centred));
  else
    signal = px_retain(args->self);
  PX_TRY(check_device(self, args->window, "stft"));
  start_frames(&f, signal, args->n_fft, args->hop_length, args->win_length, args->window, "stft");
  add_text(&f, ", normalized=%d, onesided=%s, return_complex=%s, align_to_window=%s)",
           args->normalized, flag_text(args->onesided), flag_text(args->return_complex),
           flag_text(args->align_to_window));
  PX_TRY(warn_of_no_window(args->window,
                           ",which is known to cause spectral leakage. Other windows such as "
                           "torch.hann_window or torch.hamming_window are recommended to reduce "
                           "spectral leakage."));
  PX_TRY(read_complex(&as_complex, self, args->window, args->return_complex));
  px_dtype dtype = (px_dtype)self->dtype;
  PX_CHECK(px_dtype_is_float(dtype) || px_dtype_is_complex(dtype), PX_UNIMPLEMENTED,
           "%s : expected a tensor of floating point or complex values", f.text);
  PX_CHECK(signal->ndim == 1 || signal->ndim == 2, PX_RUNTIME, "%s : expected a 1D or 2D tensor",
           f.text);
  PX_TRY(check_stft(self, &f, signal->sizes[signal->ndim - 1]));
  bool aligned = px__given(args->align_to_window) && px_value_int(args->align_to_window);
  return px__formula_short_time_spectrum(
      call->results,
      (px_value[]){PX_T(signal), PX_T(f.window), PX_I(f.n_fft), PX_I(f.hop), PX_I(f.win),
                   PX_B(aligned), PX_B(args->normalized), args->onesided, PX_B(as_complex)});
}

// ---- inverse

static px_status check_istft(const px_tensor *self, frames *f, px_value onesided, bool *half) {
  const char *text = f->text;
  int64_t bins = self->sizes[self->ndim - 2];
  *half = px__given(onesided) ? px_value_int(onesided) : bins != f->n_fft;
  PX_CHECK(self->numel, PX_RUNTIME, "%s : input tensor cannot be empty.", text);
  PX_CHECK(self->ndim == 2 || self->ndim == 3, PX_RUNTIME,
           "%s : expected a tensor with 3 or 4 dimensions, but got %d", text, self->ndim + 1);
  PX_CHECK(!*half || bins == f->n_fft / 2 + 1, PX_RUNTIME,
           "%s : expected the frequency dimension (3rd to the last) of the input tensor to match "
           "n_fft / 2 + 1 when onesided=True, but got %lld",
           text, (long long)bins);
  PX_CHECK(*half || bins == f->n_fft, PX_RUNTIME,
           "%s : expected the frequency dimension (3rd to the last) of the input tensor to match "
           "n_fft when onesided=False, but got %lld",
           text, (long long)bins);
  PX_CHECK(0 < f->hop && f->hop <= f->win, PX_RUNTIME, "%s : expected 0 < hop_length <= win_length",
           text);
  PX_CHECK(0 < f->win && f->win <= f->n_fft, PX_RUNTIME, "%s : expected 0 < win_length <= n_fft",
           text);
  PX_CHECK(!f->window || (f->window->ndim == 1 && f->window->sizes[0] == f->win), PX_RUNTIME,
           "%s : Invalid window shape. window has to be 1D and length of `win_length`", text);
  return PX_OK;
}

PX_RUN(istft) {
  const px_tensor *self = args->self;
  frames f;
  bool half;
  PX_TRY(warn_of_no_window(args->window,
                           ".Please provide the same window used by stft to make the inversion "
                           "lossless."));
  PX_TRY(check_device(self, args->window, "istft"));
  px_dtype dtype = (px_dtype)self->dtype;
  PX_CHECK(px_dtype_is_complex(dtype), PX_TYPE,
           "istft requires a complex-valued input tensor matching the output from stft with "
           "return_complex=True.");
  PX_CHECK(self->ndim >= 2, PX_INDEX,
           "Dimension out of range (expected to be in range of [%d, %d], but got -3)",
           -self->ndim - 1, self->ndim);
  start_frames(&f, self, args->n_fft, args->hop_length, args->win_length, args->window, "istft");
  add_text(&f, ", center=%d, normalized=%d, onesided=%s, length=", args->center, args->normalized,
           flag_text(args->onesided));
  if (px__given(args->length))
    add_text(&f, "%lld", (long long)px_value_int(args->length));
  else
    add_text(&f, "None");
  add_text(&f, ", return_complex=%d)", args->return_complex);
  PX_TRY(check_istft(self, &f, args->onesided, &half));
  return px__formula_signal_of(
      call->results,
      (px_value[]){PX_T(self), PX_T(f.window), PX_I(f.n_fft), PX_I(f.hop), PX_I(f.win),
                   PX_B(args->center), PX_B(args->normalized), PX_B(half), args->length,
                   PX_B(args->return_complex), PX_TX(f.text)});
}
