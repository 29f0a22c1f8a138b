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

static px_status scan(const px_launch *l, bool product, bool backwards) {
  static const char spec[] = "wr";
  int dtype = px__cuda_is_float(l->operands[0].dtype) ? PX_FLOAT64 : PX_INT64;
  px__cuda_dense d[2];
  PX_CUDA_PASS(px__cuda_open(d, l, spec, dtype));
  k_lines p = {.out = d[0].at, .in = d[1].at, .product = product, .backwards = backwards};
  px__cuda_around(&l->operands[0], px__cuda_int(l, 1), &p.outer, &p.size, &p.inner);
  int64_t threads = p.size ? p.outer * p.inner * (p.inner == 1 ? 32 : 1) : 0;
  PX_CUDA_PASS(over(l, "scan", suffix_of(dtype), threads, &p));
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
  px__cuda_around(&l->operands[0], px__cuda_int(l, 2), &p.outer, &p.size, &p.inner);
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
px_status px__cuda_sort_keys(const px_launch *l, k_lines *s, const char *suffix) {
  for (s->width = 1; s->width < s->size; s->width *= 2) {
    PX_CUDA_PASS(over(l, "sort_pass", suffix, s->outer * s->size * s->inner, s));
    void *keys = s->keys;
    int64_t *places = s->places;
    s->keys = s->keys_to, s->keys_to = keys;
    s->places = s->places_to, s->places_to = places;
  }
  return PX_OK;
}

static px_status choose(const px_launch *l, int64_t dim, bool down, int64_t take, int64_t skip) {
  static const char spec[] = "wWr";
  int in = l->operands[2].dtype;
  int dtype = px__cuda_is_float(in) ? px__cuda_compute(in) : PX_INT64;
  px__cuda_dense d[3];
  PX_CUDA_PASS(px__cuda_open(d, l, spec, dtype));
  k_lines p = {.out = d[0].at, .indices = d[1].at, .in = d[2].at, .down = down, .skip = skip};
  px__cuda_around(&l->operands[2], dim, &p.outer, &p.size, &p.inner);
  p.take = take < 0 ? p.size : take;
  if (d[2].n == 0 || d[0].n == 0) return PX_OK;
  PX_CUDA_PASS(px__cuda_sort_room(l, &p, d[2].n));
  PX_CUDA_PASS(over(l, "sort_gather", suffix_of(dtype), d[2].n, &p));
  PX_CUDA_PASS(px__cuda_sort_keys(l, &p, suffix_of(dtype)));
  PX_CUDA_PASS(over(l, "sort_take", suffix_of(dtype), d[0].n, &p));
  return px__cuda_close(d, l, spec);
}
// sort(self, dim, descending, stable)
PX_CUDA_KERNEL(sort) { return choose(l, px__cuda_int(l, 1), px__cuda_int(l, 2) != 0, -1, 0); }
// topk(self, k, dim, largest, sorted)
PX_CUDA_KERNEL(topk) {
  return choose(l, px__cuda_int(l, 2), px__cuda_int(l, 3) != 0, px__cuda_int(l, 1), 0);
}
// kthvalue(self, k, dim, keepdim)
PX_CUDA_KERNEL(kthvalue) { return choose(l, px__cuda_int(l, 2), false, 1, px__cuda_int(l, 1) - 1); }
