// SPDX-License-Identifier: Apache-2.0
// The Python extension's own header: what its files share, and what bindings of further layers
// (nn, optim, data, parallel) build on.
//
// Conventions. Functions that give a PyObject * give a new reference, or NULL with an exception
// set. `int` results are 0, or -1 with an exception set. ext_wrap takes the tensor's reference. The
// GIL is held everywhere but inside EXT_NOGIL(...), and callbacks from the core take it with
// EXT_GIL_ENSURE.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include "phlox/autograd.h"
#include "phlox/event.h"
#include "phlox/memory.h"
#include "phlox/op.h"
#include "phlox/random.h"
#include "phlox/vmap.h"

// ---- errors
// Raises what the calling thread's px_error record holds; always NULL (of any pointer type).
PX_COLD void *ext_raise(void);
// What raises is cold (PX_COLD), which CPython's headers do not say.
__typeof__(PyErr_Format) PyErr_Format __attribute__((cold));
__typeof__(PyErr_SetString) PyErr_SetString __attribute__((cold));
__typeof__(PyErr_NoMemory) PyErr_NoMemory __attribute__((cold));
// Turns the pending Python exception into the core's record (in callbacks from the core).
px_status ext_foreign(void);
// The check of the main thread: what a handler of a signal raises is such an error.
px_status ext_run_handlers(void);
// Takes the pending exception as one normalized object, or sets one (both versions of CPython).
PyObject *ext_exception_take(void);
void ext_exception_give(PyObject *exception_take);
// Drops a reference to a Python object that the core held: on any thread, with or without the GIL.
void ext_release(void *object_take);
extern PyObject *ext_AcceleratorError, *ext_OutOfMemoryError, *ext_LinAlgError;

// Whether the core has ever asked for the line that runs; lends it the line, and gives what was
// lent before.
extern bool ext_sites_asked;
px_site ext_site_lend(void);

#define EXT_TRY(call) \
  do { \
    if ((call) != PX_OK) return ext_raise(); \
  } while (0)
#define EXT_TRY_INT(call) \
  do { \
    if ((call) != PX_OK) return ext_raise(), -1; \
  } while (0)
// How many steps a long loop makes between two looks for signals.
enum { EXT_LOOK = 1 << 16 };
// Runs an expression of type px_status without the GIL: whatever can block. If reports may name
// lines, the core is lent the line for that time, since Python cannot be asked then (site.c).
#define EXT_NOGIL(call) \
  __extension__({ \
    bool ext_told_ = ext_sites_asked; \
    px_site ext_site_ = {0}; \
    if (__builtin_expect(ext_told_, 0)) ext_site_ = ext_site_lend(); \
    PyThreadState *ext_state_ = PyEval_SaveThread(); \
    px_status ext_status_ = (call); \
    PyEval_RestoreThread(ext_state_); \
    if (__builtin_expect(ext_told_, 0)) (void)px_site_lend(ext_site_); \
    ext_status_; \
  })
// Checks a px_status expression that can block.
#define EXT_WAIT(call) EXT_TRY(EXT_NOGIL(call))
// None, or the error: the last line of what has no result.
static inline PyObject *ext_none(px_status status) {
  return status == PX_OK ? Py_NewRef(Py_None) : ext_raise();
}
// 0, or -1 with the error: of what gives no object.
static inline int ext_zero(px_status status) { return status == PX_OK ? 0 : (ext_raise(), -1); }
// None, or NULL where what raises has failed.
static inline PyObject *ext_none_unless(bool failed) { return failed ? NULL : Py_NewRef(Py_None); }
#define EXT_FAIL(exception, ...) return (void *)PyErr_Format(exception, __VA_ARGS__)
#define EXT_FAIL_INT(exception, ...) return PyErr_Format(exception, __VA_ARGS__), -1
#define EXT_LENGTH(array) ((int)(sizeof(array) / sizeof((array)[0])))
// Whether a text of words, with a space, "; " or "=" behind them, has a word.
bool ext_has_word(const char *words, const char *word);

// An owned Python reference that is dropped at the end of the scope.
static inline void ext_drop_at(PyObject **place) { Py_XDECREF(*place); }
#define EXT_OWNED __attribute__((cleanup(ext_drop_at), unused)) PyObject
static inline PyObject *ext_moved(PyObject **place) {
  PyObject *object = *place;
  *place = NULL;
  return object;
}

// ---- conversions from Python. The _given forms: None and NULL mean "not given".
typedef struct ext_ints {
  int64_t items[PX_MAX_DIMS * 2];
  int count;
} ext_ints;
// The index of a device as the core takes it; what is out of range stays so.
static inline int ext_narrow(int64_t index) {
  return index < 0 ? -1 : index > INT16_MAX ? INT16_MAX : (int)index;
}
int ext_to_bool(PyObject *object, bool fallback);  // 0, 1, or -1
int ext_to_int(PyObject *object, int64_t *out);    // an int, or what has __index__
int ext_to_double(PyObject *object, double *out);
int ext_to_scalar(PyObject *object, px_scalar *out);
int ext_to_ints(PyObject *object, ext_ints *out);  // an int or a sequence of them
int ext_to_dtype(PyObject *object, px_dtype *out);
// A memory format, and a layout that Phlox has; NotImplementedError for others.
typedef struct ext_format {
  const char *name;  // as ops take it; NULL: none was given
} ext_format;
typedef struct ext_layout {
  bool strided;
} ext_layout;
int ext_to_format(PyObject *object, void *out);
int ext_to_layout(PyObject *object, void *out);
int ext_no_names(PyObject *names);  // NotImplementedError unless it is None
int ext_to_device(PyObject *object, px_device *out);
// What torch.cuda functions take: None (the current device), int, str, device; gives the index.
int ext_to_cuda_index(PyObject *object, int *out);
// What torch.cuda.device takes; -1 where it names a device without an index.
int ext_to_scope_index(PyObject *object, int *out);
bool ext_is_number(PyObject *object);  // bool, int, float or a NumPy scalar
bool ext_is_storage(PyObject *object);
static inline bool ext_is_none(PyObject *object) { return !object || object == Py_None; }
// The name of an object's type for messages.
const char *ext_type_name(PyObject *object);

// ---- tensors
typedef struct ext_tensor_object {
  PyObject_HEAD px_tensor *tensor;
  PyObject *dict, *weak;
  int32_t kept;  // how often modules that keep this object have the tensor
  signed char sole;
} ext_tensor_object;
// The base has the operators and attributes; the classes over it are made at start.
extern PyTypeObject ext_TensorBaseType, *ext_TensorType, *ext_ParameterType;
static inline bool ext_is_tensor(PyObject *object) {
  return Py_IS_TYPE(object, ext_TensorType) || Py_IS_TYPE(object, ext_ParameterType) ||
         PyObject_TypeCheck(object, &ext_TensorBaseType);
}
static inline px_tensor *ext_tensor(PyObject *object) {
  return ((ext_tensor_object *)object)->tensor;
}
// Whether it is of no class of a program's own.
static inline bool ext_is_plain(PyObject *object) {
  return Py_IS_TYPE(object, ext_TensorType) || Py_IS_TYPE(object, ext_ParameterType);
}
// The tensor of an object as one of another class: a view, or, of an object that nobody else has
// and that is about to end (`spent`), the tensor itself.
PyObject *ext_as_class(PyObject *object, PyTypeObject *cls, bool spent);
PyObject *ext_tensor_text(PyObject *self, const char *prefix);  // "tensor(" is the usual one
// The Python object of a tensor: the one it has, or a new one. NULL gives None.
PyObject *ext_wrap(px_tensor *tensor_take);
// The tensor that a call has made, or its error: ext_result(px_batch(&made, x, 0), &made).
static inline PyObject *ext_result(px_status status, px_tensor **made) {
  return status == PX_OK ? ext_wrap(*made) : ext_raise();
}
// A complex number as a tensor that promotes like one.
PyObject *ext_complex(PyObject *number);
PyObject *ext_wrap_as(PyTypeObject *type, px_tensor *tensor_take);
PyObject *ext_wrap_borrowed(const px_tensor *tensor);
PyObject *ext_wrap_list(px_list *list_take);  // a tuple
// A borrowed tensor out of an argument; TypeError "NAME(): argument 'arg' must be Tensor, not str".
px_tensor *ext_need_tensor(PyObject *object, const char *function, const char *argument);
// A tensor from anything that torch.tensor takes. New reference.
px_tensor *ext_tensor_from(PyObject *data, px_dtype dtype, px_device device);
// The items of a sequence as a list or tuple that nobody else can change: a list of the program's
// may be changed by its own items, while they are converted, or by another thread.
PyObject *ext_items(PyObject *object, const char *text);
// The tensors of a sequence (or of one tensor): `keep` owns the sequence; at most `room` of them.
int ext_to_tensors(PyObject *object, px_tensor **items, int room, const char *function,
                   PyObject **keep);
// As many tensors as a sequence has, which ext_items gave (NULL: it failed) and which owns them.
typedef struct ext_tensors {
  PyObject *owner;
  px_tensor **items;
  Py_ssize_t count;
} ext_tensors;
#define EXT_TENSORS __attribute__((cleanup(ext_tensors_end))) ext_tensors
int ext_take_tensors(ext_tensors *out, PyObject *sequence_take, const char *function,
                     const char *argument);
void ext_tensors_end(ext_tensors *tensors);

// ---- sharded tensors (dtensor.c)
extern PyTypeObject *ext_ShardedParameterType;  // of parameters; NULL: there are none
bool ext_is_sharded(PyObject *object);
// The object of a tensor that belongs to `like`: of its class, if that is sharded and of its sizes.
PyObject *ext_wrap_beside(PyObject *like, px_tensor *tensor);
// Makes the parameter of a leaf over `data`, whose class may have one of its own; NULL: none has.
extern PyObject *(*ext_parameter_like)(PyObject *data, px_tensor *leaf_take);
// The norm over all ranks, of tensors or of their gradients; *out is NULL if none is sharded.
int ext_sharded_norm(px_tensor **out, const ext_tensors *g, bool gradients, double norm_type,
                     bool error_if_nonfinite);
// What was found not to be finite in gradients, by device: that of any rank counts for all.
int ext_sharded_found(PyObject *grads, PyObject *found);

// ---- tensors within lists, tuples and dicts (within.c)
// The value with fn(tensor, context), a new reference, in the place of each tensor.
typedef PyObject *ext_mapping(PyObject *tensor, void *context);
PyObject *ext_map_tensors(PyObject *value, ext_mapping *fn, void *context);
// With its floating-point tensors in a dtype.
PyObject *ext_cast_within(PyObject *value, px_dtype dtype);
// All of them, of dataclasses too: a new list.
PyObject *ext_tensors_within(PyObject *values);
// A list of items as an object of a sequence's type, which may have named fields.
PyObject *ext_alike(PyObject *model, PyObject *items);

// function(*args, **kwargs), for arguments that a program gave: NULL and, of kwargs, None are none.
PyObject *ext_apply(PyObject *function, PyObject *args, PyObject *kwargs);

// ---- __torch_function__ (override.c)
extern int ext_mode_count;  // modes that are entered, of all threads
bool ext_mode_active(void);
int ext_mode_push(PyObject *mode);
PyObject *ext_mode_pop(void);
// Counts up and down how often this thread has switched off what classes take over, and modes.
void ext_overrides_off(int classes, int modes);
extern PyObject *ext_disabled_function;  // the __torch_function__ of classes that take over nothing
// Whether an object, or one of several or in lists among them, takes calls over.
bool ext_overrides(PyObject *object);
bool ext_any_overrides(PyObject *const *args, Py_ssize_t count);
// Whether a call of a tensor's is taken over.
static inline bool ext_is_taken(PyObject *self) {
  return __builtin_expect(!ext_is_plain(self) || ext_mode_count, 0) &&
         (ext_mode_active() || ext_overrides(self));
}
// A call as those answer who take it over. The slot's further arguments may be NULL.
PyObject *ext_ask(PyObject *function, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *ext_ask_slot(const char *name, PyObject *self, PyObject *other, PyObject *third);

// ---- other values
PyObject *ext_device(px_device device);
PyObject *ext_dtype(px_dtype dtype);  // PX_DTYPE_NONE gives None
PyObject *ext_size(int ndim, const int64_t *sizes);
PyObject *ext_tuple(int count, const int64_t *values, int64_t factor);  // of values[i] * factor
PyObject *ext_scalar(px_scalar scalar);
// px_tensor_item, without the GIL where it may wait.
__attribute__((warn_unused_result)) px_status ext_item(px_scalar *out, const px_tensor *t);
bool ext_is_device(PyObject *object);
bool ext_is_dtype(PyObject *object);
PyObject *ext_generator(px_generator *generator_take);
// NULL and None give *out = NULL (borrowed otherwise).
int ext_to_generator(PyObject *object, px_generator **out);
PyObject *ext_stream(px_stream *stream_take);
// The functions of a CUDAPluggableAllocator; NULL of None. `who` is for the message.
int ext_plugged(PyObject *allocator, const char *who, const px_memory_allocator **out);
PyObject *ext_graph_pool(px_graph_pool pool);          // graphs.c: as a tuple
int ext_to_stream(PyObject *object, px_stream **out);  // borrowed
extern PyTypeObject ext_DeviceType, ext_DtypeType, ext_SizeType, ext_LayoutType,
    ext_MemoryFormatType, ext_GeneratorType, ext_StreamType, ext_EventType;

PyObject *ext_node(px_node *node);  // borrowed node; None for NULL
// self moved and converted, or self itself where nothing changes (and no copy was asked for).
PyObject *ext_convert(PyObject *self, px_device device, px_dtype dtype, bool non_blocking,
                      bool copy);
// What removes a hook of that id: `remove` is called with the target, and `end` lets go of it.
PyObject *ext_handle(void *target_take, int64_t id, void (*remove)(void *target, int64_t id),
                     void (*end)(void *target));
// That of a hook in a dict, which its new id is also in `more` dicts of: it refers to them weakly.
PyObject *ext_hook_handle(PyObject *dict, PyObject *const *more, Py_ssize_t count, int64_t *id);
// Adds a hook of Python's to a tensor, and gives its handle.
PyObject *ext_tensor_register_hook(PyObject *self, PyObject *hook, bool accumulated);
// torch.autograd.backward for tensors already in arrays.
PyObject *ext_backward(int count, px_tensor *const *outputs, px_tensor *const *gradients,
                       signed char retain_graph, bool create_graph, PyObject *inputs);
int ext_dtype_of_type_name(const char *text, px_dtype *dtype, px_device *device);  // 1 if it is one
bool ext_is_type_object(PyObject *object);  // torch.FloatTensor and the like
void ext_type_object(PyObject *object, px_dtype *dtype, px_device *device);

// ---- calling ops by name
// EXT_OP("add"): the descriptor, looked up once. NULL (with NotImplementedError) if there is none.
const px_op *ext_op_need(const char *name);
#define EXT_OP(op_name) \
  __extension__({ \
    static const px_op *ext_op_; \
    if (!ext_op_) ext_op_ = ext_op_need(op_name); \
    ext_op_; \
  })
// One argument by name. Calls set what is not named to its default.
typedef struct ext_named {
  const char *name;
  px_value value;
} ext_named;
PyObject *ext_op_named(const px_op *op, px_call_mode mode, int count, const ext_named *named);
// The first result of op as a tensor: new reference, NULL with an exception.
px_tensor *ext_op_tensor(const px_op *op, px_call_mode mode, int count, const ext_named *named);
// Calls a Python-level op (with its overloads) of a namespace by name: 'm' method, 'f' function,
// 'n' nn.functional. Borrowed; NULL without an exception if there is none.
PyObject *ext_op_object(char space, const char *name);
// The callable of a registered op ("toys::squareplus", or "toys::squareplus_" in place), borrowed;
// NULL, perhaps without an exception, if there is none.
PyObject *ext_op_registered(const char *name);
// The arguments of a call as Python's: a tuple, and a dict of those that are given by name.
int ext_objects_of(const px_op *op, const px_value *args, PyObject **tuple, PyObject **options);
// torch.ops.aten.NAME; NULL, perhaps without an exception, if there is no such op.
PyObject *ext_aten_packet(PyObject *name);
PyObject *ext_aten_counted(const char *name);  // of an op by which operations are counted
// Makes methods and functions of ops that were registered since the last time and ask for it.
int ext_ops_update(void);

// ---- the module
// Makes all that was declared (declare.h) in the module.
int ext_declare_all(PyObject *module);
// The module below another, which is made where it is not there: "cuda" below torch. Borrowed.
PyObject *ext_submodule(PyObject *parent, const char *name);
int ext_add(PyObject *module, const char *name, PyObject *object_take);
int ext_add_type(PyObject *module, const char *name, PyTypeObject *type);
PyObject *ext_from_module(const char *name);  // what phlox._C has by this name
// What a module has by a name, and a call of it: ext_call_from("copy", "copy", "(O)", object).
PyObject *ext_from(const char *module, const char *name);
PyObject *ext_call_from(const char *module, const char *name, const char *format, ...);
// Sets an attribute to what was just made; -1 if that is NULL.
int ext_keep(PyObject *object, const char *name, PyObject *value_take);
// Lets messages name a heap type without its module, as PyTorch's do for classes of Python.
void ext_short_name(PyTypeObject *heap_type);

// The communicator of a process group, borrowed, or TypeError (group.c).
struct px_comm *ext_comm(PyObject *object);
// Drops a reference of the core's without the GIL: its end waits for threads that may want it.
void ext_release_waiting(void *core_take);

// The event of a torch.cuda.Event; borrowed.
int ext_to_event(PyObject *object, px_event **out);

// ---- methods of Tensor that others call
// The tensor in pinned memory; new reference.
px_tensor *ext_pin(px_tensor *tensor);
// Indexing (index.c); the slots of Tensor.
PyObject *ext_getitem(PyObject *self, PyObject *index);
int ext_setitem(PyObject *self, PyObject *index, PyObject *value);
// Comparison (number.c).
PyObject *ext_richcompare(PyObject *self, PyObject *other, int op);

// ---- arrays of NumPy and the like, by __array_interface__ (numpy.c)
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

#include "declare/declare.h"
