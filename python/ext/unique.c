// SPDX-License-Identifier: Apache-2.0
// torch.unique and unique_consecutive: they give a tensor, or a tuple with what was asked for.
#include "ext.h"

// The first of the op's three results, and those of the others that are wanted.
static PyObject *chosen(PyObject *results_take, int inverse, int counts) {
  EXT_OWNED *results = results_take;
  if (!results) return NULL;
  EXT_OWNED *list = PySequence_List(results);
  if (!list) return NULL;
  if (!counts && PyList_SetSlice(list, 2, 3, NULL) < 0) return NULL;
  if (!inverse && PyList_SetSlice(list, 1, 2, NULL) < 0) return NULL;
  return PyList_GET_SIZE(list) == 1 ? Py_NewRef(PyList_GET_ITEM(list, 0)) : PyList_AsTuple(list);
}

typedef struct request {
  px_tensor *self;
  int sorted, inverse, counts;
  int64_t dim;
  bool has_dim;
} request;

static int read_request(request *r, const char *function, PyObject *self, PyObject *sorted,
                        PyObject *inverse, PyObject *counts, PyObject *dim) {
  r->self = ext_need_tensor(self, function, "input");
  r->sorted = ext_to_bool(sorted, true);
  r->inverse = ext_to_bool(inverse, false);
  r->counts = ext_to_bool(counts, false);
  r->has_dim = !ext_is_none(dim);
  r->dim = 0;
  if (!r->self || r->sorted < 0 || r->inverse < 0 || r->counts < 0) return -1;
  return r->has_dim ? ext_to_int(dim, &r->dim) : 0;
}

static PyObject *run_unique(const request *r) {
  ext_named named[] = {{"self", PX_T(r->self)},
                       {"sorted", PX_B(r->sorted)},
                       {"return_inverse", PX_B(r->inverse)},
                       {"return_counts", PX_B(r->counts)},
                       {"dim", PX_I(r->dim)}};
  const px_op *op = r->has_dim ? EXT_OP("unique_dim") : EXT_OP("unique");
  return chosen(ext_op_named(op, PX_CALL_NEW, r->has_dim ? 5 : 4, named), r->inverse, r->counts);
}
EXT_FAST(unique) {
  EXT_ARGS("unique", "input|sorted return_inverse return_counts dim", out);
  request r;
  if (read_request(&r, "unique", out[0], out[1], out[2], out[3], out[4]) < 0) return NULL;
  return run_unique(&r);
}
EXT_FAST(tensor_unique) {
  EXT_ARGS("unique", "|sorted return_inverse return_counts dim", out);
  request r;
  if (read_request(&r, "unique", self, out[0], out[1], out[2], out[3]) < 0) return NULL;
  return run_unique(&r);
}

static PyObject *run_consecutive(const request *r) {
  ext_named named[] = {{"self", PX_T(r->self)},
                       {"return_inverse", PX_B(r->inverse)},
                       {"return_counts", PX_B(r->counts)},
                       {"dim", r->has_dim ? PX_I(r->dim) : PX_NONE()}};
  return chosen(ext_op_named(EXT_OP("unique_consecutive"), PX_CALL_NEW, 4, named), r->inverse,
                r->counts);
}
EXT_FAST(unique_consecutive) {
  EXT_ARGS("unique_consecutive", "input|return_inverse return_counts dim", out);
  request r;
  if (read_request(&r, "unique_consecutive", out[0], NULL, out[1], out[2], out[3]) < 0) return NULL;
  return run_consecutive(&r);
}
EXT_FAST(tensor_unique_consecutive) {
  EXT_ARGS("unique_consecutive", "|return_inverse return_counts dim", out);
  request r;
  if (read_request(&r, "unique_consecutive", self, NULL, out[0], out[1], out[2]) < 0) return NULL;
  return run_consecutive(&r);
}

static PyMethodDef functions[] = {EXT_DEF("unique", unique),
                                  EXT_DEF("unique_consecutive", unique_consecutive),
                                  {NULL, NULL, 0, NULL}};
static PyMethodDef methods[] = {EXT_DEF("unique", tensor_unique),
                                EXT_DEF("unique_consecutive", tensor_unique_consecutive),
                                {NULL, NULL, 0, NULL}};

static int ext_init_unique(PyObject *m) {
  if (ext_add_methods(ext_TensorType, methods) < 0) return -1;
  return PyModule_AddFunctions(m, functions);
}
EXT_START(EXT_VALUES, ext_init_unique);
