// SPDX-License-Identifier: Apache-2.0
// The tiles of attention.c for one element type: T, its DTYPE, NAME(x) the name of x.

// What a thread works in. Rows of a tile lie one after the other.
typedef struct NAME(room) {
  T *query, *key, *value, *scores;
  T *weighted;   // forward: values by weights; backward: the gradient of query
  T *top, *sum;  // forward: of each row so far; backward: logsumexp, and its gradient's part
  T *line;       // of the mask
  float *kept;   // of dropout
  T *grad, *grad_scores, *output, *grad_key, *grad_value;
} NAME(room);

// Cuts the room into its parts, or, without one, counts them: in elements.
static size_t NAME(lay_out)(NAME(room) * r, const attention *t, T *at, bool back) {
  int64_t e = t->width, f = t->value_width, keys = t->keys, q = QUERIES;
  bool own = back && !sums_in_place(t, DTYPE);
  const struct {
    T **part;
    int64_t size;
  } parts[] = {{&r->query, q * e},
               {&r->key, keys * e},
               {&r->value, keys * f},
               {&r->scores, q * keys},
               {&r->weighted, back ? q * e : q * f},
               {&r->top, q},
               {&r->sum, q},
               {&r->line, keys},
               {(T **)&r->kept, keys},
               {&r->grad, back ? q * f : 0},
               {&r->output, back ? q * f : 0},
               {&r->grad_scores, back ? q * keys : 0},
               {&r->grad_key, own ? t->places * e : 0},
               {&r->grad_value, own ? t->places * f : 0}};
  size_t used = 0;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    if (at) *parts[i].part = at + used;
    used += (size_t)((parts[i].size + 15) / 16 * 16);
  }
  return used;
}
static T *NAME(room_new)(NAME(room) * r, const attention *t, bool back) {
  if (t->width > longest_row || t->value_width > longest_row) return NULL;
  T *at = px__aligned_new(NAME(lay_out)(r, t, NULL, back) * sizeof(T));
  if (at) NAME(lay_out)(r, t, at, back);
  return at;
}

// Rows of a head, one after the other: where they lie, or copied to room.
static const T *NAME(rows)(const px_operand *o, int64_t b, int64_t h, int64_t i, int64_t n,
                           T *room) {
  int64_t width = o->sizes[3], item = (int64_t)px__cpu_item[o->dtype];
  if (o->dtype == DTYPE && o->strides[3] == 1 && o->strides[2] == width)
    return (const T *)place(o, b, h, i);
  for (int64_t r = 0; r < n && width; r++)
    px__cpu_convert(room + r * width, sizeof(T), DTYPE, place(o, b, h, i + r), o->strides[3] * item,
                    o->dtype, width);
  return room;
}
static void NAME(put_rows)(const px_operand *o, int64_t b, int64_t h, int64_t i, int64_t n,
                           const T *rows) {
  int64_t width = o->sizes[3], item = (int64_t)px__cpu_item[o->dtype];
  for (int64_t r = 0; r < n && width; r++)
    px__cpu_convert((char *)place(o, b, h, i + r), o->strides[3] * item, o->dtype, rows + r * width,
                    sizeof(T), DTYPE, width);
}

// c = scale * a b, or added to c; a is m x k, and c's rows have n elements. False: no memory.
typedef struct NAME(matrix) {
  const T *at;
  int64_t down, across;
} NAME(matrix);
static bool NAME(multiply)(T *c, int64_t m, int64_t n, int64_t k, NAME(matrix) a, NAME(matrix) b,
                           double scale, bool add) {
  px__gemm g = {.m = m,
                .n = n,
                .k = k,
                .a = a.at,
                .ar = a.down,
                .ac = a.across,
                .b = b.at,
                .br = b.down,
                .bc = b.across,
                .c = c,
                .cr = n,
                .cc = 1,
                .s = add ? c : NULL,
                .sr = n,
                .sc = 1,
                .alpha = scale,
                .beta = 1};
  return sizeof(T) == sizeof(double) ? px__gemm_f64(&g, false) : px__gemm_f32(&g, false);
}
static NAME(matrix) NAME(plain)(const T *at, int64_t width) { return (NAME(matrix)){at, width, 1}; }
static NAME(matrix) NAME(turned)(const T *at, int64_t width) {
  return (NAME(matrix)){at, 1, width};
}

// Hides, or shifts, n scores of a row.
static void NAME(apply_mask)(const attention *t, const tile *x, int64_t r, int64_t n, T *scores,
                             T *line) {
  const px_operand *m = t->mask;
  int64_t item = (int64_t)px__cpu_item[m->dtype], step = m->strides[3];
  const char *from = place(m, x->b, x->h, x->i + r) + x->j * step * item;
  if (m->dtype == PX_BOOL) {
    for (int64_t k = 0; k < n; k++) scores[k] = from[k * step] ? scores[k] : -(T)INFINITY;
    return;
  }
  px__cpu_convert(line, sizeof(T), DTYPE, from, step * item, m->dtype, n);
  for (int64_t k = 0; k < n; k++) scores[k] += line[k];
}
// The scores of a tile, masked. What is not seen at the end of a row is left as it is.
static bool NAME(scores)(const attention *t, const tile *x, const NAME(room) * r, const T *query,
                         const T *key) {
  int64_t e = t->width;
  if (!NAME(multiply)(r->scores, x->rows, x->n, e, NAME(plain)(query, e), NAME(turned)(key, e),
                      t->scale, false))
    return false;
  for (int64_t i = 0; t->mask && i < x->rows; i++)
    NAME(apply_mask)(t, x, i, seen(t, x, i), r->scores + i * x->n, r->line);
  return true;
}

// ---- forward

// Scores that are all -inf, or NaN: weights of 0, or NaN.
static T NAME(weigh_hidden)(T *scores, int64_t n) {
  T sum = 0;
  for (int64_t k = 0; k < n; k++) sum += scores[k] = scores[k] == scores[k] ? 0 : scores[k];
  return sum;
}
// Makes weights of a row's scores, relative to the greatest score so far, and gives what the former
// weights are to be multiplied with.
static T NAME(weigh)(T *scores, int64_t n, T *top, T *sum) {
  T greatest = n ? NAME(row_max)(scores, n) : -(T)INFINITY, was = *top;
  if (!(greatest > was)) greatest = was;
  if (greatest == -(T)INFINITY) {
    *sum += NAME(weigh_hidden)(scores, n);
    return 1;
  }
  T again = was == -(T)INFINITY ? 0 : EXP(was - greatest);
  *sum = *sum * again + (T)NAME(row_exp)(scores, greatest, n);
  *top = greatest;
  return again;
}
static void NAME(drop)(const attention *t, const tile *x, int64_t r, int64_t n, T *weights,
                       float *kept) {
  draw_kept(t, row_of(t, x, r), x->j, n, kept);
  T factor = (T)t->factor;
  for (int64_t k = 0; k < n; k++) weights[k] *= factor * (T)kept[k];
}
static bool NAME(forward_tile)(const attention *t, const tile *x, const NAME(room) * r,
                               const T *query) {
  int64_t f = t->value_width;
  const T *key = NAME(rows)(t->key, x->b, x->group, x->j, x->n, r->key);
  const T *value = NAME(rows)(t->value, x->b, x->group, x->j, x->n, r->value);
  if (!NAME(scores)(t, x, r, query, key)) return false;
  for (int64_t i = 0; i < x->rows; i++) {
    T *row = r->scores + i * x->n, *weighted = r->weighted + i * f;
    int64_t n = seen(t, x, i);
    T again = NAME(weigh)(row, n, &r->top[i], &r->sum[i]);
    for (int64_t k = n; k < x->n; k++) row[k] = 0;
    if (t->chance > 0) NAME(drop)(t, x, i, n, row, r->kept);
    for (int64_t k = 0; x->j && again != 1 && k < f; k++) weighted[k] *= again;
  }
  return NAME(multiply)(r->weighted, x->rows, f, x->n, NAME(plain)(r->scores, x->n),
                        NAME(plain)(value, f), 1, x->j > 0);
}
// A query that sees nothing has a sum of 0, and gives 0.
static void NAME(forward_end)(const attention *t, const tile *x, const NAME(room) * r) {
  int64_t f = t->value_width;
  const px_operand *o = t->output;
  bool direct = o->dtype == DTYPE && o->strides[3] == 1;
  T *logsumexp = (T *)t->logsumexp + row_of(t, x, 0);
  for (int64_t i = 0; i < x->rows; i++) {
    T *weighted = r->weighted + i * f, sum = r->sum[i], part = sum == 0 ? 0 : 1 / sum;
    T *to = direct ? (T *)place(o, x->b, x->h, x->i + i) : weighted;
    logsumexp[i] = sum == 0 ? (T)INFINITY : r->top[i] + LOG(sum);
    for (int64_t k = 0; k < f; k++) to[k] = weighted[k] * part;
  }
  if (!direct) NAME(put_rows)(o, x->b, x->h, x->i, x->rows, r->weighted);
}
static bool NAME(forward_rows)(const attention *t, tile *x, const NAME(room) * r) {
  const T *query = NAME(rows)(t->query, x->b, x->h, x->i, x->rows, r->query);
  int64_t end = reach(t, x);
  for (int64_t i = 0; i < x->rows; i++) r->top[i] = -(T)INFINITY, r->sum[i] = 0;
  if (!end) memset(r->weighted, 0, (size_t)(x->rows * t->value_width) * sizeof(T));
  for (x->j = 0; x->j < end; x->j += t->keys) {
    x->n = px__min_count(t->keys, end - x->j);
    if (px__cpu_stopped()) return true;
    if (!NAME(forward_tile)(t, x, r, query)) return false;
  }
  NAME(forward_end)(t, x, r);
  return true;
}
static bool NAME(forward)(const attention *t, int64_t begin, int64_t end) {
  NAME(room) r;
  T *room = NAME(room_new)(&r, t, false);
  int64_t blocks = blocks_of(t);
  bool done = room;
  for (int64_t u = begin; done && u < end; u++) {
    tile x = {.b = u / blocks / t->heads, .h = u / blocks % t->heads, .i = u % blocks * QUERIES};
    x.group = x.h / (t->heads / t->groups), x.rows = px__min_count(QUERIES, t->length - x.i);
    done = NAME(forward_rows)(t, &x, &r);
  }
  free(room);
  return done;
}

// ---- backward

// Of a row: the scores become weights, as they were after dropout, and the gradients of weights
// become those of scores.
static void NAME(row_back)(const attention *t, T *scores, T *grads, const float *kept, int64_t n,
                           T logsumexp, T part) {
  T scale = (T)t->scale, factor = (T)t->factor;
  (void)NAME(row_exp)(scores, logsumexp, n);
  if (kept) {
    for (int64_t k = 0; k < n; k++) {
      T times = factor * (T)kept[k];
      grads[k] = scores[k] * (grads[k] * times - part) * scale;
      scores[k] *= times;
    }
    return;
  }
  for (int64_t k = 0; k < n; k++) grads[k] = scores[k] * (grads[k] - part) * scale;
}
static void NAME(rows_back)(const attention *t, const tile *x, const NAME(room) * r) {
  bool drops = t->chance > 0;
  for (int64_t i = 0; i < x->rows; i++) {
    T *row = r->scores + i * x->n, *grads = r->grad_scores + i * x->n;
    int64_t n = seen(t, x, i);
    if (drops) draw_kept(t, row_of(t, x, i), x->j, n, r->kept);
    NAME(row_back)(t, row, grads, drops ? r->kept : NULL, n, r->top[i], r->sum[i]);
    for (int64_t k = n; k < x->n; k++) row[k] = grads[k] = 0;
  }
}
static bool NAME(backward_tile)(const attention *t, const tile *x, const NAME(room) * r,
                                const T *query, const T *grad) {
  int64_t e = t->width, f = t->value_width, n = x->n, rows = x->rows;
  const T *key = NAME(rows)(t->key, x->b, x->group, x->j, n, r->key);
  const T *value = NAME(rows)(t->value, x->b, x->group, x->j, n, r->value);
  if (!NAME(scores)(t, x, r, query, key) ||
      !NAME(multiply)(r->grad_scores, rows, n, f, NAME(plain)(grad, f), NAME(turned)(value, f), 1,
                      false))
    return false;
  NAME(rows_back)(t, x, r);
  return NAME(multiply)(r->grad_value + x->j * f, n, f, rows, NAME(turned)(r->scores, n),
                        NAME(plain)(grad, f), 1, true) &&
         NAME(multiply)(r->grad_key + x->j * e, n, e, rows, NAME(turned)(r->grad_scores, n),
                        NAME(plain)(query, e), 1, true) &&
         NAME(multiply)(r->weighted, rows, e, n, NAME(plain)(r->grad_scores, n),
                        NAME(plain)(key, e), 1, x->j > 0);
}
// The gradient of a score is its weight times what the gradient of the weight is above the mean of
// the row, which is the gradient of the output times the output.
static bool NAME(backward_rows)(const attention *t, tile *x, const NAME(room) * r) {
  int64_t f = t->value_width, end = reach(t, x);
  const T *query = NAME(rows)(t->query, x->b, x->h, x->i, x->rows, r->query);
  const T *grad = NAME(rows)(t->grad, x->b, x->h, x->i, x->rows, r->grad);
  const T *output = NAME(rows)(t->output, x->b, x->h, x->i, x->rows, r->output);
  memcpy(r->top, (const T *)t->logsumexp + row_of(t, x, 0), (size_t)x->rows * sizeof(T));
  for (int64_t i = 0; i < x->rows; i++)
    r->sum[i] = (T)NAME(vec_dot)(grad + i * f, output + i * f, f);
  if (!end) memset(r->weighted, 0, (size_t)(x->rows * t->width) * sizeof(T));
  for (x->j = 0; x->j < end; x->j += t->keys) {
    x->n = px__min_count(t->keys, end - x->j);
    if (px__cpu_stopped()) return true;
    if (!NAME(backward_tile)(t, x, r, query, grad)) return false;
  }
  NAME(put_rows)(t->grad_query, x->b, x->h, x->i, x->rows, r->weighted);
  return true;
}
// A head of key and value, with the heads of query that it serves. Its gradients are summed in
// place, or in the room.
static bool NAME(backward_head)(const attention *t, int64_t b, int64_t group, NAME(room) * r) {
  int64_t shared = t->length ? t->heads / t->groups : 0, e = t->width, f = t->value_width;
  bool own = !sums_in_place(t, DTYPE);
  if (!own) r->grad_key = (T *)place(t->grad_key, b, group, 0);
  if (!own) r->grad_value = (T *)place(t->grad_value, b, group, 0);
  if (!px__cpu_clear(r->grad_key, (size_t)(t->places * e) * sizeof(T)) ||
      !px__cpu_clear(r->grad_value, (size_t)(t->places * f) * sizeof(T)))
    return true;
  for (int64_t k = 0; k < shared; k++)
    for (int64_t i = 0; i < t->length; i += QUERIES) {
      tile x = {.b = b, .h = group * shared + k, .group = group, .i = i};
      x.rows = px__min_count(QUERIES, t->length - i);
      if (!NAME(backward_rows)(t, &x, r)) return false;
    }
  if (own) NAME(put_rows)(t->grad_key, b, group, 0, t->places, r->grad_key);
  if (own) NAME(put_rows)(t->grad_value, b, group, 0, t->places, r->grad_value);
  return true;
}
static bool NAME(backward)(const attention *t, int64_t begin, int64_t end) {
  NAME(room) r;
  T *room = NAME(room_new)(&r, t, true);
  bool done = room;
  for (int64_t u = begin; done && u < end; u++)
    done = NAME(backward_head)(t, u / t->groups, u % t->groups, &r);
  free(room);
  return done;
}
