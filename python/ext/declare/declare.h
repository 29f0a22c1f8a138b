// SPDX-License-Identifier: Apache-2.0
// How a Python type, method, attribute or function is declared: in one place, where its C code is.
// A declaration is a row of a table that the linker puts together (section "ext_rows"); declare.c
// reads it when the module is made. So no file lists what another has, and a new file or type needs
// no line elsewhere.
//
//   typedef struct stream_object {
//     PyObject_HEAD px_stream *stream;
//   } stream_object;
//   #define S(self) (((stream_object *)(self))->stream)
//
//   EXT_OWNS(stream, EXT_CORE(stream_object, stream));      // dealloc, traverse, clear follow
//   EXT_NEW(stream, "(device: Device | None = None, priority: int = 0)") { ... }
//   EXT_TYPE(stream, "torch.cuda.Stream", "cuda.Stream Stream", stream_object, EXT_OPEN,
//            "A queue of work of one device.", EXT_LIFE(stream), .tp_new = stream_new);
//   EXT_GET(stream, priority, "int", px_stream_priority(S(self)), "Lower numbers go first.");
//   EXT_METHOD(stream, wait_event, "(event: Event) -> None", "Work queued from now on waits.") {
//     EXT_ARGS(PyObject *, event);
//     ...
//   }
//
// The first argument is the owner's word: a type's or a module's. The signature is that of a stub
// file. It is read once: arguments are bound by it, inspect.signature shows it, and
// `_C._declared()` gives it to what writes stubs.
#pragma once
#include "bind/ext.h"

// ---- signatures and their arguments
enum { EXT_MAX_PARAMS = 25 };  // as many as EXT_EACH takes
typedef struct ext_row ext_row;
// One call that waits for its arguments to be bound: `args` are followed by the values of kwnames
// (a vectorcall), or there is a dict of keywords (tp_new). `first` goes before the arguments: the
// self of a method that shares its code with a function.
typedef struct ext_call {
  ext_row *row;
  PyObject *first, *const *args;
  Py_ssize_t nargs;
  PyObject *kwnames, *kwargs;
} ext_call;

// The index of a device of torch.cuda: from None (the current one), an int, a str or a device.
typedef struct ext_cuda {
  int index;
} ext_cuda;
// A bool that may be left open: -1 for None.
typedef signed char ext_maybe;
// The first two arguments of an op: what a method is of, and what comes behind.
enum { EXT_SELF, EXT_OTHER };
// What is left of the positional arguments: *args. Borrowed.
typedef struct ext_rest {
  PyObject *const *items;
  Py_ssize_t count;
} ext_rest;
PyObject *ext_tuple_of(ext_rest rest);
// The arguments of a call that has as many as there are variables, by their places; false if it has
// more or fewer: EXT_PLACES(args, nargs, &name, &value).
#define EXT_PLACES(args, nargs, ...) \
  ext_places(args, nargs, (PyObject * *const[]){__VA_ARGS__}, \
             sizeof((PyObject **[]){__VA_ARGS__}) / sizeof(PyObject **))
static inline bool ext_places(PyObject *const *args, Py_ssize_t nargs, PyObject **const *variables,
                              size_t count) {
  for (size_t i = 0; (size_t)nargs == count && i < count; i++) *variables[i] = args[i];
  return (size_t)nargs == count;
}
// The arguments of a call that were given by name, as a dict; kwnames may be NULL.
PyObject *ext_kwargs_of(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
#define EXT_NO_INT INT64_MIN  // an int that is None

// What an argument becomes; the kind says how it is converted.
typedef enum ext_kind {
  EXT_KIND_OBJECT,     // PyObject *: as it is, borrowed; NULL if not given
  EXT_KIND_BOOL,       // bool: the truth of anything
  EXT_KIND_MAYBE,      // ext_maybe
  EXT_KIND_INT,        // int64_t; EXT_NO_INT for None
  EXT_KIND_FLOAT,      // double; NaN for None
  EXT_KIND_TEXT,       // const char *; NULL for None
  EXT_KIND_NUMBER,     // px_scalar
  EXT_KIND_INTS,       // ext_ints; count -1 for None
  EXT_KIND_TENSOR,     // px_tensor *, borrowed; NULL for None
  EXT_KIND_DTYPE,      // px_dtype; PX_DTYPE_NONE for None
  EXT_KIND_DEVICE,     // px_device; PX_DEVICE_NONE for None
  EXT_KIND_CUDA,       // ext_cuda
  EXT_KIND_GENERATOR,  // px_generator *, borrowed
  EXT_KIND_STREAM,     // px_stream *, borrowed
  EXT_KIND_FORMAT,     // ext_format
  EXT_KIND_LAYOUT,     // ext_layout
  EXT_KIND_MODULE,     // struct px_module *, borrowed
  EXT_KIND_REST,       // ext_rest, for *args
} ext_kind;
#define EXT_KIND(variable) \
  _Generic(&(variable), \
      PyObject **: EXT_KIND_OBJECT, \
      bool *: EXT_KIND_BOOL, \
      ext_maybe *: EXT_KIND_MAYBE, \
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
      ext_rest *: EXT_KIND_REST)
// The C variables of a function: what is known of them before it is called.
typedef struct ext_variables {
  int count;
  const ext_kind *kinds;
  const char *names;  // with commas between them
} ext_variables;

// Binds the arguments of `call` to variables: one for each parameter of the signature, in its order
// and with its names (a name that C has taken ends in "_"). A parameter that is not given, or given
// as None, is set to the signature's default, which stands nowhere else.
#define EXT_BIND(...) EXT_BIND_OR(NULL, __VA_ARGS__)
#define EXT_BIND_OR(failed, ...) \
  do { \
    static const ext_kind ext_kinds_[] = {EXT_EACH(EXT_KIND_OF_, , __VA_ARGS__)}; \
    static const ext_variables ext_variables_ = {EXT_LENGTH(ext_kinds_), ext_kinds_, \
                                                 #__VA_ARGS__}; \
    void *const ext_places_[] = {EXT_EACH(EXT_PLACE_, , __VA_ARGS__)}; \
    if (ext_bind_args(call, &ext_variables_, ext_places_) < 0) return failed; \
  } while (0)
// The same for variables of one type, which it declares.
#define EXT_ARGS(type, ...) \
  __typeof__(type) __VA_ARGS__; \
  EXT_BIND(__VA_ARGS__)
// How a kind is read from an object, told by the file that has the type. TypeError "must be int,
// not str" where it is another; what calls adds the names of function and argument.
#define EXT_CONVERTS(kind_, function) \
  EXT_ROW_(function##_converts, .what = EXT_ROW_CONVERTER, .owner = "", .name = #kind_, \
           .kind = kind_, .convert = function)
void ext_set_converter(ext_kind kind, int (*convert)(PyObject *object, void *out));
#define EXT_KIND_OF_(nothing, variable) EXT_KIND(variable),
#define EXT_PLACE_(nothing, variable) &(variable),
int ext_bind_call(const ext_call *call, const ext_variables *variables, void *const *places);
// The docstring with the signature as CPython takes it apart again; `first` is "$self", or NULL.
char *ext_text_signature(const char *name, const char *signature, const char *doc,
                         const char *first);
// The same for a function's signature as a method's: without its first parameter.
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
typedef enum ext_what {
  EXT_ROW_MODULE,
  EXT_ROW_TYPE,
  EXT_ROW_NEW,     // the signature of a type's constructor
  EXT_ROW_MEMBER,  // a method of a type, or a function of a module
  EXT_ROW_ATTRIBUTE,
  EXT_ROW_SLOT,
  EXT_ROW_CONVERTER,
  EXT_ROW_START,
} ext_what;
// Parts of the start that must come one after another; within one, the order of files. Modules are
// there before all of them.
typedef enum ext_stage {
  EXT_ERRORS,  // exceptions, which others name
  EXT_TYPES,   // declared types are there; types made at run time
  EXT_OPS,     // callables of the op tables: declared methods come after them, and win
  EXT_VALUES,  // functions and methods are there; constant objects
  EXT_LAYERS,  // what is built on them
  EXT_UPPER,   // ... and on layers
  EXT_LAST,    // what looks at all the rest
} ext_stage;
struct ext_row {
  ext_what what;
  bool one_object;                            // `params` are one, which may be given by its place
  uint8_t param_count, positional, required;  // required: those up to the last without a default
  const char *owner, *name, *signature, *doc;
  union {  // by `what`
    PyMethodDef method;
    PyGetSetDef attribute;
    struct {
      PyTypeObject *type;
      unsigned flags;  // EXT_OPEN, ...
    };
    struct {
      void *slot;  // goes into a type, `offset` bytes behind its beginning
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
  ext_row *same;             // another name of this row
  const char *said;          // what messages about arguments call it; NULL: its name
  struct ext_param *params;  // of the signature; read at the first call
};
// One object, given by its place, is bound here: what most calls of small functions are.
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
  const ext_call copy = *call;  // so that the call itself can stay in registers
  return ext_bind_call(&copy, variables, places);
}

#define EXT_ROW_(id, ...) \
  static ext_row id##_row = {__VA_ARGS__}; \
  __attribute__((section("ext_rows"), used)) static ext_row *id##_row_at = &id##_row

// A module and what it holds: its path below torch ("cuda.memory"; "." is torch), and others that
// have the same functions.
#define EXT_MODULE(word, paths, text) \
  EXT_ROW_(word##_module, .what = EXT_ROW_MODULE, .owner = #word, .name = paths, .doc = text)
// `static int function(PyObject *torch)` is called at its stage.
#define EXT_START(stage_, function) \
  EXT_ROW_(function, .what = EXT_ROW_START, .stage = stage_, .name = #function, .start = function)

// Calls of torch's functions go to the modes that are entered (override.c): whether they take this
// one, and then what they make of it.
bool ext_modes_take(PyObject *self, const ext_call *call, PyObject **result);
// The same for the classes of its arguments, of a function that makes its results not by calls of
// ops alone, which ask for themselves.
bool ext_classes_take(const ext_call *call, PyObject **result);
#define EXT_CLASSES_TAKE() \
  do { \
    PyObject *ext_taken_; \
    if (ext_classes_take(call, &ext_taken_)) return ext_taken_; \
  } while (0)

// ---- methods of types and functions of modules (the owner decides which)
#define EXT_METHOD(owner, name, signature, doc) \
  EXT_CALLABLE_(owner##_##name, #owner, #name, signature, doc, 0)
#define EXT_FUNCTION(owner, name, signature, doc) \
  EXT_CALLABLE_(owner##_##name, #owner, #name, signature, doc, 0)
// In a class, of the class (self is the type) or of neither (self is NULL).
#define EXT_CLASS_METHOD(owner, name, signature, doc) \
  EXT_CALLABLE_(owner##_##name, #owner, #name, signature, doc, METH_CLASS)
#define EXT_STATIC_METHOD(owner, name, signature, doc) \
  EXT_CALLABLE_(owner##_##name, #owner, #name, signature, doc, METH_STATIC)
// One for each use: what modes are told of has to be in memory.
#define EXT_CALL_(id, args, nargs, kwnames) \
  &(const ext_call) { &id##_row, NULL, args, nargs, kwnames, NULL }
// The body has `self` and `call`.
#define EXT_CALLABLE_(id, owner_, name_, signature_, doc_, flags_) \
  static PyObject *id##_call(PyObject *self, PyObject *const *args, Py_ssize_t nargs, \
                             PyObject *kwnames); \
  EXT_ROW_(id, .what = EXT_ROW_MEMBER, .owner = owner_, .name = name_, .signature = signature_, \
           .doc = doc_, \
           .method = {name_, (PyCFunction)(void (*)(void))id##_call, \
                      METH_FASTCALL | METH_KEYWORDS | (flags_), NULL}); \
  static PyObject *id(PyObject *self, const ext_call *call); \
  static PyObject *id##_call(PyObject *self, PyObject *const *args, Py_ssize_t nargs, \
                             PyObject *kwnames) { \
    PyObject *taken; \
    if (__builtin_expect(ext_mode_count, 0) && \
        ext_modes_take(self, EXT_CALL_(id, args, nargs, kwnames), &taken)) \
      return taken; \
    return id(self, EXT_CALL_(id, args, nargs, kwnames)); \
  } \
  static PyObject *id(PyObject *self, const ext_call *call)

// One that takes no arguments: CPython calls it in less time. `result` is the annotation alone.
#define EXT_METHOD0(owner_, name_, result, doc_) \
  static PyObject *owner_##_##name_(PyObject *self, PyObject *unused); \
  EXT_ROW_(owner_##_##name_, .what = EXT_ROW_MEMBER, .owner = #owner_, .name = #name_, \
           .signature = "() -> " result, .doc = doc_, \
           .method = {#name_, owner_##_##name_, METH_NOARGS, NULL}); \
  static PyObject *owner_##_##name_(PyObject *self, PyObject *unused)
#define EXT_FUNCTION0 EXT_METHOD0
// ... and gives the value of a C expression.
#define EXT_GIVES(owner, name, result, expression, doc) \
  EXT_METHOD0(owner, name, result, doc) { return EXT_VALUE(expression); } \
  struct ext_row
// ... and calls what gives a px_status, without the GIL, and gives None.
#define EXT_DOES(owner, name, expression, doc) \
  EXT_METHOD0(owner, name, "None", doc) { \
    EXT_WAIT(expression); \
    Py_RETURN_NONE; \
  } \
  struct ext_row
// A function of a module that is also a method of a type, whose self is the first parameter: both
// run one body, and the signature is the function's.
#define EXT_BOTH(module, type, name_, signature_, doc_) \
  static PyObject *module##_##name_(PyObject *self, const ext_call *call); \
  static PyObject *module##_##name_##_as_method(PyObject *self, PyObject *const *args, \
                                                Py_ssize_t nargs, PyObject *kwnames); \
  EXT_CALLABLE_(module##_##name_, #module, #name_, signature_, doc_, 0); \
  EXT_ROW_(module##_##name_##_as_method, .what = EXT_ROW_MEMBER, .owner = #type, .name = #name_, \
           .doc = doc_, .same = &module##_##name_##_row, \
           .method = {#name_, (PyCFunction)(void (*)(void))module##_##name_##_as_method, \
                      METH_FASTCALL | METH_KEYWORDS, NULL}); \
  static PyObject *module##_##name_##_as_method(PyObject *self, PyObject *const *args, \
                                                Py_ssize_t nargs, PyObject *kwnames) { \
    return module##_##name_( \
        NULL, &(ext_call){&module##_##name_##_row, self, args, nargs, kwnames, NULL}); \
  } \
  static PyObject *module##_##name_(PyObject *self, const ext_call *call)
// Other names for a member or attribute of the same file, perhaps with another owner.
#define EXT_ALSO(owner, id, ...) EXT_EACH(EXT_ALSO_, (owner, id), __VA_ARGS__) struct ext_row
#define EXT_ALSO_(of, name) EXT_APPLY_(EXT_ALSO_ROW_, name, EXT_UNPACK_ of)
#define EXT_ALSO_ROW_(name_, owner_, id) \
  EXT_ROW_(owner_##_also_##name_, .what = EXT_ROW_MEMBER, .owner = #owner_, .name = #name_, \
           .same = &id##_row);
// Members that another owner has by the same names (attributes: of OWNER_attr).
#define EXT_SHARES(owner, other, ...) \
  EXT_EACH(EXT_SHARES_, (owner, other), __VA_ARGS__) struct ext_row
#define EXT_SHARES_(of, name) EXT_APPLY_(EXT_SHARES_ROW_, name, EXT_UNPACK_ of)
#define EXT_SHARES_ROW_(name, owner, other) EXT_ALSO_ROW_(name, owner, other##_##name)
#define EXT_APPLY_(m, ...) m(__VA_ARGS__)
#define EXT_UNPACK_(...) __VA_ARGS__

// ---- attributes
#define EXT_GETTER(owner_, name_, annotation, doc_) \
  static PyObject *owner_##_attr_##name_(PyObject *self, void *unused); \
  EXT_ROW_(owner_##_attr_##name_, .what = EXT_ROW_ATTRIBUTE, .owner = #owner_, .name = #name_, \
           .signature = annotation, .doc = doc_, \
           .attribute = {#name_, owner_##_attr_##name_, NULL, NULL, NULL}); \
  static PyObject *owner_##_attr_##name_(PyObject *self, void *unused)
// ... that can be set, by `static int owner_assign_name(PyObject *self, PyObject *value, void *)`.
#define EXT_GETTER_AND_SETTER(owner_, name_, annotation, doc_) \
  static PyObject *owner_##_attr_##name_(PyObject *self, void *unused); \
  static int owner_##_assign_##name_(PyObject *self, PyObject *value, void *unused); \
  EXT_ROW_(owner_##_attr_##name_, .what = EXT_ROW_ATTRIBUTE, .owner = #owner_, .name = #name_, \
           .signature = annotation, .doc = doc_, \
           .attribute = {#name_, owner_##_attr_##name_, owner_##_assign_##name_, NULL, NULL}); \
  static PyObject *owner_##_attr_##name_(PyObject *self, void *unused)
#define EXT_SETTER(owner, name) \
  static int owner##_assign_##name(PyObject *self, PyObject *value, void *unused)
// ... that is the value of a C expression over self.
#define EXT_GET(owner, name, annotation, expression, doc) \
  EXT_GETTER(owner, name, annotation, doc) { return EXT_VALUE(expression); } \
  struct ext_row

// A C value as a new Python object, by its type. What is an int in C and meant as a truth (of a
// comparison) needs a cast to bool.
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
  enum { EXT_OWNS_NOTHING, EXT_OWNS_OBJECT, EXT_OWNS_CORE, EXT_OWNS_MEMORY, EXT_OWNS_REST } kind;
  void (*end)(PyObject *self);
} ext_owned;
// What an object owns: a PyObject *, a px_ object, memory of PyMem, or what a function ends.
#define EXT_OBJECT(object, field) \
  { offsetof(object, field), EXT_OWNS_OBJECT, NULL }
#define EXT_CORE(object, field) \
  { offsetof(object, field), EXT_OWNS_CORE, NULL }
#define EXT_MEMORY(object, field) \
  { offsetof(object, field), EXT_OWNS_MEMORY, NULL }
#define EXT_ENDS(function) \
  { 0, EXT_OWNS_REST, function }
// WORD_dealloc, WORD_traverse and WORD_clear, in terms of what is owned.
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
// A new object with all fields zero.
static inline void *ext_new(PyTypeObject *type) { return type->tp_alloc(type, 0); }
// One over an object of the core's, whose reference it takes: the first field of its struct.
PyObject *ext_over(PyTypeObject *type, void *core_take);

enum {
  EXT_FINAL = 0,
  EXT_OPEN = 1,    // programs may derive from it
  EXT_CYCLES = 2,  // can be part of a cycle: the collector sees it
  EXT_CLASS = 4,   // messages name it without its module, as PyTorch's do for classes of Python.
                   // Looking up attributes takes a little longer: not where that is done often.
  EXT_VECTORCALL = 8,  // called without a tuple, by tp_vectorcall_offset
  EXT_BINDS = 16,      // to objects, as functions do, and is called without being bound
  EXT_PREFIXED = 32,   // messages about arguments say Class.method(), as of a class of Python
  EXT_PATCHED = 64,    // programs may change the class, as they may one of Python's
};
typedef struct ext_inherited {
} ext_inherited;  // for a type whose objects are those of its base: of no size of their own
// `paths` are its names below torch: "Size", or "cuda.Stream Stream", or "" where it has none. What
// follows the text are slots.
#define EXT_TYPE(word, full_name, paths, object, flags, text, ...) \
  EXT_TYPE_(static, word, word##_type, full_name, paths, object, flags, text, __VA_ARGS__)
// One that other files name, by `symbol`.
#define EXT_SHARED_TYPE(word, symbol, full_name, paths, object, flags, text, ...) \
  EXT_TYPE_(, word, symbol, full_name, paths, object, flags, text, __VA_ARGS__)
#define EXT_TYPE_(linkage, word, symbol, full_name, paths, object, flags_, text, ...) \
  linkage PyTypeObject symbol = { \
      PyVarObject_HEAD_INIT(NULL, 0).tp_name = full_name, .tp_basicsize = sizeof(object), \
      .tp_doc = text, \
      .tp_flags = Py_TPFLAGS_DEFAULT | ((flags_)&EXT_OPEN ? Py_TPFLAGS_BASETYPE : 0) | \
                  ((flags_)&EXT_CYCLES ? Py_TPFLAGS_HAVE_GC : 0) | \
                  ((flags_)&EXT_VECTORCALL ? Py_TPFLAGS_HAVE_VECTORCALL : 0) | \
                  ((flags_)&EXT_BINDS ? Py_TPFLAGS_METHOD_DESCRIPTOR : 0), \
      __VA_ARGS__}; \
  EXT_ROW_(word##_declared, .what = EXT_ROW_TYPE, .owner = #word, .name = paths, .doc = text, \
           .type = &symbol, .flags = flags_)
// The slots of a type that EXT_OWNS something.
#define EXT_LIFE(word) \
  .tp_dealloc = word##_dealloc, .tp_traverse = word##_traverse, .tp_clear = word##_clear
// A slot of a type that another file fills: what a type can do is then no part of its own file.
#define EXT_SLOT(word, slot_, value) \
  EXT_ROW_(word##_##slot_, .what = EXT_ROW_SLOT, .owner = #word, .name = #slot_, \
           .slot = (void *)(value), .offset = offsetof(PyTypeObject, slot_))
// Its constructor; the body has `type` and `call`, and the type's slot is .tp_new = WORD_new.
#define EXT_NEW(word, signature_) \
  static PyObject *word##_construct(PyTypeObject *type, const ext_call *call); \
  EXT_ROW_(word##_construct, .what = EXT_ROW_NEW, .owner = #word, .name = #word, \
           .signature = signature_); \
  static PyObject *word##_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) { \
    return word##_construct(type, \
                            &(ext_call){&word##_construct_row, NULL, &PyTuple_GET_ITEM(args, 0), \
                                        PyTuple_GET_SIZE(args), NULL, kwargs}); \
  } \
  static PyObject *word##_construct(PyTypeObject *type, const ext_call *call)
// ... of a type whose subclasses may take other arguments, and pass on these: the body has `self`
// and `call`, gives 0 or -1, and the slots are .tp_new = PyType_GenericNew, .tp_init = WORD_init.
#define EXT_INIT(word, signature_) \
  static int word##_fill(PyObject *self, const ext_call *call); \
  EXT_ROW_(word##_fill, .what = EXT_ROW_NEW, .owner = #word, .name = #word, \
           .signature = signature_); \
  static int word##_init(PyObject *self, PyObject *args, PyObject *kwargs) { \
    return word##_fill(self, &(ext_call){&word##_fill_row, NULL, &PyTuple_GET_ITEM(args, 0), \
                                         PyTuple_GET_SIZE(args), NULL, kwargs}); \
  } \
  static int word##_fill(PyObject *self, const ext_call *call)
// Gives a type that was made at run time the word that declarations name it by.
int ext_own(const char *word, PyTypeObject *type);
