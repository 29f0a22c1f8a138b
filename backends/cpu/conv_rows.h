// SPDX-License-Identifier: Apache-2.0
// Convolution for one element type (T, NAME as in vec_impl.h, GEMM the product); conv.c includes it
// twice.

// Rows are often so short that a call of memcpy would take longer than the copy; what is left of a
// row is covered by pieces that overlap.
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
// Every step-th of n numbers.
static inline void NAME(copy_apart)(const T *from, int64_t step, int64_t n, T *to) {
  if (step == 1)
    NAME(copy)(from, n, to);
  else if (step == 2)
    for (int64_t q = 0; q < n; q++) to[q] = from[q * 2];
  else
    for (int64_t q = 0; q < n; q++) to[q] = from[q * step];
}
// The plane of places (i, j) of one channel for a unit's images and rows: the source, and zeros
// outside of it. Past its end the last row goes on as the others do.
static void NAME(lay_plane)(const conv *t, const unit *u, const T *from, int64_t each, int64_t i,
                            int64_t j, T *to) {
  const conv_axis *x = &t->x, *y = &t->y;
  int64_t rows = u->y1 - u->y0 + y->reach;
  int64_t top = start_of(y, i) + u->y0 * y->step, left = start_of(x, j);
  int64_t r0 = first_from(top, y->step, 0, rows), r1 = first_from(top, y->step, y->source, rows);
  int64_t q0 = first_from(left, x->step, 0, t->pitch);
  int64_t q1 = first_from(left, x->step, x->source, t->pitch);
  memset(to, 0, (size_t)(u->images * rows * t->pitch + x->reach) * sizeof(T));
  if (q0 == q1) return;
  from += top * x->source + left + q0 * x->step;
  for (int64_t image = 0; image < u->images; image++, from += each, to += rows * t->pitch)
    for (int64_t r = r0; r < r1; r++)
      NAME(copy_apart)(from + r * y->step * x->source, x->step, q1 - q0, to + r * t->pitch + q0);
}
// The sources of a unit: where they lie, if they may be used so, or laid into planes.
static const T *NAME(sources)(const conv *t, const unit *u, T *to) {
  int64_t size = t->y.source * t->x.source, all = t->channels * t->groups;
  int64_t first = u->first * all + u->group * t->channels + u->c0;
  const T *from = (const T *)t->source + first * size;
  if (t->plain) return from + u->y0 * t->x.source;
  T *at = to;
  int64_t work = 0;
  for (int64_t c = u->c0; c < u->c1 && !px__worked(&work, t->plane); c++, from += size)
    for (int64_t i = 0; i < t->y.planes; i++)
      for (int64_t j = 0; j < t->x.planes; j++, at += t->plane)
        NAME(lay_plane)(t, u, from, all * size, i, j, at);
  return to;
}

// Puts a unit's results where they belong.
static void NAME(scatter)(const conv *t, const unit *u, const T *result, T *to, int64_t ry,
                          int64_t rx, int64_t height, int64_t width) {
  int64_t rows = u->y1 - u->y0, all = t->results * t->groups;
  to += ((u->first * all + u->group * t->results) * height + t->y0 + u->y0 * ry) * width + t->x0;
  for (int64_t i = 0; i < u->images; i++)
    for (int64_t o = 0; o < t->results; o++)
      for (int64_t y = 0; y < rows; y++) {
        const T *from = result + o * t->ld + (i * rows + y) * t->pitch;
        T *line = to + ((i * all + o) * height + y * ry) * width;
        if (rx == 1)
          NAME(copy)(from, t->x.grid, line);
        else
          for (int64_t x = 0; x < t->x.grid; x++) line[x * rx] = from[x];
      }
}

// Forward and the gradient of the input: results = factors times sources.
static bool NAME(results)(const conv *t, const unit *u, T *room) {
  bool back = t->what == 'i';
  int64_t ry = back ? t->sh : 1, rx = back ? t->sw : 1;
  int64_t height = back ? t->h : t->oh, width = back ? t->w : t->ow, rows = u->y1 - u->y0;
  bool direct = u->images == 1 && ry == 1 && rx == 1 && t->pitch == width;
  T *result = room + t->strips;
  if (direct)
    result =
        (T *)t->out + ((u->first * t->groups + u->group) * t->results * height + u->y0) * width;
  px__gemm g = {.m = t->results,
                .n = u->images * rows * t->pitch - (t->pitch - t->x.grid),
                .k = t->terms,
                .a = (const T *)t->factors + u->group * t->results * t->terms,
                .ar = t->terms,
                .ac = 1,
                .b = NAME(sources)(t, u, room),
                .b_rows = t->table,
                .br = t->plain ? t->plane : 0,
                .bc = 1,
                .c = result,
                .cr = direct ? height * width : t->ld,
                .cc = 1,
                .s = t->bias ? (const T *)t->bias + u->group * t->results : NULL,
                .sr = 1,
                .alpha = 1,
                .beta = t->bias ? 1 : 0};
  if (!GEMM(&g, t->inner)) return false;
  if (!direct) NAME(scatter)(t, u, result, t->out, ry, rx, height, width);
  return true;
}

// The output's gradient of a unit as og x positions: where it lies, or gathered into `room`.
static const T *NAME(gather)(const conv *t, const unit *u, T *room, int64_t *ld) {
  int64_t part = (u->y1 - u->y0) * t->ow;
  const T *from = (const T *)t->grad + (u->first * t->oc + u->group * t->og) * t->p + u->y0 * t->ow;
  *ld = u->images > 1 ? t->ld : t->p;
  if (u->images == 1) return from;
  for (int64_t i = 0; i < u->images; i++)
    for (int64_t o = 0; o < t->og; o++)
      memcpy(room + o * t->ld + i * part, from + (i * t->oc + o) * t->p, (size_t)part * sizeof(T));
  return room;
}
// Adds a unit's share to the transposed weight gradient (K x og) of its part: the rows of its
// channels.
static bool NAME(to_weight)(const conv *t, const unit *u, T *room) {
  int64_t ld;
  const T *grad = NAME(gather)(t, u, room + t->strips, &ld);
  int64_t places = t->kh * t->kw;
  T *sum = (T *)t->sums + ((u->part * t->groups + u->group) * t->k + u->c0 * places) * t->og;
  px__gemm g = {.m = (u->c1 - u->c0) * places,
                .n = t->og,
                .k = u->images * (u->y1 - u->y0) * t->ow,
                .a = NAME(sources)(t, u, room),
                .a_rows = t->table,
                .ar = t->plain ? t->plane : 0,
                .ac = 1,
                .b = grad,
                .br = 1,
                .bc = ld,
                .c = sum,
                .cr = t->og,
                .cc = 1,
                .s = sum,
                .sr = t->og,
                .sc = 1,
                .alpha = 1,
                .beta = 1};
  return GEMM(&g, t->inner);
}
static void NAME(add_parts)(const conv *t) {
  enum { LINE = 64 / sizeof(T) };
  int64_t each = t->groups * t->k * t->og;
  for (int64_t g = 0; g < t->groups; g++)
    for (int64_t o = 0; o < t->og; o += LINE)
      for (int64_t k = 0; k < t->k; k++) {
        const T *from = (const T *)t->sums + (g * t->k + k) * t->og;
        for (int64_t i = o; i < t->og && i < o + LINE; i++) {
          T total = 0;
          for (int64_t p = 0; p < t->parts; p++) total += from[p * each + i];
          ((T *)t->out)[(g * t->og + i) * t->k + k] = total;
        }
      }
}

// The weights as the gradient of the input needs them: for each group and channel of the image a
// row of (output channel, place), with the places of this pass alone.
static void NAME(turn_weights)(const conv *t, void *room) {
  const T *from = t->weight;
  T *to = room;
  for (int64_t g = 0; g < t->groups; g++, from += t->og * t->k)
    for (int64_t c = 0; c < t->cg; c++)
      for (int64_t o = 0; o < t->og; o++)
        for (int64_t i = 0; i < t->y.count; i++)
          for (int64_t j = 0; j < t->x.count; j++) {
            int64_t ky = t->y.first + i * t->y.every, kx = t->x.first + j * t->x.every;
            *to++ = from[o * t->k + (c * t->kh + ky) * t->kw + kx];
          }
}
