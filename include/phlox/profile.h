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
#include "phlox/memory.h"
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

// Of a device's work. COLLECTIVE is work that another library was given; what a replayed graph does
// is one kernel.
typedef enum px_profile_work {
  PX_PROFILE_KERNEL,
  PX_PROFILE_COPY,
  PX_PROFILE_COLLECTIVE,
  PX_PROFILE_OTHER  // a call of the host, a wait
} px_profile_work;

// What is noted. host: ops, nodes and parts; devices: work on streams, by a pair of events around
// each unit; shapes: the sizes of arguments; memory: bytes; lines: the program's source line;
// flops: floating-point operations, of the ops whose entries tell them; stacks: all lines that led
// to the call.
typedef struct px_profile_options {
  bool host, devices, shapes, memory, lines, flops, stacks;
} px_profile_options;

typedef struct px_profile_event {
  px_profile_kind kind;
  const char *name;
  const char *shapes;  // of the arguments, "[[2, 3], [], [3]]"; "" if they are not noted
  const char *file;    // of the line that called; NULL if it is not known
  int line;
  int64_t parent;      // the number of the event that this one is part of; -1: none
  int64_t start, end;  // nanoseconds of the monotonic clock, or of virtual time; of a device's
                       // work, by its events
  int thread;          // the system's number of the thread that called
  px_device device;    // where it ran; ops and parts are the CPU's
  int64_t stream;      // px_stream_id; of a device's work
  px_profile_work work;
  int64_t cpu_bytes, device_bytes;  // taken less given back, without what parts of it did
  int memory_device;                // of device_bytes; the last, of several
  int64_t flops;                    // likewise; 0 where they are not told
  const px_traceback *stack;        // without an op; NULL if stacks are not noted
} px_profile_event;

typedef struct px_profile px_profile;

// Begins to note events. PX_RUNTIME if a profile is being made already.
PX_CALL px_profile_start(const px_profile_options *options);
// Ends it, waits for the work on devices that was noted, and gives the profile, to be freed with
// px_profile_free. PX_RUNTIME if there is none; the error of a device's work, and then there is no
// profile any more; PX_OUT_OF_MEMORY if an event could not be noted.
PX_CALL px_profile_stop(px_profile **out);
// Nothing happens if the memory is no profile, or none any more.
PX_API void px_profile_free(px_profile *profile);
// Whether events are being noted.
PX_API bool px_profile_running(void);
// Gives event i, in the order in which they began; false past the end. Its texts live as long as
// the profile, and `file` as long as the program's own.
PX_API bool px_profile_event_at(const px_profile *profile, int64_t i, px_profile_event *out);

// What a profile says of a device's time, in nanoseconds. kernels, copies and collectives: how long
// at least one of them was at work; overlap: how long copies or collectives were beside kernels.
// critical_...: the chain of work that leads to the end, each as the last that had ended when the
// next began; critical_host: the gaps in it, in which the device had nothing to do.
typedef struct px_profile_summary {
  int64_t start, end;  // of the first and the last work; 0 if there is none
  int64_t busy, kernels, copies, collectives, overlap;
  int64_t critical_kernels, critical_copies, critical_collectives, critical_host;
  int64_t count;  // units of work
} px_profile_summary;
PX_CALL px_profile_summarize(px_profile_summary *out, const px_profile *profile, px_device device);
// Gives a table as a text, which the caller frees with px_free: steps (parts named ProfilerStep...,
// each until the last work that it gave), the summary of each device, and the most memory that was
// taken within the profile.
PX_CALL px_profile_table(char **out, const px_profile *profile);
// Writes a picture of the profile, as SVG: a lane for each thread and each stream, the critical
// paths of devices, and the bytes that the profile saw taken over time. PX_IO if it cannot.
PX_CALL px_profile_draw(const px_profile *profile, const char *path);
// Gives the events (of a profile, by px_profile_event_at, or of a part of one; `parent` is then a
// place in the array before the event's own) in the Trace Event Format, which Perfetto,
// chrome://tracing and TensorBoard read, as a text that the caller frees with px_free. members:
// more members of its object, as JSON ("\"run\": 7"), or NULL. PX_VALUE if a parent is not before
// its part.
PX_CALL px_profile_trace(char **out, const px_profile_event *events, int64_t count,
                         const char *members);

// Begins a part of the program, on this thread, and ends it: later ones begin within it. Gives 0
// where nothing is noted, which ends nothing. What is not ended when the profile is, ends then.
PX_API int64_t px_profile_enter(px_profile_kind kind, const char *name);
PX_API void px_profile_leave(int64_t part);

// Marks for NVIDIA's tools, by NVTX 3 (NVTX_INJECTION64_PATH names a tool's library), or else by
// the library of NVTX 2, if it is found: ranges within each other, of this thread; a moment; ranges
// that may end on another thread. push and pop give how many ranges are open around it, or
// PX_NVTX_NOBODY where no tool listens. px_nvtx_emit makes ranges of all ops, perhaps with the
// sizes of their arguments, until it is called with false.
enum { PX_NVTX_NOBODY = -2 };
PX_API int px_nvtx_push(const char *message);
PX_API int px_nvtx_pop(void);
PX_API void px_nvtx_mark(const char *message);
PX_API uint64_t px_nvtx_start(const char *message);
PX_API void px_nvtx_end(uint64_t range);
PX_API void px_nvtx_emit(bool ops, bool shapes);
// Tells the driver of GPUs to begin, or end, to collect for its tools; on other devices nothing is
// done. The error of the driver.
PX_CALL px_tool_start(void);
PX_CALL px_tool_stop(void);

// Virtual time, in nanoseconds, of simulated devices with PHLOX_SIM_MODE=schedule, where it follows
// from the work and from figures of a machine: of the host, which takes it for what it gives to the
// devices and for its waits; of a stream or a device, for which they wait, when it has done what it
// was given. Each begins at 0 with the process. PX_RUNTIME where time is real.
PX_CALL px_time_host(int64_t *out);
PX_CALL px_time_stream(int64_t *out, px_stream *stream);
PX_CALL px_time_device(int64_t *out, px_device device);

#ifdef __cplusplus
}
#endif
