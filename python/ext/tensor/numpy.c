// SPDX-License-Identifier: Apache-2.0
// NumPy without its headers: arrays are exchanged by __array_interface__ and share memory, those of
// devices by __cuda_array_interface__. NumPy is imported by the first call that creates an array.
// Each side keeps the other alive: a tensor its source array, an array a holder with a reference to
// the tensor.
#include "bind/compiled.h"
#include "bind/ext.h"
#include "phlox/ops/view.h"

#include <string.h>

// Lists, numbers and tensors, the common case, need no attribute lookup.
static bool is_own(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  return type == &PyList_Type || type == &PyTuple_Type || type == &PyFloat_Type ||
         type == &PyLong_Type || type == &PyBool_Type || type == &PyUnicode_Type ||
         ext_is_tensor(object);
}
bool ext_is_array(PyObject *object) {
  return !is_own(object) && PyObject_HasAttrString(object, "__array_interface__");
}
bool ext_is_foreign(PyObject *object) {
  return !is_own(object) && (PyObject_HasAttrString(object, "__array_interface__") ||
                             PyObject_HasAttrString(object, "__dlpack__") ||
                             PyObject_HasAttrString(object, "__cuda_array_interface__"));
}

static int unsupported(PyObject *object) {
  EXT_OWNED *dtype = PyObject_GetAttrString(object, "dtype");
  EXT_OWNED *type = dtype ? PyObject_GetAttrString(dtype, "type") : NULL;
  const char *name = type && PyType_Check(type) ? ((PyTypeObject *)type)->tp_name : "unknown";
  PyErr_Clear();
  EXT_FAIL_INT(PyExc_TypeError,
               "can't convert np.ndarray of type %s. The only supported types are: float64, "
               "float32, float16, complex64, complex128, int64, int32, int16, int8, uint64, "
               "uint32, uint16, uint8, and bool.",
               name);
}

static int read_typestr(PyObject *object, PyObject *interface, px_dtype *out) {
  PyObject *text = PyDict_GetItemString(interface, "typestr");
  const char *code = text ? ext_lookup_text(text) : NULL;
  if (!code || !*code) return unsupported(object);
  for (int i = 0; i < PX_DTYPE_COUNT; i++) {
    const px_dtype_info *about = px_dtype_about((px_dtype)i);
    if (!about->numpy || strcmp(code + 1, about->numpy)) continue;
    if (*code == '>' && about->size > 1)
      EXT_FAIL_INT(PyExc_ValueError,
                   "given numpy array has byte order different from the native byte order. "
                   "Conversion between byte orders is currently not supported.");
    *out = (px_dtype)i;
    return 0;
  }
  return unsupported(object);
}

// Entry of the description, a dict of the array that may change concurrently. New reference.
static PyObject *interface_entry(PyObject *interface, const char *key) {
  return Py_XNewRef(PyDict_GetItemString(interface, key));
}

static int read_strides(PyObject *interface, ext_array *out) {
  EXT_OWNED *strides = interface_entry(interface, "strides");
  int64_t size = (int64_t)px_dtype_size(out->dtype), step = 1;
  ext_ints bytes;
  bool given = strides && strides != Py_None;
  if (given && !PyTuple_Check(strides)) EXT_FAIL_INT(PyExc_TypeError, "strides must be a tuple");
  if (given && ext_to_ints(strides, &bytes) < 0) return -1;
  if (given && bytes.count != out->ndim)
    EXT_FAIL_INT(PyExc_ValueError, "__array_interface__ has %d strides for %d dimensions",
                 bytes.count, out->ndim);
  out->bytes = (size_t)size;
  bool empty = false, over = false;
  int64_t reach;
  for (int i = out->ndim - 1; i >= 0; i--) {
    int64_t stride;
    over |= __builtin_mul_overflow(step, size, &stride);
    if (given) stride = bytes.items[i];
    if (stride < 0)
      EXT_FAIL_INT(PyExc_ValueError,
                   "At least one stride in the given numpy array is negative, and tensors with "
                   "negative strides are not currently supported. (You can probably work around "
                   "this by making a copy of your array  with array.copy().) ");
    if (stride % size)
      EXT_FAIL_INT(PyExc_ValueError,
                   "given numpy array strides not a multiple of the element byte size. Copy the "
                   "numpy array to reallocate the memory.");
    out->strides[i] = stride / size;
    empty |= out->sizes[i] == 0;
    over |= __builtin_mul_overflow(step, out->sizes[i], &step) ||
            __builtin_mul_overflow(out->sizes[i] - (out->sizes[i] > 0), stride, &reach) ||
            __builtin_add_overflow(out->bytes, (size_t)reach, &out->bytes);
  }
  if (over && !empty) EXT_FAIL_INT(PyExc_ValueError, "the array exceeds the address space");
  if (empty) out->bytes = 0;
  return 0;
}

static int read_interface(PyObject *object, PyObject *interface, ext_array *out) {
  if (!PyDict_Check(interface)) EXT_FAIL_INT(PyExc_TypeError, "__array_interface__ must be a dict");
  EXT_OWNED *shape = interface_entry(interface, "shape");
  EXT_OWNED *data = interface_entry(interface, "data");
  ext_ints sizes;
  if (read_typestr(object, interface, &out->dtype) < 0) return -1;
  if (!shape || !data || !PyTuple_Check(data) || PyTuple_GET_SIZE(data) != 2)
    EXT_FAIL_INT(PyExc_TypeError, "__array_interface__ lacks shape or data");
  if (!PyTuple_Check(shape)) EXT_FAIL_INT(PyExc_TypeError, "shape must be a tuple");
  if (ext_to_ints(shape, &sizes) < 0) return -1;
  if (sizes.count > PX_MAX_DIMS)
    EXT_FAIL_INT(PyExc_ValueError, "the array has more than %d dimensions", PX_MAX_DIMS);
  out->ndim = sizes.count;
  memcpy(out->sizes, sizes.items, (size_t)sizes.count * sizeof *sizes.items);
  out->data = PyLong_AsVoidPtr(PyTuple_GET_ITEM(data, 0));
  out->readonly = PyObject_IsTrue(PyTuple_GET_ITEM(data, 1)) == 1;
  if (PyErr_Occurred()) return -1;
  return read_strides(interface, out);
}

static PyObject *interface_from(PyObject *object) {
  return PyObject_GetAttrString(object, "__array_interface__");
}
int ext_array_read(PyObject *object, ext_array *out) {
  EXT_OWNED *interface = interface_from(object);
  return interface ? read_interface(object, interface, out) : -1;
}

// Keeps both the object and its description alive: NumPy scalars create memory per description.
static px_tensor *tensor_over(PyObject *object, PyObject *interface, const ext_array *array,
                              px_device device) {
  px_tensor *made = NULL;
  PyObject *owners = PyTuple_Pack(2, object, interface);
  if (!owners) return NULL;
  if (px_tensor_wrap(&made, array->data, array->bytes, array->ndim, array->sizes, array->strides,
                     array->dtype, device, ext_release, owners) == PX_OK)
    return made;
  Py_DECREF(owners);
  return ext_raise();
}

static int warn_of_readonly(const ext_array *array) {
  static bool warned;
  if (!array->readonly || warned) return 0;
  warned = true;
  return PyErr_WarnEx(
      PyExc_UserWarning,
      "The given NumPy array is not writable, and PyTorch does not support non-writable tensors. "
      "This means writing to this tensor will result in undefined behavior. You may want to copy "
      "the array to protect its data or make it writable before converting it to a tensor. This "
      "type of warning will be suppressed for the rest of this program.",
      1);
}
static px_tensor *from_array(PyObject *object, bool warn) {
  ext_array array;
  EXT_OWNED *interface = interface_from(object);
  if (!interface || read_interface(object, interface, &array) < 0) return NULL;
  if (warn && warn_of_readonly(&array) < 0) return NULL;
  return tensor_over(object, interface, &array, px_cpu());
}
px_tensor *ext_tensor_from_array(PyObject *object) { return from_array(object, false); }

// ---- arrays of devices
static int check_cuda_interface(PyObject *interface) {
  if (!PyDict_Check(interface))
    EXT_FAIL_INT(PyExc_TypeError, "`__cuda_array_interface__` must be a dict");
  EXT_OWNED *shape = interface_entry(interface, "shape");
  EXT_OWNED *typestr = interface_entry(interface, "typestr");
  EXT_OWNED *data = interface_entry(interface, "data");
  if (!shape) EXT_FAIL_INT(PyExc_TypeError, "attribute `shape` must exist");
  if (!typestr) EXT_FAIL_INT(PyExc_TypeError, "attribute `typestr` must exist");
  if (!data) EXT_FAIL_INT(PyExc_TypeError, "attribute `data` must exist");
  if (!PyTuple_Check(data) || PyTuple_GET_SIZE(data) != 2)
    EXT_FAIL_INT(PyExc_TypeError, "`data` must be a 2-tuple of (int, bool)");
  return 0;
}
// Makes later work of the current stream wait for the exporter's stream.
static int wait_for_exporter(PyObject *interface, px_device device) {
  EXT_OWNED *stream = interface_entry(interface, "stream");
  px_stream *current;
  if (ext_is_none(stream)) return 0;
  void *native = PyLong_AsVoidPtr(stream);
  if (!native && PyErr_Occurred()) return -1;
  if (!native) EXT_FAIL_INT(PyExc_ValueError, "unsupported stream on CUDA: 0.");
  EXT_TRY_INT(px_stream_current(&current, device));
  return ext_zero(EXT_NOGIL(px_stream_take_over(current, native)));
}
// The interface does not name the device. Memory of an unknown one is the current device's.
static px_tensor *from_cuda_array(PyObject *object) {
  ext_array array;
  int index;
  EXT_OWNED *interface = PyObject_GetAttrString(object, "__cuda_array_interface__");
  if (!interface || check_cuda_interface(interface) < 0 ||
      read_interface(object, interface, &array) < 0)
    return NULL;
  if (array.readonly)
    EXT_FAIL(PyExc_TypeError, "the read only flag is not supported, should always be False");
  EXT_TRY(px_device_of_memory(&index, array.data));
  if (index < 0) EXT_TRY(px_device_current(&index));
  if (wait_for_exporter(interface, px_cuda(index)) < 0) return NULL;
  return tensor_over(object, interface, &array, px_cuda(index));
}

// DLPack names the device and takes a stream, so it precedes the interface of device arrays.
px_tensor *ext_tensor_sharing(PyObject *object, bool warn) {
  if (ext_is_tensor(object)) return px_retain(ext_tensor(object));
  if (ext_is_array(object)) return from_array(object, warn && !ext_is_number(object));
  if (!PyObject_HasAttrString(object, "__dlpack__")) return from_cuda_array(object);
  EXT_OWNED *made = ext_call_from("phlox.utils.dlpack", "from_dlpack", "(O)", object);
  return made ? px_retain(ext_tensor(made)) : NULL;
}

EXT_FUNCTION(torch, from_numpy, "(ndarray: object) -> Tensor",
             "Creates a tensor from a numpy.ndarray; both share the same memory.\n\n"
             "Raises TypeError for dtypes that Phlox lacks, ValueError for negative strides.") {
  EXT_ARGS(PyObject *, ndarray);
  if (!ext_is_array(ndarray) || ext_is_number(ndarray))
    EXT_FAIL(PyExc_TypeError, "expected np.ndarray (got %s)", ext_type_name(ndarray));
  px_tensor *made = from_array(ndarray, true);
  return made ? ext_wrap(made) : NULL;
}

// ---- to NumPy and others
// Array protocol description of memory: version 3 for host, version 2 for device memory.
static PyObject *interface_of(const px_tensor *t, void *data, int version) {
  px_dtype dtype = px_tensor_dtype(t);
  size_t size = px_dtype_size(dtype);
  int ndim = px_tensor_ndim(t);
  char typestr[8];
  const char *code = px_dtype_about(dtype)->numpy;
  if (code)
    snprintf(typestr, sizeof typestr, "%c%s", size == 1 ? '|' : '<', code);
  else  // dtypes without a code: a float of the same size, as other libraries do
    snprintf(typestr, sizeof typestr, "<f%zu", size);
  PyObject *strides = px_tensor_is_contiguous(t)
                          ? Py_NewRef(Py_None)
                          : ext_tuple(ndim, px_tensor_strides(t), (int64_t)size);
  return Py_BuildValue("{s:s,s:N,s:N,s:i,s:(NO)}", "typestr", typestr, "shape",
                       ext_tuple(ndim, px_tensor_sizes(t), 1), "strides", strides, "version",
                       version, "data", PyLong_FromVoidPtr(data), Py_False);
}

EXT_GETTER(tensor_base, __cuda_array_interface__, "dict", NULL) {
  const px_tensor *t = ext_tensor(self);
  char text[48];
  if (!px_tensor_is_cuda(t))
    EXT_FAIL(PyExc_AttributeError,
             "Can't get __cuda_array_interface__ on non-CUDA tensor type: %s If CUDA data is "
             "required use tensor.cuda() to copy tensor to device memory.",
             px_tensor_type_name(t, text));
  if (px_tensor_requires_grad(t))
    EXT_FAIL(PyExc_RuntimeError,
             "Can't get __cuda_array_interface__ on Variable that requires "
             "grad. If gradients aren't required, use var.detach() to get "
             "Variable that doesn't require grad.");
  if (px_tensor_unresolved(t))
    EXT_FAIL(PyExc_RuntimeError,
             "Can't get __cuda_array_interface__ on Tensor that has %s bit set.",
             px_tensor_unresolved(t));
  return interface_of(t, px_tensor_numel(t) ? px_tensor_data(t) : NULL, 2);
}

// The object passed to NumPy: it provides __array_interface__ and owns the memory.
typedef struct holder_object {
  PyObject_HEAD px_tensor *tensor;
  void *data;
} holder_object;
static double no_data[2];  // address of empty arrays: NumPy requires one

EXT_OWNS(holder, EXT_CORE(holder_object, tensor));
EXT_TYPE(holder, "torch.array", "", holder_object, EXT_FINAL, "A tensor exported to NumPy.",
         EXT_LIFETIME_SLOTS(holder));
EXT_GETTER(holder, __array_interface__, "dict", NULL) {
  const holder_object *holder = (holder_object *)self;
  return interface_of(holder->tensor, holder->data, 3);
}

static PyObject *to_numpy(px_tensor *t) {
  px_device device = px_tensor_device(t);
  char text[PX_DEVICE_TEXT];
  if (device.type != PX_CPU)
    EXT_FAIL(PyExc_TypeError,
             "can't convert %s device type tensor to numpy. Use Tensor.cpu() to copy the tensor to "
             "host memory first.",
             px_device_format(device, text));
  if (px_tensor_requires_grad(t) && px_grad_enabled())
    EXT_FAIL(PyExc_RuntimeError,
             "Can't call numpy() on Tensor that requires grad. Use "
             "tensor.detach().numpy() instead.");
  const char *bit = px_tensor_unresolved(t);
  if (bit)
    EXT_FAIL(PyExc_RuntimeError,
             "Can't call numpy() on Tensor that has %s bit set. Use tensor.resolve_%s().numpy() "
             "instead.",
             bit, *bit == 'c' ? "conj" : "neg");
  if (!px_dtype_about(px_tensor_dtype(t))->numpy)
    EXT_FAIL(PyExc_TypeError, "Got unsupported ScalarType %s", px_dtype_class(px_tensor_dtype(t)));
  void *data = no_data;
  if (ext_refuses_reads()) EXT_TRY(ext_refuse_read("the values of a Tensor"));
  holder_object *holder = ext_new(&holder_type);
  if (!holder) return NULL;
  EXT_OWNED *owner = (PyObject *)holder;
  // The array keeps this memory, also if the tensor gets other memory later.
  EXT_TRY(px_tensor_detach(&holder->tensor, t));
  if (px_tensor_numel(t)) EXT_WAIT(px_tensor_host_data(&data, holder->tensor));
  holder->data = data;
  px_tensor_data(holder->tensor);  // the address is now known outside the library
  return ext_call_from("numpy", "asarray", "(O)", owner);
}

static px_status detach_resolved(px_tensor **out, const px_tensor *t) {
  PX_SCOPED(px_tensor) detached = NULL;
  PX_SCOPED(px_tensor) half = NULL;
  PX_TRY(px_tensor_detach(&detached, t));
  PX_TRY(px_resolve_conj(&half, detached));
  return px_resolve_neg(out, half);
}

EXT_METHOD(tensor, numpy, "(*, force: bool = False) -> numpy.ndarray",
           "Returns the tensor as a NumPy ndarray sharing its memory.\n\n"
           "Args:\n"
           "    force (bool): copies a tensor from a device, detaches one that requires gradient, "
           "and resolves\n        conjugate and negative views\n\n"
           "Raises TypeError for bfloat16, which NumPy lacks.") {
  EXT_ARGS(bool, force);
  if (!force) return to_numpy(ext_tensor(self));
  px_tensor *plain = NULL;
  EXT_WAIT(detach_resolved(&plain, ext_tensor(self)));
  EXT_OWNED *object = ext_wrap_as(ext_TensorType, plain);
  EXT_OWNED *host = object ? ext_convert(object, px_cpu(), PX_DTYPE_NONE, false, false) : NULL;
  return host ? to_numpy(ext_tensor(host)) : NULL;
}

// copy: None copies if the dtype differs, True always, and False never.
EXT_METHOD(tensor, __array__,
           "(dtype: object | None = None, copy: bool | None = None) -> numpy.ndarray", NULL) {
  PyObject *dtype;
  ext_optional_bool copy;
  EXT_BIND(dtype, copy);
  EXT_OWNED *array = to_numpy(ext_tensor(self));
  if (!array) return NULL;
  if (dtype) {
    EXT_OWNED *cast = PyObject_GetAttrString(array, "astype");
    EXT_OWNED *options = cast ? Py_BuildValue("{s:i}", "copy", copy == 1) : NULL;
    EXT_OWNED *given = options ? PyTuple_Pack(1, dtype) : NULL;
    EXT_OWNED *made = given ? PyObject_Call(cast, given, options) : NULL;
    if (made && copy == 0 && made != array)
      EXT_FAIL(PyExc_ValueError, "Unable to avoid copy while creating an array as requested.");
    return made ? ext_moved(&made) : NULL;
  }
  return copy == 1 ? PyObject_CallMethod(array, "copy", NULL) : ext_moved(&array);
}
EXT_METHOD(tensor, __array_wrap__, "(array: numpy.ndarray, *context: object) -> Tensor", NULL) {
  PyObject *array;
  ext_varargs context;
  EXT_BIND(array, context);
  if (!ext_is_array(array)) return Py_NewRef(array);
  px_tensor *made = ext_tensor_from_array(array);
  return made ? ext_wrap(made) : NULL;
}

// ---- buffers
typedef struct buffer_context {
  Py_buffer view;
} buffer_context;
// Called when the tensor's memory is freed, on any thread: acquires the GIL for the buffer.
static void release_buffer(void *context) {
  ext_gil gil;
  if (ext_gil_take(&gil) != PX_OK) return;
  PyBuffer_Release(&((buffer_context *)context)->view);
  PyMem_Free(context);
  ext_gil_give(&gil);
}

EXT_FUNCTION(torch, _over_buffer,
             "(buffer: object, dtype: dtype, count: int, offset: int) -> Tensor",
             "Implements torch.frombuffer, which has checked the range of elements.") {
  PyObject *buffer;
  px_dtype dtype;
  int64_t count, offset;
  EXT_BIND(buffer, dtype, count, offset);
  buffer_context *context = PyMem_Calloc(1, sizeof *context);
  if (!context) return PyErr_NoMemory();
  if (PyObject_GetBuffer(buffer, &context->view, PyBUF_WRITABLE) < 0) {
    PyErr_Clear();
    if (PyObject_GetBuffer(buffer, &context->view, PyBUF_SIMPLE) < 0) {
      PyMem_Free(context);
      return NULL;
    }
  }
  px_tensor *made = NULL;
  size_t bytes = (size_t)count * px_dtype_size(dtype);
  bool inside = offset >= 0 && offset + (int64_t)bytes <= context->view.len;
  if (inside && px_tensor_wrap(&made, (char *)context->view.buf + offset, bytes, 1, &count, NULL,
                               dtype, px_cpu(), release_buffer, context) == PX_OK)
    return ext_wrap(made);
  PyBuffer_Release(&context->view);
  PyMem_Free(context);
  return inside ? ext_raise()
                : PyErr_Format(PyExc_ValueError, "the elements are outside the buffer");
}
