// SPDX-License-Identifier: Apache-2.0
// Matrix decompositions and linear systems by cuSOLVER and cuBLAS. Results are column-major, as
// written by the libraries. Operands have any strides and are copied to the results or to scratch
// memory, a whole batch at a time.
#include <stdlib.h>

#include "cuda/host/library/cusolver.h"
#include "cuda/host/library/gemm.h"
#include "cuda/host/ops/kernel.h"
#include "cuda/pivots_params.h"
#include "kernel_args/factor.h"
#include "kernel_args/solve.h"

typedef px__cusolver_task task;

// ---- batches

static int rows_of(const px_operand *o) { return (int)o->sizes[o->ndim - 2]; }
static int columns_of(const px_operand *o) { return (int)o->sizes[o->ndim - 1]; }
static int min_int(int a, int b) { return a < b ? a : b; }
// Number of matrices (last 2), vectors (1) or scalars (0); 0 if they are empty.
static int64_t count_of(const px_operand *o, int last) {
  int64_t n = 1;
  if (!px_operand_numel(o)) return 0;
  for (int d = 0; d < o->ndim - last; d++) n *= o->sizes[d];
  return n;
}
static void *at(const px_operand *o, int64_t i, int last) {
  int64_t offset = 0;
  for (int d = o->ndim - last - 1; d >= 0; d--) {
    offset += i % o->sizes[d] * o->strides[d];
    i /= o->sizes[d];
  }
  return (char *)o->data + offset * (int64_t)px__cuda_dtype_size(o->dtype);
}
static int step_of(const px_operand *o) {
  int rows = rows_of(o) > 1 ? rows_of(o) : 1;
  return columns_of(o) > 1 ? (int)o->strides[o->ndim - 1] : rows;
}

// Sizes and strides of a derived operand.
typedef struct shape {
  int64_t sizes[PX_MAX_DIMS], strides[PX_MAX_DIMS];
} shape;
// Defines shapes of a kernel on the heap: each takes 1 KiB.
static void free_shapes(shape **shapes) { free(*shapes); }
#define SHAPES(name, count) \
  __attribute__((cleanup(free_shapes))) shape *name = malloc((count) * sizeof *(name)); \
  if (!(name)) PX_CUDA_FAIL(PX_NOMEM, "%s: out of memory", l->op)
// Transposes the last two dimensions.
static px_operand transposed(const px_operand *o, shape *s) {
  px_operand made = *o;
  int a = o->ndim - 2, b = o->ndim - 1;
  memcpy(s->sizes, o->sizes, (size_t)o->ndim * sizeof *s->sizes);
  memcpy(s->strides, o->strides, (size_t)o->ndim * sizeof *s->strides);
  s->sizes[a] = o->sizes[b], s->sizes[b] = o->sizes[a];
  s->strides[a] = o->strides[b], s->strides[b] = o->strides[a];
  made.sizes = s->sizes, made.strides = s->strides;
  return made;
}
// The leading rows and columns of each matrix.
static px_operand corner(const px_operand *o, shape *s, int rows, int columns) {
  px_operand made = *o;
  memcpy(s->sizes, o->sizes, (size_t)o->ndim * sizeof *s->sizes);
  s->sizes[o->ndim - 2] = rows, s->sizes[o->ndim - 1] = columns;
  made.sizes = s->sizes;
  return made;
}
// Allocates scratch memory shaped like `like`: column-major matrices or, with last 1, dense
// vectors.
static px_status allocate(const px_launch *l, px_operand *made, shape *s, const px_operand *like,
                          int last) {
  int64_t step = 1;
  *made = *like;
  for (int k = 0; k < like->ndim; k++) {
    int d = like->ndim - 1 - k;
    if (last == 2 && k < 2) d = like->ndim - 2 + k;
    s->sizes[d] = like->sizes[d];
    s->strides[d] = step;
    step *= like->sizes[d] > 1 ? like->sizes[d] : 1;
  }
  made->sizes = s->sizes, made->strides = s->strides;
  return px__cuda_scratch(l, (size_t)step * px__cuda_dtype_size(like->dtype), &made->data);
}
static px_status copied(const px_launch *l, px_operand *made, shape *s, const px_operand *from,
                        int last) {
  PX_CUDA_PASS(allocate(l, made, s, from, last));
  return px__cuda_copy_operand(l, made, from);
}
// The operand as column-major matrices: itself if it is, else a copy.
static px_status as_columns(const px_launch *l, px_operand *made, shape *s,
                            const px_operand *from) {
  int64_t down = from->strides[from->ndim - 2], across = from->strides[from->ndim - 1];
  *made = *from;
  bool fits =
      (down == 1 || rows_of(from) == 1) && (across >= rows_of(from) || columns_of(from) == 1);
  return fits && across <= INT32_MAX ? PX_OK : copied(l, made, s, from, 2);
}

// Fills all elements with a number.
static px_status fill(const px_launch *l, const px_operand *to, double value) {
  static const int64_t none[PX_MAX_DIMS];
  px_operand number = *to;
  number.immediate = true, number.strides = none, number.data = number.value;
  number.dtype = PX_FLOAT64;
  memcpy(number.value, &value, sizeof value);
  return px__cuda_copy_operand(l, to, &number);
}
static bool is_complex(const px_operand *o) {
  return o->dtype == PX_COMPLEX64 || o->dtype == PX_COMPLEX128;
}
// Library operation for the matrix or its adjoint.
static int operation_of(const px_operand *o, bool adjoint) {
  return !adjoint ? PX__CUDA_PLAIN : is_complex(o) ? PX__CUDA_CONJUGATE : PX__CUDA_TRANSPOSED;
}
// Conjugates in place, by negating the imaginary parts; no effect on real operands.
static px_status conjugate(const px_launch *l, const px_operand *o) {
  shape s;
  px_operand parts = *o;
  if (!is_complex(o) || !px_operand_numel(o)) return PX_OK;
  parts.dtype = px__cuda_real_of(o->dtype);
  for (int d = 0; d < o->ndim; d++) s.strides[d] = 2 * o->strides[d];
  parts.strides = s.strides;
  parts.data = (char *)o->data + px__cuda_dtype_size(parts.dtype);
  px_operand operands[2] = {parts, parts};
  px_value params[1] = {PX_NONE()};
  px_launch negate = *l;
  negate.operands = operands, negate.operand_count = 2;
  negate.params = params, negate.param_count = 1;
  negate.compute = parts.dtype;
  return px__cuda_find("neg")(&negate);
}
// Fills with the identity.
static px_status identity(const px_launch *l, const px_operand *to) {
  shape s;
  px_operand diagonal = *to;
  int last = to->ndim - 2;
  PX_CUDA_PASS(fill(l, to, 0));
  memcpy(s.sizes, to->sizes, (size_t)to->ndim * sizeof *s.sizes);
  memcpy(s.strides, to->strides, (size_t)to->ndim * sizeof *s.strides);
  s.sizes[last] = min_int(rows_of(to), columns_of(to));
  s.strides[last] += s.strides[last + 1];
  diagonal.sizes = s.sizes, diagonal.strides = s.strides, diagonal.ndim = to->ndim - 1;
  return fill(l, &diagonal, 1);
}

// ---- batches of small matrices

// Few or large matrices occupy the device one at a time.
static bool are_many(const px_operand *o, int64_t count) {
  enum { MANY = 4, LARGEST = 128 };
  return count >= MANY && count <= INT32_MAX && rows_of(o) == columns_of(o) &&
         rows_of(o) <= LARGEST;
}
// True if the matrices of a batch have a constant distance.
static bool is_even(const px_operand *o) {
  int64_t next = -1;
  for (int d = o->ndim - 3; d >= 0; d--) {
    if (o->sizes[d] == 1) continue;
    if (next >= 0 && o->strides[d] != next) return false;
    next = o->strides[d] * o->sizes[d];
  }
  return true;
}
// Writes the addresses of matrices (last 2) or vectors (1) to device memory.
static px_status write_addresses(const px_launch *l, void ***out, const px_operand *o,
                                 int64_t count, int last) {
  void *addresses;
  PX_CUDA_PASS(px__cuda_scratch(l, (size_t)count * sizeof(void *), &addresses));
  k_places p = {o->data, addresses, count > 1 ? (char *)at(o, 1, last) - (char *)o->data : 0,
                count};
  *out = addresses;
  return px__cuda_over(l, "pivots", "places", count, &p);
}

// ---- positive-definite matrices

static int query_cholesky(task *t, int *size) {
  const px__cholesky_kernel *x = t->args;
  return t->api->potrf_bufferSize(t->handle, x->upper, rows_of(x->L), x->L->data, step_of(x->L),
                                  size);
}
static int run_cholesky(task *t, int64_t i) {
  const px__cholesky_kernel *x = t->args;
  return t->api->potrf(t->handle, x->upper, rows_of(x->L), at(x->L, i, 2), step_of(x->L), t->work,
                       t->work_size, at(x->info, i, 0));
}
static int batch_cholesky(task *t) {
  const px__cholesky_kernel *x = t->args;
  return t->api->potrfBatched(t->handle, x->upper, rows_of(x->L), t->addresses, step_of(x->L),
                              x->info->data, t->count);
}
static px_status keep_triangle(const px_launch *l, const px_operand *to, const px_operand *from,
                               bool upper) {
  px_operand operands[2] = {*to, *from};
  px_value params[2] = {PX_NONE(), PX_I(0)};
  px_launch triangle = *l;
  triangle.operands = operands, triangle.operand_count = 2;
  triangle.params = params, triangle.param_count = 2;
  return px__cuda_find(upper ? "triu" : "tril")(&triangle);
}
// potrf leaves the other triangle zero. potrfBatched overwrites it.
PX_CUDA_KERNEL(cholesky) {
  int64_t count = count_of(args->L, 2);
  bool many = are_many(args->L, count), upper = args->upper;
  task t = {
      .l = l, .args = args, .query = query_cholesky, .run_one = run_cholesky, .name = "potrf"};
  PX_CUDA_PASS(fill(l, args->info, 0));
  PX_CUDA_PASS(keep_triangle(l, args->L, args->self, upper));
  if (many) {
    t.query = NULL, t.run_batch = batch_cholesky, t.name = "potrfBatched";
    PX_CUDA_PASS(write_addresses(l, &t.addresses, args->L, count, 2));
  }
  PX_CUDA_PASS(px__cusolver_run(&t, args->L->dtype, count));
  return many ? keep_triangle(l, args->L, args->L, upper) : PX_OK;
}

// ---- LU

static int query_lu(task *t, int *size) {
  const px_operand *a = &t->in[0];
  return t->api->getrf_bufferSize(t->handle, rows_of(a), columns_of(a), a->data, step_of(a), size);
}
static int run_lu(task *t, int64_t i) {
  const px__lu_kernel *x = t->args;
  return t->api->getrf(t->handle, rows_of(x->LU), columns_of(x->LU), at(x->LU, i, 2),
                       step_of(x->LU), t->work, at(x->pivots, i, 1), at(x->info, i, 0));
}
static px__cuda_systems systems_of(const px_operand *a, int64_t count) {
  return (px__cuda_systems){
      .dtype = a->dtype, .n = rows_of(a), .lda = step_of(a), .count = (int)count};
}
// Overwrites b with the solution.
static px_status solve_all(const px_launch *l, px__cuda_systems *s, const px_operand *a,
                           const px_operand *b) {
  s->solve = true, s->columns = columns_of(b), s->ldb = step_of(b);
  PX_CUDA_PASS(write_addresses(l, &s->a, a, s->count, 2));
  PX_CUDA_PASS(write_addresses(l, &s->b, b, s->count, 2));
  return px__cuda_solve_systems(l, s);
}
PX_CUDA_KERNEL(lu) {
  int64_t count = count_of(args->LU, 2);
  PX_CUDA_PASS(px__cuda_copy_operand(l, args->LU, args->A));
  PX_CUDA_PASS(fill(l, args->info, 0));
  if (are_many(args->LU, count)) {
    px__cuda_systems s = systems_of(args->LU, count);
    s.factor = true, s.pivots = args->pivots->data, s.info = args->info->data;
    PX_CUDA_PASS(write_addresses(l, &s.a, args->LU, count, 2));
    return px__cuda_solve_systems(l, &s);
  }
  task t = {.l = l, .args = args, .query = query_lu, .run_one = run_lu, .name = "getrf"};
  t.in[0] = *args->LU;
  return px__cusolver_run(&t, args->LU->dtype, count);
}

// in[0]: the factors. in[1]: pivots, in scratch memory.
static int run_inverse(task *t, int64_t i) {
  const px__inverse_kernel *x = t->args;
  int n = rows_of(x->inverse), *pivots = t->in[1].data;
  void *a = at(&t->in[0], i, 2);
  int status =
      t->api->getrf(t->handle, n, n, a, step_of(&t->in[0]), t->work, pivots, at(x->info, i, 0));
  if (status) return status;
  return t->api->getrs(t->handle, 0, n, n, a, step_of(&t->in[0]), pivots, at(x->inverse, i, 2),
                       step_of(x->inverse), t->info);
}
PX_CUDA_KERNEL(inverse) {
  shape s;
  task t = {.l = l, .args = args, .query = query_lu, .run_one = run_inverse, .name = "getrf"};
  PX_CUDA_PASS(fill(l, args->info, 0));
  int64_t count = count_of(args->inverse, 2);
  if (!count) return PX_OK;
  PX_CUDA_PASS(copied(l, &t.in[0], &s, args->A, 2));
  bool many = are_many(args->A, count);
  int64_t rows = (many ? count : 1) * rows_of(args->A);
  PX_CUDA_PASS(px__cuda_scratch(l, (size_t)rows * sizeof(int), &t.in[1].data));
  PX_CUDA_PASS(identity(l, args->inverse));
  if (many) {
    px__cuda_systems all = systems_of(&t.in[0], count);
    all.factor = true, all.pivots = t.in[1].data, all.info = args->info->data;
    return solve_all(l, &all, &t.in[0], args->inverse);
  }
  return px__cusolver_run(&t, args->inverse->dtype, count);
}

static k_exchanges exchanges_of(const px_launch *l, px__cuda_dense *d, const px_operand *pivots,
                                int n) {
  return (k_exchanges){.where = px__cuda_where(l),
                       .lines = count_of(pivots, 1),
                       .count = columns_of(pivots),
                       .n = n,
                       .fault = PX_FAULT_PIVOT,
                       .parts = 1,
                       .from = px__cuda_dense_in(d, pivots, PX_INT32)};
}
// in[0]: the factors. in[1]: checked pivots, row-major.
static int run_lu_solve(task *t, int64_t i) {
  const px__lu_solve_kernel *x = t->args;
  int n = rows_of(x->out);
  return t->api->getrs(t->handle, operation_of(x->out, x->adjoint), n, columns_of(x->out),
                       at(&t->in[0], i, 2), step_of(&t->in[0]), (const int *)t->in[1].data + i * n,
                       at(x->out, i, 2), step_of(x->out), t->info);
}
PX_CUDA_KERNEL(lu_solve) {
  shape s;
  px__cuda_dense d = {.launch = l};
  task t = {.l = l, .args = args, .run_one = run_lu_solve, .name = "getrs"};
  int64_t count = count_of(args->out, 2);
  if (!count) return PX_OK;
  k_exchanges p = exchanges_of(l, &d, args->pivots, rows_of(args->out));
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(px__cuda_scratch(l, (size_t)(p.lines * p.count) * sizeof(int), &t.in[1].data));
  p.to = t.in[1].data;
  PX_CUDA_PASS(px__cuda_over(l, "pivots", "exchanges", p.lines * p.count, &p));
  PX_CUDA_PASS(as_columns(l, &t.in[0], &s, args->LU));
  PX_CUDA_PASS(px__cuda_copy_operand(l, args->out, args->B));
  if (are_many(&t.in[0], count) && is_even(&t.in[0])) {
    px__cuda_systems all = systems_of(&t.in[0], count);
    all.operation = operation_of(args->out, args->adjoint), all.pivots = t.in[1].data;
    return solve_all(l, &all, &t.in[0], args->out);
  }
  return px__cusolver_run(&t, args->out->dtype, count);
}

PX_CUDA_KERNEL(permutation) {
  px__cuda_dense d = {.launch = l};
  const px_operand *out = args->out;
  int n = rows_of(out);
  void *rows;
  if (!px_operand_numel(out)) return PX_OK;
  if (!columns_of(args->pivots)) return identity(l, out);
  k_exchanges p = exchanges_of(l, &d, args->pivots, n);
  p.out = px__cuda_dense_out(&d, out, out->dtype);
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(px__cuda_scratch(l, (size_t)(p.lines * n) * sizeof(int), &rows));
  p.to = rows;
  size_t bytes = (size_t)px_operand_numel(out) * px__cuda_dtype_size(out->dtype);
  PX_CUDA_PASS(px__cuda_fill(l->stream, p.out, 0, bytes));
  p.parts = is_complex(out) ? 2 : 1;
  bool wide = out->dtype == PX_FLOAT64 || out->dtype == PX_COMPLEX128;
  const char *function = wide ? "permutation_f64" : "permutation_f32";
  PX_CUDA_PASS(px__cuda_over(l, "pivots", function, p.lines, &p));
  return px__cuda_dense_close(&d);
}

// ---- QR

static int query_geqrf(task *t, int *size) {
  const px_operand *a = ((const px__geqrf_kernel *)t->args)->a;
  return t->api->geqrf_bufferSize(t->handle, rows_of(a), columns_of(a), a->data, step_of(a), size);
}
static int run_geqrf(task *t, int64_t i) {
  const px__geqrf_kernel *x = t->args;
  return t->api->geqrf(t->handle, rows_of(x->a), columns_of(x->a), at(x->a, i, 2), step_of(x->a),
                       at(x->tau, i, 1), t->work, t->work_size, t->info);
}
PX_CUDA_KERNEL(geqrf) {
  task t = {.l = l, .args = args, .query = query_geqrf, .run_one = run_geqrf, .name = "geqrf"};
  int64_t count = count_of(args->a, 2);
  PX_CUDA_PASS(px__cuda_copy_operand(l, args->a, args->self));
  if (!are_many(args->a, count)) return px__cusolver_run(&t, args->a->dtype, count);
  px__cuda_qr r = {.dtype = args->a->dtype,
                   .m = rows_of(args->a),
                   .n = columns_of(args->a),
                   .lda = step_of(args->a),
                   .count = (int)count};
  PX_CUDA_PASS(write_addresses(l, &r.a, args->a, count, 2));
  PX_CUDA_PASS(write_addresses(l, &r.tau, args->tau, count, 1));
  return px__cuda_factor_qr(l, &r);
}

// in[0]: tau.
static int query_householder(task *t, int *size) {
  const px_operand *q = ((const px__householder_kernel *)t->args)->out;
  return t->api->orgqr_bufferSize(t->handle, rows_of(q), columns_of(q), columns_of(&t->in[0]),
                                  q->data, step_of(q), t->in[0].data, size);
}
static int run_householder(task *t, int64_t i) {
  const px_operand *q = ((const px__householder_kernel *)t->args)->out;
  return t->api->orgqr(t->handle, rows_of(q), columns_of(q), columns_of(&t->in[0]), at(q, i, 2),
                       step_of(q), at(&t->in[0], i, 1), t->work, t->work_size, t->info);
}
PX_CUDA_KERNEL(householder) {
  shape tau, to_shape, from_shape;
  const px_operand *q = args->out;
  task t = {.l = l,
            .args = args,
            .query = query_householder,
            .run_one = run_householder,
            .name = "orgqr"};
  if (!columns_of(args->tau)) return identity(l, q);
  int columns = min_int(columns_of(args->input), columns_of(q));
  px_operand to = corner(q, &to_shape, rows_of(q), columns);
  px_operand from = corner(args->input, &from_shape, rows_of(q), columns);
  PX_CUDA_PASS(copied(l, &t.in[0], &tau, args->tau, 1));
  if (columns < columns_of(q)) PX_CUDA_PASS(fill(l, q, 0));
  PX_CUDA_PASS(px__cuda_copy_operand(l, &to, &from));
  return px__cusolver_run(&t, q->dtype, count_of(q, 2));
}

// in[0]: the Householder vectors. in[1]: tau.
static int query_ormqr(task *t, int *size) {
  const px__ormqr_kernel *x = t->args;
  return t->api->ormqr_bufferSize(t->handle, !x->left, operation_of(x->out, x->transpose),
                                  rows_of(x->out), columns_of(x->out), columns_of(&t->in[1]),
                                  t->in[0].data, step_of(&t->in[0]), t->in[1].data, x->out->data,
                                  step_of(x->out), size);
}
static int run_ormqr(task *t, int64_t i) {
  const px__ormqr_kernel *x = t->args;
  return t->api->ormqr(t->handle, !x->left, operation_of(x->out, x->transpose), rows_of(x->out),
                       columns_of(x->out), columns_of(&t->in[1]), at(&t->in[0], i, 2),
                       step_of(&t->in[0]), at(&t->in[1], i, 1), at(x->out, i, 2), step_of(x->out),
                       t->work, t->work_size, t->info);
}
PX_CUDA_KERNEL(ormqr) {
  shape a, tau;
  task t = {.l = l, .args = args, .query = query_ormqr, .run_one = run_ormqr, .name = "ormqr"};
  PX_CUDA_PASS(px__cuda_copy_operand(l, args->out, args->input3));
  if (!columns_of(args->input2)) return PX_OK;
  PX_CUDA_PASS(as_columns(l, &t.in[0], &a, args->self));
  PX_CUDA_PASS(copied(l, &t.in[1], &tau, args->input2, 1));
  return px__cusolver_run(&t, args->out->dtype, count_of(args->out, 2));
}

// ---- triangular systems

// Solves in place for each matrix of b; `how` holds the flags, sizes and addresses are filled in.
static px_status solve_triangles(const px_launch *l, const px_operand *a, const px_operand *b,
                                 px__cuda_triangle how) {
  how.dtype = b->dtype, how.m = rows_of(b), how.n = columns_of(b);
  how.lda = step_of(a), how.ldb = step_of(b);
  for (int64_t i = 0; i < count_of(b, 2); i++) {
    how.a = at(a, i, 2), how.b = at(b, i, 2);
    PX_CUDA_PASS(px__cuda_solve_triangle(l, &how));
  }
  return PX_OK;
}
PX_CUDA_KERNEL(triangular) {
  shape s;
  px_operand a;
  const px_operand *b = args->out;
  PX_CUDA_PASS(px__cuda_copy_operand(l, b, args->B));
  if (!count_of(b, 2)) return PX_OK;
  PX_CUDA_PASS(as_columns(l, &a, &s, args->self));
  return solve_triangles(
      l, &a, b,
      (px__cuda_triangle){.right = !args->left, .upper = args->upper, .unit = args->unitriangular});
}

// ---- least squares, by QR

// in[0]: A, or its adjoint if wide, overwritten by reflectors. in[1]: tau. The right-hand sides are
// overwritten by the solution.
static int query_gels(task *t, int *size) {
  const px_operand *a = &t->in[0], *b = ((const px__lstsq_kernel *)t->args)->solution;
  int other, status;
  status =
      t->api->geqrf_bufferSize(t->handle, rows_of(a), columns_of(a), a->data, step_of(a), &other);
  if (status) return status;
  status = t->api->ormqr_bufferSize(t->handle, 0, operation_of(a, true), rows_of(a), columns_of(b),
                                    columns_of(a), a->data, step_of(a), t->in[1].data, b->data,
                                    step_of(b), size);
  if (other > *size) *size = other;
  return status;
}
static int reflect_one(task *t, int64_t i) {
  const px_operand *a = &t->in[0];
  return t->api->geqrf(t->handle, rows_of(a), columns_of(a), at(a, i, 2), step_of(a),
                       at(&t->in[1], i, 1), t->work, t->work_size, t->info);
}
static int multiply_one(task *t, int64_t i, bool adjoint) {
  const px_operand *a = &t->in[0], *b = ((const px__lstsq_kernel *)t->args)->solution;
  return t->api->ormqr(t->handle, 0, operation_of(a, adjoint), rows_of(a), columns_of(b),
                       columns_of(a), at(a, i, 2), step_of(a), at(&t->in[1], i, 1), at(b, i, 2),
                       step_of(b), t->work, t->work_size, t->info);
}
static int reflect_high(task *t, int64_t i) {
  int status = reflect_one(t, i);
  return status ? status : multiply_one(t, i, true);
}
static int multiply_wide(task *t, int64_t i) { return multiply_one(t, i, false); }

// Tall A = Q R: R x = Q' b. Wide A with adjoint Q R: x = Q y with R' y = b.
static px_status solve_by_qr(const px_launch *l, task *t, bool wide) {
  const px__lstsq_kernel *x = t->args;
  shape r_shape, b_shape;
  int64_t count = count_of(x->solution, 2);
  int k = columns_of(&t->in[0]), dtype = x->solution->dtype;
  px_operand r = corner(&t->in[0], &r_shape, k, k);
  px_operand b = corner(x->solution, &b_shape, k, columns_of(x->solution));
  t->run_one = wide ? reflect_one : reflect_high;
  PX_CUDA_PASS(px__cusolver_run(t, dtype, count));
  PX_CUDA_PASS(solve_triangles(
      l, &r, &b, (px__cuda_triangle){.upper = true, .operation = operation_of(&r, wide)}));
  t->run_one = multiply_wide;
  return wide ? px__cusolver_run(t, dtype, count) : PX_OK;
}
PX_CUDA_KERNEL(lstsq) {
  SHAPES(shapes, 4);
  task t = {.l = l, .args = args, .query = query_gels, .name = "geqrf"};
  bool wide = rows_of(args->A) < columns_of(args->A);
  px_operand a = wide ? transposed(args->A, &shapes[0]) : *args->A;
  px_operand b = corner(args->solution, &shapes[1], rows_of(args->B), columns_of(args->B));
  PX_CUDA_PASS(fill(l, args->info, 0));
  PX_CUDA_PASS(fill(l, args->rank, columns_of(&a)));
  PX_CUDA_PASS(fill(l, args->singular_values, 0));
  PX_CUDA_PASS(fill(l, args->solution, 0));
  if (!px_operand_numel(args->solution) || !px_operand_numel(args->A)) return PX_OK;
  PX_CUDA_PASS(px__cuda_copy_operand(l, &b, args->B));
  PX_CUDA_PASS(copied(l, &t.in[0], &shapes[2], &a, 2));
  if (wide) PX_CUDA_PASS(conjugate(l, &t.in[0]));
  px_operand line = t.in[0];  // one tau a column
  int64_t sizes[PX_MAX_DIMS];
  memcpy(sizes, line.sizes, (size_t)line.ndim * sizeof *sizes);
  sizes[line.ndim - 2] = columns_of(&a);
  line.sizes = sizes, line.ndim--;
  PX_CUDA_PASS(allocate(l, &t.in[1], &shapes[3], &line, 1));
  return solve_by_qr(l, &t, wide);
}

// ---- symmetric matrices

static int query_ldl(task *t, int *size) {
  const px_operand *a = ((const px__ldl_kernel *)t->args)->LD;
  return t->api->sytrf_bufferSize(t->handle, rows_of(a), a->data, step_of(a), size);
}
static int run_ldl(task *t, int64_t i) {
  const px__ldl_kernel *x = t->args;
  return t->api->sytrf(t->handle, 0, rows_of(x->LD), at(x->LD, i, 2), step_of(x->LD),
                       at(x->pivots, i, 1), t->work, t->work_size, at(x->info, i, 0));
}
static px_status check_hermitian(const px_operand *a, bool hermitian, const char *name) {
  if (hermitian && is_complex(a))
    PX_CUDA_FAIL(PX_RUNTIME,
                 "%s: complex tensors with hermitian=True flag are not supported on CUDA.", name);
  return PX_OK;
}
PX_CUDA_KERNEL(ldl) {
  task t = {.l = l, .args = args, .query = query_ldl, .run_one = run_ldl, .name = "sytrf"};
  PX_CUDA_PASS(check_hermitian(args->LD, args->hermitian, "torch.linalg.ldl_factor"));
  PX_CUDA_PASS(fill(l, args->info, 0));
  PX_CUDA_PASS(keep_triangle(l, args->LD, args->self, false));
  return px__cusolver_run(&t, args->LD->dtype, count_of(args->LD, 2));
}

// in[0]: the factors. in[1]: pivots as int64. type_of: cudaDataType.
static int type_of(const px_operand *o) {
  return o->dtype == PX_FLOAT32 ? 0 : o->dtype == PX_FLOAT64 ? 1 : o->dtype == PX_COMPLEX64 ? 4 : 5;
}
static int elements(size_t bytes, const px_operand *o) {
  size_t size = px__cuda_dtype_size(o->dtype);
  return (int)((bytes + size - 1) / size);
}
static int query_ldl_solve(task *t, int *size) {
  const px__ldl_solve_kernel *x = t->args;
  const px_operand *a = &t->in[0];
  size_t bytes;
  int status = t->common->cusolverDnXsytrs_bufferSize(
      t->handle, 0, rows_of(a), columns_of(x->out), type_of(a), a->data, step_of(a), t->in[1].data,
      type_of(x->out), x->out->data, step_of(x->out), &bytes, &t->host_bytes);
  *size = elements(bytes, x->out);
  return status;
}
static int run_ldl_solve(task *t, int64_t i) {
  const px__ldl_solve_kernel *x = t->args;
  const px_operand *a = &t->in[0];
  return t->common->cusolverDnXsytrs(
      t->handle, 0, rows_of(a), columns_of(x->out), type_of(a), at(a, i, 2), step_of(a),
      at(&t->in[1], i, 1), type_of(x->out), at(x->out, i, 2), step_of(x->out), t->work,
      (size_t)t->work_size * px__cuda_dtype_size(x->out->dtype), t->host, t->host_bytes, t->info);
}
PX_CUDA_KERNEL(ldl_solve) {
  shape s, lines;
  task t = {.l = l,
            .args = args,
            .query = query_ldl_solve,
            .run_one = run_ldl_solve,
            .name = "Xsytrs",
            .synchronizes = true};
  PX_CUDA_PASS(check_hermitian(args->out, args->hermitian, "torch.linalg.ldl_solve"));
  PX_CUDA_PASS(px__cuda_copy_operand(l, args->out, args->B));
  if (!count_of(args->out, 2)) return PX_OK;
  px_operand wide = *args->pivots;
  wide.dtype = PX_INT64;
  PX_CUDA_PASS(as_columns(l, &t.in[0], &s, args->LD));
  PX_CUDA_PASS(allocate(l, &t.in[1], &lines, &wide, 1));
  PX_CUDA_PASS(px__cuda_copy_operand(l, &t.in[1], args->pivots));
  return px__cusolver_run(&t, args->out->dtype, count_of(args->out, 2));
}

// ---- eigenvalues of general matrices

// in[0]: the complex copy of the matrix, overwritten. in[1]: column-major eigenvectors, if
// requested.
static int query_eig(task *t, int *size) {
  const px__eig_kernel *x = t->args;
  const px_operand *a = &t->in[0], *v = &t->in[1];
  size_t bytes;
  int type = type_of(a);
  int status = t->common->cusolverDnXgeev_bufferSize(
      t->handle, t->options, 0, x->vectors, rows_of(a), type, a->data, step_of(a), type,
      x->eigenvalues->data, type, NULL, 1, type, v->data, x->vectors ? step_of(v) : 1, type, &bytes,
      &t->host_bytes);
  *size = elements(bytes, a);
  return status;
}
static int run_eig(task *t, int64_t i) {
  const px__eig_kernel *x = t->args;
  const px_operand *a = &t->in[0], *v = &t->in[1];
  int type = type_of(a);
  return t->common->cusolverDnXgeev(t->handle, t->options, 0, x->vectors, rows_of(a), type,
                                    at(a, i, 2), step_of(a), type, at(x->eigenvalues, i, 1), type,
                                    NULL, 1, type, x->vectors ? at(v, i, 2) : NULL,
                                    x->vectors ? step_of(v) : 1, type, t->work,
                                    (size_t)t->work_size * px__cuda_dtype_size(a->dtype), t->host,
                                    t->host_bytes, at(x->info, i, 0));
}
PX_CUDA_KERNEL(eig) {
  shape s;
  task t = {.l = l, .args = args, .query = query_eig, .run_one = run_eig, .name = "Xgeev"};
  const px__cusolver_common *common = px__cusolver_any();
  if (common && !common->cusolverDnXgeev)
    PX_CUDA_FAIL(PX_UNIMPLEMENTED,
                 "linalg.eig on cuda:%d requires cuSOLVER 11.7 or newer (cusolverDnXgeev)",
                 l->device);
  PX_CUDA_PASS(fill(l, args->info, 0));
  int64_t count = count_of(args->self, 2);
  if (!count) return PX_OK;
  px_operand complex = *args->self;
  complex.dtype = args->eigenvalues->dtype;
  PX_CUDA_PASS(allocate(l, &t.in[0], &s, &complex, 2));
  PX_CUDA_PASS(px__cuda_copy_operand(l, &t.in[0], args->self));
  t.in[1] = *args->eigenvectors;
  return px__cusolver_run(&t, complex.dtype, count);
}

// ---- eigenvalues of Hermitian matrices; in[0] is overwritten by eigenvectors

static int query_eigh(task *t, int *size) {
  const px__eigh_kernel *x = t->args;
  return t->api->syevd_bufferSize(t->handle, x->vectors, x->upper, rows_of(&t->in[0]),
                                  t->in[0].data, step_of(&t->in[0]), x->eigenvalues->data, size);
}
static int run_eigh(task *t, int64_t i) {
  const px__eigh_kernel *x = t->args;
  return t->api->syevd(t->handle, x->vectors, x->upper, rows_of(&t->in[0]), at(&t->in[0], i, 2),
                       step_of(&t->in[0]), at(x->eigenvalues, i, 1), t->work, t->work_size,
                       at(x->info, i, 0));
}
// Batched Jacobi; slower than one-by-one solves for larger matrices.
enum { JACOBI = 32 };
static int query_eighs(task *t, int *size) {
  const px__eigh_kernel *x = t->args;
  return t->api->syevjBatched_bufferSize(t->handle, x->vectors, x->upper, rows_of(&t->in[0]),
                                         t->in[0].data, step_of(&t->in[0]), x->eigenvalues->data,
                                         size, t->jacobi, t->count);
}
static int batch_eigh(task *t) {
  const px__eigh_kernel *x = t->args;
  return t->api->syevjBatched(t->handle, x->vectors, x->upper, rows_of(&t->in[0]), t->in[0].data,
                              step_of(&t->in[0]), x->eigenvalues->data, t->work, t->work_size,
                              x->info->data, t->jacobi, t->count);
}
PX_CUDA_KERNEL(eigh) {
  shape s;
  task t = {.l = l, .args = args, .query = query_eigh, .run_one = run_eigh, .name = "syevd"};
  PX_CUDA_PASS(fill(l, args->info, 0));
  int64_t count = count_of(args->self, 2);
  if (!count) return PX_OK;
  if (args->vectors) {
    t.in[0] = *args->eigenvectors;
    PX_CUDA_PASS(px__cuda_copy_operand(l, &t.in[0], args->self));
  } else {
    PX_CUDA_PASS(copied(l, &t.in[0], &s, args->self, 2));
  }
  if (are_many(&t.in[0], count) && rows_of(&t.in[0]) <= JACOBI)
    t.query = query_eighs, t.run_batch = batch_eigh, t.name = "syevjBatched";
  return px__cusolver_run(&t, args->self->dtype, count);
}

// ---- singular values by Jacobi, of tall matrices; wide ones are transposed

// in[0]: the matrices. u and v are column-major; the library requires them even without vectors.
typedef struct singular {
  const px__svd_kernel *x;
  px_operand u, v;
  shape *u_shape, *v_shape;
} singular;
static int query_svd(task *t, int *size) {
  const singular *s = t->args;
  const px_operand *a = &t->in[0];
  return t->api->gesvdj_bufferSize(t->handle, s->x->vectors, !s->x->full_matrices, rows_of(a),
                                   columns_of(a), a->data, step_of(a), s->x->S->data, s->u.data,
                                   step_of(&s->u), s->v.data, step_of(&s->v), size, t->svd_jacobi);
}
static int run_svd(task *t, int64_t i) {
  const singular *s = t->args;
  const px_operand *a = &t->in[0];
  return t->api->gesvdj(t->handle, s->x->vectors, !s->x->full_matrices, rows_of(a), columns_of(a),
                        at(a, i, 2), step_of(a), at(s->x->S, i, 1), at(&s->u, i, 2), step_of(&s->u),
                        at(&s->v, i, 2), step_of(&s->v), t->work, t->work_size,
                        at(s->x->info, i, 0), t->svd_jacobi);
}
static int query_svds(task *t, int *size) {
  const singular *s = t->args;
  const px_operand *a = &t->in[0];
  return t->api->gesvdjBatched_bufferSize(
      t->handle, s->x->vectors, rows_of(a), columns_of(a), a->data, step_of(a), s->x->S->data,
      s->u.data, step_of(&s->u), s->v.data, step_of(&s->v), size, t->svd_jacobi, t->count);
}
static int batch_svd(task *t) {
  const singular *s = t->args;
  const px_operand *a = &t->in[0];
  return t->api->gesvdjBatched(t->handle, s->x->vectors, rows_of(a), columns_of(a), a->data,
                               step_of(a), s->x->S->data, s->u.data, step_of(&s->u), s->v.data,
                               step_of(&s->v), t->work, t->work_size, s->x->info->data,
                               t->svd_jacobi, t->count);
}
// Allocates scratch matrices of other sizes with the batch of `like`.
static px_status allocate_matrices(const px_launch *l, px_operand *made, shape *s,
                                   const px_operand *like, int rows, int columns) {
  shape own;
  px_operand of = corner(like, &own, rows, columns);
  return allocate(l, made, s, &of, 2);
}
PX_CUDA_KERNEL(svd) {
  SHAPES(shapes, 5);
  singular s = {.x = args, .u_shape = &shapes[3], .v_shape = &shapes[4]};
  task t = {.l = l, .args = &s, .query = query_svd, .run_one = run_svd, .name = "gesvdj"};
  int64_t count = count_of(args->A, 2);
  PX_CUDA_PASS(fill(l, args->info, 0));
  if (!count && args->vectors) {
    PX_CUDA_PASS(identity(l, args->U));
    return identity(l, args->Vh);
  }
  if (!count) return PX_OK;
  bool wide = rows_of(args->A) < columns_of(args->A);
  px_operand a = wide ? transposed(args->A, &shapes[0]) : *args->A;
  int m = rows_of(&a), n = columns_of(&a);
  PX_CUDA_PASS(copied(l, &t.in[0], &shapes[1], &a, 2));
  PX_CUDA_PASS(allocate_matrices(l, &s.u, s.u_shape, &a, m, args->full_matrices ? m : n));
  PX_CUDA_PASS(allocate_matrices(l, &s.v, s.v_shape, &a, n, n));
  if (are_many(&t.in[0], count) && n <= JACOBI)
    t.query = query_svds, t.run_batch = batch_svd, t.name = "gesvdjBatched";
  PX_CUDA_PASS(px__cusolver_run(&t, args->A->dtype, count));
  if (!args->vectors) return PX_OK;
  // The library returns V, and conj(V) S U' for the transposed matrix.
  px_operand vh = transposed(args->Vh, &shapes[2]);
  PX_CUDA_PASS(conjugate(l, &s.v));
  PX_CUDA_PASS(px__cuda_copy_operand(l, args->U, wide ? &s.v : &s.u));
  return px__cuda_copy_operand(l, &vh, wide ? &s.u : &s.v);
}
