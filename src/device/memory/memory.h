// SPDX-License-Identifier: Apache-2.0
// Memory outside the caching allocator: of the CPU, page-locked, wrapped, and meta.
#pragma once
#include "device/order/order.h"

// ---- meta allocations
px_status px__meta_new(px_allocation **out, size_t bytes) __attribute__((warn_unused_result));
void px__meta_free(px_allocation *allocation);
// A copy from or to meta: a no-op, or an error if `to` is no meta allocation.
px_status px__meta_copy(const px_allocation *to) __attribute__((warn_unused_result));

// ---- CPU memory
px_status px__host_new(px_allocation **out, size_t bytes) __attribute__((warn_unused_result));
void px__host_free(px_allocation *allocation);

// ---- pages of page-locked memory; its lock held
// Reserves the address range. All of it is unmapped. False if it is reserved already, or fails.
bool px__pinned_range(uintptr_t *at, size_t *bytes);
// Returns the bytes of the unmapped pages touched by [low, high).
size_t px__pinned_pages_missing(uintptr_t low, uintptr_t high);
// Maps these pages. May have mapped some if it fails.
px_status px__pinned_pages_map(uintptr_t low, uintptr_t high) __attribute__((warn_unused_result));
// Unmaps pages inside [low, high), at most `limit` bytes rounded up to pages. Returns the bytes.
size_t px__pinned_pages_unmap(uintptr_t low, uintptr_t high, size_t limit);

// ---- page-locked memory
void px__pinned_free(px_allocation *allocation);
