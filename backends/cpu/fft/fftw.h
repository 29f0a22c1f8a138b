// SPDX-License-Identifier: Apache-2.0
// Interface to FFTW for the FFT kernels.
//
// The library is loaded on first use (src/device/open/fftw.c), before such a kernel launches. Plans
// are created under a lock, as FFTW requires; any number of threads may execute a plan. Recent
// plans are cached by shape.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// One dimension: its length, and the input and output strides in elements. Layout of FFTW's
// fftw_iodim64.
typedef struct px__fft_axis {
  ptrdiff_t n, from, to;
} px__fft_axis;

typedef enum px__fft_way { PX__FFT_C2C, PX__FFT_R2C, PX__FFT_C2R } px__fft_way;
enum { PX__FFT_BATCH = 4 };

// Describes a plan. Compared bytewise including padding: zero-initialize.
typedef struct px__fft_shape {
  px__fft_axis line, batch[PX__FFT_BATCH];
  int64_t batch_count, way;
  int64_t wide;            // float64
  int64_t sign;            // of the exponent; C2C only
  int64_t in_place;        // input and output are the same memory
  int64_t unaligned;       // executed at addresses with different alignments
  int64_t from_at, to_at;  // alignments, as returned by FFTW
} px__fft_shape;

// XX(function, result, parameters)
#define PX_FFTW_MAP(XX) \
  XX(plan_guru64_dft, void *, \
     (int rank, const px__fft_axis *axes, int batch_rank, const px__fft_axis *batch, void *in, \
      void *out, int sign, unsigned flags)) \
  XX(plan_guru64_dft_r2c, void *, \
     (int rank, const px__fft_axis *axes, int batch_rank, const px__fft_axis *batch, void *in, \
      void *out, unsigned flags)) \
  XX(plan_guru64_dft_c2r, void *, \
     (int rank, const px__fft_axis *axes, int batch_rank, const px__fft_axis *batch, void *in, \
      void *out, unsigned flags)) \
  XX(execute_dft, void, (void *plan, void *in, void *out)) \
  XX(execute_dft_r2c, void, (void *plan, void *in, void *out)) \
  XX(execute_dft_c2r, void, (void *plan, void *in, void *out)) \
  XX(destroy_plan, void, (void *plan)) \
  XX(alignment_of, int, (void *at))

typedef struct px__fft_plan px__fft_plan;

// FFTW's alignment of an address.
int px__fftw_alignment(bool wide, void *at);
// Returns a plan for these addresses, or others with the same alignment; NULL if FFTW has none or
// out of memory. The caller owns it until px__fftw_release.
px__fft_plan *px__fftw_acquire(const px__fft_shape *shape, void *in, void *out);
void px__fftw_run(const px__fft_plan *plan, void *in, void *out);
void px__fftw_release(px__fft_plan *plan);
