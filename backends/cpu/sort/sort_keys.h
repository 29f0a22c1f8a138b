// SPDX-License-Identifier: Apache-2.0
// Sort keys: elements as integers with the same order; sorting and selection of keys.
//
// NaN sorts after all numbers and is equal to itself; the two zeros are equal. Flipped keys sort in
// descending order. The order is stable and therefore unique.
#pragma once
#include "cpu/convert/convert.h"
#include "cpu/convert/lines.h"

void px__keys_load(int64_t *keys, const char *at, int64_t stride, int dtype, bool down, int64_t n);

// Counters for sorting: eight digits of 8 bits, or one wide digit.
enum { PX__KEYS_DIGIT = 8, PX__KEYS_WIDE_DIGIT = 11 };
typedef struct px__key_counts {
  int64_t of[8 << PX__KEYS_DIGIT];
} px__key_counts;

// Returns the indices of n keys in ascending order, stably. The result is in `scratch` or `keys`,
// both of size n and overwritten. NULL: out of memory or interrupted.
int64_t *px__keys_order(int64_t *keys, int64_t n, int64_t *scratch, px__key_counts *counts);

// Sorts the n elements of `from` in ascending order, stably, into `to`, which must not overlap.
// `scratch` holds 3 n keys. Returns false if interrupted.
bool px__values_sort(const px__line *to, const px__line *from, int64_t n, int64_t *scratch,
                     px__key_counts *counts);

// Selects the key with index k in sorted order; *below receives the number of smaller keys.
// `scratch` holds n keys. Returns false if interrupted.
bool px__keys_select(int64_t *out, const int64_t *keys, int64_t n, int64_t k, int64_t *scratch,
                     px__key_counts *counts, int64_t *below);

#if defined(__AVX2__)
// Sorts n numbers from `from` into `to`, which may be the same (sort_vectors.c). `scratch` holds
// `arrays` arrays of n numbers: at least one; three are faster. Returns false if interrupted.
bool px__sort_i32(const int32_t *from, int32_t *to, int32_t *scratch, int arrays, int64_t n);
bool px__sort_i64(const int64_t *from, int64_t *to, int64_t *scratch, int arrays, int64_t n);
// The same for the bits of floats; `to` must not overlap. Zeros of both signs come in any order;
// NaN payloads are lost.
bool px__sort_f32(const int32_t *from, int32_t *to, int32_t *scratch, int arrays, int64_t n);
bool px__sort_f64(const int64_t *from, int64_t *to, int64_t *scratch, int arrays, int64_t n);
#endif
