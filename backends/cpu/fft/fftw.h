// SPDX-License-Identifier: Apache-2.0
// FFTW, whose plans the kernels of Fourier transforms execute.
//
// The library is found when it is first needed (src/device/open/fftw.c), before such a kernel is
// launched. Plans are made under a lock, as the library asks; any number of threads may execute
// one. Those made last are kept, by what they do.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// One dimension: so many places, and the steps between them in what is read and what is written,
// in elements of either. It is the library's fftw_iodim64.
typedef struct px__fft_axis {
  ptrdiff_t n, from, to;
} px__fft_axis;

typedef enum px__fft_way { PX__FFT_C2C, PX__FFT_R2C, PX__FFT_C2R } px__fft_way;
enum { PX__FFT_BATCH = 4 };

// What a plan does. All bytes count, those between members too: begin with zeros.
typedef struct px__fft_shape {
  px__fft_axis line, batch[PX__FFT_BATCH];
  int64_t batch_count, way;
  int64_t wide;            // float64
  int64_t sign;            // of the exponent, C2C
  int64_t in_place;        // reads where it writes
  int64_t unaligned;       // it is executed at addresses that differ more than the library allows
  int64_t from_at, to_at;  // how the addresses are aligned, as the library says
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

// How the library sees an address aligned.
int px__fftw_alignment(bool wide, void *at);
// A plan for what is at these addresses or others that are aligned alike; NULL where the library
// or the system has none. It is the caller's until it is given back.
px__fft_plan *px__fftw_take(const px__fft_shape *shape, void *in, void *out);
void px__fftw_run(const px__fft_plan *plan, void *in, void *out);
void px__fftw_give(px__fft_plan *plan);
