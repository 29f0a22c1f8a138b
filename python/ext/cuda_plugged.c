// SPDX-License-Identifier: Apache-2.0
// torch.cuda.CUDAPluggableAllocator: allocators of the program's own, from shared objects, which
// stay loaded. What they do is px_memory_set_allocator's and px_memory_pool_new_over's.
#include "ext.h"

#include <dlfcn.h>

typedef struct plugged_object {
  PyObject_HEAD px_memory_allocator functions;
} plugged_object;

static void *symbol(void *library, const char *name) {
  void *found = dlsym(library, name);
  const char *why = found ? NULL : dlerror();
  if (!found) PyErr_SetString(PyExc_AttributeError, why ? why : name);
  return found;
}

EXT_NEW(plugged, "(path_to_so_file: str, alloc_fn_name: str, free_fn_name: str)") {
  const char *path_to_so_file, *alloc_fn_name, *free_fn_name;
  EXT_BIND(path_to_so_file, alloc_fn_name, free_fn_name);
  void *library = dlopen(path_to_so_file, RTLD_NOW | RTLD_LOCAL);
  if (!library) EXT_FAIL(PyExc_OSError, "%s", dlerror());
  px_memory_allocator functions = {0};
  *(void **)&functions.alloc = symbol(library, alloc_fn_name);
  if (functions.alloc) *(void **)&functions.free = symbol(library, free_fn_name);
  PyObject *self = functions.free ? ext_new(type) : NULL;
  if (self) ((plugged_object *)self)->functions = functions;
  return self;
}
EXT_TYPE(plugged, "torch.cuda.memory.CUDAPluggableAllocator", "cuda.CUDAPluggableAllocator",
         plugged_object, EXT_BASETYPE,
         "An allocator of device memory from a shared object.\n\n"
         "Its functions are void *alloc(ssize_t size, int device, cudaStream_t stream) and void "
         "free(void *ptr, ssize_t size, int device, cudaStream_t stream); free gets memory back "
         "when no work uses it any more. OSError if the object cannot be loaded, AttributeError "
         "if it has no such function.\n\n"
         "Args:\n"
         "    path_to_so_file (str): the shared object\n"
         "    alloc_fn_name (str): the name of its function that allocates\n"
         "    free_fn_name (str): ... of the one that frees\n",
         .tp_new = plugged_new);
EXT_METHOD0(plugged, allocator, "CUDAPluggableAllocator",
            "What MemPool takes: the allocator itself.") {
  return Py_NewRef(self);
}

int ext_pluggable_allocator(PyObject *allocator, const char *who, const px_memory_allocator **out) {
  *out = NULL;
  if (ext_is_none(allocator)) return 0;
  if (!PyObject_TypeCheck(allocator, &plugged_type))
    EXT_FAIL_INT(PyExc_TypeError, "%s: allocator must be a CUDAPluggableAllocator, not %s", who,
                 ext_type_name(allocator));
  *out = &((plugged_object *)allocator)->functions;
  return 0;
}

EXT_FUNCTION(cuda, change_current_allocator, "(allocator: CUDAPluggableAllocator) -> None",
             "Lets an allocator serve all requests for device memory, instead of the cache. "
             "RuntimeError once a device has been used.\n\n"
             "Args:\n"
             "    allocator (CUDAPluggableAllocator): it serves until the process ends\n") {
  PyObject *allocator;
  const px_memory_allocator *functions;
  EXT_BIND(allocator);
  EXT_OWNED *inner = PyObject_CallMethod(allocator, "allocator", NULL);
  if (!inner || ext_pluggable_allocator(inner, "change_current_allocator()", &functions) < 0)
    return NULL;
  return ext_none(px_memory_set_allocator(functions));
}
EXT_RETURNS(cuda, get_allocator_backend, "str",
            (const char *)(px_memory_is_plugged() ? "pluggable" : "native"),
            "\"native\", or \"pluggable\" where change_current_allocator has chosen another one.");
