// SPDX-License-Identifier: Apache-2.0
// torch.cuda.CUDAPluggableAllocator: user-defined allocators from shared objects, which stay
// loaded. See px_memory_set_allocator and px_memory_pool_new_over for their contract.
#include "bind/ext.h"

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
         "Functions: void *alloc(ssize_t size, int device, cudaStream_t stream) and void "
         "free(void *ptr, ssize_t size, int device, cudaStream_t stream). free is called after the "
         "last work using the memory has completed. OSError if the shared object cannot be loaded, "
         "AttributeError if it lacks a function.\n\n"
         "Args:\n"
         "    path_to_so_file (str): path of the shared object\n"
         "    alloc_fn_name (str): name of the alloc function\n"
         "    free_fn_name (str): name of the free function\n",
         .tp_new = plugged_new);
EXT_METHOD0(plugged, allocator, "CUDAPluggableAllocator",
            "Returns the allocator itself, as MemPool expects it.") {
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
             "Makes an allocator serve all requests for device memory, instead of the caching "
             "allocator. RuntimeError once a device has been used.\n\n"
             "Args:\n"
             "    allocator (CUDAPluggableAllocator): used until the process ends\n") {
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
            "Returns \"native\", or \"pluggable\" after change_current_allocator.");
