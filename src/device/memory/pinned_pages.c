// SPDX-License-Identifier: Apache-2.0
// Pages of page-locked memory: a range of addresses reserved once, and the map of its mapped pages.
// The lock of page-locked memory is held throughout.
#include "device/cache/cache.h"
#include "device/memory/memory.h"

#include <unistd.h>

enum {
  HOST = -1,        // the backend's index of the host
  RANGE_FACTOR = 2  // addresses reserved, in multiples of the host's memory
};

static struct {
  uintptr_t at;
  size_t count;    // pages
  size_t highest;  // no page from here on is mapped
  bool *mapped;
} range;

bool px__pinned_range(uintptr_t *at, size_t *bytes) {
  void *data = NULL;
  long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  const px_backend *b = px__rt.backend;
  if (range.at || !PX__BACKEND_HAS(b, pages_map) || pages < 0) return false;
  size_t size = b->page_size(HOST);
  if (!size || PX__PAGE % size) return false;
  range.count = RANGE_FACTOR * (size_t)pages / (size_t)(PX__PAGE / page);
  *bytes = range.count * PX__PAGE;
  px_status status = px__alloc((void **)&range.mapped, range.count);
  if (status == PX_OK) status = b->range_new(HOST, *bytes, &data);
  if (status != PX_OK) {
    px__free(range.mapped);
    px_error_clear();
    return false;
  }
  *at = range.at = (uintptr_t)data;
  return true;
}

static size_t page_of(uintptr_t address) { return (address - range.at) / PX__PAGE; }
static void *address_of(size_t page) { return (void *)(range.at + page * PX__PAGE); }

// Returns the first page in [first, end) with this state; `end` if there is none.
static size_t find_page(size_t first, size_t end, bool mapped) {
  while (first < end && range.mapped[first] != mapped) first++;
  return first;
}

size_t px__pinned_pages_missing(uintptr_t low, uintptr_t high) {
  size_t missing = 0;
  for (size_t i = page_of(low); i < page_of(high - 1) + 1; i++) missing += !range.mapped[i];
  return missing * PX__PAGE;
}

px_status px__pinned_pages_map(uintptr_t low, uintptr_t high) {
  size_t end = page_of(high - 1) + 1;
  for (size_t i = find_page(page_of(low), end, false), until; i < end;
       i = find_page(until, end, false)) {
    until = find_page(i, end, true);
    PX_TRY(px__rt.backend->pages_map(HOST, address_of(i), (until - i) * PX__PAGE));
    memset(range.mapped + i, true, until - i);
    if (until > range.highest) range.highest = until;
  }
  return PX_OK;
}

size_t px__pinned_pages_unmap(uintptr_t low, uintptr_t high, size_t limit) {
  size_t first = page_of(px__whole_pages(low)), end = page_of(high), unmapped = 0;
  if (end > range.highest) end = range.highest;
  while (end > first && unmapped < limit) {
    if (range.mapped[--end]) {
      px__rt.backend->pages_unmap(HOST, address_of(end), PX__PAGE);
      range.mapped[end] = false;
      unmapped += PX__PAGE;
    }
  }
  return unmapped;
}
