// SPDX-License-Identifier: Apache-2.0
// Bindings of phlox/jit.h (elementwise user code) for phlox/cuda/jiterator.py.
#include "bind/ext.h"
#include "phlox/jit.h"

EXT_FUNCTION(torch, _jit_check, "(code: str) -> None",
             "Checks the syntax of elementwise functions.") {
  const char *code;
  EXT_BIND(code);
  return ext_none(px_jit_check(code));
}

// A number keeps the promotion of a number, regardless of the tensors' dtypes.
static px_status number_of(px_tensor **out, PyObject *value) {
  px_scalar number;
  if (PyComplex_Check(value)) {
    Py_complex c = PyComplex_AsCComplex(value);
    return px_tensor_from_complex(out, (px_complex){c.real, c.imag});
  }
  if (ext_to_scalar(value, &number) < 0) return PX_FOREIGN;
  return px_tensor_from_scalar(out, number);
}

// Arguments of a call; items after the tensors are owned.
typedef struct arguments {
  px_tensor *items[PX_JIT_ARGS];
  Py_ssize_t count, borrowed;
} arguments;
static void release_numbers(arguments *args) {
  while (args->count > args->borrowed) px_release(args->items[--args->count]);
}
static int read_arguments(arguments *args, const ext_tensors *tensors, PyObject *numbers) {
  Py_ssize_t count = PySequence_Fast_GET_SIZE(numbers);
  if (tensors->count + count > PX_JIT_ARGS)
    EXT_FAIL_INT(PyExc_RuntimeError, "jiterator takes up to %d arguments", PX_JIT_ARGS);
  args->count = args->borrowed = tensors->count;
  for (Py_ssize_t i = 0; i < tensors->count; i++) args->items[i] = tensors->items[i];
  for (Py_ssize_t i = 0; i < count; i++) {
    px_tensor **to = &args->items[args->count];
    *to = NULL;
    px_status status = number_of(to, PySequence_Fast_GET_ITEM(numbers, i));
    if (status == PX_FOREIGN) return -1;
    EXT_TRY_INT(status);
    args->count++;
  }
  return 0;
}
static PyObject *tuple_of(px_tensor *const *made_take, Py_ssize_t count) {
  EXT_OWNED *tuple = PyTuple_New(count);
  bool whole = tuple;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *item = tuple ? ext_wrap(made_take[i]) : NULL;
    if (!tuple) px_release(made_take[i]);
    whole = whole && item;
    if (item) PyTuple_SET_ITEM(tuple, i, item);
  }
  return whole ? ext_moved(&tuple) : NULL;
}

EXT_FUNCTION(torch, _jit_call,
             "(code: str, num_outputs: int, tensors: Sequence[Tensor], numbers: Sequence[Number]) "
             "-> Tensor | tuple[Tensor, ...]",
             "Calls an elementwise function; returns its result, or a tuple of several.") {
  const char *code;
  int64_t num_outputs;
  PyObject *tensors, *numbers;
  EXT_BIND(code, num_outputs, tensors, numbers);
  EXT_TENSORS given = {0};
  EXT_OWNED *values = ext_items(numbers, "argument 'numbers' must be tuple of Numbers");
  __attribute__((cleanup(release_numbers))) arguments args = {.count = 0};
  px_tensor *made[PX_JIT_ARGS];
  if (!values ||
      ext_take_tensors(&given, ext_items(tensors, "argument 'tensors' must be tuple"), "jiterator",
                       "tensors") < 0 ||
      read_arguments(&args, &given, values) < 0)
    return NULL;
  int wanted = num_outputs < 0 || num_outputs > PX_JIT_ARGS ? 0 : (int)num_outputs;
  EXT_TRY(EXT_NOGIL(px_jit_call(made, wanted, code, args.items, (int)args.count)));
  return wanted == 1 ? ext_wrap(made[0]) : tuple_of(made, wanted);
}
