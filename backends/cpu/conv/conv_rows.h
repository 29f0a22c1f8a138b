// SPDX-License-Identifier: Apache-2.0
// Convolution for one element type. T and NAME as in rows_impl.h; GEMM: the product; SUM: type of
// the sums; FROM_SUM: conversion to T. conv_product.c includes it once per type.

// Rows are often so short that a memcpy call would take longer than the copy. The rest of a row is
// covered by an overlapping chunk.
static inline void NAME(copy)(const T *from, int64_t n, T *to) {
  enum { WHOLE = 32 / sizeof(T), HALF = WHOLE / 2 };
  int64_t q = 0;
  if (n < HALF) {
    for (; q < n; q++) to[q] = from[q];
  } else if (n < WHOLE) {
    memcpy(to, from, 16);
    memcpy(to + n - HALF, from + n - HALF, 16);
  } else {
    for (; q + WHOLE <= n; q += WHOLE) memcpy(to + q, from + q, 32);
    memcpy(to + n - WHOLE, from + n - WHOLE, 32);
  }
}
// Copies every step-th of n elements.
static inline void NAME(copy_strided)(const T *from, int64_t step, int64_t n, T *to) {
  if (step == 1)
    NAME(copy)(from, n, to);
  else if (step == 2)
    for (int64_t q = 0; q < n; q++) to[q] = from[q * 2];
  else
    for (int64_t q = 0; q < n; q++) to[q] = from[q * step];
}
// Clears the borders of a plane of `all` elements: rows before r0 and from r1 on, and in the rows
// between the columns before q0 and from q1 on.
static void NAME(clear_borders)(const conv *t, int64_t r0, int64_t r1, int64_t q0, int64_t q1,
                                int64_t all, T *to) {
  memset(to, 0, (size_t)(r0 * t->pitch) * sizeof(T));
  for (int64_t r = r0; r < r1; r++) {
    for (int64_t q = 0; q < q0; q++) to[r * t->pitch + q] = 0;
    for (int64_t q = q1; q < t->pitch; q++) to[r * t->pitch + q] = 0;
  }
  int64_t done = (r0 > r1 ? r0 : r1) * t->pitch;
  memset(to + done, 0, (size_t)(all - done) * sizeof(T));
}
static inline void NAME(prefetch)(const T *from, int64_t n) {
  for (int64_t q = 0; q < n; q += 64 / (int64_t)sizeof(T)) __builtin_prefetch(from + q);
}
// Fills the plane of taps (k, i, j) of one channel for a unit's images and rows, zero-padded.
// Sources start at `channel` and are `each` apart. Past the end the last row is continued.
// Prefetches the rows of the next channel.
static void NAME(fill_plane)(const conv *t, const unit *u, const T *channel, int64_t each,
                             int64_t k, int64_t i, int64_t j, T *to) {
  const conv_axis *x = &t->x, *y = &t->y;
  int64_t rows = u->y1 - u->y0 + y->reach;
  int64_t top = start_of(y, i) + u->y0 * y->step, left = start_of(x, j);
  int64_t r0 = first_from(top, y->step, 0, rows), r1 = first_from(top, y->step, y->source, rows);
  int64_t q0 = first_from(left, x->step, 0, t->pitch);
  int64_t q1 = first_from(left, x->step, x->source, t->pitch);
  bool seen = q0 < q1 && r0 < r1,
       apart = seen && u->images == 1 && t->pitch >= PRODUCT_MIN_BORDER_CLEAR_PITCH;
  int64_t all = u->images * rows * t->pitch + x->reach;
  channel += top * x->source + left + q0 * x->step;
  if (!apart) memset(to, 0, (size_t)all * sizeof(T));
  for (int64_t image = 0; seen && image < u->images; image++, to += rows * t->pitch) {
    int64_t at = u->first + image, depth = at % t->z.grid * t->z.step + px__conv_at(&t->z, k);
    bool inside = depth >= 0 && depth < t->z.source;
    const T *from = channel + at / t->z.grid * each + depth * y->source * x->source;
    if (apart) NAME(clear_borders)(t, inside ? r0 : all / t->pitch, r1, q0, q1, all, to);
    for (int64_t r = r0; inside && r < r1; r++) {
      const T *row = from + r * y->step * x->source;
      NAME(prefetch)(row + t->z.source * y->source * x->source, (q1 - q0) * x->step);
      NAME(copy_strided)(row, x->step, q1 - q0, to + r * t->pitch + q0);
    }
  }
}
// The source of a unit: used directly if possible, else copied into planes.
static const T *NAME(sources)(const conv *t, const unit *u, T *to) {
  int64_t flat = t->y.source * t->x.source, size = t->z.source * flat;
  int64_t each = px__product_image(t), work = 0;
  const T *from = (const T *)t->source + (u->group * t->channels + u->c0) * size;
  if (t->direct_source)
    return from + u->first / t->z.grid * each + u->first % t->z.grid * flat + u->y0 * t->x.source;
  int64_t count = t->z.count, k0 = 0, k1 = count, planes = t->y.planes * t->x.planes;
  if (u->continues) k0 = t->z.move > 0 ? count - 1 : 0, k1 = k0 + 1;
  for (int64_t c = u->c0; c < u->c1 && !px__work_stopped(&work, t->plane); c++, from += size)
    for (int64_t k = k0; k < k1; k++) {
      T *at = to + ((c - u->c0) * count + px__product_slot(t, u->rotation, k)) * planes * t->plane;
      for (int64_t i = 0; i < planes; i++, at += t->plane)
        NAME(fill_plane)(t, u, from, each, k, i / t->x.planes, i % t->x.planes, at);
    }
  return to;
}

// Start of the results of a unit's i-th image.
static T *NAME(results_at)(const conv *t, const unit *u, int64_t i, const result_grid *r) {
  int64_t at = u->first + i, image = at / t->z.grid, depth = t->z0 + at % t->z.grid * r->rz;
  int64_t channel = (image * t->groups + u->group) * t->results;
  int64_t row = (channel * r->depth + depth) * r->height + t->y0 + u->y0 * r->ry;
  return (T *)t->out + row * r->width + t->x0;
}
// Stores a unit's results to the output.
static void NAME(scatter)(const conv *t, const unit *u, const T *result, const result_grid *r) {
  int64_t rows = u->y1 - u->y0, plane = r->depth * r->height * r->width;
  for (int64_t i = 0; i < u->images; i++) {
    T *to = NAME(results_at)(t, u, i, r) + u->o0 * plane;
    for (int64_t o = u->o0; o < u->o1; o++, to += plane)
      for (int64_t y = 0; y < rows; y++) {
        const T *from = result + (o - u->o0) * t->ld + (i * rows + y) * t->pitch;
        T *line = to + y * r->ry * r->width;
        if (r->rx == 1)
          NAME(copy)(from, t->x.grid, line);
        else
          for (int64_t x = 0; x < t->x.grid; x++) line[x * r->rx] = from[x];
      }
  }
}

// Transposes 4x4 elements.
typedef T NAME(four) __attribute__((vector_size(4 * sizeof(T))));
static inline void NAME(transpose_4x4)(const T *from, int64_t from_step, T *to, int64_t to_step) {
  NAME(four) x[4], y[4];
  for (int i = 0; i < 4; i++) memcpy(&x[i], from + i * from_step, sizeof x[i]);
#pragma GCC unroll 2
  for (int i = 0; i < 2; i++) {
    y[2 * i] = PX_SHUFFLE(x[i], x[i + 2], 0, 4, 1, 5);
    y[2 * i + 1] = PX_SHUFFLE(x[i], x[i + 2], 2, 6, 3, 7);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; i++) {
    x[2 * i] = PX_SHUFFLE(y[i], y[i + 2], 0, 4, 1, 5);
    x[2 * i + 1] = PX_SHUFFLE(y[i], y[i + 2], 2, 6, 3, 7);
  }
  for (int i = 0; i < 4; i++) memcpy(to + i * to_step, &x[i], sizeof x[i]);
}
// Transposes `rows` rows of `lines` elements, `from_step` apart, into lines `to_step` apart.
static void NAME(transpose)(const T *from, int64_t from_step, int64_t rows, int64_t lines, T *to,
                            int64_t to_step) {
  for (int64_t o = 0; o < lines; o += 4) {
    int64_t whole = lines - o < 4 ? 0 : rows / 4 * 4, count = lines - o < 4 ? lines - o : 4;
    for (int64_t i = 0; i < whole; i += 4)
      NAME(transpose_4x4)(from + i * from_step + o, from_step, to + o * to_step + i, to_step);
    for (int64_t q = o; q < o + count; q++)
      for (int64_t i = whole; i < rows; i++) to[q * to_step + i] = from[i * from_step + q];
  }
}
// Transposes pixel-major results into the output; all rows of an image at once if they are
// contiguous.
static void NAME(store_transposed)(const conv *t, const unit *u, const T *from,
                                   const result_grid *r) {
  int64_t rows = u->y1 - u->y0, width = t->x.grid, channel = r->depth * r->height * r->width;
  int64_t results = u->o1 - u->o0;
  if (r->ry == 1 && width == r->width) width *= rows, rows = 1;
  for (int64_t i = 0; i < u->images; i++) {
    T *to = NAME(results_at)(t, u, i, r) + u->o0 * channel;
    for (int64_t y = 0; y < rows; y++, from += width * results) {
      T *line = to + y * r->ry * r->width;
      if (r->rx == 1) {
        NAME(transpose)(from, results, width, results, line, channel);
        continue;
      }
      for (int64_t o = 0; o < results; o++)
        for (int64_t x = 0; x < width; x++) line[o * channel + x * r->rx] = from[x * results + o];
    }
  }
}
// The product with a row per output pixel of the unit, `step` apart in `to`. The offset of a term
// is the sum of a pixel offset and a term offset, relative to `from`.
static bool NAME(pixel_row_product)(const conv *t, const unit *u, const T *from, T *to,
                                    int64_t step) {
  px__gemm g = {
      .m = u->images * (u->y1 - u->y0) * t->x.grid,
      .n = u->o1 - u->o0,
      .k = t->terms,
      .a = from,
      .a_rows = t->pixel_offsets,
      .a_columns = table_of(t, u),
      .ac = 1,
      .packed = (const T *)t->packed + u->group * px__product_packed(t) + u->o0 * t->terms,
      .c = to,
      .cr = step,
      .cc = 1,
      .s = t->bias ? (const T *)t->bias + u->group * t->results + u->o0 : NULL,
      .sc = 1,
      .alpha = 1,
      .beta = t->bias ? 1 : 0};
  return GEMM(&g, t->parallel_gemm);
}
// results() with pixels as rows, from planes.
static bool NAME(pixel_row_results)(const conv *t, const unit *u, T *buffer) {
  T *to = buffer + t->planes_size;
  if (!NAME(pixel_row_product)(t, u, NAME(sources)(t, u, buffer), to, u->o1 - u->o0)) return false;
  result_grid r = grid_of(t);
  NAME(store_transposed)(t, u, to, &r);
  return true;
}

// ---- pixels

// Fills a row of a box: source pixels from `low` on, zero-padded.
static void NAME(fill_row)(const conv *t, const T *from, T *to) {
  int64_t each = t->channels * t->groups, width = t->box_row / each, low = t->low.x;
  int64_t x0 = first_from(low, 1, 0, width), x1 = first_from(low, 1, t->x.source, width);
  memset(to, 0, (size_t)(x0 * each) * sizeof(T));
  memcpy(to + x0 * each, from + (low + x0) * each, (size_t)((x1 - x0) * each) * sizeof(T));
  memset(to + x1 * each, 0, (size_t)((width - x1) * each) * sizeof(T));
}
// The source of a unit: used directly if no pixel reads padding, else copied into a box.
static const T *NAME(box)(const conv *t, const unit *u, T *to) {
  int64_t line = t->x.source * t->channels * t->groups, plane = t->y.source * line;
  int64_t top = u->y0 * t->y.step + t->low.y, rows = t->box_plane / t->box_row, work = 0;
  const T *source = (const T *)t->source + u->first / t->z.grid * t->z.source * plane;
  if (t->direct_source) {
    source += (u->first % t->z.grid * t->z.step + t->low.z) * plane + top * line;
    return source + t->low.x * t->channels * t->groups;
  }
  T *at = to;
  for (int64_t i = 0; i < u->images * t->z.count; i++) {
    int64_t image = u->first + i / t->z.count;
    int64_t depth = image % t->z.grid * t->z.step + px__conv_at(&t->z, i % t->z.count);
    bool inside = depth >= 0 && depth < t->z.source;
    const T *from = (const T *)t->source + (image / t->z.grid * t->z.source + depth) * plane;
    for (int64_t y = top; y < top + rows && !px__work_stopped(&work, t->box_row);
         y++, at += t->box_row)
      if (inside && y >= 0 && y < t->y.source)
        NAME(fill_row)(t, from + y * line, at);
      else
        memset(at, 0, (size_t)t->box_row * sizeof(T));
  }
  return to;
}
// Stores a unit's results of a strided pass to the output.
static void NAME(scatter_pixels)(const conv *t, const unit *u, const T *from,
                                 const result_grid *r) {
  int64_t each = t->results * t->groups, rows = u->y1 - u->y0, results = u->o1 - u->o0;
  for (int64_t i = 0; i < u->images * rows; i++) {
    int64_t image = u->first + i / rows, y = t->y0 + (u->y0 + i % rows) * r->ry;
    int64_t plane = image / t->z.grid * r->depth + t->z0 + image % t->z.grid * r->rz;
    T *to = (T *)t->out + ((plane * r->height + y) * r->width + t->x0) * each;
    to += u->group * t->results + u->o0;
    for (int64_t x = 0; x < t->x.grid; x++, from += results)
      NAME(copy)(from, results, to + x * r->rx * each);
  }
}
// results() for channels_last, with pixels as rows.
static bool NAME(channels_last_results)(const conv *t, const unit *u, T *buffer) {
  result_grid r = grid_of(t);
  bool direct = r.rz == 1 && r.ry == 1 && r.rx == 1;
  int64_t each = t->results * t->groups;
  T *to = direct ? (T *)t->out + (u->first * r.height + u->y0) * r.width * each +
                       u->group * t->results + u->o0
                 : buffer + t->planes_size;
  const T *from = NAME(box)(t, u, buffer) + u->group * t->channels;
  if (!NAME(pixel_row_product)(t, u, from, to, direct ? each : u->o1 - u->o0)) return false;
  if (!direct) NAME(scatter_pixels)(t, u, to, &r);
  return true;
}

// Forward and input gradient: results = factors times sources.
static bool NAME(results)(const conv *t, const unit *u, void *scratch) {
  T *buffer = scratch;
  if (t->channels_last) return NAME(channels_last_results)(t, u, buffer);
  if (t->pixel_rows) return NAME(pixel_row_results)(t, u, buffer);
  result_grid r = grid_of(t);
  int64_t rows = u->y1 - u->y0, plane = r.depth * r.height * r.width;
  int64_t n = u->images * rows * t->pitch - (t->pitch - t->x.grid);
  bool direct = u->images == 1 && r.ry == 1 && r.rx == 1 && t->pitch == r.width;
  T *result = direct ? NAME(results_at)(t, u, 0, &r) + u->o0 * plane : buffer + t->planes_size;
  px__gemm g = {.m = u->o1 - u->o0,
                .n = n,
                .k = t->terms,
                .whole_m = t->results,
                .whole_n = n,
                .a = (const T *)t->factors + u->group * t->results * t->terms + u->o0 * t->row,
                .ar = t->row,
                .ac = t->term,
                .b = NAME(sources)(t, u, buffer),
                .b_rows = t->direct_source ? NULL : table_of(t, u),
                .br = t->direct_source ? t->plane : 0,
                .bc = 1,
                .c = result,
                .cr = direct ? plane : t->ld,
                .cc = 1,
                .s = t->bias ? (const T *)t->bias + u->group * t->results + u->o0 : NULL,
                .sr = 1,
                .alpha = 1,
                .beta = t->bias ? 1 : 0};
  if (!GEMM(&g, t->parallel_gemm)) return false;
  if (!direct) NAME(scatter)(t, u, result, &r);
  return true;
}

// The output gradient of a unit as og x pixels: used directly, or gathered into `buffer`.
static const T *NAME(gather)(const conv *t, const unit *u, T *buffer, int64_t *ld) {
  int64_t part = (u->y1 - u->y0) * t->ow;
  *ld = u->images > 1 ? t->ld : t->out_pixels;
  for (int64_t i = 0; i < u->images; i++) {
    int64_t at = u->first + i, channel = at / t->od * t->oc + u->group * t->og;
    const T *from =
        (const T *)t->grad + channel * t->out_pixels + at % t->od * t->p + u->y0 * t->ow;
    if (u->images == 1) return from;
    for (int64_t o = u->o0; o < u->o1; o++)
      memcpy(buffer + o * t->ld + i * part, from + o * t->out_pixels, (size_t)part * sizeof(T));
  }
  return buffer;
}
// to_weight for narrow gradients: the rows of a unit's channels.
static bool NAME(to_narrow)(const conv *t, const unit *u, T *buffer) {
  int64_t ld, pixel = u->first * t->p + u->y0 * t->ow,
              kernel_taps = t->channels_last ? 1 : t->kernel_taps;
  int64_t first = u->c0 * kernel_taps;
  T *sum = (T *)t->sums + ((u->part * t->groups + u->group) * t->k + first) * t->og;
  const T *grad = (const T *)t->grad + pixel * t->oc + u->group * t->og;
  if (!t->channels_last) grad = NAME(gather)(t, u, buffer + t->planes_size, &ld);
  px__gemm g = {.m = (u->c1 - u->c0) * kernel_taps,
                .n = t->og,
                .k = u->images * (u->y1 - u->y0) * t->ow,
                .a = t->channels_last ? NAME(box)(t, u, buffer) + u->group * t->cg
                                      : NAME(sources)(t, u, buffer),
                .a_rows = t->channels_last ? t->term_offsets + first : table_of(t, u),
                .a_columns = t->pixel_offsets,
                .ar = t->direct_source ? t->plane : 0,
                .ac = 1,
                .b = grad,
                .br = t->channels_last ? t->oc : 1,
                .bc = t->channels_last ? 1 : ld,
                .c = sum,
                .cr = t->og,
                .cc = 1,
                .s = sum,
                .sr = t->og,
                .sc = 1,
                .alpha = 1,
                .beta = u->first_of_part ? 0 : 1};
  return GEMM(&g, t->parallel_gemm);
}
// Adds a unit's contribution to the weight gradient of its part, restricted to its channels and
// results. The part's first unit overwrites.
static bool NAME(to_weight)(const conv *t, const unit *u, void *scratch) {
  T *buffer = scratch;
  int64_t ld, kernel_taps = t->kernel_taps;
  if (t->narrow) return NAME(to_narrow)(t, u, buffer);
  const T *grad = NAME(gather)(t, u, buffer + t->planes_size, &ld);
  bool summed = sizeof(SUM) != sizeof(T) && t->sums != t->out;
  // A cut of channels_last channels needs a product per tap.
  int64_t apart = t->weight_channels_last && u->c1 - u->c0 < t->cg ? kernel_taps : 1,
          item = summed ? sizeof(SUM) : sizeof(T);
  int64_t at = ((u->part * t->groups + u->group) * t->og + u->o0) * t->k;
  at += u->c0 * (t->weight_channels_last ? 1 : kernel_taps);
  char *sum = (char *)t->sums + at * item;
  px__gemm g = {.m = u->o1 - u->o0,
                .n = (u->c1 - u->c0) * (kernel_taps / apart),
                .k = u->images * (u->y1 - u->y0) * t->ow,
                .whole_m = t->og,
                .whole_n = t->k,
                .a = grad + u->o0 * ld,
                .ar = ld,
                .ac = 1,
                .b = NAME(sources)(t, u, buffer),
                .b_columns = table_of(t, u),
                .br = 1,
                .bc = t->direct_source ? t->plane : 0,
                .c = sum,
                .cr = t->k,
                .cc = 1,
                .s = sum,
                .sr = t->k,
                .sc = 1,
                .alpha = 1,
                .beta = u->first_of_part ? 0 : 1,
                .c_float = summed};
  for (int64_t tap = 0; tap < apart; tap++, sum += t->cg * item) {
    g.c = sum, g.s = sum;
    if (!GEMM(&g, t->parallel_gemm)) return false;
    if (t->term_offsets) g.b_columns += t->cg;
  }
  return true;
}
// Elements [begin, end) of the gradient: sums of the parts, in order.
static void NAME(add_parts)(void *ctx, int64_t begin, int64_t end) {
  const conv *t = ctx;
  const SUM *sums = t->sums;
  int64_t each = t->oc * t->k;
  T *out = t->out;
  for (int64_t i = begin; i < end; i++) {
    SUM total = sums[i];
    for (int64_t p = 1; p < t->parts; p++) total += sums[p * each + i];
    out[i] = FROM_SUM(total);
  }
}

// The same for narrow gradients: rows of terms [begin, end) of all groups, several at a time
// because their elements are adjacent in the gradient.
static void NAME(add_narrow)(void *ctx, int64_t begin, int64_t end) {
  const conv *t = ctx;
  int64_t each = t->oc * t->k;
  for (int64_t i = begin, count; i < end; i += count) {
    int64_t term = i % t->k, left = px__min_count(end - i, t->k - term);
    count = px__min_count(left, TRANSPOSED_CHANNELS);
    const SUM *from = (const SUM *)t->sums + i * t->og;
    T *out = (T *)t->out + i / t->k * t->og * t->k;
    int64_t indices[TRANSPOSED_CHANNELS];
    for (int64_t j = 0; j < count; j++) {
      indices[j] = term + j;
      if (t->channels_last && !t->weight_channels_last)
        indices[j] = indices[j] % t->cg * t->kernel_taps + indices[j] / t->cg;
    }
    for (int64_t o = 0; o < t->og; o++, out += t->k, from++)
      for (int64_t j = 0; j < count; j++) {
        SUM total = from[j * t->og];
        for (int64_t p = 1; p < t->parts; p++) total += from[p * each + j * t->og];
        out[indices[j]] = FROM_SUM(total);
      }
  }
}

// Weights for the input gradient: for each group and input channel a row of (output channel, tap),
// with the taps of this pass only. Blocks of channels are written together because they are
// adjacent in the weights; [begin, end) are blocks of all groups.
static void NAME(transpose_weights)(void *ctx, int64_t begin, int64_t end) {
  const conv *t = ctx;
  int64_t blocks = transposed_blocks(t), kernel_taps = t->kernel_taps;
  int64_t each = t->z.count * t->y.count * t->x.count;
  for (int64_t b = begin; b < end; b++) {
    int64_t g = b / blocks, c0 = b % blocks * TRANSPOSED_CHANNELS, c1 = c0 + TRANSPOSED_CHANNELS;
    if (c1 > t->cg) c1 = t->cg;
    if (kernel_taps == 1) {
      const T *from = (const T *)t->weight + g * t->og * t->cg + c0;
      NAME(transpose)
      (from, t->cg, t->og, c1 - c0, (T *)t->factors + (g * t->cg + c0) * t->og, t->og);
      continue;
    }
    for (int64_t o = 0; o < t->og; o++)
      for (int64_t c = c0; c < c1; c++) {
        const T *from = (const T *)t->weight + (g * t->og + o) * t->k + c * kernel_taps;
        T *to = (T *)t->factors + ((g * t->cg + c) * t->og + o) * each;
        if (each == kernel_taps) {
          NAME(copy)(from, kernel_taps, to);
          continue;
        }
        from += (t->z.first * t->kh + t->y.first) * t->kw + t->x.first;
        for (int64_t k = 0; k < t->z.count; k++)
          for (int64_t i = 0; i < t->y.count; i++)
            for (int64_t j = 0; j < t->x.count; j++)
              *to++ = from[(k * t->z.every * t->kh + i * t->y.every) * t->kw + j * t->x.every];
      }
  }
}
// Packs a panel of `count` results from `first` of a group in px__gemm_pack's format: the weights
// of output channels [begin, end) at the taps of this pass.
static void NAME(pack_transposed)(const conv *t, int64_t group, int64_t first, int64_t count,
                                  int64_t begin, int64_t end, void *to) {
  int64_t width = px__product_panel(t), each = t->terms / t->og, kernel_taps = t->kernel_taps;
  T *panel = to;
  if (count < width) memset(panel, 0, (size_t)((end - begin) * each * width) * sizeof(T));
  for (int64_t o = begin; o < end; o++, panel += each * width) {
    const T *from = (const T *)t->weight + ((group * t->og + o) * t->cg + first) * kernel_taps;
    if (each == kernel_taps) {
      NAME(transpose)(from, kernel_taps, count, kernel_taps, panel, width);
      continue;
    }
    for (int64_t q = 0; q < each; q++) {
      const T *tap = from + kernel_tap(t, q);
      for (int64_t i = 0; i < count; i++) panel[q * width + i] = tap[i * kernel_taps];
    }
  }
}
