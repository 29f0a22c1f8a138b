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
EXT_TYPE(handle, "torch.utils.hooks.RemovableHandle", "utils.hooks.RemovableHandle", handle_object,
         EXT_CLASS, "What removes a hook: remove(), or leaving a with statement.",
         EXT_LIFE(handle));

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
