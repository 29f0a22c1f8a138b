// SPDX-License-Identifier: Apache-2.0
// The objects of a module's tensors, which the module keeps: a set with the number of entries of
// each. A hash table by address, so that each step takes the same time whatever their number.
#include "nn/nn.h"

enum { ALL_ENTRIES = PX_ENTRY_PARAMETER | PX_ENTRY_BUFFER | PX_ENTRY_MODULE };

static size_t home_of(const ext_kept_tensors *kept, const PyObject *object) {
  return (size_t)((uint64_t)(uintptr_t)object * 0x9e3779b97f4a7c15u >> 20) & (kept->capacity - 1);
}
// Slot of an object, or the free slot for it; NULL if the table is empty.
static ext_kept_tensor *slot_of(const ext_kept_tensors *kept, const PyObject *object) {
  for (size_t at = kept->capacity ? home_of(kept, object) : 0; kept->capacity; at++) {
    ext_kept_tensor *slot = &kept->slots[at & (kept->capacity - 1)];
    if (!slot->object || (PyObject *)slot->object == object) return slot;
  }
  return NULL;
}

static int reserve(ext_kept_tensors *kept) {
  ext_kept_tensors larger = {.capacity = kept->capacity ? 2 * kept->capacity : 4};
  if (2 * (kept->count + 1) <= kept->capacity) return 0;
  larger.slots = PyMem_Calloc(larger.capacity, sizeof *larger.slots);
  if (!larger.slots) return PyErr_NoMemory(), -1;
  for (size_t i = 0; i < kept->capacity; i++)
    if (kept->slots[i].object)
      *slot_of(&larger, (PyObject *)kept->slots[i].object) = kept->slots[i];
  larger.count = kept->count;
  PyMem_Free(kept->slots);
  *kept = larger;
  return 0;
}

static int add(ext_kept_tensors *kept, PyObject *object) {
  if (reserve(kept) < 0) return -1;
  ext_kept_tensor *slot = slot_of(kept, object);
  if (!slot->object) slot->object = (ext_tensor_object *)Py_NewRef(object), kept->count++;
  slot->entries++;
  slot->object->kept++;
  return 0;
}

// Removes one entry's use of an object, which may be missing. Later objects of its run move up.
static void discard(ext_kept_tensors *kept, PyObject *object) {
  ext_kept_tensor *slot = slot_of(kept, object);
  if (!slot || !slot->object) return;
  slot->object->kept--;
  if (--slot->entries) return;
  size_t mask = kept->capacity - 1, gap = (size_t)(slot - kept->slots);
  for (size_t at = gap + 1; kept->slots[at & mask].object; at++) {
    size_t home = home_of(kept, (PyObject *)kept->slots[at & mask].object);
    if (((at - home) & mask) < ((at - gap) & mask)) continue;
    kept->slots[gap & mask] = kept->slots[at & mask];
    gap = at;
  }
  kept->slots[gap & mask] = (ext_kept_tensor){NULL};
  kept->count--;
  Py_DECREF(object);
}

void ext_kept_drop(ext_kept_tensors *kept_take) {
  ext_kept_tensors old = *kept_take;
  *kept_take = (ext_kept_tensors){NULL};
  for (size_t i = 0; i < old.capacity; i++) {
    if (!old.slots[i].object) continue;
    old.slots[i].object->kept -= old.slots[i].entries;
    Py_DECREF(old.slots[i].object);
  }
  PyMem_Free(old.slots);
}

int ext_module_keep(PyObject *module, PyObject *before, PyObject *after) {
  ext_kept_tensors *kept = &((ext_module_object *)module)->kept;
  if (!ext_is_none(after) && add(kept, after) < 0) return -1;
  if (!ext_is_none(before)) discard(kept, before);
  return 0;
}

// Reads all entries. Needed after changes by C code.
static int sync_all(PyObject *object) {
  ext_module_object *self = (ext_module_object *)object;
  ext_kept_tensors all = {NULL};
  px_module_entry entry;
  for (int i = 0; px_module_entry_next(self->module, ALL_ENTRIES, &i, &entry);) {
    EXT_OWNED *item = entry.tensor ? ext_wrap_borrowed(entry.tensor) : NULL;
    if (entry.tensor && (!item || add(&all, item) < 0)) return ext_kept_drop(&all), -1;
  }
  ext_kept_tensors before = self->kept;
  self->kept = all;
  ext_kept_drop(&before);
  return 0;
}

PyObject *ext_module_tensor(px_module *owner, px_tensor *tensor) {
  PyObject *object = ext_wrap_borrowed(tensor), *module = px_module_user(owner);
  if (!object || !tensor || !module) return object;
  const ext_kept_tensor *slot = slot_of(&((ext_module_object *)module)->kept, object);
  if ((!slot || !slot->object) && sync_all(module) < 0) Py_CLEAR(object);
  return object;
}

PyObject *ext_module_entry_object(PyObject *module, const char *name) {
  px_module_entry entry;
  bool found = px_module_entry_find(ext_module(module), name, &entry) && entry.tensor;
  return found ? ext_wrap_borrowed(entry.tensor) : Py_NewRef(Py_None);
}
