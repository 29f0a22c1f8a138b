// SPDX-License-Identifier: Apache-2.0
// Ops as Python callables, shared by ops.c (objects) and bind.c (arguments).
#pragma once
#include "ext.h"

// Whether ranks of a simulated cluster run: each call of an op lets other threads go on. By the
// GIL.
extern bool ext_sim_ranks_active;

enum { EXT_OP_PARAMS = 16, EXT_OP_OVERLOADS = 6 };

// One signature of a callable: an op in one mode.
typedef struct ext_signature {
  const px_op *op;
  px_call_mode mode;
  uint8_t positional;  // parameters that may be given by position, self included
  uint8_t needed;      // parameters without a default, self included
  int8_t varargs;      // index of the int[] parameter that takes the rest, or -1
  bool method;
  bool functional;       // of nn.functional: takes inplace=True
  PyObject **names;      // of the parameters
  PyTypeObject *result;  // a named tuple, or NULL
  const px_op *indexed;  // of nn.functional: the op that return_indices=True means, or NULL
} ext_signature;

// A builtin function to CPython, so that profilers see its calls.
typedef struct ext_callable {
  PyCFunctionObject base;
  PyMethodDef def;
  PyObject *name;
  int count;
  bool method;
  uint8_t prefix;  // of the name: how much of it is not in the module, "special_expit"
  ext_signature signatures[EXT_OP_OVERLOADS];
} ext_callable;

typedef enum ext_bind_error {
  FITS,
  TOO_MANY,
  MISSING,
  WRONG_TYPE,
  UNEXPECTED,
  TWICE
} ext_bind_error;

// A call being bound: values, and what keeps them alive.
typedef struct ext_frame {
  px_value args[EXT_OP_PARAMS];
  int ints_used, owned_count;
  PyObject *owned[EXT_OP_PARAMS];  // sequences whose items are borrowed
  void *memory[4];                 // long lists
  int memory_count;
  PyObject *out;
  bool requires_grad, pin_memory;
  bool inplace;
  bool indexed;     // return_indices=True
  bool overridden;  // a tensor's class takes calls over
  bool reads;       // a number was read from a device's tensor: from which
  px_device read_at;
  // Why it does not fit.
  ext_bind_error bind_error;
  int index, position;
  PyObject *object;  // borrowed
  int64_t ints[3 * PX_MAX_DIMS];
  px_tensor *tensors[48];
  int tensors_used;
} ext_frame;

// 1 bound, 0 does not fit (frame->bind_error), -1 exception.
int ext_bind(const ext_signature *signature, ext_frame *frame, PyObject *const *args,
             Py_ssize_t nargs, PyObject *kwnames);
void ext_frame_release(ext_frame *frame);
// TypeError for a call that fits no signature; NULL.
PyObject *ext_no_matching_overload(const ext_callable *self, const ext_frame *frame,
                                   PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
// Whether an argument fits one parameter.
bool ext_arg_matches(const ext_signature *signature, int param, PyObject *object);
// Whether a number may be given where the op has a tensor.
bool ext_accepts_number(const px_op *op, int param);
// Whether None may be given for a parameter.
bool ext_accepts_none(const ext_signature *signature, int param);
// Whether a call takes inplace= (of nn.functional), or what factories take (requires_grad, ...).
bool ext_accepts_inplace(const ext_signature *signature);
bool ext_is_factory(const px_op *op);

// Adds to a text, which is NULL after memory has run out.
void ext_append(PyObject **text, const char *format, ...);
// "(input: Tensor, *, out: Tensor | None = None) -> Tensor"; `rest`: the sizes are *sizes.
PyObject *ext_op_signature(const ext_signature *signature, bool rest);
// What inspect.signature reads: a signature without its types.
PyObject *ext_op_text_signature(const ext_callable *self);
PyObject *ext_op_doc(const ext_callable *self);
