// SPDX-License-Identifier: Apache-2.0
// Elements as integers that compare as they are sorted, and the sorting and choosing of those.
//
// NaN is the greatest number and equal to itself, the two zeros are equal; flipped, the keys run
// the other way. An order is stable, so there is one only.
#pragma once
#include "cpu/convert/convert.h"
#include "cpu/convert/lines.h"

void px__keys_load(int64_t *keys, const char *at, int64_t stride, int dtype, bool down, int64_t n);

// What sorting needs besides its arrays: counters for eight digits of 8 bits, or for a wide one.
enum { PX__KEYS_DIGIT = 8, PX__KEYS_WIDE_DIGIT = 11 };
typedef struct px__key_counts {
  int64_t of[8 << PX__KEYS_DIGIT];
} px__key_counts;

// The places of n keys in ascending order of the keys, first ones first among equals; in `room` or
// in `keys`, both of n, which are overwritten. NULL: no memory, or the call has been ended.
int64_t *px__keys_order(int64_t *keys, int64_t n, int64_t *room, px__key_counts *counts);

// The n elements of `from` in ascending order, first ones first among equals, to `to`, which has no
// memory in common with it. `room` is for 3 n keys. False: the call has been ended.
bool px__values_sort(const px__line *to, const px__line *from, int64_t n, int64_t *room,
                     px__key_counts *counts);

// The key with k smaller ones before it in order; *below: how many are less than it. `room` is for
// n keys. False: the call has been ended.
bool px__keys_select(int64_t *out, const int64_t *keys, int64_t n, int64_t k, int64_t *room,
                     px__key_counts *counts, int64_t *below);

#if defined(__AVX2__)
// Sorts the n numbers at `from` to `to`, which may be the same (sort_vectors.c). There are `rooms`
// of n numbers at `room`: one at least, and three are faster. False: the call has been ended.
bool px__sort_i32(const int32_t *from, int32_t *to, int32_t *room, int rooms, int64_t n);
bool px__sort_i64(const int64_t *from, int64_t *to, int64_t *room, int rooms, int64_t n);
// The same of the bits of floats, to other memory; zeros of both signs come in any order, and of
// NaN is left that it is one.
bool px__sort_f32(const int32_t *from, int32_t *to, int32_t *room, int rooms, int64_t n);
bool px__sort_f64(const int64_t *from, int64_t *to, int64_t *room, int rooms, int64_t n);
#endif
