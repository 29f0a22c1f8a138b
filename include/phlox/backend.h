// SPDX-License-Identifier: Apache-2.0
// What a backend is: a table of functions for one device type, which one exported function returns.
//
// A backend has mechanism only: raw memory, streams, events, and kernels by name. Policy (caching,
// ordering, race checks, fault injection, error messages) is in the core, above this table. A
// backend includes this header and nothing else of Phlox, and calls the core through the table that
// it is given. Both tables have a version and grow at the end only.
//
// Example: examples/backend/toy.c, a whole backend.
#pragma once
#include "phlox/device.h"
#include "phlox/dtype.h"
#ifdef __cplusplus
extern "C" {
#endif

#define PX_BACKEND_ABI 1
#define PX_MAX_DIMS 64      // dimensions of a tensor
#define PX_MAX_OPERANDS 12  // tensors of one launch

typedef struct px_tensor px_tensor;
typedef struct px_generator px_generator;

// ---- arguments

// One argument of an op, tagged. Lists are borrowed: `n` elements at `ints` or `tensors`.
typedef enum px_arg_kind {
  PX_ARG_NONE,  // an optional argument that was not given
  PX_ARG_TENSOR,
  PX_ARG_TENSORS,
  PX_ARG_SCALAR,  // `category` is px_scalar.kind
  PX_ARG_INT,
  PX_ARG_FLOAT,
  PX_ARG_BOOL,
  PX_ARG_INTS,
  PX_ARG_DTYPE,
  PX_ARG_DEVICE,
  PX_ARG_TEXT,
  PX_ARG_GENERATOR
} px_arg_kind;
typedef struct px_value {
  uint8_t kind;   // px_arg_kind
  char category;  // of a scalar: 'b' 'i' 'f'; of a list: 'i' for a lone number in its place
  int32_t n;      // of a list
  union {
    px_tensor *tensor;
    px_tensor *const *tensors;
    const int64_t *ints;
    int64_t i;  // int, bool, scalar 'b' and 'i', dtype
    double f;   // float, scalar 'f'
    px_device device;
    const char *text;
    px_generator *generator;
  } v;
} px_value;
// Returns a value of a kind whose content is still to be set. Always inline, as PX_I and those like
// it: a call takes more room than what they do, and compilers that spare room make one.
__attribute__((always_inline)) static inline px_value px_value_of(int kind) {
  px_value r = {(uint8_t)kind, 0, 0, {NULL}};
  return r;
}
__attribute__((always_inline)) static inline px_value PX_NONE(void) {
  return px_value_of(PX_ARG_NONE);
}
static inline px_value PX_T(const px_tensor *t) {
  px_value r = px_value_of(t ? PX_ARG_TENSOR : PX_ARG_NONE);
  r.v.tensor = (px_tensor *)t;
  return r;
}
// Lists: NULL means that none is given, unless the count is 0.
static inline px_value PX_TS(px_tensor *const *ts, int64_t n) {
  px_value r = px_value_of(ts || n == 0 ? PX_ARG_TENSORS : PX_ARG_NONE);
  r.n = (int32_t)n;
  r.v.tensors = ts;
  return r;
}
__attribute__((always_inline)) static inline px_value PX_I(int64_t i) {
  px_value r = px_value_of(PX_ARG_INT);
  r.v.i = i;
  return r;
}
__attribute__((always_inline)) static inline px_value PX_F(double f) {
  px_value r = px_value_of(PX_ARG_FLOAT);
  r.v.f = f;
  return r;
}
__attribute__((always_inline)) static inline px_value PX_B(bool b) {
  px_value r = px_value_of(PX_ARG_BOOL);
  r.v.i = b;
  return r;
}
static inline px_value PX_IS(const int64_t *is, int64_t n) {
  px_value r = px_value_of(is || n == 0 ? PX_ARG_INTS : PX_ARG_NONE);
  r.n = (int32_t)n;
  r.v.ints = is;
  return r;
}
static inline px_value PX_DT(px_dtype d) {
  px_value r = px_value_of(d == PX_DTYPE_NONE ? PX_ARG_NONE : PX_ARG_DTYPE);
  r.v.i = d;
  return r;
}
static inline px_value PX_DV(px_device d) {
  px_value r = px_value_of(d.type < 0 ? PX_ARG_NONE : PX_ARG_DEVICE);
  r.v.device = d;
  return r;
}
static inline px_value PX_TX(const char *s) {
  px_value r = px_value_of(s ? PX_ARG_TEXT : PX_ARG_NONE);
  r.v.text = s;
  return r;
}
static inline px_value PX_G(px_generator *g) {
  px_value r = px_value_of(g ? PX_ARG_GENERATOR : PX_ARG_NONE);
  r.v.generator = g;
  return r;
}
static inline px_value PX_S(px_scalar s) {
  px_value r = px_value_of(s.kind ? PX_ARG_SCALAR : PX_ARG_NONE);
  r.category = s.kind;
  if (s.kind == 'f')
    r.v.f = s.v.f;
  else
    r.v.i = s.kind == 'b' ? s.v.b : s.v.i;
  return r;
}
// Reads a number argument of any kind (scalar, int, float, bool).
static inline double px_value_float(px_value a) {
  if (a.kind == PX_ARG_SCALAR && a.category == 'u') return (double)(uint64_t)a.v.i;
  return a.kind == PX_ARG_FLOAT || (a.kind == PX_ARG_SCALAR && a.category == 'f') ? a.v.f
                                                                                  : (double)a.v.i;
}
static inline int64_t px_value_int(px_value a) {
  return a.kind == PX_ARG_FLOAT || (a.kind == PX_ARG_SCALAR && a.category == 'f') ? (int64_t)a.v.f
                                                                                  : a.v.i;
}
static inline px_scalar px_value_scalar(px_value a) {
  if (a.kind == PX_ARG_SCALAR)
    return a.category == 'f'   ? px_float(a.v.f)
           : a.category == 'b' ? px_bool(a.v.i != 0)
           : a.category == 'u' ? px_uint((uint64_t)a.v.i)
                               : px_int(a.v.i);
  return a.kind == PX_ARG_FLOAT  ? px_float(a.v.f)
         : a.kind == PX_ARG_BOOL ? px_bool(a.v.i != 0)
         : a.kind == PX_ARG_INT  ? px_int(a.v.i)
                                 : px_no_scalar();
}

// ---- launches

// One tensor of a launch. `data` is the address of its first element on the device; strides are in
// elements. An optional tensor that is not given has dtype PX_DTYPE_NONE. An immediate operand is a
// number: all its strides are 0 and the element is in `value`. On the host, `data` points at it;
// other backends pass it to their kernels by value.
typedef struct px_operand {
  void *data;
  const int64_t *sizes, *strides;
  int32_t ndim;
  int32_t dtype;
  bool immediate;
  uint8_t value[16] __attribute__((aligned(8)));
} px_operand;

// How many elements it has, repeated ones included. Beside a size of 0 others may be of any size.
static inline int64_t px_operand_numel(const px_operand *operand) {
  uint64_t n = 1;
  for (int i = 0; i < operand->ndim; i++) n *= (uint64_t)operand->sizes[i];
  return (int64_t)n;
}

// What a kernel found wrong: name, status, and the text with the operands a, b, c, which is
// PyTorch's text on the CPU.
#define PX_FAULT_MAP(XX) \
  XX(INDEX, INDEX, "index %lld is out of bounds for dimension %lld with size %lld") \
  XX(TARGET, INDEX, "Target %lld is out of bounds.") \
  XX(RANGE, INDEX, "index out of range in self: index %lld, size %lld") \
  XX(ZERO_DIVISION, RUNTIME, "ZeroDivisionError") \
  XX(PROBABILITY, RUNTIME, "Expected p_in >= 0 && p_in <= 1 to be true, but got false.") \
  XX(NOMEM, NOMEM, "a kernel could not get %lld bytes of scratch memory") \
  XX(PLACE, RUNTIME, "index %lld is out of bounds for dimension %lld with size %lld") \
  XX(WEIGHTS, RUNTIME, "probability tensor contains either `inf`, `nan` or element < 0") \
  XX(NO_WEIGHT, RUNTIME, "invalid multinomial distribution (sum of probabilities <= 0)") \
  XX(INPUT, RUNTIME, "all elements of input should be between 0 and 1") \
  XX(TARGETS, RUNTIME, "all elements of target should be between 0 and 1") \
  XX(RATE, RUNTIME, "invalid Poisson rate, expected rate to be non-negative") \
  XX(PIVOT, RUNTIME, \
     "pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive.Did you properly " \
     "pass the result of lu_factor?") \
  XX(INJECTED, ACCELERATOR, "a kernel failed (injected)") \
  XX(BROKEN, ACCELERATOR, "the launch broke the device") \
  XX(NEGATIVE_WEIGHT, RUNTIME, \
     "invalid multinomial distribution (encountering probability entry < 0)") \
  XX(ENDLESS_WEIGHT, RUNTIME, \
     "invalid multinomial distribution (encountering probability entry = infinity or NaN)")
typedef enum px_fault_code {
  PX_FAULT_NONE,
#define XX(name, status, text) PX_FAULT_##name,
  PX_FAULT_MAP(XX)
#undef XX
} px_fault_code;
// What the kernel index_put does with an element and the value that is put there.
typedef enum px_put_how {
  PX_PUT_STORE,
  PX_PUT_ADD,
  PX_PUT_MULTIPLY,
  PX_PUT_GREATEST,
  PX_PUT_LEAST
} px_put_how;
// A device's fault slot, in memory that the host can read. The first kernel that finds something
// wrong claims it by changing `launch` from 0 to its launch id. PX_FAULT_BROKEN is no error by
// itself: a backend that knows which launch broke the device says so, and its errors name it.
typedef struct px_fault_slot {
  uint64_t launch;  // atomic
  int64_t code, a, b, c;
} px_fault_slot;

// One launch. Operands are the op's results, then its tensor arguments in the order of the schema;
// params are all arguments in that order, of which tensors are only a tag. What the launch points
// to is valid during the call; a backend that runs it later makes a copy with the core's `pack`.
typedef struct px_launch {
  const char *op;
  px_status (*kernel)(const struct px_launch *launch);
  int32_t operand_count, param_count;
  px_operand *operands;
  const px_value *params;
  int32_t compute;  // pointwise and reduce: the dtype to compute in; else PX_DTYPE_NONE
  int32_t device;   // index
  uint64_t id;      // never 0
  px_fault_slot *fault;
  // Random kernels: on devices a Philox key and offset; on the CPU the mt19937 state (NULL means:
  // use Philox).
  uint64_t seed, offset;
  void *mt19937;
  void *stream;    // the backend's stream
  int64_t blocks;  // random kernels on devices: the blocks of PyTorch's launch, which the numbers
                   // follow
  // Random kernels of a graph: two numbers in the device's memory, which the kernel reads when it
  // runs: the seed, and what `offset` is added to. NULL: `seed` and `offset` are meant.
  const uint64_t *random;
  // Floating-point operations, of ops whose entry tells them (`work`), while a profile or a backend
  // with a clock of its own wants them; else 0.
  int64_t work;
} px_launch;
// The numbers of an optimiser's step, where they are made on the device: a line of float64 for each
// parameter. It has what the update takes, what the scalars of the state become, and whether the
// step is left out (not 0).
enum {
  PX_NUMBERS = 16,
  PX_NUMBERS_SCALARS = 3,
  PX_NUMBERS_LEFT_OUT = PX_NUMBERS + PX_NUMBERS_SCALARS,
  PX_NUMBERS_LINE
};
typedef px_status (*px_kernel)(const px_launch *launch);
typedef struct px_kernel_row {
  const char *name;
  px_kernel run;
} px_kernel_row;

// Reports a fault, from a kernel on the host. The kernel skips the element and returns PX_OK.
static inline void px_kernel_fault(const px_launch *l, px_fault_code code, int64_t a, int64_t b,
                                   int64_t c) {
  uint64_t free_slot = 0;
  if (!l->fault || !__atomic_compare_exchange_n(&l->fault->launch, &free_slot, l->id, false,
                                                __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    return;
  l->fault->a = a, l->fault->b = b, l->fault->c = c;
  __atomic_store_n(&l->fault->code, (int64_t)code, __ATOMIC_RELEASE);
}

// ---- the two tables

enum { PX_FILE_HANDLE = 32 };
// What the core gives to a backend.
typedef struct px_core {
  uint32_t size, abi;
  px_status (*error)(px_status code, int detail, const char *file, int line, const char *function,
                     const char *format, ...);
  px_status (*env)(const char *name, void *out);  // px_env_read; use px_env_NAME below
  // Copies a launch, and all that it points to, to `room`, which then begins with the px_launch.
  // Returns the number of bytes needed; if `capacity` is less, it copies nothing.
  size_t (*pack)(const px_launch *launch, void *room, size_t capacity);
  const px_kernel_row *host_kernels;  // the reference kernels: plain C, run by a backend whose
                                      // memory the host can reach
  int host_kernel_count;
  // Gives device memory for the kernel to work in until the work that is queued on the launch's
  // stream is done; NULL if there is none left.
  void *(*scratch)(const px_launch *launch, size_t bytes);
  int (*setting)(px_setting setting);
  // Files without names that other processes open. share writes to the first PX_FILE_HANDLE bytes
  // of a handle what leads to the file while this process has it open; the rest is the backend's.
  // open gives a descriptor, which the caller closes; it fails if that file is gone.
  px_status (*file_share)(px_ipc_handle *out, int fd);
  px_status (*file_open)(int *out, const px_ipc_handle *handle);
  // px_interrupt_wanted and px_interrupt_poll: where `wanted` holds, event_synchronize,
  // stream_synchronize and synchronize call `poll` some twenty times a second while they wait,
  // without locks, and end with its status if it fails.
  bool (*interrupt_wanted)(void);
  px_status (*interrupt_poll)(void);
} px_core;

// px_env_NAME(core, &value) reads an environment variable of phlox/env.def into a place of its
// type; what is wrong with a value is told by the core.
#define PX_ENV(name, type, fallback, allowed, doc) \
  __attribute__((warn_unused_result)) static inline px_status px_env_##name(const px_core *core, \
                                                                            px_env_##type *out) { \
    return core->env(#name, out); \
  }
#include "phlox/env.def"
#undef PX_ENV

typedef enum px_copy_kind {
  PX_COPY_HOST_TO_DEVICE,
  PX_COPY_DEVICE_TO_HOST,
  PX_COPY_DEVICE_TO_DEVICE,  // within what the stream's device may address
  PX_COPY_PEER               // between any two devices, with or without peer access
} px_copy_kind;
typedef struct px_copy {
  px_copy_kind kind;
  void *to;
  const void *from;
  int to_device, from_device;  // indices; -1 for host memory
  size_t bytes;
  bool pinned;  // the host side is page-locked
} px_copy;

enum { PX_FFT_PLANS = 4096 };
enum {
  PX_PROBE_TWICE = -1,  // CUDA_VISIBLE_DEVICES names a device twice
  PX_PROBE_ERROR = -2,  // a variable that the backend reads has a value that is not allowed
  PX_GLANCE_UNKNOWN = -3
};

typedef struct px_process {
  int64_t id;
  size_t bytes;
} px_process;

// A net of recurrent layers that a library of the backend may run as a whole, and what that takes:
// the bytes of its weights, which lie in one block, and of what the backward pass needs.
typedef struct px_recurrent_net {
  const char *mode;  // as of the op recurrent_layer
  int dtype, layers, directions;
  bool has_biases, projected, tf32;
  int64_t input, hidden, width;  // sizes of rows: of the input, the cell, and what comes out of it
  int64_t times, batch;
  const int64_t *counts;  // sequences at each time, never increasing; NULL: `batch` at all
} px_recurrent_net;
typedef struct px_recurrent_room {
  size_t weights, kept;
} px_recurrent_room;

// Operands of the kernel tiled_attention, of four dimensions; attn_mask may be NULL. Only the
// strides of output count. A backend that takes them answers `adds_mask` if the mask is to be in
// query's dtype, with no infinity in it, whatever was asked about. Else it is bool, or in query's
// dtype.
typedef struct px_attention_call {
  const px_operand *query, *key, *value, *attn_mask, *output;
  double dropout_p;
  bool is_causal, backward;
  bool adds_mask;  // of the answer
} px_attention_call;

// What a backend gives to the core. `device` is an index; streams and events are the backend's
// handles. A stream is never NULL: the core makes the default stream of each device with
// `stream_new`.
typedef struct px_backend {
  uint32_t size, abi;
  const char *name;  // "sim"
  px_device_type
      type;  // several backends may serve one type; the first whose probe finds devices does
  // Counts devices without creating a context; 0 where there are none. Negative where the
  // environment does not allow to count: PX_PROBE_TWICE, or PX_PROBE_ERROR with the error recorded.
  int (*probe)(void);
  px_status (*open)(
      int device);  // creates the context; called once a device, before anything below
  px_status (*properties)(int device, px_device_properties *out);
  px_status (*memory_info)(int device, size_t *free, size_t *total);
  px_status (*synchronize)(int device);
  px_fault_slot *(*fault_slot)(int device);
  // Raw memory. If none is left, `alloc` fails with PX_OUT_OF_MEMORY and *out NULL. `release` waits
  // for work that uses the memory.
  px_status (*alloc)(int device, size_t bytes, void **out);
  void (*release)(int device, void *memory);
  px_status (*host_alloc)(size_t bytes, void **out);  // page-locked
  void (*host_release)(void *memory);
  bool (*can_access_peer)(int from, int to);
  px_status (*enable_peer)(int from, int to);
  // Streams. Work of one stream runs in order; streams are not ordered with each other. copy and
  // fill queue work and return, except that a copy from pageable host memory has read it when the
  // call returns, and a copy to pageable host memory is complete. stream_wait makes later work of
  // `stream` wait for the event's latest record.
  px_status (*stream_new)(int device, int priority, void **out);
  void (*stream_release)(int device, void *stream);
  void (*priority_range)(int *least, int *greatest);
  px_status (*stream_query)(void *stream, bool *out);
  px_status (*stream_synchronize)(void *stream);
  px_status (*stream_wait)(void *stream, void *event);
  px_status (*copy)(void *stream, const px_copy *copy);
  px_status (*fill)(void *stream, void *memory, int value, size_t bytes);
  px_status (*host_call)(void *stream, void (*fn)(void *), void *argument);
  // Events: the latest record counts. flags: bit 0, the event keeps the time (PX_EVENT_TIMING ...).
  // event_elapsed gives milliseconds. Work that was issued still runs if its stream or event has
  // been released.
  px_status (*event_new)(int device, unsigned flags, void **out);
  void (*event_release)(int device, void *event);
  px_status (*event_record)(void *event, void *stream);
  px_status (*event_query)(void *event, bool *out);
  px_status (*event_synchronize)(void *event);
  px_status (*event_elapsed)(void *start, void *end, float *out);
  // Kernels. find returns NULL if the backend has no kernel of that name. launch queues
  // launch->kernel on the stream.
  px_kernel (*find)(const char *name);
  px_status (*launch)(void *stream, const px_launch *launch);
  // Translates a device address to one that the host can read and write, for tests; NULL if there
  // is none.
  void *(*peek)(int device, void *memory);
  // Returns the version of a library that the backend uses, which it loads if need be; 0 if it has
  // none.
  int64_t (*library)(const char *name);
  // Lists at most `room` processes that hold memory of the device; returns how many, 0 if that is
  // not known.
  int (*processes)(int device, px_process *out, int room);
  // Whether `launch` takes any function of the host as a kernel, as it takes those of
  // core->host_kernels. If so, ops that a program registers with kernels for the CPU run here too.
  bool runs_host_kernels;
  // What other processes have too; NULL in a backend that cannot. memory_share gives the handle of
  // the allocation that `memory` lies in, and its place there; the same handle each time.
  // memory_open gives such an allocation of another process, and its size, until memory_close,
  // which waits for work that uses it; the core opens a handle once. event_share is for events with
  // bit 2 of the flags (PX_EVENT_INTERPROCESS). An event of event_open may be recorded too; for all
  // processes, waits mean the latest record of all. event_release lets go of it.
  px_status (*memory_share)(int device, void *memory, px_ipc_handle *out, size_t *offset);
  px_status (*memory_open)(int device, const px_ipc_handle *handle, void **out, size_t *bytes);
  void (*memory_close)(int device, void *memory);
  px_status (*event_share)(void *event, px_ipc_handle *out);
  px_status (*event_open)(int device, const px_ipc_handle *handle, void **out);
  // What a program may ask before a fork, of a backend whose `probe` starts a driver that a forked
  // child could not use then: how many devices there are, or PX_GLANCE_UNKNOWN, and whether one
  // goes by a name of CUDA_VISIBLE_DEVICES, "GPU-" or "MIG-" and the start of a uuid. NULL: as
  // `probe`.
  int (*glance)(void);
  bool (*glance_named)(int device, const char *name, size_t length);
  // Whether the first launch of a kernel may wait for all that its device was given before, as
  // where a driver loads code when it is needed. The core then waits before such a launch, so that
  // the program can end the wait. NULL: it does not.
  bool (*loads_late)(void);
  // A figure of the device at this moment; false where it is not known. NULL: none is.
  bool (*figure)(int device, px_figure figure, int64_t *out);
  // Whether the kernels recurrent_whole, recurrent_whole_back and recurrent_whole_weights take the
  // net. If so, and `room` is not NULL, fills in the room, and where in the weights each parameter
  // lies, in elements: those of a layer in one direction are w_ih, w_hh, b_ih, b_hh, w_hr, as far
  // as there are. NULL: they take none.
  bool (*recurrent_plan)(int device, const px_recurrent_net *net, px_recurrent_room *room,
                         int64_t *places);
  // Checks that a stream which the backend did not give to this core is one of the device, and
  // gives its priority. NULL: none is.
  px_status (*stream_adopt)(int device, void *stream, int *priority);
  // Graphs; NULL in a backend that has none. What a stream is given between capture_begin and
  // capture_end is kept, and does not run: launches, copies of device and page-locked memory,
  // fills, host calls, and records and waits, which are the edges between what is kept. A stream
  // that waits for an event which was recorded there is captured too, until capture_end. That gives
  // what was kept, or drops it if `out` is NULL; the capture ends also where it fails. Meanwhile
  // memory, events and streams can be made and asked about as ever: the core decides what a program
  // may do. graph_launch queues one run of all that was kept: it begins when the stream gets there,
  // and the stream goes on when it has ended. Of one graph, runs are queued by one thread at a
  // time, and none begins before the one that was queued earlier has ended: the core sees to both.
  // A graph that is released runs on where it was launched.
  px_status (*capture_begin)(void *stream);
  px_status (*capture_end)(void *stream, void **out);
  px_status (*graph_launch)(void *stream, void *graph);
  void (*graph_release)(int device, void *graph);
  // Why the kernels tiled_attention and, if `backward`, tiled_attention_backward do not take the
  // operands, as a sentence that stays until the thread's next question; NULL: they do. The
  // function NULL: they take none.
  const char *(*attention_refusal)(int device, px_attention_call *call);
  // Graphs that stay as they were captured; NULL in a backend without. capture_keep ends a capture
  // as capture_end does; graph_make makes of what it gives what graph_launch takes, any number of
  // times; graph_print writes it to a file in the language of Graphviz; graph_drop lets go of it.
  px_status (*capture_keep)(void *stream, void **out);
  px_status (*graph_make)(int device, void *kept, void **out);
  px_status (*graph_print)(int device, void *kept, const char *path);
  void (*graph_drop)(int device, void *kept);
  // Queues launches of which none depends on another, as `launch` does each: those of one kernel
  // may be one launch of the device. If it fails, any of them may have been queued. NULL: they come
  // to `launch` in turn.
  px_status (*launch_all)(void *stream, const px_launch *const *launches, int count);
  // The plans of Fourier transforms that a device keeps, to use them again: at most PX_FFT_PLANS,
  // until it is told another number, when it lets go of those that were used longest ago. A
  // negative `most` tells nothing. Returns how many there are. NULL: it keeps none.
  int64_t (*fft_plans)(int device, int64_t most);
  // Addresses that pages of device memory are put behind, or of page-locked memory (device -1);
  // NULL in a backend without. page_size gives the bytes of a page, 0 where there are none.
  // range_new gives `bytes` of addresses, whole pages, that lead nowhere; once. pages_map puts new
  // pages behind all of [at, at + bytes), which has none, for the device and those that reach it as
  // peers; if there are not enough, it fails with PX_OUT_OF_MEMORY and puts none. pages_unmap gives
  // pages back, which may have been mapped by several calls: the core sees to it that no work uses
  // them, on any device. shares_pages: memory_share takes memory of pages, too.
  size_t (*page_size)(int device);
  px_status (*range_new)(int device, size_t bytes, void **out);
  px_status (*pages_map)(int device, void *at, size_t bytes);
  void (*pages_unmap)(int device, void *at, size_t bytes);
  bool shares_pages;
  // Virtual time, in nanoseconds: of an event's latest record, which is done; or, if that is NULL,
  // of a stream, when it is done with what it has run so far; or, if that is NULL too, of the host
  // that gives work to the device. False where time is real. NULL: it is.
  bool (*clock)(int device, void *stream, void *event, int64_t *out);
  /* entries above: ABI 1 */
} px_backend;

// The one symbol of a backend's shared object. Returns NULL if `core` is of another ABI.
typedef const px_backend *(*px_backend_entry_fn)(const px_core *core);
#define PX_BACKEND_ENTRY "px_backend_entry"

#ifdef __cplusplus
}
#endif
