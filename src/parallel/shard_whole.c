// SPDX-License-Identifier: Apache-2.0
// Collective queries on sharded tensors: the unsharded tensor, and norms.
#include <math.h>

#include "parallel/placed.h"
#include "phlox/autograd.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/view.h"
#include "phlox/optim.h"
#include "phlox/shard.h"

// ---- the unsharded tensor

// Backward narrows the gradient, which is identical on all ranks, to this rank's rows.
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
           "expected a local tensor of %d dimensions, got %d", ndim, px_tensor_ndim(local));
  px_shard_rows(&first, &count, sizes[0], px_comm_rank(comm), px_comm_size(comm));
  bool fits = px_tensor_size(local, 0) == count;
  for (int d = 1; d < ndim; d++) fits &= px_tensor_size(local, d) == sizes[d];
  PX_CHECK(fits, PX_VALUE, "expected %lld of %lld rows and equal other sizes, got %lld rows",
           (long long)count, (long long)sizes[0], (long long)px_tensor_size(local, 0));
  return PX_OK;
}

px_status px_shard_gather(px_tensor **out, px_comm *comm, px_tensor *local, int ndim,
                          const int64_t *sizes) {
  PX_SCOPED(px_tensor) whole = NULL;
  PX_GIVEN(out);
  PX_GIVEN(comm);
  PX_GIVEN(local);
  PX_GIVEN_N(sizes, ndim);
  PX_TRY(check_part(comm, local, ndim, sizes));
  bool was = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status = px__placed_gather(&whole, comm, local, 0, sizes[0]);
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
  for (int64_t i = 0; i < count; i++)  // an empty tensor has no maximum
    if (px_tensor_numel(parts[i])) some[n++] = parts[i];
  px_status status = n ? px_total_norm(out, some, n, norm_type, false)
                       : px_zeros(out, NULL, 0, px_tensor_dtype(parts[0]),
                                  px_tensor_device(parts[0]), false, false);
  px_free(some);
  return status;
}

// All-reduces a tensor in place. It must be on a device supported by the communicator.
static px_status reduce_all(px_comm *comm, px_reduce_op reduce, px_tensor *tensor) {
  PX_SCOPED(px_work) work = NULL;
  px_collective all = {
      .op = PX_ALL_REDUCE, .reduce = reduce, .outputs = &tensor, .output_count = 1};
  PX_TRY(px_comm_run(&work, comm, &all));
  return px_work_wait(work, 0);
}

static px_status norm_of_all(px_tensor **out, px_comm *comm, px_tensor *const *parts, int64_t count,
                             double norm_type) {
  PX_SCOPED(px_tensor) here = NULL;
  PX_SCOPED(px_tensor) norm = NULL;
  bool infinity = isinf(norm_type);
  PX_TRY(norm_here(&here, parts, count, norm_type));
  PX_TRY(px__placed_for(&norm, comm, here));
  if (!infinity) PX_TRY(px_pow_scalar_(norm, px_float(norm_type)));
  PX_TRY(reduce_all(comm, infinity ? PX_REDUCE_MAX : PX_REDUCE_SUM, norm));
  if (!infinity) PX_TRY(px_pow_scalar_(norm, px_float(1 / norm_type)));
  return px_to(out, norm, PX_DTYPE_NONE, px_tensor_device(here), false, false);
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
  PX_CHECK(count > 0, PX_VALUE, "expected at least one sharded tensor for the norm");
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

static px_status max_of_all(px_comm *comm, px_tensor *number) {
  PX_SCOPED(px_tensor) there = NULL;
  PX_TRY(px__placed_for(&there, comm, number));
  PX_TRY(reduce_all(comm, PX_REDUCE_MAX, there));
  return there == number ? PX_OK : px_copy_(number, there, false);
}

px_status px_shard_max(px_comm *comm, px_tensor *number) {
  PX_GIVEN(comm);
  PX_GIVEN(number);
  bool was = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status = max_of_all(comm, number);
  px_grad_set_enabled(was);
  return status;
}
