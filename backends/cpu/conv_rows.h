// SPDX-License-Identifier: Apache-2.0
// Convolution for one element type (T, NAME as in vec_impl.h, GEMM the product); conv.c includes it
// twice. A column is what one output position sees: K = channels * kh * kw numbers.

// Where the columns of one kernel position (ky, kx) leave the image: output x in [*from, *to) reads
// inside.
static void NAME(inside)(const conv *t, int64_t kx, int64_t *from, int64_t *to) {
  int64_t first = t->pw - kx * t->dw, last = t->w + t->pw - kx * t->dw;
  *from = first <= 0 ? 0 : (first + t->sw - 1) / t->sw;
  *to = last <= 0 ? 0 : (last + t->sw - 1) / t->sw;
  if (*from > t->ow) *from = t->ow;
  if (*to > t->ow) *to = t->ow;
  if (*to < *from) *to = *from;
}

// Writes output rows [y0, y1) of an image's columns: to[k * ld + position].
static void NAME(columns)(const conv *t, const T *image, int64_t y0, int64_t y1, T *to,
                          int64_t ld) {
  for (int64_t c = 0; c < t->cg; c++)
    for (int64_t ky = 0; ky < t->kh; ky++)
      for (int64_t kx = 0; kx < t->kw; kx++, to += ld) {
        int64_t from, end;
        NAME(inside)(t, kx, &from, &end);
        T *at = to;
        for (int64_t oy = y0; oy < y1; oy++, at += t->ow) {
          int64_t y = oy * t->sh - t->ph + ky * t->dh;
          if (y < 0 || y >= t->h) {
            for (int64_t x = 0; x < t->ow; x++) at[x] = 0;
            continue;
          }
          const T *line = image + (c * t->h + y) * t->w - t->pw + kx * t->dw;
          for (int64_t x = 0; x < from; x++) at[x] = 0;
          if (t->sw == 1)
            for (int64_t x = from; x < end; x++) at[x] = line[x];
          else
            for (int64_t x = from; x < end; x++) at[x] = line[x * t->sw];
          for (int64_t x = end; x < t->ow; x++) at[x] = 0;
        }
      }
}
// The transpose of it: adds columns to the image.
static void NAME(add_columns)(const conv *t, T *image, int64_t y0, int64_t y1, const T *columns,
                              int64_t ld) {
  for (int64_t c = 0; c < t->cg; c++)
    for (int64_t ky = 0; ky < t->kh; ky++)
      for (int64_t kx = 0; kx < t->kw; kx++, columns += ld) {
        int64_t from, end;
        NAME(inside)(t, kx, &from, &end);
        const T *at = columns;
        for (int64_t oy = y0; oy < y1; oy++, at += t->ow) {
          int64_t y = oy * t->sh - t->ph + ky * t->dh;
          if (y < 0 || y >= t->h) continue;
          T *line = image + (c * t->h + y) * t->w - t->pw + kx * t->dw;
          if (t->sw == 1)
            for (int64_t x = from; x < end; x++) line[x] += at[x];
          else
            for (int64_t x = from; x < end; x++) line[x * t->sw] += at[x];
        }
      }
}

// One unit: `images` images from `first`, of one group, output rows [y0, y1).
static bool NAME(forward)(const conv *t, const unit *u, T *columns) {
  const T *in = t->in, *weight = (const T *)t->weight + u->group * t->og * t->k;
  T *out = t->out, *result = columns + t->k * u->ld;
  int64_t part = (u->y1 - u->y0) * t->ow, wide = u->images > 1;
  for (int64_t i = 0; i < u->images; i++) NAME(columns)
  (t, in + ((u->first + i) * t->c + u->group * t->cg) * t->h * t->w, u->y0, u->y1,
   columns + i * part, u->ld);
  T *to = out + (u->first * t->oc + u->group * t->og) * t->p + u->y0 * t->ow;
  px__gemm g = {.m = t->og,
                .n = u->images * part,
                .k = t->k,
                .a = weight,
                .ar = t->k,
                .ac = 1,
                .b = columns,
                .br = u->ld,
                .bc = 1,
                .c = wide ? result : to,
                .cr = wide ? u->ld : t->p,
                .cc = 1,
                .alpha = 1,
                .beta = 1,
                .sr = 1,
                .sc = 0};
  if (t->bias) g.s = (const T *)t->bias + u->group * t->og;
  if (!GEMM(&g, t->inner)) return false;
  for (int64_t i = 0; wide && i < u->images; i++)
    for (int64_t o = 0; o < t->og; o++)
      memcpy(to + (i * t->oc + o) * t->p, result + o * u->ld + i * part, (size_t)part * sizeof(T));
  return true;
}

// The output's gradient of a unit as og x columns: where it lies, or gathered into `room`.
static const T *NAME(gather)(const conv *t, const unit *u, T *room, int64_t *ld) {
  int64_t part = (u->y1 - u->y0) * t->ow;
  const T *from = (const T *)t->grad + (u->first * t->oc + u->group * t->og) * t->p + u->y0 * t->ow;
  *ld = u->images > 1 ? u->ld : t->p;
  if (u->images == 1) return from;
  for (int64_t i = 0; i < u->images; i++)
    for (int64_t o = 0; o < t->og; o++)
      memcpy(room + o * u->ld + i * part, from + (i * t->oc + o) * t->p, (size_t)part * sizeof(T));
  return room;
}

static bool NAME(to_input)(const conv *t, const unit *u, T *columns) {
  int64_t part = (u->y1 - u->y0) * t->ow, ld;
  const T *grad = NAME(gather)(t, u, columns + t->k * u->ld, &ld);
  const T *weight = (const T *)t->weight + u->group * t->og * t->k;
  px__gemm g = {.m = t->k,
                .n = u->images * part,
                .k = t->og,
                .a = weight,
                .ar = 1,
                .ac = t->k,
                .b = grad,
                .br = ld,
                .bc = 1,
                .c = columns,
                .cr = u->ld,
                .cc = 1,
                .alpha = 1};
  if (!GEMM(&g, t->inner)) return false;
  for (int64_t i = 0; i < u->images; i++) {
    T *image = (T *)t->out + ((u->first + i) * t->c + u->group * t->cg) * t->h * t->w;
    NAME(add_columns)(t, image, u->y0, u->y1, columns + i * part, u->ld);
  }
  return true;
}

// Adds a unit's share to the transposed weight gradient (K x og) of its part.
static bool NAME(to_weight)(const conv *t, const unit *u, T *columns) {
  int64_t part = (u->y1 - u->y0) * t->ow, ld;
  const T *in = t->in, *grad = NAME(gather)(t, u, columns + t->k * u->ld, &ld);
  for (int64_t i = 0; i < u->images; i++) NAME(columns)
  (t, in + ((u->first + i) * t->c + u->group * t->cg) * t->h * t->w, u->y0, u->y1,
   columns + i * part, u->ld);
  T *sum = (T *)t->sums + (u->part * t->groups + u->group) * t->k * t->og;
  px__gemm g = {.m = t->k,
                .n = t->og,
                .k = u->images * part,
                .a = columns,
                .ar = u->ld,
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
  int64_t each = t->groups * t->k * t->og;
  for (int64_t g = 0; g < t->groups; g++)
    for (int64_t o = 0; o < t->og; o++)
      for (int64_t k = 0; k < t->k; k++) {
        T total = 0;
        for (int64_t p = 0; p < t->parts; p++)
          total += ((const T *)t->sums)[p * each + (g * t->k + k) * t->og + o];
        ((T *)t->out)[(g * t->og + o) * t->k + k] = total;
      }
}
