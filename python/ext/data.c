// SPDX-License-Identifier: Apache-2.0
// torch.utils.data put together; and raising what a worker met.
#include "data.h"

#include "parallel.h"

// _raise_caught(class, traceback, where)
static PyObject *raise_caught(PyObject *self, PyObject *args) {
  PyObject *cls, *text;
  const char *where;
  if (!PyArg_ParseTuple(args, "OOs", &cls, &text, &where)) return NULL;
  ext_raise_caught(cls, text, where);
  return NULL;
}

static PyMethodDef functions[] = {{"_raise_caught", raise_caught, METH_VARARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

int ext_init_data(PyObject *m) {
  EXT_OWNED *known = PyObject_GetAttrString(m, "utils");
  PyErr_Clear();
  PyObject *utils = known ? known : ext_submodule(m, "utils", NULL);
  PyObject *data = utils ? ext_submodule(utils, "data", functions) : NULL;
  if (!data || ext_init_dataset(data) < 0 || ext_init_sampler(data) < 0) return -1;
  return ext_init_collate(data) < 0 ? -1 : ext_init_loader(data);
}
