// SPDX-License-Identifier: Apache-2.0
// What all ranks know together of tensors of which each has a part: the whole, and the norm.
#include <math.h>

#include "parallel/reducer_impl.h"
#include "phlox/autograd.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/view.h"
#include "phlox/optim.h"
#include "phlox/shard.h"

// ---- the whole

static px_status pad(px_tensor **out, const px_tensor *local, int64_t share) {
  PX_SCOPED(px_tensor) plain = NULL;
  PX_SCOPED(px_tensor) row = NULL;
  PX_SCOPED(px_tensor) place = NULL;
  int64_t n = px_tensor_numel(local);
  PX_TRY(px_tensor_detach(&plain, local));
  PX_TRY(px_reshape(&row, plain, &n, 1));
  if (n == share && px_tensor_is_contiguous(row)) return *out = PX_MOVE(row), PX_OK;
  PX_TRY(px_zeros(out, &share, 1, px_tensor_dtype(local), px_tensor_device(local), false, false));
  PX_TRY(px_narrow(&place, *out, 0, 0, n));
  return px_copy_(place, row, false);
}

static px_status gather_whole(px_tensor **out, px_comm *comm, const px_tensor *local, int ndim,
                              const int64_t *sizes) {
  PX_SCOPED(px_tensor) mine = NULL;
  PX_SCOPED(px_tensor) all = NULL;
  PX_SCOPED(px_tensor) used = NULL;
  PX_SCOPED(px_work) work = NULL;
  int64_t row = 1, size = px_comm_size(comm);
  for (int d = 1; d < ndim; d++) row *= sizes[d];
  int64_t share = (sizes[0] + size - 1) / size * row, total = share * size;
  PX_TRY(pad(&mine, local, share));
  PX_TRY(px_tensor_empty(&all, 1, &total, px_tensor_dtype(local), px_tensor_device(local)));
  px_collective gather = {
      .op = PX_ALL_GATHER, .inputs = &mine, .input_count = 1, .outputs = &all, .output_count = 1};
  PX_TRY(px_comm_run(&work, comm, &gather));
  PX_TRY(px_work_wait(work, 0));
  PX_TRY(px_narrow(&used, all, 0, 0, sizes[0] * row));
  PX_SCOPED(px_tensor) shaped = NULL;
  PX_TRY(px_view(&shaped, used, sizes, ndim));
  return px_tensor_detach(out, shaped);
}

// The gradient of a rank's part is its rows of that of the whole, which all ranks have alike.
typedef struct rows {
  int64_t first, count;
} rows;

static px_status whole_backward(px_tensor **grad_inputs, int input_count,
                                px_tensor *const *grad_outputs, int output_count, void *context) {
  const rows *r = context;
  PX_SCOPED(px_tensor) part = NULL;
  if (!grad_outputs[0]) return PX_OK;
  PX_TRY(px_narrow(&part, grad_outputs[0], 0, r->first, r->count));
  return px_clone(&grad_inputs[0], part, "contiguous_format");
}

static px_status record(px_comm *comm, px_tensor *local, px_tensor *whole) {
  static const px_function function = {"ShardWhole", whole_backward, px_free, NULL};
  rows *r;
  if (!px_grad_enabled() || !px_tensor_requires_grad(local)) return PX_OK;
  PX_TRY(px_alloc((void **)&r, sizeof *r));
  px_shard_rows(&r->first, &r->count, px_tensor_size(whole, 0), px_comm_rank(comm),
                px_comm_size(comm));
  return px_function_record(&function, r, 1, &local, 1, &whole);
}

static px_status check_part(px_comm *comm, const px_tensor *local, int ndim, const int64_t *sizes) {
  int64_t first, count;
  PX_CHECK(ndim > 0 && ndim == px_tensor_ndim(local), PX_VALUE,
           "a part of %d dimensions is none of a tensor of %d", px_tensor_ndim(local), ndim);
  px_shard_rows(&first, &count, sizes[0], px_comm_rank(comm), px_comm_size(comm));
  bool fits = px_tensor_size(local, 0) == count;
  for (int d = 1; d < ndim; d++) fits &= px_tensor_size(local, d) == sizes[d];
  PX_CHECK(fits, PX_VALUE, "the sizes of a part do not fit those of the whole: %lld of %lld rows",
           (long long)px_tensor_size(local, 0), (long long)sizes[0]);
  return PX_OK;
}

px_status px_shard_whole(px_tensor **out, px_comm *comm, px_tensor *local, int ndim,
                         const int64_t *sizes) {
  PX_SCOPED(px_tensor) whole = NULL;
  PX_GIVEN(out);
  PX_GIVEN(comm);
  PX_GIVEN(local);
  PX_GIVEN_N(sizes, ndim);
  PX_TRY(check_part(comm, local, ndim, sizes));
  bool was = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status = gather_whole(&whole, comm, local, ndim, sizes);
  px_grad_set_enabled(was);
  PX_TRY(status);
  PX_TRY(record(comm, local, whole));
  *out = PX_MOVE(whole);
  return PX_OK;
}

// ---- the norm

static px_status norm_here(px_tensor **out, px_tensor *const *parts, int64_t count,
                           double norm_type) {
  px_tensor **some;
  int64_t n = 0;
  PX_TRY(px_alloc((void **)&some, (size_t)count * sizeof *some));
  for (int64_t i = 0; i < count; i++)  // of nothing there is no greatest element
    if (px_tensor_numel(parts[i])) some[n++] = parts[i];
  px_status status = n ? px_total_norm(out, some, n, norm_type, false)
                       : px_zeros(out, NULL, 0, px_tensor_dtype(parts[0]),
                                  px_tensor_device(parts[0]), false, false);
  px_free(some);
  return status;
}

static px_status norm_of_all(px_tensor **out, px_comm *comm, px_tensor *const *parts, int64_t count,
                             double norm_type) {
  PX_SCOPED(px_tensor) norm = NULL;
  PX_SCOPED(px_work) work = NULL;
  bool greatest = isinf(norm_type);
  PX_TRY(norm_here(&norm, parts, count, norm_type));
  if (!greatest) PX_TRY(px_pow_scalar_(norm, px_float(norm_type)));
  px_collective all = {.op = PX_ALL_REDUCE,
                       .reduce = greatest ? PX_REDUCE_MAX : PX_REDUCE_SUM,
                       .outputs = &norm,
                       .output_count = 1};
  PX_TRY(px_comm_run(&work, comm, &all));
  PX_TRY(px_work_wait(work, 0));
  if (!greatest) PX_TRY(px_pow_scalar_(norm, px_float(1 / norm_type)));
  *out = PX_MOVE(norm);
  return PX_OK;
}

static px_status norm_with_own(px_tensor **out, px_tensor *norm, px_tensor *const *own,
                               int64_t count, double norm_type) {
  px_tensor **list;
  PX_TRY(px_alloc((void **)&list, (size_t)(count + 1) * sizeof *list));
  list[0] = norm;
  for (int64_t i = 0; i < count; i++) list[i + 1] = own[i];
  px_status status = px_total_norm(out, list, count + 1, norm_type, false);
  px_free(list);
  return status;
}

px_status px_shard_norm(px_tensor **out, px_comm *comm, px_tensor *const *parts, int64_t count,
                        px_tensor *const *own, int64_t own_count, double norm_type) {
  PX_GIVEN(out);
  PX_GIVEN(comm);
  PX_GIVEN_EACH(parts, count);
  PX_GIVEN_EACH(own, own_count);
  PX_CHECK(count > 0, PX_VALUE, "no parts of tensors to take the norm of");
  PX_CHECK(norm_type > 0, PX_UNIMPLEMENTED, "the norm %g of sharded tensors is not implemented",
           norm_type);
  PX_SCOPED(px_tensor) norm = NULL;
  bool was = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status = norm_of_all(&norm, comm, parts, count, norm_type);
  if (status == PX_OK && own_count > 0)
    status = norm_with_own(out, norm, own, own_count, norm_type);
  else if (status == PX_OK)
    *out = PX_MOVE(norm);
  px_grad_set_enabled(was);
  return status;
}
