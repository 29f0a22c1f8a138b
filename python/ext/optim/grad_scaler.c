// SPDX-License-Identifier: Apache-2.0
// torch.amp without autocast: the base of GradScaler (its step is in Python, phlox/amp), custom_fwd
// and custom_bwd. The state of a scaler is in attributes of the object, accessible to user code.
// Its methods are called by name because subclasses override them.
#include "bind/ext.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/optim.h"

// ---- attributes

static int truth(PyObject *self, const char *name) {
  EXT_OWNED *value = PyObject_GetAttrString(self, name);
  return value ? PyObject_IsTrue(value) : -1;
}
// Returns `result` for a disabled scaler.
#define UNLESS_ENABLED(self, result) \
  do { \
    int enabled_ = truth(self, "_enabled"); \
    if (enabled_ <= 0) return enabled_ ? NULL : (result); \
  } while (0)

// A tensor attribute as a new reference; NULL with TypeError for other values.
static PyObject *tensor_at(PyObject *self, const char *name) {
  EXT_OWNED *value = PyObject_GetAttrString(self, name);
  return value && ext_need_tensor(value, "GradScaler", name) ? ext_moved(&value) : NULL;
}
// Copies a scalar to a device; blocks for a copy to the CPU. New reference.
static px_tensor *copy_to_device(const px_tensor *number, px_device device) {
  px_tensor *there;
  EXT_TRY(EXT_NOGIL(px_to(&there, number, PX_DTYPE_NONE, device, device.type != PX_CPU, false)));
  return there;
}
static PyObject *number(double value, px_dtype dtype, px_device device) {
  px_tensor *made;
  return ext_result(px_scalar_tensor(&made, px_float(value), dtype, device, false, false), &made);
}
static PyObject *stage(const char *name) {
  EXT_OWNED *stages = ext_import("phlox.amp.grad_scaler", "OptState");
  return stages ? PyObject_GetAttrString(stages, name) : NULL;
}

// ---- construction

static int check_factors(double growth, double backoff) {
  if (!(growth > 1)) EXT_FAIL_INT(PyExc_AssertionError, "The growth factor must be > 1.0.");
  if (!(backoff < 1)) EXT_FAIL_INT(PyExc_AssertionError, "The backoff factor must be < 1.0.");
  return 0;
}

EXT_INIT(scaler,
         "(device: str = 'cuda', init_scale: float = 65536.0, growth_factor: float = 2.0, "
         "backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool = True)") {
  const char *device;
  double init_scale, growth_factor, backoff_factor;
  int64_t growth_interval;
  bool enabled;
  EXT_BIND_OR(-1, device, init_scale, growth_factor, backoff_factor, growth_interval, enabled);
  if (enabled && !strcmp(device, "cuda") && !px_device_count(PX_CUDA)) {
    if (PyErr_WarnEx(PyExc_UserWarning,
                     "torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.",
                     1) < 0)
      return -1;
    enabled = false;
  }
  if (ext_setattr_new(self, "_device", PyUnicode_FromString(device)) < 0 ||
      ext_setattr_new(self, "_enabled", PyBool_FromLong(enabled)) < 0)
    return -1;
  if (!enabled) return 0;
  bool failed =
      check_factors(growth_factor, backoff_factor) < 0 ||
      ext_setattr_new(self, "_init_scale", PyFloat_FromDouble(init_scale)) < 0 ||
      ext_setattr_new(self, "_scale", Py_NewRef(Py_None)) < 0 ||
      ext_setattr_new(self, "_growth_factor", PyFloat_FromDouble(growth_factor)) < 0 ||
      ext_setattr_new(self, "_backoff_factor", PyFloat_FromDouble(backoff_factor)) < 0 ||
      ext_setattr_new(self, "_growth_interval", PyLong_FromLongLong(growth_interval)) < 0 ||
      ext_setattr_new(self, "_init_growth_tracker", PyLong_FromLong(0)) < 0 ||
      ext_setattr_new(self, "_growth_tracker", Py_NewRef(Py_None)) < 0;
  EXT_OWNED *begun = failed ? NULL : PyObject_CallMethod(self, "_begin", NULL);
  return begun ? 0 : -1;
}
EXT_TYPE(scaler, "torch.amp._GradScaler", "_GradScaler", PyObject, EXT_BASETYPE | EXT_SHORT_NAME,
         "Base of torch.amp.GradScaler.", .tp_new = PyType_GenericNew, .tp_init = scaler_init);

EXT_METHOD(scaler, _lazy_init_scale_growth_tracker, "(dev: Device) -> None",
           "Creates the tensors of the scale on the first device used.") {
  EXT_ARGS(px_device, dev);
  EXT_OWNED *scale = PyObject_GetAttrString(self, "_init_scale");
  EXT_OWNED *count = PyObject_GetAttrString(self, "_init_growth_tracker");
  double first = scale ? PyFloat_AsDouble(scale) : 0;
  double steps = count && !PyErr_Occurred() ? PyFloat_AsDouble(count) : 0;
  return ext_none_unless(
      PyErr_Occurred() || ext_setattr_new(self, "_scale", number(first, PX_FLOAT32, dev)) < 0 ||
      ext_setattr_new(self, "_growth_tracker", number(steps, PX_INT32, dev)) < 0);
}

// The scale or its growth tracker, which must exist. New reference.
static PyObject *require_tensor(PyObject *self, const char *name, const char *caller) {
  EXT_OWNED *value = PyObject_GetAttrString(self, name);
  if (value == Py_None)
    EXT_FAIL(PyExc_AssertionError,
             "Attempted %s but %s is None.  This may indicate your script did not use "
             "scaler.scale(loss or outputs) earlier in the iteration.",
             caller, name);
  return value && ext_need_tensor(value, caller, name) ? ext_moved(&value) : NULL;
}
EXT_METHOD(scaler, _check_scale_growth_tracker, "(funcname: str) -> tuple[Tensor, Tensor]",
           "Returns the tensors of the scale; AssertionError if they do not exist.") {
  EXT_ARGS(const char *, funcname);
  EXT_OWNED *scale = require_tensor(self, "_scale", funcname);
  EXT_OWNED *tracker = scale ? require_tensor(self, "_growth_tracker", funcname) : NULL;
  return tracker ? PyTuple_Pack(2, scale, tracker) : NULL;
}

// ---- scaling

static PyObject *scale_one(PyObject *self, PyObject *output) {
  px_device device = px_tensor_device(ext_tensor(output));
  EXT_OWNED *scale = PyObject_GetAttrString(self, "_scale");
  if (scale == Py_None) {
    EXT_OWNED *made =
        PyObject_CallMethod(self, "_lazy_init_scale_growth_tracker", "N", ext_device(device));
    Py_SETREF(scale, made ? tensor_at(self, "_scale") : NULL);
  }
  px_tensor *tensor = scale ? ext_need_tensor(scale, "scale", "_scale") : NULL;
  px_tensor *there = tensor ? copy_to_device(tensor, device) : NULL;
  EXT_OWNED *factor = there ? ext_wrap(there) : NULL;
  return factor ? PyNumber_Multiply(output, factor) : NULL;
}

EXT_METHOD(scaler, scale, "(outputs: Any) -> Any",
           "Multiplies (scales) a tensor or list of tensors by the scale factor.\n\n"
           "Args:\n"
           "    outputs (Tensor or iterable)\n") {
  EXT_ARGS(PyObject *, outputs);
  UNLESS_ENABLED(self, Py_NewRef(outputs));
  if (ext_is_tensor(outputs)) return scale_one(self, outputs);
  if (!PyObject_HasAttrString(outputs, "__iter__"))
    EXT_FAIL(PyExc_ValueError, "outputs must be a Tensor or an iterable of Tensors");
  EXT_OWNED *method = PyObject_GetAttrString(self, "scale");
  EXT_OWNED *scaled = PyObject_CallFunction((PyObject *)&PyMap_Type, "OO", method, outputs);
  bool list = PyList_Check(outputs) || PyTuple_Check(outputs);
  return scaled && list ? ext_sequence_like(outputs, scaled) : ext_moved(&scaled);
}

// Appends the gradients of an optimizer's parameters.
static int collect(PyObject *list, PyObject *group, bool allow_fp16) {
  EXT_OWNED *params = PyMapping_GetItemString(group, "params");
  EXT_OWNED *items = params ? ext_items(params, "params must be a sequence of tensors") : NULL;
  for (Py_ssize_t i = 0; items && i < PySequence_Fast_GET_SIZE(items); i++) {
    EXT_OWNED *parameter = Py_NewRef(PySequence_Fast_GET_ITEM(items, i));
    EXT_OWNED *grad = PyObject_GetAttrString(parameter, "grad");
    if (!grad) return -1;
    if (grad == Py_None) continue;
    px_tensor *tensor = ext_need_tensor(grad, "unscale_", "grad");
    if (!tensor) return -1;
    if (!allow_fp16 && px_tensor_dtype(tensor) == PX_FLOAT16)
      EXT_FAIL_INT(PyExc_ValueError, "Attempting to unscale FP16 gradients.");
    if (PyList_Append(list, grad) < 0) return -1;
  }
  return items ? 0 : -1;
}
static PyObject *gradients(PyObject *optimizer, bool allow_fp16) {
  EXT_OWNED *groups = PyObject_GetAttrString(optimizer, "param_groups");
  EXT_OWNED *items = groups ? ext_items(groups, "param_groups must be a sequence") : NULL;
  EXT_OWNED *list = items ? PyList_New(0) : NULL;
  for (Py_ssize_t i = 0; list && i < PySequence_Fast_GET_SIZE(items); i++) {
    EXT_OWNED *group = Py_NewRef(PySequence_Fast_GET_ITEM(items, i));
    if (collect(list, group, allow_fp16) < 0) return NULL;
  }
  return ext_moved(&list);
}

// Copy of the inf/NaN flag on the gradient's device, cached in `all`.
static PyObject *found_on(PyObject *all, px_device device, const px_tensor *found_inf) {
  EXT_OWNED *key = ext_device(device);
  PyObject *there = key ? PyDict_GetItemWithError(all, key) : NULL;
  if (there || PyErr_Occurred()) return Py_XNewRef(there);
  px_tensor *copy;
  EXT_TRY(px_to(&copy, found_inf, PX_DTYPE_NONE, device, device.type != PX_CPU, true));
  EXT_OWNED *made = ext_wrap(copy);
  return made && PyDict_SetItem(all, key, made) == 0 ? ext_moved(&made) : NULL;
}

EXT_METHOD(scaler, _unscale_grads_,
           "(optimizer: Any, inv_scale: Tensor, found_inf: Tensor, allow_fp16: bool) -> "
           "dict[Device, Tensor]",
           "Divides gradients by the scale; returns inf/NaN flags per device.") {
  PyObject *optimizer;
  px_tensor *inv_scale, *found_inf;
  bool allow_fp16;
  EXT_BIND(optimizer, inv_scale, found_inf, allow_fp16);
  EXT_OWNED *grads = gradients(optimizer, allow_fp16);
  EXT_OWNED *all = grads ? PyDict_New() : NULL;
  for (Py_ssize_t i = 0; all && i < PyList_GET_SIZE(grads); i++) {
    px_tensor *grad = ext_tensor(PyList_GET_ITEM(grads, i));
    EXT_OWNED *found = found_on(all, px_tensor_device(grad), found_inf);
    PX_SCOPED(px_tensor) by = found ? copy_to_device(inv_scale, px_tensor_device(grad)) : NULL;
    if (!by) return NULL;
    EXT_TRY(EXT_NOGIL(px_amp_unscale(1, &grad, ext_tensor(found), by)));
  }
  return all && ext_sharded_found(grads, all) == 0 ? ext_moved(&all) : NULL;
}

static PyObject *state_of(PyObject *self, PyObject *optimizer) {
  EXT_OWNED *states = PyObject_GetAttrString(self, "_per_optimizer_states");
  EXT_OWNED *key = PyLong_FromVoidPtr(optimizer);
  return states && key ? PyObject_GetItem(states, key) : NULL;
}
static int is_stage(PyObject *state, const char *name) {
  EXT_OWNED *now = PyMapping_GetItemString(state, "stage");
  EXT_OWNED *other = now ? stage(name) : NULL;
  return other ? now == other : -1;
}
// 1 / scale, computed in double for large scales.
static PyObject *inverse(PyObject *scale) {
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) inverse = NULL;
  px_tensor *made;
  EXT_TRY(px_to(&wide, ext_tensor(scale), PX_FLOAT64, PX_DEVICE_NONE, false, false));
  EXT_TRY(px_reciprocal(&inverse, wide));
  return ext_result(px_to(&made, inverse, PX_FLOAT32, PX_DEVICE_NONE, false, false), &made);
}

EXT_METHOD(scaler, unscale_, "(optimizer: Any) -> None",
           "Divides (unscales) the optimizer's gradients by the scale in-place, so they can be "
           "clipped. Optional: step()\nunscales otherwise.\n\n"
           "Args:\n"
           "    optimizer (Optimizer)\n") {
  EXT_ARGS(PyObject *, optimizer);
  UNLESS_ENABLED(self, Py_NewRef(Py_None));
  EXT_OWNED *scale = require_tensor(self, "_scale", "unscale_");
  EXT_OWNED *state = scale ? state_of(self, optimizer) : NULL;
  int unscaled = state ? is_stage(state, "UNSCALED") : -1;
  int stepped = unscaled == 0 ? is_stage(state, "STEPPED") : unscaled;
  if (stepped < 0) return NULL;
  if (unscaled)
    EXT_FAIL(PyExc_RuntimeError,
             "unscale_() has already been called on this optimizer since the last update().");
  if (stepped) EXT_FAIL(PyExc_RuntimeError, "unscale_() is being called after step().");
  EXT_OWNED *by = inverse(scale);
  EXT_OWNED *none = by ? number(0, PX_FLOAT32, px_tensor_device(ext_tensor(by))) : NULL;
  EXT_OWNED *found =
      none ? PyObject_CallMethod(self, "_unscale_grads_", "OOOO", optimizer, by, none, Py_False)
           : NULL;
  EXT_OWNED *now = found ? stage("UNSCALED") : NULL;
  return ext_none_unless(!now ||
                         PyMapping_SetItemString(state, "found_inf_per_device", found) < 0 ||
                         PyMapping_SetItemString(state, "stage", now) < 0);
}

EXT_METHOD(scaler, _check_inf_per_device, "(optimizer: Any) -> dict[Device, Tensor]",
           "Checks gradients for inf or NaN without unscaling.") {
  EXT_ARGS(PyObject *, optimizer);
  EXT_OWNED *scale = require_tensor(self, "_scale", "_check_inf_per_device");
  px_device device = scale ? px_tensor_device(ext_tensor(scale)) : px_cpu();
  EXT_OWNED *one = scale ? number(1, PX_FLOAT32, device) : NULL;
  EXT_OWNED *none = one ? number(0, PX_FLOAT32, device) : NULL;
  EXT_OWNED *found =
      none ? PyObject_CallMethod(self, "_unscale_grads_", "OOOO", optimizer, one, none, Py_True)
           : NULL;
  EXT_OWNED *state = found ? state_of(self, optimizer) : NULL;
  bool kept = state && PyMapping_SetItemString(state, "found_inf_per_device", found) == 0;
  return kept ? ext_moved(&found) : NULL;
}
EXT_METHOD(scaler, _found_inf_per_device, "(optimizer: Any) -> dict[Device, Tensor]",
           "Returns the inf/NaN flags per device.") {
  EXT_ARGS(PyObject *, optimizer);
  EXT_OWNED *state = state_of(self, optimizer);
  return state ? PyMapping_GetItemString(state, "found_inf_per_device") : NULL;
}

// ---- the scale

static PyObject *bad_scale(void) {
  EXT_FAIL(PyExc_AssertionError,
           "new_scale should be a float or a 1-element torch.cuda.FloatTensor or "
           "torch.FloatTensor with requires_grad=False.");
}
static PyObject *put_scale(PyObject *self, PyObject *scale, PyObject *given) {
  if (PyFloat_Check(given)) return PyObject_CallMethod(scale, "fill_", "O", given);
  px_tensor *value = ext_need_tensor(given, "update", "new_scale");
  EXT_OWNED *device = value ? PyObject_GetAttrString(self, "_device") : NULL;
  const char *type = device ? PyUnicode_AsUTF8(device) : NULL;
  if (!type) return NULL;
  bool good = !strcmp(px_device_type_name(px_tensor_device(value).type), type) &&
              px_tensor_numel(value) == 1 && !px_tensor_requires_grad(value);
  return good ? PyObject_CallMethod(scale, "copy_", "O", given) : bad_scale();
}

// Adds one optimizer's flags to the sum, on the scale's device.
static int add_found(px_tensor **sum, PyObject *state, px_device device) {
  EXT_OWNED *found = PyMapping_GetItemString(state, "found_inf_per_device");
  EXT_OWNED *values = found ? PyMapping_Values(found) : NULL;
  for (Py_ssize_t i = 0; values && i < PyList_GET_SIZE(values); i++) {
    px_tensor *one = ext_need_tensor(PyList_GET_ITEM(values, i), "update", "found_inf");
    PX_SCOPED(px_tensor) there = one ? copy_to_device(one, device) : NULL;
    PX_SCOPED(px_tensor) before = *sum;
    if (!there) return *sum = NULL, -1;
    *sum = NULL;
    if (before)
      EXT_TRY_INT(px_add(sum, before, there, px_int(1)));
    else
      *sum = PX_MOVE(there);
  }
  return values ? 0 : -1;
}
static PyObject *move_scale(PyObject *self, PyObject *scale, PyObject *tracker) {
  PX_SCOPED(px_tensor) sum = NULL;
  EXT_OWNED *states = PyObject_GetAttrString(self, "_per_optimizer_states");
  EXT_OWNED *all = states ? PyMapping_Values(states) : NULL;
  for (Py_ssize_t i = 0; all && i < PyList_GET_SIZE(all); i++)
    if (add_found(&sum, PyList_GET_ITEM(all, i), px_tensor_device(ext_tensor(scale))) < 0)
      return NULL;
  if (!all) return NULL;
  if (!sum) EXT_FAIL(PyExc_AssertionError, "No inf checks were recorded prior to update.");
  EXT_OWNED *growth = PyObject_GetAttrString(self, "_growth_factor");
  EXT_OWNED *backoff = PyObject_GetAttrString(self, "_backoff_factor");
  EXT_OWNED *interval = PyObject_GetAttrString(self, "_growth_interval");
  if (!growth || !backoff || !interval) return NULL;
  double up = PyFloat_AsDouble(growth), down = PyFloat_AsDouble(backoff);
  int64_t steps = 0;
  if (PyErr_Occurred() || ext_to_int(interval, &steps) < 0) return NULL;
  return ext_none(
      px_amp_update_scale(ext_tensor(scale), ext_tensor(tracker), sum, up, down, steps));
}

EXT_METHOD(scaler, update, "(new_scale: float | Tensor | None = None) -> None",
           "Updates the scale factor according to the flags of the steps since the last update, or "
           "sets it.\n\n"
           "Args:\n"
           "    new_scale (float or Tensor)\n") {
  EXT_ARGS(PyObject *, new_scale);
  UNLESS_ENABLED(self, Py_NewRef(Py_None));
  EXT_OWNED *scale = require_tensor(self, "_scale", "update");
  EXT_OWNED *tracker = scale ? require_tensor(self, "_growth_tracker", "update") : NULL;
  EXT_OWNED *done = !tracker    ? NULL
                    : new_scale ? put_scale(self, scale, new_scale)
                                : move_scale(self, scale, tracker);
  return done ? PyObject_CallMethod(self, "_begin", NULL) : NULL;
}

// ---- state

// Value of a scale tensor, or its initial value before it exists.
static PyObject *value_of(PyObject *self, const char *tensor, const char *first) {
  EXT_OWNED *now = PyObject_GetAttrString(self, tensor);
  if (!now || now == Py_None) return now ? PyObject_GetAttrString(self, first) : NULL;
  return PyObject_CallMethod(now, "item", NULL);
}
EXT_METHOD0(scaler, get_scale, "float",
            "Returns the current scale as a float, which waits for the device; 1.0 if disabled.") {
  UNLESS_ENABLED(self, PyFloat_FromDouble(1));
  return value_of(self, "_scale", "_init_scale");
}
EXT_METHOD0(scaler, _get_growth_tracker, "int",
            "Returns the number of consecutive steps without inf or NaN.") {
  return value_of(self, "_growth_tracker", "_init_growth_tracker");
}
EXT_METHOD0(scaler, _get_scale_async, "Tensor | None", "Returns the scale tensor.") {
  return PyObject_GetAttrString(self, "_scale");
}
EXT_METHOD0(scaler, is_enabled, "bool", "Returns True if this instance is enabled.") {
  return PyObject_GetAttrString(self, "_enabled");
}
#define FACTOR(name, type, text) \
  EXT_METHOD0(scaler, get_##name, type, text) { return PyObject_GetAttrString(self, "_" #name); } \
  EXT_METHOD(scaler, set_##name, "(new: " type ") -> None", \
             "Sets it.\n\n" \
             "Args:\n" \
             "    new (" type "): " text "\n") { \
    EXT_ARGS(PyObject *, new); \
    return ext_setattr_new(self, "_" #name, Py_NewRef(new)) < 0 ? NULL : Py_NewRef(Py_None); \
  } \
  struct ext_row
FACTOR(growth_factor, "float", "Factor by which the scale is multiplied to raise it.");
FACTOR(backoff_factor, "float", "Factor by which the scale is multiplied to lower it.");
FACTOR(growth_interval, "int",
       "Number of consecutive steps without inf or NaN after which the scale is raised.");

// Keys of a state dict, and the attributes they are loaded into.
static const struct {
  const char *name, *attribute;
} states[] = {{"scale", "_init_scale"},
              {"growth_factor", "_growth_factor"},
              {"backoff_factor", "_backoff_factor"},
              {"growth_interval", "_growth_interval"},
              {"_growth_tracker", "_init_growth_tracker"}};
enum { STATES = EXT_LENGTH(states), SCALE = 0, TRACKER = STATES - 1 };

static PyObject *state_at(PyObject *self, int i) {
  if (i == SCALE) return value_of(self, "_scale", "_init_scale");
  if (i == TRACKER) return value_of(self, "_growth_tracker", "_init_growth_tracker");
  return PyObject_GetAttrString(self, states[i].attribute);
}
EXT_METHOD0(scaler, state_dict, "dict[str, Any]",
            "Returns the state of the scaler as a dict: scale, factors, growth tracker. Empty if "
            "disabled.") {
  UNLESS_ENABLED(self, PyDict_New());
  EXT_OWNED *state = PyDict_New();
  for (int i = 0; state && i < STATES; i++) {
    EXT_OWNED *value = state_at(self, i);
    if (!value || PyDict_SetItemString(state, states[i].name, value) < 0) return NULL;
  }
  return ext_moved(&state);
}

static int fill_tensor(PyObject *self, const char *tensor, PyObject *value) {
  EXT_OWNED *now = PyObject_GetAttrString(self, tensor);
  if (!now || now == Py_None) return now ? 0 : -1;
  EXT_OWNED *filled = PyObject_CallMethod(now, "fill_", "O", value);
  return filled ? 0 : -1;
}
// Changes nothing unless all values are present.
static int load(PyObject *self, PyObject *const *values) {
  if (fill_tensor(self, "_scale", values[SCALE]) < 0 ||
      fill_tensor(self, "_growth_tracker", values[TRACKER]) < 0)
    return -1;
  for (int i = 0; i < STATES; i++)
    if (PyObject_SetAttrString(self, states[i].attribute, values[i]) < 0) return -1;
  return 0;
}
EXT_METHOD(scaler, load_state_dict, "(state_dict: dict[str, Any]) -> None",
           "Loads the scaler state.\n\n"
           "Args:\n"
           "    state_dict (dict)\n") {
  EXT_ARGS(PyObject *, state_dict);
  UNLESS_ENABLED(self, Py_NewRef(Py_None));
  Py_ssize_t size = PyObject_Size(state_dict);
  if (size == 0)
    EXT_FAIL(PyExc_RuntimeError,
             "The source state dict is empty, possibly because it was saved from a disabled "
             "instance of GradScaler.");
  PyObject *values[STATES] = {NULL};
  bool failed = size < 0;
  for (int i = 0; i < STATES && !failed; i++)
    failed = !(values[i] = PyMapping_GetItemString(state_dict, states[i].name));
  failed = failed || load(self, values) < 0;
  for (int i = 0; i < STATES; i++) Py_XDECREF(values[i]);
  return failed ? NULL : Py_NewRef(Py_None);
}

EXT_METHOD0(scaler, __getstate__, "dict[str, Any]", NULL) {
  EXT_OWNED *dict = PyObject_GetAttrString(self, "__dict__");
  EXT_OWNED *state = dict ? PyDict_Copy(dict) : NULL;
  if (!state) return NULL;
  UNLESS_ENABLED(self, ext_moved(&state));
  EXT_OWNED *begun = PyObject_GetAttrString(self, "_per_optimizer_states");
  if (!begun || PyObject_Size(begun) < 0) return NULL;
  if (PyObject_Size(begun))
    EXT_FAIL(PyExc_AssertionError,
             "A GradScaler instance may only be pickled at the beginning of an iteration, or at "
             "the end after scaler.update().");
  EXT_OWNED *scale = state_at(self, SCALE), *tracker = scale ? state_at(self, TRACKER) : NULL;
  bool good = tracker && PyDict_SetItemString(state, "_init_scale", scale) == 0 &&
              PyDict_SetItemString(state, "_init_growth_tracker", tracker) == 0 &&
              PyDict_SetItemString(state, "_scale", Py_None) == 0 &&
              PyDict_SetItemString(state, "_growth_tracker", Py_None) == 0;
  return good ? ext_moved(&state) : NULL;
}
// ---- device computations of torch.amp.GradScaler

EXT_FUNCTION(
    torch, _amp_foreach_non_finite_check_and_unscale_,
    "(tensors: Sequence[Tensor], found_inf: Tensor, inv_scale: Tensor) -> None",
    "Multiplies tensors by inv_scale in-place, and sets found_inf to 1 if an element is inf "
    "or NaN.\n\n"
    "Args:\n"
    "    tensors (tensors)\n"
    "    found_inf (Tensor): one float32 element\n"
    "    inv_scale (Tensor): one float32 element\n") {
  PyObject *tensors;
  px_tensor *found_inf, *inv_scale;
  EXT_BIND(tensors, found_inf, inv_scale);
  if (ext_is_tensor(tensors))
    EXT_FAIL(PyExc_TypeError,
             "_amp_foreach_non_finite_check_and_unscale_(): argument 'self' (position 1) must be "
             "tuple of Tensors, not Tensor");
  EXT_TENSORS grads = {NULL};
  if (ext_take_tensors(&grads, ext_items(tensors, "argument 'self' must be tuple of Tensors"),
                       "_amp_foreach_non_finite_check_and_unscale_", "self") < 0)
    return NULL;
  return ext_none(EXT_NOGIL(px_amp_unscale(grads.count, grads.items, found_inf, inv_scale)));
}

EXT_FUNCTION(
    torch, _amp_update_scale_,
    "(scale: Tensor, growth_tracker: Tensor, found_inf: Tensor, scale_growth_factor: float, "
    "scale_backoff_factor: float, growth_interval: int) -> Tensor",
    "Lowers a scale in-place if found_inf is not 0, and raises it after growth_interval calls "
    "without.\n\n"
    "Args:\n"
    "    scale (Tensor): one float32 element\n"
    "    growth_tracker (Tensor): the count of such calls, one int32 element\n"
    "    found_inf (Tensor): one float32 element\n"
    "    scale_growth_factor (float)\n"
    "    scale_backoff_factor (float)\n"
    "    growth_interval (int)\n") {
  px_tensor *scale, *growth_tracker, *found_inf;
  double scale_growth_factor, scale_backoff_factor;
  int64_t growth_interval;
  EXT_BIND(scale, growth_tracker, found_inf, scale_growth_factor, scale_backoff_factor,
           growth_interval);
  EXT_TRY(px_amp_update_scale(scale, growth_tracker, found_inf, scale_growth_factor,
                              scale_backoff_factor, growth_interval));
  return ext_wrap(px_retain(scale));
}

// ---- custom_fwd and custom_bwd: decorators for forward and backward of an autograd.Function

typedef struct custom_object {
  PyObject_HEAD px_device_type type;
  px_dtype cast;  // dtype for forward's inputs; PX_DTYPE_NONE: unchanged
  bool backward;
} custom_object;

// Casts a tensor if it is eligible for autocast.
static PyObject *cast_one(PyObject *value, void *context) {
  const custom_object *how = context;
  const px_tensor *t = ext_tensor(value);
  bool eligible = px_dtype_is_float(px_tensor_dtype(t)) && px_tensor_dtype(t) != PX_FLOAT64 &&
                  px_tensor_device(t).type == (int)how->type;
  return eligible ? ext_convert(value, PX_DEVICE_NONE, how->cast, false, false) : Py_NewRef(value);
}
static PyObject *cast_in(PyObject *value, const custom_object *how) {
  return ext_map_tensors(value, cast_one, (void *)how);
}

typedef struct custom_call_of {
  PyObject *function, *args, *kwargs;
} custom_call_of;

// Calls a function with an autocast state.
static PyObject *apply_in(const custom_object *how, px_dtype dtype, bool enabled,
                          custom_call_of call) {
  px_autocast before;
  EXT_TRY(px_autocast_enter(&before, how->type, dtype, enabled));
  PyObject *result = ext_apply(call.function, call.args, call.kwargs);
  px_autocast_exit(before);
  return result;
}
static PyObject *run_forward(const custom_object *how, PyObject *ctx, custom_call_of call) {
  px_autocast now = px_autocast_get();
  bool casts = now.enabled[how->type] && how->cast != PX_DTYPE_NONE;
  bool used = now.enabled[how->type] && !casts;
  if (ext_setattr_new(ctx, "_dtype", ext_dtype((px_dtype)now.dtype[how->type])) < 0 ||
      ext_setattr_new(ctx, "_fwd_used_autocast", PyBool_FromLong(used)) < 0)
    return NULL;
  if (!casts) return ext_apply(call.function, call.args, call.kwargs);
  EXT_OWNED *args = cast_in(call.args, how);
  EXT_OWNED *kwargs = args ? (call.kwargs ? cast_in(call.kwargs, how) : PyDict_New()) : NULL;
  custom_call_of cast = {call.function, args, kwargs};
  return kwargs ? apply_in(how, PX_DTYPE_NONE, false, cast) : NULL;
}
// Runs with the autocast state of forward.
static PyObject *run_backward(const custom_object *how, PyObject *ctx, custom_call_of call) {
  EXT_OWNED *given = PyObject_GetAttrString(ctx, "_dtype");
  px_dtype dtype;
  if (!given || ext_to_dtype(given, &dtype) < 0) return NULL;
  int used = truth(ctx, "_fwd_used_autocast");
  return used < 0 ? NULL : apply_in(how, dtype, used, call);
}
// _run(function, args, kwargs): called by the decorated function (phlox/_modes.py).
static PyObject *custom_run(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
  const custom_object *how = (const custom_object *)self;
  custom_call_of call;
  if (!EXT_UNPACK_ARGS(args, nargs, &call.function, &call.args, &call.kwargs) ||
      !PyTuple_Check(call.args) || !PyTuple_GET_SIZE(call.args))
    EXT_FAIL(PyExc_TypeError, "expected a context as the first argument");
  PyObject *ctx = PyTuple_GET_ITEM(call.args, 0);
  return how->backward ? run_backward(how, ctx, call) : run_forward(how, ctx, call);
}
static PyObject *decorate(PyObject *self, PyObject *function) {
  return ext_call_from("phlox._modes", "under", "(OO)", self, function);
}
static PyObject *custom_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  PyObject *function;
  return PyArg_ParseTuple(args, "O", &function) ? decorate(self, function) : NULL;
}
static PyMethodDef custom_methods[] = {
    {"_run", (PyCFunction)(void (*)(void))custom_run, METH_FASTCALL, NULL}, {NULL, NULL, 0, NULL}};
EXT_TYPE(custom, "torch.amp._Custom", "", custom_object, EXT_FINAL,
         "Decorator for the forward or backward of an autograd.Function.", .tp_call = custom_call,
         .tp_methods = custom_methods);

// Returns the decorator, or the decorated function.
static PyObject *custom(PyObject *function, const char *device_type, px_dtype cast, bool backward) {
  px_device device;
  EXT_TRY(px_device_parse(&device, device_type));
  EXT_OWNED *made = ext_new(&custom_type);
  if (!made) return NULL;
  custom_object *how = (custom_object *)made;
  how->type = (px_device_type)device.type, how->cast = cast, how->backward = backward;
  return function ? decorate(made, function) : ext_moved(&made);
}
static const char *text_of(PyObject *device_type) {
  if (device_type && PyUnicode_Check(device_type)) return ext_text(device_type);
  EXT_FAIL(PyExc_ValueError, "Expected `device_type` of type `str`, got: `%R`",
           device_type ? (PyObject *)Py_TYPE(device_type) : Py_None);
}

EXT_FUNCTION(amp, custom_fwd,
             "(fwd: Callable | None = None, *, device_type: str, cast_inputs: _dtype | None = "
             "None) -> Any",
             "Helper decorator for forward methods of custom autograd functions. With cast_inputs, "
             "inside autocast,\nincoming tensors are cast to this dtype, and forward runs with "
             "autocast disabled.\n\n"
             "Args:\n"
             "    fwd (Callable)\n"
             "    device_type (str): device type to use, such as 'cuda'\n"
             "    cast_inputs (torch.dtype)\n") {
  PyObject *fwd, *device_type;
  px_dtype cast_inputs;
  EXT_BIND(fwd, device_type, cast_inputs);
  const char *type = text_of(device_type);
  return type ? custom(fwd, type, cast_inputs, false) : NULL;
}
EXT_FUNCTION(
    amp, custom_bwd, "(bwd: Callable | None = None, *, device_type: str) -> Any",
    "Helper decorator for backward methods of custom autograd functions: runs them with the "
    "autocast state of forward.\n\n"
    "Args:\n"
    "    bwd (Callable)\n"
    "    device_type (str): device type to use, such as 'cuda'\n") {
  EXT_ARGS(PyObject *, bwd, device_type);
  const char *type = text_of(device_type);
  return type ? custom(bwd, type, PX_DTYPE_NONE, true) : NULL;
}

static PyObject *deprecated_custom(PyObject *function, const char *name, px_dtype cast,
                                   bool backward) {
  if (PyErr_WarnFormat(PyExc_FutureWarning, 1,
                       "`torch.cuda.amp.%s(args...)` is deprecated. Please use "
                       "`torch.amp.%s(args..., device_type='cuda')` instead.",
                       name, name) < 0)
    return NULL;
  return custom(function, "cuda", cast, backward);
}
EXT_FUNCTION(cuda_amp, custom_fwd,
             "(fwd: Callable | None = None, *, cast_inputs: _dtype | None = None) -> Any",
             "Deprecated: torch.amp.custom_fwd for device type cuda.\n\n"
             "Args:\n"
             "    fwd (Callable)\n"
             "    cast_inputs (torch.dtype)\n") {
  PyObject *fwd;
  px_dtype cast_inputs;
  EXT_BIND(fwd, cast_inputs);
  return deprecated_custom(fwd, "custom_fwd", cast_inputs, false);
}
EXT_FUNCTION(cuda_amp, custom_bwd, "(bwd: Callable) -> Any",
             "Deprecated: torch.amp.custom_bwd for device type cuda.\n\n"
             "Args:\n"
             "    bwd (Callable)\n") {
  EXT_ARGS(PyObject *, bwd);
  return deprecated_custom(bwd, "custom_bwd", PX_DTYPE_NONE, true);
}
