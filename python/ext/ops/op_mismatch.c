// SPDX-License-Identifier: Apache-2.0
// PyTorch's messages for calls matching no signature: one signature reports its mismatch, several
// are all listed.
#include "ops/ops.h"

#include <string.h>

// ---- one signature
static const char *param_name(const ext_signature *s, int i) {
  const char *name = s->op->params[i].name;
  return !s->method && !strcmp(name, "self") ? "input" : name;
}

// Reports the first item of a list of tensors that is not a tensor.
static void fail_item(PyObject *list, int argument) {
  bool sequence = PyTuple_Check(list) || PyList_Check(list);
  for (Py_ssize_t i = 0; sequence && i < PySequence_Fast_GET_SIZE(list); i++) {
    PyObject *item = PySequence_Fast_GET_ITEM(list, i);
    if (ext_is_tensor(item)) continue;
    PyErr_Format(PyExc_TypeError, "expected Tensor as element %zd in argument %d, but got %s", i,
                 argument, ext_type_name(item));
    return;
  }
}

// Minimum number of arguments, without bound ones.
static int min_args(const ext_signature *s) { return s->needed - (s->method ? 1 : 0); }

static PyObject *fail_count(const ext_signature *s, const char *name, int given) {
  int min = min_args(s), max = s->positional - (s->method ? 1 : 0);
  if (min < max)
    EXT_FAIL(PyExc_TypeError, "%s() takes from %d to %d positional arguments but %d were given",
             name, min, max, given);
  EXT_FAIL(PyExc_TypeError, "%s() takes %d positional argument%s but %d %s given", name, max,
           max == 1 ? "" : "s", given, given == 1 ? "was" : "were");
}

// True if there are too many positional arguments, which PyTorch checks first. Any number of ints
// can stand for a list of ints.
static bool has_extra_args(const ext_signature *s, PyObject *const *args, Py_ssize_t nargs) {
  int first = s->method ? 1 : 0;
  bool listed = s->varargs >= 0 && nargs > first && PyIndex_Check(args[first]);
  return nargs > s->positional && !listed;
}

// Type name of the first element of a sequence, if it is not an int.
static const char *first_non_int(PyObject *object) {
  bool sequence = PyTuple_Check(object) || PyList_Check(object);
  if (!sequence || !PySequence_Fast_GET_SIZE(object)) return NULL;
  PyObject *first = PySequence_Fast_GET_ITEM(object, 0);
  return PyIndex_Check(first) ? NULL : Py_TYPE(first)->tp_name;
}

// PyTorch recognizes a list of ints, or several int arguments, by the first element. If a later
// element is not an int it reports that, regardless of other signatures.
static bool fail_non_int_item(const ext_callable *self, const ext_signature *s,
                              const ext_frame *frame, PyObject *const *args, Py_ssize_t nargs) {
  if (frame->bind_error != WRONG_TYPE || s->op->params[frame->index].kind != PX_ARG_INTS)
    return false;
  PyObject *object = frame->object;
  bool listed = s->varargs >= 0 && frame->position == s->varargs && PyIndex_Check(object);
  if (!listed && !PyTuple_Check(object) && !PyList_Check(object)) return false;
  Py_ssize_t count = listed ? nargs - s->varargs : PySequence_Fast_GET_SIZE(object);
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *item = listed ? args[s->varargs + i] : PySequence_Fast_GET_ITEM(object, i);
    if (PyIndex_Check(item)) continue;
    if (!i) return false;
    PyErr_Format(
        PyExc_TypeError,
        "%U(): argument '%s' failed to unpack the object at pos %zd with error \"type must "
        "be tuple of ints,but got %s\"",
        self->name, param_name(s, frame->index), i + 1, Py_TYPE(item)->tp_name);
    return true;
  }
  return false;
}

static PyObject *fail_one(const ext_callable *self, const ext_signature *s,
                          const ext_frame *frame) {
  const char *name = PyUnicode_AsUTF8(self->name);
  int bound = s->method ? 1 : 0;
  switch (frame->bind_error) {
    case TOO_MANY:
      return fail_count(s, name, frame->position - bound);
    case MISSING:
      EXT_FAIL(PyExc_TypeError, "%s() missing 1 required positional arguments: \"%s\"", name,
               param_name(s, frame->index));
    case UNEXPECTED:
      EXT_FAIL(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", name,
               frame->object);
    case TWICE:
      EXT_FAIL(PyExc_TypeError, "%s() got multiple values for argument '%U'", name, frame->object);
    default:
      break;
  }
  const px_param *param = &s->op->params[frame->index];
  const char *element = param->kind == PX_ARG_INTS ? first_non_int(frame->object) : NULL;
  if (element && frame->position < 0)
    EXT_FAIL(PyExc_TypeError,
             "%s(): argument '%s' must be tuple of ints, but found element of type %s at pos 0",
             name, param_name(s, frame->index), element);
  if (element)
    EXT_FAIL(PyExc_TypeError,
             "%s(): argument '%s' (position %d) must be tuple of ints, but found element of type "
             "%s at pos 0",
             name, param_name(s, frame->index), frame->position + 1 - bound, element);
  const char *wanted =
      !strcmp(param->name, "memory_format") ? "torch.memory_format" : px_arg_name(param->kind);
  const char *got = Py_TYPE(frame->object)->tp_name;
  if (param->kind == PX_ARG_TENSORS) fail_item(frame->object, frame->index);
  if (PyErr_Occurred()) return NULL;
  if (frame->position < 0)
    EXT_FAIL(PyExc_TypeError, "%s(): argument '%s' must be %s, not %s", name,
             param_name(s, frame->index), wanted, got);
  EXT_FAIL(PyExc_TypeError, "%s(): argument '%s' (position %d) must be %s, not %s", name,
           param_name(s, frame->index), frame->position + 1 - bound, wanted, got);
}

// ---- several signatures
// PyTorch has a separate signature for a number in place of a tensor.
typedef struct form {
  const ext_signature *s;
  unsigned numbers;  // bit mask of parameters that are numbers
} form;

// Mask of the last tensor parameter that may be a number, and of all optional ones after it. Empty
// for ops accepting numbers for all tensors: PyTorch has no such signature for them.
static unsigned last_numbers(const px_op *op) {
  unsigned absent = 0;
  bool none = op->kind == PX_OP_POINTWISE || op->kind == PX_OP_FUNCTION;
  if (op->flags & PX_OP_TAKES_NUMBERS && none) return 0;
  for (int i = op->param_count; --i > 0;) {
    if (!ext_accepts_number(op, i)) continue;
    if (!op->params[i].optional) return absent | 1u << i;
    absent |= 1u << i;
  }
  return absent;
}

// Signatures with tensors only come first.
static int forms_of(const ext_callable *self, form *forms) {
  int count = 0;
  for (int i = 0; i < self->count; i++)
    if (!(self->signatures[i].op->flags & PX_OP_OF_COMPLEX))
      forms[count++] = (form){&self->signatures[i], 0};
  for (int i = 0; i < self->count; i++) {
    const ext_signature *s = &self->signatures[i];
    if (s->op->flags & PX_OP_OF_COMPLEX) continue;
    unsigned last = last_numbers(s->op);
    if (s->op->flags & PX_OP_ONE_NUMBER && !s->method) forms[count++] = (form){s, 1};
    if (last) forms[count++] = (form){s, last};
  }
  return count;
}

// With the number first, functions returning integers for integers have no out.
static bool has_out(form f) {
  bool bare =
      f.numbers == 1 && f.s->op->flags & PX_OP_HAS_INPLACE && strcmp(f.s->op->name, "xlogy");
  return f.s->op->flags & PX_OP_HAS_OUT && f.s->mode == PX_CALL_NEW && !f.s->method && !bare;
}

static void append_default(PyObject **text, const px_param *param) {
  const char *value = param->fallback_text ? param->fallback_text : "None";
  char bare[64];
  snprintf(bare, sizeof bare, "%s", value + (*value == '\''));
  if (*value == '\'') bare[strcspn(bare, "'")] = 0;
  if (*value == '\'')
    ext_append(text, " = \"%s\"", bare);
  else
    ext_append(text, " = %s", !strcmp(value, "[]") ? "()" : value);
}

static bool is_number(form f, int i) {
  return i >= 0 && (f.numbers >> i & 1u || f.s->op->params[i].kind == PX_ARG_SCALAR);
}

// Options of factories in addition to schema parameters, in PyTorch's order.
static const char *const factory_options =
    "torch.dtype dtype = None, torch.layout layout = None, torch.device device = None, bool "
    "pin_memory = False, bool requires_grad = False";
static bool is_common(const px_op *op, const px_param *param) {
  return op->flags & PX_OP_IS_FACTORY &&
         (param->kind == PX_ARG_DTYPE || param->kind == PX_ARG_DEVICE ||
          strcmp(param->name, "pin_memory") == 0 || strcmp(param->name, "requires_grad") == 0);
}

// "(Tensor input, Tensor other, *, Tensor out = None)". Returns the number of pieces by PyTorch's
// count: the star counts as one, and so does an empty list.
static int append_form(PyObject **text, form f) {
  const px_op *op = f.s->op;
  int count = 0;
  bool starred = false;
  ext_append(text, " * (");
  for (int i = f.s->method; i < op->param_count; i++) {
    const px_param *param = &op->params[i];
    if (is_common(op, param)) continue;
    bool star = param->keyword_only && !starred;
    starred |= star;
    ext_append(text, "%s%s%s %s", count++ ? ", " : "", star ? "*, " : "",
               is_number(f, i) ? "Number" : px_arg_name(param->kind),
               is_number(f, i) ? param->name : param_name(f.s, i));
    if (param->has_default) append_default(text, param);
  }
  if (has_out(f))
    ext_append(text, "%s%s%s out = None", count++ ? ", " : "", starred ? "" : "*, ",
               op->result_count > 1 ? "tuple of Tensors" : "Tensor");
  if (op->flags & PX_OP_IS_FACTORY)
    ext_append(text, "%s%s%s", count ? ", " : "", starred || has_out(f) ? "" : "*, ",
               factory_options);
  ext_append(text, ")\n");
  if (op->flags & PX_OP_IS_FACTORY) return count + 6;
  return count ? count + (starred || has_out(f)) : 1;
}

typedef struct arguments {
  PyObject *const *values;
  Py_ssize_t count, named;  // the last `named` are keywords
  PyObject *names;
} arguments;

static int param_of(const arguments *a, form f, Py_ssize_t i) {
  if (i < a->count - a->named) return (int)i < f.s->positional ? (int)i : -1;
  PyObject *name = PyTuple_GET_ITEM(a->names, i - (a->count - a->named));
  for (int k = 0; k < f.s->op->param_count; k++)
    if (PyUnicode_CompareWithASCIIString(name, param_name(f.s, k)) == 0) return k;
  return -1;
}

static void append_name(PyObject **text, const arguments *a, Py_ssize_t i) {
  Py_ssize_t position = a->count - a->named;
  if (i >= position) ext_append(text, "%U=", PyTuple_GET_ITEM(a->names, i - position));
}
// "int", "tuple of (int, float)", "list of [Tensor]".
static void append_type(PyObject **text, PyObject *value) {
  bool tuple = PyTuple_Check(value);
  ext_append(text, "%s", Py_TYPE(value)->tp_name);
  if (!tuple && !PyList_Check(value)) return;
  Py_ssize_t count = PySequence_Fast_GET_SIZE(value);
  ext_append(text, " of %s", tuple ? "(" : "[");
  for (Py_ssize_t i = 0; i < count; i++)
    ext_append(text, "%s%s", i ? ", " : "", Py_TYPE(PySequence_Fast_GET_ITEM(value, i))->tp_name);
  ext_append(text, "%s%s", tuple && count == 1 ? "," : "", tuple ? ")" : "]");
}

// Appends keywords unknown to a signature; false if there are none.
static bool append_unknown(PyObject **text, const arguments *a, form f) {
  int unknown = 0;
  for (Py_ssize_t i = a->count - a->named; i < a->count; i++) {
    PyObject *name = PyTuple_GET_ITEM(a->names, i - (a->count - a->named));
    bool out = has_out(f) && !PyUnicode_CompareWithASCIIString(name, "out");
    if (out || param_of(a, f, i) >= 0) continue;
    ext_append(
        text, "%s%U",
        unknown++ ? ", " : "      didn't match because some of the keywords were incorrect: ",
        name);
  }
  if (unknown) ext_append(text, "\n");
  return unknown > 0;
}

// For a signature with as many parameters as arguments: marks arguments of the wrong type. A number
// parameter always counts as mismatched.
static void append_mismatch(PyObject **text, const arguments *a, form f) {
  int bound = f.s->method;
  if (append_unknown(text, a, f)) return;
  ext_append(text, "      didn't match because some of the arguments have invalid types: (");
  for (Py_ssize_t i = bound; i < a->count; i++) {
    int param = param_of(a, f, i);
    bool fits = param >= 0 && !is_number(f, param) && ext_arg_matches(f.s, param, a->values[i]) &&
                (f.s->op->params[param].kind != PX_ARG_TENSOR || ext_is_tensor(a->values[i]));
    if (i > bound) ext_append(text, ", ");
    ext_append(text, "%s", fits ? "" : "!");
    append_name(text, a, i);
    append_type(text, a->values[i]);
    ext_append(text, "%s", fits ? "" : "!");
  }
  ext_append(text, ")\n");
}

static PyObject *fail_several(const ext_callable *self, const arguments *a, const form *forms,
                              int count) {
  PyObject *text =
      PyUnicode_FromFormat("%U() received an invalid combination of arguments - got (", self->name);
  bool alone = a->count > self->method && a->named == a->count - self->method;
  for (Py_ssize_t i = self->method; text && i < a->count; i++) {
    if (i > self->method) ext_append(&text, ", ");
    append_name(&text, a, i);
    ext_append(&text, "%s", Py_TYPE(a->values[i])->tp_name);
  }
  ext_append(&text, "%s), but expected one of:\n", alone ? ", " : "");
  for (int i = 0; text && i < count; i++)
    if (append_form(&text, forms[i]) == a->count - self->method)
      append_mismatch(&text, a, forms[i]);
  if (text) PyErr_SetObject(PyExc_TypeError, text);
  Py_XDECREF(text);
  return NULL;
}

// The only signature accepting this number of arguments, if any: PyTorch reports its mismatch and
// ignores the others.
static const ext_signature *only_candidate(const form *forms, int count, Py_ssize_t given) {
  const ext_signature *found = NULL;
  for (int i = 0; i < count; i++) {
    const px_op *op = forms[i].s->op;
    int layout = op->flags & PX_OP_IS_FACTORY ? 1 : 0;
    int max = op->param_count - (forms[i].s->method ? 1 : 0) + has_out(forms[i]) + layout;
    if (given < min_args(forms[i].s) || given > max) continue;
    if (found || forms[i].numbers) return NULL;
    found = forms[i].s;
  }
  return found;
}

PyObject *ext_no_matching_overload(const ext_callable *self, const ext_frame *frame,
                                   PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  form forms[3 * EXT_OP_OVERLOADS];
  int count = forms_of(self, forms);
  for (int i = 0; i < count; i++) {
    ext_frame own;
    if (forms[i].numbers) continue;
    int fits = ext_bind(forms[i].s, &own, frame->last, args, nargs, kwnames);
    bool told = !fits && fail_non_int_item(self, forms[i].s, &own, args, nargs);
    ext_frame_release(&own);
    if (fits < 0 || told) return NULL;
  }
  Py_ssize_t named = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  const ext_signature *s = count == 1 ? &self->signatures[0]
                                      : only_candidate(forms, count, nargs + named - self->method);
  if (s && has_extra_args(s, args, nargs))
    return fail_count(s, PyUnicode_AsUTF8(self->name), (int)nargs - self->method);
  if (s && self->count > 1) {  // the last signature tried was another one
    ext_frame own;
    int fits = ext_bind(s, &own, frame->last, args, nargs, kwnames);
    ext_frame_release(&own);
    if (fits < 0) return NULL;
    if (!fits) return fail_one(self, s, &own);
  }
  if (count == 1) return fail_one(self, s, frame);
  const arguments a = {args, nargs + named, named, kwnames};
  return fail_several(self, &a, forms, count);
}
