// SPDX-License-Identifier: Apache-2.0
// What tables and pictures of profiles share: the work of devices in the order in which it began.
#pragma once
#include <stdio.h>

#include "device/device_impl.h"
#include "phlox/profile.h"

// Behind the classes of a device's work.
enum { PX__SPAN_HOST = PX_PROFILE_OTHER + 1, PX__SPAN_PART, PX__SPAN_CLASSES };

// A unit of work of a device, or of the host a part, or an op or a node that is in none.
typedef struct px__span {
  int64_t start, end, number;  // number: of the event
  int64_t lane;                // the stream, or the thread
  int device;                  // -1: the host
  int class;                   // px_profile_work, or PX__SPAN_HOST
  bool critical;               // on its device's critical path
} px__span;
typedef struct px__spans {
  px__span *rows;  // by start, then by number
  int64_t count;
  int64_t start, end;  // of all
  int devices;         // as many as the highest index of those that were at work says
} px__spans;

// Frees with px__free(rows). Critical paths are marked.
px_status px__spans_of(px__spans *out, const px_profile *profile)
    __attribute__((warn_unused_result));
// The bytes of devices that were taken within the profile and not given back, after each change.
typedef struct px__level {
  int64_t time, bytes;
} px__level;
typedef struct px__levels {
  px__level *rows;  // by time
  int64_t count, most;
} px__levels;
px_status px__levels_of(px__levels *out, const px_profile *profile)
    __attribute__((warn_unused_result));
// ---- pictures
// Files of pictures; PX_IO. What is opened is closed, whatever was written.
px_status px__picture_open(FILE **out, const char *path) __attribute__((warn_unused_result));
px_status px__picture_close(FILE *file, const char *path) __attribute__((warn_unused_result));
// How a character of a text is written in XML; NULL: as it is.
static inline const char *px__xml_entity(char c) {
  return c == '<'                ? "&lt;"
         : c == '>'              ? "&gt;"
         : c == '&'              ? "&amp;"
         : (unsigned char)c < 32 ? " "
                                 : NULL;
}
