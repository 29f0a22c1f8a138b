// SPDX-License-Identifier: Apache-2.0
// The tiles of attention.c for one element type: T, its DTYPE, NAME(x) a suffixed name.

// A thread's scratch. Rows of a tile are contiguous.
typedef struct NAME(scratch) {
  T *query, *key, *value, *scores;
  T *weighted;       // forward: weighted values; backward: the gradient of query
  T *top, *sum;      // forward: running max and sum per row; backward: logsumexp and grad . output
  T *line;           // a row of the mask
  float *keep_mask;  // dropout
  T *grad, *grad_scores, *output, *grad_key, *grad_value;
} NAME(scratch);

// Assigns the parts of the scratch at `at`, or only computes its size in elements if `at` is NULL.
static size_t NAME(assign_scratch)(NAME(scratch) * r, const attention *t, T *at, bool back) {
  int64_t e = t->width, f = t->value_width, keys = t->keys, q = QUERIES;
  bool separate_sums = back && !sums_in_place(t, DTYPE);
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
               {(T **)&r->keep_mask, keys},
               {&r->grad, back ? q * f : 0},
               {&r->output, back ? q * f : 0},
               {&r->grad_scores, back ? q * keys : 0},
               {&r->grad_key, separate_sums ? t->key_length * e : 0},
               {&r->grad_value, separate_sums ? t->key_length * f : 0}};
  size_t used = 0;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    if (at) *parts[i].part = at + used;
    used += (size_t)((parts[i].size + 15) / 16 * 16);
  }
  return used;
}
static T *NAME(scratch_new)(NAME(scratch) * r, const attention *t, bool back) {
  if (t->width > max_row || t->value_width > max_row) return NULL;
  T *at = px__aligned_new(NAME(assign_scratch)(r, t, NULL, back) * sizeof(T));
  if (at) NAME(assign_scratch)(r, t, at, back);
  return at;
}

// Contiguous rows of a head: in place, or copied to `scratch`.
static const T *NAME(rows)(const px_operand *o, int64_t b, int64_t h, int64_t i, int64_t n,
                           T *scratch) {
  int64_t width = o->sizes[3], item = (int64_t)px__cpu_item[o->dtype];
  if (o->dtype == DTYPE && o->strides[3] == 1 && o->strides[2] == width)
    return (const T *)row_address(o, b, h, i);
  for (int64_t r = 0; r < n && width; r++)
    px__cpu_convert(scratch + r * width, sizeof(T), DTYPE, row_address(o, b, h, i + r),
                    o->strides[3] * item, o->dtype, width);
  return scratch;
}
static void NAME(store_rows)(const px_operand *o, int64_t b, int64_t h, int64_t i, int64_t n,
                             const T *rows) {
  int64_t width = o->sizes[3], item = (int64_t)px__cpu_item[o->dtype];
  for (int64_t r = 0; r < n && width; r++)
    px__cpu_convert((char *)row_address(o, b, h, i + r), o->strides[3] * item, o->dtype,
                    rows + r * width, sizeof(T), DTYPE, width);
}

// c = scale * a b, or added to c. a is m x k, rows of c have n elements. Returns false if out of
// memory.
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
static NAME(matrix) NAME(row_major)(const T *at, int64_t width) {
  return (NAME(matrix)){at, width, 1};
}
static NAME(matrix) NAME(transposed)(const T *at, int64_t width) {
  return (NAME(matrix)){at, 1, width};
}

// Applies a boolean or additive mask to n scores of a row.
static void NAME(apply_mask)(const attention *t, const tile *x, int64_t r, int64_t n, T *scores,
                             T *line) {
  const px_operand *m = t->mask;
  int64_t item = (int64_t)px__cpu_item[m->dtype], step = m->strides[3];
  const char *from = row_address(m, x->b, x->h, x->i + r) + x->j * step * item;
  if (m->dtype == PX_BOOL) {
    for (int64_t k = 0; k < n; k++) scores[k] = from[k * step] ? scores[k] : -(T)INFINITY;
    return;
  }
  px__cpu_convert(line, sizeof(T), DTYPE, from, step * item, m->dtype, n);
  for (int64_t k = 0; k < n; k++) scores[k] += line[k];
}
// Computes the masked scores of a tile. Causally hidden keys at the end of a row are not masked.
static bool NAME(scores)(const attention *t, const tile *x, const NAME(scratch) * r, const T *query,
                         const T *key) {
  int64_t e = t->width;
  if (!NAME(multiply)(r->scores, x->rows, x->n, e, NAME(row_major)(query, e),
                      NAME(transposed)(key, e), t->scale, false))
    return false;
  for (int64_t i = 0; t->mask && i < x->rows; i++)
    NAME(apply_mask)(t, x, i, visible_keys_of_row(t, x, i), r->scores + i * x->n, r->line);
  return true;
}

// ---- forward

// Weights of a row whose scores are all -inf or NaN: 0 or NaN.
static T NAME(weigh_masked)(T *scores, int64_t n) {
  T sum = 0;
  for (int64_t k = 0; k < n; k++) sum += scores[k] = scores[k] == scores[k] ? 0 : scores[k];
  return sum;
}
// Converts a row's scores to weights relative to the running max, and returns the factor that
// rescales the previous weights.
static T NAME(update_weights)(T *scores, int64_t n, T *top, T *sum) {
  T max_score = n ? NAME(row_max)(scores, n) : -(T)INFINITY, was = *top;
  if (!(max_score > was)) max_score = was;
  if (max_score == -(T)INFINITY) {
    *sum += NAME(weigh_masked)(scores, n);
    return 1;
  }
  T rescale = was == -(T)INFINITY ? 0 : EXP(was - max_score);
  *sum = *sum * rescale + (T)NAME(row_exp)(scores, max_score, n);
  *top = max_score;
  return rescale;
}
static void NAME(apply_dropout)(const attention *t, const tile *x, int64_t r, int64_t n, T *weights,
                                float *keep_mask) {
  draw_dropout_mask(t, row_of(t, x, r), x->j, n, keep_mask);
  T keep_scale = (T)t->keep_scale;
  for (int64_t k = 0; k < n; k++) weights[k] *= keep_scale * (T)keep_mask[k];
}
static bool NAME(forward_tile)(const attention *t, const tile *x, const NAME(scratch) * r,
                               const T *query) {
  int64_t f = t->value_width;
  const T *key = NAME(rows)(t->key, x->b, x->group, x->j, x->n, r->key);
  const T *value = NAME(rows)(t->value, x->b, x->group, x->j, x->n, r->value);
  if (!NAME(scores)(t, x, r, query, key)) return false;
  for (int64_t i = 0; i < x->rows; i++) {
    T *row = r->scores + i * x->n, *weighted = r->weighted + i * f;
    int64_t n = visible_keys_of_row(t, x, i);
    T rescale = NAME(update_weights)(row, n, &r->top[i], &r->sum[i]);
    for (int64_t k = n; k < x->n; k++) row[k] = 0;
    if (t->chance > 0) NAME(apply_dropout)(t, x, i, n, row, r->keep_mask);
    for (int64_t k = 0; x->j && rescale != 1 && k < f; k++) weighted[k] *= rescale;
  }
  return NAME(multiply)(r->weighted, x->rows, f, x->n, NAME(row_major)(r->scores, x->n),
                        NAME(row_major)(value, f), 1, x->j > 0);
}
// A query without visible keys has sum 0 and output 0.
static void NAME(forward_end)(const attention *t, const tile *x, const NAME(scratch) * r) {
  int64_t f = t->value_width;
  const px_operand *o = t->output;
  bool direct = o->dtype == DTYPE && o->strides[3] == 1;
  T *logsumexp = (T *)t->logsumexp + row_of(t, x, 0);
  for (int64_t i = 0; i < x->rows; i++) {
    T *weighted = r->weighted + i * f, sum = r->sum[i], part = sum == 0 ? 0 : 1 / sum;
    T *to = direct ? (T *)row_address(o, x->b, x->h, x->i + i) : weighted;
    logsumexp[i] = sum == 0 ? (T)INFINITY : r->top[i] + LOG(sum);
    for (int64_t k = 0; k < f; k++) to[k] = weighted[k] * part;
  }
  if (!direct) NAME(store_rows)(o, x->b, x->h, x->i, x->rows, r->weighted);
}
static bool NAME(forward_rows)(const attention *t, tile *x, const NAME(scratch) * r) {
  const T *query = NAME(rows)(t->query, x->b, x->h, x->i, x->rows, r->query);
  int64_t end = visible_keys(t, x);
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
  NAME(scratch) r;
  T *scratch = NAME(scratch_new)(&r, t, false);
  int64_t blocks = blocks_of(t);
  bool done = scratch;
  for (int64_t u = begin; done && u < end; u++) {
    tile x = {.b = u / blocks / t->heads, .h = u / blocks % t->heads, .i = u % blocks * QUERIES};
    x.group = x.h / (t->heads / t->groups), x.rows = px__min_count(QUERIES, t->length - x.i);
    done = NAME(forward_rows)(t, &x, &r);
  }
  free(scratch);
  return done;
}

// ---- backward

// One row: converts scores to weights after dropout, and gradients of weights to gradients of
// scores.
static void NAME(row_back)(const attention *t, T *scores, T *grads, const float *keep_mask,
                           int64_t n, T logsumexp, T part) {
  T scale = (T)t->scale, keep_scale = (T)t->keep_scale;
  (void)NAME(row_exp)(scores, logsumexp, n);
  if (keep_mask) {
    for (int64_t k = 0; k < n; k++) {
      T times = keep_scale * (T)keep_mask[k];
      grads[k] = scores[k] * (grads[k] * times - part) * scale;
      scores[k] *= times;
    }
    return;
  }
  for (int64_t k = 0; k < n; k++) grads[k] = scores[k] * (grads[k] - part) * scale;
}
static void NAME(rows_back)(const attention *t, const tile *x, const NAME(scratch) * r) {
  bool drops = t->chance > 0;
  for (int64_t i = 0; i < x->rows; i++) {
    T *row = r->scores + i * x->n, *grads = r->grad_scores + i * x->n;
    int64_t n = visible_keys_of_row(t, x, i);
    if (drops) draw_dropout_mask(t, row_of(t, x, i), x->j, n, r->keep_mask);
    NAME(row_back)(t, row, grads, drops ? r->keep_mask : NULL, n, r->top[i], r->sum[i]);
    for (int64_t k = n; k < x->n; k++) row[k] = grads[k] = 0;
  }
}
static bool NAME(backward_tile)(const attention *t, const tile *x, const NAME(scratch) * r,
                                const T *query, const T *grad) {
  int64_t e = t->width, f = t->value_width, n = x->n, rows = x->rows;
  const T *key = NAME(rows)(t->key, x->b, x->group, x->j, n, r->key);
  const T *value = NAME(rows)(t->value, x->b, x->group, x->j, n, r->value);
  if (!NAME(scores)(t, x, r, query, key) ||
      !NAME(multiply)(r->grad_scores, rows, n, f, NAME(row_major)(grad, f),
                      NAME(transposed)(value, f), 1, false))
    return false;
  NAME(rows_back)(t, x, r);
  return NAME(multiply)(r->grad_value + x->j * f, n, f, rows, NAME(transposed)(r->scores, n),
                        NAME(row_major)(grad, f), 1, true) &&
         NAME(multiply)(r->grad_key + x->j * e, n, e, rows, NAME(transposed)(r->grad_scores, n),
                        NAME(row_major)(query, e), 1, true) &&
         NAME(multiply)(r->weighted, rows, e, n, NAME(row_major)(r->grad_scores, n),
                        NAME(row_major)(key, e), 1, x->j > 0);
}
// The gradient of a score is its weight times the difference of the weight's gradient and the row's
// mean gradient, which equals grad . output.
static bool NAME(backward_rows)(const attention *t, tile *x, const NAME(scratch) * r) {
  int64_t f = t->value_width, end = visible_keys(t, x);
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
  NAME(store_rows)(t->grad_query, x->b, x->h, x->i, x->rows, r->weighted);
  return true;
}
// A head of key and value with the query heads that share it. Its gradients are summed in place, or
// in scratch.
static bool NAME(backward_head)(const attention *t, int64_t b, int64_t group, NAME(scratch) * r) {
  int64_t shared = t->length ? t->heads / t->groups : 0, e = t->width, f = t->value_width;
  bool separate_sums = !sums_in_place(t, DTYPE);
  if (!separate_sums) r->grad_key = (T *)row_address(t->grad_key, b, group, 0);
  if (!separate_sums) r->grad_value = (T *)row_address(t->grad_value, b, group, 0);
  if (!px__cpu_clear(r->grad_key, (size_t)(t->key_length * e) * sizeof(T)) ||
      !px__cpu_clear(r->grad_value, (size_t)(t->key_length * f) * sizeof(T)))
    return true;
  for (int64_t k = 0; k < shared; k++)
    for (int64_t i = 0; i < t->length; i += QUERIES) {
      tile x = {.b = b, .h = group * shared + k, .group = group, .i = i};
      x.rows = px__min_count(QUERIES, t->length - i);
      if (!NAME(backward_rows)(t, &x, r)) return false;
    }
  if (separate_sums) NAME(store_rows)(t->grad_key, b, group, 0, t->key_length, r->grad_key);
  if (separate_sums) NAME(store_rows)(t->grad_value, b, group, 0, t->key_length, r->grad_value);
  return true;
}
static bool NAME(backward)(const attention *t, int64_t begin, int64_t end) {
  NAME(scratch) r;
  T *scratch = NAME(scratch_new)(&r, t, true);
  bool done = scratch;
  for (int64_t u = begin; done && u < end; u++)
    done = NAME(backward_head)(t, u / t->groups, u % t->groups, &r);
  free(scratch);
  return done;
}
