// SPDX-License-Identifier: Apache-2.0
// torch.dtype, torch.layout, torch.memory_format: constant singletons compared by identity. Copies
// return the object itself; pickles store its name.
#include "bind/ext.h"

#include <string.h>

typedef struct dtype_object {
  PyObject_HEAD px_dtype dtype;
} dtype_object;
static PyObject *dtypes[PX_DTYPE_COUNT];  // immortal singletons

bool ext_is_dtype(PyObject *object) { return Py_IS_TYPE(object, &ext_DtypeType); }
static px_dtype dtype_of(PyObject *self) { return ((dtype_object *)self)->dtype; }

PyObject *ext_dtype(px_dtype dtype) {
  return Py_NewRef(dtype == PX_DTYPE_NONE ? Py_None : dtypes[dtype]);
}

int ext_to_dtype(PyObject *object, px_dtype *out) {
  *out = PX_DTYPE_NONE;
  if (ext_is_none(object)) return 0;
  if (ext_is_dtype(object))
    *out = dtype_of(object);
  else if (object == (PyObject *)&PyFloat_Type)
    *out = PX_FLOAT64;
  else if (object == (PyObject *)&PyLong_Type)
    *out = PX_INT64;
  else if (object == (PyObject *)&PyBool_Type)
    *out = PX_BOOL;
  else if (object == (PyObject *)&PyComplex_Type)
    *out = PX_COMPLEX128;
  else
    EXT_FAIL_INT(PyExc_TypeError, "must be torch.dtype, not %s", ext_type_name(object));
  return 0;
}

static PyObject *dtype_repr(PyObject *self) {
  return PyUnicode_FromFormat("torch.%s", px_dtype_name(dtype_of(self)));
}
EXT_SHARED_TYPE(dtype, ext_DtypeType, "torch.dtype", "dtype", dtype_object, EXT_FINAL,
                "The data type of a tensor's elements: torch.float32, torch.int64, ...\n\n"
                ">>> torch.ones(2).dtype, torch.float16.itemsize\n"
                "(torch.float32, 2)\n",
                .tp_repr = dtype_repr);
EXT_GET(dtype, is_floating_point, "bool", px_dtype_is_float(dtype_of(self)),
        "True for a floating point type.");
EXT_GET(dtype, is_complex, "bool", px_dtype_is_complex(dtype_of(self)), "True for a complex type.");
EXT_GET(dtype, is_signed, "bool", px_dtype_is_signed(dtype_of(self)), "True for a signed type.");
EXT_GET(dtype, itemsize, "int", px_dtype_size(dtype_of(self)), "The size of an element in bytes.");
EXT_RETURNS(dtype, to_real, "dtype", ext_dtype(px_dtype_to_real(dtype_of(self))),
            "Returns the dtype of the real part; the dtype itself if it is real.");
EXT_METHOD0(dtype, to_complex, "dtype",
            "Returns the complex dtype whose parts have this dtype.\n\n"
            "Raises RuntimeError if there is none.") {
  px_dtype made = px_dtype_to_complex(dtype_of(self));
  if (made == PX_DTYPE_NONE)
    EXT_FAIL(PyExc_RuntimeError, "Unknown Complex ScalarType for %s",
             px_dtype_class(dtype_of(self)));
  return ext_dtype(made);
}
EXT_RETURNS(dtype, __copy__, "dtype", Py_NewRef(self), NULL);
EXT_METHOD(dtype, __deepcopy__, "(memo: dict) -> dtype", NULL) { return Py_NewRef(self); }
EXT_METHOD0(dtype, __reduce__, "tuple", NULL) {
  return Py_BuildValue("N(s)", ext_extension_attr("_dtype_of_name"), px_dtype_name(dtype_of(self)));
}
EXT_FUNCTION(torch, _dtype_of_name, "(name: str) -> dtype", "Rebuilds a pickled dtype.") {
  px_dtype dtype;
  EXT_ARGS(const char *, name);
  EXT_TRY(px_dtype_parse(&dtype, name));
  return ext_dtype(dtype);
}

EXT_FUNCTION(torch, _limits, "(dtype: dtype) -> tuple[float, float, float, float, float]",
             "Returns the values of torch.finfo: resolution, min, max, eps, tiny.") {
  EXT_ARGS(px_dtype, dtype);
  const px_dtype_info *about = px_dtype_about(dtype);
  return Py_BuildValue("ddddd", about->resolution, about->min, about->max, about->eps, about->tiny);
}

// ---- layout and memory format: names only; every tensor is strided
typedef struct name_object {
  PyObject_HEAD const char *name;
} name_object;
static PyObject *name_repr(PyObject *self) {
  return PyUnicode_FromString(((name_object *)self)->name);
}
EXT_SHARED_TYPE(layout, ext_LayoutType, "torch.layout", "layout", name_object, EXT_FINAL,
                "The memory layout of a tensor; torch.strided is the only one supported.",
                .tp_repr = name_repr);
EXT_SHARED_TYPE(memory_format, ext_MemoryFormatType, "torch.memory_format", "memory_format",
                name_object, EXT_FINAL, "The order of dimensions in memory.", .tp_repr = name_repr);
EXT_RETURNS(layout, __copy__, "layout", Py_NewRef(self), NULL);
EXT_METHOD(layout, __deepcopy__, "(memo: dict) -> layout", NULL) { return Py_NewRef(self); }
EXT_METHOD0(layout, __reduce__, "tuple", NULL) {
  const char *name = strchr(((name_object *)self)->name, '.') + 1;
  return Py_BuildValue("N(s)", ext_extension_attr("_name_of"), name);
}
EXT_SAME_MEMBERS(memory_format, layout, __copy__, __deepcopy__, __reduce__);
EXT_FUNCTION(torch, _name_of, "(name: str) -> object",
             "Rebuilds a pickled layout or memory format.") {
  EXT_ARGS(PyObject *, name);
  return PyObject_GetAttr(self, name);
}
int ext_to_format(PyObject *object, void *out) {
  if (!Py_IS_TYPE(object, &ext_MemoryFormatType))
    EXT_FAIL_INT(PyExc_TypeError, "must be torch.memory_format, not %s", ext_type_name(object));
  ((ext_format *)out)->name = strchr(((name_object *)object)->name, '.') + 1;
  return 0;
}
// Rejects unsupported layouts by name.
int ext_to_layout(PyObject *object, void *out) {
  if (!Py_IS_TYPE(object, &ext_LayoutType))
    EXT_FAIL_INT(PyExc_TypeError, "must be torch.layout, not %s", ext_type_name(object));
  const char *name = ((name_object *)object)->name;
  if (strcmp(name, "torch.strided"))
    EXT_FAIL_INT(PyExc_NotImplementedError, "layout=%s is not implemented in Phlox", name);
  ((ext_layout *)out)->strided = true;
  return 0;
}
EXT_CONVERTS(EXT_KIND_FORMAT, ext_to_format);
EXT_CONVERTS(EXT_KIND_LAYOUT, ext_to_layout);
int ext_no_names(PyObject *names) {
  if (!names || names == Py_None) return 0;
  EXT_FAIL_INT(PyExc_NotImplementedError, "named tensors (names=) are not implemented in Phlox");
}
static const struct {
  PyTypeObject *type;
  const char *name;
} names[] = {{&ext_LayoutType, "torch.strided"},
             {&ext_LayoutType, "torch.sparse_coo"},
             {&ext_LayoutType, "torch.sparse_csr"},
             {&ext_MemoryFormatType, "torch.contiguous_format"},
             {&ext_MemoryFormatType, "torch.preserve_format"},
             {&ext_MemoryFormatType, "torch.channels_last"},
             {&ext_MemoryFormatType, "torch.channels_last_3d"}};

// ---- defaults and promotion
EXT_FUNCTION(torch, set_default_dtype, "(d: dtype) -> None",
             "Sets the default floating point dtype, used by factories and for Python floats.\n\n"
             "Args:\n"
             "    d (torch.dtype): a floating point dtype; TypeError for others\n") {
  px_dtype dtype;
  EXT_ARGS(PyObject *, d);
  if (!ext_is_dtype(d))
    EXT_FAIL(PyExc_TypeError,
             "invalid dtype object: only floating-point types are supported as "
             "the default type");
  if (ext_to_dtype(d, &dtype) < 0) return NULL;
  return ext_none(px_dtype_set_default(dtype));
}
EXT_RETURNS(torch, get_default_dtype, "dtype", ext_dtype(px_dtype_default()),
            "Returns the current default floating point dtype.\n\n"
            ">>> torch.get_default_dtype()\n"
            "torch.float32\n");
EXT_FUNCTION(torch, promote_types, "(type1: dtype, type2: dtype) -> dtype",
             "Returns the smallest dtype to which both can be promoted.\n\n"
             ">>> torch.promote_types(torch.int32, torch.float32)\n"
             "torch.float32\n") {
  px_dtype made;
  EXT_ARGS(px_dtype, type1, type2);
  EXT_TRY(px_dtype_promote_or_fail(&made, type1, type2));
  return ext_dtype(made);
}
EXT_FUNCTION(torch, can_cast, "(from_: dtype, to: dtype) -> bool",
             "Returns True if a type conversion is allowed under PyTorch casting rules.\n\n"
             ">>> torch.can_cast(torch.float32, torch.int32)\n"
             "False\n") {
  EXT_ARGS(px_dtype, from_, to);
  return PyBool_FromLong(px_dtype_can_cast(from_, to));
}

// ---- construction
// torch.char and torch.byte do not exist; bool and bfloat16 have no alias.
static bool has_alias(const px_dtype_info *about) {
  return about->size > 1 && strcmp(about->alias, about->name) != 0;
}
static int add_dtypes(PyObject *m) {
  for (int i = 0; i < PX_DTYPE_COUNT; i++) {
    const px_dtype_info *about = px_dtype_about((px_dtype)i);
    dtype_object *object = ext_new(&ext_DtypeType);
    if (!object) return -1;
    object->dtype = (px_dtype)i;
    dtypes[i] = (PyObject *)object;
    if (ext_add(m, about->name, Py_NewRef(dtypes[i])) < 0) return -1;
    if (has_alias(about) && ext_add(m, about->alias, Py_NewRef(dtypes[i])) < 0) return -1;
  }
  return 0;
}

static int add_names(PyObject *m) {
  for (int i = 0; i < EXT_LENGTH(names); i++) {
    name_object *object = ext_new(names[i].type);
    if (!object) return -1;
    object->name = names[i].name;
    if (ext_add(m, strchr(names[i].name, '.') + 1, (PyObject *)object) < 0) return -1;
  }
  return 0;
}

static int make_constants(PyObject *torch) { return add_dtypes(torch) < 0 ? -1 : add_names(torch); }
EXT_START(EXT_TYPES, make_constants);
static int to_dtype(PyObject *object, void *out) { return ext_to_dtype(object, out); }
EXT_CONVERTS(EXT_KIND_DTYPE, to_dtype);
