// SPDX-License-Identifier: Apache-2.0
// What the host functions of the device kernels share: element-wise loops and folds from the op
// tables, and operands as dense arrays.
//
// Device kernels that are written by hand work on operands of one dtype that are row-major, or
// channels_last. px__cuda_dense sees to that: an operand that is not so is copied, and converted,
// into scratch memory, and px__cuda_dense_close copies it back. All of it is queued on the launch's
// stream; nothing waits.
#pragma once
#include "cuda/host/driver/cuda.h"
#include "operands.h"

#include <stdio.h>
#include <string.h>

typedef struct px__cuda_pointwise {
  const char *module, *functions[PX_DTYPE_COUNT];
  int operands;
  uint32_t bools;                        // bit i: operand i is bool, whatever the compute dtype is
  bool parts;                            // of complex numbers the result is real
  int number_count, numbers[K_NUMBERS];  // the parameters that are numbers; -1: a text
  int test_param;
  const char *test_text;  // of is(), or NULL
} px__cuda_pointwise;
px_status px__cuda_pointwise_run(const px_launch *l, const px__cuda_pointwise *op);
// functions[i][k]: of int64, float32, float64, complex64 and complex128 elements; by rows, by
// columns, joining.
px_status px__cuda_fold_run(const px_launch *l, const char *const (*functions)[3]);
// Fills in the axes of a reduction of `in` to one result or two (`second` may be NULL). Sorted: any
// order of elements.
px_status px__cuda_axes(k_fold *p, const px_operand *out, const px_operand *second,
                        const px_operand *in, bool sorted);
// Launches ways[0] by rows or ways[1] by columns, and ways[2] where there are parts to join, whose
// accumulators have so many bytes. p->vector says whether columns may be read in vectors.
px_status px__cuda_reduce(const px_launch *l, k_fold *p, const char *module,
                          const char *const ways[3], size_t accumulator);
// Whole tensors to be reduced that wait for others, as loops do (px__cuda_loops). Accumulators have
// `accumulator` bytes; the functions are NAME_listed and NAME_listed_join.
typedef struct px__cuda_folds {
  px_launch launch;
  const char *module, *name;
  size_t accumulator;
  k_folds p;
} px__cuda_folds;
extern _Thread_local px__cuda_folds *px__cuda_folds_waiting;  // NULL: each goes at once
void px__cuda_folds_begin(px__cuda_folds *folds);
px_status px__cuda_folds_end(px__cuda_folds *folds);
// Takes a reduction along, after px__cuda_axes, if it is of a whole tensor that lies in a row.
px_status px__cuda_folds_take(bool *taken, const px_launch *l, const char *module, const char *name,
                              size_t accumulator, k_fold *p);

// ---- loops: operands that are walked together

void px__cuda_divisor(k_divisor *out, int64_t by);
// Dimensions of `n` operands (the first says the sizes), joined where they can be.
void px__cuda_walk(k_loop *p, const px_operand *operands, int n);
// Fails for more dimensions of at least that size than kernels take.
px_status px__cuda_fits(const px_operand *o, int64_t least);
// How threads share what is walked: by vectors of 16 bytes of elements of `item` bytes, or by
// single elements (always, if that is 0); in tiles where operands run across.
void px__cuda_vectors(k_loop *p, int n, int item);
// The value of an immediate operand, as a real number or a whole one.
void px__cuda_read(k_number *out, const px_operand *o, bool real);
// Launches a function over n elements, one a thread, as many as the device holds at a time.
px_status px__cuda_over(const px_launch *l, const char *module, const char *function, int64_t n,
                        void *params);
// The same for a loop of vectors of `each` elements.
px_status px__cuda_each(const px_launch *l, const char *module, const char *function, int each,
                        k_loop *p);
px_status px__cuda_copy_operand(const px_launch *l, const px_operand *to, const px_operand *from);
// Makes of an operand a row-major one of another dtype, in scratch memory. `strides` has room for
// its strides.
px_status px__cuda_as(const px_launch *l, px_operand *o, int dtype, int64_t *strides);
// Loops that wait for others of the same function, to be one launch: those of the calling thread
// from begin to end, which do not depend on each other.
typedef struct px__cuda_loops {
  px_launch launch;  // of one of them
  const char *module;
  char function[48];
  int each, operands, numbers;
  k_loop p;
} px__cuda_loops;
extern _Thread_local px__cuda_loops *px__cuda_loops_waiting;  // NULL: each goes at once
void px__cuda_loops_begin(px__cuda_loops *loops);
px_status px__cuda_loops_end(px__cuda_loops *loops);
// Takes a loop along, for px__cuda_each with `each`, after px__cuda_walk, if all lies in a row.
// `numbers` says how many it has. *taken false: it is to be launched by itself.
px_status px__cuda_loops_take(bool *taken, const px_launch *l, const char *module,
                              const char *function, int each, int operands, int numbers,
                              const k_loop *p);
static inline k_where px__cuda_where(const px_launch *l) { return (k_where){l->fault, l->id}; }

// ---- dense operands

// The operands that a kernel works on: `px__cuda_dense d = {.launch = l};`.
enum { PX__CUDA_RESULTS = 6 };  // no kernel has more
typedef struct px__cuda_dense {
  const px_launch *launch;
  bool last;         // of operands of 4 and 5 dimensions channels_last is wanted, not row-major
  px_status status;  // of what failed first: to be looked at before the kernel is launched
  int count;
  struct {
    const px_operand *operand;
    void *at;
    int dtype;
  } written[PX__CUDA_RESULTS];  // what lies in scratch
} px__cuda_dense;
// The operand as elements of `dtype`, to be read, written, or both; NULL if it is absent (or NULL),
// or if something failed.
void *px__cuda_dense_in(px__cuda_dense *d, const px_operand *o, int dtype);
void *px__cuda_dense_out(px__cuda_dense *d, const px_operand *o, int dtype);
void *px__cuda_dense_inout(px__cuda_dense *d, const px_operand *o, int dtype);
// Whether operands should be channels_last: where `out` is and is not row-major too; where it may
// be both, or neither, as one of the others.
bool px__cuda_wants_last(const px_operand *out, const px_operand *const *others, int count);
// Copies back what was written. It is called only where all went well.
px_status px__cuda_dense_close(px__cuda_dense *d);

// The step of a parameter: what is changed, and by which numbers, or which line of them.
typedef struct px__cuda_step {
  void *at[K_UPDATED];
  const void *grad;
  double numbers[K_UPDATE_NUMBERS];
  const double *line;
  float *scalars[K_SCALARS];
} px__cuda_step;
// Launches the update NAME of an optimiser on operands that are opened, and closes them.
px_status px__cuda_update(px__cuda_dense *d, const px__cuda_step *step, const char *name,
                          const px_operand *param);
// Updates that wait for others, to be one launch: those of the calling thread from begin to end.
typedef struct px__cuda_lot {
  px_launch launch;  // of one of them
  const char *name;
  int dtype, count;
  k_updates p;
} px__cuda_lot;
void px__cuda_lot_begin(px__cuda_lot *lot);
px_status px__cuda_lot_end(px__cuda_lot *lot);
// Launches NAME, which makes the numbers of steps, a line of `out` for each.
px_status px__cuda_numbers(const px_launch *l, k_numbers *p, const char *name,
                           const px_operand *out, const px_operand *rate, const px_operand *found,
                           const px_operand *scalars);

// Room for what `tiles` tiles of each of `lines` lines tell each other.
px_status px__cuda_tiles(const px_launch *l, k_tiles_of *t, int64_t lines, int64_t tiles);

static inline bool px__cuda_is_float(int dtype) { return px__dtypes[dtype].kind == 'f'; }
// Of the parts of a complex number; any other dtype itself.
static inline int px__cuda_real_of(int dtype) {
  return dtype == PX_COMPLEX64 ? PX_FLOAT32 : dtype == PX_COMPLEX128 ? PX_FLOAT64 : dtype;
}
// Launches NAME_f16, NAME_bf16, NAME_f32 or NAME_f64; an error where the dtype is none of these.
px_status px__cuda_by_dtype(const px_launch *l, const char *module, const char *name, int dtype,
                            int64_t grid, unsigned block, void *params);
