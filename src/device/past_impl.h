// SPDX-License-Identifier: Apache-2.0
// What a picture of a device's memory shows: who held how much in each of its columns. A column is
// some events, not some time: on a device the host runs ahead, and most of its memory is asked for
// at once.
#pragma once
#include "device/device_impl.h"

enum { PX__COLUMNS = 720 };

// The state in which most lived of those after a column's events.
typedef struct px__column {
  int64_t event;     // after which it was so
  int64_t total;     // bytes that lived
  int64_t reserved;  // the most in the column until then
} px__column;
typedef struct px__usage_history {
  px__column columns[PX__COLUMNS];
  int peak;         // the column in which most lived
  char **owners;    // by what they held at the peak, and then at most
  int owner_count;  // of all
  int count;        // of those that held something in a column; they come first
  int64_t **held;   // by owner, bytes in each column
  int64_t most;     // the highest figure of all columns
  void *memory[2];  // of `held`, and of what it points to
} px__usage_history;

// Frees with px__usage_history_drop, also after an error. There are events.
px_status px__usage_history_read(px__usage_history *out, const px_memory_past *past)
    __attribute__((warn_unused_result));
void px__usage_history_drop(px__usage_history *past);
