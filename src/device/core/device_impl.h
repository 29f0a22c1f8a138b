// SPDX-License-Identifier: Apache-2.0
// The device layer's interface to the layers above: allocations, launches, copies.
//
// All device work is issued by px__launch and px__copy_bytes. They advance the stream's timeline,
// record uses, check for races, inject faults and add call sites to errors. Nothing else calls a
// backend's work functions.
#pragma once
#include "base/base_impl.h"
#include "phlox/backend.h"
#include "phlox/event.h"
#include "phlox/memory.h"
#include "phlox/profile.h"

// The open devices by index. Atomic. Empty in a forked child of a process with open devices.
enum { PX__DEVICES = 64 };
typedef struct px__device px__device;
extern PX__HIDDEN px__device *px__devices_open[PX__DEVICES];
// Returns NULL if the device is not open or does not exist.
static inline px__device *px__device_found(int index) {
  return (unsigned)index < PX__DEVICES ? __atomic_load_n(&px__devices_open[index], __ATOMIC_ACQUIRE)
                                       : NULL;
}

// An allocation, owned by one storage and freed once, by px__allocation_free. Its recorded uses
// determine when the memory may be reused.
typedef struct px_allocation {
  void *data;            // address on `device`; 64-byte aligned (CPU), 512-byte aligned (devices)
  size_t bytes;          // as requested
  px_device device;      // index is resolved for cuda, -1 for cpu
  bool pinned, foreign;  // page-locked; exposed to, or owned by, another library
  bool irregular;        // CPU: not aligned to 8 bytes. Any: shorter than its tensors (shrunk)
  bool pending;          // CPU: a copy into it may be running (atomic); a wait clears it. Stays
                         // true if `irregular`: launches then take the slow path
  bool unsaved;          // of an outline whose contents a gradient must not read
  uint16_t readers;      // recorded launches that will read it (atomic)
} px_allocation;         // internal fields follow (px__allocation)

// Allocates for the current stream of a device (index resolved), from its cache. 0 bytes: data is
// NULL. any: also for other types of devices, and while profiling.
px_status px__allocation_new_any(px_allocation **out, size_t bytes, px_device device)
    __attribute__((warn_unused_result));
px_status px__cache_new(px_allocation **out, size_t bytes, px__device *d)
    __attribute__((warn_unused_result));
px_status px__allocation_new_pinned(px_allocation **out, size_t bytes)
    __attribute__((warn_unused_result));
// True if the bytes are page-locked: by the library, or by the program with
// px_memory_host_register. The number of its ranges is atomic.
extern PX__HIDDEN int px__host_registered_count;
bool px__host_registered(const void *at, size_t bytes);
// ---- recorded launches
// The layer above records launches and runs them later (src/call/fusion). They read their inputs
// when they run, so a write to an input runs its readers first.
// recorded_issue: issues those on devices whose results the program holds.
extern PX__HIDDEN px_status (*px__readers_run)(px_allocation *written);  // both are set once
extern PX__HIDDEN px_status (*px__recorded_issue)(void);
void px__allocation_reader_begin(px_allocation *allocation);
void px__allocation_reader_end(px_allocation *allocation);
__attribute__((warn_unused_result)) static inline px_status px__allocation_before_write(
    px_allocation *allocation) {
  return PX_LIKELY(!__atomic_load_n(&allocation->readers, __ATOMIC_RELAXED))
             ? PX_OK
             : px__readers_run(allocation);
}
static inline bool px__allocation_is_pinned(const px_allocation *allocation, size_t offset,
                                            size_t bytes) {
  return allocation->pinned ||
         (PX_UNLIKELY(__atomic_load_n(&px__host_registered_count, __ATOMIC_ACQUIRE)) &&
          px__host_registered((char *)allocation->data + offset, bytes));
}
px_status px__allocation_wrap(px_allocation **out, void *data, size_t bytes, px_device device,
                              void (*release)(void *), void *context)
    __attribute__((warn_unused_result));
void px__allocation_free(px_allocation *allocation);
// Marks the new allocation of a storage shrunk below the extent of its tensors: launches and reads
// check their bounds from now on. unmark: such an allocation was freed.
void px__allocation_mark_shrunk(px_allocation *allocation);
void px__allocation_unmark_shrunk(void);
extern PX__HIDDEN int px__shrunk_count;  // atomic; number of shrunk allocations
px_status px__allocation_fail_bounds(const px_allocation *allocation, size_t end)
    __attribute__((warn_unused_result));
static inline px_status px__allocation_check_bounds(const px_allocation *allocation, size_t end) {
  return PX_LIKELY(end <= allocation->bytes || !allocation->irregular)
             ? PX_OK
             : px__allocation_fail_bounds(allocation, end);
}
// Releases wrapped allocations freed while in use, if their uses are done. No lock may be held.
void px__wrapped_sweep(void);
// Counts all work issued to the stream so far as a use (Tensor.record_stream).
px_status px__allocation_record_stream(px_allocation *allocation, px_stream *stream)
    __attribute__((warn_unused_result));
void px__allocation_expose(px_allocation *allocation);
// Records an event after all work so far with uses of a device's allocation, on any stream, and
// after the calling thread's current stream.
px_status px__allocation_record(px_event *event, px_allocation *allocation)
    __attribute__((warn_unused_result));
// Makes later work on all streams of a device wait for an event.
px_status px__device_wait_event(int device, px_event *event) __attribute__((warn_unused_result));
// ---- IPC
// share returns a handle of the backend's allocation and the offset in it. open maps such memory of
// another process. It calls release(context) after the last work on it, but not if open itself
// fails.
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
// ---- memory files
// A memory file of fixed size; the handle of one; a descriptor for a handle. The caller closes
// descriptors. PX_VALUE, PX_RUNTIME.
px_status px__file_new(int *out, size_t bytes) __attribute__((warn_unused_result));
px_status px__file_share(px_ipc_handle *out, int fd) __attribute__((warn_unused_result));
px_status px__file_open(int *out, const px_ipc_handle *handle) __attribute__((warn_unused_result));
// Waits for copies with uses of a CPU allocation. Required before the host reads it, or (`write`)
// writes it. `op` is named by a report of a race.
px_status px__allocation_wait(px_allocation *allocation, const char *op, bool write)
    __attribute__((warn_unused_result));

// One access of a launch: bytes [begin, end) of an allocation. Each gap narrows it to the first
// `width` of every `pitch` bytes from `begin` on. Gaps serve the race checker alone, and may be
// left out while px__race_on is 0.
enum { PX__GAPS = 3 };
typedef struct px__gap {
  uint32_t pitch, width;
} px__gap;
typedef struct px_access {
  px_allocation *allocation;
  size_t begin, end;
  bool write;
  px__gap gaps[PX__GAPS];  // ends at pitch 0
} px_access;
// Waits for copies in conflict with an access of `op` on the host to CPU memory. Reports a race if
// the program has not waited itself.
px_status px__allocation_host_access(const char *op, const px_access *access)
    __attribute__((warn_unused_result));
extern PX__HIDDEN int px__race_on;  // atomic; -1: environment not read yet
// Returns the device type's kernel of a name, or NULL. Slow: callers cache the result.
px_kernel px__kernel_find(px_device_type type, const char *name);
// Kernel of every op on meta: a no-op.
px_status px__meta_launch(const px_launch *launch) __attribute__((warn_unused_result));
// A kernel launched by name, not as the kernel of an op, with a cache of the lookup.
typedef struct px__named_kernel {
  const char *name;
  bool moves;                        // copies elements unchanged, of any dtype
  px_kernel found[PX_DEVICE_TYPES];  // atomic
} px__named_kernel;
px_kernel px__named_kernel_find(px__named_kernel *kernel, px_device_type type);
static inline px_kernel px__named_kernel_on(px__named_kernel *kernel, px_device_type type) {
  px_kernel k = __atomic_load_n(&kernel->found[type], __ATOMIC_RELAXED);
  return PX_LIKELY(k != NULL) ? k : px__named_kernel_find(kernel, type);
}
// True if the backend of the device type can run host functions as kernels.
bool px__runs_host_kernels(px_device_type type);
// Loads LAPACK for the kernels of backends/cpu/linalg/lapack.h. PX_RUNTIME if missing;
// later calls retry.
px_status px__lapack_ready(void) __attribute__((warn_unused_result));
// The same for FFTW and backends/cpu/fft/fftw.h.
px_status px__fftw_ready(void) __attribute__((warn_unused_result));
// px_backend.recurrent_plan of an open device; false if the backend has none.
bool px__recurrent_plan(px_device device, const px_recurrent_net *net, px_recurrent_sizes *room,
                        int64_t *places);
// px_backend.attention_refusal of an open device; NULL if the device runs CPU kernels.
const char *px__attention_refusal(px_device device, px_attention_call *call);
// Fails if the environment has a bad value for kernels of the type. Checked at first use.
px_status px__kernels_ready(px_device_type type) __attribute__((warn_unused_result));
// Issues a launch on the current stream of the device (index resolved), and sets its id, fault,
// stream and device. The current streams of other devices with operands are ordered before and
// after it. CPU kernels have run on return, and their faults are raised. Faults of device kernels
// are raised by the next synchronizing call.
px_status px__launch(px_device device, px_launch *launch, const px_access *accesses,
                     int access_count) __attribute__((warn_unused_result));
// Copies a launch and its arguments to `to`, if `capacity` bytes are enough. Returns the size.
size_t px__launch_pack(const px_launch *launch, void *to, size_t capacity);
enum { PX__LAUNCH_BATCH_LIMIT = 48 };  // launches issued at a time
// Begin and end a launch batch of the calling thread, as px_launch_batch_begin and _end do.
// parts: within the batch, writes to this allocation never overlap and are not read.
void px__launch_batch_begin(void);
px_status px__launch_batch_parts(const px_allocation *allocation)
    __attribute__((warn_unused_result));
px_status px__launch_batch_end(void) __attribute__((warn_unused_result));
bool px__launch_batch_active(void);
// px__caller returns the name of the outermost op called by this thread, for errors and histories;
// NULL outside a call. The layer of ops enters a call, and leaves it with the result of entering.
extern _Thread_local PX__HIDDEN_THREAD const char *px__caller_here;
static inline const char *px__caller(void) { return px__caller_here; }
static inline const char *px__caller_enter(const char *op) {
  const char *outer = px__caller_here;
  if (!outer) px__caller_here = op;
  return outer;
}
static inline void px__caller_leave(const char *outer) { px__caller_here = outer; }

// ---- the profiler
// enter_op begins the event of an op; px_profile_leave ends it. `name` is a constant, `shapes` the
// sizes of the arguments as text. memory and flops add allocated (or, negative, freed) bytes and
// floating-point operations to the current event of the thread.
enum {
  PX__WATCH_PROFILE = 1,
  PX__WATCH_CALLERS = 2,
  PX__WATCH_FLOPS = 4,    // the profiler counts floating-point operations
  PX__WATCH_VIRTUAL = 8,  // devices have virtual time, derived from the operations
  PX__WATCH_NVTX = 16,    // ops are NVTX ranges
  PX__WATCH_NVTX_SHAPES = 32,
  PX__WATCH_SHAPES = 64,    // the profiler records sizes of arguments
  PX__WATCH_LINES = 128,    // ... and lines
  PX__WATCH_COUNTED = 256,  // px_op_set_flop_callback has set a callback
  PX__WATCH_STACKS = 512    // the profiler records whole stacks
};
extern PX__HIDDEN int px__watching;  // atomic; reasons to watch calls of ops
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
// Returns the line executed by this thread. Reuses the line of the thread's latest work if its
// first output was `result`; the caller guarantees that this work was part of the same call.
px_site px__site_of(const px_allocation *result);
// While the current stream of a device is captured, each replay draws new random numbers. Sets
// launch->random to memory for the generator's state at replay, and reserves `words` numbers after
// those drawn by the capture so far. launch->random stays NULL without a capture. The graph holds a
// reference to the generator's state. take(state, words, out) advances it by a replay's numbers and
// returns seed and offset from before. give_back undoes this, unless more were drawn since.
typedef struct px__draw_functions {
  void (*take)(void *state, uint64_t words, uint64_t taken[2]);
  void (*give_back)(void *state, uint64_t words, const uint64_t taken[2]);
} px__draw_functions;
// A capture is under way on some stream; on the calling thread's current stream.
bool px__captures_any(void);
bool px__capturing(void);
// PX_RUNTIME: what `text` names is not allowed in a capture.
px_status px__capture_refuse(const char *text) __attribute__((warn_unused_result));
px_status px__capture_draw(px_launch *launch, int device, void *generator, uint64_t words,
                           const px__draw_functions *draws) __attribute__((warn_unused_result));
// Copies bytes between allocations of any devices, ordered by rule C6 of
// docs/reference/simulator.md: as work on the current stream of the device side (of the source
// between devices, with waits both ways). Blocks the host unless `non_blocking` and the host side
// is pinned.
px_status px__copy_bytes(px_allocation *to, size_t to_offset, px_allocation *from,
                         size_t from_offset, size_t bytes, bool non_blocking)
    __attribute__((warn_unused_result));
// True if kernels of `device` may address memory of `other`: same device, or peer access enabled
// both ways.
bool px__device_reaches(px_device device, px_device other);

// Registers a function to free caches or garbage of an upper layer. Called before a request fails
// for lack of memory. No lock is held then.
void px__reclaim_add(void (*reclaim)(void));
