// SPDX-License-Identifier: Apache-2.0
// Host functions of lines.cu: scans and searches.
#include "cuda/host/ops/kernel.h"
#include "kernel_args/reduce.h"
#include "kernel_args/sort.h"

static const char *suffix_of(int dtype) {
  return dtype == PX_FLOAT64 ? "f64" : dtype == PX_FLOAT32 ? "f32" : "i64";
}
static px_status over(const px_launch *l, const char *name, const char *suffix, int64_t n,
                      k_lines *p) {
  char function[48];
  snprintf(function, sizeof function, "%s_%s", name, suffix);
  return px__cuda_over(l, "lines", function, n, p);
}

static px_status short_rows(const px_launch *l, k_lines *p, int64_t rows, const char *suffix) {
  px__cuda_divisor(&p->by_width, p->size);
  p->width = p->size, p->take = p->size * rows, p->size *= p->outer, p->outer = 1;
  return over(l, "scan_short", suffix, (p->size + p->take - 1) / p->take * 32, p);
}
// Contiguous lines: a warp handles several short ones. A few long ones are split into tiles; others
// take a warp each.
static px_status scan_contiguous(const px_launch *l, k_lines *p, int64_t item, const char *suffix) {
  enum { ENOUGH = 4096, WARPS = K_BLOCK / 32 };
  int64_t tile = K_SCAN_TILE(item), tiles = (p->size + tile - 1) / tile;
  int64_t rows = tile / WARPS / p->size;
  while (rows > 1 && rows * p->size * item % 16) rows--;  // align each warp's rows to vectors
  if (rows > 1) return short_rows(l, p, rows, suffix);
  if (tiles == 1 || p->outer >= ENOUGH) return over(l, "scan_rows", suffix, p->outer * 32, p);
  char function[24];
  void *params[] = {p};
  PX_CUDA_PASS(px__cuda_tiles(l, &p->tiles, p->outer, tiles));
  snprintf(function, sizeof function, "scan_tiles_%s", suffix);
  return px__cuda_launch(l, "lines", function, (unsigned)(p->outer * tiles), K_BLOCK, 0, params);
}
// Strided or complex lines are split into enough chunks to fill a device, as many on all devices.
static px_status scan_strided(const px_launch *l, k_lines *p, const char *suffix) {
  enum { TARGET_CHUNKS = 65536, MIN_CHUNK = 256, MAX_CHUNKS = 2048 };
  int64_t lines = p->outer * p->inner, chunks = TARGET_CHUNKS / lines;
  if (chunks > p->size / MIN_CHUNK) chunks = p->size / MIN_CHUNK;
  p->chunks = chunks < 1 ? 1 : chunks > MAX_CHUNKS ? MAX_CHUNKS : chunks;
  p->width = (p->size + p->chunks - 1) / p->chunks;
  if (p->chunks > 1) {
    PX_CUDA_PASS(px__cuda_scratch(l, (size_t)(lines * p->chunks) * 16, &p->keys));
    PX_CUDA_PASS(over(l, "scan_totals", suffix, lines * p->chunks, p));
  }
  return over(l, "scan", suffix, lines * p->chunks, p);
}
static px_status scan(const px_launch *l, const px_operand *out, const px_operand *in, int64_t dim,
                      bool product, bool backwards) {
  bool complex = out->dtype == PX_COMPLEX64 || out->dtype == PX_COMPLEX128;
  if (out->dtype >= PX_DTYPE_COMPUTED && !complex) return px__cuda_missing(l, out->dtype);
  int dtype = complex || px__cuda_is_float(out->dtype) ? out->dtype : PX_INT64;
  px__cuda_dense d = {.launch = l};
  k_lines p = {.out = px__cuda_dense_out(&d, out, dtype),
               .in = px__cuda_dense_in(&d, in, dtype),
               .product = product,
               .backwards = backwards};
  PX_CUDA_PASS(d.status);
  px__split_sizes(out, dim, &p.outer, &p.size, &p.inner);
  if (px_operand_numel(out) == 0) return PX_OK;
  int64_t item = (int64_t)px__cuda_dtype_size(dtype);
  PX_CUDA_PASS(p.inner == 1 && !complex ? scan_contiguous(l, &p, item, px__cuda_suffix(dtype))
                                        : scan_strided(l, &p, px__cuda_suffix(dtype)));
  return px__cuda_dense_close(&d);
}
PX_CUDA_KERNEL(cumsum) { return scan(l, args->out, args->self, args->dim, false, false); }
PX_CUDA_KERNEL(cumsum_backward) {
  return scan(l, args->out, args->grad_output, args->dim, false, true);
}
PX_CUDA_KERNEL(cumprod) { return scan(l, args->out, args->self, args->dim, true, false); }
PX_CUDA_KERNEL(cumprod_backward) {
  int dtype = px__cuda_is_float(args->out->dtype) ? PX_FLOAT64 : PX_INT64;
  int64_t n = px_operand_numel(args->out);
  px__cuda_dense d = {.launch = l};
  k_lines p = {.out = px__cuda_dense_out(&d, args->out, dtype),
               .in = px__cuda_dense_in(&d, args->grad_output, dtype),
               .other = px__cuda_dense_in(&d, args->self, dtype)};
  PX_CUDA_PASS(d.status);
  px__split_sizes(args->out, args->dim, &p.outer, &p.size, &p.inner);
  if (n == 0) return PX_OK;
  PX_CUDA_PASS(px__cuda_scratch(l, (size_t)n * 8, &p.keys));
  PX_CUDA_PASS(over(l, "cumprod_backward", suffix_of(dtype), p.outer * p.inner, &p));
  return px__cuda_dense_close(&d);
}

// Launches a kernel on each line: a warp for a contiguous one, a thread for others.
static px_status each_line(const px_launch *l, const char *name, const px_operand *out,
                           const px_operand *in, const px_operand *indices, int64_t dim) {
  px__cuda_dense d = {.launch = l};
  k_lines p = {.out = px__cuda_dense_out(&d, out, in->dtype),
               .in = px__cuda_dense_in(&d, in, in->dtype),
               .indices = indices ? px__cuda_dense_out(&d, indices, PX_INT64) : NULL};
  PX_CUDA_PASS(d.status);
  px__split_sizes(in, dim, &p.outer, &p.size, &p.inner);
  int64_t threads = p.outer * p.inner * (p.inner == 1 ? 32 : 1);
  PX_CUDA_PASS(over(l, name, px__cuda_suffix(in->dtype), threads, &p));
  return px__cuda_dense_close(&d);
}
PX_CUDA_KERNEL(cummax) {
  if (args->self->dtype >= PX_DTYPE_COMPUTED) return px__cuda_missing(l, args->self->dtype);
  return each_line(l, "cummax", args->values, args->self, args->indices, args->dim);
}
PX_CUDA_KERNEL(cummin) {
  if (args->self->dtype >= PX_DTYPE_COMPUTED) return px__cuda_missing(l, args->self->dtype);
  return each_line(l, "cummin", args->values, args->self, args->indices, args->dim);
}
PX_CUDA_KERNEL(logcumsumexp) {
  int dtype = args->self->dtype;
  bool complex = dtype == PX_COMPLEX64 || dtype == PX_COMPLEX128;
  bool real = px__cuda_is_float(dtype) && dtype < PX_DTYPE_COMPUTED;
  if (!complex && !real) return px__cuda_missing(l, dtype);
  return each_line(l, "logcumsumexp", args->out, args->self, NULL, args->dim);
}

PX_CUDA_KERNEL(search_lines) {
  int dtype = args->boundaries->dtype;
  if (dtype == PX_BOOL || dtype >= PX_DTYPE_COMPUTED) return px__cuda_missing(l, dtype);
  px__cuda_dense d = {.launch = l};
  int64_t count = px_operand_numel(args->values);
  k_search p = {.lines = px__cuda_dense_in(&d, args->boundaries, dtype),
                .values = px__cuda_dense_in(&d, args->values, dtype),
                .out = px__cuda_dense_out(&d, args->out, PX_INT64),
                .count = count,
                .size = px__operand_size(args->boundaries, -1),
                .each = args->boundaries->ndim > 1 ? px__operand_size(args->values, -1) : count,
                .right = args->right};
  PX_CUDA_PASS(d.status);
  char function[24];
  snprintf(function, sizeof function, "search_lines_%s", px__cuda_suffix(dtype));
  PX_CUDA_PASS(px__cuda_over(l, "lines", function, count, &p));
  return px__cuda_dense_close(&d);
}
