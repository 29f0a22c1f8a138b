// SPDX-License-Identifier: Apache-2.0
// The backend interface: a table of functions for one device type, returned by one exported
// function.
//
// A backend has mechanism only: raw memory, streams, events, and kernels by name. Policy (caching,
// ordering, race checks, fault injection, error messages) is in the core, above this table. A
// backend includes no other header of Phlox and calls the core through the table passed to its
// entry. Both tables are versioned and grow at the end only.
//
// Example: examples/backend/toy.c, a complete backend.
#pragma once
#include "phlox/device.h"
#include "phlox/dtype.h"
#include "phlox/spin.h"
#ifdef __cplusplus
extern "C" {
#endif

#define PX_BACKEND_ABI 1
#define PX_MAX_DIMS 64      // dimensions of a tensor
#define PX_MAX_OPERANDS 12  // tensors of one launch

typedef struct px_tensor px_tensor;
typedef struct px_generator px_generator;

// ---- arguments

// One argument of an op: a tagged union. Lists are borrowed: `n` elements at `ints` or `tensors`.
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
  PX_ARG_GENERATOR,
  PX_ARG_INVALID_LIST  // a list of a negative or too large length; no parameter accepts it
} px_arg_kind;
typedef struct px_value {
  uint8_t kind;   // px_arg_kind
  char category;  // of a scalar: px_scalar.kind; of a list: 'i' if it was written as one number
  int32_t n;      // length of a list
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
// Returns a value of a kind, with its content unset. Always inline, like PX_I and its neighbours: a
// call takes more code than the function, but compilers that optimise for size make one.
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
// Lists: NULL means "not given", unless the count is 0.
__attribute__((always_inline)) static inline px_value px_list_of(int kind, bool given, int64_t n) {
  return px_value_of((uint64_t)n > INT32_MAX ? PX_ARG_INVALID_LIST
                     : given || n == 0       ? kind
                                             : PX_ARG_NONE);
}
static inline px_value PX_TS(px_tensor *const *ts, int64_t n) {
  px_value r = px_list_of(PX_ARG_TENSORS, ts != NULL, n);
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
  px_value r = px_list_of(PX_ARG_INTS, is != NULL, n);
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
// Read a number argument of any kind (scalar, int, float, bool).
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

// One tensor of a launch. `data` is the device address of the first element; strides are in
// elements. An optional tensor that was not given has dtype PX_DTYPE_NONE. An immediate operand is
// a number: its strides are 0 and `value` holds the element. On the host, `data` points to `value`;
// other backends pass it to their kernels by value.
typedef struct px_operand {
  void *data;
  const int64_t *sizes, *strides;
  int32_t ndim;
  int32_t dtype;
  bool immediate;
  uint8_t value[16] __attribute__((aligned(8)));
} px_operand;

// The number of elements, including repeated ones. Next to a size of 0, other sizes may be
// arbitrary, so the product may wrap.
static inline int64_t px_operand_numel(const px_operand *operand) {
  uint64_t n = 1;
  for (int i = 0; i < operand->ndim; i++) n *= (uint64_t)operand->sizes[i];
  return (int64_t)n;
}

// Errors found by kernels: name, status, and a text with the operands a, b, c. The text is
// PyTorch's CPU text.
#define PX_FAULT_MAP(XX) \
  XX(INDEX, INDEX, "index %lld is out of bounds for dimension %lld with size %lld") \
  XX(TARGET, INDEX, "Target %lld is out of bounds.") \
  XX(RANGE, INDEX, "index out of range in self: index %lld, size %lld") \
  XX(ZERO_DIVISION, RUNTIME, "ZeroDivisionError") \
  XX(PROBABILITY, RUNTIME, "Expected p_in >= 0 && p_in <= 1 to be true, but got false.") \
  XX(NOMEM, NOMEM, "a kernel could not get %lld bytes of scratch memory") \
  XX(INDEX_RUNTIME, RUNTIME, "index %lld is out of bounds for dimension %lld with size %lld") \
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
  XX(INFINITE_WEIGHT, RUNTIME, \
     "invalid multinomial distribution (encountering probability entry = infinity or NaN)")
typedef enum px_fault_code {
  PX_FAULT_NONE,
#define XX(name, status, text) PX_FAULT_##name,
  PX_FAULT_MAP(XX)
#undef XX
} px_fault_code;
// How the kernel index_put combines an element with the value put there.
typedef enum px_put_mode {
  PX_PUT_STORE,
  PX_PUT_ADD,
  PX_PUT_MULTIPLY,
  PX_PUT_MAX,
  PX_PUT_MIN
} px_put_mode;
// A device's fault slot, in host-readable memory. The first kernel that finds an error claims it by
// changing `launch` from 0 to its launch id. PX_FAULT_BROKEN marks the launch that broke the
// device, if the backend knows it. It is no error by itself; errors of the device then name the
// launch.
typedef struct px_fault_slot {
  uint64_t launch;  // atomic
  int64_t code, a, b, c;
} px_fault_slot;

// One launch. Operands are the op's results, then its tensor arguments in schema order. `params`
// are all arguments in schema order, with tensors as mere tags. All pointers are valid during the
// call only; a backend that runs the launch later copies it with the core's `pack`.
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
  // For random kernels: a Philox key and offset on devices. On the CPU the mt19937 state; NULL
  // selects Philox.
  uint64_t seed, offset;
  void *mt19937;
  void *stream;    // the backend's stream
  int64_t blocks;  // random kernels on devices: the thread blocks of PyTorch's launch, which
                   // determine the numbers
  // For random kernels in graphs: two numbers in device memory, read when the kernel runs: the
  // seed, and the base of `offset`. NULL: `seed` and `offset` apply.
  const uint64_t *random;
  // Floating-point operations, for ops with a `work` entry, if a profile or a backend with virtual
  // time needs them; else 0.
  int64_t work;
  // Set by the kernel "chain" for a reduction at its end: computes the last operand, which has no
  // address.
  const void *chain;
} px_launch;
// The numbers of an optimiser step made on the device: a row of float64 for each parameter. It
// holds the inputs of the update, the new scalar states, and a flag (not 0: the step is skipped).
enum {
  PX_NUMBERS = 16,
  PX_NUMBERS_SCALARS = 3,
  PX_NUMBERS_SKIPPED = PX_NUMBERS + PX_NUMBERS_SCALARS,
  PX_NUMBERS_ROW
};
typedef px_status (*px_kernel)(const px_launch *launch);
typedef struct px_kernel_row {
  const char *name;
  px_kernel run;
} px_kernel_row;

// A chain: pointwise launches that run as one, the launch of the kernel "chain". Its operands are
// the results to store, then the inputs; its first parameter holds the steps, in order, as a list
// of ints. Elements correspond by their position in the memory of the results, which have no gaps:
// an operand with one dimension of stride 1 is read in that order, others at that position in the
// row-major order of their sizes. Further parameters are those of the steps.
//
// With `fold`, the last step is a reduction of the result of the step before it, which is row-major
// with the sizes of the operand `shape`.
enum { PX_CHAIN_STEPS = 128 };  // limit of a chain
typedef struct px_chain_step {
  px_kernel kernel;
  const char *op;          // the kernel's name; lives as long as the program
  int32_t compute, dtype;  // px_launch.compute; dtype of the result
  int32_t stores;          // operand that stores the result, or -1
  int32_t first_param, param_count;
  int32_t operand_count;  // with the result
  int32_t fold, shape;
  int32_t sources[PX_MAX_OPERANDS];  // [1]...: an operand, or ~n: the result of step n
} px_chain_step;

// For kernels on the host: reports a fault. The kernel then skips the element and returns PX_OK.
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
// The functions of the core for a backend.
typedef struct px_core {
  uint32_t size, abi;
  px_status (*error)(px_status code, int detail, const char *file, int line, const char *function,
                     const char *format, ...);
  px_status (*env)(const char *name, void *out);  // px_env_read; use px_env_NAME below
  // Copies a launch and everything it points to into `buffer`, beginning with the px_launch.
  // Returns the number of bytes needed; copies nothing if `capacity` is less.
  size_t (*pack)(const px_launch *launch, void *buffer, size_t capacity);
  const px_kernel_row *host_kernels;  // the reference kernels in plain C, for backends with memory
                                      // accessible to the host
  int host_kernel_count;
  // Returns scratch memory of the device for the kernel, valid until the work queued on the
  // launch's stream is done; NULL if out of memory.
  void *(*scratch)(const px_launch *launch, size_t bytes);
  int (*setting)(px_setting setting);
  // Anonymous files shared with other processes. share writes the location of the file to the first
  // PX_FILE_HANDLE bytes of a handle, valid while this process has the file open; the backend may
  // use the rest. open returns a descriptor, to be closed by the caller; it fails if the file is
  // gone.
  px_status (*file_share)(px_ipc_handle *out, int fd);
  px_status (*file_open)(int *out, const px_ipc_handle *handle);
  // px_interrupt_wanted and px_interrupt_poll. If `interrupt_wanted` returns true,
  // event_synchronize, stream_synchronize and synchronize call interrupt_poll about twenty times a
  // second while waiting, without locks held, and return its status if it fails.
  bool (*interrupt_wanted)(void);
  px_status (*interrupt_poll)(void);
} px_core;

// px_env_NAME(core, &value) reads an environment variable of phlox/tables/env.def into its C type.
// The core reports invalid values.
#define PX_ENV(name, type, fallback, allowed, doc) \
  __attribute__((warn_unused_result)) static inline px_status px_env_##name(const px_core *core, \
                                                                            px_env_##type *out) { \
    return core->env(#name, out); \
  }
#include "phlox/tables/env.def"
#undef PX_ENV

typedef enum px_copy_kind {
  PX_COPY_HOST_TO_DEVICE,
  PX_COPY_DEVICE_TO_HOST,
  PX_COPY_DEVICE_TO_DEVICE,  // between addresses accessible to the stream's device
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
  PX_PROBE_DUPLICATE = -1,  // CUDA_VISIBLE_DEVICES lists a device twice
  PX_PROBE_ERROR = -2,      // an environment variable of the backend has an invalid value
  PX_PROBE_UNKNOWN = -3
};

typedef struct px_process {
  int64_t id;
  size_t bytes;
} px_process;

// A stack of recurrent layers to be run as a whole by a library of the backend.
typedef struct px_recurrent_net {
  const char *mode;  // as in the op recurrent_layer
  int dtype, layers, directions;
  bool has_biases, projected, tf32;
  int64_t input, hidden, width;  // row sizes: of the input, the cell, and the output
  int64_t times, batch;
  const int64_t *counts;  // sequences at each time step, non-increasing; NULL: always `batch`
} px_recurrent_net;
// Memory of such a stack, in bytes: its weights, in one allocation, and the data kept for backward.
typedef struct px_recurrent_sizes {
  size_t weights, kept;
} px_recurrent_sizes;

// Operands of the kernel tiled_attention, with four dimensions; attn_mask may be NULL. Of output
// only the strides count. The mask is bool or of query's dtype. A backend that accepts the operands
// sets adds_mask if it needs a mask of query's dtype without infinities, whatever mask was passed.
typedef struct px_attention_call {
  const px_operand *query, *key, *value, *attn_mask, *output;
  double dropout_p;
  bool is_causal, backward;
  bool adds_mask;  // output
} px_attention_call;

// The function table of a backend. `device` is an index; streams and events are the backend's
// handles. A stream is never NULL: the core makes the default stream of each device with
// `stream_new`.
typedef struct px_backend {
  uint32_t size, abi;
  const char *name;     // "sim"
  px_device_type type;  // several backends may serve one type; the first one with devices is used
  // Returns the number of devices, or 0, without creating a context. Negative if the environment is
  // invalid: PX_PROBE_DUPLICATE, or PX_PROBE_ERROR with the error recorded.
  int (*probe)(void);
  // Creates the context of a device; called once, before all functions below.
  px_status (*open)(int device);
  px_status (*properties)(int device, px_device_properties *out);
  px_status (*memory_info)(int device, size_t *free, size_t *total);
  px_status (*synchronize)(int device);
  px_fault_slot *(*fault_slot)(int device);
  // Raw memory. Out of memory, `alloc` fails with PX_OUT_OF_MEMORY and sets *out to NULL. `release`
  // waits for work using the memory.
  px_status (*alloc)(int device, size_t bytes, void **out);
  void (*release)(int device, void *memory);
  px_status (*host_alloc)(size_t bytes, void **out);  // page-locked
  void (*host_release)(void *memory);
  bool (*can_access_peer)(int from, int to);
  px_status (*enable_peer)(int from, int to);
  // Streams. Work of one stream runs in order; streams are not ordered with each other. copy and
  // fill queue work and return. A copy from pageable host memory has read it on return, and a copy
  // to pageable host memory is complete. stream_wait makes later work of `stream` wait for the
  // event's latest record.
  px_status (*stream_new)(int device, int priority, void **out);
  void (*stream_release)(int device, void *stream);
  void (*priority_range)(int *least, int *greatest);
  px_status (*stream_query)(void *stream, bool *out);
  px_status (*stream_synchronize)(void *stream);
  px_status (*stream_wait)(void *stream, void *event);
  px_status (*copy)(void *stream, const px_copy *copy);
  px_status (*fill)(void *stream, void *memory, int value, size_t bytes);
  px_status (*host_call)(void *stream, void (*fn)(void *), void *argument);
  // Events. The latest record counts. flags: bit 0, the event records the time (PX_EVENT_TIMING
  // ...). event_elapsed returns milliseconds. Releasing a stream or event does not cancel issued
  // work.
  px_status (*event_new)(int device, unsigned flags, void **out);
  void (*event_release)(int device, void *event);
  px_status (*event_record)(void *event, void *stream);
  px_status (*event_query)(void *event, bool *out);
  px_status (*event_synchronize)(void *event);
  px_status (*event_elapsed)(void *start, void *end, float *out);
  // Kernels. find returns NULL for an unknown name. launch queues launch->kernel on the stream.
  px_kernel (*find)(const char *name);
  px_status (*launch)(void *stream, const px_launch *launch);
  // For tests: translates a device address to a host address for reading and writing; NULL if there
  // is none.
  void *(*peek)(int device, void *memory);
  // Returns the version of a library used by the backend, loading it if necessary; 0 if it was not
  // found.
  int64_t (*library)(const char *name);
  // Lists at most `capacity` processes using the device's memory. Returns their number, or 0 if
  // unknown.
  int (*processes)(int device, px_process *out, int capacity);
  // True if `launch` accepts any host function as a kernel, as those of core->host_kernels.
  // User-defined ops with CPU kernels then run on this backend, too.
  bool runs_host_kernels;
  // Sharing with other processes; NULL if not supported. memory_share returns the handle of the
  // allocation containing `memory`, always the same one, and the offset of `memory` in it.
  // memory_open maps such an allocation of another process and returns its size; the core opens
  // each handle once. memory_close unmaps it, after waiting for work using it. event_share takes
  // events with bit 2 of the flags (PX_EVENT_INTERPROCESS). An event from event_open may be
  // recorded, too; waits in any process refer to the latest record of all. event_release releases
  // it.
  px_status (*memory_share)(int device, void *memory, px_ipc_handle *out, size_t *offset);
  px_status (*memory_open)(int device, const px_ipc_handle *handle, void **out, size_t *bytes);
  void (*memory_close)(int device, void *memory);
  px_status (*event_share)(void *event, px_ipc_handle *out);
  px_status (*event_open)(int device, const px_ipc_handle *handle, void **out);
  // For queries before a fork, if `probe` starts a driver that a forked child could not use.
  // probe_forksafe returns the number of devices or PX_PROBE_UNKNOWN. match_forksafe is true if a
  // device matches a name of CUDA_VISIBLE_DEVICES: "GPU-" or "MIG-" and the start of a uuid. NULL:
  // `probe` is used.
  int (*probe_forksafe)(void);
  bool (*match_forksafe)(int device, const char *name, size_t length);
  // True if the first launch of a kernel may block until earlier work of its device is done, as
  // with lazy loading of code by the driver. The core then waits before such a launch, so the wait
  // can be interrupted. NULL: false.
  bool (*loads_late)(void);
  // Reads a current metric of the device; false if unknown. NULL: no metrics.
  bool (*metric)(int device, px_metric metric, int64_t *out);
  // True if the kernels recurrent_whole, recurrent_whole_back and recurrent_whole_weights support
  // the stack. If so and `sizes` is not NULL, stores the memory sizes in *sizes and the offset of
  // each parameter in the weights, in elements, in `offsets`. The order is w_ih, w_hh, b_ih, b_hh,
  // w_hr for each layer and direction, without absent ones. NULL: not supported.
  bool (*recurrent_plan)(int device, const px_recurrent_net *net, px_recurrent_sizes *sizes,
                         int64_t *offsets);
  // Validates a foreign stream handle for a device and returns its priority. NULL: foreign streams
  // are not supported.
  px_status (*stream_adopt)(int device, void *stream, int *priority);
  // Graphs; NULL if not supported. Work given to a stream between capture_begin and capture_end is
  // recorded and does not run: launches, copies of device and page-locked memory, fills, host
  // calls, and records and waits, which become edges. A stream waiting for an event recorded in the
  // capture joins it until capture_end. capture_end returns the recorded work, or drops it if `out`
  // is NULL; it ends the capture also on failure. During a capture, memory, events and streams can
  // be created and queried as usual: the core enforces the rules for programs. graph_launch queues
  // one run: it begins in stream order, and later work of the stream waits for its end. The core
  // queues runs of a graph from one thread at a time and orders them: a run begins after the
  // previous one ended. Releasing a graph does not cancel its runs.
  px_status (*capture_begin)(void *stream);
  px_status (*capture_end)(void *stream, void **out);
  px_status (*graph_launch)(void *stream, void *graph);
  void (*graph_release)(int device, void *graph);
  // Returns a sentence naming the reason why the kernels tiled_attention and, if `backward`,
  // tiled_attention_backward do not support the operands, or NULL if they do. The text is valid
  // until the thread's next call. A NULL function: not supported.
  const char *(*attention_refusal)(int device, px_attention_call *call);
  // Graphs kept as captured; NULL if not supported. capture_keep ends a capture as capture_end does
  // and returns a template. graph_make instantiates it for graph_launch, any number of times.
  // graph_print writes it to a file in Graphviz's language. graph_drop releases it.
  px_status (*capture_keep)(void *stream, void **out);
  px_status (*graph_make)(int device, void *kept, void **out);
  px_status (*graph_print)(int device, void *kept, const char *path);
  void (*graph_drop)(int device, void *kept);
  // Queues independent launches, as `launch` would. Launches of one kernel may become one launch of
  // the device. On failure, any of them may have been queued. NULL: the core calls `launch` for
  // each.
  px_status (*launch_all)(void *stream, const px_launch *const *launches, int count);
  // Returns the number of cached Fourier plans of a device. A `capacity` of 0 or more sets the size
  // of the cache, PX_FFT_PLANS by default; least recently used plans are evicted. NULL: no cache.
  int64_t (*fft_plans)(int device, int64_t capacity);
  // Virtual memory: address ranges backed by pages of device memory, or of page-locked memory
  // (device -1); NULL if not supported. page_size returns the bytes of a page, or 0 without
  // support. range_new reserves `bytes` of addresses, a multiple of the page size, without backing;
  // it is never released. pages_map backs all of [at, at + bytes), previously unbacked, with new
  // pages, for the device and its peers; it fails with PX_OUT_OF_MEMORY and maps none if there are
  // too few. pages_unmap returns pages, which several calls may have mapped; the core ensures that
  // no device uses them. shares_pages: memory_share also accepts mapped pages.
  size_t (*page_size)(int device);
  px_status (*range_new)(int device, size_t bytes, void **out);
  px_status (*pages_map)(int device, void *at, size_t bytes);
  void (*pages_unmap)(int device, void *at, size_t bytes);
  bool shares_pages;
  // Virtual time in nanoseconds: of an event's latest record, which is done; if `event` is NULL, of
  // a stream, after the work it has run so far; if both are NULL, of the host thread driving the
  // device. False if time is real. NULL: real time.
  bool (*clock)(int device, void *stream, void *event, int64_t *out);
  // Returns the device holding memory of any library, or -1 if it is unknown. NULL: unknown.
  int (*memory_device)(const void *memory);
  // Page-lock host memory where it is, for all devices. host_unregister waits for work using it.
  // PX_ACCELERATOR with the driver's code 712 if some of it is registered already, 713 if no range
  // starts at `memory`; PX_VALUE for memory of host_alloc. NULL: not supported.
  px_status (*host_register)(void *memory, size_t bytes);
  px_status (*host_unregister)(void *memory);
  /* entries above: ABI 1 */
} px_backend;

// The one exported symbol of a backend. Returns NULL if `core` has another ABI.
typedef const px_backend *(*px_backend_entry_fn)(const px_core *core);
#define PX_BACKEND_ENTRY "px_backend_entry"

#ifdef __cplusplus
}
#endif
