// SPDX-License-Identifier: Apache-2.0
// Post-processing of Fourier transforms for one element type: T: element; NAME(x): suffixed name.
// fft.c includes it twice.

// Multiplies the elements along the axes (innermost last) by a number.
static void NAME(scale)(T *at, const px__fft_axis *axes, int count, int parts, T by) {
  ptrdiff_t n = count ? axes->n : 1, step = count ? axes->to * parts : 0;
  if (count > 1) {
    for (ptrdiff_t i = 0; i < n; i++) NAME(scale)(at + i * step, axes + 1, count - 1, parts, by);
  } else if (step == parts) {
    for (ptrdiff_t i = 0; i < n * parts; i++) at[i] *= by;
  } else {
    for (ptrdiff_t i = 0; i < n; i++)
      for (int k = 0; k < parts; k++) at[i * step + k] *= by;
  }
}

// Fills the second half of lines of n complex numbers with the conjugates of the first.
static void NAME(mirror)(T *at, const px__fft_axis *axes, int count, const px__fft_axis *line) {
  if (count) {
    for (ptrdiff_t i = 0; i < axes->n; i++)
      NAME(mirror)(at + 2 * i * axes->to, axes + 1, count - 1, line);
    return;
  }
  for (ptrdiff_t k = 1; 2 * k < line->n; k++) {
    const T *from = at + 2 * k * line->to;
    T *to = at + 2 * (line->n - k) * line->to;
    to[0] = from[0], to[1] = -from[1];
  }
}
