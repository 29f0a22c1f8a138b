// SPDX-License-Identifier: Apache-2.0
// Shared header of the Python extension: used by its own files and by the bindings of further
// layers (nn, optim, data, parallel).
//
// Conventions:
// - Functions returning PyObject * return a new reference, or NULL with an exception set.
// - `int` results are 0, or -1 with an exception set.
// - ext_wrap takes ownership of the tensor reference.
// - The GIL is held everywhere except inside EXT_NOGIL(...). Callbacks from the core acquire it.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <structmember.h>
#include "phlox/autograd.h"
#include "phlox/event.h"
#include "phlox/memory.h"
#include "phlox/op.h"
#include "phlox/random.h"
#include "phlox/vmap.h"

#if PY_VERSION_HEX < 0x030D0000
#define Py_HashPointer _Py_HashPointer
#define Py_IsFinalizing _Py_IsFinalizing
#define PyThreadState_GetUnchecked _PyThreadState_UncheckedGet
#endif

// ---- the GIL in callbacks from the core (gil.c)
typedef struct ext_gil {
  struct _pthread_cleanup_buffer guard;
  PyGILState_STATE state;
  bool held;  // by an outer scope of the thread
} ext_gil;
// Takes the GIL until ext_gil_give. Fails once the interpreter is shutting down: callers without a
// result leak their objects. A thread ended by CPython meanwhile stops, with its stack intact.
px_status ext_gil_take(ext_gil *gil);
void ext_gil_give(ext_gil *gil);
bool ext_gil_held(void);   // by the calling thread
bool ext_is_ending(void);  // true from the start of Python's shutdown
// The interpreter of the module has ended. An embedding program may have started another: threads
// of the first stop when they would take its GIL. ext_gil_watch sets it at the end.
extern bool ext_has_ended;  // atomic
int ext_gil_watch(void);
void ext_stop_thread(void) __attribute__((noreturn));
static inline void ext_gil_restore(PyThreadState *state) {
  if (__builtin_expect(__atomic_load_n(&ext_has_ended, __ATOMIC_RELAXED), 0)) ext_stop_thread();
  PyEval_RestoreThread(state);
}

// ---- errors
// Raises the error in the calling thread's px_error record. Always NULL (of any pointer type).
PX_COLD void *ext_raise(void);
// Marks the raising functions cold (PX_COLD): CPython's headers do not.
__typeof__(PyErr_Format) PyErr_Format __attribute__((cold));
__typeof__(PyErr_SetString) PyErr_SetString __attribute__((cold));
__typeof__(PyErr_NoMemory) PyErr_NoMemory __attribute__((cold));
// Moves the pending Python exception into the core's error record (in callbacks from the core).
px_status ext_error_from_python(void);
// Interrupt check of the main thread: runs Python's signal handlers and returns their exception as
// such an error.
px_status ext_run_handlers(void);
// Takes the pending exception as one normalized object, or sets one (all CPython versions).
PyObject *ext_exception_take(void);
void ext_exception_set(PyObject *exception_take);
// Drops a Python reference held by the core. Callable on any thread, with or without the GIL.
void ext_release(void *object_take);
extern PyObject *ext_AcceleratorError, *ext_OutOfMemoryError, *ext_LinAlgError;

// True once the core has requested a source line. ext_site_lend lends it the current line and
// returns the line lent before.
extern bool ext_sites_enabled;
px_site ext_site_lend(void);
// True if a path is inside the folder of the package. Raises nothing.
bool ext_is_own_file(PyObject *file);

#define EXT_TRY(call) \
  do { \
    if ((call) != PX_OK) return ext_raise(); \
  } while (0)
#define EXT_TRY_INT(call) \
  do { \
    if ((call) != PX_OK) return ext_raise(), -1; \
  } while (0)
// Iterations of a long loop between two checks for signals.
enum { EXT_SIGNAL_CHECK_INTERVAL = 1 << 16 };
// Runs a px_status expression without the GIL; use it for every call that can block. If reports
// name source lines, the core is lent the current line for the duration (call_site.c).
#define EXT_NOGIL(call) \
  __extension__({ \
    bool ext_lend_ = ext_sites_enabled; \
    px_site ext_site_ = {0}; \
    if (__builtin_expect(ext_lend_, 0)) ext_site_ = ext_site_lend(); \
    PyThreadState *ext_state_ = PyEval_SaveThread(); \
    px_status ext_status_ = (call); \
    ext_gil_restore(ext_state_); \
    if (__builtin_expect(ext_lend_, 0)) (void)px_site_lend(ext_site_); \
    ext_status_; \
  })
// Runs a px_status expression that can block, and raises on failure.
#define EXT_WAIT(call) EXT_TRY(EXT_NOGIL(call))
// None, or raises: ends a function without a result.
static inline PyObject *ext_none(px_status status) {
  return status == PX_OK ? Py_NewRef(Py_None) : ext_raise();
}
// 0, or -1 after raising: ends an `int` function.
static inline int ext_zero(px_status status) { return status == PX_OK ? 0 : (ext_raise(), -1); }
// None, or NULL if a call that sets the exception has failed.
static inline PyObject *ext_none_unless(bool failed) { return failed ? NULL : Py_NewRef(Py_None); }
#define EXT_FAIL(exception, ...) return (void *)PyErr_Format(exception, __VA_ARGS__)
#define EXT_FAIL_INT(exception, ...) return PyErr_Format(exception, __VA_ARGS__), -1
#define EXT_LENGTH(array) ((int)(sizeof(array) / sizeof((array)[0])))
// True if `words` contains `word` followed by a space, "; " or "=".
bool ext_has_word(const char *words, const char *word);

// An owned Python reference, dropped at the end of the scope.
static inline void ext_decref_at(PyObject **place) { Py_XDECREF(*place); }
#define EXT_OWNED __attribute__((cleanup(ext_decref_at), unused)) PyObject
static inline PyObject *ext_moved(PyObject **place) {
  PyObject *object = *place;
  *place = NULL;
  return object;
}

// ---- conversions from Python. In the _given forms None and NULL mean "not given".
typedef struct ext_ints {
  int64_t items[PX_MAX_DIMS * 2];
  int count;
} ext_ints;
// Narrows a device index to the core's range; out-of-range indexes stay out of range.
static inline int ext_clamp_device_index(int64_t index) {
  return index < 0 ? -1 : index > INT16_MAX ? INT16_MAX : (int)index;
}
// The UTF-8 text of a str, borrowed. ValueError for an embedded null character, where C would cut
// it.
const char *ext_text(PyObject *object);
// The text of a name to look up. NULL, without an exception, if no name in C can equal it.
const char *ext_lookup_text(PyObject *object);
// A text of C as a str. Bytes that are not UTF-8 are escaped as \xff.
PyObject *ext_str(const char *text);
int ext_to_bool(PyObject *object, bool fallback);  // 0, 1, or -1
int ext_to_int(PyObject *object, int64_t *out);    // an int or an object with __index__
int ext_to_double(PyObject *object, double *out);
int ext_to_scalar(PyObject *object, px_scalar *out);
int ext_to_ints(PyObject *object, ext_ints *out);  // an int or a sequence of them
int ext_to_dtype(PyObject *object, px_dtype *out);
// A supported memory format or layout; NotImplementedError for others.
typedef struct ext_format {
  const char *name;  // as ops expect it; NULL: not given
} ext_format;
typedef struct ext_layout {
  bool strided;
} ext_layout;
int ext_to_format(PyObject *object, void *out);
int ext_to_layout(PyObject *object, void *out);
int ext_no_names(PyObject *names);  // NotImplementedError unless it is None
int ext_to_device(PyObject *object, px_device *out);
// Device index of an argument of torch.cuda functions: None (the current device), int, str or
// device.
int ext_to_cuda_index(PyObject *object, int *out);
// Device index of an argument of torch.cuda.device; -1 for a device without an index.
int ext_to_scope_index(PyObject *object, int *out);
bool ext_is_number(PyObject *object);  // bool, int, float or a NumPy scalar
bool ext_is_storage(PyObject *object);
static inline bool ext_is_none(PyObject *object) { return !object || object == Py_None; }
// Name of an object's type for messages.
const char *ext_type_name(PyObject *object);

// ---- tensors
typedef struct ext_tensor_object {
  PyObject_HEAD px_tensor *tensor;
  PyObject *dict, *weak;
  int32_t kept;  // number of module entries holding this object's tensor
  signed char sole;
} ext_tensor_object;
// The base type has the operators and attributes; its two subclasses are created at start-up.
extern PyTypeObject ext_TensorBaseType, *ext_TensorType, *ext_ParameterType;
static inline bool ext_is_tensor(PyObject *object) {
  return Py_IS_TYPE(object, ext_TensorType) || Py_IS_TYPE(object, ext_ParameterType) ||
         PyObject_TypeCheck(object, &ext_TensorBaseType);
}
static inline px_tensor *ext_tensor(PyObject *object) {
  return ((ext_tensor_object *)object)->tensor;
}
// True if the object's class is Tensor or Parameter itself, not a user-defined subclass.
static inline bool ext_is_plain(PyObject *object) {
  return Py_IS_TYPE(object, ext_TensorType) || Py_IS_TYPE(object, ext_ParameterType);
}
// True if objects of other classes of tensors were made.
extern bool ext_has_subclasses;
// True for a Parameter, and for an object of another class that nn.Parameter made.
bool ext_is_parameter(PyObject *object);
// The tensor of an object as an object of another class: a view, or the tensor itself if `spent`
// (the object has no other owner and is about to be destroyed).
PyObject *ext_as_class(PyObject *object, PyTypeObject *cls, bool spent);
PyObject *ext_tensor_text(PyObject *self, const char *prefix);  // usual prefix: "tensor("
// The tensor's existing Python object, or a new one. None for NULL.
PyObject *ext_wrap(px_tensor *tensor_take);
// The tensor returned by a call, or its error: ext_result(px_batch(&made, x, 0), &made).
static inline PyObject *ext_result(px_status status, px_tensor **made) {
  return status == PX_OK ? ext_wrap(*made) : ext_raise();
}
// A complex number as a tensor with the type promotion of a Python number.
PyObject *ext_complex(PyObject *number);
// The value of a complex number for a real dtype, a new reference. Fails for an imaginary part.
PyObject *ext_real_number(PyObject *number, px_dtype dtype);
bool ext_is_complex(PyObject *object);         // Python's complex numbers, and NumPy's
bool ext_is_complex_tensor(PyObject *object);  // without dimensions
PyObject *ext_wrap_as(PyTypeObject *type, px_tensor *tensor_take);
PyObject *ext_wrap_borrowed(const px_tensor *tensor);
PyObject *ext_wrap_list(px_list *list_take);  // a tuple
// Borrows the tensor of an argument; TypeError "NAME(): argument 'arg' must be Tensor, not str".
px_tensor *ext_need_tensor(PyObject *object, const char *function, const char *argument);
// A tensor from any data accepted by torch.tensor. New reference.
px_tensor *ext_tensor_from(PyObject *data, px_dtype dtype, px_device device);
// The same sharing the memory of data if possible, and with autograd history.
PyObject *ext_as_tensor(PyObject *data, px_dtype dtype, px_device device);
// The items of a sequence as a list or tuple safe from concurrent changes: a user's list can be
// modified by its own items during conversion, or by another thread.
PyObject *ext_items(PyObject *object, const char *text);
// All tensors of a sequence returned by ext_items (NULL: it failed). Takes ownership of it.
typedef struct ext_tensors {
  PyObject *owner;
  px_tensor **items;
  Py_ssize_t count;
} ext_tensors;
#define EXT_TENSORS __attribute__((cleanup(ext_tensors_end))) ext_tensors
int ext_take_tensors(ext_tensors *out, PyObject *sequence_take, const char *function,
                     const char *argument);
// Tensors of a sequence (or of one tensor); NULL for None.
int ext_to_tensors(ext_tensors *out, PyObject *object, const char *function);
int ext_room_for_tensors(ext_tensors *out, Py_ssize_t count);  // NULLs
void ext_tensors_end(ext_tensors *tensors);

// ---- sharded tensors (dtensor.c)
extern PyTypeObject *ext_ShardedParameterType;  // class of sharded parameters; NULL: none yet
bool ext_is_sharded(PyObject *object);
// Wraps a tensor belonging to `like`: as a sharded tensor if `like` is one of the same sizes.
PyObject *ext_wrap_like(PyObject *like, px_tensor *tensor);
// Makes the parameter of a leaf over `data`, of the class registered for data's class. NULL before
// any class is registered.
extern PyObject *(*ext_parameter_like)(PyObject *data, px_tensor *leaf);
// Norm over all ranks of tensors, or of their gradients. *out is NULL if none is sharded.
int ext_sharded_norm(px_tensor **out, const ext_tensors *g, bool gradients, double norm_type,
                     bool error_if_nonfinite);
// Combines the inf/NaN flags of gradients (by device) over all ranks: a flag on any rank counts.
int ext_sharded_found(PyObject *grads, PyObject *found);

// ---- tensors within lists, tuples and dicts (nested_tensors.c)
// Returns `value` with each tensor replaced by fn(tensor, context), which is a new reference.
typedef PyObject *ext_mapping(PyObject *tensor, void *context);
PyObject *ext_map_tensors(PyObject *value, ext_mapping *fn, void *context);
// Casts the floating-point tensors to a dtype.
PyObject *ext_cast_tensors(PyObject *value, px_dtype dtype);
// All tensors, including those in dataclasses, in a new list.
PyObject *ext_collect_tensors(PyObject *values);
// Items as an object of the type of sequence `model`, which may be a named tuple.
PyObject *ext_sequence_like(PyObject *model, PyObject *items);

// function(*args, **kwargs) for user-supplied arguments. NULL means none; for kwargs None does too.
PyObject *ext_apply(PyObject *function, PyObject *args, PyObject *kwargs);

// ---- __torch_function__ (override.c)
extern int ext_mode_count;  // active modes of all threads
bool ext_mode_active(void);
int ext_mode_push(PyObject *mode);
PyObject *ext_mode_pop(void);
// Adjusts the calling thread's disable counts of subclass overrides and of modes.
void ext_overrides_off(int classes, int modes);
extern PyObject *ext_disabled_function;  // __torch_function__ of classes without overrides
// True if an object has a __torch_function__ override; for several, also if an item of a list does.
bool ext_overrides(PyObject *object);
bool ext_any_overrides(PyObject *const *args, Py_ssize_t count);
// True if a tensor's call is overridden by its class or by a mode.
static inline bool ext_is_overridden(PyObject *self) {
  return __builtin_expect(!ext_is_plain(self) || ext_mode_count, 0) &&
         (ext_mode_active() || ext_overrides(self));
}
// Calls the overrides. Further arguments of a slot may be NULL.
PyObject *ext_call_override(PyObject *function, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames);
PyObject *ext_call_slot_override(const char *name, PyObject *self, PyObject *other,
                                 PyObject *third);

// ---- other values
PyObject *ext_device(px_device device);
PyObject *ext_dtype(px_dtype dtype);  // None for PX_DTYPE_NONE
PyObject *ext_size(int ndim, const int64_t *sizes);
PyObject *ext_tuple(int count, const int64_t *values, int64_t factor);  // of values[i] * factor
PyObject *ext_scalar(px_scalar scalar);
// px_tensor_item; releases the GIL if the call can block.
__attribute__((warn_unused_result)) px_status ext_item(px_scalar *out, const px_tensor *t);
bool ext_is_device(PyObject *object);
bool ext_is_dtype(PyObject *object);
PyObject *ext_generator(px_generator *generator_take);
// Sets *out to NULL for NULL and None, else to a borrowed generator.
int ext_to_generator(PyObject *object, px_generator **out);
PyObject *ext_stream(px_stream *stream_take);
PyObject *ext_event(px_event *event_take);
// Functions of a CUDAPluggableAllocator; NULL for None. `who` names the caller in messages.
int ext_pluggable_allocator(PyObject *allocator, const char *who, const px_memory_allocator **out);
PyObject *ext_graph_pool(px_graph_pool pool);          // a tuple (graphs.c)
int ext_to_stream(PyObject *object, px_stream **out);  // borrowed
extern PyTypeObject ext_DeviceType, ext_DtypeType, ext_SizeType, ext_LayoutType,
    ext_MemoryFormatType, ext_GeneratorType, ext_StreamType, ext_EventType;

PyObject *ext_node(px_node *node);  // borrowed node; None for NULL
// Moves and converts self. Returns self if nothing changes and no copy was requested.
PyObject *ext_convert(PyObject *self, px_device device, px_dtype dtype, bool non_blocking,
                      bool copy);
// Handle of a hook: calling remove() on it calls `remove` with the target; `end` releases the
// target.
PyObject *ext_handle(void *target_take, int64_t id, void (*remove)(void *target, int64_t id),
                     void (*end)(void *target));
// Handle of a hook in a dict. Its new id is also a key of `more` dicts. References all dicts
// weakly.
PyObject *ext_hook_handle(PyObject *dict, PyObject *const *more, Py_ssize_t count, int64_t *id);
// Adds a Python hook to a tensor and returns its handle.
PyObject *ext_tensor_register_hook(PyObject *self, PyObject *hook, bool accumulated);
// torch.autograd.backward for tensors already in arrays.
PyObject *ext_backward(int count, px_tensor *const *outputs, px_tensor *const *gradients,
                       signed char retain_graph, bool create_graph, PyObject *inputs);
int ext_dtype_of_type_name(const char *text, px_dtype *dtype, px_device *device);  // 1 if it is one
bool ext_is_type_object(PyObject *object);  // torch.FloatTensor and the like
void ext_type_object(PyObject *object, px_dtype *dtype, px_device *device);

// ---- calling ops by name
// EXT_OP("add"): the op's descriptor, looked up once. NULL with NotImplementedError if missing.
const px_op *ext_op_lookup(const char *name);
#define EXT_OP(op_name) \
  __extension__({ \
    static const px_op *ext_op_; \
    if (!ext_op_) ext_op_ = ext_op_lookup(op_name); \
    ext_op_; \
  })
// A named argument. Calls set all others to their defaults.
typedef struct ext_named {
  const char *name;
  px_value value;
} ext_named;
PyObject *ext_op_named(const px_op *op, px_call_mode mode, int count, const ext_named *named);
// First result of the op as a tensor. New reference.
px_tensor *ext_op_tensor(const px_op *op, px_call_mode mode, int count, const ext_named *named);
// Python-level op (with its overloads) by namespace and name: 'm' method, 'f' function, 'n'
// nn.functional. Borrowed; NULL without an exception if missing.
PyObject *ext_op_object(char space, const char *name);
// Callable of a registered op ("toys::squareplus", or "toys::squareplus_" for in-place). Borrowed;
// NULL if missing, with or without an exception.
PyObject *ext_op_registered(const char *name);
// Arguments of a call as Python objects: a tuple, and a dict of the keyword arguments.
int ext_objects_of(const px_op *op, const px_value *args, PyObject **tuple, PyObject **options);
// torch.ops.aten.NAME; NULL if missing, with or without an exception.
PyObject *ext_aten_packet(PyObject *name);
PyObject *ext_aten_counted(const char *name);  // of an op with a FLOP count
// Makes the requested methods and functions of ops registered since the last call.
int ext_ops_update(void);

// ---- the module
// Creates everything declared with declare.h in the module.
int ext_declare_all(PyObject *module);
// Submodule of a module, created if missing: "cuda" of torch. Borrowed.
PyObject *ext_submodule(PyObject *parent, const char *name);
int ext_add(PyObject *module, const char *name, PyObject *object_take);
int ext_add_type(PyObject *module, const char *name, PyTypeObject *type);
PyObject *ext_extension_attr(const char *name);  // attribute of phlox._C
// Imports an attribute of a module, or calls it: ext_call_from("copy", "copy", "(O)", object).
PyObject *ext_import(const char *module, const char *name);
PyObject *ext_call_from(const char *module, const char *name, const char *format, ...);
// Sets an attribute to a new value. Takes ownership; -1 if the value is NULL.
int ext_setattr_new(PyObject *object, const char *name, PyObject *value_take);
// Makes messages name a heap type without its module, like PyTorch's for Python classes.
void ext_short_name(PyTypeObject *heap_type);

// Communicator of a process group, borrowed, or TypeError (group.c).
struct px_comm *ext_comm(PyObject *object);
// Drops a core reference without the GIL: the destructor joins threads that may need the GIL.
void ext_release_nogil(void *core_take);

// Event of a torch.cuda.Event, borrowed.
int ext_to_event(PyObject *object, px_event **out);

// ---- methods of Tensor used by other files
// Copies the tensor to pinned memory. New reference.
px_tensor *ext_pin(px_tensor *tensor);
// Indexing (index.c); the slots of Tensor.
PyObject *ext_getitem(PyObject *self, PyObject *index);
int ext_setitem(PyObject *self, PyObject *index, PyObject *value);
// Comparison (number.c).
PyObject *ext_richcompare(PyObject *self, PyObject *other, int op);

// ---- NumPy-like arrays, by __array_interface__ (numpy.c)
typedef struct ext_array {
  void *data;
  px_dtype dtype;
  int ndim;
  int64_t sizes[PX_MAX_DIMS], strides[PX_MAX_DIMS];  // in elements
  size_t bytes;                                      // extent from data
  bool readonly;
} ext_array;
bool ext_is_array(PyObject *object);
int ext_array_read(PyObject *object, ext_array *out);
px_tensor *ext_tensor_from_array(PyObject *object);  // shares the memory
// Objects of other libraries: such arrays, and objects with __dlpack__ or __cuda_array_interface__.
// ext_tensor_sharing returns a tensor over the memory of one, or a tensor itself. warn: of a
// read-only array, once.
bool ext_is_foreign(PyObject *object);
px_tensor *ext_tensor_sharing(PyObject *object, bool warn);

#include "declare/declare.h"
