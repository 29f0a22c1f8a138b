// SPDX-License-Identifier: Apache-2.0
// Convolution for one element type (T, NAME as in vec_impl.h, GEMM the product, SUM the type of
// sums, FROM_SUM one as T); conv.c includes it for each.

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
static bool NAME(results)(const conv *t, const unit *u, void *scratch) {
  T *room = scratch;
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
                .ar = t->row,
                .ac = t->term,
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
    for (int64_t o = u->o0; o < u->o1; o++)
      memcpy(room + o * t->ld + i * part, from + (i * t->oc + o) * t->p, (size_t)part * sizeof(T));
  return room;
}
// Adds a unit's share to the gradient of its part: the columns of its channels, and its results'
// rows. The first unit's is written.
static bool NAME(to_weight)(const conv *t, const unit *u, void *scratch) {
  T *room = scratch;
  int64_t ld, places = t->kh * t->kw;
  const T *grad = NAME(gather)(t, u, room + t->strips, &ld);
  bool summed = sizeof(SUM) != sizeof(T) && t->sums != t->out;
  // Of a cut of channels that lie channels_last each place is a product of its own.
  int64_t apart = t->last && u->c1 - u->c0 < t->cg ? places : 1,
          item = summed ? sizeof(SUM) : sizeof(T);
  int64_t at = ((u->part * t->groups + u->group) * t->og + u->o0) * t->k;
  at += u->c0 * (t->last ? 1 : places);
  char *sum = (char *)t->sums + at * item;
  px__gemm g = {.m = u->o1 - u->o0,
                .n = (u->c1 - u->c0) * (places / apart),
                .k = u->images * (u->y1 - u->y0) * t->ow,
                .a = grad + u->o0 * ld,
                .ar = ld,
                .ac = 1,
                .b = NAME(sources)(t, u, room),
                .b_columns = t->table,
                .br = 1,
                .bc = t->plain ? t->plane : 0,
                .c = sum,
                .cr = t->k,
                .cc = 1,
                .s = sum,
                .sr = t->k,
                .sc = 1,
                .alpha = 1,
                .beta = u->opens ? 0 : 1,
                .c_float = summed};
  for (int64_t place = 0; place < apart; place++, sum += t->cg * item) {
    g.b_columns = t->table ? t->table + place * t->cg : NULL;
    g.c = sum, g.s = sum;
    if (!GEMM(&g, t->inner)) return false;
  }
  return true;
}
// Elements [begin, end) of the gradient: the parts' sums, in order.
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

// The weights as the gradient of the input needs them: for each group and channel of the image a
// row of (output channel, place), with the places of this pass alone. Some channels are written at
// a time, since theirs lie together in the weights; [begin, end) are such blocks of all groups.
static void NAME(turn_weights)(void *ctx, int64_t begin, int64_t end) {
  const conv *t = ctx;
  int64_t blocks = turned_blocks(t), places = t->kh * t->kw, each = t->y.count * t->x.count;
  for (int64_t b = begin; b < end; b++) {
    int64_t g = b / blocks, c0 = b % blocks * TURNED, c1 = c0 + TURNED;
    if (c1 > t->cg) c1 = t->cg;
    for (int64_t o = 0; o < t->og; o++)
      for (int64_t c = c0; c < c1; c++) {
        const T *from = (const T *)t->weight + (g * t->og + o) * t->k + c * places;
        T *to = (T *)t->factors + ((g * t->cg + c) * t->og + o) * each;
        if (each == places) {
          NAME(copy)(from, places, to);
          continue;
        }
        for (int64_t i = 0; i < t->y.count; i++)
          for (int64_t j = 0; j < t->x.count; j++)
            *to++ = from[(t->y.first + i * t->y.every) * t->kw + t->x.first + j * t->x.every];
      }
  }
}
