// SPDX-License-Identifier: Apache-2.0
// torch.optim.lr_scheduler, and the clipping of gradients in torch.nn.utils.
#include <math.h>

#include "optim.h"

typedef struct scheduler_object {
  PyObject_HEAD px_scheduler *scheduler;
  PyObject *optimizer;
  PyObject *dict;
} scheduler_object;

static void scheduler_dealloc(PyObject *object) {
  scheduler_object *self = (scheduler_object *)object;
  PyTypeObject *type = Py_TYPE(object);
  Py_CLEAR(self->optimizer);
  Py_CLEAR(self->dict);
  px_release(self->scheduler);
  type->tp_free(object);
  if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) Py_DECREF(type);
}

static int optimizer_of(PyObject *object, scheduler_object *self) {
  if (!PyObject_TypeCheck(object, &ext_OptimizerType))
    EXT_FAIL_INT(PyExc_TypeError, "%s is not an Optimizer", ext_type_name(object));
  Py_XSETREF(self->optimizer, Py_NewRef(object));
  return ext_optimizer_push(object);
}

static px_optimizer *core_of(const scheduler_object *self) {
  return ((ext_optimizer_object *)self->optimizer)->optimizer;
}

static int step_init(PyObject *object, PyObject *args, PyObject *kwargs) {
  static ext_spec spec = {"StepLR", "optimizer step_size|gamma last_epoch", 0, 0, 0, {NULL}};
  PyObject *out[EXT_MAX_ARGS] = {NULL};
  scheduler_object *self = (scheduler_object *)object;
  int64_t size;
  double gamma = 0.1;
  if (ext_args_tuple(&spec, args, kwargs, out) < 0 || optimizer_of(out[0], self) < 0) return -1;
  if (ext_to_int(out[1], &size) < 0 || (out[2] && ext_to_double(out[2], &gamma) < 0)) return -1;
  EXT_TRY_INT(px_scheduler_step_lr(&self->scheduler, core_of(self), size, gamma));
  return 0;
}

static int cosine_init(PyObject *object, PyObject *args, PyObject *kwargs) {
  static ext_spec spec = {
      "CosineAnnealingLR", "optimizer T_max|eta_min last_epoch", 0, 0, 0, {NULL}};
  PyObject *out[EXT_MAX_ARGS] = {NULL};
  scheduler_object *self = (scheduler_object *)object;
  int64_t period;
  double least = 0;
  if (ext_args_tuple(&spec, args, kwargs, out) < 0 || optimizer_of(out[0], self) < 0) return -1;
  if (ext_to_int(out[1], &period) < 0 || (out[2] && ext_to_double(out[2], &least) < 0)) return -1;
  EXT_TRY_INT(px_scheduler_cosine(&self->scheduler, core_of(self), period, least));
  return 0;
}

#define TOO_EARLY \
  "Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and later, " \
  "you should call them in the opposite order: `optimizer.step()` before `lr_scheduler.step()`.  " \
  "Failure to do this will result in PyTorch skipping the first value of the learning rate " \
  "schedule. See more details at " \
  "https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"

EXT_FAST(step) {
  EXT_ARGS("step", "|epoch", out);
  scheduler_object *object = (scheduler_object *)self;
  bool early = px_scheduler_epoch(object->scheduler) == 0 &&
               !((ext_optimizer_object *)object->optimizer)->stepped;
  if (early && PyErr_WarnEx(PyExc_UserWarning, TOO_EARLY, 1) < 0) return NULL;
  if (ext_optimizer_push(object->optimizer) < 0) return NULL;
  EXT_TRY(px_scheduler_step(object->scheduler));
  if (ext_optimizer_pull_lr(object->optimizer) < 0) return NULL;
  Py_RETURN_NONE;
}

static PyObject *rates(const scheduler_object *self, double (*rate)(const px_scheduler *, int)) {
  int groups = px_optimizer_groups(core_of(self));
  PyObject *list = PyList_New(groups);
  for (int g = 0; list && g < groups; g++)
    PyList_SET_ITEM(list, g, PyFloat_FromDouble(rate(self->scheduler, g)));
  return list;
}

static PyObject *get_last_lr(PyObject *self, PyObject *unused) {
  return rates((scheduler_object *)self, px_scheduler_last_lr);
}
static PyObject *get_base_lrs(PyObject *self, void *closure) {
  return rates((scheduler_object *)self, px_scheduler_base_lr);
}
static PyObject *get_epoch(PyObject *self, void *closure) {
  return PyLong_FromLongLong(px_scheduler_epoch(((scheduler_object *)self)->scheduler));
}
static PyObject *get_optimizer(PyObject *self, void *closure) {
  return Py_NewRef(((scheduler_object *)self)->optimizer);
}

static PyObject *state_dict(PyObject *self, PyObject *unused) {
  EXT_OWNED *last = get_last_lr(self, NULL);
  return last ? Py_BuildValue("{sLsO}", "last_epoch",
                              (long long)px_scheduler_epoch(((scheduler_object *)self)->scheduler),
                              "_last_lr", last)
              : NULL;
}

static PyObject *load_state_dict(PyObject *self, PyObject *state) {
  PyObject *epoch = PyDict_Check(state) ? PyDict_GetItemString(state, "last_epoch") : NULL;
  int64_t number;
  if (!epoch) EXT_FAIL(PyExc_KeyError, "'last_epoch'");
  if (ext_to_int(epoch, &number) < 0) return NULL;
  px_scheduler_restore(((scheduler_object *)self)->scheduler, number);
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {EXT_DEF("step", step),
                                {"get_last_lr", get_last_lr, METH_NOARGS, NULL},
                                {"state_dict", state_dict, METH_NOARGS, NULL},
                                {"load_state_dict", load_state_dict, METH_O, NULL},
                                {NULL, NULL, 0, NULL}};
static PyGetSetDef getset[] = {{"last_epoch", get_epoch, NULL, NULL, NULL},
                               {"base_lrs", get_base_lrs, NULL, NULL, NULL},
                               {"optimizer", get_optimizer, NULL, NULL, NULL},
                               {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot base_slots[] = {{Py_tp_dealloc, scheduler_dealloc},
                                   {Py_tp_methods, methods},
                                   {Py_tp_getset, getset},
                                   {0, NULL}};
static PyType_Slot step_slots[] = {{Py_tp_init, step_init}, {0, NULL}};
static PyType_Slot cosine_slots[] = {{Py_tp_init, cosine_init}, {0, NULL}};
static struct {
  const char *name;
  PyType_Spec spec;
} types[] = {{"LRScheduler",
              {"torch.optim.lr_scheduler.LRScheduler", sizeof(scheduler_object), 0,
               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, base_slots}},
             {"StepLR",
              {"torch.optim.lr_scheduler.StepLR", sizeof(scheduler_object), 0,
               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, step_slots}},
             {"CosineAnnealingLR",
              {"torch.optim.lr_scheduler.CosineAnnealingLR", sizeof(scheduler_object), 0,
               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, cosine_slots}}};

// ---- clipping

EXT_FAST(clip_grad_norm) {
  EXT_ARGS("clip_grad_norm_", "parameters max_norm|norm_type error_if_nonfinite foreach", out);
  EXT_OWNED *list = ext_is_tensor(out[0]) ? Py_BuildValue("[O]", out[0]) : PySequence_List(out[0]);
  double most, type = 2;
  if (!list || ext_to_double(out[1], &most) < 0 || (out[2] && ext_to_double(out[2], &type) < 0))
    return NULL;
  int finite = ext_to_bool(out[3], false);
  if (finite < 0) return NULL;
  Py_ssize_t count = PyList_GET_SIZE(list);
  px_tensor **items = PyMem_Malloc((size_t)(count ? count : 1) * sizeof *items), *total = NULL;
  bool good = items != NULL;
  for (Py_ssize_t i = 0; i < count && good; i++)
    good = (items[i] =
                ext_need_tensor(PyList_GET_ITEM(list, i), "clip_grad_norm_", "parameters")) != NULL;
  px_status status =
      good ? EXT_NOGIL(px_clip_grad_norm(&total, items, count, most, type, finite)) : PX_OK;
  PyMem_Free(items);
  if (!good) return PyErr_Occurred() ? NULL : PyErr_NoMemory();
  EXT_TRY(status);
  return ext_wrap(total);
}

static PyMethodDef clipping[] = {EXT_DEF("clip_grad_norm_", clip_grad_norm), {NULL, NULL, 0, NULL}};

int ext_init_schedules(PyObject *m, PyObject *optim) {
  PyObject *module = ext_submodule(optim, "lr_scheduler", NULL);
  EXT_OWNED *base = NULL;
  for (int i = 0; module && i < EXT_LENGTH(types); i++) {
    EXT_OWNED *bases = base ? PyTuple_Pack(1, base) : NULL;
    EXT_OWNED *type = PyType_FromSpecWithBases(&types[i].spec, bases);
    if (!type || PyObject_SetAttrString(module, types[i].name, type) < 0) return -1;
    ext_short_name((PyTypeObject *)type);
    if (!base) base = Py_NewRef(type);
  }
  EXT_OWNED *nn = PyObject_GetAttrString(m, "nn");
  return module && nn && ext_submodule(nn, "utils", clipping) ? 0 : -1;
}
