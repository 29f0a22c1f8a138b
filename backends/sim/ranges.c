// SPDX-License-Identifier: Apache-2.0
// Sorted address ranges: the owner of an address, and whether its memory is live.
#include "sim/sim.h"

#include <stdlib.h>
#include <string.h>

int px__sim_range_after(const px__sim_ranges *ranges, uintptr_t at) {
  int low = 0, high = ranges->count;
  while (low < high) {
    int middle = (low + high) / 2;
    const px__sim_range *row = &ranges->rows[middle];
    if (row->at + row->bytes <= at)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static bool range_holds(const px__sim_ranges *ranges, uintptr_t at, size_t bytes) {
  int i = px__sim_range_after(ranges, at);
  const px__sim_range *row = &ranges->rows[i];
  return i < ranges->count && row->at <= at && bytes <= row->at + row->bytes - at;
}

bool px__sim_range_insert(px__sim_ranges *ranges, int i, uintptr_t at, size_t bytes) {
  if (ranges->count == ranges->capacity) {
    int capacity = ranges->capacity ? 2 * ranges->capacity : 16;
    px__sim_range *rows = realloc(ranges->rows, (size_t)capacity * sizeof *rows);
    if (!rows) return false;
    ranges->rows = rows, ranges->capacity = capacity;
  }
  memmove(ranges->rows + i + 1, ranges->rows + i,
          (size_t)(ranges->count - i) * sizeof *ranges->rows);
  ranges->rows[i] = (px__sim_range){at, bytes};
  ranges->count++;
  return true;
}

size_t px__sim_range_remove(px__sim_ranges *ranges, uintptr_t at) {
  int i = px__sim_range_after(ranges, at);
  if (i == ranges->count || ranges->rows[i].at != at) return 0;
  size_t bytes = ranges->rows[i].bytes;
  ranges->count--;
  memmove(ranges->rows + i, ranges->rows + i + 1,
          (size_t)(ranges->count - i) * sizeof *ranges->rows);
  if (ranges->count == 0) {
    free(ranges->rows);
    *ranges = (px__sim_ranges){0};
  }
  return bytes;
}

bool px__sim_range_join(px__sim_ranges *ranges, uintptr_t at, size_t bytes) {
  int i = px__sim_range_after(ranges, at);
  px__sim_range *previous = i ? &ranges->rows[i - 1] : NULL;
  px__sim_range *next = i < ranges->count ? &ranges->rows[i] : NULL;
  bool adjacent = next && next->at == at + bytes;
  if (previous && previous->at + previous->bytes == at) {
    size_t more = adjacent ? px__sim_range_remove(ranges, at + bytes) : 0;
    previous->bytes += bytes + more;
    return true;
  }
  if (!adjacent) return px__sim_range_insert(ranges, i, at, bytes);
  next->at = at, next->bytes += bytes;
  return true;
}

bool px__sim_range_cut(px__sim_ranges *ranges, uintptr_t at, size_t bytes) {
  int i = px__sim_range_after(ranges, at);
  px__sim_range row = ranges->rows[i];
  size_t left = at - row.at, right = row.bytes - left - bytes;
  if (left && right && !px__sim_range_insert(ranges, i + 1, at + bytes, right)) return false;
  if (left)
    ranges->rows[i].bytes = left;
  else if (right)
    ranges->rows[i] = (px__sim_range){at + bytes, right};
  else
    px__sim_range_remove(ranges, at);
  return true;
}

int px__sim_owner(uintptr_t at) {
  for (int i = 0; i < px__sim.devices; i++)
    if (px__sim.device[i].open && at - px__sim.device[i].base < px__sim.device[i].span) return i;
  return -1;
}

bool px__sim_reach(int from, uintptr_t at, size_t bytes, intptr_t *delta) {
  int owner = px__sim_owner(at);
  *delta = owner < 0 ? 0 : px__sim.device[owner].delta;
  if (owner < 0) return range_holds(&px__sim.pinned, at, bytes);
  bool allowed = from < 0 || from == owner || (px__sim.device[from].enabled >> owner & 1);
  return allowed && range_holds(&px__sim.device[owner].live, at, bytes);
}
