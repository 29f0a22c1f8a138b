// SPDX-License-Identifier: Apache-2.0
// torch.dtype, torch.layout, torch.memory_format, torch.finfo, torch.iinfo: small constant objects,
// one each, compared by identity.
#include "ext.h"

#include <float.h>
#include <string.h>

typedef struct dtype_object {
  PyObject_HEAD px_dtype dtype;
} dtype_object;
static PyObject *dtypes[PX_DTYPE_COUNT];

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
  else
    EXT_FAIL_INT(PyExc_TypeError, "must be torch.dtype, not %s", ext_type_name(object));
  return 0;
}

static PyObject *dtype_repr(PyObject *self) {
  return PyUnicode_FromFormat("torch.%s", px_dtype_name(dtype_of(self)));
}
static PyObject *dtype_reduce(PyObject *self, PyObject *unused) {
  EXT_OWNED *module = PyImport_ImportModule("phlox._C");
  PyObject *maker = module ? PyObject_GetAttrString(module, "_dtype_of_name") : NULL;
  return maker ? Py_BuildValue("N(s)", maker, px_dtype_name(dtype_of(self))) : NULL;
}
static PyObject *dtype_of_name(PyObject *self, PyObject *name) {
  px_dtype dtype;
  const char *text = PyUnicode_AsUTF8(name);
  if (!text) return NULL;
  EXT_TRY(px_dtype_parse(&dtype, text));
  return ext_dtype(dtype);
}
static PyObject *dtype_copy(PyObject *self, PyObject *unused) { return Py_NewRef(self); }
static PyObject *get_is_float(PyObject *self, void *unused) {
  return PyBool_FromLong(px_dtype_is_float(dtype_of(self)));
}
static PyObject *get_is_complex(PyObject *self, void *unused) { Py_RETURN_FALSE; }
static PyObject *get_is_signed(PyObject *self, void *unused) {
  return PyBool_FromLong(dtype_of(self) != PX_BOOL && dtype_of(self) != PX_UINT8);
}
static PyObject *get_itemsize(PyObject *self, void *unused) {
  return PyLong_FromSize_t(px_dtype_size(dtype_of(self)));
}
static PyObject *to_real(PyObject *self, PyObject *unused) { return Py_NewRef(self); }

static PyGetSetDef getset[] = {{"is_floating_point", get_is_float, NULL, NULL, NULL},
                               {"is_complex", get_is_complex, NULL, NULL, NULL},
                               {"is_signed", get_is_signed, NULL, NULL, NULL},
                               {"itemsize", get_itemsize, NULL, NULL, NULL},
                               {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef methods[] = {{"__reduce__", dtype_reduce, METH_NOARGS, NULL},
                                {"__copy__", dtype_copy, METH_NOARGS, NULL},
                                {"__deepcopy__", dtype_copy, METH_O, NULL},
                                {"to_real", to_real, METH_NOARGS, NULL},
                                {NULL, NULL, 0, NULL}};
PyTypeObject ext_DtypeType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch.dtype",
    .tp_basicsize = sizeof(dtype_object),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_repr = dtype_repr,
    .tp_methods = methods,
    .tp_getset = getset,
};

// ---- layout and memory format: names only; every tensor is strided
typedef struct name_object {
  PyObject_HEAD const char *name;
} name_object;
static PyObject *name_repr(PyObject *self) {
  return PyUnicode_FromString(((name_object *)self)->name);
}
static PyObject *name_reduce(PyObject *self, PyObject *unused) {
  EXT_OWNED *module = PyImport_ImportModule("phlox._C");
  const char *name = strchr(((name_object *)self)->name, '.') + 1;
  return module ? Py_BuildValue("N(s)", PyObject_GetAttrString(module, "_name_of"), name) : NULL;
}
static PyObject *name_of(PyObject *self, PyObject *name) { return PyObject_GetAttr(self, name); }
static PyMethodDef name_methods[] = {{"__reduce__", name_reduce, METH_NOARGS, NULL},
                                     {"__copy__", dtype_copy, METH_NOARGS, NULL},
                                     {"__deepcopy__", dtype_copy, METH_O, NULL},
                                     {NULL, NULL, 0, NULL}};
PyTypeObject ext_LayoutType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch.layout",
    .tp_basicsize = sizeof(name_object),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_repr = name_repr,
    .tp_methods = name_methods,
};
PyTypeObject ext_MemoryFormatType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch.memory_format",
    .tp_basicsize = sizeof(name_object),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_repr = name_repr,
    .tp_methods = name_methods,
};
bool ext_is_packed_format(PyObject *object) {
  return object && Py_IS_TYPE(object, &ext_MemoryFormatType) &&
         !strcmp(((name_object *)object)->name, "torch.contiguous_format");
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

// ---- finfo, iinfo: structs of the limits of a dtype
static PyStructSequence_Field finfo_fields[] = {
    {"resolution", NULL}, {"min", NULL},   {"max", NULL},  {"eps", NULL}, {"smallest_normal", NULL},
    {"tiny", NULL},       {"dtype", NULL}, {"bits", NULL}, {NULL, NULL}};
static PyStructSequence_Field iinfo_fields[] = {
    {"min", NULL}, {"max", NULL}, {"dtype", NULL}, {"bits", NULL}, {NULL, NULL}};
static PyTypeObject finfo_type, iinfo_type;

static const struct {
  px_dtype dtype;
  double resolution, max, eps, tiny;
} float_limits[] = {{PX_FLOAT16, 1e-3, 65504, 0.0009765625, 6.103515625e-05},
                    {PX_BFLOAT16, 1e-2, 3.3895313892515355e38, 0.0078125, 1.1754943508222875e-38},
                    {PX_FLOAT32, 1e-6, FLT_MAX, FLT_EPSILON, FLT_MIN},
                    {PX_FLOAT64, 1e-15, DBL_MAX, DBL_EPSILON, DBL_MIN}};

static PyObject *fill_struct(PyTypeObject *type, int count, PyObject **items_take) {
  PyObject *self = PyStructSequence_New(type);
  for (int i = 0; i < count; i++) {
    if (self && items_take[i])
      PyStructSequence_SetItem(self, i, items_take[i]);
    else
      Py_XDECREF(items_take[i]);
  }
  return self;
}

static PyObject *finfo(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames) {
  EXT_ARGS("finfo", "|type", out);
  px_dtype dtype;
  if (ext_to_dtype(out[0], &dtype) < 0) return NULL;
  if (dtype == PX_DTYPE_NONE) dtype = px_dtype_default();
  for (int i = 0; i < EXT_LENGTH(float_limits); i++) {
    if (float_limits[i].dtype != dtype) continue;
    PyObject *items[] = {PyFloat_FromDouble(float_limits[i].resolution),
                         PyFloat_FromDouble(-float_limits[i].max),
                         PyFloat_FromDouble(float_limits[i].max),
                         PyFloat_FromDouble(float_limits[i].eps),
                         PyFloat_FromDouble(float_limits[i].tiny),
                         PyFloat_FromDouble(float_limits[i].tiny),
                         PyUnicode_FromString(px_dtype_name(dtype)),
                         PyLong_FromSize_t(px_dtype_size(dtype) * 8)};
    return fill_struct(&finfo_type, EXT_LENGTH(items), items);
  }
  EXT_FAIL(PyExc_TypeError,
           "torch.finfo() requires a floating point input type. Use torch.iinfo to handle '%s'",
           "torch.finfo");
}

static PyObject *iinfo(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames) {
  EXT_ARGS("iinfo", "type", out);
  px_dtype dtype;
  if (ext_to_dtype(out[0], &dtype) < 0) return NULL;
  if (!px_dtype_is_integer(dtype))
    EXT_FAIL(PyExc_TypeError,
             "torch.iinfo() requires an integer input type. Use torch.finfo to handle '%s'",
             "torch.iinfo");
  int bits = (int)px_dtype_size(dtype) * 8;
  bool is_signed = dtype != PX_UINT8;
  long long max = is_signed ? (long long)((1ULL << (bits - 1)) - 1) : 255;
  PyObject *items[] = {PyLong_FromLongLong(is_signed ? -max - 1 : 0), PyLong_FromLongLong(max),
                       PyUnicode_FromString(px_dtype_name(dtype)), PyLong_FromLong(bits)};
  return fill_struct(&iinfo_type, EXT_LENGTH(items), items);
}

static PyObject *format_number(PyObject *number) {
  double value = PyFloat_AsDouble(number);
  char text[40];
  snprintf(text, sizeof text, "%.6g", value);
  return PyUnicode_FromString(text);
}

static PyObject *finfo_repr(PyObject *self) {
  EXT_OWNED *text = PyUnicode_FromString("finfo(");
  for (int i = 0; text && i < 6; i++) {
    EXT_OWNED *number = format_number(PyStructSequence_GetItem(self, i));
    PyObject *next = PyUnicode_FromFormat("%U%s=%U, ", text, finfo_fields[i].name, number);
    Py_SETREF(text, next);
  }
  if (!text) return NULL;
  return PyUnicode_FromFormat("%Udtype=%U)", text, PyStructSequence_GetItem(self, 6));
}

static PyObject *iinfo_repr(PyObject *self) {
  return PyUnicode_FromFormat("iinfo(min=%S, max=%S, dtype=%U)", PyStructSequence_GetItem(self, 0),
                              PyStructSequence_GetItem(self, 1), PyStructSequence_GetItem(self, 2));
}

// ---- defaults and promotion
EXT_FAST(set_default_dtype) {
  EXT_ARGS("set_default_dtype", "d", out);
  px_dtype dtype;
  if (!ext_is_dtype(out[0]))
    EXT_FAIL(PyExc_TypeError,
             "invalid dtype object: only floating-point types are supported as "
             "the default type");
  if (ext_to_dtype(out[0], &dtype) < 0) return NULL;
  EXT_TRY(px_dtype_set_default(dtype));
  Py_RETURN_NONE;
}
static PyObject *get_default_dtype(PyObject *self, PyObject *unused) {
  return ext_dtype(px_dtype_default());
}

EXT_FAST(promote_types) {
  EXT_ARGS("promote_types", "type1 type2", out);
  px_dtype a, b;
  if (ext_to_dtype(out[0], &a) < 0 || ext_to_dtype(out[1], &b) < 0) return NULL;
  return ext_dtype(px_dtype_promote(a, b));
}
EXT_FAST(can_cast) {
  EXT_ARGS("can_cast", "from_ to", out);
  px_dtype from, to;
  if (ext_to_dtype(out[0], &from) < 0 || ext_to_dtype(out[1], &to) < 0) return NULL;
  return PyBool_FromLong(px_dtype_can_cast(from, to));
}

static PyMethodDef functions[] = {EXT_DEF("finfo", finfo),
                                  EXT_DEF("iinfo", iinfo),
                                  EXT_DEF("set_default_dtype", set_default_dtype),
                                  {"get_default_dtype", get_default_dtype, METH_NOARGS, NULL},
                                  EXT_DEF("promote_types", promote_types),
                                  EXT_DEF("can_cast", can_cast),
                                  {"_dtype_of_name", dtype_of_name, METH_O, NULL},
                                  {"_name_of", name_of, METH_O, NULL},
                                  {NULL, NULL, 0, NULL}};
static const struct {
  const char *name;
  px_dtype dtype;
} aliases[] = {{"float", PX_FLOAT32}, {"double", PX_FLOAT64}, {"half", PX_FLOAT16},
               {"long", PX_INT64},    {"int", PX_INT32},      {"short", PX_INT16}};

static int add_dtypes(PyObject *m) {
  for (int i = 0; i < PX_DTYPE_COUNT; i++) {
    dtype_object *object = PyObject_New(dtype_object, &ext_DtypeType);
    if (!object) return -1;
    object->dtype = (px_dtype)i;
    dtypes[i] = (PyObject *)object;
    if (ext_add(m, px_dtype_name((px_dtype)i), Py_NewRef(dtypes[i])) < 0) return -1;
  }
  for (int i = 0; i < EXT_LENGTH(aliases); i++)
    if (ext_add(m, aliases[i].name, Py_NewRef(dtypes[aliases[i].dtype])) < 0) return -1;
  return 0;
}

static int add_names(PyObject *m) {
  for (int i = 0; i < EXT_LENGTH(names); i++) {
    name_object *object = PyObject_New(name_object, names[i].type);
    if (!object) return -1;
    object->name = names[i].name;
    if (ext_add(m, strchr(names[i].name, '.') + 1, (PyObject *)object) < 0) return -1;
  }
  return 0;
}

static int ext_init_dtype(PyObject *m) {
  static PyStructSequence_Desc finfo_desc = {"torch.finfo", NULL, finfo_fields, 8};
  static PyStructSequence_Desc iinfo_desc = {"torch.iinfo", NULL, iinfo_fields, 4};
  if (ext_add_type(m, "dtype", &ext_DtypeType) < 0 ||
      ext_add_type(m, "layout", &ext_LayoutType) < 0 ||
      ext_add_type(m, "memory_format", &ext_MemoryFormatType) < 0)
    return -1;
  if (PyStructSequence_InitType2(&finfo_type, &finfo_desc) < 0 ||
      PyStructSequence_InitType2(&iinfo_type, &iinfo_desc) < 0)
    return -1;
  finfo_type.tp_repr = finfo_type.tp_str = finfo_repr;
  iinfo_type.tp_repr = iinfo_type.tp_str = iinfo_repr;
  if (add_dtypes(m) < 0 || add_names(m) < 0) return -1;
  return PyModule_AddFunctions(m, functions);
}
EXT_START(EXT_TYPES, ext_init_dtype);

static int to_dtype(PyObject *object, void *out) { return ext_to_dtype(object, out); }
EXT_CONVERTS(EXT_KIND_DTYPE, to_dtype);
