// SPDX-License-Identifier: Apache-2.0
// What is said of a call whose arguments fit no signature of an op, as PyTorch says it: of one
// signature what is wrong with it, of several all of them.
#include "ops.h"

#include <string.h>

// ---- one signature
static const char *param_name(const ext_signature *s, int i) {
  const char *name = s->op->params[i].name;
  return !s->method && !strcmp(name, "self") ? "input" : name;
}

// Of a list of tensors, the first that is none.
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

static PyObject *fail_one(const ext_callable *self, const ext_frame *frame) {
  const ext_signature *s = &self->signatures[0];
  const char *name = PyUnicode_AsUTF8(self->name);
  int bound = s->method ? 1 : 0, most = s->positional - bound;
  switch (frame->misfit) {
    case TOO_MANY:
      EXT_FAIL(PyExc_TypeError, "%s() takes %d positional argument%s but %d were given", name, most,
               most == 1 ? "" : "s", frame->position - bound);
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
  const char *wanted =
      !strcmp(param->name, "memory_format") ? "torch.memory_format" : px_arg_name(param->kind);
  const char *got = ext_type_name(frame->object);
  if (param->kind == PX_ARG_TENSORS) fail_item(frame->object, frame->index);
  if (PyErr_Occurred()) return NULL;
  if (frame->position < 0)
    EXT_FAIL(PyExc_TypeError, "%s(): argument '%s' must be %s, not %s", name,
             param_name(s, frame->index), wanted, got);
  EXT_FAIL(PyExc_TypeError, "%s(): argument '%s' (position %d) must be %s, not %s", name,
           param_name(s, frame->index), frame->position + 1 - bound, wanted, got);
}

// ---- several
// PyTorch has a signature of its own where a number stands in the place of a tensor.
typedef struct form {
  const ext_signature *s;
  unsigned numbers;  // the parameters that are numbers
} form;

// The last tensor that may be a number, or all that may be absent, if there is a signature for it:
// what takes numbers for all of its tensors has none.
static unsigned last_numbers(const px_op *op) {
  unsigned absent = 0;
  if (op->flags & PX_OP_TAKES_NUMBERS && op->kind == PX_OP_POINTWISE) return 0;
  for (int i = op->param_count; --i > 0;) {
    if (!ext_takes_number(op, i)) continue;
    if (!op->params[i].optional) return absent | 1u << i;
    absent |= 1u << i;
  }
  return absent;
}

// Those with tensors alone come first.
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

// Where the number comes first, functions that give whole numbers of whole ones take no out.
static bool has_out(form f) {
  bool bare =
      f.numbers == 1 && f.s->op->flags & PX_OP_HAS_INPLACE && strcmp(f.s->op->name, "xlogy");
  return f.s->op->flags & PX_OP_HAS_OUT && f.s->mode == PX_CALL_NEW && !f.s->method && !bare;
}

static void append_default(PyObject **text, const px_param *param) {
  const char *value = param->fallback_text ? param->fallback_text : "None";
  size_t length = strlen(value);
  if (*value == '\'')
    ext_append(text, " = \"%.*s\"", (int)length - 2, value + 1);
  else
    ext_append(text, " = %s", !strcmp(value, "[]") ? "()" : value);
}

static bool is_number(form f, int i) {
  return i >= 0 && (f.numbers >> i & 1u || f.s->op->params[i].kind == PX_ARG_SCALAR);
}

// Parameters that factories have beside those of their schemas, in PyTorch's order.
static const char *const of_factories =
    "torch.dtype dtype = None, torch.layout layout = None, torch.device device = None, bool "
    "pin_memory = False, bool requires_grad = False";
static bool is_common(const px_op *op, const px_param *param) {
  return op->flags & PX_OP_IS_FACTORY &&
         (param->kind == PX_ARG_DTYPE || param->kind == PX_ARG_DEVICE ||
          strcmp(param->name, "pin_memory") == 0 || strcmp(param->name, "requires_grad") == 0);
}

// "(Tensor input, Tensor other, *, Tensor out = None)"; gives how many pieces that has, as PyTorch
// counts them: the star is one, and so is nothing.
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
    ext_append(text, "%s%s%s", count ? ", " : "", starred || has_out(f) ? "" : "*, ", of_factories);
  ext_append(text, ")\n");
  if (op->flags & PX_OP_IS_FACTORY) return count + 6;
  return count ? count + (starred || has_out(f)) : 1;
}

typedef struct arguments {
  PyObject *const *values;
  Py_ssize_t count, named;  // the last are named
  PyObject *names;
} arguments;

static int param_of(const arguments *a, form f, Py_ssize_t i) {
  if (i < a->count - a->named) return (int)i < f.s->positional ? (int)i : -1;
  PyObject *name = PyTuple_GET_ITEM(a->names, i - (a->count - a->named));
  for (int k = 0; k < f.s->op->param_count; k++)
    if (PyUnicode_CompareWithASCIIString(name, param_name(f.s, k)) == 0) return k;
  return -1;
}

static void append_type(PyObject **text, const arguments *a, Py_ssize_t i, const char *mark) {
  Py_ssize_t position = a->count - a->named;
  ext_append(text, "%s", mark);
  if (i >= position) ext_append(text, "%U=", PyTuple_GET_ITEM(a->names, i - position));
  ext_append(text, "%s%s", ext_type_name(a->values[i]), mark);
}

// Of a signature with as many parameters as there are arguments: which of these are others. A
// number's is always among them.
static void append_mismatch(PyObject **text, const arguments *a, form f) {
  int bound = f.s->method;
  ext_append(text, "      didn't match because some of the arguments have invalid types: (");
  for (Py_ssize_t i = bound; i < a->count; i++) {
    int param = param_of(a, f, i);
    bool fits = param >= 0 && !is_number(f, param) && ext_fits(f.s, param, a->values[i]) &&
                (f.s->op->params[param].kind != PX_ARG_TENSOR || ext_is_tensor(a->values[i]));
    if (i > bound) ext_append(text, ", ");
    append_type(text, a, i, fits ? "" : "!");
  }
  ext_append(text, ")\n");
}

static PyObject *fail_several(const ext_callable *self, const arguments *a, const form *forms,
                              int count) {
  PyObject *text =
      PyUnicode_FromFormat("%U() received an invalid combination of arguments - got (", self->name);
  for (Py_ssize_t i = self->method; text && i < a->count; i++) {
    if (i > self->method) ext_append(&text, ", ");
    append_type(&text, a, i, "");
  }
  ext_append(&text, "), but expected one of:\n");
  for (int i = 0; text && i < count; i++)
    if (append_form(&text, forms[i]) == a->count - self->method)
      append_mismatch(&text, a, forms[i]);
  if (text) PyErr_SetObject(PyExc_TypeError, text);
  Py_XDECREF(text);
  return NULL;
}

PyObject *ext_no_fit(const ext_callable *self, const ext_frame *frame, PyObject *const *args,
                     Py_ssize_t nargs, PyObject *kwnames) {
  form forms[3 * EXT_OP_OVERLOADS];
  int count = forms_of(self, forms);
  if (count == 1 && self->count > 1) {  // the latest that was tried is not told of
    ext_frame first;
    int fits = ext_bind(&self->signatures[0], &first, args, nargs, kwnames);
    ext_frame_done(&first);
    return fits < 0 ? NULL : fail_one(self, &first);
  }
  if (count == 1) return fail_one(self, frame);
  Py_ssize_t named = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  const arguments a = {args, nargs + named, named, kwnames};
  return fail_several(self, &a, forms, count);
}
