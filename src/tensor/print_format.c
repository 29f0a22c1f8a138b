// SPDX-License-Identifier: Apache-2.0
// PyTorch's choice of a number format. It depends on nonzero finite values only; zeros, infinities
// and NaN are padded to the resulting width.
#include "tensor/print_impl.h"

#include <math.h>
#include <stdio.h>

static bool is_decisive(double value) { return value != 0 && isfinite(value); }

static int real_length(const px__format *f, double value) {
  if (f->sci) return snprintf(NULL, 0, "%.*e", f->precision, value);
  if (f->integral) return snprintf(NULL, 0, "%.0f", value) + 1;
  return snprintf(NULL, 0, "%.*f", f->precision, value);
}

static int plain_length(px_scalar value) {
  if (value.kind == 'b') return value.v.b ? 4 : 5;
  if (value.kind == 'u') return snprintf(NULL, 0, "%llu", (unsigned long long)value.v.i);
  return snprintf(NULL, 0, "%lld", (long long)value.v.i);
}

// Values with a stride of `step` bytes.
typedef struct row {
  px_dtype dtype;
  const char *values;
  int64_t count;
  size_t step;
} row;
static px_scalar value_at(const row *r, int64_t i) {
  return px_scalar_load(r->dtype, r->values + (size_t)i * r->step);
}

// Finds the range of the deciding values, and whether all are integers; false if there are none.
static bool find_range(px__format *f, double *min, double *max, const row *r) {
  bool any = false;
  for (int64_t i = 0; i < r->count; i++) {
    double value = value_at(r, i).v.f;
    if (!is_decisive(value)) continue;
    double size = fabs(value);
    *min = any && *min < size ? *min : size;
    *max = any && *max > size ? *max : size;
    f->integral &= value == ceil(value);
    any = true;
  }
  return any;
}

static void choose_real(px__format *f, int forced, const row *r) {
  double min = 0, max = 0;
  f->integral = true;
  if (!find_range(f, &min, &max, r)) return;
  f->sci = max / min > 1000.0 || max > 1.0e8 || (!f->integral && min < 1.0e-4);
  if (forced >= 0) f->sci = forced != 0;
  for (int64_t i = 0; i < r->count; i++) {
    double value = value_at(r, i).v.f;
    int length = is_decisive(value) ? real_length(f, value) : 0;
    if (length > f->width) f->width = length;
  }
}

px__format px__format_choose(const px_print_options *options, px_dtype dtype, const void *values,
                             int64_t count, size_t step) {
  row r = {dtype, values, count, step};
  px__format f = {.real = px_dtype_is_float(dtype), .precision = options->precision, .width = 1};
  if (f.real) {
    choose_real(&f, options->sci_mode, &r);
    return f;
  }
  for (int64_t i = 0; i < count; i++) {
    int length = plain_length(value_at(&r, i));
    if (length > f.width) f.width = length;
  }
  return f;
}

static void add_padding(px__text *text, int count) {
  if (count > 0) px__text_add(text, "%*s", count, "");
}

static void add_real(px__text *text, const px__format *f, double value) {
  if (!isfinite(value)) {
    const char *name = isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
    add_padding(text, f->width - (int)strlen(name));
    px__text_add(text, "%s", name);
    return;
  }
  add_padding(text, f->width - real_length(f, value));
  if (f->sci)
    px__text_add(text, "%.*e", f->precision, value);
  else if (f->integral)
    px__text_add(text, "%.0f.", value);
  else
    px__text_add(text, "%.*f", f->precision, value);
}

void px__format_add(px__text *text, const px__format *format, px_scalar value) {
  if (format->real) {
    add_real(text, format, value.v.f);
    return;
  }
  add_padding(text, format->width - plain_length(value));
  if (value.kind == 'b')
    px__text_add(text, "%s", value.v.b ? "True" : "False");
  else if (value.kind == 'u')
    px__text_add(text, "%llu", (unsigned long long)value.v.i);
  else
    px__text_add(text, "%lld", (long long)value.v.i);
}

void px__format_add_imaginary(px__text *text, const px__format *format, double value) {
  px__format bare = *format;
  bare.width = 0;
  if (isnan(value) || !signbit(value)) px__text_add(text, "+");
  add_real(text, &bare, value);
  px__text_add(text, "j");
}
