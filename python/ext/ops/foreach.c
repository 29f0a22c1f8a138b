// SPDX-License-Identifier: Apache-2.0
// torch._foreach_*: applies an op to each tensor of a list, for user-defined optimizers. For each
// list argument, the i-th call receives the i-th item. Lists are checked before the first call.
#include "bind/ext.h"
#include "phlox/extend.h"

#include <string.h>

enum { NEW = 1, IN_PLACE = 2, BOTH = 3, PARAMS = 4, NAME_SIZE = 32, DOC_SIZE = 192 };
// An op, the call forms it has, the number of positional arguments, and the parameter names of the
// foreach function. Later parameters begin with the op's name, followed by aliases.
typedef struct row {
  const char *op;
  int forms, plain;
  const char *params[PARAMS];
} row;
#define UNARY(op, forms) \
  { \
    op, forms, 1, { "self" } \
  }
#define OTHER "other|scalar|scalars"
static const row rows[] = {UNARY("abs", BOTH),
                           UNARY("acos", BOTH),
                           UNARY("asin", BOTH),
                           UNARY("atan", BOTH),
                           UNARY("ceil", BOTH),
                           UNARY("clone", NEW),
                           UNARY("cos", BOTH),
                           UNARY("cosh", BOTH),
                           UNARY("erf", BOTH),
                           UNARY("erfc", BOTH),
                           UNARY("exp", BOTH),
                           UNARY("expm1", BOTH),
                           UNARY("floor", BOTH),
                           UNARY("frac", BOTH),
                           UNARY("lgamma", BOTH),
                           UNARY("log", BOTH),
                           UNARY("log10", BOTH),
                           UNARY("log1p", BOTH),
                           UNARY("log2", BOTH),
                           UNARY("max", NEW),
                           UNARY("neg", BOTH),
                           UNARY("reciprocal", BOTH),
                           UNARY("round", BOTH),
                           UNARY("rsqrt", BOTH),
                           UNARY("sigmoid", BOTH),
                           UNARY("sign", BOTH),
                           UNARY("sin", BOTH),
                           UNARY("sinh", BOTH),
                           UNARY("sqrt", BOTH),
                           UNARY("tan", BOTH),
                           UNARY("tanh", BOTH),
                           UNARY("trunc", BOTH),
                           UNARY("zero", IN_PLACE),
                           {"add", BOTH, 2, {"self", OTHER, "alpha"}},
                           {"sub", BOTH, 2, {"self", OTHER, "alpha"}},
                           {"mul", BOTH, 2, {"self", OTHER}},
                           {"div", BOTH, 2, {"self", OTHER}},
                           {"clamp_max", BOTH, 2, {"self", OTHER}},
                           {"clamp_min", BOTH, 2, {"self", OTHER}},
                           {"pow", BOTH, 2, {"self", "exponent"}},
                           {"mm", NEW, 2, {"self", "mat2"}},
                           {"copy", IN_PLACE, 2, {"self", "src", "non_blocking"}},
                           {"norm", NEW, 1, {"self", "p|ord", "dtype"}},
                           {"lerp", BOTH, 3, {"self", "tensors1", "weight|weights|scalars"}},
                           {"addcmul", BOTH, 3, {"self", "tensor1", "tensor2", "value|scalars"}},
                           {"addcdiv", BOTH, 3, {"self", "tensor1", "tensor2", "value|scalars"}}};
// Additional names of ops.
static const struct {
  const char *name, *op;
} aliases[] = {{"maximum", "clamp_min"}, {"minimum", "clamp_max"}};

// A function: a row in one form.
typedef struct form {
  const row *row;
  bool in_place;
  PyObject *op, *keywords[PARAMS];
  char name[NAME_SIZE], doc[DOC_SIZE];  // doc begins with the signature
  PyMethodDef method;
} form;
enum { FORMS = 2 * (EXT_LENGTH(rows) + EXT_LENGTH(aliases)) };
static form forms[FORMS];
static int form_count;

// ---- arguments

static bool is_list(PyObject *object) {
  return object && (PyList_Check(object) || PyTuple_Check(object));
}

// Index of a parameter, by any of its names "one|other"; -1: none.
static int param_of(const form *f, const char *name) {
  size_t length = strlen(name);
  for (int k = 0; k < PARAMS && f->row->params[k]; k++)
    for (const char *at = f->row->params[k]; *at; at += strcspn(at, "|"), at += *at == '|')
      if (strcspn(at, "|") == length && !strncmp(at, name, length)) return k;
  return -1;
}

static int bind_args(const form *f, PyObject **given, PyObject *const *args, Py_ssize_t nargs,
                     PyObject *kwnames) {
  if (nargs > PARAMS || (nargs > 0 && !f->row->params[nargs - 1]))
    EXT_FAIL_INT(PyExc_TypeError, "%s() got too many positional arguments: %zd", f->name, nargs);
  for (Py_ssize_t i = 0; i < nargs; i++) given[i] = args[i];
  for (Py_ssize_t i = 0; kwnames && i < PyTuple_GET_SIZE(kwnames); i++) {
    const char *name = ext_lookup_text(PyTuple_GET_ITEM(kwnames, i));
    int k = name ? param_of(f, name) : -1;
    if (k < 0)
      EXT_FAIL_INT(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", f->name,
                   PyTuple_GET_ITEM(kwnames, i));
    if (given[k])
      EXT_FAIL_INT(PyExc_TypeError, "%s() got multiple values for argument '%s'", f->name, name);
    given[k] = args[nargs + i];
  }
  return 0;
}

// Numbers given as a tensor: one for all, or one for each.
static PyObject *unpack_numbers(const form *f, int k, PyObject *tensor) {
  int dims = px_tensor_ndim(ext_tensor(tensor));
  if (k >= f->row->plain) {
    EXT_OWNED *numbers = PyObject_CallMethod(tensor, "tolist", NULL);
    return numbers && dims ? PySequence_Tuple(numbers) : ext_moved(&numbers);
  }
  if (dims)
    EXT_FAIL(PyExc_RuntimeError,
             "scalar tensor expected to be 0 dim but it has %d dimensions and %lld elements.", dims,
             (long long)px_tensor_numel(ext_tensor(tensor)));
  return Py_NewRef(tensor);
}

// An argument as passed to the calls: a private copy of a list, or the object itself.
static PyObject *prepare_arg(const form *f, int k, PyObject *given) {
  if (is_list(given)) return PySequence_Tuple(given);
  return k > 0 && ext_is_tensor(given) ? unpack_numbers(f, k, given) : Py_NewRef(given);
}

static int check_list(const form *f, PyObject *list, Py_ssize_t count) {
  Py_ssize_t here = PyTuple_GET_SIZE(list);
  bool tensors = here && ext_is_tensor(PyTuple_GET_ITEM(list, 0));
  if (here != count && tensors)
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "Tensor lists must have the same number of tensors, got %zd and %zd", count, here);
  if (here != count)
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "Tensor list must have same number of elements as scalar list.");
  for (Py_ssize_t i = 0; tensors && i < count; i++)
    if (!ext_is_tensor(PyTuple_GET_ITEM(list, i)))
      EXT_FAIL_INT(PyExc_TypeError, "expected Tensor as element %zd in argument 0, but got %s", i,
                   ext_type_name(PyTuple_GET_ITEM(list, i)));
  return 0;
}

// Number of calls; -1 with an exception. The first list holds tensors. For pow with a number as
// base it is the list of exponents.
static Py_ssize_t count_of(const form *f, PyObject *const *items) {
  bool number = !strcmp(f->row->op, "pow") && !f->in_place && items[0] && !is_list(items[0]);
  PyObject *first = items[number];
  if (!is_list(first))
    EXT_FAIL_INT(PyExc_TypeError, "%s(): argument 'self' (position 1) must be tuple of Tensors%s%s",
                 f->name, first ? ", not " : "", first ? ext_type_name(first) : "");
  Py_ssize_t count = PyTuple_GET_SIZE(first);
  if (!count) EXT_FAIL_INT(PyExc_RuntimeError, "Tensor list must have at least one tensor.");
  if (!ext_is_tensor(PyTuple_GET_ITEM(first, 0)))
    EXT_FAIL_INT(PyExc_TypeError, "expected Tensor as element 0 in argument 0, but got %s",
                 ext_type_name(PyTuple_GET_ITEM(first, 0)));
  for (int k = 0; k < PARAMS; k++)
    if (is_list(items[k]) && check_list(f, items[k], count) < 0) return -1;
  return count;
}

// ---- calls

// Arguments of one call; items of lists are filled in per call.
typedef struct call {
  PyObject *args[PARAMS], *lists[PARAMS], *names;
  Py_ssize_t count, named;
} call;

// Fills in all but the items, which differ per call.
static int call_begin(call *c, const form *f, PyObject *const *items) {
  *c = (call){.count = 0};
  for (int k = 0; k < PARAMS; k++) {
    if (!items[k]) continue;
    c->lists[c->count] = is_list(items[k]) ? items[k] : NULL;
    c->args[c->count++] = items[k];
    c->named += k >= f->row->plain;
  }
  c->names = c->named ? PyTuple_New(c->named) : NULL;
  Py_ssize_t at = 0;
  for (int k = f->row->plain; c->names && k < PARAMS; k++)
    if (items[k]) PyTuple_SET_ITEM(c->names, at++, Py_NewRef(f->keywords[k]));
  return c->named && !c->names ? -1 : 0;
}

static int call_each(const form *f, call *c, Py_ssize_t count, PyObject *results) {
  for (Py_ssize_t i = 0; i < count; i++) {
    for (Py_ssize_t k = 0; k < c->count; k++)
      if (c->lists[k]) c->args[k] = PyTuple_GET_ITEM(c->lists[k], i);
    PyObject *result = PyObject_Vectorcall(f->op, c->args, (size_t)(c->count - c->named), c->names);
    if (!result) return -1;
    if (f->in_place)
      Py_DECREF(result);
    else
      PyTuple_SET_ITEM(results, i, result);
  }
  return 0;
}

// Rejects leaves and views of leaves before the first in-place write.
static int check_leaves(PyObject *list) {
  for (Py_ssize_t i = 0; px_grad_enabled() && i < PyTuple_GET_SIZE(list); i++) {
    PyObject *item = PyTuple_GET_ITEM(list, i);
    const px_tensor *t = ext_is_tensor(item) ? ext_tensor(item) : NULL;
    if (!t || !px_tensor_requires_grad(t)) continue;
    bool is_view = px_tensor_marks(t) & PX_MARK_VIEW;
    const px_tensor *origin = is_view ? px_tensor_base(t) : t;
    if (origin && px_tensor_is_leaf(origin))
      EXT_FAIL_INT(PyExc_RuntimeError,
                   "a %sleaf Variable that requires grad is being used in an in-place operation.",
                   is_view ? "view of a " : "");
  }
  return 0;
}

// Device launches of all calls are batched.
static PyObject *call_all(const form *f, PyObject *const *items, PyObject *self) {
  call c;
  Py_ssize_t count = count_of(f, items);
  if (count < 0 || (f->in_place && check_leaves(items[0]) < 0)) return NULL;
  EXT_OWNED *results = PyTuple_New(f->in_place ? 0 : count);
  if (!results || call_begin(&c, f, items) < 0) return NULL;
  px_launch_batch_begin();
  int called = call_each(f, &c, count, results);
  Py_XDECREF(c.names);
  px_status issued = px_launch_batch_end(called < 0 ? PX_RUNTIME : PX_OK);
  if (called < 0) return NULL;
  EXT_TRY(issued);
  return f->in_place ? Py_NewRef(self) : ext_moved(&results);
}

static PyObject *foreach (PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                          PyObject * kwnames) {
  const form *f = PyCapsule_GetPointer(self, NULL);
  PyObject *given[PARAMS] = {NULL}, *items[PARAMS] = {NULL}, *result = NULL;
  if (!f || bind_args(f, given, args, nargs, kwnames) < 0) return NULL;
  bool good = true;
  for (int k = 0; k < PARAMS && good; k++)
    if (given[k]) good = (items[k] = prepare_arg(f, k, given[k])) != NULL;
  if (good) result = call_all(f, items, given[0]);
  for (int k = 0; k < PARAMS; k++) Py_XDECREF(items[k]);
  return result;
}

// ---- the functions

static int name_keywords(form *f) {
  for (int k = f->row->plain; k < PARAMS && f->row->params[k]; k++) {
    const char *name = f->row->params[k];
    f->keywords[k] = PyUnicode_FromStringAndSize(name, (Py_ssize_t)strcspn(name, "|"));
    if (!f->keywords[k]) return -1;
  }
  return 0;
}

static void describe(form *f, const char *name) {
  const row *r = f->row;
  int used = snprintf(f->doc, DOC_SIZE, "_foreach_%s%s(", name, f->in_place ? "_" : "");
  for (int k = 0; k < PARAMS && r->params[k]; k++)
    used += snprintf(f->doc + used, (size_t)(DOC_SIZE - used), "%s%.*s%s", k ? ", " : "",
                     (int)strcspn(r->params[k], "|"), r->params[k], k < r->plain ? "" : "=None");
  snprintf(f->doc + used, (size_t)(DOC_SIZE - used),
           ")\n--\n\nApplies %s%s to each tensor of a list.", r->op, f->in_place ? "_" : "");
}

static int add_form(PyObject *module, const row *r, const char *name, bool in_place) {
  char op[NAME_SIZE];
  form *f = &forms[form_count];
  snprintf(op, sizeof op, "%s%s", r->op, in_place ? "_" : "");
  f->op = ext_op_object(in_place ? 'm' : 'f', op);
  if (!f->op) return 0;
  form_count++;
  f->row = r, f->in_place = in_place;
  snprintf(f->name, sizeof f->name, "_foreach_%s%s", name, in_place ? "_" : "");
  describe(f, name);
  f->method = (PyMethodDef){f->name, (PyCFunction)(void (*)(void))foreach,
                            METH_FASTCALL | METH_KEYWORDS, f->doc};
  EXT_OWNED *capsule = name_keywords(f) < 0 ? NULL : PyCapsule_New(f, NULL, NULL);
  return capsule ? ext_add(module, f->name, PyCFunction_New(&f->method, capsule)) : -1;
}

static int add_row(PyObject *module, const row *r, const char *name) {
  if (r->forms & NEW && add_form(module, r, name, false) < 0) return -1;
  return r->forms & IN_PLACE ? add_form(module, r, name, true) : 0;
}

static int add_foreach(PyObject *module) {
  for (int i = 0; i < EXT_LENGTH(rows); i++) {
    if (add_row(module, &rows[i], rows[i].op) < 0) return -1;
    for (int k = 0; k < EXT_LENGTH(aliases); k++)
      if (!strcmp(rows[i].op, aliases[k].op) && add_row(module, &rows[i], aliases[k].name) < 0)
        return -1;
  }
  return 0;
}
EXT_START(EXT_VALUES, add_foreach);
