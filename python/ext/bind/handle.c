// SPDX-License-Identifier: Apache-2.0
// torch.utils.hooks.RemovableHandle: removes a hook of a tensor or a module.
#include "bind/ext.h"

typedef struct handle_object {
  PyObject_HEAD void *target;  // owner of the hook; NULL once it is removed
  int64_t id;
  void (*remove)(void *target, int64_t id);
  void (*end)(void *target);
} handle_object;

static void release_target(PyObject *self) {
  handle_object *handle = (handle_object *)self;
  void *target = handle->target;
  handle->target = NULL;
  if (target) handle->end(target);
}
static void remove_hook(PyObject *self) {
  handle_object *handle = (handle_object *)self;
  if (handle->target) handle->remove(handle->target, handle->id);
  release_target(self);
}

EXT_OWNS(handle, EXT_FINALIZER(release_target));

// ---- handles of hook dicts, referenced weakly: a hook does not keep its module alive

static PyObject *target_of(PyObject *weak) {
#if PY_VERSION_HEX >= 0x030D0000
  PyObject *target;
  return PyWeakref_GetRef(weak, &target) > 0 ? target : Py_NewRef(Py_None);
#else
  return Py_NewRef(PyWeakref_GetObject(weak));
#endif
}

static void drop_object(void *object) { Py_DECREF((PyObject *)object); }

// Removes the id from each dict that still exists.
static void remove_from_dicts(void *weak_dicts, int64_t id) {
  EXT_OWNED *key = PyLong_FromLongLong(id);
  for (Py_ssize_t i = 0; key && i < PyTuple_GET_SIZE(weak_dicts); i++) {
    EXT_OWNED *dict = target_of(PyTuple_GET_ITEM(weak_dicts, i));
    if (dict != Py_None && PyObject_DelItem(dict, key) < 0) PyErr_Clear();
  }
}

static int64_t next;

PyObject *ext_hook_handle(PyObject *dict, PyObject *const *more, Py_ssize_t count, int64_t *id) {
  EXT_OWNED *weak_dicts = PyTuple_New(1 + count);
  for (Py_ssize_t i = 0; weak_dicts && i <= count; i++) {
    PyObject *weak = PyWeakref_NewRef(i ? more[i - 1] : dict, NULL);
    if (!weak) return NULL;
    PyTuple_SET_ITEM(weak_dicts, i, weak);
  }
  *id = next++;
  return weak_dicts ? ext_handle(ext_moved(&weak_dicts), *id, remove_from_dicts, drop_object)
                    : NULL;
}

EXT_NEW(handle, "(hooks_dict: Any, *, extra_dict: Any = None)") {
  int64_t id;
  EXT_ARGS(PyObject *, hooks_dict, extra_dict);
  bool list = extra_dict && PyList_Check(extra_dict);
  EXT_OWNED *more =
      list ? PyList_AsTuple(extra_dict) : PyTuple_Pack(extra_dict != NULL, extra_dict);
  if (!more) return NULL;
  return ext_hook_handle(hooks_dict ? hooks_dict : Py_None, &PyTuple_GET_ITEM(more, 0),
                         PyTuple_GET_SIZE(more), &id);
}

EXT_TYPE(handle, "torch.utils.hooks.RemovableHandle", "utils.hooks.RemovableHandle", handle_object,
         EXT_SHORT_NAME, "A handle which provides the capability to remove a hook.",
         EXT_LIFETIME_SLOTS(handle), .tp_new = handle_new);

EXT_GET(handle, id, "int", ((handle_object *)self)->id, "The ID of the hook.");
EXT_METHOD0(handle, remove, "None", "Removes the hook if it still exists.") {
  remove_hook(self);
  Py_RETURN_NONE;
}
EXT_RETURNS(handle, __enter__, "RemovableHandle", Py_NewRef(self), NULL);
EXT_METHOD(handle, __exit__, "(*exc: object) -> None", NULL) {
  remove_hook(self);
  Py_RETURN_NONE;
}

// The parts are the ID and a list of the dicts still alive.
EXT_METHOD0(handle, __reduce__, "tuple", "Returns the parts for pickling and copying.") {
  const handle_object *handle = (handle_object *)self;
  if (handle->target && handle->remove != remove_from_dicts)
    EXT_FAIL(PyExc_TypeError, "cannot pickle the handle of a hook of a tensor");
  EXT_OWNED *dicts = PyList_New(0);
  Py_ssize_t count = handle->target ? PyTuple_GET_SIZE(handle->target) : 0;
  for (Py_ssize_t i = 0; dicts && i < count; i++) {
    EXT_OWNED *dict = target_of(PyTuple_GET_ITEM(handle->target, i));
    if (dict != Py_None && PyList_Append(dicts, dict) < 0) return NULL;
  }
  EXT_OWNED *maker = ext_extension_attr("_rebuild_handle");
  return maker && dicts ? Py_BuildValue("O(LO)", maker, (long long)handle->id, dicts) : NULL;
}
EXT_FUNCTION(torch, _rebuild_handle, "(id: int, dicts: list) -> RemovableHandle",
             "Rebuilds the handle of a hook stored in dicts under an ID.") {
  int64_t id;
  PyObject *dicts;
  EXT_BIND(id, dicts);
  Py_ssize_t count = dicts && PyList_Check(dicts) ? PyList_GET_SIZE(dicts) : 0;
  EXT_OWNED *weak_dicts = PyTuple_New(count);
  for (Py_ssize_t i = 0; weak_dicts && i < count; i++) {
    PyObject *weak = PyWeakref_NewRef(PyList_GET_ITEM(dicts, i), NULL);
    if (!weak) return NULL;
    PyTuple_SET_ITEM(weak_dicts, i, weak);
  }
  if (next <= id && id < INT64_MAX) next = id + 1;
  return weak_dicts ? ext_handle(ext_moved(&weak_dicts), id, remove_from_dicts, drop_object) : NULL;
}

PyObject *ext_handle(void *target_take, int64_t id, void (*remove)(void *target, int64_t id),
                     void (*end)(void *target)) {
  handle_object *self = ext_new(&handle_type);
  if (!self) return end(target_take), NULL;
  self->target = target_take, self->id = id, self->remove = remove, self->end = end;
  return (PyObject *)self;
}
