// SPDX-License-Identifier: Apache-2.0
// Shared by tables and pictures of profiles: device work sorted by start.
#pragma once
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
// Writes a picture to a file; PX_IO, or PX_NOMEM if the text lacks a part.
px_status px__picture_write(const px__text *text, const char *path)
    __attribute__((warn_unused_result));
// Adds a text to XML, as content or within quotes. Control characters without a place in XML become
// their symbols, as U+2401 for 1. Bytes that are not UTF-8 are shown as \xff.
void px__xml_add(px__text *to, const char *text);
