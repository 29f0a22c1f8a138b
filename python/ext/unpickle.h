// SPDX-License-Identifier: Apache-2.0
// What the machine that reads pickles of strangers (unpickle.c) and the closed list of what they
// may name (unpickle_globals.c) share. All of it lives during one call of _unpickle.
#pragma once
#include "ext.h"

// Which of torch.load's explanations an error gets.
typedef enum ext_refusal {
  EXT_REFUSED,  // the pickle itself
  EXT_BLOCKED,  // a name that is not to be had even as a safe global
  EXT_UNSAFE,   // a name that a program may declare safe
} ext_refusal;

typedef struct ext_pickle {
  PyObject *safe;  // name to object: what the program has declared safe; nobody else's dict
  // What the pickle may still make: tuples, lists, dicts and results of calls; and parts of values
  // that calls copy. Both follow from its length.
  Py_ssize_t values, copies;
  ext_refusal refusal;
} ext_pickle;

extern PyObject *ext_UnpicklingError;  // pickle.UnpicklingError
// Looks up, once, all that the list names. Before anything else.
int ext_pickle_init_globals(void);
// Raises UnpicklingError; always NULL (of any pointer type).
void *ext_pickle_fail(const char *format, ...);
// What a message may show of an object: classes and functions, numbers and short texts as they are,
// and of others the type, because the text of lists that share parts has no end. New reference.
PyObject *ext_pickle_repr(PyObject *object);
// Raises as UnpicklingError what a call made of the arguments that a pickle gave. `name` is that of
// `called`, or NULL: its __name__.
void ext_pickle_call_failed(PyObject *called, const char *name);
// A key of a dict or set is at most a thousand parts, so that its hash takes no stack and no time.
int ext_pickle_check_key(PyObject *key);

// The steps that find, call and fill what the pickle names; objects are borrowed.
PyObject *ext_pickle_find(ext_pickle *p, PyObject *module, PyObject *name);
PyObject *ext_pickle_reduce(ext_pickle *p, PyObject *function, PyObject *args);
PyObject *ext_pickle_new(ext_pickle *p, PyObject *cls, PyObject *args);
int ext_pickle_build(ext_pickle *p, PyObject *made, PyObject *state);
// Whether the class of an object is over `base`, and one that the program has declared safe.
bool ext_pickle_is_safe(const ext_pickle *p, PyObject *object, PyTypeObject *base);
// Whether it is a dict that pickles may fill.
bool ext_pickle_is_dict(const ext_pickle *p, PyObject *object);
// The storage that an id in a pickle names: out of `storages`, or what make(dtype, key, location,
// bytes) gives.
PyObject *ext_pickle_storage(PyObject *saved, PyObject *storages, PyObject *make);

// ---- storages (storage.c)
PyObject *ext_storage_as(PyObject *storage, px_dtype dtype);  // the same memory
// A tensor over a storage, of the storage's dtype (bytes where it has none).
PyObject *ext_storage_tensor(PyObject *storage, int64_t offset, const ext_ints *size,
                             const ext_ints *stride);
