// SPDX-License-Identifier: Apache-2.0
// Shared by the host functions of device kernels: element-wise loops and folds of the op tables,
// and dense operands.
//
// Hand-written device kernels require operands of one dtype, row-major or channels_last.
// px__cuda_dense provides them: other operands are copied and converted into scratch memory, and
// px__cuda_dense_close copies results back. Everything is queued on the launch's stream; nothing
// blocks.
#pragma once
#include "cuda/host/driver/cuda.h"
#include "operands.h"

#include <stdio.h>
#include <string.h>

// An argument of a chain's lambda: an operand or a number, the other is -1. has: index of an
// optional parameter, of which a flag follows that it is given; or -1.
typedef struct px__cuda_argument {
  int8_t operand, number, has;
} px__cuda_argument;
typedef struct px__cuda_pointwise {
  const char *module, *functions[PX_DTYPE_COUNT];
  int operands;
  uint32_t bools;                        // bit i: operand i is bool, whatever the compute dtype
  bool parts;                            // the result of complex operands is real
  int number_count, numbers[K_NUMBERS];  // indices of numeric parameters; -1: a text
  int test_param;
  const char *test_text;  // text compared by is(), or NULL
  // The expression for chains, by compute dtype: a C++ lambda of the arguments, then of the result
  // of is(), if any.
  const char *lambdas[PX_DTYPE_COUNT];
  int argument_count;
  px__cuda_argument arguments[K_OPERANDS + K_NUMBERS];
} px__cuda_pointwise;
px_status px__cuda_pointwise_run(const px_launch *l, const px__cuda_pointwise *op);
// functions[i][k]. i: int64, float32, float64, complex64, complex128. k: by rows, by columns, join.
enum { PX__CUDA_FOLD_TYPES = 5 };
typedef struct px__cuda_fold {
  const char *functions[PX__CUDA_FOLD_TYPES][3];
  const char *members[PX__CUDA_FOLD_TYPES];  // of the struct of a fold of real numbers, in CUDA C++
} px__cuda_fold;
px_status px__cuda_fold_run(const px_launch *l, const px__cuda_fold *op);
// Prepares a fold for px__cuda_reduce; p->vector: its functions read the dtype without conversion.
// Sets the functions, and the members (NULL: not of real numbers).
px_status px__cuda_fold_open(k_fold *p, const char *const **variants, const char **members,
                             int compute, const px__cuda_fold *op, const px_operand *out,
                             const px_operand *in);
// Reads the numbers of a launch for its compute dtype. Bit i of has: argument i is given; truth:
// the result of is().
void px__cuda_read_numbers(const px_launch *l, const px__cuda_pointwise *op, k_number *numbers,
                           uint32_t *has, uint32_t *truth);
// For chains: a launch without operands asks for the row of the kernel, and passes `stream`.
static inline bool px__cuda_asked(const px_launch *l, const void *row) {
  if (l->operands) return false;
  *(const void **)l->stream = row;
  return true;
}
// Fills in the axes of a reduction of `in` to one result or two (`second` may be NULL). `sorted`
// allows any order of elements.
px_status px__cuda_axes(k_fold *p, const px_operand *out, const px_operand *second,
                        const px_operand *in, bool sorted);
// Launches ways[0] (by rows) or ways[1] (by columns), then ways[2] to join parts, if any, with
// accumulators of `accumulator` bytes. p->vector: columns may be read in vectors. `instead`: a
// kernel in place of ways[0] or ways[1], whose parameters begin with *p; or NULL.
px_status px__cuda_reduce(const px_launch *l, k_fold *p, const char *module,
                          const char *const variants[3], size_t accumulator, CUkernel instead);
bool px__cuda_fold_columns(const k_fold *p);  // true if it chooses columns
// A batch of whole-tensor reductions, launched together as loops are (px__cuda_loops). Accumulators
// have `accumulator` bytes; the functions are NAME_listed and NAME_listed_join.
typedef struct px__cuda_folds {
  px_launch launch;
  const char *module, *name;
  size_t accumulator;
  k_folds p;
} px__cuda_folds;
extern _Thread_local px__cuda_folds *px__cuda_folds_batch;  // the thread's batch; NULL: no batching
void px__cuda_folds_begin(px__cuda_folds *folds);
px_status px__cuda_folds_end(px__cuda_folds *folds);
// Adds a reduction, after px__cuda_axes, if it is over a whole contiguous tensor; sets *taken.
px_status px__cuda_folds_add(bool *batched, const px_launch *l, const char *module,
                             const char *name, size_t accumulator, k_fold *p);

// ---- loops over operands

static inline bool px__cuda_absent(const px_operand *o) {
  return o->immediate || o->dtype == PX_DTYPE_NONE;
}
void px__cuda_divisor(k_divisor *out, int64_t by);
// Merged dimensions of `n` operands; the first defines the sizes.
void px__cuda_walk(k_loop *p, const px_operand *operands, int n);
// Fails if more dimensions of size `least` and above than kernels support.
px_status px__cuda_fits(const px_operand *o, int64_t least);
// Chooses the access pattern: 16-byte vectors of elements of `item` bytes, or single elements
// (always if `item` is 0), tiled if operands are contiguous in different dimensions.
void px__cuda_vectors(k_loop *p, int n, int item);
// Value of an immediate operand as a real number or an integer.
void px__cuda_read(k_number *out, const px_operand *o, bool real);
// Launches a grid-stride loop over n elements with at most as many threads as the device holds.
px_status px__cuda_over(const px_launch *l, const char *module, const char *function, int64_t n,
                        void *params);
// Launches a loop over vectors of `each` elements.
px_status px__cuda_each(const px_launch *l, const char *module, const char *function, int each,
                        k_loop *p);
px_status px__cuda_copy_operand(const px_launch *l, const px_operand *to, const px_operand *from);
// Replaces an operand by a row-major copy of another dtype in scratch memory. `strides` holds the
// copy's strides.
px_status px__cuda_as(const px_launch *l, px_operand *o, int dtype, int64_t *strides);
// A batch of loops with the same function, launched together: the independent loops of the calling
// thread from begin to end.
typedef struct px__cuda_loops {
  px_launch launch;  // of the first loop
  const char *module;
  char function[48];
  int each, operands, numbers;
  k_loop p;
} px__cuda_loops;
extern _Thread_local px__cuda_loops *px__cuda_loops_batch;  // the thread's batch; NULL: no batching
void px__cuda_loops_begin(px__cuda_loops *loops);
px_status px__cuda_loops_end(px__cuda_loops *loops);
// Adds a loop for px__cuda_each with `each`, after px__cuda_walk, if all operands are contiguous.
// `numbers` is its count of numeric parameters. *taken is false if the caller must launch it.
px_status px__cuda_loops_add(bool *batched, const px_launch *l, const char *module,
                             const char *function, int each, int operands, int numbers,
                             const k_loop *p);
static inline k_where px__cuda_where(const px_launch *l) { return (k_where){l->fault, l->id}; }

// ---- dense operands

// A kernel's dense operands: `px__cuda_dense d = {.launch = l};`.
enum { PX__CUDA_RESULTS = 6 };  // maximum number of results of a kernel
typedef struct px__cuda_dense {
  const px_launch *launch;
  bool last;         // 4D and 5D operands are channels_last instead of row-major
  px_status status;  // first failure, to be checked before the launch
  int count;
  struct {
    const px_operand *operand;
    void *at;
    int dtype;
  } written[PX__CUDA_RESULTS];  // results in scratch memory
} px__cuda_dense;
// The operand's elements as `dtype`, for reading, writing or both; NULL if it is absent or NULL, or
// after a failure.
void *px__cuda_dense_in(px__cuda_dense *d, const px_operand *o, int dtype);
void *px__cuda_dense_out(px__cuda_dense *d, const px_operand *o, int dtype);
void *px__cuda_dense_inout(px__cuda_dense *d, const px_operand *o, int dtype);
// True if operands should be channels_last: if `out` is and is not also row-major. If `out` is both
// or neither, the other operands decide.
bool px__cuda_wants_last(const px_operand *out, const px_operand *const *others, int count);
// Copies results back from scratch memory. Called only on success.
px_status px__cuda_dense_close(px__cuda_dense *d);

// An optimiser step of a parameter: updated tensors, gradient, and numbers or a line of them in
// device memory.
typedef struct px__cuda_step {
  void *at[K_UPDATED];
  const void *grad;
  double numbers[K_UPDATE_NUMBERS];
  const double *line;
  float *scalars[K_SCALARS];
} px__cuda_step;
// Launches an optimiser's update NAME on opened operands and closes them.
px_status px__cuda_update(px__cuda_dense *d, const px__cuda_step *step, const char *name,
                          const px_operand *param);
// A batch of updates, launched together: those of the calling thread from begin to end.
typedef struct px__cuda_updates {
  px_launch launch;  // of the first update
  const char *name;
  int dtype, count;
  k_updates p;
} px__cuda_updates;
void px__cuda_updates_begin(px__cuda_updates *updates);
px_status px__cuda_updates_end(px__cuda_updates *updates);
// Launches NAME, which computes the numbers of steps: one line of `out` for each.
px_status px__cuda_numbers(const px_launch *l, k_numbers *p, const char *name,
                           const px_operand *out, const px_operand *rate, const px_operand *found,
                           const px_operand *scalars);

// Allocates the state exchanged between `tiles` tiles of each of `lines` lines.
px_status px__cuda_tiles(const px_launch *l, k_tiles_of *t, int64_t lines, int64_t tiles);

static inline bool px__cuda_is_float(int dtype) { return px__dtypes[dtype].kind == 'f'; }
// The real dtype of a complex number's parts; other dtypes unchanged.
static inline int px__cuda_real_of(int dtype) {
  return dtype == PX_COMPLEX64 ? PX_FLOAT32 : dtype == PX_COMPLEX128 ? PX_FLOAT64 : dtype;
}
// Launches NAME_f16, NAME_bf16, NAME_f32 or NAME_f64; an error for other dtypes.
px_status px__cuda_by_dtype(const px_launch *l, const char *module, const char *name, int dtype,
                            int64_t grid, unsigned block, void *params);
