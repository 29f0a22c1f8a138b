// SPDX-License-Identifier: Apache-2.0
// Shared by the interpreter of untrusted pickles (unpickle.c) and the allowlist of globals
// (unpickle_globals.c). All state lives for one call of _unpickle.
#pragma once
#include "bind/ext.h"

// Selects torch.load's explanation of an error.
typedef enum ext_refusal {
  EXT_REFUSED,  // the pickle itself is invalid
  EXT_BLOCKED,  // the name is forbidden even as a safe global
  EXT_UNSAFE,   // the name can be allowed with add_safe_globals
} ext_refusal;

typedef struct ext_pickle {
  PyObject *safe;  // the user's safe globals: name to object; a private copy
  // Remaining limits, both derived from the pickle's length: values it may create (tuples, lists,
  // dicts, call results), and parts of values copied by calls.
  Py_ssize_t values, copies;
  ext_refusal refusal;
} ext_pickle;

extern PyObject *ext_UnpicklingError;  // pickle.UnpicklingError
// Resolves all names of the allowlist, once. Must be called first.
int ext_pickle_init_globals(void);
// Raises UnpicklingError; always NULL (of any pointer type).
void *ext_pickle_fail(const char *format, ...);
// Representation of an object for messages. Classes, functions, numbers and short texts are shown
// themselves, other objects by type: the text of lists with shared parts can grow without bound.
// New reference.
PyObject *ext_pickle_repr(PyObject *object);
// Re-raises the exception of a call with arguments of the pickle as UnpicklingError. `name` is the
// name of `called`; NULL: its __name__.
void ext_pickle_call_failed(PyObject *called, const char *name);
// Limits dict and set keys to a thousand parts, which bounds stack and time of hashing.
int ext_pickle_check_key(PyObject *key);

// Find, call and fill objects named by the pickle. Objects are borrowed.
PyObject *ext_pickle_find(ext_pickle *p, PyObject *module, PyObject *name);
PyObject *ext_pickle_reduce(ext_pickle *p, PyObject *function, PyObject *args);
PyObject *ext_pickle_new(ext_pickle *p, PyObject *cls, PyObject *args);
int ext_pickle_build(ext_pickle *p, PyObject *made, PyObject *state);
// True if the object's class derives from `base` and is a safe global of the user.
bool ext_pickle_is_safe(const ext_pickle *p, PyObject *object, PyTypeObject *base);
// True for a dict that pickles may fill.
bool ext_pickle_is_dict(const ext_pickle *p, PyObject *object);
// Storage of an id in a pickle: found in `storages`, or created by make(dtype, key, location,
// bytes).
PyObject *ext_pickle_storage(PyObject *saved, PyObject *storages, PyObject *make);

// ---- storages (storage.c)
PyObject *ext_storage_as(PyObject *storage, px_dtype dtype);  // the same memory
// A tensor over a storage, with the storage's dtype (bytes if it has none).
PyObject *ext_storage_tensor(PyObject *storage, int64_t offset, const ext_ints *size,
                             const ext_ints *stride);
