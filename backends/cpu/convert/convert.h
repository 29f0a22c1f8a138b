// SPDX-License-Identifier: Apache-2.0
// Conversion of elements between any two dtypes; strides are in bytes.
#pragma once
#include "phlox/backend.h"

void px__cpu_convert(void *to, int64_t to_stride, int to_dtype, const void *from,
                     int64_t from_stride, int from_dtype, int64_t n);
// The same as devices convert: floats out of the range of an integer dtype become the nearest
// number of a wider type, of which the low bits are kept.
void px__device_convert(void *to, int64_t to_stride, int to_dtype, const void *from,
                        int64_t from_stride, int from_dtype, int64_t n);
// Copies rows of `bytes` bytes (at least 1), spaced ts and fs bytes apart. They must not overlap.
void px__cpu_move_rows(void *to, int64_t ts, const void *from, int64_t fs, int64_t rows,
                       int64_t bytes);
// px__cpu_convert if a dtype is storage-only and the dtypes differ (convert_storage_only.c).
// `computed` is px__cpu_convert.
typedef void px__cpu_converter(void *to, int64_t to_stride, int to_dtype, const void *from,
                               int64_t from_stride, int from_dtype, int64_t n);
void px__cpu_convert_stored(px__cpu_converter *computed, void *to, int64_t to_stride, int to_dtype,
                            const void *from, int64_t from_stride, int from_dtype, int64_t n);
// Conversion loops by pairs of compute dtypes; NULL for equal dtypes other than bool.
typedef void px__cpu_pair(char *to, int64_t ts, const char *from, int64_t fs, int64_t n);
extern px__cpu_pair *const px__cpu_pairs[PX_DTYPE_COMPUTED][PX_DTYPE_COMPUTED];
// Bytes per element; a table, to avoid a call in hot code.
extern const uint8_t px__cpu_item[PX_DTYPE_COUNT];
