// SPDX-License-Identifier: Apache-2.0
// The device layer, for the layers above it: blocks of memory, launches, copies.
//
// All device work is issued through px__launch and px__copy_bytes. They advance the stream's
// timeline, mark uses, check for races, inject faults and give errors their call site. Nothing else
// calls a backend's work functions.
#pragma once
#include "base/base_impl.h"
#include "phlox/backend.h"
#include "phlox/event.h"
#include "phlox/memory.h"
#include "phlox/profile.h"

// The devices that are open, by index. There are none in a forked child of a process that used
// devices. Atomic.
enum { PX__DEVICES = 64 };
typedef struct px__device px__device;
extern PX__HIDDEN px__device *px__devices_open[PX__DEVICES];
// NULL: it is not open, or there is none of that number.
static inline px__device *px__device_found(int index) {
  return (unsigned)index < PX__DEVICES ? __atomic_load_n(&px__devices_open[index], __ATOMIC_ACQUIRE)
                                       : NULL;
}

// A piece of memory, owned by one storage. Freed once, by px__allocation_free; its uses then say
// when the memory may be reused.
typedef struct px_allocation {
  void *data;            // address on `device`; 64-byte aligned (CPU), 512-byte aligned (devices)
  size_t bytes;          // asked for
  px_device device;      // index always given for cuda, -1 for cpu
  bool pinned, foreign;  // page-locked; address was handed out or memory is somebody else's
  bool irregular;        // CPU: not at a multiple of 8; or cut (px__allocation_mark_shrunk)
  bool pending;          // CPU: a copy into it may be running (atomic); px__allocation_wait clears.
                         // True for good if `odd`, so that launches look at it
} px_allocation;         // the device layer's own fields follow (px__allocation, state.h)

// Allocates a allocation on a device (index resolved) for the current stream, from the device's
// cache (px__allocation_new, below). A allocation of 0 bytes has data NULL. any: of any kind of
// device, and while a profile notes it.
px_status px__allocation_new_any(px_allocation **out, size_t bytes, px_device device)
    __attribute__((warn_unused_result));
px_status px__cache_new(px_allocation **out, size_t bytes, px__device *d)
    __attribute__((warn_unused_result));
px_status px__allocation_new_pinned(px_allocation **out, size_t bytes)
    __attribute__((warn_unused_result));
px_status px__allocation_wrap(px_allocation **out, void *data, size_t bytes, px_device device,
                              void (*release)(void *), void *context)
    __attribute__((warn_unused_result));
void px__allocation_free(px_allocation *allocation);
// A new allocation is shorter than what tensors over its storage say: launches and reads look at it
// from now on, and fail if they reach past its end. uncut: such a allocation has gone.
void px__allocation_mark_shrunk(px_allocation *allocation);
void px__allocation_unmark_shrunk(void);
extern PX__HIDDEN int px__shrunk_count;  // atomic: how many there are
px_status px__allocation_fail_bounds(const px_allocation *allocation, size_t end)
    __attribute__((warn_unused_result));
static inline px_status px__allocation_check_bounds(const px_allocation *allocation, size_t end) {
  return PX_LIKELY(end <= allocation->bytes || !allocation->irregular)
             ? PX_OK
             : px__allocation_fail_bounds(allocation, end);
}
// Gives back wrapped blocks that were freed while they were in use, if they are not any more. No
// lock may be held.
void px__wrapped_sweep(void);
// record_stream: all work issued to the stream so far counts as a use. hand_out: the address leaves
// the library, so that any stream may use it until the allocation is freed.
px_status px__allocation_record_stream(px_allocation *allocation, px_stream *stream)
    __attribute__((warn_unused_result));
void px__allocation_expose(px_allocation *allocation);
// Records an event after all work so far that uses a device's allocation, on any stream, and after
// the calling thread's current stream.
px_status px__allocation_record(px_event *event, px_allocation *allocation)
    __attribute__((warn_unused_result));
// What any stream of the device is given from now on comes after the event.
px_status px__device_wait_event(int device, px_event *event) __attribute__((warn_unused_result));
// Between processes (ipc.c). share gives the handle of the allocation that a device's allocation
// lies in, and its place there; open makes a allocation in an allocation of another process.
// release(context) is called when the last work on it is done, but not if this call fails. of_uuid
// finds a device.
typedef struct px__foreign {
  px_ipc_handle handle;
  size_t offset, bytes;
  void (*release)(void *);
  void *context;
} px__foreign;
px_status px__device_of_uuid(int *out, const unsigned char uuid[16])
    __attribute__((warn_unused_result));
px_status px__allocation_share(px_ipc_handle *out, size_t *offset, px_allocation *allocation)
    __attribute__((warn_unused_result));
px_status px__allocation_open(px_allocation **out, int device, const px__foreign *foreign)
    __attribute__((warn_unused_result));
// files.c. A memory file, which keeps its size; its part of a handle; a descriptor of such a file,
// which the caller closes. PX_VALUE, PX_RUNTIME.
px_status px__file_new(int *out, size_t bytes) __attribute__((warn_unused_result));
px_status px__file_share(px_ipc_handle *out, int fd) __attribute__((warn_unused_result));
px_status px__file_open(int *out, const px_ipc_handle *handle) __attribute__((warn_unused_result));
// Waits for copies that use a CPU allocation. To be called before the host reads it, or also writes
// it; `op` is what does, for a report of a race.
px_status px__allocation_wait(px_allocation *allocation, const char *op, bool write)
    __attribute__((warn_unused_result));

// One access of a launch: bytes [begin, end) of a allocation. A gap narrows it: of every `pitch`
// bytes from `begin` on, only the first `width` are touched. Gaps are for the race checker, and
// needed only where px__race_on is not 0.
enum { PX__GAPS = 3 };
typedef struct px__gap {
  uint32_t pitch, width;
} px__gap;
typedef struct px_access {
  px_allocation *allocation;
  size_t begin, end;
  bool write;
  px__gap gaps[PX__GAPS];  // up to the first of pitch 0
} px_access;
// Waits for copies that conflict with an access of the host, which `op` makes, to CPU memory: that
// is a race unless the program has waited.
px_status px__allocation_host_access(const char *op, const px_access *access)
    __attribute__((warn_unused_result));
extern PX__HIDDEN int px__race_on;  // atomic; -1: not read from the environment yet
// The device type's kernel of that name, or NULL. Slow: callers keep the result.
px_kernel px__kernel_find(px_device_type type, const char *name);
// The kernel of every op on meta: it does nothing.
px_status px__meta_launch(const px_launch *launch) __attribute__((warn_unused_result));
// A kernel that is launched by a name, not as that of an op; what was found is kept.
typedef struct px__named_kernel {
  const char *name;
  bool moves;                        // elements as they are, of any dtype
  px_kernel found[PX_DEVICE_TYPES];  // atomic
} px__named_kernel;
px_kernel px__named_kernel_find(px__named_kernel *kernel, px_device_type type);
static inline px_kernel px__named_kernel_on(px__named_kernel *kernel, px_device_type type) {
  px_kernel k = __atomic_load_n(&kernel->found[type], __ATOMIC_RELAXED);
  return PX_LIKELY(k != NULL) ? k : px__named_kernel_find(kernel, type);
}
// Whether the device type's backend can run host functions as kernels.
bool px__runs_host_kernels(px_device_type type);
// Finds LAPACK for the kernels that call it (backends/cpu/lapack.h). PX_RUNTIME where there is
// none; the next call looks again.
px_status px__lapack_ready(void) __attribute__((warn_unused_result));
// The same of FFTW, for those of backends/cpu/fftw.h.
px_status px__fftw_ready(void) __attribute__((warn_unused_result));
// px_backend.recurrent_plan, of a device that has been opened; false where the backend lacks it.
bool px__recurrent_plan(px_device device, const px_recurrent_net *net, px_recurrent_room *room,
                        int64_t *places);
// px_backend.attention_refusal, of a device that has been opened; NULL of devices that run kernels
// of the CPU.
const char *px__attention_refusal(px_device device, px_attention_call *call);
// Fails if the environment has a bad value that concerns kernels of the type. Checked at first use.
px_status px__kernels_ready(px_device_type type) __attribute__((warn_unused_result));
// Issues a launch on the current stream of the device (index resolved), and fills in its id, fault,
// stream and device. The current streams of other devices that have operands come before it, and
// wait for it. On the CPU the kernel has run on return and its fault is raised; on a device
// faults are raised by the next call that synchronizes.
px_status px__launch(px_device device, px_launch *launch, const px_access *accesses,
                     int access_count) __attribute__((warn_unused_result));
enum { PX__LAUNCH_BATCH_LIMIT = 48 };  // the most that are issued at a time
// px_together_begin and px_together_end. Between them, px__launch_batch_parts says that what is
// written to the allocation never overlaps and is not read.
void px__launch_batch_begin(void);
px_status px__launch_batch_parts(const px_allocation *allocation)
    __attribute__((warn_unused_result));
px_status px__launch_batch_end(void) __attribute__((warn_unused_result));
bool px__launch_batch_active(void);
// Outermost op being called by this thread; NULL outside a call. Used to name the op in errors; the
// layer of ops sets it.
extern _Thread_local PX__HIDDEN_THREAD const char *px__caller;

// profile.c: whether events are noted. Begins an event of an op, whose name is a constant, with the
// sizes of its arguments as a text; px_profile_leave ends it. Memory that was taken (or, negative,
// given back) counts for the event that this thread is in, and so do floating-point operations.
enum {
  PX__WATCH_PROFILE = 1,
  PX__WATCH_CALLERS = 2,
  PX__WATCH_FLOPS = 4,    // a profile counts operations
  PX__WATCH_VIRTUAL = 8,  // the time of devices follows from the operations
  PX__WATCH_NVTX = 16,    // ops are ranges for NVIDIA's tools
  PX__WATCH_NVTX_SHAPES = 32,
  PX__WATCH_SHAPES = 64,    // a profile notes sizes of arguments
  PX__WATCH_LINES = 128,    // ... and lines
  PX__WATCH_COUNTED = 256,  // somebody is told of operations (px_op_tell_operations)
  PX__WATCH_STACKS = 512    // a profile notes all lines
};
extern PX__HIDDEN int px__watching;  // atomic: for which of these calls of ops are watched
static inline bool px__call_watched(int what) {
  return PX_UNLIKELY((__atomic_load_n(&px__watching, __ATOMIC_RELAXED) & what) != 0);
}
static inline bool px__profile_on(void) { return px__call_watched(PX__WATCH_PROFILE); }

__attribute__((warn_unused_result)) static inline px_status px__allocation_new(px_allocation **out,
                                                                               size_t bytes,
                                                                               px_device device) {
  px__device *d = device.type == PX_CUDA ? px__device_found(device.index) : NULL;
  if (d && !px__profile_on()) return px__cache_new(out, bytes, d);
  return px__allocation_new_any(out, bytes, device);
}
static inline void px__watch(int what, bool on) {
  if (on)
    __atomic_fetch_or(&px__watching, what, __ATOMIC_RELAXED);
  else
    __atomic_fetch_and(&px__watching, ~what, __ATOMIC_RELAXED);
}
int64_t px__profile_enter_op(const char *name, bool inplace, const char *shapes);
void px__profile_memory(px_device device, int64_t bytes);
void px__profile_flops(int64_t flops);
// The line that runs on this thread. If the thread's latest work wrote the allocation first, that
// has found the line already; the caller knows that this was in the call that made the allocation.
px_site px__site_of(const px_allocation *result);
// Where the current stream of a device is being captured, random numbers are drawn anew by each
// replay: gives the launch a place that holds the generator's state then, and `words` numbers
// behind those that the capture has drawn from it already; else launch->random stays NULL.
// The graph keeps the generator. take(generator, words, out) moves that on by all that a replay
// draws, and gives seed and offset from before; give_back undoes it, unless somebody has drawn
// since.
typedef struct px__draw_functions {
  void (*take)(void *generator, uint64_t words, uint64_t taken[2]);
  void (*give_back)(void *generator, uint64_t words, const uint64_t taken[2]);
} px__draw_functions;
px_status px__capture_draw(px_launch *launch, int device, void *generator, uint64_t words,
                           const px__draw_functions *draws) __attribute__((warn_unused_result));
// Copies bytes between blocks of any devices, ordered as rule C6 of docs/simulator.md says: device
// work on the current stream of the device side (of the source for device to device, with waits
// both ways). Blocking for the host unless `non_blocking` and the host side is pinned.
px_status px__copy_bytes(px_allocation *to, size_t to_offset, px_allocation *from,
                         size_t from_offset, size_t bytes, bool non_blocking)
    __attribute__((warn_unused_result));
// Whether kernels of `device` may address memory of `other` (same device, or peer access enabled
// both ways).
bool px__device_reaches(px_device device, px_device other);

// Registers a function that frees what a layer above can do without (caches, garbage). It is called
// before out of memory is an answer, without any lock.
void px__reclaim_add(void (*reclaim)(void));
