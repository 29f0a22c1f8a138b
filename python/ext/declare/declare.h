// SPDX-License-Identifier: Apache-2.0
// Declares Python types, methods, attributes and functions next to their C code. A declaration adds
// a row to a linker section ("ext_rows"); declare.c reads the section when it creates the module.
// There is no central list to maintain for a new file or type.
//
//   typedef struct stream_object {
//     PyObject_HEAD px_stream *stream;
//   } stream_object;
//   #define S(self) (((stream_object *)(self))->stream)
//
//   EXT_OWNS(stream, EXT_CORE(stream_object, stream));      // dealloc, traverse, clear follow
//   EXT_NEW(stream, "(device: Device | None = None, priority: int = 0)") { ... }
//   EXT_TYPE(stream, "torch.cuda.Stream", "cuda.Stream Stream", stream_object, EXT_BASETYPE,
//            "A CUDA stream.", EXT_LIFETIME_SLOTS(stream), .tp_new = stream_new);
//   EXT_GET(stream, priority, "int", px_stream_priority(S(self)), "Lower numbers go first.");
//   EXT_METHOD(stream, wait_event, "(event: Event) -> None", "Makes future work wait.") {
//     EXT_ARGS(PyObject *, event);
//     ...
//   }
//
// The first argument is the word of the owner, a type or module. Signatures have the syntax of stub
// files. One signature binds arguments, is shown by inspect.signature and is returned to the stub
// generator by `_C._declared()`.
#pragma once
#include "bind/ext.h"

// ---- signatures and their arguments
enum { EXT_MAX_PARAMS = 25 };  // limit of EXT_EACH
typedef struct ext_row ext_row;
// A call with unbound arguments. Keyword values follow `args`, named by kwnames (vectorcall), or
// are in the dict kwargs (tp_new). `first` precedes the arguments: self of a method sharing its
// code with a function.
typedef struct ext_call {
  ext_row *row;
  PyObject *first, *const *args;
  Py_ssize_t nargs;
  PyObject *kwnames, *kwargs;
} ext_call;

// A device index for torch.cuda, from None (the current device), an int, a str or a device.
typedef struct ext_cuda {
  int index;
} ext_cuda;
// An optional bool: -1 for None.
typedef signed char ext_optional_bool;
// Parameter indexes of an op's first two arguments: a method's self and its first argument.
enum { EXT_SELF, EXT_OTHER };
// Remaining positional arguments: *args. Borrowed.
typedef struct ext_varargs {
  PyObject *const *items;
  Py_ssize_t count;
} ext_varargs;
PyObject *ext_tuple_of(ext_varargs rest);
// Unpacks positional arguments into variables: EXT_UNPACK_ARGS(args, nargs, &name, &value). False
// unless there are as many arguments as variables.
#define EXT_UNPACK_ARGS(args, nargs, ...) \
  ext_unpack_args(args, nargs, (PyObject * *const[]){__VA_ARGS__}, \
                  sizeof((PyObject **[]){__VA_ARGS__}) / sizeof(PyObject **))
static inline bool ext_unpack_args(PyObject *const *args, Py_ssize_t nargs,
                                   PyObject **const *variables, size_t count) {
  for (size_t i = 0; (size_t)nargs == count && i < count; i++) *variables[i] = args[i];
  return (size_t)nargs == count;
}
// Keyword arguments of a call as a dict; kwnames may be NULL.
PyObject *ext_kwargs_of(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
#define EXT_NO_INT INT64_MIN  // None for an int

// Target type of an argument; selects its conversion.
typedef enum ext_kind {
  EXT_KIND_OBJECT,         // PyObject *: as it is, borrowed; NULL if not given
  EXT_KIND_BOOL,           // bool: truth of any object
  EXT_KIND_OPTIONAL_BOOL,  // ext_optional_bool
  EXT_KIND_INT,            // int64_t; EXT_NO_INT for None
  EXT_KIND_FLOAT,          // double; NaN for None
  EXT_KIND_TEXT,           // const char *; NULL for None
  EXT_KIND_NUMBER,         // px_scalar
  EXT_KIND_INTS,           // ext_ints; count -1 for None
  EXT_KIND_TENSOR,         // px_tensor *, borrowed; NULL for None
  EXT_KIND_DTYPE,          // px_dtype; PX_DTYPE_NONE for None
  EXT_KIND_DEVICE,         // px_device; PX_DEVICE_NONE for None
  EXT_KIND_CUDA,           // ext_cuda
  EXT_KIND_GENERATOR,      // px_generator *, borrowed
  EXT_KIND_STREAM,         // px_stream *, borrowed
  EXT_KIND_FORMAT,         // ext_format
  EXT_KIND_LAYOUT,         // ext_layout
  EXT_KIND_MODULE,         // struct px_module *, borrowed
  EXT_KIND_VARARGS,        // ext_varargs, for *args
} ext_kind;
#define EXT_KIND(variable) \
  _Generic(&(variable), \
      PyObject **: EXT_KIND_OBJECT, \
      bool *: EXT_KIND_BOOL, \
      ext_optional_bool *: EXT_KIND_OPTIONAL_BOOL, \
      int64_t *: EXT_KIND_INT, \
      double *: EXT_KIND_FLOAT, \
      const char **: EXT_KIND_TEXT, \
      px_scalar *: EXT_KIND_NUMBER, \
      ext_ints *: EXT_KIND_INTS, \
      px_tensor **: EXT_KIND_TENSOR, \
      px_dtype *: EXT_KIND_DTYPE, \
      px_device *: EXT_KIND_DEVICE, \
      ext_cuda *: EXT_KIND_CUDA, \
      px_generator **: EXT_KIND_GENERATOR, \
      px_stream **: EXT_KIND_STREAM, \
      ext_format *: EXT_KIND_FORMAT, \
      ext_layout *: EXT_KIND_LAYOUT, \
      struct px_module **: EXT_KIND_MODULE, \
      ext_varargs *: EXT_KIND_VARARGS)
// C variables of a function, known at compile time.
typedef struct ext_variables {
  int count;
  const ext_kind *kinds;
  const char *names;  // comma-separated
} ext_variables;

// Binds the arguments of `call` to variables: one per parameter of the signature, in order and of
// the same names (a C keyword gets a trailing "_"). A missing parameter gets the signature's
// default, and so does None if the type allows it or there is a default. Defaults appear only in
// the signature.
#define EXT_BIND(...) EXT_BIND_OR(NULL, __VA_ARGS__)
#define EXT_BIND_OR(failed, ...) \
  do { \
    static const ext_kind ext_kinds_[] = {EXT_EACH(EXT_KIND_OF_, , __VA_ARGS__)}; \
    static const ext_variables ext_variables_ = {EXT_LENGTH(ext_kinds_), ext_kinds_, \
                                                 #__VA_ARGS__}; \
    void *const ext_out_[] = {EXT_EACH(EXT_ADDRESS_, , __VA_ARGS__)}; \
    if (ext_bind_args(call, &ext_variables_, ext_out_) < 0) return failed; \
  } while (0)
// Declares variables of one type and binds them.
#define EXT_ARGS(type, ...) \
  __typeof__(type) __VA_ARGS__; \
  EXT_BIND(__VA_ARGS__)
// Conversion of a kind, declared in the file that defines the type. It raises TypeError "must be
// int, not str"; the caller adds the names of function and argument.
#define EXT_CONVERTS(kind_, function) \
  EXT_ROW_(function##_converts, .row_kind = EXT_ROW_CONVERTER, .owner = "", .name = #kind_, \
           .kind = kind_, .convert = function)
void ext_set_converter(ext_kind kind, int (*convert)(PyObject *object, void *out));
#define EXT_KIND_OF_(nothing, variable) EXT_KIND(variable),
#define EXT_ADDRESS_(nothing, variable) &(variable),
int ext_bind_call(const ext_call *call, const ext_variables *variables, void *const *places);
// Docstring with a signature in CPython's internal format; `first` is "$self", "$module", ... or
// NULL.
char *ext_text_signature(const char *name, const char *signature, const char *doc,
                         const char *first);
// Docstring of a method made from a function's signature: omits the first parameter.
char *ext_text_of_method(const char *name, const char *signature, const char *doc);

// EXT_EACH(m, of, a, b, c) is m(of, a) m(of, b) m(of, c).
#define EXT_EACH(m, of, ...) \
  EXT_26TH_(__VA_ARGS__, EXT_EACH25_, EXT_EACH24_, EXT_EACH23_, EXT_EACH22_, EXT_EACH21_, \
            EXT_EACH20_, EXT_EACH19_, EXT_EACH18_, EXT_EACH17_, EXT_EACH16_, EXT_EACH15_, \
            EXT_EACH14_, EXT_EACH13_, EXT_EACH12_, EXT_EACH11_, EXT_EACH10_, EXT_EACH9_, \
            EXT_EACH8_, EXT_EACH7_, EXT_EACH6_, EXT_EACH5_, EXT_EACH4_, EXT_EACH3_, EXT_EACH2_, \
            EXT_EACH1_) \
  (m, of, __VA_ARGS__)
#define EXT_26TH_(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, \
                  ...) \
  z
#define EXT_EACH1_(m, of, a) m(of, a)
#define EXT_EACH2_(m, of, a, ...) m(of, a) EXT_EACH1_(m, of, __VA_ARGS__)
#define EXT_EACH3_(m, of, a, ...) m(of, a) EXT_EACH2_(m, of, __VA_ARGS__)
#define EXT_EACH4_(m, of, a, ...) m(of, a) EXT_EACH3_(m, of, __VA_ARGS__)
#define EXT_EACH5_(m, of, a, ...) m(of, a) EXT_EACH4_(m, of, __VA_ARGS__)
#define EXT_EACH6_(m, of, a, ...) m(of, a) EXT_EACH5_(m, of, __VA_ARGS__)
#define EXT_EACH7_(m, of, a, ...) m(of, a) EXT_EACH6_(m, of, __VA_ARGS__)
#define EXT_EACH8_(m, of, a, ...) m(of, a) EXT_EACH7_(m, of, __VA_ARGS__)
#define EXT_EACH9_(m, of, a, ...) m(of, a) EXT_EACH8_(m, of, __VA_ARGS__)
#define EXT_EACH10_(m, of, a, ...) m(of, a) EXT_EACH9_(m, of, __VA_ARGS__)
#define EXT_EACH11_(m, of, a, ...) m(of, a) EXT_EACH10_(m, of, __VA_ARGS__)
#define EXT_EACH12_(m, of, a, ...) m(of, a) EXT_EACH11_(m, of, __VA_ARGS__)
#define EXT_EACH13_(m, of, a, ...) m(of, a) EXT_EACH12_(m, of, __VA_ARGS__)
#define EXT_EACH14_(m, of, a, ...) m(of, a) EXT_EACH13_(m, of, __VA_ARGS__)
#define EXT_EACH15_(m, of, a, ...) m(of, a) EXT_EACH14_(m, of, __VA_ARGS__)
#define EXT_EACH16_(m, of, a, ...) m(of, a) EXT_EACH15_(m, of, __VA_ARGS__)
#define EXT_EACH17_(m, of, a, ...) m(of, a) EXT_EACH16_(m, of, __VA_ARGS__)
#define EXT_EACH18_(m, of, a, ...) m(of, a) EXT_EACH17_(m, of, __VA_ARGS__)
#define EXT_EACH19_(m, of, a, ...) m(of, a) EXT_EACH18_(m, of, __VA_ARGS__)
#define EXT_EACH20_(m, of, a, ...) m(of, a) EXT_EACH19_(m, of, __VA_ARGS__)
#define EXT_EACH21_(m, of, a, ...) m(of, a) EXT_EACH20_(m, of, __VA_ARGS__)
#define EXT_EACH22_(m, of, a, ...) m(of, a) EXT_EACH21_(m, of, __VA_ARGS__)
#define EXT_EACH23_(m, of, a, ...) m(of, a) EXT_EACH22_(m, of, __VA_ARGS__)
#define EXT_EACH24_(m, of, a, ...) m(of, a) EXT_EACH23_(m, of, __VA_ARGS__)
#define EXT_EACH25_(m, of, a, ...) m(of, a) EXT_EACH24_(m, of, __VA_ARGS__)

// ---- rows
typedef enum ext_row_kind {
  EXT_ROW_MODULE,
  EXT_ROW_TYPE,
  EXT_ROW_NEW,     // signature of a type's constructor
  EXT_ROW_MEMBER,  // a method of a type, or a function of a module
  EXT_ROW_ATTRIBUTE,
  EXT_ROW_SLOT,
  EXT_ROW_CONVERTER,
  EXT_ROW_START,
} ext_row_kind;
// Stages of the start, run in this order; within a stage, in link order. Modules are created before
// the first.
typedef enum ext_stage {
  EXT_ERRORS,  // exception classes, used by later stages
  EXT_TYPES,   // declared types exist; creates run-time types
  EXT_OPS,     // callables of the op tables; declared methods come later and take precedence
  EXT_VALUES,  // functions and methods exist; creates constant objects
  EXT_LAYERS,  // code built on all of these
  EXT_UPPER,   // code built on EXT_LAYERS
  EXT_LAST,    // inspects everything created
} ext_stage;
struct ext_row {
  ext_row_kind row_kind;
  bool one_object;                            // exactly one parameter: an object, by position
  uint8_t param_count, positional, required;  // required: up to the last without a default
  const char *owner, *name, *signature, *doc;
  union {  // by row_kind
    PyMethodDef method;
    PyGetSetDef attribute;
    struct {
      PyTypeObject *type;
      unsigned flags;  // EXT_BASETYPE, ...
    };
    struct {
      void *slot;  // value of the type's slot at `offset` bytes
      size_t offset;
    };
    struct {
      ext_kind kind;
      int (*convert)(PyObject *object, void *out);
    };
    struct {
      ext_stage stage;
      int (*start)(PyObject *module);
    };
  };
  ext_row *same;             // the row this one is an alias of
  const char *display_name;  // in messages about arguments; NULL: `name`
  struct ext_param *params;  // of the signature; parsed at the first call
};
// Fast path of most small functions: one object given by position.
static inline int ext_bind_args(const ext_call *call, const ext_variables *variables,
                                void *const *places) {
  bool object = variables->count == 1 && variables->kinds[0] == EXT_KIND_OBJECT;
  bool plain = !call->first && !call->kwnames && !call->kwargs;
  if (__builtin_expect(
          object && plain && call->nargs == 1 && call->row->one_object && *call->args != Py_None,
          1)) {
    *(PyObject **)places[0] = *call->args;
    return 0;
  }
  const ext_call copy = *call;  // lets the call itself stay in registers
  return ext_bind_call(&copy, variables, places);
}

#define EXT_ROW_(id, ...) \
  static ext_row id##_row = {__VA_ARGS__}; \
  __attribute__((section("ext_rows"), used)) static ext_row *id##_row_at = &id##_row

// A module: its path below torch ("cuda.memory"; "." is torch) and further modules with the same
// functions.
#define EXT_MODULE(word, paths, text) \
  EXT_ROW_(word##_module, .row_kind = EXT_ROW_MODULE, .owner = #word, .name = paths, .doc = text)
// Calls `static int function(PyObject *torch)` at a stage.
#define EXT_START(stage_, function) \
  EXT_ROW_(function, .row_kind = EXT_ROW_START, .stage = stage_, .name = #function, \
           .start = function)

// Dispatches a call of a torch function to the active modes (override.c). True if one handled it;
// *result is then its result, or NULL with an exception.
bool ext_dispatch_to_modes(PyObject *self, const ext_call *call, PyObject **result);
// Dispatches to the classes of the arguments. Needed by functions computing results other than by
// calls of ops, which dispatch themselves.
bool ext_dispatch_to_classes(const ext_call *call, PyObject **result);
#define EXT_DISPATCH_TO_CLASSES() \
  do { \
    PyObject *ext_result_; \
    if (ext_dispatch_to_classes(call, &ext_result_)) return ext_result_; \
  } while (0)

// ---- methods of types and functions of modules (the owner determines which)
#define EXT_METHOD(owner, name, signature, doc) \
  EXT_CALLABLE_(owner##_##name, #owner, #name, signature, doc, 0)
#define EXT_FUNCTION(owner, name, signature, doc) \
  EXT_CALLABLE_(owner##_##name, #owner, #name, signature, doc, 0)
// Class methods (self is the type) and static methods (self is NULL).
#define EXT_CLASS_METHOD(owner, name, signature, doc) \
  EXT_CALLABLE_(owner##_##name, #owner, #name, signature, doc, METH_CLASS)
#define EXT_STATIC_METHOD(owner, name, signature, doc) \
  EXT_CALLABLE_(owner##_##name, #owner, #name, signature, doc, METH_STATIC)
// A compound literal per use: modes need the call in memory.
#define EXT_CALL_(id, args, nargs, kwnames) \
  &(const ext_call) { &id##_row, NULL, args, nargs, kwnames, NULL }
// The body sees `self` and `call`.
#define EXT_CALLABLE_(id, owner_, name_, signature_, doc_, flags_) \
  static PyObject *id##_call(PyObject *self, PyObject *const *args, Py_ssize_t nargs, \
                             PyObject *kwnames); \
  EXT_ROW_(id, .row_kind = EXT_ROW_MEMBER, .owner = owner_, .name = name_, \
           .signature = signature_, .doc = doc_, \
           .method = {name_, (PyCFunction)(void (*)(void))id##_call, \
                      METH_FASTCALL | METH_KEYWORDS | (flags_), NULL}); \
  static PyObject *id(PyObject *self, const ext_call *call); \
  static PyObject *id##_call(PyObject *self, PyObject *const *args, Py_ssize_t nargs, \
                             PyObject *kwnames) { \
    PyObject *taken; \
    if (__builtin_expect(ext_mode_count, 0) && \
        ext_dispatch_to_modes(self, EXT_CALL_(id, args, nargs, kwnames), &taken)) \
      return taken; \
    return id(self, EXT_CALL_(id, args, nargs, kwnames)); \
  } \
  static PyObject *id(PyObject *self, const ext_call *call)

// A callable without arguments, which is cheaper to call. `result` is the annotation only.
#define EXT_METHOD0(owner_, name_, result, doc_) \
  static PyObject *owner_##_##name_(PyObject *self, PyObject *unused); \
  EXT_ROW_(owner_##_##name_, .row_kind = EXT_ROW_MEMBER, .owner = #owner_, .name = #name_, \
           .signature = "() -> " result, .doc = doc_, \
           .method = {#name_, owner_##_##name_, METH_NOARGS, NULL}); \
  static PyObject *owner_##_##name_(PyObject *self, PyObject *unused)
#define EXT_FUNCTION0 EXT_METHOD0
// EXT_METHOD0 returning the value of a C expression.
#define EXT_RETURNS(owner, name, result, expression, doc) \
  EXT_METHOD0(owner, name, result, doc) { return EXT_VALUE(expression); } \
  struct ext_row
// EXT_METHOD0 running a px_status expression without the GIL and returning None.
#define EXT_RETURNS_NONE(owner, name, expression, doc) \
  EXT_METHOD0(owner, name, "None", doc) { \
    EXT_WAIT(expression); \
    Py_RETURN_NONE; \
  } \
  struct ext_row
// A module function that is also a method of a type, with self as the first parameter. Both run
// the same body; the signature is the function's.
#define EXT_FUNCTION_AND_METHOD(module, type, name_, signature_, doc_) \
  static PyObject *module##_##name_(PyObject *self, const ext_call *call); \
  static PyObject *module##_##name_##_as_method(PyObject *self, PyObject *const *args, \
                                                Py_ssize_t nargs, PyObject *kwnames); \
  EXT_CALLABLE_(module##_##name_, #module, #name_, signature_, doc_, 0); \
  EXT_ROW_(module##_##name_##_as_method, .row_kind = EXT_ROW_MEMBER, .owner = #type, \
           .name = #name_, .doc = doc_, .same = &module##_##name_##_row, \
           .method = {#name_, (PyCFunction)(void (*)(void))module##_##name_##_as_method, \
                      METH_FASTCALL | METH_KEYWORDS, NULL}); \
  static PyObject *module##_##name_##_as_method(PyObject *self, PyObject *const *args, \
                                                Py_ssize_t nargs, PyObject *kwnames) { \
    return module##_##name_( \
        NULL, &(ext_call){&module##_##name_##_row, self, args, nargs, kwnames, NULL}); \
  } \
  static PyObject *module##_##name_(PyObject *self, const ext_call *call)
// Aliases of a member or attribute of the same file, optionally in another owner.
#define EXT_ALIASES(owner, id, ...) EXT_EACH(EXT_ALIASES_, (owner, id), __VA_ARGS__) struct ext_row
#define EXT_ALIASES_(of, name) EXT_APPLY_(EXT_ALIAS_ROW_, name, EXT_UNPACK_ of)
#define EXT_ALIAS_ROW_(name_, owner_, id) \
  EXT_ROW_(owner_##_also_##name_, .row_kind = EXT_ROW_MEMBER, .owner = #owner_, .name = #name_, \
           .same = &id##_row);
// Members shared with another owner under the same names (attributes: of OWNER_attr).
#define EXT_SAME_MEMBERS(owner, other, ...) \
  EXT_EACH(EXT_SAME_MEMBERS_, (owner, other), __VA_ARGS__) struct ext_row
#define EXT_SAME_MEMBERS_(of, name) EXT_APPLY_(EXT_SAME_MEMBERS_ROW_, name, EXT_UNPACK_ of)
#define EXT_SAME_MEMBERS_ROW_(name, owner, other) EXT_ALIAS_ROW_(name, owner, other##_##name)
#define EXT_APPLY_(m, ...) m(__VA_ARGS__)
#define EXT_UNPACK_(...) __VA_ARGS__

// ---- attributes
#define EXT_GETTER(owner_, name_, annotation, doc_) \
  static PyObject *owner_##_attr_##name_(PyObject *self, void *unused); \
  EXT_ROW_(owner_##_attr_##name_, .row_kind = EXT_ROW_ATTRIBUTE, .owner = #owner_, .name = #name_, \
           .signature = annotation, .doc = doc_, \
           .attribute = {#name_, owner_##_attr_##name_, NULL, NULL, NULL}); \
  static PyObject *owner_##_attr_##name_(PyObject *self, void *unused)
// A settable attribute: `static int owner_assign_name(PyObject *self, PyObject *value, void *)`.
#define EXT_GETTER_AND_SETTER(owner_, name_, annotation, doc_) \
  static PyObject *owner_##_attr_##name_(PyObject *self, void *unused); \
  static int owner_##_assign_##name_(PyObject *self, PyObject *value, void *unused); \
  EXT_ROW_(owner_##_attr_##name_, .row_kind = EXT_ROW_ATTRIBUTE, .owner = #owner_, .name = #name_, \
           .signature = annotation, .doc = doc_, \
           .attribute = {#name_, owner_##_attr_##name_, owner_##_assign_##name_, NULL, NULL}); \
  static PyObject *owner_##_attr_##name_(PyObject *self, void *unused)
#define EXT_SETTER(owner, name) \
  static int owner##_assign_##name(PyObject *self, PyObject *value, void *unused)
// An attribute computed by a C expression over self.
#define EXT_GET(owner, name, annotation, expression, doc) \
  EXT_GETTER(owner, name, annotation, doc) { return EXT_VALUE(expression); } \
  struct ext_row

// Converts a C value to a new Python object by its type. An int with boolean meaning, such as a
// comparison, needs a cast to bool.
#define EXT_VALUE(expression) \
  _Generic((expression), \
      bool: ext_from_bool, \
      int: PyLong_FromLong, \
      int64_t: PyLong_FromLongLong, \
      uint64_t: PyLong_FromUnsignedLongLong, \
      double: PyFloat_FromDouble, \
      const char *: PyUnicode_FromString, \
      void *: PyLong_FromVoidPtr, \
      px_device: ext_device, \
      px_scalar: ext_scalar, \
      PyObject *: ext_itself)(expression)
static inline PyObject *ext_from_bool(bool value) { return PyBool_FromLong(value); }
static inline PyObject *ext_itself(PyObject *object_take) { return object_take; }

// ---- types
typedef struct ext_owned {
  size_t offset;
  enum { EXT_OWNS_NOTHING, EXT_OWNS_OBJECT, EXT_OWNS_CORE, EXT_OWNS_MEMORY, EXT_OWNS_CUSTOM } kind;
  void (*end)(PyObject *self);
} ext_owned;
// Owned fields of an object: a PyObject *, a px_ object, PyMem memory, or a custom finalizer.
#define EXT_OBJECT(object, field) \
  { offsetof(object, field), EXT_OWNS_OBJECT, NULL }
#define EXT_CORE(object, field) \
  { offsetof(object, field), EXT_OWNS_CORE, NULL }
#define EXT_MEMORY(object, field) \
  { offsetof(object, field), EXT_OWNS_MEMORY, NULL }
#define EXT_FINALIZER(function) \
  { 0, EXT_OWNS_CUSTOM, function }
// Defines WORD_dealloc, WORD_traverse and WORD_clear from the owned fields.
#define EXT_OWNS(word, ...) \
  static const ext_owned word##_owned[] = {__VA_ARGS__, {0}}; \
  static int word##_traverse(PyObject *self, visitproc visit, void *arg) { \
    return ext_traverse(self, word##_owned, visit, arg); \
  } \
  static int word##_clear(PyObject *self) { return ext_clear(self, word##_owned); } \
  static void word##_dealloc(PyObject *self) { ext_dealloc(self, word##_owned); } \
  struct ext_row
int ext_traverse(PyObject *self, const ext_owned *owned, visitproc visit, void *arg);
int ext_clear(PyObject *self, const ext_owned *owned);
void ext_dealloc(PyObject *self, const ext_owned *owned);
// A new zero-initialized object.
static inline void *ext_new(PyTypeObject *type) { return type->tp_alloc(type, 0); }
// A new object over a core object, whose reference it takes: the first field of its struct.
PyObject *ext_wrap_core(PyTypeObject *type, void *core_take);

enum {
  EXT_FINAL = 0,
  EXT_BASETYPE = 1,  // can be subclassed
  EXT_GC = 2,        // can be part of a reference cycle
  // Messages name it without its module, like PyTorch's for Python classes. Slows attribute lookup
  // a little: avoid it for types with frequent lookups.
  EXT_SHORT_NAME = 4,
  EXT_VECTORCALL = 8,          // called without a tuple, by tp_vectorcall_offset
  EXT_METHOD_DESCRIPTOR = 16,  // binds to objects like a function; called without binding
  EXT_QUALIFIED = 32,          // argument errors say Class.method(), as for Python classes
  EXT_MUTABLE = 64,            // class attributes can be set, as for Python classes
};
typedef struct ext_inherited {
} ext_inherited;  // for a type without fields beyond those of its base
// `paths` are the type's names below torch: "Size", "cuda.Stream Stream", or "" for none. Slots
// follow the docstring.
#define EXT_TYPE(word, full_name, paths, object, flags, text, ...) \
  EXT_TYPE_(static, word, word##_type, full_name, paths, object, flags, text, __VA_ARGS__)
// A type with external linkage, named `symbol`.
#define EXT_SHARED_TYPE(word, symbol, full_name, paths, object, flags, text, ...) \
  EXT_TYPE_(, word, symbol, full_name, paths, object, flags, text, __VA_ARGS__)
#define EXT_TYPE_(linkage, word, symbol, full_name, paths, object, flags_, text, ...) \
  linkage PyTypeObject symbol = { \
      PyVarObject_HEAD_INIT(NULL, 0).tp_name = full_name, .tp_basicsize = sizeof(object), \
      .tp_doc = text, \
      .tp_flags = Py_TPFLAGS_DEFAULT | ((flags_)&EXT_BASETYPE ? Py_TPFLAGS_BASETYPE : 0) | \
                  ((flags_)&EXT_GC ? Py_TPFLAGS_HAVE_GC : 0) | \
                  ((flags_)&EXT_VECTORCALL ? Py_TPFLAGS_HAVE_VECTORCALL : 0) | \
                  ((flags_)&EXT_METHOD_DESCRIPTOR ? Py_TPFLAGS_METHOD_DESCRIPTOR : 0), \
      __VA_ARGS__}; \
  EXT_ROW_(word##_declared, .row_kind = EXT_ROW_TYPE, .owner = #word, .name = paths, .doc = text, \
           .type = &symbol, .flags = flags_)
// Slots of a type declared with EXT_OWNS.
#define EXT_LIFETIME_SLOTS(word) \
  .tp_dealloc = word##_dealloc, .tp_traverse = word##_traverse, .tp_clear = word##_clear
// A slot of a type, filled from another file: features of a type can live in their own files.
#define EXT_SLOT(word, slot_, value) \
  EXT_ROW_(word##_##slot_, .row_kind = EXT_ROW_SLOT, .owner = #word, .name = #slot_, \
           .slot = (void *)(value), .offset = offsetof(PyTypeObject, slot_))
// Constructor of a type. The body sees `type` and `call`; the type's slot is .tp_new = WORD_new.
#define EXT_NEW(word, signature_) \
  static PyObject *word##_construct(PyTypeObject *type, const ext_call *call); \
  EXT_ROW_(word##_construct, .row_kind = EXT_ROW_NEW, .owner = #word, .name = #word, \
           .signature = signature_); \
  static PyObject *word##_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) { \
    return word##_construct(type, \
                            &(ext_call){&word##_construct_row, NULL, &PyTuple_GET_ITEM(args, 0), \
                                        PyTuple_GET_SIZE(args), NULL, kwargs}); \
  } \
  static PyObject *word##_construct(PyTypeObject *type, const ext_call *call)
// Initializer of a type whose subclasses may take other arguments and pass these on. The body sees
// `self` and `call` and returns 0 or -1. Slots: .tp_new = PyType_GenericNew, .tp_init = WORD_init.
#define EXT_INIT(word, signature_) \
  static int word##_fill(PyObject *self, const ext_call *call); \
  EXT_ROW_(word##_fill, .row_kind = EXT_ROW_NEW, .owner = #word, .name = #word, \
           .signature = signature_); \
  static int word##_init(PyObject *self, PyObject *args, PyObject *kwargs) { \
    return word##_fill(self, &(ext_call){&word##_fill_row, NULL, &PyTuple_GET_ITEM(args, 0), \
                                         PyTuple_GET_SIZE(args), NULL, kwargs}); \
  } \
  static int word##_fill(PyObject *self, const ext_call *call)
// Registers a run-time type under the word used by declarations.
int ext_register_owner(const char *word, PyTypeObject *type);
