// SPDX-License-Identifier: Apache-2.0
// Bindings of phlox/vmap.h for phlox/func/_vmap.py.
#include "bind/ext.h"

static const char *const names[] = {"error", "different", "same"};

EXT_FUNCTION(torch, _vmap_begin, "(size: int, randomness: str) -> int",
             "Enters a vmap of the given batch size and returns its level.") {
  int64_t size;
  const char *randomness;
  int level = 0;
  EXT_BIND(size, randomness);
  for (int i = 0; i < 3; i++) {
    if (strcmp(randomness, names[i]) != 0) continue;
    EXT_TRY(px_vmap_begin(&level, size, (px_randomness)i));
    return PyLong_FromLong(level);
  }
  EXT_FAIL(PyExc_RuntimeError,
           "Only allowed values for randomness are 'error', 'different', or 'same'. Got %s",
           randomness);
}

EXT_FUNCTION0(torch, _vmap_end, "None", "Exits the innermost vmap.") {
  px_vmap_end();
  Py_RETURN_NONE;
}

EXT_FUNCTION0(torch, _vmap_innermost, "tuple[int, str]",
              "Returns the batch size and the randomness of the innermost vmap.") {
  px_randomness randomness = PX_RANDOMNESS_ERROR;
  long long size = px_vmap_size(&randomness);
  return Py_BuildValue("(Ls)", size, names[randomness]);
}

EXT_FUNCTION0(torch, _vmap_depth, "int", "Returns the number of nested vmaps.") {
  return PyLong_FromLong(px_vmap_depth());
}

EXT_FUNCTION(
    torch, _vmap_add, "(tensor: Tensor, dim: int) -> Tensor",
    "Returns a tensor with dimension `dim` as the batch dimension of the innermost vmap.") {
  px_tensor *tensor, *made = NULL;
  int64_t dim;
  EXT_BIND(tensor, dim);
  return ext_result(px_batch(&made, tensor, dim), &made);
}

EXT_FUNCTION(
    torch, _vmap_remove, "(tensor: Tensor, dim: int) -> Tensor",
    "Returns a tensor with the batch dimension of the innermost vmap as dimension `dim`.") {
  px_tensor *tensor, *made = NULL;
  int64_t dim;
  EXT_BIND(tensor, dim);
  return ext_result(px_unbatch(&made, tensor, dim), &made);
}

EXT_FUNCTION(torch, _vmap_level, "(tensor: Tensor) -> int",
             "Returns the vmap level of a batched tensor, or 0.") {
  px_tensor *tensor;
  EXT_BIND(tensor);
  return PyLong_FromLong(px_tensor_batch_level(tensor));
}
