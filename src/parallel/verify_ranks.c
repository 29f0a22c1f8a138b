// SPDX-License-Identifier: Apache-2.0
// Consistency across ranks: comparing parameters, and copying tensors from one rank to all.
#include <stdio.h>
#include <string.h>

#include "parallel/reducer_impl.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/index.h"
#include "phlox/ops/view.h"

px_status px__run_all_reduce(px_work **work, px_comm *comm, px_tensor *tensor) {
  px_collective all = {.op = PX_ALL_REDUCE, .outputs = &tensor, .output_count = 1};
  return px_comm_run(work, comm, &all);
}

static px_status copy_from(px_comm *comm, int root, px_tensor *tensor) {
  PX_SCOPED(px_work) work = NULL;
  px_collective broadcast = {
      .op = PX_BROADCAST, .outputs = &tensor, .output_count = 1, .peer = root};
  PX_TRY(px_comm_run(&work, comm, &broadcast));
  return px_work_wait(work, 0);
}

// ---- integers exchanged between ranks

// Integers are sent on the parameters' device: the communicator may support no other.
px_status px__numbers_put(px_tensor **out, const int64_t *numbers, int64_t count,
                          px_device device) {
  PX_SCOPED(px_tensor) here = NULL;
  PX_TRY(px_tensor_empty(&here, 1, &count, PX_INT64, px_cpu()));
  memcpy(px_tensor_data(here), numbers, (size_t)count * sizeof *numbers);
  return px_to(out, here, PX_DTYPE_NONE, device, false, true);
}

px_status px__numbers_get(int64_t *numbers, const px_tensor *tensor) {
  PX_SCOPED(px_tensor) here = NULL;
  PX_TRY(px_to(&here, tensor, PX_DTYPE_NONE, px_cpu(), false, false));
  memcpy(numbers, px_tensor_data(here), (size_t)px_tensor_numel(here) * sizeof *numbers);
  return PX_OK;
}

px_status px__numbers_from(px_comm *comm, int root, int64_t *numbers, int64_t count,
                           px_device device) {
  PX_SCOPED(px_tensor) tensor = NULL;
  PX_TRY(px__numbers_put(&tensor, numbers, count, device));
  PX_TRY(copy_from(comm, root, tensor));
  return px__numbers_get(numbers, tensor);
}

// All-gathers the integers of all ranks, in rank order.
static px_status gather_numbers(px_comm *comm, int64_t *all, const int64_t *mine, int64_t count,
                                px_device device) {
  PX_SCOPED(px_tensor) in = NULL;
  PX_SCOPED(px_tensor) out = NULL;
  PX_SCOPED(px_work) work = NULL;
  int64_t total = count * px_comm_size(comm);
  PX_TRY(px__numbers_put(&in, mine, count, device));
  PX_TRY(px_tensor_empty(&out, 1, &total, PX_INT64, device));
  px_collective gather = {
      .op = PX_ALL_GATHER, .inputs = &in, .input_count = 1, .outputs = &out, .output_count = 1};
  PX_TRY(px_comm_run(&work, comm, &gather));
  PX_TRY(px_work_wait(work, 0));
  return px__numbers_get(all, out);
}

// ---- comparing parameters

enum { SIZES, STRIDES, DTYPE, KINDS };
static const char *const kinds[] = {"sizes", "strides", "dtype"};

static int64_t hash_of(const int64_t *numbers, int count) {
  uint64_t h = 0xcbf29ce484222325u + (uint64_t)count;
  for (int i = 0; i < count; i++) h = (h ^ (uint64_t)numbers[i]) * 0x100000001b3u;
  return (int64_t)h;
}

static void describe(int64_t *out, const px_tensor *tensor) {
  int ndim = px_tensor_ndim(tensor);
  out[SIZES] = hash_of(px_tensor_sizes(tensor), ndim);
  out[STRIDES] = hash_of(px_tensor_strides(tensor), ndim);
  out[DTYPE] = px_tensor_dtype(tensor);
}

static const char *kind_text(char *text, size_t size, const px_tensor *tensor, int kind) {
  if (kind == DTYPE) return px_dtype_name(px_tensor_dtype(tensor));
  const int64_t *numbers = kind == SIZES ? px_tensor_sizes(tensor) : px_tensor_strides(tensor);
  size_t used = (size_t)snprintf(text, size, "[");
  for (int d = 0; d < px_tensor_ndim(tensor) && used < size; d++)
    used +=
        (size_t)snprintf(text + used, size - used, "%s%lld", d ? ", " : "", (long long)numbers[d]);
  if (used < size) snprintf(text + used, size - used, "]");
  return text;
}

// Fails on every rank if any rank differs from rank 0. A rank equal to rank 0 names the first other
// one in cyclic order.
static px_status compare(px_comm *comm, px_tensor *const *parameters, int count,
                         const int64_t *all) {
  char text[300];
  int mine = px_comm_rank(comm), size = px_comm_size(comm);
  for (int offset = 0; offset < size; offset++) {
    int rank = (mine + offset) % size;
    const int64_t *other = all + (int64_t)rank * count * KINDS;
    for (int i = 0; i < count * KINDS; i++) {
      if (other[i] == all[i]) continue;
      int kind = i % KINDS;
      PX_CHECK(rank == mine, PX_RUNTIME,
               "[%d]: params[%d] in process %d appears not to match %s of the same param in "
               "process 0.",
               mine, i / KINDS, rank, kinds[kind]);
      PX_FAIL(PX_RUNTIME,
              "[%d]: params[%d] in this process with %s %s appears not to match %s of the same "
              "param in process 0.",
              mine, i / KINDS, kinds[kind],
              kind_text(text, sizeof text, parameters[i / KINDS], kind), kinds[kind]);
    }
  }
  return PX_OK;
}

static px_status check_counts(px_comm *comm, int count, px_device device) {
  int64_t mine = count, *all;
  PX_TRY(px_alloc((void **)&all, (size_t)px_comm_size(comm) * sizeof *all));
  px_status status = gather_numbers(comm, all, &mine, 1, device);
  for (int r = 0; r < px_comm_size(comm) && status == PX_OK; r++)
    if (all[r] != count)
      status = px_error_set(PX_RUNTIME, 0, __FILE__, __LINE__, __func__,
                            "DDP expects same model across all ranks, but Rank %d has %d params, "
                            "while rank %d has inconsistent %lld params.",
                            px_comm_rank(comm), count, r, (long long)all[r]);
  px_free(all);
  return status;
}

px_status px_comm_check_parameters(px_comm *self, px_tensor *const *parameters, int count) {
  PX_GIVEN(self);
  PX_GIVEN_EACH(parameters, count);
  PX_CHECK(count > 0, PX_VALUE, "no parameters to compare");
  int64_t *mine, numbers = (int64_t)count * KINDS;
  px_device device = px_tensor_device(parameters[0]);
  PX_TRY(check_counts(self, count, device));
  PX_TRY(
      px_alloc((void **)&mine, (size_t)numbers * (size_t)(1 + px_comm_size(self)) * sizeof *mine));
  for (int i = 0; i < count; i++) describe(mine + (int64_t)i * KINDS, parameters[i]);
  px_status status = gather_numbers(self, mine + numbers, mine, numbers, device);
  if (status == PX_OK) status = compare(self, parameters, count, mine + numbers);
  px_free(mine);
  return status;
}

// ---- copies

static px_status flatten(px_tensor **out, px_tensor *tensor) {
  PX_SCOPED(px_tensor) constant = NULL;
  PX_TRY(px_tensor_detach(&constant, tensor));
  return px_flatten(out, constant, 0, -1);
}

static px_status unflatten(px_tensor *flat, px_tensor *const *tensors, int count) {
  int64_t at = 0;
  for (int i = 0; i < count; i++) {
    PX_SCOPED(px_tensor) part = NULL;
    PX_SCOPED(px_tensor) view = NULL;
    PX_SCOPED(px_tensor) constant = NULL;
    PX_TRY(px_narrow(&part, flat, 0, at, px_tensor_numel(tensors[i])));
    PX_TRY(px_view_as(&view, part, tensors[i]));
    PX_TRY(px_tensor_detach(&constant, tensors[i]));
    PX_TRY(px_copy_(constant, view, false));
    at += px_tensor_numel(tensors[i]);
  }
  return PX_OK;
}

static px_status copy_group(px_comm *comm, int root, px_tensor *const *tensors, int count,
                            px_tensor **parts) {
  PX_SCOPED(px_tensor) flat = NULL;
  for (int i = 0; i < count; i++) PX_TRY(flatten(&parts[i], tensors[i]));
  PX_TRY(px_cat(&flat, parts, count, 0));
  PX_TRY(copy_from(comm, root, flat));
  return px_comm_rank(comm) == root ? PX_OK : unflatten(flat, tensors, count);
}

static bool same_kind(const px_tensor *a, const px_tensor *b) {
  return px_tensor_dtype(a) == px_tensor_dtype(b) &&
         px_device_equal(px_tensor_device(a), px_tensor_device(b));
}

// Copies tensors in groups of the same dtype and device, one broadcast each.
static px_status copy_all(px_comm *comm, int root, px_tensor **remaining, px_tensor **group,
                          px_tensor **parts, int count) {
  for (int first = 0; first < count; first++) {
    int n = 0;
    for (int i = count - 1; remaining[first] && i >= first; i--) {
      if (!remaining[i] || !same_kind(remaining[i], remaining[first])) continue;
      group[n++] = remaining[i];
      if (i > first) remaining[i] = NULL;
    }
    px_status status = n ? copy_group(comm, root, group, n, parts) : PX_OK;
    px__drop_all(parts, n);
    PX_TRY(status);
  }
  return PX_OK;
}

px_status px_comm_copy_from(px_comm *self, int root, px_tensor *const *tensors, int count) {
  PX_GIVEN(self);
  PX_GIVEN_EACH(tensors, count);
  px_tensor **scratch;
  PX_TRY(px_alloc((void **)&scratch, 3 * (size_t)(count + 1) * sizeof *scratch));
  for (int i = 0; i < count; i++) scratch[i] = tensors[i];
  bool was = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status = copy_all(self, root, scratch, scratch + count, scratch + 2 * count, count);
  px_grad_set_enabled(was);
  px_free(scratch);
  return status;
}

// ---- partitioning tensors among ranks

static int lightest(const int64_t *loads, int size) {
  int rank = 0;
  for (int r = 1; r < size; r++)
    if (loads[r] < loads[rank]) rank = r;
  return rank;
}

// Index of the first largest tensor without an owner.
static int largest_left(const int *owners, px_tensor *const *tensors, int count) {
  int found = -1;
  for (int i = 0; i < count; i++)
    if (owners[i] < 0 &&
        (found < 0 || px_tensor_numel(tensors[i]) > px_tensor_numel(tensors[found])))
      found = i;
  return found;
}

px_status px_partition(int *owners, int64_t *loads, int size, px_tensor *const *tensors,
                       int count) {
  PX_GIVEN_N(owners, count);
  PX_GIVEN_N(loads, size);
  PX_GIVEN_N(tensors, count);
  PX_GIVEN_EACH(tensors, count);
  PX_CHECK(size > 0, PX_VALUE, "expected at least one rank to partition tensors, got %d", size);
  for (int i = 0; i < count; i++) owners[i] = -1;
  for (int k = 0; k < count; k++) {
    int i = largest_left(owners, tensors, count);
    owners[i] = lightest(loads, size);
    loads[owners[i]] += px_tensor_numel(tensors[i]);
  }
  return PX_OK;
}

px_status px_comm_broadcast_owned(px_comm *self, px_tensor *const *tensors, const int *owners,
                                  int count) {
  PX_GIVEN(self);
  PX_GIVEN_N(tensors, count);
  PX_GIVEN_N(owners, count);
  px_tensor **own;
  for (int i = 0; i < count; i++)
    PX_CHECK(owners[i] >= 0 && owners[i] < px_comm_size(self), PX_VALUE,
             "rank %d is not in a group of %d", owners[i], px_comm_size(self));
  PX_TRY(px_alloc((void **)&own, (size_t)(count + 1) * sizeof *own));
  px_status status = PX_OK;
  for (int r = 0; r < px_comm_size(self) && status == PX_OK; r++) {
    int n = 0;
    for (int i = 0; i < count; i++)
      if (owners[i] == r) own[n++] = tensors[i];
    if (n) status = px_comm_copy_from(self, r, own, n);
  }
  px_free(own);
  return status;
}
