// SPDX-License-Identifier: Apache-2.0
// Sorting of lines for one element type: T the element, LESS(a, b) its order (NaN last), NAME(x)
// the names; sort.c includes it for each type.
typedef struct NAME(item) {
  T value;
  int64_t index;
} NAME(item);

// A stable merge sort from runs of a few, sorted by insertion. The result is in `a`.
static void NAME(merge_sort)(NAME(item) * a, NAME(item) * room, int64_t n, bool down) {
  enum { RUN = 12 };
  for (int64_t s = 0; s < n; s += RUN)
    for (int64_t i = s + 1; i < s + RUN && i < n; i++) {
      NAME(item) x = a[i];
      int64_t j = i;
      for (; j > s && (down ? LESS(a[j - 1].value, x.value) : LESS(x.value, a[j - 1].value)); j--)
        a[j] = a[j - 1];
      a[j] = x;
    }
  NAME(item) *from = a, *to = room;
  for (int64_t width = RUN; width < n; width *= 2) {
    for (int64_t s = 0; s < n; s += 2 * width) {
      int64_t middle = s + width < n ? s + width : n, end = s + 2 * width < n ? s + 2 * width : n;
      int64_t i = s, j = middle, k = s;
      while (i < middle && j < end) {
        bool second =
            down ? LESS(from[i].value, from[j].value) : LESS(from[j].value, from[i].value);
        to[k++] = second ? from[j++] : from[i++];
      }
      while (i < middle) to[k++] = from[i++];
      while (j < end) to[k++] = from[j++];
    }
    NAME(item) *swap = from;
    from = to, to = swap;
  }
  if (from != a) memcpy(a, from, (size_t)n * sizeof *a);
}

// Line i: sorts it, and writes `take` elements from place `skip` on.
static void NAME(line)(const job *t, int64_t i, void *room) {
  NAME(item) *items = room;
  int64_t o = i / t->inner, r = i % t->inner;
  const T *x = (const T *)t->in + o * t->size * t->inner + r;
  int64_t to = o * t->take * t->inner + r;
  for (int64_t k = 0; k < t->size; k++) {
    items[k].value = x[k * t->inner];
    items[k].index = k;
  }
  NAME(merge_sort)(items, items + t->size, t->size, t->down);
  for (int64_t k = 0; k < t->take; k++) {
    ((T *)t->values)[to + k * t->inner] = items[t->skip + k].value;
    t->indices[to + k * t->inner] = items[t->skip + k].index;
  }
}
