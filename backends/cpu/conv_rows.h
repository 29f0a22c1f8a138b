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
// Of `all` numbers of a plane clears those before row r0, those from row r1 on, and in the rows
// between those before column q0, and from q1 on.
static void NAME(clear_about)(const conv *t, int64_t r0, int64_t r1, int64_t q0, int64_t q1,
                              int64_t all, T *to) {
  memset(to, 0, (size_t)(r0 * t->pitch) * sizeof(T));
  for (int64_t r = r0; r < r1; r++) {
    for (int64_t q = 0; q < q0; q++) to[r * t->pitch + q] = 0;
    for (int64_t q = q1; q < t->pitch; q++) to[r * t->pitch + q] = 0;
  }
  int64_t done = (r0 > r1 ? r0 : r1) * t->pitch;
  memset(to + done, 0, (size_t)(all - done) * sizeof(T));
}
static inline void NAME(fetch)(const T *from, int64_t n) {
  for (int64_t q = 0; q < n; q += 64 / (int64_t)sizeof(T)) __builtin_prefetch(from + q);
}
// The plane of places (k, i, j) of one channel, whose sources lie from `channel` on and `each`
// apart, for a unit's images and rows: the source, and zeros outside of it. Past its end the last
// row goes on as the others do. The rows of the next channel are fetched meanwhile.
static void NAME(lay_plane)(const conv *t, const unit *u, const T *channel, int64_t each, int64_t k,
                            int64_t i, int64_t j, T *to) {
  const conv_axis *x = &t->x, *y = &t->y;
  int64_t rows = u->y1 - u->y0 + y->reach;
  int64_t top = start_of(y, i) + u->y0 * y->step, left = start_of(x, j);
  int64_t r0 = first_from(top, y->step, 0, rows), r1 = first_from(top, y->step, y->source, rows);
  int64_t q0 = first_from(left, x->step, 0, t->pitch);
  int64_t q1 = first_from(left, x->step, x->source, t->pitch);
  bool seen = q0 < q1 && r0 < r1, apart = seen && u->images == 1 && t->pitch >= LONG_PITCH;
  int64_t all = u->images * rows * t->pitch + x->reach;
  channel += top * x->source + left + q0 * x->step;
  if (!apart) memset(to, 0, (size_t)all * sizeof(T));
  for (int64_t image = 0; seen && image < u->images; image++, to += rows * t->pitch) {
    int64_t at = u->first + image, depth = at % t->z.grid * t->z.step + px__conv_at(&t->z, k);
    bool there = depth >= 0 && depth < t->z.source;
    const T *from = channel + at / t->z.grid * each + depth * y->source * x->source;
    if (apart) NAME(clear_about)(t, there ? r0 : all / t->pitch, r1, q0, q1, all, to);
    for (int64_t r = r0; there && r < r1; r++) {
      const T *row = from + r * y->step * x->source;
      NAME(fetch)(row + t->z.source * y->source * x->source, (q1 - q0) * x->step);
      NAME(copy_apart)(row, x->step, q1 - q0, to + r * t->pitch + q0);
    }
  }
}
// The sources of a unit: where they lie, if they may be used so, or laid into planes.
static const T *NAME(sources)(const conv *t, const unit *u, T *to) {
  int64_t flat = t->y.source * t->x.source, size = t->z.source * flat;
  int64_t each = image_of(t), work = 0;
  const T *from = (const T *)t->source + (u->group * t->channels + u->c0) * size;
  if (t->plain)
    return from + u->first / t->z.grid * each + u->first % t->z.grid * flat + u->y0 * t->x.source;
  int64_t count = t->z.count, k0 = 0, k1 = count, planes = t->y.planes * t->x.planes;
  if (u->goes_on) k0 = t->z.move > 0 ? count - 1 : 0, k1 = k0 + 1;
  for (int64_t c = u->c0; c < u->c1 && !px__work_stopped(&work, t->plane); c++, from += size)
    for (int64_t k = k0; k < k1; k++) {
      T *at = to + ((c - u->c0) * count + slot_of(t, u->turn, k)) * planes * t->plane;
      for (int64_t i = 0; i < planes; i++, at += t->plane)
        NAME(lay_plane)(t, u, from, each, k, i / t->x.planes, i % t->x.planes, at);
    }
  return to;
}

// Where the results of a unit's i-th image begin.
static T *NAME(results_at)(const conv *t, const unit *u, int64_t i, const result_grid *r) {
  int64_t at = u->first + i, image = at / t->z.grid, depth = t->z0 + at % t->z.grid * r->rz;
  int64_t channel = (image * t->groups + u->group) * t->results;
  int64_t row = (channel * r->depth + depth) * r->height + t->y0 + u->y0 * r->ry;
  return (T *)t->out + row * r->width + t->x0;
}
// Puts a unit's results where they belong.
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

// Four rows of four numbers become lines of four.
typedef T NAME(four) __attribute__((vector_size(4 * sizeof(T))));
static inline void NAME(turn_four)(const T *from, int64_t from_step, T *to, int64_t to_step) {
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
// Turns `rows` rows of `lines` numbers, `from_step` apart, into lines that are `to_step` apart.
static void NAME(turn)(const T *from, int64_t from_step, int64_t rows, int64_t lines, T *to,
                       int64_t to_step) {
  for (int64_t o = 0; o < lines; o += 4) {
    int64_t whole = lines - o < 4 ? 0 : rows / 4 * 4, count = lines - o < 4 ? lines - o : 4;
    for (int64_t i = 0; i < whole; i += 4)
      NAME(turn_four)(from + i * from_step + o, from_step, to + o * to_step + i, to_step);
    for (int64_t q = o; q < o + count; q++)
      for (int64_t i = whole; i < rows; i++) to[q * to_step + i] = from[i * from_step + q];
  }
}
// Puts results that lie upright where they belong: all rows of an image at once, where those follow
// one another.
static void NAME(lay_down)(const conv *t, const unit *u, const T *from, const result_grid *r) {
  int64_t rows = u->y1 - u->y0, width = t->x.grid, channel = r->depth * r->height * r->width;
  int64_t results = u->o1 - u->o0;
  if (r->ry == 1 && width == r->width) width *= rows, rows = 1;
  for (int64_t i = 0; i < u->images; i++) {
    T *to = NAME(results_at)(t, u, i, r) + u->o0 * channel;
    for (int64_t y = 0; y < rows; y++, from += width * results) {
      T *line = to + y * r->ry * r->width;
      if (r->rx == 1) {
        NAME(turn)(from, results, width, results, line, channel);
        continue;
      }
      for (int64_t o = 0; o < results; o++)
        for (int64_t x = 0; x < width; x++) line[o * channel + x * r->rx] = from[x * results + o];
    }
  }
}
// The product of which a row is a position of the unit, `step` apart in `to`: the place of a term
// is the sum of one of the position and one of the term, from `from` on.
static bool NAME(rows_of_positions)(const conv *t, const unit *u, const T *from, T *to,
                                    int64_t step) {
  px__gemm g = {.m = u->images * (u->y1 - u->y0) * t->x.grid,
                .n = u->o1 - u->o0,
                .k = t->terms,
                .a = from,
                .a_rows = t->columns,
                .a_columns = table_of(t, u),
                .ac = 1,
                .packed = (const T *)t->packed + u->group * packed_size(t) + u->o0 * t->terms,
                .c = to,
                .cr = step,
                .cc = 1,
                .s = t->bias ? (const T *)t->bias + u->group * t->results + u->o0 : NULL,
                .sc = 1,
                .alpha = 1,
                .beta = t->bias ? 1 : 0};
  return GEMM(&g, t->inner);
}
// As results() does, by rows of positions in the planes.
static bool NAME(upright_results)(const conv *t, const unit *u, T *room) {
  T *to = room + t->strips;
  if (!NAME(rows_of_positions)(t, u, NAME(sources)(t, u, room), to, u->o1 - u->o0)) return false;
  result_grid r = grid_of(t);
  NAME(lay_down)(t, u, to, &r);
  return true;
}

// ---- pixels

// A row of a box: pixels of the source from `low` on, and zeros outside of it.
static void NAME(lay_row)(const conv *t, const T *from, T *to) {
  int64_t each = t->channels * t->groups, width = t->box_row / each, low = t->low.x;
  int64_t x0 = first_from(low, 1, 0, width), x1 = first_from(low, 1, t->x.source, width);
  memset(to, 0, (size_t)(x0 * each) * sizeof(T));
  memcpy(to + x0 * each, from + (low + x0) * each, (size_t)((x1 - x0) * each) * sizeof(T));
  memset(to + x1 * each, 0, (size_t)((width - x1) * each) * sizeof(T));
}
// The sources of a unit: where they lie, if no position sees anything outside, or a box.
static const T *NAME(box)(const conv *t, const unit *u, T *to) {
  int64_t line = t->x.source * t->channels * t->groups, plane = t->y.source * line;
  int64_t top = u->y0 * t->y.step + t->low.y, rows = t->box_plane / t->box_row, work = 0;
  const T *source = (const T *)t->source + u->first / t->z.grid * t->z.source * plane;
  if (t->plain) {
    source += (u->first % t->z.grid * t->z.step + t->low.z) * plane + top * line;
    return source + t->low.x * t->channels * t->groups;
  }
  T *at = to;
  for (int64_t i = 0; i < u->images * t->z.count; i++) {
    int64_t image = u->first + i / t->z.count;
    int64_t depth = image % t->z.grid * t->z.step + px__conv_at(&t->z, i % t->z.count);
    bool there = depth >= 0 && depth < t->z.source;
    const T *from = (const T *)t->source + (image / t->z.grid * t->z.source + depth) * plane;
    for (int64_t y = top; y < top + rows && !px__work_stopped(&work, t->box_row);
         y++, at += t->box_row)
      if (there && y >= 0 && y < t->y.source)
        NAME(lay_row)(t, from + y * line, at);
      else
        memset(at, 0, (size_t)t->box_row * sizeof(T));
  }
  return to;
}
// Puts a unit's results, of a pass with a stride, where they belong.
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
// As results() does, by rows of pixels.
static bool NAME(pixel_results)(const conv *t, const unit *u, T *room) {
  result_grid r = grid_of(t);
  bool direct = r.rz == 1 && r.ry == 1 && r.rx == 1;
  int64_t each = t->results * t->groups;
  T *to = direct ? (T *)t->out + (u->first * r.height + u->y0) * r.width * each +
                       u->group * t->results + u->o0
                 : room + t->strips;
  const T *from = NAME(box)(t, u, room) + u->group * t->channels;
  if (!NAME(rows_of_positions)(t, u, from, to, direct ? each : u->o1 - u->o0)) return false;
  if (!direct) NAME(scatter_pixels)(t, u, to, &r);
  return true;
}

// Forward and the gradient of the input: results = factors times sources.
static bool NAME(results)(const conv *t, const unit *u, void *scratch) {
  T *room = scratch;
  if (t->pixels) return NAME(pixel_results)(t, u, room);
  if (t->upright) return NAME(upright_results)(t, u, room);
  result_grid r = grid_of(t);
  int64_t rows = u->y1 - u->y0, plane = r.depth * r.height * r.width;
  int64_t n = u->images * rows * t->pitch - (t->pitch - t->x.grid);
  bool direct = u->images == 1 && r.ry == 1 && r.rx == 1 && t->pitch == r.width;
  T *result = direct ? NAME(results_at)(t, u, 0, &r) + u->o0 * plane : room + t->strips;
  px__gemm g = {.m = u->o1 - u->o0,
                .n = n,
                .k = t->terms,
                .whole_m = t->results,
                .whole_n = n,
                .a = (const T *)t->factors + u->group * t->results * t->terms + u->o0 * t->row,
                .ar = t->row,
                .ac = t->term,
                .b = NAME(sources)(t, u, room),
                .b_rows = t->plain ? NULL : table_of(t, u),
                .br = t->plain ? t->plane : 0,
                .bc = 1,
                .c = result,
                .cr = direct ? plane : t->ld,
                .cc = 1,
                .s = t->bias ? (const T *)t->bias + u->group * t->results + u->o0 : NULL,
                .sr = 1,
                .alpha = 1,
                .beta = t->bias ? 1 : 0};
  if (!GEMM(&g, t->inner)) return false;
  if (!direct) NAME(scatter)(t, u, result, &r);
  return true;
}

// The output's gradient of a unit as og x positions: where it lies, or gathered into `room`.
static const T *NAME(gather)(const conv *t, const unit *u, T *room, int64_t *ld) {
  int64_t part = (u->y1 - u->y0) * t->ow;
  *ld = u->images > 1 ? t->ld : t->seen;
  for (int64_t i = 0; i < u->images; i++) {
    int64_t at = u->first + i, channel = at / t->od * t->oc + u->group * t->og;
    const T *from = (const T *)t->grad + channel * t->seen + at % t->od * t->p + u->y0 * t->ow;
    if (u->images == 1) return from;
    for (int64_t o = u->o0; o < u->o1; o++)
      memcpy(room + o * t->ld + i * part, from + o * t->seen, (size_t)part * sizeof(T));
  }
  return room;
}
// As to_weight does, of narrow gradients: the rows of a unit's channels.
static bool NAME(to_narrow)(const conv *t, const unit *u, T *room) {
  int64_t ld, pixel = u->first * t->p + u->y0 * t->ow, places = t->pixels ? 1 : t->places;
  int64_t first = u->c0 * places;
  T *sum = (T *)t->sums + ((u->part * t->groups + u->group) * t->k + first) * t->og;
  const T *grad = (const T *)t->grad + pixel * t->oc + u->group * t->og;
  if (!t->pixels) grad = NAME(gather)(t, u, room + t->strips, &ld);
  px__gemm g = {
      .m = (u->c1 - u->c0) * places,
      .n = t->og,
      .k = u->images * (u->y1 - u->y0) * t->ow,
      .a = t->pixels ? NAME(box)(t, u, room) + u->group * t->cg : NAME(sources)(t, u, room),
      .a_rows = t->pixels ? t->table + first : table_of(t, u),
      .a_columns = t->columns,
      .ar = t->plain ? t->plane : 0,
      .ac = 1,
      .b = grad,
      .br = t->pixels ? t->oc : 1,
      .bc = t->pixels ? 1 : ld,
      .c = sum,
      .cr = t->og,
      .cc = 1,
      .s = sum,
      .sr = t->og,
      .sc = 1,
      .alpha = 1,
      .beta = u->opens ? 0 : 1};
  return GEMM(&g, t->inner);
}
// Adds a unit's share to the gradient of its part: the columns of its channels, and its results'
// rows. The first unit's is written.
static bool NAME(to_weight)(const conv *t, const unit *u, void *scratch) {
  T *room = scratch;
  int64_t ld, places = t->places;
  if (t->narrow) return NAME(to_narrow)(t, u, room);
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
                .whole_m = t->og,
                .whole_n = t->k,
                .a = grad + u->o0 * ld,
                .ar = ld,
                .ac = 1,
                .b = NAME(sources)(t, u, room),
                .b_columns = table_of(t, u),
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
    g.c = sum, g.s = sum;
    if (!GEMM(&g, t->inner)) return false;
    if (t->table) g.b_columns += t->cg;
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

// The same of narrow ones: rows of terms [begin, end) of all groups, some at a time, since theirs
// lie together in the gradient.
static void NAME(add_narrow)(void *ctx, int64_t begin, int64_t end) {
  const conv *t = ctx;
  int64_t each = t->oc * t->k;
  for (int64_t i = begin, count; i < end; i += count) {
    int64_t term = i % t->k, left = px__min_count(end - i, t->k - term);
    count = px__min_count(left, TURNED);
    const SUM *from = (const SUM *)t->sums + i * t->og;
    T *out = (T *)t->out + i / t->k * t->og * t->k;
    int64_t places[TURNED];
    for (int64_t j = 0; j < count; j++) {
      places[j] = term + j;
      if (t->pixels && !t->last) places[j] = places[j] % t->cg * t->places + places[j] / t->cg;
    }
    for (int64_t o = 0; o < t->og; o++, out += t->k, from++)
      for (int64_t j = 0; j < count; j++) {
        SUM total = from[j * t->og];
        for (int64_t p = 1; p < t->parts; p++) total += from[p * each + j * t->og];
        out[places[j]] = FROM_SUM(total);
      }
  }
}

// The weights as the gradient of the input needs them: for each group and channel of the image a
// row of (output channel, place), with the places of this pass alone. Some channels are written at
// a time, since theirs lie together in the weights; [begin, end) are such blocks of all groups.
static void NAME(turn_weights)(void *ctx, int64_t begin, int64_t end) {
  const conv *t = ctx;
  int64_t blocks = turned_blocks(t), places = t->places;
  int64_t each = t->z.count * t->y.count * t->x.count;
  for (int64_t b = begin; b < end; b++) {
    int64_t g = b / blocks, c0 = b % blocks * TURNED, c1 = c0 + TURNED;
    if (c1 > t->cg) c1 = t->cg;
    if (places == 1) {
      const T *from = (const T *)t->weight + g * t->og * t->cg + c0;
      NAME(turn)(from, t->cg, t->og, c1 - c0, (T *)t->factors + (g * t->cg + c0) * t->og, t->og);
      continue;
    }
    for (int64_t o = 0; o < t->og; o++)
      for (int64_t c = c0; c < c1; c++) {
        const T *from = (const T *)t->weight + (g * t->og + o) * t->k + c * places;
        T *to = (T *)t->factors + ((g * t->cg + c) * t->og + o) * each;
        if (each == places) {
          NAME(copy)(from, places, to);
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
// Packs a panel of `count` results from `first` of a group as px__gemm_pack does: of output
// channels [begin, end) the weights of the places of this pass.
static void NAME(pack_back)(const conv *t, int64_t group, int64_t first, int64_t count,
                            int64_t begin, int64_t end, void *to) {
  int64_t width = panel_of(t), each = t->terms / t->og, places = t->places;
  T *panel = to;
  if (count < width) memset(panel, 0, (size_t)((end - begin) * each * width) * sizeof(T));
  for (int64_t o = begin; o < end; o++, panel += each * width) {
    const T *from = (const T *)t->weight + ((group * t->og + o) * t->cg + first) * places;
    if (each == places) {
      NAME(turn)(from, places, count, places, panel, width);
      continue;
    }
    for (int64_t q = 0; q < each; q++) {
      const T *place = from + picked(t, q);
      for (int64_t i = 0; i < count; i++) panel[q * width + i] = place[i * places];
    }
  }
}
