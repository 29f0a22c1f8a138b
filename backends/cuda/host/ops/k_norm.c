// SPDX-License-Identifier: Apache-2.0
// Host functions of softmax.cu, norm.cu and group.cu.
#include "cuda/host/ops/kernel.h"
#include "kernel_args/norm.h"

// Row chunks of partial sums: at least CHUNK_ROWS rows each, at most MAX_CHUNKS chunks; or one
// chunk a group of threads in a grid-stride loop of SUM_THREADS threads. Equal on all devices, so
// that results are.
enum { CHUNK_ROWS = 64, MAX_CHUNKS = 256, SUM_THREADS = 1056 * 64 };
// Minimum number of threads to spread few rows over: a few warps per multiprocessor.
enum { MIN_THREADS = 16384 };
// channels_last: blocks for channel sums, and rows per thread in element-wise passes.
enum { LAST_BLOCKS = 1056, LAST_ROWS = 16 };

// ---- contiguous rows

// Chooses a kernel for rows of `size` elements and returns the threads per block. NAME_short holds
// 32 bytes of numbers per thread. NAME_long holds `bytes` per thread in up to `threads` threads and
// requires aligned rows. NAME_rows handles the rest. `all` lists the tensors walked by the kernel.
// With few rows, threads hold less, down to one vector, because a thread waits for all of its
// loads.
static unsigned choose_variant(k_rows *p, const char **variant, int dtype, int64_t bytes,
                               int64_t threads, const void *const *all, int count) {
  size_t item = px__cuda_dtype_size(dtype), number = px__cuda_dtype_size(px__compute_of(dtype));
  bool is_short = p->size * (int64_t)number <= 32 * 32;
  int64_t each = (is_short ? 32 : bytes) / (int64_t)number;
  bool dense = p->size * (int64_t)item % 16 == 0;
  p->vector = true;
  for (int i = 0; i < count; i++) p->vector &= (uintptr_t)all[i] % 16 == 0;
  bool fits = is_short || (p->vector && dense && p->size <= threads * each);
  if (fits) p->vector &= dense;
  p->lanes = fits ? 1 : 1024;
  while (fits && p->lanes * each < p->size) p->lanes *= 2;
  *variant = !fits ? "rows" : is_short ? "short" : "long";
  while (fits && !is_short && p->lanes * 16 / (int64_t)item < p->size && p->lanes < threads &&
         p->outer * p->lanes * 2 <= MIN_THREADS)
    p->lanes *= 2;
  // Small blocks run in different phases at a time: some load while others store.
  return p->lanes > 64 ? (unsigned)p->lanes : is_short ? K_BLOCK : 64;
}
static px_status launch_variant(const px_launch *l, const char *module, const char *name,
                                const char *variant, int dtype, int64_t grid, unsigned block,
                                k_rows *p) {
  char function[48];
  snprintf(function, sizeof function, "%s_%s", name, variant);
  return px__cuda_by_dtype(l, module, function, dtype, grid, block, p);
}
// Launches a kernel with 64 or 128 bytes of numbers a thread.
static px_status by_rows(const px_launch *l, k_rows *p, const char *module, const char *name,
                         int dtype, int64_t bytes, const void *const *all, int count) {
  const char *variant;
  unsigned block = choose_variant(p, &variant, dtype, bytes, 1024, all, count);
  int64_t rows = block / p->lanes;
  return launch_variant(l, module, name, variant, dtype, (p->outer + rows - 1) / rows, block, p);
}

// ---- softmax

// Forward from self; backward from grad and output.
static px_status softmax(const px_launch *l, const px_operand *to, const px_operand *self,
                         const px_operand *grad, const px_operand *output, int64_t dim, bool logs) {
  const char *name = grad ? "softmax_backward" : "softmax";
  int dtype = to->dtype;
  px__cuda_dense d = {.launch = l};
  k_rows p = {.logs = logs};
  px__split_sizes(to, dim, &p.outer, &p.size, &p.inner);
  if (p.outer * p.size * p.inner == 0) return PX_OK;
  p.result = px__cuda_dense_out(&d, to, dtype);
  p.input = px__cuda_dense_in(&d, self, dtype);
  p.grad = px__cuda_dense_in(&d, grad, dtype), p.output = px__cuda_dense_in(&d, output, dtype);
  PX_CUDA_PASS(d.status);
  const void *all[] = {p.result, p.input, p.grad, p.output};
  if (p.inner == 1) {
    PX_CUDA_PASS(by_rows(l, &p, "softmax", name, dtype, grad ? 64 : 128, all, 4));
  } else {
    char function[48];
    snprintf(function, sizeof function, "%s_lines", name);
    int64_t blocks = (p.outer * p.inner + K_BLOCK - 1) / K_BLOCK;
    PX_CUDA_PASS(px__cuda_by_dtype(l, "softmax", function, dtype, blocks, K_BLOCK, &p));
  }
  return px__cuda_dense_close(&d);
}
PX_CUDA_KERNEL(softmax) { return softmax(l, args->out, args->self, NULL, NULL, args->dim, false); }
PX_CUDA_KERNEL(log_softmax) {
  return softmax(l, args->out, args->self, NULL, NULL, args->dim, true);
}
PX_CUDA_KERNEL(softmax_backward) {
  return softmax(l, args->out, NULL, args->grad_output, args->output, args->dim, false);
}
PX_CUDA_KERNEL(log_softmax_backward) {
  return softmax(l, args->out, NULL, args->grad_output, args->output, args->dim, true);
}

// ---- layers

PX_CUDA_KERNEL(native_layer_norm) {
  int dtype = args->input->dtype, compute = px__compute_of(dtype);
  px__cuda_dense d = {.launch = l};
  k_rows p = {.result = px__cuda_dense_out(&d, args->output, dtype),
              .mean = px__cuda_dense_out(&d, args->mean, compute),
              .rstd = px__cuda_dense_out(&d, args->rstd, compute),
              .input = px__cuda_dense_in(&d, args->input, dtype),
              .weight = px__cuda_dense_in(&d, args->weight, dtype),
              .bias = px__cuda_dense_in(&d, args->bias, dtype),
              .size = px__list_product(&args->normalized_shape),
              .eps = args->eps};
  PX_CUDA_PASS(d.status);
  const void *all[] = {p.result, p.input, p.weight, p.bias};
  p.outer = p.size ? px_operand_numel(args->input) / p.size : 0;
  if (p.outer) PX_CUDA_PASS(by_rows(l, &p, "norm", "layer", dtype, 128, all, 4));
  return px__cuda_dense_close(&d);
}

// Computes the input's gradient, and partial sums over chunks of rows for the gradients of weight
// and bias, in one kernel; in two for rows that do not fit.
static px_status layer_backward(const px_launch *l, k_rows *p, int dtype, const void *const *all) {
  const char *variant;
  size_t item = px__cuda_dtype_size(px__compute_of(dtype));
  int64_t bytes = (int64_t)(2 * 16 / px__cuda_dtype_size(dtype) * item);  // K_TWO vectors
  unsigned block = choose_variant(p, &variant, dtype, bytes, 512, all, 4);
  int64_t rows = block / p->lanes, grid = (p->outer + rows - 1) / rows;
  bool fits = strcmp(variant, "rows") != 0, sums = p->grad_weight || p->grad_bias;
  if (fits && grid > SUM_THREADS / block) grid = SUM_THREADS / block;
  p->chunks = fits ? grid * block / (p->lanes < 32 ? 32 : p->lanes) : p->outer / CHUNK_ROWS + 1;
  if (!fits && p->chunks > MAX_CHUNKS) p->chunks = MAX_CHUNKS;
  if (sums)
    PX_CUDA_PASS(px__cuda_scratch(l, (size_t)(p->chunks * 2 * p->size) * item, &p->partial));
  if (fits || p->result)
    PX_CUDA_PASS(launch_variant(l, "norm", "layer_backward", variant, dtype, grid, block, p));
  if (fits || !sums) return PX_OK;
  return px__cuda_by_dtype(l, "norm", "layer_partial", dtype, (p->size + 31) / 32 * p->chunks,
                           K_BLOCK, p);
}
PX_CUDA_KERNEL(layer_norm_backward) {
  int dtype = args->input->dtype, compute = px__compute_of(dtype);
  px__cuda_dense d = {.launch = l};
  k_rows p = {.result = px__cuda_dense_out(&d, args->grad_input, dtype),
              .grad_weight = px__cuda_dense_out(&d, args->grad_weight, dtype),
              .grad_bias = px__cuda_dense_out(&d, args->grad_bias, dtype),
              .grad = px__cuda_dense_in(&d, args->grad_output, dtype),
              .input = px__cuda_dense_in(&d, args->input, dtype),
              .weight = px__cuda_dense_in(&d, args->weight, dtype),
              .mean = px__cuda_dense_in(&d, args->mean, compute),
              .rstd = px__cuda_dense_in(&d, args->rstd, compute),
              .size = px__list_product(&args->normalized_shape)};
  PX_CUDA_PASS(d.status);
  const void *all[] = {p.result, p.grad, p.input, p.weight};
  p.outer = p.size ? px_operand_numel(args->input) / p.size : 0;
  if (p.outer) PX_CUDA_PASS(layer_backward(l, &p, dtype, all));
  if (p.size && (p.grad_weight || p.grad_bias))
    PX_CUDA_PASS(px__cuda_by_dtype(l, "norm", "layer_sums", dtype,
                                   (p.size + K_SUM_COLUMNS - 1) / K_SUM_COLUMNS, 1024, &p));
  return px__cuda_dense_close(&d);
}

// ---- batch norm

// Two partial sums for each channel, then their combination with one thread per channel.
static px_status batch_sums(const px_launch *l, k_rows *p, const char *sums, const char *join,
                            int dtype) {
  int64_t pieces = p->inner == 1 ? (p->size + 31) / 32 : p->size;
  int64_t most = p->outer * p->inner / 2048, chunks = 1056 / (pieces ? pieces : 1);
  if (chunks > most) chunks = most;
  if (chunks > p->outer * p->how) chunks = p->outer * p->how;
  p->chunks = chunks < 1 ? 1 : chunks;
  PX_CUDA_PASS(
      px__cuda_scratch(l, (size_t)(p->size * p->chunks + 1) * 2 * sizeof(double), &p->partial));
  PX_CUDA_PASS(px__cuda_by_dtype(l, "norm", sums, dtype, pieces * p->chunks, K_BLOCK, p));
  return px__cuda_by_dtype(l, "norm", join, dtype, (p->size + K_BLOCK - 1) / K_BLOCK, K_BLOCK, p);
}
// Element-wise pass: a thread per element, or a warp per part of a row.
static px_status batch_each(const px_launch *l, k_rows *p, const char *name, int dtype) {
  int64_t threads = p->outer * p->size * p->how * (p->inner == 1 ? 1 : 32);
  int64_t blocks = (threads + K_BLOCK - 1) / K_BLOCK;
  return px__cuda_by_dtype(l, "norm", name, dtype, blocks, K_BLOCK, p);
}

static bool is_aligned(const k_rows *p) {
  return ((uintptr_t)p->result | (uintptr_t)p->input | (uintptr_t)p->grad) % 16 == 0;
}
// True for channels_last with aligned rows of whole vectors. Sets `lanes`, the vectors a block
// covers.
static bool is_channels_last(k_rows *p, int dtype) {
  int64_t each = 16 / (int64_t)px__cuda_dtype_size(dtype), vectors = p->size / each;
  p->lanes = 1;
  while (p->lanes < 32 && p->lanes < vectors) p->lanes *= 2;
  return p->inner == 1 && p->size % each == 0 && p->outer > 1 && is_aligned(p);
}
// groups_of: groups of `lanes` vectors. divide: number of row chunks, at least `chunks` and enough
// for LAST_BLOCKS blocks, each with whole block rows.
static int64_t groups_of(const k_rows *p, int dtype) {
  int64_t vectors = p->size / (16 / (int64_t)px__cuda_dtype_size(dtype));
  return (vectors + p->lanes - 1) / p->lanes;
}
static void set_chunks(k_rows *p, int64_t groups, int64_t chunks) {
  int64_t least = LAST_BLOCKS / groups, most = p->outer / (K_BLOCK / p->lanes);
  if (chunks < least) chunks = least;
  if (chunks > most) chunks = most;
  p->chunks = chunks < 1 ? 1 : chunks;
}
static px_status last_sums(const px_launch *l, k_rows *p, const char *sums, const char *columns,
                           int dtype) {
  int64_t groups = groups_of(p, dtype);
  set_chunks(p, groups, 0);
  size_t bytes = (size_t)(p->size * 2 * p->chunks) * sizeof(double);
  PX_CUDA_PASS(px__cuda_scratch(l, bytes, &p->partial));
  PX_CUDA_PASS(px__cuda_by_dtype(l, "norm", sums, dtype, p->chunks * groups, K_BLOCK, p));
  return px__cuda_by_dtype(l, "norm", columns, dtype, (p->size + 31) / 32, 1024, p);
}
static px_status last_each(const px_launch *l, k_rows *p, const char *name, int dtype) {
  int64_t groups = groups_of(p, dtype);
  set_chunks(p, groups, p->outer / (K_BLOCK / p->lanes * LAST_ROWS));
  return px__cuda_by_dtype(l, "norm", name, dtype, p->chunks * groups, K_BLOCK, p);
}

// True if a channel of an example consists of whole, aligned vectors.
static bool in_vectors(const k_rows *p, const px_operand *x) {
  return p->inner % (16 / (int64_t)px__cuda_dtype_size(x->dtype)) == 0 && is_aligned(p);
}
// Pieces of a row of `inner`, with `least` or more elements each, so that all rows have `wanted`.
static int32_t pieces_of(const k_rows *p, int64_t wanted, int64_t least) {
  int64_t rows = p->outer * p->size, pieces = rows ? wanted / rows : 1;
  if (pieces > p->inner / least) pieces = p->inner / least;
  return pieces < 1 ? 1 : (int32_t)pieces;
}
// Sets the shape, and enough pieces for WARPS warps.
static void batch_shape(k_rows *p, const px_operand *x) {
  enum { WARPS = 1056 * K_BLOCK / 32, LEAST = 1024 };
  px__split_sizes(x, 1, &p->outer, &p->size, &p->inner);
  p->how = pieces_of(p, WARPS, LEAST);
  p->vector = in_vectors(p, x);
}
static px_status normalise(const px_launch *l, k_rows *p, int dtype) {
  bool last = is_channels_last(p, dtype);
  if (p->training && last) PX_CUDA_PASS(last_sums(l, p, "last_sums", "last_columns", dtype));
  if (p->training && !last) PX_CUDA_PASS(batch_sums(l, p, "batch_sums", "batch_join", dtype));
  return last ? last_each(l, p, "last", dtype) : batch_each(l, p, "batch", dtype);
}
static px_status normalise_backward(const px_launch *l, k_rows *p, int dtype) {
  if (!is_channels_last(p, dtype)) {
    PX_CUDA_PASS(batch_sums(l, p, "batch_backward_sums", "batch_backward_join", dtype));
    return batch_each(l, p, "batch_backward", dtype);
  }
  PX_CUDA_PASS(last_sums(l, p, "last_backward_sums", "last_backward_columns", dtype));
  return last_each(l, p, "last_backward", dtype);
}
PX_CUDA_KERNEL(native_batch_norm) {
  int dtype = args->input->dtype, compute = px__compute_of(dtype);
  px__cuda_dense d = {.launch = l};
  k_rows p = {.result = px__cuda_dense_out(&d, args->output, dtype),
              .mean = px__cuda_dense_out(&d, args->save_mean, compute),
              .rstd = px__cuda_dense_out(&d, args->save_invstd, compute),
              .variance = px__cuda_dense_out(&d, args->variance, compute),  // unbiased
              .input = px__cuda_dense_in(&d, args->input, dtype),
              .weight = px__cuda_dense_in(&d, args->weight, dtype),
              .bias = px__cuda_dense_in(&d, args->bias, dtype),
              .running_mean = px__cuda_dense_in(&d, args->running_mean, compute),
              .running_var = px__cuda_dense_in(&d, args->running_var, compute),
              .training = args->training,
              .eps = args->eps};
  PX_CUDA_PASS(d.status);
  batch_shape(&p, args->input);
  if (p.outer * p.size * p.inner > 0) PX_CUDA_PASS(normalise(l, &p, dtype));
  return px__cuda_dense_close(&d);
}
PX_CUDA_KERNEL(batch_norm_backward) {
  int dtype = args->input->dtype, compute = px__compute_of(dtype);
  px__cuda_dense d = {.launch = l};
  k_rows p = {.result = px__cuda_dense_out(&d, args->grad_input, dtype),
              .grad_weight = px__cuda_dense_out(&d, args->grad_weight, dtype),
              .grad_bias = px__cuda_dense_out(&d, args->grad_bias, dtype),
              .grad = px__cuda_dense_in(&d, args->grad_output, dtype),
              .input = px__cuda_dense_in(&d, args->input, dtype),
              .weight = px__cuda_dense_in(&d, args->weight, dtype),
              .running_mean = px__cuda_dense_in(&d, args->running_mean, compute),
              .running_var = px__cuda_dense_in(&d, args->running_var, compute),
              .mean = px__cuda_dense_in(&d, args->save_mean, compute),
              .rstd = px__cuda_dense_in(&d, args->save_invstd, compute),
              .training = args->training,
              .eps = args->eps};
  PX_CUDA_PASS(d.status);
  batch_shape(&p, args->input);
  if (p.outer * p.size * p.inner > 0 && px__operand_present(args->grad_output))
    PX_CUDA_PASS(normalise_backward(l, &p, dtype));
  return px__cuda_dense_close(&d);
}
// self = (1 - weight) * self + weight * value
PX_CUDA_KERNEL(running_average) {
  px__cuda_dense d = {.launch = l};
  k_rows p = {.result = px__cuda_dense_inout(&d, args->out, args->out->dtype),
              .input = px__cuda_dense_in(&d, args->value, args->value->dtype),
              .size = px_operand_numel(args->out),
              .dtype = args->out->dtype,
              .how = args->value->dtype,
              .number = args->weight};
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(px__cuda_over(l, "norm", "running_average", p.size, &p));
  return px__cuda_dense_close(&d);
}

// ---- group norm

// BLOCKS: blocks that fill a device. LEAST: minimum elements of a part. Equal on all devices.
static px_status group_start(const px_launch *l, k_rows *p, const px_operand *x, int64_t groups) {
  enum { BLOCKS = 1056, LEAST = 4096, LONG = 1024 };
  px__split_sizes(x, 1, &p->outer, &p->size, &p->inner);
  int64_t rows = p->outer * p->size;
  p->chunks = p->size / groups;
  p->vector = in_vectors(p, x);
  p->lanes = p->inner < LONG ? 32 : K_BLOCK;
  p->how = pieces_of(p, BLOCKS, LEAST);
  size_t pairs = (size_t)(rows * p->how + p->outer * groups);
  return px__cuda_scratch(l, pairs * 2 * sizeof(double), &p->partial);
}
static px_status group_parts(const px_launch *l, const k_rows *p, const char *name, int dtype) {
  k_rows own = *p;
  int64_t each = K_BLOCK / p->lanes, parts = p->outer * p->size * p->how;
  return px__cuda_by_dtype(l, "group", name, dtype, (parts + each - 1) / each, K_BLOCK, &own);
}
static px_status group_warps(const px_launch *l, const k_rows *p, const char *name, int dtype,
                             int64_t warps) {
  k_rows own = *p;
  int64_t each = K_BLOCK / 32;
  return px__cuda_by_dtype(l, "group", name, dtype, (warps + each - 1) / each, K_BLOCK, &own);
}
PX_CUDA_KERNEL(grouped_norm) {
  int dtype = args->input->dtype, compute = px__compute_of(dtype);
  px__cuda_dense d = {.launch = l};
  k_rows p = {.result = px__cuda_dense_out(&d, args->output, dtype),
              .mean = px__cuda_dense_out(&d, args->mean, compute),
              .rstd = px__cuda_dense_out(&d, args->rstd, compute),
              .input = px__cuda_dense_in(&d, args->input, dtype),
              .weight = px__cuda_dense_in(&d, args->weight, dtype),
              .bias = px__cuda_dense_in(&d, args->bias, dtype),
              .eps = args->eps};
  PX_CUDA_PASS(d.status);
  if (px_operand_numel(args->input) == 0) return px__cuda_dense_close(&d);
  PX_CUDA_PASS(group_start(l, &p, args->input, args->num_groups));
  PX_CUDA_PASS(group_parts(l, &p, "group_sums", dtype));
  PX_CUDA_PASS(group_warps(l, &p, "group_join", dtype, p.outer * args->num_groups));
  PX_CUDA_PASS(group_parts(l, &p, "group_apply", dtype));
  return px__cuda_dense_close(&d);
}
PX_CUDA_KERNEL(grouped_norm_backward) {
  int dtype = args->input->dtype, compute = px__compute_of(dtype);
  px__cuda_dense d = {.launch = l};
  k_rows p = {.result = px__cuda_dense_out(&d, args->grad_input, dtype),
              .grad_weight = px__cuda_dense_out(&d, args->grad_weight, dtype),
              .grad_bias = px__cuda_dense_out(&d, args->grad_bias, dtype),
              .grad = px__cuda_dense_in(&d, args->grad_output, dtype),
              .input = px__cuda_dense_in(&d, args->input, dtype),
              .weight = px__cuda_dense_in(&d, args->weight, dtype),
              .mean = px__cuda_dense_in(&d, args->mean, compute),
              .rstd = px__cuda_dense_in(&d, args->rstd, compute)};
  PX_CUDA_PASS(d.status);
  if (px_operand_numel(args->input) == 0) return px__cuda_dense_close(&d);
  PX_CUDA_PASS(group_start(l, &p, args->input, args->num_groups));
  PX_CUDA_PASS(group_parts(l, &p, "group_backward_sums", dtype));
  PX_CUDA_PASS(group_warps(l, &p, "group_backward_join", dtype, p.outer * args->num_groups));
  if (p.grad_weight || p.grad_bias)
    PX_CUDA_PASS(group_warps(l, &p, "group_channels", dtype, p.size));
  PX_CUDA_PASS(group_parts(l, &p, "group_backward", dtype));
  return px__cuda_dense_close(&d);
}
