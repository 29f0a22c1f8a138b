// SPDX-License-Identifier: Apache-2.0
// torch.utils.hooks.RemovableHandle: what removes a hook of a tensor or a module.
#include "ext.h"

typedef struct handle_object {
  PyObject_HEAD void *target;  // what has the hook; NULL once it is removed
  int64_t id;
  void (*remove)(void *target, int64_t id);
  void (*end)(void *target);
} handle_object;

static void let_go(PyObject *self) {
  handle_object *handle = (handle_object *)self;
  void *target = handle->target;
  handle->target = NULL;
  if (target) handle->end(target);
}
static void remove_hook(PyObject *self) {
  handle_object *handle = (handle_object *)self;
  if (handle->target) handle->remove(handle->target, handle->id);
  let_go(self);
}

EXT_OWNS(handle, EXT_ENDS(let_go));

// ---- handles of dicts of hooks, which are referred to weakly: a hook does not keep its module

static void drop_object(void *object) { Py_DECREF((PyObject *)object); }

// Takes the id out of each dict that is still there.
static void remove_from_dicts(void *weak_list, int64_t id) {
  EXT_OWNED *key = PyLong_FromLongLong(id);
  for (Py_ssize_t i = 0; key && i < PyList_GET_SIZE(weak_list); i++) {
    EXT_OWNED *dict = Py_NewRef(PyWeakref_GetObject(PyList_GET_ITEM(weak_list, i)));
    if (dict != Py_None && PyObject_DelItem(dict, key) < 0) PyErr_Clear();
  }
}

static int refer(PyObject *list, PyObject *dict) {
  EXT_OWNED *weak = PyWeakref_NewRef(dict, NULL);
  return weak ? PyList_Append(list, weak) : -1;
}

// `more` is a dict, or a list of them.
static PyObject *weak_list(PyObject *dict, PyObject *more) {
  EXT_OWNED *list = PyList_New(0);
  if (!list || refer(list, dict) < 0) return NULL;
  if (more && !PyList_Check(more)) return refer(list, more) < 0 ? NULL : ext_moved(&list);
  for (Py_ssize_t i = 0; more && i < PyList_GET_SIZE(more); i++)
    if (refer(list, PyList_GET_ITEM(more, i)) < 0) return NULL;
  return ext_moved(&list);
}

EXT_NEW(handle, "(hooks_dict: Any, *, extra_dict: Any = None)") {
  static int64_t next;
  EXT_ARGS(PyObject *, hooks_dict, extra_dict);
  PyObject *list = weak_list(hooks_dict ? hooks_dict : Py_None, extra_dict);
  return list ? ext_handle(list, next++, remove_from_dicts, drop_object) : NULL;
}

EXT_TYPE(handle, "torch.utils.hooks.RemovableHandle", "utils.hooks.RemovableHandle", handle_object,
         EXT_CLASS, "What removes a hook: remove(), or leaving a with statement.", EXT_LIFE(handle),
         .tp_new = handle_new);

EXT_GET(handle, id, "int", ((handle_object *)self)->id, "The number of the hook.");
EXT_METHOD0(handle, remove, "None", "Removes the hook, if it is still there.") {
  remove_hook(self);
  Py_RETURN_NONE;
}
EXT_GIVES(handle, __enter__, "RemovableHandle", Py_NewRef(self), NULL);
EXT_METHOD(handle, __exit__, "(*exc: object) -> None", NULL) {
  remove_hook(self);
  Py_RETURN_NONE;
}

PyObject *ext_handle(void *target_take, int64_t id, void (*remove)(void *target, int64_t id),
                     void (*end)(void *target)) {
  handle_object *self = ext_new(&handle_type);
  if (!self) return end(target_take), NULL;
  self->target = target_take, self->id = id, self->remove = remove, self->end = end;
  return (PyObject *)self;
}
