// SPDX-License-Identifier: Apache-2.0
// Signatures of hand-written functions in the syntax of stub files: "(a: int, *, b: str | None =
// None) -> Tensor". Parses them, formats them without annotations (CPython's docstring format), and
// binds arguments of calls to C variables.
#include "declare/declare.h"

#include <math.h>
#include <string.h>

// ---- parsing
typedef struct parsed_param {
  const char *name, *type, *value;  // type and value: NULL if missing
  int name_length, type_length, value_length;
} parsed_param;

// End of an annotation or a default: the first of `ends` outside brackets and quotes.
static const char *find_end(const char *at, const char *ends) {
  int depth = 0;
  for (char quote = 0; *at; at++) {
    if (quote) {
      if (*at == quote) quote = 0;
      continue;
    }
    if (depth == 0 && strchr(ends, *at)) break;
    if (*at == '\'') quote = *at;
    depth += strchr("([", *at) != NULL;
    depth -= strchr(")]", *at) != NULL;
  }
  return at;
}
static int trimmed(const char *start, const char *end) {
  while (end > start && end[-1] == ' ') end--;
  return (int)(end - start);
}

// Parses the parameter at `at`, after the bracket or a comma. Returns the position after it, or
// NULL at the end. A lone "*" or "/" is returned as a name.
static const char *next_param(const char *at, parsed_param *p) {
  at += strspn(at, " ,");
  if (!*at || *at == ')') return NULL;
  *p = (parsed_param){.name = at};
  p->name_length = (int)strcspn(at, ":=,) ");
  at += p->name_length;
  at += strspn(at, " ");
  if (*at == ':') {
    p->type = at + 1 + strspn(at + 1, " ");
    at = find_end(p->type, "=,)");
    p->type_length = trimmed(p->type, at);
  }
  if (*at == '=') {
    p->value = at + 1 + strspn(at + 1, " ");
    at = find_end(p->value, ",)");
    p->value_length = trimmed(p->value, at);
  }
  return at;
}

// "name(first, /, a, b=1)\n--\n\ndoc", the format parsed by CPython. Omits the first `skip`
// parameters.
static char *text_of(const char *name, const char *signature, const char *doc, const char *first,
                     int skip) {
  size_t size = strlen(name) + strlen(signature) + (doc ? strlen(doc) : 0) + 32;
  char *text = PyMem_Malloc(size), *to = text;
  if (!text) return (char *)PyErr_NoMemory();
  const char *comma = first ? ", " : "";
  to += snprintf(to, size, "%s(%s%s", name, first ? first : "", first ? ", /" : "");
  parsed_param p;
  for (const char *at = signature + 1; (at = next_param(at, &p));) {
    if (skip-- > 0) continue;
    if (*p.name == '/' && first) continue;
    to += snprintf(to, size - (size_t)(to - text), "%s%.*s", comma, p.name_length, p.name);
    if (p.value) to += snprintf(to, size - (size_t)(to - text), "=%.*s", p.value_length, p.value);
    comma = ", ";
  }
  snprintf(to, size - (size_t)(to - text), ")\n--\n\n%s", doc ? doc : "");
  return text;
}
char *ext_text_signature(const char *name, const char *signature, const char *doc,
                         const char *first) {
  return text_of(name, signature, doc, first, 0);
}
char *ext_text_of_method(const char *name, const char *signature, const char *doc) {
  return text_of(name, signature, doc, "$self", 1);
}

// ---- kinds of arguments
static int to_object(PyObject *object, void *out) {
  *(PyObject **)out = object;
  return 0;
}
static int to_optional_bool(PyObject *object, void *out) {
  *(ext_optional_bool *)out = (ext_optional_bool)PyObject_IsTrue(object);
  return *(ext_optional_bool *)out < 0 ? -1 : 0;
}
static int to_bool(PyObject *object, void *out) {
  ext_optional_bool truth = 0;
  if (to_optional_bool(object, &truth) < 0) return -1;
  *(bool *)out = truth;
  return 0;
}
static int to_int(PyObject *object, void *out) {
  if (!PyIndex_Check(object))
    EXT_FAIL_INT(PyExc_TypeError, "must be int, not %s", ext_type_name(object));
  EXT_OWNED *index = PyNumber_Index(object);
  int overflow = 0;
  if (!index) return -1;
  *(int64_t *)out = PyLong_AsLongLongAndOverflow(index, &overflow);
  if (overflow) EXT_FAIL_INT(PyExc_ValueError, "Overflow when unpacking long long");
  return PyErr_Occurred() ? -1 : 0;
}
static int to_float(PyObject *object, void *out) {
  if (!PyNumber_Check(object))
    EXT_FAIL_INT(PyExc_TypeError, "must be float, not %s", ext_type_name(object));
  *(double *)out = PyFloat_AsDouble(object);
  return *(double *)out == -1.0 && PyErr_Occurred() ? -1 : 0;
}
static int to_text(PyObject *object, void *out) {
  if (!PyUnicode_Check(object))
    EXT_FAIL_INT(PyExc_TypeError, "must be str, not %s", ext_type_name(object));
  *(const char **)out = ext_text(object);
  return *(const char **)out ? 0 : -1;
}

// For each kind: a word required in the annotation, the conversion, and the size of the default in
// bytes: 1, 4 or 8; 0 if the default is computed at each call.
static struct {
  const char *word;
  int (*convert)(PyObject *object, void *out);
  unsigned char bytes;
} kinds[] = {[EXT_KIND_OBJECT] = {"", to_object, sizeof(PyObject *)},
             [EXT_KIND_BOOL] = {"bool", to_bool, sizeof(bool)},
             [EXT_KIND_OPTIONAL_BOOL] = {"bool", to_optional_bool, sizeof(ext_optional_bool)},
             [EXT_KIND_INT] = {"int", to_int, sizeof(int64_t)},
             [EXT_KIND_FLOAT] = {"float", to_float, sizeof(double)},
             [EXT_KIND_TEXT] = {"str", to_text, sizeof(const char *)},
             [EXT_KIND_NUMBER] = {"Number", NULL, 0},
             [EXT_KIND_INTS] = {"int", NULL, 0},
             [EXT_KIND_TENSOR] = {"Tensor", NULL, sizeof(px_tensor *)},
             [EXT_KIND_DTYPE] = {"dtype", NULL, sizeof(px_dtype)},
             [EXT_KIND_DEVICE] = {"Device", NULL, sizeof(px_device)},
             [EXT_KIND_CUDA] = {"Device", NULL, 0},
             [EXT_KIND_GENERATOR] = {"Generator", NULL, sizeof(px_generator *)},
             [EXT_KIND_STREAM] = {"Stream", NULL, sizeof(px_stream *)},
             [EXT_KIND_FORMAT] = {"memory_format", NULL, sizeof(ext_format)},
             [EXT_KIND_LAYOUT] = {"layout", NULL, sizeof(ext_layout)},
             [EXT_KIND_MODULE] = {"Module", NULL, sizeof(struct px_module *)},
             [EXT_KIND_VARARGS] = {"", NULL, 0}};
void ext_set_converter(ext_kind kind, int (*convert)(PyObject *object, void *out)) {
  kinds[kind].convert = convert;
}

// ---- parameters, parsed at the first call
struct ext_param {
  PyObject *name;  // interned: keywords compare by address
  char *value;     // the default, unless it is None
  double number;   // value of a numeric or boolean default
  int (*convert)(PyObject *object, void *out);
  ext_kind kind;
  bool required, none_is_default, by_name;  // by_name: keyword-only
  unsigned char bytes;  // size of `image`; 0 if the default is computed per call
  _Alignas(8) char image[8];
};

// Computes the value for None or a missing argument.
__attribute__((noinline)) static int make_default(const struct ext_param *param, void *out) {
  switch (param->kind) {
    case EXT_KIND_BOOL:
      *(bool *)out = param->number != 0;
      break;
    case EXT_KIND_OPTIONAL_BOOL:
      *(ext_optional_bool *)out =
          (ext_optional_bool)(isnan(param->number) ? -1 : param->number != 0);
      break;
    case EXT_KIND_INT:
      *(int64_t *)out = isnan(param->number) ? EXT_NO_INT : (int64_t)param->number;
      break;
    case EXT_KIND_FLOAT:
      *(double *)out = param->number;
      break;
    case EXT_KIND_NUMBER:
      *(px_scalar *)out = param->value && strpbrk(param->value, ".e")
                              ? px_float(param->number)
                              : px_int((int64_t)param->number);
      break;
    case EXT_KIND_INTS:
      ((ext_ints *)out)->count = -1;
      break;
    case EXT_KIND_DTYPE:
      *(px_dtype *)out = PX_DTYPE_NONE;
      break;
    case EXT_KIND_DEVICE:
      *(px_device *)out = PX_DEVICE_NONE;
      break;
    case EXT_KIND_CUDA:
      return kinds[EXT_KIND_CUDA].convert(NULL, out);
    case EXT_KIND_FORMAT:
      *(ext_format *)out = (ext_format){NULL};
      break;
    case EXT_KIND_LAYOUT:
      *(ext_layout *)out = (ext_layout){true};
      break;
    case EXT_KIND_TEXT:
      *(const char **)out = param->value;
      break;
    default:
      *(void **)out = NULL;
  }
  return 0;
}
// Copies the precomputed bytes, which is faster. Pointers and bools are the most frequent.
static inline int set_default(const struct ext_param *param, void *out) {
  if (param->bytes == 8)
    memcpy(out, param->image, 8);
  else if (param->bytes == 1)
    memcpy(out, param->image, 1);
  else if (param->bytes == 4)
    memcpy(out, param->image, 4);
  else
    return make_default(param, out);
  return 0;
}

static int bad_signature(const ext_row *row, const char *why) {
  EXT_FAIL_INT(PyExc_SystemError, "%s.%s%s: %s", row->owner, row->name, row->signature, why);
}

static bool contains_word(const char *text, int length, const char *word) {
  const char *found = text ? strstr(text, word) : NULL;
  return found && found + strlen(word) <= text + length;
}

// True if None is one of the types; a None in brackets is an element type.
static bool allows_none(const char *type, int length) {
  int depth = 0;
  for (int i = 0; type && i + 4 <= length; i++) {
    depth += (type[i] == '[') - (type[i] == ']');
    if (depth == 0 && !strncmp(type + i, "None", 4)) return true;
  }
  return false;
}

static int read_default(struct ext_param *param, const parsed_param *p) {
  if (!p->value || !strncmp(p->value, "None", 4)) return 0;
  bool quoted = *p->value == '\'';
  param->value = strndup(p->value + quoted, (size_t)(p->value_length - 2 * quoted));
  if (!param->value) return PyErr_NoMemory(), -1;
  bool word = quoted || strchr("TF", *param->value);
  param->number = word ? !strcmp(param->value, "True") : strtod(param->value, NULL);
  return 0;
}
static int read_param(struct ext_param *param, const parsed_param *p, ext_kind kind) {
  PyObject *name = PyUnicode_FromStringAndSize(p->name, p->name_length);
  if (!name) return -1;
  PyUnicode_InternInPlace(&name);
  *param = (struct ext_param){.name = name,
                              .kind = kind,
                              .convert = kinds[kind].convert,
                              .required = !p->value,
                              .number = NAN};
  param->none_is_default =
      allows_none(p->type, p->type_length) || (p->value && kind != EXT_KIND_OBJECT);
  if (read_default(param, p) < 0) return -1;
  param->bytes = kinds[kind].bytes;
  return param->bytes ? make_default(param, param->image) : 0;
}

// C variables must be named like the parameters, optionally with a trailing "_".
static bool names_match(const char **variables, const parsed_param *p) {
  const char *at = *variables + strspn(*variables, " ,");
  int length = (int)strcspn(at, " ,"), extra = length - p->name_length;
  *variables = at + length;
  return !strncmp(at, p->name, (size_t)p->name_length) &&
         (extra == 0 || (extra == 1 && at[length - 1] == '_'));
}

// Runs at the first call, under the GIL. Sets `params` last: a failure leaves the row unchanged.
__attribute__((noinline, cold)) static int parse_signature(ext_row *row,
                                                           const ext_variables *variables) {
  struct ext_param *params = PyMem_Calloc((size_t)variables->count, sizeof *params);
  const char *names = variables->names;
  bool by_name = false;
  parsed_param p;
  int n = 0;
  if (!params) return PyErr_NoMemory(), -1;
  row->positional = row->required = 0;
  for (const char *at = row->signature + 1; (at = next_param(at, &p));) {
    if (*p.name == '/') continue;
    bool rest = *p.name == '*';
    by_name |= rest;
    if (rest && p.name_length == 1) continue;
    if (rest) p.name++, p.name_length--;
    if (n == variables->count || !names_match(&names, &p))
      return bad_signature(row, "names of the C variables do not match");
    if (!contains_word(p.type, p.type_length, kinds[variables->kinds[n]].word))
      return bad_signature(row, "the type of a C variable does not match");
    if (read_param(&params[n], &p, variables->kinds[n]) < 0) return -1;
    params[n].by_name = by_name;
    if (!by_name) row->positional++;
    n++;
    if (params[n - 1].required) row->required = n;
  }
  if (n != variables->count) return bad_signature(row, "more C variables than parameters");
  row->param_count = n;
  row->one_object = n == 1 && row->positional == 1 && variables->kinds[0] == EXT_KIND_OBJECT;
  row->params = params;
  return 0;
}

// ---- binding
static const char *display_name(const ext_row *row) {
  return row->display_name ? row->display_name : row->name;
}

static int name_index(const ext_row *row, PyObject *name) {
  for (int i = 0; i < row->param_count; i++)
    if (row->params[i].name == name) return i;
  for (int i = 0; i < row->param_count; i++)
    if (PyUnicode_Compare(row->params[i].name, name) == 0) return i;
  // PyTorch's parameter "async" is spelled "async_" in signatures: it is a Python keyword.
  for (int i = 0; i < row->param_count; i++)
    if (!PyUnicode_CompareWithASCIIString(row->params[i].name, "async_") &&
        !PyUnicode_CompareWithASCIIString(name, "async"))
      return i;
  return -1;
}

static int bind_name(const ext_row *row, PyObject *name, PyObject *value, PyObject **given) {
  int i = name_index(row, name);
  if (i < 0 || row->params[i].kind == EXT_KIND_VARARGS)
    EXT_FAIL_INT(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", display_name(row),
                 name);
  // NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Branch): the row has no other parameters
  if (given[i])
    EXT_FAIL_INT(PyExc_TypeError, "%s() got multiple values for argument '%U'", display_name(row),
                 name);
  given[i] = value;
  return 0;
}

static int bind_names(const ext_call *call, PyObject **given) {
  Py_ssize_t count = call->kwnames ? PyTuple_GET_SIZE(call->kwnames) : 0, at = 0;
  for (Py_ssize_t i = 0; i < count; i++)
    if (bind_name(call->row, PyTuple_GET_ITEM(call->kwnames, i), call->args[call->nargs + i],
                  given) < 0)
      return -1;
  PyObject *name, *value;
  while (call->kwargs && PyDict_Next(call->kwargs, &at, &name, &value))
    if (bind_name(call->row, name, value, given) < 0) return -1;
  return 0;
}

// Prefixes an error "must be int, not str": "size(): argument 'dim' (position 1) must be int, not
// str".
__attribute__((noinline, cold)) static int add_argument_name(const ext_row *row, int i,
                                                             Py_ssize_t nargs, int first) {
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) return -1;
  PyObject *exception = ext_exception_take();
  EXT_OWNED *text = PyObject_Str(exception);
  const char *why = text ? PyUnicode_AsUTF8(text) : NULL;
  if (!why || strncmp(why, "must be ", 8)) return ext_exception_set(exception), -1;
  Py_DECREF(exception);
  if (i < nargs)
    EXT_FAIL_INT(PyExc_TypeError, "%s(): argument '%U' (position %d) %s", display_name(row),
                 row->params[i].name, i + 1 - first, why);
  EXT_FAIL_INT(PyExc_TypeError, "%s(): argument '%U' %s", display_name(row), row->params[i].name,
               why);
}

static int missing(const ext_row *row, int i) {
  EXT_FAIL_INT(PyExc_TypeError, "%s() missing 1 required %s argument: '%U'", display_name(row),
               row->params[i].by_name ? "keyword-only" : "positional", row->params[i].name);
}

static int too_many(const ext_call *call, int positional) {
  EXT_FAIL_INT(PyExc_TypeError, "%s() takes %d positional argument%s but %zd were given",
               display_name(call->row), positional, positional == 1 ? "" : "s", call->nargs);
}

// A missing argument: *args receives the remaining positional arguments, others their default.
__attribute__((noinline)) static int bind_absent(const ext_call *call, int i, void *out) {
  const ext_row *row = call->row;
  const struct ext_param *param = &row->params[i];
  if (!param->required) return set_default(param, out);
  if (param->kind != EXT_KIND_VARARGS) return missing(row, i);
  Py_ssize_t bound = row->positional - (call->first != NULL);
  if (bound > call->nargs) bound = call->nargs;
  *(ext_varargs *)out = (ext_varargs){call->args + bound, call->nargs - bound};
  return 0;
}

static inline int bind_value(const ext_call *call, int i, PyObject *value, void *out) {
  const struct ext_param *param = &call->row->params[i];
  if (value == Py_None && param->none_is_default) return set_default(param, out);
  if (param->kind == EXT_KIND_OBJECT) return to_object(value, out);
  if (__builtin_expect(param->convert(value, out) < 0, 0))
    return add_argument_name(call->row, i, call->nargs + (call->first != NULL),
                             call->first != NULL);
  return 0;
}

static int bind_named(const ext_call *call, Py_ssize_t direct, void *const *places) {
  PyObject *given[EXT_MAX_PARAMS] = {call->first};
  int first = call->first != NULL;
  for (Py_ssize_t i = first; i < direct; i++) given[i] = call->args[i - first];
  if (bind_names(call, given) < 0) return -1;
  for (int i = 0; i < call->row->param_count; i++)
    if ((given[i] ? bind_value(call, i, given[i], places[i]) : bind_absent(call, i, places[i])) < 0)
      return -1;
  return 0;
}

// General case. The first call of a row parses its signature.
__attribute__((noinline)) static int bind_any(const ext_call *call, const ext_variables *variables,
                                              void *const *places) {
  ext_row *row = call->row;
  if (!row->params && parse_signature(row, variables) < 0) return -1;
  int first = call->first != NULL, positional = row->positional, count = row->param_count, i = 0;
  Py_ssize_t nargs = call->nargs + first, direct = nargs < positional ? nargs : positional;
  if (nargs > positional &&
      (positional == count || row->params[positional].kind != EXT_KIND_VARARGS))
    return too_many(call, positional - first);
  if (call->kwnames || call->kwargs) return bind_named(call, direct, places);
  if (first && bind_value(call, i++, call->first, places[0]) < 0) return -1;
  for (; i < direct; i++)
    if (bind_value(call, i, call->args[i - first], places[i]) < 0) return -1;
  for (; i < count; i++)
    if (bind_absent(call, i, places[i]) < 0) return -1;
  return 0;
}

// Fast path: no keywords and few arguments. Rare cases are in separate functions, which saves
// registers.
int ext_bind_call(const ext_call *call, const ext_variables *variables, void *const *places) {
  const ext_row *row = call->row;
  Py_ssize_t nargs = call->nargs;
  if (!row->params || call->first || call->kwnames || call->kwargs || nargs > row->positional ||
      nargs < row->required)
    return bind_any(call, variables, places);
  const struct ext_param *param = row->params, *end = param + row->param_count;
  for (Py_ssize_t i = 0; i < nargs; i++, param++)
    if (bind_value(call, (int)i, call->args[i], places[i]) < 0) return -1;
  for (places += nargs; param < end; param++, places++)
    if (set_default(param, *places) < 0) return -1;
  return 0;
}
