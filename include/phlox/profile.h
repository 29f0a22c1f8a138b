// SPDX-License-Identifier: Apache-2.0
// The profiler: times of ops on the host and on devices, with sizes and memory use. One profile can
// run at a time; it covers all threads.
//
// Example, a table of a step:
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
  PX_PROFILE_RANGE,   // a range named by the program
  PX_PROFILE_DEVICE,  // work on a stream: a kernel or a copy
  PX_PROFILE_MEMORY   // memory allocated or freed outside of all others
} px_profile_kind;

// Kinds of device work. COLLECTIVE is work of another library; a graph replay is one kernel.
typedef enum px_profile_work {
  PX_PROFILE_KERNEL,
  PX_PROFILE_COPY,
  PX_PROFILE_COLLECTIVE,
  PX_PROFILE_OTHER  // a host call, a wait
} px_profile_work;

// Recorded data. host: ops, nodes and ranges; devices: work on streams, timed by a pair of events
// around each unit; shapes: sizes of arguments; memory: bytes; lines: the program's source line;
// flops: floating-point operations, for ops with a `work` entry; stacks: the call stack.
typedef struct px_profile_options {
  bool host, devices, shapes, memory, lines, flops, stacks;
} px_profile_options;

typedef struct px_profile_event {
  px_profile_kind kind;
  const char *name;
  const char *shapes;  // of the arguments, "[[2, 3], [], [3]]"; "" if not recorded
  const char *file;    // source line of the call; NULL if unknown
  int line;
  int64_t parent;      // index of the enclosing event; -1: none
  int64_t start, end;  // nanoseconds of the monotonic clock, or virtual time; for device work
                       // measured by events
  int thread;          // system id of the calling thread
  px_device device;    // device of the work; the CPU for ops and ranges
  int64_t stream;      // px_stream_id; for device work
  px_profile_work work;
  int64_t cpu_bytes, device_bytes;  // allocated minus freed, without nested events
  int memory_device;                // device of device_bytes; the last one of several
  int64_t flops;                    // without nested events; 0 if unknown
  const px_traceback *stack;        // without an op; NULL if not recorded
} px_profile_event;

typedef struct px_profile px_profile;

// Starts recording. PX_RUNTIME if a profile is running.
PX_CALL px_profile_start(const px_profile_options *options);
// Stops recording, waits for the recorded device work, and returns the profile, to be freed with
// px_profile_free. PX_RUNTIME if none is running; PX_OUT_OF_MEMORY if an event could not be
// recorded; or the error of the device work. On failure the profile is discarded.
PX_CALL px_profile_stop(px_profile **out);
// Frees a profile. No-op for any other pointer, including a freed profile.
PX_API void px_profile_free(px_profile *profile);
// True if a profile is running.
PX_API bool px_profile_running(void);
// Returns event i, in order of their start; false past the end. Strings live as long as the
// profile, `file` as long as the program's own string.
PX_API bool px_profile_event_at(const px_profile *profile, int64_t i, px_profile_event *out);

// Summary of a device's time, in nanoseconds. kernels, copies, collectives: time with at least one
// running; overlap: copies or collectives concurrent with kernels. critical_...: the critical path
// back from the end, each unit preceded by the last one to end before its start; critical_host: its
// gaps, with the device idle.
typedef struct px_profile_summary {
  int64_t start, end;  // of the first and last unit of work; 0 if there is none
  int64_t busy, kernels, copies, collectives, overlap;
  int64_t critical_kernels, critical_copies, critical_collectives, critical_host;
  int64_t count;  // units of work
} px_profile_summary;
PX_CALL px_profile_summarize(px_profile_summary *out, const px_profile *profile, px_device device);
// Returns a table as text, to be freed with px_free: steps (ranges named ProfilerStep..., each
// until the last work issued in it), the summary of each device, and the peak of memory allocated
// within the profile.
PX_CALL px_profile_table(char **out, const px_profile *profile);
// Writes a picture of the profile as SVG: a lane for each thread and stream, the critical paths of
// devices, and memory over time. PX_IO if it cannot be written.
PX_CALL px_profile_draw(const px_profile *profile, const char *path);
// Returns events as text in the Trace Event Format (Perfetto, chrome://tracing, TensorBoard), to be
// freed with px_free. Events come from px_profile_event_at; for a subset, `parent` must be
// renumbered to an earlier index in the array. members: additional members of the JSON object
// ("\"run\": 7"), or NULL. PX_VALUE if a parent does not precede its event.
PX_CALL px_profile_trace(char **out, const px_profile_event *events, int64_t count,
                         const char *members);

// Begin and end a range of the program on this thread; ranges nest. Begin returns 0 if not
// recording; ending 0 does nothing. Open ranges end with the profile.
PX_API int64_t px_profile_enter(px_profile_kind kind, const char *name);
PX_API void px_profile_leave(int64_t part);

// Markers for NVIDIA's tools, by NVTX 3 (NVTX_INJECTION64_PATH names the tool's library) or else
// the NVTX 2 library, if found: nested ranges of this thread; instants; ranges that may end on
// another thread. push and pop return the number of enclosing ranges, or PX_NVTX_NO_TOOL without a
// tool. px_nvtx_emit makes ranges of all ops, optionally with argument sizes, until called with
// false.
enum { PX_NVTX_NO_TOOL = -2 };
PX_API int px_nvtx_push(const char *message);
PX_API int px_nvtx_pop(void);
PX_API void px_nvtx_mark(const char *message);
PX_API uint64_t px_nvtx_start(const char *message);
PX_API void px_nvtx_end(uint64_t range);
PX_API void px_nvtx_emit(bool ops, bool shapes);
// Start and stop collection by the GPU driver's tools; no-op on other devices. Return the driver's
// error.
PX_CALL px_tool_start(void);
PX_CALL px_tool_stop(void);

// Virtual time in nanoseconds, for simulated devices with PHLOX_SIM_MODE=schedule, computed from
// the work and machine parameters. Of the host: its launches and waits. Of a stream or device: when
// issued work is done; waits for it. All clocks start at 0 with the process. PX_RUNTIME if time is
// real.
PX_CALL px_time_host(int64_t *out);
PX_CALL px_time_stream(int64_t *out, px_stream *stream);
PX_CALL px_time_device(int64_t *out, px_device device);

#ifdef __cplusplus
}
#endif
