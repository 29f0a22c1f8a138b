// SPDX-License-Identifier: Apache-2.0
// Operands as plain arrays: copies in and out, line by line over the last dimensions.
#include "cpu/convert/dense.h"

#include "cpu/vector/load_store.h"
#include "cpu/convert/convert.h"
#include "cpu/convert/transpose.h"
#include "cpu/threads/threads.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

void *px__scratch_new(const px_launch *l, size_t bytes) {
  void *memory = malloc(bytes ? bytes : 1);
  if (!memory) px_kernel_fault(l, PX_FAULT_NOMEM, (int64_t)bytes, 0, 0);
  return memory;
}

static double load(int dtype, const char *p) {
  if (dtype < PX_DTYPE_COMPUTED) return px__cell_get(dtype, p, 0);
  return px_scalar_float(px_scalar_load((px_dtype)dtype, p));
}
static void store(int dtype, char *p, double x) {
  if (dtype < PX_DTYPE_COMPUTED)
    px__cell_put(dtype, p, 0, x);
  else
    px_scalar_store(px_float(x), (px_dtype)dtype, p);
}

// Copies a line of n elements; steps in elements. Pairs with int64 are converted through px_scalar,
// which holds all integers.
static void copy_line(int64_t n, int to_dtype, char *to, int64_t to_step, int from_dtype,
                      const char *from, int64_t from_step) {
  size_t t = px_dtype_size((px_dtype)to_dtype), f = px_dtype_size((px_dtype)from_dtype);
  bool computed = to_dtype < PX_DTYPE_COMPUTED && from_dtype < PX_DTYPE_COMPUTED;
  bool has_int64 = to_dtype == PX_INT64 || from_dtype == PX_INT64;
  if (to_dtype != from_dtype && computed && !has_int64) {
    px__cpu_convert(to, to_step * (int64_t)t, to_dtype, from, from_step * (int64_t)f, from_dtype,
                    n);
  } else if (to_dtype != from_dtype && has_int64) {
    for (int64_t i = 0; i < n; i++)
      px_scalar_store(px_scalar_load((px_dtype)from_dtype, from + i * from_step * (int64_t)f),
                      (px_dtype)to_dtype, to + i * to_step * (int64_t)t);
  } else if (to_dtype != from_dtype) {
    for (int64_t i = 0; i < n; i++)
      store(to_dtype, to + (size_t)(i * to_step) * t,
            load(from_dtype, from + i * from_step * (int64_t)f));
  } else if (to_step == 1 && from_step == 1) {
    memcpy(to, from, (size_t)n * t);
  } else if (t == 4 && to_step == 1 && from_step == 0) {
    uint32_t x = *(const uint32_t *)from;
    for (int64_t i = 0; i < n; i++) ((uint32_t *)to)[i] = x;
  } else if (t == 4) {
    for (int64_t i = 0; i < n; i++)
      ((uint32_t *)to)[i * to_step] = ((const uint32_t *)from)[i * from_step];
  } else {
    for (int64_t i = 0; i < n; i++)
      memcpy(to + i * to_step * (int64_t)t, from + i * from_step * (int64_t)t, t);
  }
}

typedef struct px__dense_copy {
  struct px__dense_copy *next;
  const px_operand *operand;
  int dtype;
  bool write;
  _Alignas(max_align_t) char at[];
} copy;

// Elements copied per thread, min.
enum { COPY_GRAIN = 32 * 1024 };
typedef struct line {
  char *to;
  const char *from;
  int to_dtype, from_dtype;
} line;
static void copy_part(void *ctx, int64_t begin, int64_t end) {
  const line *x = ctx;
  int64_t t = (int64_t)px_dtype_size((px_dtype)x->to_dtype);
  int64_t f = (int64_t)px_dtype_size((px_dtype)x->from_dtype);
  copy_line(end - begin, x->to_dtype, x->to + begin * t, 1, x->from_dtype, x->from + begin * f, 1);
}

// Copies in tiles if the layouts are transposed; returns false otherwise.
static bool transfer_transposed(copy *c, bool out) {
  const px_operand *o = c->operand;
  int64_t strides[PX_MAX_DIMS], step = 1;
  for (int i = o->ndim - 1; i >= 0; step *= o->sizes[i--]) strides[i] = step;
  px_operand in_copy = *o;
  in_copy.data = c->at, in_copy.strides = strides, in_copy.dtype = c->dtype,
  in_copy.immediate = false;
  return px__cpu_copy_across(out ? o : &in_copy, out ? &in_copy : o);
}

// Copy of an operand as lines: the dimensions from `outer` on form a line of `length` elements,
// `step` apart.
typedef struct strided_copy {
  copy *c;
  bool out;
  int outer;
  int64_t length, step;
} strided_copy;
static strided_copy strided_copy_of(copy *c, bool out) {
  const px_operand *o = c->operand;
  strided_copy s = {c, out, o->ndim, 1, 1};
  for (int i = o->ndim - 1; i >= 0; s.outer = i--) {
    if (o->sizes[i] == 1) continue;
    if (s.length == 1) s.step = o->strides[i];
    if (o->strides[i] != s.step * s.length) break;
    s.length *= o->sizes[i];
  }
  return s;
}
// Offset of a line's first element.
static int64_t line_at(const strided_copy *s, int64_t number) {
  const px_operand *o = s->c->operand;
  int64_t offset = 0;
  for (int i = s->outer - 1; i >= 0; number /= o->sizes[i--])
    offset += number % o->sizes[i] * o->strides[i];
  return offset;
}
static void copy_strided(void *ctx, int64_t begin, int64_t end) {
  const strided_copy *s = ctx;
  const px_operand *o = s->c->operand;
  int64_t item = (int64_t)px_dtype_size((px_dtype)o->dtype), n = 0;
  int64_t width = (int64_t)px_dtype_size((px_dtype)s->c->dtype), work = 0;
  for (int64_t e = begin; e < end && !px__work_stopped(&work, n); e += n) {
    int64_t at = e % s->length;
    n = s->length - at < end - e ? s->length - at : end - e;
    if (n > PX__STEP) n = PX__STEP;
    char *in_operand = (char *)o->data + (line_at(s, e / s->length) + at * s->step) * item;
    char *in_copy = s->c->at + e * width;
    if (s->out)
      copy_line(n, o->dtype, in_operand, s->step, s->c->dtype, in_copy, 1);
    else
      copy_line(n, s->c->dtype, in_copy, 1, o->dtype, in_operand, s->step);
  }
}

// Copies between the operand and its row-major scratch.
static void transfer(copy *c, bool out) {
  const px_operand *o = c->operand;
  int64_t n = px_operand_numel(o);
  if (n == 0) return;
  if (px__operand_row_major(o)) {
    line all = {out ? o->data : c->at, out ? c->at : o->data, out ? o->dtype : c->dtype,
                out ? c->dtype : o->dtype};
    px__cpu_parallel(n, COPY_GRAIN, copy_part, &all);
    return;
  }
  if (transfer_transposed(c, out)) return;
  strided_copy s = strided_copy_of(c, out);
  px__cpu_parallel(n, COPY_GRAIN, copy_strided, &s);
}

static __attribute__((noinline)) void *open_copy(px__dense *d, const px_operand *o, int dtype,
                                                 bool read, bool write) {
  size_t bytes = (size_t)px_operand_numel(o) * px_dtype_size((px_dtype)dtype);
  copy *c = malloc(sizeof *c + bytes);
  d->failed = !c;
  if (!c) {
    px_kernel_fault(d->launch, PX_FAULT_NOMEM, (int64_t)bytes, 0, 0);
    return NULL;
  }
  c->next = d->copies, c->operand = o, c->dtype = dtype, c->write = write;
  d->copies = c;
  if (read) transfer(c, false);
  return c->at;
}
static inline void *open_operand(px__dense *d, const px_operand *o, int dtype, bool read,
                                 bool write) {
  static max_align_t empty;  // memset and memcpy require a valid address even for 0 bytes
  if (d->failed || !o || !px__operand_present(o)) return NULL;
  if (o->dtype != dtype || !px__operand_row_major(o)) return open_copy(d, o, dtype, read, write);
  return o->data ? o->data : &empty;
}
void *px__dense_in(px__dense *d, const px_operand *o, int dtype) {
  return open_operand(d, o, dtype, true, false);
}
void *px__dense_out(px__dense *d, const px_operand *o, int dtype) {
  return open_operand(d, o, dtype, false, true);
}
void *px__dense_inout(px__dense *d, const px_operand *o, int dtype) {
  return open_operand(d, o, dtype, true, true);
}
void px__dense_close(px__dense *d) {
  for (copy *c = d->copies, *next; c; c = next) {
    next = c->next;
    if (c->write && !d->failed && !px__cpu_stopped()) transfer(c, true);
    free(c);
  }
}
