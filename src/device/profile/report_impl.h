// SPDX-License-Identifier: Apache-2.0
// Shared by tables and pictures of profiles: device work sorted by start.
#pragma once
#include <stdio.h>

#include "device/core/device_impl.h"
#include "phlox/profile.h"

// Continues the classes of device work, px_profile_work.
enum { PX__SPAN_HOST = PX_PROFILE_OTHER + 1, PX__SPAN_PART, PX__SPAN_CLASSES };

// A unit of device work; or on the host a part, or an op or node without an enclosing one.
typedef struct px__span {
  int64_t start, end, number;  // number: the event
  int64_t lane;                // the stream or thread
  int device;                  // -1: the host
  int class;                   // px_profile_work, PX__SPAN_HOST or PX__SPAN_PART
  bool critical;               // on its device's critical path
} px__span;
typedef struct px__spans {
  px__span *rows;  // by start, then by number
  int64_t count;
  int64_t start, end;  // of all spans
  int devices;         // highest index of a device with work, plus 1
} px__spans;

// Marks the critical paths. Free with px__free(rows).
px_status px__spans_of(px__spans *out, const px_profile *profile)
    __attribute__((warn_unused_result));
// Device memory allocated within the profile and not freed, after each change.
typedef struct px__level {
  int64_t time, bytes;
} px__level;
typedef struct px__levels {
  px__level *rows;  // by time
  int64_t count, peak;
} px__levels;
px_status px__levels_of(px__levels *out, const px_profile *profile)
    __attribute__((warn_unused_result));
// ---- pictures
// Files of pictures; PX_IO. Close every opened file, also after failed writes.
px_status px__picture_open(FILE **out, const char *path) __attribute__((warn_unused_result));
px_status px__picture_close(FILE *file, const char *path) __attribute__((warn_unused_result));
// Returns the XML entity of a character; NULL if it needs none.
static inline const char *px__xml_entity(char c) {
  return c == '<'                ? "&lt;"
         : c == '>'              ? "&gt;"
         : c == '&'              ? "&amp;"
         : (unsigned char)c < 32 ? " "
                                 : NULL;
}
