// SPDX-License-Identifier: Apache-2.0
// Host functions of lines.cu: scans, sorts and what follows from an order.
#include "cuda/host/lines.h"

static const char *suffix_of(int dtype) {
  return dtype == PX_FLOAT64 ? "f64" : dtype == PX_FLOAT32 ? "f32" : "i64";
}
static px_status over(const px_launch *l, const char *name, const char *suffix, int64_t n,
                      k_lines *p) {
  char function[48];
  snprintf(function, sizeof function, "%s_%s", name, suffix);
  return px__cuda_over(l, "lines", function, n, p);
}

// ---- scans

// Cuts lines so that there are pieces enough to make a device busy; the same for all devices.
static void cut(k_lines *p) {
  int64_t lines = p->outer * p->inner, goal = p->inner == 1 ? 8192 : 65536;
  int64_t least = p->inner == 1 ? 2048 : 256, chunks = goal / lines;
  if (chunks > p->size / least) chunks = p->size / least;
  p->chunks = chunks < 1 ? 1 : chunks > 2048 ? 2048 : chunks;
  p->width = (p->size + p->chunks - 1) / p->chunks;
}
static px_status scan(const px_launch *l, bool product, bool backwards) {
  static const char spec[] = "wr";
  static const char *const suffixes[] = PX_CUDA_SUFFIXES;
  int own = l->operands[0].dtype, dtype = px__cuda_is_float(own) ? own : PX_INT64;
  px__cuda_dense d[2];
  PX_CUDA_PASS(px__cuda_open(d, l, spec, dtype));
  k_lines p = {.out = d[0].at, .in = d[1].at, .product = product, .backwards = backwards};
  px__around(&l->operands[0], px__param_int(l, 1), &p.outer, &p.size, &p.inner);
  if (d[0].n == 0) return PX_OK;
  cut(&p);
  int64_t pieces = p.outer * p.inner * p.chunks, threads = pieces * (p.inner == 1 ? 32 : 1);
  if (p.chunks > 1) {
    PX_CUDA_PASS(px__cuda_scratch(l, (size_t)pieces * 8, &p.keys));
    PX_CUDA_PASS(over(l, "scan_totals", suffixes[dtype], threads, &p));
  }
  PX_CUDA_PASS(over(l, "scan", suffixes[dtype], threads, &p));
  return px__cuda_close(d, l, spec);
}
PX_CUDA_KERNEL(cumsum) { return scan(l, false, false); }
PX_CUDA_KERNEL(cumsum_backward) { return scan(l, false, true); }
PX_CUDA_KERNEL(cumprod) { return scan(l, true, false); }
// cumprod_backward(grad_output, self, dim)
PX_CUDA_KERNEL(cumprod_backward) {
  static const char spec[] = "wrr";
  int dtype = px__cuda_is_float(l->operands[0].dtype) ? PX_FLOAT64 : PX_INT64;
  px__cuda_dense d[3];
  PX_CUDA_PASS(px__cuda_open(d, l, spec, dtype));
  k_lines p = {.out = d[0].at, .in = d[1].at, .other = d[2].at};
  px__around(&l->operands[0], px__param_int(l, 2), &p.outer, &p.size, &p.inner);
  if (d[0].n == 0) return PX_OK;
  PX_CUDA_PASS(px__cuda_scratch(l, (size_t)d[0].n * 8, &p.keys));
  PX_CUDA_PASS(over(l, "cumprod_backward", suffix_of(dtype), p.outer * p.inner, &p));
  return px__cuda_close(d, l, spec);
}

// ---- sorts

px_status px__cuda_sort_room(const px_launch *l, k_lines *s, int64_t n) {
  size_t bytes = (size_t)(n ? n : 1) * 8;
  void *places = NULL, *to = NULL;
  PX_CUDA_PASS(px__cuda_scratch(l, bytes, &s->keys));
  PX_CUDA_PASS(px__cuda_scratch(l, bytes, &s->keys_to));
  PX_CUDA_PASS(px__cuda_scratch(l, bytes, &places));
  PX_CUDA_PASS(px__cuda_scratch(l, bytes, &to));
  s->places = places, s->places_to = to;
  return PX_OK;
}
static void swap(k_lines *s) {
  void *keys = s->keys;
  int64_t *places = s->places;
  s->keys = s->keys_to, s->keys_to = keys;
  s->places = s->places_to, s->places_to = places;
}
static px_status sort_tiles(const px_launch *l, k_lines *s, const char *suffix) {
  enum { TILE = K_SORT_TILE };
  int64_t lines = s->outer * s->inner;
  int64_t tiles = s->size > TILE ? lines * ((s->size + TILE - 1) / TILE)
                                 : (lines + TILE / s->size - 1) / (TILE / s->size);
  char function[24];
  void *params[] = {s};
  snprintf(function, sizeof function, "sort_tiles_%s", suffix);
  PX_CUDA_PASS(px__cuda_launch(l, "lines", function, (unsigned)tiles, K_BLOCK, 0, params));
  swap(s);
  return PX_OK;
}
px_status px__cuda_sort_keys(const px_launch *l, k_lines *s, const char *suffix) {
  if (s->size < 2) return PX_OK;
  PX_CUDA_PASS(sort_tiles(l, s, suffix));
  for (s->width = K_SORT_TILE; s->width < s->size; s->width *= 2) {
    PX_CUDA_PASS(over(l, "sort_pass", suffix, s->outer * s->inner * s->size, s));
    swap(s);
  }
  return PX_OK;
}
// Leaves of long lines what can be among their first `first` elements.
static px_status shorten(const px_launch *l, k_lines *s, int64_t first, const char *suffix) {
  k_lines own = *s;
  while (own.size > K_SORT_TILE && first <= K_SORT_TILE / 4) {
    int64_t tiles = (own.size + K_SORT_TILE - 1) / K_SORT_TILE;
    int64_t last = own.size - (tiles - 1) * K_SORT_TILE;
    own.take = first;
    PX_CUDA_PASS(sort_tiles(l, &own, suffix));
    int64_t size = (tiles - 1) * first + (last < first ? last : first);
    PX_CUDA_PASS(over(l, "sort_keep", suffix, own.outer * own.inner * size, &own));
    swap(&own);
    own.size = size;
  }
  own.take = s->take;
  *s = own;
  return PX_OK;
}

static px_status choose(const px_launch *l, int64_t dim, bool down, int64_t take, int64_t skip) {
  static const char spec[] = "wWr";
  int in = l->operands[2].dtype;
  int dtype = px__cuda_is_float(in) ? px__compute_of(in) : PX_INT64;
  px__cuda_dense d[3];
  PX_CUDA_PASS(px__cuda_open(d, l, spec, dtype));
  k_lines p = {.out = d[0].at, .indices = d[1].at, .in = d[2].at, .down = down, .skip = skip};
  px__around(&l->operands[2], dim, &p.outer, &p.size, &p.inner);
  p.take = take < 0 ? p.size : take;
  if (d[2].n == 0 || d[0].n == 0) return PX_OK;
  PX_CUDA_PASS(px__cuda_sort_room(l, &p, d[2].n));
  PX_CUDA_PASS(over(l, "sort_gather", suffix_of(dtype), d[2].n, &p));
  PX_CUDA_PASS(shorten(l, &p, p.take + skip, suffix_of(dtype)));
  PX_CUDA_PASS(px__cuda_sort_keys(l, &p, suffix_of(dtype)));
  PX_CUDA_PASS(over(l, "sort_take", suffix_of(dtype), d[0].n, &p));
  return px__cuda_close(d, l, spec);
}
// sort(self, dim, descending, stable)
PX_CUDA_KERNEL(sort) { return choose(l, px__param_int(l, 1), px__param_int(l, 2) != 0, -1, 0); }
// topk(self, k, dim, largest, sorted)
PX_CUDA_KERNEL(topk) {
  return choose(l, px__param_int(l, 2), px__param_int(l, 3) != 0, px__param_int(l, 1), 0);
}
// kthvalue(self, k, dim, keepdim)
PX_CUDA_KERNEL(kthvalue) {
  return choose(l, px__param_int(l, 2), false, 1, px__param_int(l, 1) - 1);
}
