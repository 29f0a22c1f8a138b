// SPDX-License-Identifier: Apache-2.0
// torch.Generator, and functions that seed, save and restore random number generators. Also
// settings of the process: print options and thread counts.
#include "bind/ext.h"

#include <limits.h>
#include <string.h>

typedef struct generator_object {
  PyObject_HEAD px_generator *generator;
} generator_object;
static px_generator *generator_of(PyObject *self) { return ((generator_object *)self)->generator; }

PyObject *ext_generator(px_generator *generator_take) {
  return ext_wrap_core(&ext_GeneratorType, generator_take);
}
int ext_to_generator(PyObject *object, px_generator **out) {
  *out = NULL;
  if (ext_is_none(object)) return 0;
  if (!Py_IS_TYPE(object, &ext_GeneratorType))
    EXT_FAIL_INT(PyExc_TypeError, "must be torch.Generator, not %s", ext_type_name(object));
  *out = generator_of(object);
  return 0;
}

// Accepts any 64-bit int, signed or not: PyTorch maps negative seeds to the upper half.
static int to_seed(PyObject *object, const char *function, uint64_t *out) {
  bool integer = object && PyIndex_Check(object) && ext_is_number(object);
  if (!integer || PyBool_Check(object))
    EXT_FAIL_INT(PyExc_RuntimeError, "%s expected a long, but got %s", function,
                 ext_type_name(object ? object : Py_None));
  EXT_OWNED *index = PyNumber_Index(object);
  if (!index) return -1;
  *out = PyLong_AsUnsignedLongLong(index);
  if (!PyErr_Occurred()) return 0;
  PyErr_Clear();
  *out = (uint64_t)PyLong_AsLongLong(index);
  if (!PyErr_Occurred()) return 0;
  PyErr_Clear();
  EXT_FAIL_INT(PyExc_ValueError, "Overflow when unpacking long long");
}

static PyObject *state_of(px_generator *generator) {
  px_tensor *made = NULL;
  int64_t size = (int64_t)px_generator_state_size(generator);
  px_status status = px_tensor_empty(&made, 1, &size, PX_UINT8, px_cpu());
  if (status == PX_OK) px_generator_get_state(generator, px_tensor_data(made));
  return ext_result(status, &made);
}

enum { LONGEST_STATE = 8192 };  // bytes
static int set_state(px_generator *generator, PyObject *state) {
  if (!ext_is_tensor(state) || px_tensor_dtype(ext_tensor(state)) != PX_UINT8 ||
      px_tensor_is_cuda(ext_tensor(state)))
    EXT_FAIL_INT(PyExc_TypeError, "RNG state must be a torch.ByteTensor");
  size_t size = (size_t)px_tensor_numel(ext_tensor(state));
  if (size > LONGEST_STATE) EXT_FAIL_INT(PyExc_RuntimeError, "RNG state is wrong size");
  uint8_t *bytes = PyMem_Malloc(LONGEST_STATE);
  if (!bytes) return PyErr_NoMemory(), -1;
  px_status status = px_tensor_read(ext_tensor(state), bytes, size);
  if (status == PX_OK) status = px_generator_set_state(generator, bytes, size);
  PyMem_Free(bytes);
  return ext_zero(status);
}

static int random_seed(uint64_t *seed) {
  FILE *file = fopen("/dev/urandom", "rb");
  size_t got = file ? fread(seed, sizeof *seed, 1, file) : 0;
  if (file) fclose(file);
  if (!got) EXT_FAIL_INT(PyExc_OSError, "cannot read a random seed from the system");
  *seed &= UINT64_C(0x1fffffffffffff);
  return 0;
}
// ---- generators
EXT_OWNS(generator, EXT_CORE(generator_object, generator));
EXT_NEW(generator, "(device: Device | None = None)") {
  px_device device;
  px_generator *made = NULL;
  EXT_BIND(device);
  if (device.type < 0) device = px_cpu();
  EXT_TRY(px_generator_new(&made, device));
  return ext_generator(made);
}
static PyObject *generator_repr(PyObject *self) {
  return PyUnicode_FromFormat("<torch._C.Generator object at %p>", self);
}
EXT_SHARED_TYPE(
    generator, ext_GeneratorType, "torch._C.Generator", "Generator", generator_object, EXT_FINAL,
    "A random number generator; a seed gives the same sequence on all devices.\n\n"
    "Args:\n"
    "    device (torch.device, str or int): device of the generator; default: the CPU\n\n"
    ">>> g = torch.Generator().manual_seed(3)\n"
    ">>> a = torch.rand(2, generator=g)\n"
    ">>> torch.equal(a, torch.rand(2, generator=g.manual_seed(3)))\n"
    "True\n",
    EXT_LIFETIME_SLOTS(generator), .tp_new = generator_new, .tp_repr = generator_repr);

EXT_GET(generator, device, "device", px_generator_device(generator_of(self)),
        "The device of the generator.");
EXT_METHOD(generator, manual_seed, "(seed: int) -> Generator",
           "Sets the seed, a 64-bit int, and returns the generator.") {
  uint64_t value;
  EXT_ARGS(PyObject *, seed);
  if (to_seed(seed, "manual_seed", &value) < 0) return NULL;
  EXT_TRY(px_generator_seed(generator_of(self), value));
  return Py_NewRef(self);
}
EXT_METHOD0(generator, seed, "int", "Sets a non-deterministic seed and returns it.") {
  uint64_t seed;
  if (random_seed(&seed) < 0) return NULL;
  EXT_TRY(px_generator_seed(generator_of(self), seed));
  return PyLong_FromUnsignedLongLong(seed);
}
EXT_RETURNS(generator, initial_seed, "int", px_generator_initial_seed(generator_of(self)),
            "Returns the initial seed.");
EXT_RETURNS(generator, get_state, "Tensor", state_of(generator_of(self)),
            "Returns the generator state as a torch.ByteTensor.");
EXT_METHOD(generator, set_state, "(new_state: Tensor) -> Generator",
           "Sets the generator state and returns the generator.") {
  EXT_ARGS(PyObject *, new_state);
  return set_state(generator_of(self), new_state) < 0 ? NULL : Py_NewRef(self);
}

EXT_METHOD0(generator, clone_state, "Generator",
            "Returns a new generator with a copy of the state.") {
  px_generator *made = NULL;
  EXT_TRY(px_generator_clone(&made, generator_of(self)));
  return ext_generator(made);
}
EXT_METHOD0(generator, graphsafe_get_state, "Generator",
            "Returns a new generator that draws from the state of this one. Only for devices.") {
  px_generator *made = NULL;
  EXT_TRY(px_generator_alias(&made, generator_of(self)));
  return ext_generator(made);
}
EXT_METHOD(generator, graphsafe_set_state, "(new_state: Generator) -> Generator",
           "Makes this generator draw from the state of `new_state`, also within a graph. Only for "
           "devices.") {
  EXT_ARGS(PyObject *, new_state);
  if (!new_state || !Py_IS_TYPE(new_state, &ext_GeneratorType))
    EXT_FAIL(PyExc_TypeError, "expected a Generator, but got %s",
             ext_type_name(new_state ? new_state : Py_None));
  EXT_TRY(px_generator_share(generator_of(self), generator_of(new_state)));
  return Py_NewRef(self);
}
EXT_METHOD0(generator, get_offset, "int", "Returns the offset of a device's generator.") {
  uint64_t offset;
  EXT_TRY(px_generator_offset(&offset, generator_of(self)));
  return PyLong_FromUnsignedLongLong(offset);
}
EXT_METHOD(generator, set_offset, "(offset: int) -> Generator",
           "Sets the offset of a device's generator, a multiple of 4, and returns the generator.") {
  uint64_t value;
  EXT_ARGS(PyObject *, offset);
  if (to_seed(offset, "manual_offset", &value) < 0) return NULL;
  EXT_TRY(px_generator_set_offset(generator_of(self), value));
  return Py_NewRef(self);
}

// ---- the default generators (phlox/random.py, phlox/cuda/random.py)
EXT_FUNCTION(torch, _manual_seed, "(seed: int) -> None",
             "Sets the seed on the CPU and all devices. Converts numbers and texts as int does.") {
  uint64_t value;
  EXT_ARGS(PyObject *, seed);
  EXT_OWNED *number = PyObject_CallOneArg((PyObject *)&PyLong_Type, seed ? seed : Py_None);
  if (!number || to_seed(number, "manual_seed", &value) < 0) return NULL;
  EXT_TRY(px_manual_seed(value));
  Py_RETURN_NONE;
}
EXT_FUNCTION(cuda, _default_generator, "(index: int) -> Generator",
             "Returns the default generator of a device.") {
  px_generator *generator;
  EXT_ARGS(int64_t, index);
  EXT_TRY(px_generator_default(&generator, px_cuda(ext_clamp_device_index(index))));
  return ext_generator(px_retain(generator));
}
static int make_default_generator(PyObject *torch) {
  px_generator *generator = NULL;
  EXT_TRY_INT(px_generator_default(&generator, px_cpu()));
  return ext_add(torch, "default_generator", ext_generator(px_retain(generator)));
}
EXT_START(EXT_VALUES, make_default_generator);

// ---- settings of the process
static void base_options(px_print_options *options, const char *profile) {
  static const struct {
    const char *name;
    int precision, threshold, edgeitems, linewidth;
  } profiles[] = {
      {"default", 4, 1000, 3, 80}, {"short", 2, 1000, 2, 80}, {"full", 4, INT_MAX, 3, 80}};
  for (int i = 0; i < EXT_LENGTH(profiles); i++) {
    if (strcmp(profiles[i].name, profile)) continue;
    options->precision = profiles[i].precision, options->threshold = profiles[i].threshold;
    options->edgeitems = profiles[i].edgeitems, options->linewidth = profiles[i].linewidth;
  }
}
// Sets an option if given. Values above INT_MAX are clamped: threshold=inf.
static int set_option(int *to, PyObject *given) {
  double value;
  if (ext_is_none(given)) return 0;
  if (ext_to_double(given, &value) < 0) return -1;
  *to = value < INT_MAX ? (int)value : INT_MAX;
  return 0;
}
EXT_FUNCTION(
    torch, set_printoptions,
    "(precision: int | None = None, threshold: float | None = None, edgeitems: int | None "
    "= None, linewidth: int | None = None, profile: str | None = None, sci_mode: bool | "
    "None = None) -> None",
    "Sets options for printing.\n\n"
    "Args:\n"
    "    precision (int): number of digits of precision (default = 4)\n"
    "    threshold (float): number of elements that triggers summarization (default = 1000)\n"
    "    edgeitems (int): number of items at each edge of a summary (default = 3)\n"
    "    linewidth (int): number of characters per line (default = 80)\n"
    "    profile (str): \"default\", \"short\" or \"full\"; other options override it\n"
    "    sci_mode (bool or None): enables or disables scientific notation; None: automatic\n\n"
    ">>> torch.set_printoptions(precision=2); torch.tensor([0.123456])\n"
    "tensor([0.12])\n"
    ">>> torch.set_printoptions(profile=\"default\")\n") {
  PyObject *precision, *threshold, *edgeitems, *linewidth;
  const char *profile;
  ext_optional_bool sci_mode;
  EXT_BIND(precision, threshold, edgeitems, linewidth, profile, sci_mode);
  px_print_options options = px_print_options_get();
  if (profile) base_options(&options, profile);
  if (set_option(&options.precision, precision) < 0 ||
      set_option(&options.threshold, threshold) < 0 ||
      set_option(&options.edgeitems, edgeitems) < 0 ||
      set_option(&options.linewidth, linewidth) < 0)
    return NULL;
  options.sci_mode = sci_mode;
  px_print_options_set(options);
  Py_RETURN_NONE;
}
EXT_RETURNS(torch, get_num_threads, "int", px_num_threads(),
            "Returns the number of threads used for parallelizing CPU operations.");
EXT_ALIASES(torch, torch_get_num_threads, get_num_interop_threads);
EXT_FUNCTION(torch, set_num_threads, "(num: int) -> None",
             "Sets the number of threads used for parallelizing CPU operations, at least 1.") {
  EXT_ARGS(int64_t, num);
  return ext_none(px_set_num_threads(num));
}

static int to_generator(PyObject *object, void *out) { return ext_to_generator(object, out); }
EXT_CONVERTS(EXT_KIND_GENERATOR, to_generator);
