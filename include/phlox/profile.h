// SPDX-License-Identifier: Apache-2.0
// The profiler: which ops ran when and for how long, on the host and on devices, with their sizes
// and the memory that they took. One profile can be made at a time, of all threads.
//
// Example, a table of what a step did:
//
//   px_profile *profile = NULL;
//   PX_TRY(px_profile_start(&(px_profile_options){.host = true, .devices = true}));
//   PX_TRY(step());
//   PX_TRY(px_profile_stop(&profile));
//   px_profile_event e;
//   for (int64_t i = 0; px_profile_event_at(profile, i, &e); i++)
//     printf("%s %.1f us\n", e.name, (double)(e.end - e.start) / 1e3);
//   px_profile_free(profile);
#pragma once
#include "phlox/device.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef enum px_profile_kind {
  PX_PROFILE_OP,      // a call of an op
  PX_PROFILE_NODE,    // a node of a backward pass
  PX_PROFILE_PART,    // what a program gave a name
  PX_PROFILE_DEVICE,  // work on a stream: a kernel or a copy
  PX_PROFILE_MEMORY   // memory that was taken or given back outside of all others
} px_profile_kind;

// What is noted. host: ops, nodes and parts; devices: work on streams, by a pair of events around
// each unit; shapes: the sizes of arguments; memory: bytes; lines: the program's source line.
typedef struct px_profile_options {
  bool host, devices, shapes, memory, lines;
} px_profile_options;

typedef struct px_profile_event {
  px_profile_kind kind;
  const char *name;
  const char *shapes;  // of the arguments, "[[2, 3], [], [3]]"; "" if they are not noted
  const char *file;    // of the line that called; NULL if it is not known
  int line;
  int64_t parent;      // the number of the event that this one is part of; -1: none
  int64_t start, end;  // nanoseconds of the monotonic clock; of a device's work, by its events
  int thread;          // the system's number of the thread that called
  px_device device;    // where it ran; ops and parts are the CPU's
  int64_t stream;      // px_stream_id; of a device's work
  int64_t cpu_bytes, device_bytes;  // taken less given back, without what parts of it did
} px_profile_event;

typedef struct px_profile px_profile;

// Begins to note events. PX_RUNTIME if a profile is being made already.
PX_CALL px_profile_start(const px_profile_options *options);
// Ends it, waits for the work on devices that was noted, and gives the profile, to be freed with
// px_profile_free. PX_RUNTIME if there is none; the error of a device's work, and then there is no
// profile any more; PX_OUT_OF_MEMORY if an event could not be noted.
PX_CALL px_profile_stop(px_profile **out);
PX_API void px_profile_free(px_profile *profile);
// Whether events are being noted.
PX_API bool px_profile_running(void);
// Gives event i, in the order in which they began; false past the end. Its texts live as long as
// the profile, and `file` as long as the program's own.
PX_API bool px_profile_event_at(const px_profile *profile, int64_t i, px_profile_event *out);

// Begins a part of the program, on this thread, and ends it: later ones begin within it. Gives 0
// where nothing is noted, which ends nothing. What is not ended when the profile is, ends then.
PX_API int64_t px_profile_enter(px_profile_kind kind, const char *name);
PX_API void px_profile_leave(int64_t part);

#ifdef __cplusplus
}
#endif
