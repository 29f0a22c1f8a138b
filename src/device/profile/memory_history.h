// SPDX-License-Identifier: Apache-2.0
// The data of a picture of a device's memory: bytes by owner in each column. A column is a range of
// events, not of time: the host runs ahead of the device and requests most memory at once.
#pragma once
#include "device/core/device_impl.h"

enum { PX__COLUMNS = 720 };

// The state with the most live memory after one of the column's events.
typedef struct px__column {
  int64_t event;     // the last event before that state
  int64_t total;     // live bytes
  int64_t reserved;  // reserved bytes, maximum of the column so far
} px__column;
typedef struct px__usage_history {
  px__column columns[PX__COLUMNS];
  int peak;         // the column with the most live memory
  char **owners;    // sorted by bytes at the peak, then by their maximum
  int owner_count;  // all owners
  int count;        // owners with memory in a column; they come first
  int64_t **held;   // bytes by owner and column
  int64_t max;      // maximum of all columns
  void *memory[2];  // backs `held` and its rows
} px__usage_history;

// Requires an event. Free with px__usage_history_drop, also after an error.
px_status px__usage_history_read(px__usage_history *out, const px_memory_trace *past)
    __attribute__((warn_unused_result));
void px__usage_history_drop(px__usage_history *past);
