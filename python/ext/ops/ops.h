// SPDX-License-Identifier: Apache-2.0
// Ops as Python callables, shared by ops.c (objects) and op_arguments.c (arguments).
#pragma once
#include "bind/ext.h"

// True while ranks of a simulated cluster run: every op call then releases the GIL. Guarded by the
// GIL.
extern bool ext_sim_ranks_active;

enum { EXT_OP_PARAMS = 16, EXT_OP_OVERLOADS = 6 };

// A signature of a callable: an op in one call mode.
typedef struct ext_signature {
  const px_op *op;
  px_call_mode mode;
  uint8_t positional;  // parameters accepted by position, self included
  uint8_t needed;      // parameters without a default, self included
  int8_t varargs;      // index of the int[] parameter accepting *args, or -1
  bool method;
  bool functional;       // in nn.functional: accepts inplace=True
  PyObject **names;      // parameter names
  PyTypeObject *result;  // a named tuple, or NULL
  const px_op *indexed;  // in nn.functional: the op for return_indices=True, or NULL
} ext_signature;

// A builtin function for CPython, so profilers record its calls.
typedef struct ext_callable {
  PyCFunctionObject base;
  PyMethodDef def;
  PyObject *name;
  int count;
  bool method;
  uint8_t prefix;  // length of the name's prefix absent in the module ("special_" of special_expit)
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

// State of a call being bound: values and the owners of borrowed memory.
typedef struct ext_frame {
  px_value args[EXT_OP_PARAMS];
  int ints_used, owned_count;
  PyObject *owned[EXT_OP_PARAMS];  // objects with borrowed contents
  void *memory[4];                 // buffers of long lists
  int memory_count;
  PyObject *out;
  bool requires_grad, pin_memory;
  bool inplace;
  bool indexed;     // return_indices=True
  bool overridden;  // the class of a tensor overrides the call
  bool last;        // no overload for complex numbers matches: real parameters accept real ones
  bool reads;       // a number was read from a device tensor, on `read_at`
  px_device read_at;
  // Reason of a failed match.
  ext_bind_error bind_error;
  int index, position;
  PyObject *object;  // borrowed
  int64_t ints[3 * PX_MAX_DIMS];
  px_tensor *tensors[48];
  int tensors_used;
} ext_frame;

// 1: bound; 0: no match (frame->bind_error); -1: exception. `last` is stored in the frame.
int ext_bind(const ext_signature *signature, ext_frame *frame, bool last, PyObject *const *args,
             Py_ssize_t nargs, PyObject *kwnames);
void ext_frame_release(ext_frame *frame);
// Raises TypeError for a call matching no signature; always NULL.
PyObject *ext_no_matching_overload(const ext_callable *self, const ext_frame *frame,
                                   PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
// True if an argument matches a parameter.
bool ext_arg_matches(const ext_signature *signature, int param, PyObject *object);
// True if a number is accepted for a tensor parameter.
bool ext_accepts_number(const px_op *op, int param);
// True if None is accepted for a parameter.
bool ext_accepts_none(const ext_signature *signature, int param);
// True if calls accept inplace= (nn.functional), or the options of factories (requires_grad, ...).
bool ext_accepts_inplace(const ext_signature *signature);
bool ext_is_factory(const px_op *op);

// Appends to a text. No-op on NULL, which it becomes when memory runs out.
void ext_append(PyObject **text, const char *format, ...);
// "(input: Tensor, *, out: Tensor | None = None) -> Tensor"; `rest` spells sizes as *sizes.
PyObject *ext_op_signature(const ext_signature *signature, bool rest);
// Signature without types, read by inspect.signature.
PyObject *ext_op_text_signature(const ext_callable *self);
PyObject *ext_op_doc(const ext_callable *self);
