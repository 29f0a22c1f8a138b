// SPDX-License-Identifier: Apache-2.0
// Reads untrusted pickles of values and tensors (weights_only).
//
// Interprets only the opcodes written by torch.save: one table row each. It calls only functions on
// an allowlist and the user's safe globals (unpickle_globals.c). Python's Unpickler with a
// restricted find_class is not enough: it lets a pickle set attributes of allowed functions and
// classes, calls them with any arguments (bytearray(2**40)), and allocates by the largest memo
// index.
//
// The number of created values is bounded by the pickle's length. A machine lives for one call and
// is unreachable from user code: objects passed to methods of safe classes have left its stack.
#include "io/unpickle.h"

#include <string.h>

#define EMPTY "the pickle pops from an empty stack"
enum { NAME_LENGTH = 1000, MIN_MEMO = 256 };

typedef struct machine {
  ext_pickle pickle;
  const unsigned char *data;
  Py_ssize_t at, end;
  PyObject *storages, *make;
  PyObject **stack;  // owns `count` objects
  Py_ssize_t count, capacity;
  Py_ssize_t *marks;  // stack height at each mark
  Py_ssize_t mark_count, mark_capacity;
  // Memo objects by index, or NULL. The array has at most twice as many slots as there were puts.
  // Larger indexes are in the dict, possibly shadowed by a later put into the array.
  PyObject **memo;
  Py_ssize_t memo_capacity, puts;
  PyObject *far_memo;
} machine;

typedef struct opcode {
  const char *name;
  int (*step)(machine *m, const struct opcode *op, const unsigned char *operand);
  int bytes;  // size of the operand
  int count;  // number of popped values, if opcodes sharing a step differ in it
} opcode;
#define STEP(name) static int name(machine *m, const opcode *op, const unsigned char *operand)

// ---- shared by the steps
static int grow(void **items, Py_ssize_t *capacity, size_t size) {
  Py_ssize_t wanted = *capacity ? *capacity * 2 : 64;
  void *grown = PyMem_Realloc(*items, (size_t)wanted * size);
  if (!grown) return PyErr_NoMemory(), -1;
  *items = grown;
  *capacity = wanted;
  return 0;
}

// -1 for NULL, which has set an exception.
static int push(machine *m, PyObject *object_take) {
  if (!object_take) return -1;
  if (m->count == m->capacity && grow((void **)&m->stack, &m->capacity, sizeof *m->stack) < 0) {
    Py_DECREF(object_take);
    return -1;
  }
  m->stack[m->count++] = object_take;
  return 0;
}
static int push_new(machine *m, PyObject *object_take) {
  if (object_take && --m->pickle.values < 0) {
    Py_DECREF(object_take);
    return ext_pickle_fail("the pickle makes more values than its length is worth"), -1;
  }
  return push(m, object_take);
}

static Py_ssize_t height(const machine *m) {  // above the last mark
  return m->count - (m->mark_count ? m->marks[m->mark_count - 1] : 0);
}
static PyObject *top(machine *m) {  // borrowed
  if (height(m) > 0) return m->stack[m->count - 1];
  return ext_pickle_fail(EMPTY);
}
static PyObject *pop(machine *m) {  // new reference
  PyObject *object = top(m);
  if (object) m->count--;
  return object;
}

// Pops the objects above a stack position as a list.
static PyObject *pop_list(machine *m, Py_ssize_t begin) {
  PyObject *list = PyList_New(m->count - begin);
  for (Py_ssize_t i = begin; list && i < m->count; i++)
    PyList_SET_ITEM(list, i - begin, m->stack[i]);
  if (list) m->count = begin;
  return list;
}
static PyObject *pop_tuple(machine *m, Py_ssize_t begin) {
  PyObject *tuple = PyTuple_New(m->count - begin);
  for (Py_ssize_t i = begin; tuple && i < m->count; i++)
    PyTuple_SET_ITEM(tuple, i - begin, m->stack[i]);
  if (tuple) m->count = begin;
  return tuple;
}
// Pops a mark: the stack height it stored, or -1.
static Py_ssize_t pop_mark(machine *m) {
  if (m->mark_count) return m->marks[--m->mark_count];
  return ext_pickle_fail("the pickle pops a missing mark"), -1;
}

static const unsigned char *read_bytes(machine *m, Py_ssize_t count) {
  if (count > m->end - m->at) {
    PyErr_SetString(PyExc_EOFError, "the pickle is truncated");
    return NULL;
  }
  m->at += count;
  return m->data + m->at - count;
}
static uint32_t number(const unsigned char *operand, int bytes) {
  uint32_t value = 0;
  for (int i = 0; i < bytes; i++) value |= (uint32_t)operand[i] << 8 * i;
  return value;
}

// ---- names and calls
static PyObject *read_line(machine *m) {
  Py_ssize_t left = m->end - m->at, limit = left < NAME_LENGTH ? left : NAME_LENGTH;
  const unsigned char *begin = m->data + m->at, *end = memchr(begin, '\n', (size_t)limit);
  if (!end) return ext_pickle_fail("unterminated name");
  m->at += end - begin + 1;
  return PyUnicode_DecodeUTF8((const char *)begin, end - begin, "replace");
}
STEP(global) {
  EXT_OWNED *module = read_line(m);
  EXT_OWNED *name = module ? read_line(m) : NULL;
  return name ? push(m, ext_pickle_find(&m->pickle, module, name)) : -1;
}
STEP(reduce) {
  EXT_OWNED *args = pop(m);
  EXT_OWNED *function = args ? pop(m) : NULL;
  return function ? push_new(m, ext_pickle_reduce(&m->pickle, function, args)) : -1;
}
STEP(new_object) {
  EXT_OWNED *args = pop(m);
  EXT_OWNED *cls = args ? pop(m) : NULL;
  return cls ? push_new(m, ext_pickle_new(&m->pickle, cls, args)) : -1;
}
STEP(build) {
  EXT_OWNED *state = pop(m);
  PyObject *made = state ? top(m) : NULL;
  return made ? ext_pickle_build(&m->pickle, made, state) : -1;
}
STEP(persistent) {
  EXT_OWNED *saved = pop(m);
  return saved ? push(m, ext_pickle_storage(saved, m->storages, m->make)) : -1;
}

// ---- containers
static int extend(machine *m, const char *what, PyObject *items_take) {
  EXT_OWNED *items = items_take;
  PyObject *target = items ? top(m) : NULL;
  if (!target) return -1;
  if (PyList_CheckExact(target))
    return PyList_SetSlice(target, PY_SSIZE_T_MAX, PY_SSIZE_T_MAX, items);
  if (!ext_pickle_is_safe(&m->pickle, target, &PyList_Type))
    return ext_pickle_fail("Can only %s lists, but got %S", what, (PyObject *)Py_TYPE(target)), -1;
  EXT_OWNED *done = PyObject_CallMethod(target, "extend", "O", items);
  return done ? 0 : -1;
}
STEP(append) {
  PyObject *item = pop(m), *target = item ? top(m) : NULL;
  EXT_OWNED *keep = item;
  if (target && PyList_CheckExact(target)) return PyList_Append(target, item);
  if (!target) return -1;
  PyObject *items = PyList_New(1);
  if (items) PyList_SET_ITEM(items, 0, ext_moved(&keep));
  return extend(m, "append to", items);
}
STEP(appends) {
  Py_ssize_t begin = pop_mark(m);
  return begin < 0 ? -1 : extend(m, "extend", pop_list(m, begin));
}

static int update(machine *m, const opcode *op, PyObject *items_take) {
  EXT_OWNED *items = items_take;
  PyObject *target = items ? top(m) : NULL;
  if (!target) return -1;
  if (!ext_pickle_is_dict(&m->pickle, target))
    return ext_pickle_fail(
               "Can only %s for dict, collections.OrderedDict, collections.Counter, "
               "but got %S",
               op->name, (PyObject *)Py_TYPE(target)),
           -1;
  if (PyList_GET_SIZE(items) % 2)
    return ext_pickle_fail("odd number of items for %s", op->name), -1;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items); i += 2) {
    PyObject *key = PyList_GET_ITEM(items, i), *value = PyList_GET_ITEM(items, i + 1);
    if (ext_pickle_check_key(key) < 0) return -1;
    int failed = PyDict_CheckExact(target) ? PyDict_SetItem(target, key, value)
                                           : PyObject_SetItem(target, key, value);
    if (failed) return ext_pickle_call_failed(NULL, "__setitem__"), -1;
  }
  return 0;
}
STEP(set_item) {
  if (height(m) < 2) return ext_pickle_fail(EMPTY), -1;
  return update(m, op, pop_list(m, m->count - 2));
}
STEP(set_items) {
  Py_ssize_t begin = pop_mark(m);
  return begin < 0 ? -1 : update(m, op, pop_list(m, begin));
}

STEP(mark) {
  if (m->mark_count == m->mark_capacity &&
      grow((void **)&m->marks, &m->mark_capacity, sizeof *m->marks) < 0)
    return -1;
  m->marks[m->mark_count++] = m->count;
  return 0;
}
STEP(tuple) {
  Py_ssize_t begin = pop_mark(m);
  return begin < 0 ? -1 : push_new(m, pop_tuple(m, begin));
}
STEP(short_tuple) {
  if (height(m) < op->count) return ext_pickle_fail(EMPTY), -1;
  return push_new(m, pop_tuple(m, m->count - op->count));
}
STEP(empty_tuple) { return push(m, PyTuple_New(0)); }
STEP(empty_list) { return push_new(m, PyList_New(0)); }
STEP(empty_dict) { return push_new(m, PyDict_New()); }
STEP(empty_set) { return push_new(m, PySet_New(NULL)); }

// ---- values
STEP(none) { return push(m, Py_NewRef(Py_None)); }
STEP(new_true) { return push(m, Py_NewRef(Py_True)); }
STEP(new_false) { return push(m, Py_NewRef(Py_False)); }
STEP(integer) { return push(m, PyLong_FromUnsignedLong(number(operand, op->bytes))); }
STEP(signed_integer) { return push(m, PyLong_FromLong((int32_t)number(operand, op->bytes))); }
STEP(long_integer) {
  const unsigned char *data = read_bytes(m, *operand);
  return data ? push(m, _PyLong_FromByteArray(data, *operand, 1, 1)) : -1;
}
STEP(real) {
  uint64_t bits = 0;
  double value;
  for (int i = 0; i < op->bytes; i++) bits = bits << 8 | operand[i];
  memcpy(&value, &bits, sizeof value);
  return push(m, PyFloat_FromDouble(value));
}
STEP(text) {
  Py_ssize_t length = number(operand, op->bytes);
  const char *data = (const char *)read_bytes(m, length);
  if (!data) return -1;
  PyObject *made = PyUnicode_DecodeUTF8(data, length, op->bytes == 1 ? NULL : "surrogatepass");
  if (!made && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
    EXT_OWNED *cause = ext_exception_take();
    ext_pickle_fail("invalid UTF-8: %S", cause);
  }
  return push(m, made);
}

// ---- the memo
STEP(get) {
  uint32_t index = number(operand, op->bytes);
  PyObject *found = index < m->memo_capacity ? m->memo[index] : NULL;
  if (!found && m->far_memo) {
    EXT_OWNED *key = PyLong_FromUnsignedLong(index);
    found = key ? PyDict_GetItemWithError(m->far_memo, key) : NULL;
  }
  if (found || PyErr_Occurred()) return push(m, Py_XNewRef(found));
  return ext_pickle_fail("the memo has no entry %u", index), -1;
}
static int grow_memo(machine *m) {
  Py_ssize_t had = m->memo_capacity;
  while (m->memo_capacity < MIN_MEMO || m->memo_capacity < m->puts)
    if (grow((void **)&m->memo, &m->memo_capacity, sizeof *m->memo) < 0) break;
  for (Py_ssize_t i = had; i < m->memo_capacity; i++) m->memo[i] = NULL;
  return PyErr_Occurred() ? -1 : 0;
}
STEP(put) {
  uint32_t index = number(operand, op->bytes);
  PyObject *object = top(m);
  m->puts++;
  if (!object || grow_memo(m) < 0) return -1;
  if (index < m->memo_capacity) {
    PyObject *before = m->memo[index];
    m->memo[index] = Py_NewRef(object);
    Py_XDECREF(before);
    return 0;
  }
  if (!m->far_memo) m->far_memo = PyDict_New();
  EXT_OWNED *key = m->far_memo ? PyLong_FromUnsignedLong(index) : NULL;
  return key ? PyDict_SetItem(m->far_memo, key, object) : -1;
}
// Newer protocols have opcodes not in the table: PyTorch's warning.
STEP(protocol) {
  if (*operand == 2) return 0;
  return PyErr_WarnFormat(
      PyExc_UserWarning, 1,
      "Detected pickle protocol %d in the checkpoint, which was not the default pickle protocol "
      "used by `torch.load` (2). The weights_only Unpickler might not support all instructions "
      "implemented by this protocol, please file an issue for adding support if you encounter "
      "this.",
      *operand);
}

// ---- the table
enum { STOP = '.' };
static const opcode opcodes[256] = {
    ['c'] = {"GLOBAL", global, 0, 0},
    ['R'] = {"REDUCE", reduce, 0, 0},
    [0x81] = {"NEWOBJ", new_object, 0, 0},
    ['b'] = {"BUILD", build, 0, 0},
    ['Q'] = {"BINPERSID", persistent, 0, 0},
    ['a'] = {"APPEND", append, 0, 0},
    ['e'] = {"APPENDS", appends, 0, 0},
    ['s'] = {"SETITEM", set_item, 0, 0},
    ['u'] = {"SETITEMS", set_items, 0, 0},
    ['('] = {"MARK", mark, 0, 0},
    ['t'] = {"TUPLE", tuple, 0, 0},
    [0x85] = {"TUPLE1", short_tuple, 0, 1},
    [0x86] = {"TUPLE2", short_tuple, 0, 2},
    [0x87] = {"TUPLE3", short_tuple, 0, 3},
    [')'] = {"EMPTY_TUPLE", empty_tuple, 0, 0},
    [']'] = {"EMPTY_LIST", empty_list, 0, 0},
    ['}'] = {"EMPTY_DICT", empty_dict, 0, 0},
    [0x8f] = {"EMPTY_SET", empty_set, 0, 0},
    ['N'] = {"NONE", none, 0, 0},
    [0x88] = {"NEWTRUE", new_true, 0, 0},
    [0x89] = {"NEWFALSE", new_false, 0, 0},
    ['K'] = {"BININT1", integer, 1, 0},
    ['M'] = {"BININT2", integer, 2, 0},
    ['J'] = {"BININT", signed_integer, 4, 0},
    [0x8a] = {"LONG1", long_integer, 1, 0},
    ['G'] = {"BINFLOAT", real, 8, 0},
    ['U'] = {"SHORT_BINSTRING", text, 1, 0},
    ['X'] = {"BINUNICODE", text, 4, 0},
    ['h'] = {"BINGET", get, 1, 0},
    ['j'] = {"LONG_BINGET", get, 4, 0},
    ['q'] = {"BINPUT", put, 1, 0},
    ['r'] = {"LONG_BINPUT", put, 4, 0},
    [0x80] = {"PROTO", protocol, 1, 0},
};

static PyObject *run(machine *m) {
  for (int steps = 1; m->at < m->end; steps++) {
    if (steps % EXT_SIGNAL_CHECK_INTERVAL == 0 && (steps = 0, PyErr_CheckSignals() < 0))
      return NULL;
    const unsigned char code = m->data[m->at++];
    const opcode *op = &opcodes[code];
    if (code == STOP) return pop(m);
    if (!op->step) return ext_pickle_fail("Unsupported operand %d", code);
    const unsigned char *operand = read_bytes(m, op->bytes);
    if (!operand || op->step(m, op, operand) < 0) return NULL;
  }
  PyErr_SetString(PyExc_EOFError, "the pickle has no STOP opcode");
  return NULL;
}

static void machine_end(machine *m) {
  while (m->count) Py_DECREF(m->stack[--m->count]);
  for (Py_ssize_t i = 0; i < m->memo_capacity; i++) Py_XDECREF(m->memo[i]);
  PyMem_Free(m->stack);
  PyMem_Free(m->marks);
  PyMem_Free(m->memo);
  Py_XDECREF(m->far_memo);
}

// ---- errors, as reported by torch.load
#define TRUST \
  "Re-running `torch.load` with `weights_only` set to `False` will likely succeed, but it can " \
  "result in arbitrary code execution. Do it only if you got the file from a trusted source."
static const char *const explanations[] = {
    [EXT_REFUSED] = "Weights only load failed. " TRUST "\nWeightsUnpickler error: %S",
    [EXT_BLOCKED] = "Weights only load failed. " TRUST "\n\n%S",
    [EXT_UNSAFE] =
        "Weights only load failed. This file can still be loaded, to do so you have two options, "
        "do those steps only if you trust the source of the checkpoint.\n\t(1) " TRUST
        "\n\t(2) Alternatively, to load with `weights_only=True`:\n\tWeightsUnpickler error: %S",
};
static void explain_error(ext_refusal refusal) {
  if (!PyErr_ExceptionMatches(ext_UnpicklingError)) return;
  EXT_OWNED *error = ext_exception_take();
  ext_pickle_fail(explanations[refusal], error);
}

EXT_FUNCTION(
    torch, _unpickle,
    "(data: object, at: int, storages: dict, make: Callable, safe: dict) -> tuple",
    "Unpickles the value at an offset of `data`, bytes or a memory-mapped file. Returns it "
    "and the end\noffset. Storages come from _storage_of_id. `safe` maps names to objects "
    "allowed in addition to the\nallowlist.\n\nRaises pickle.UnpicklingError for "
    "disallowed contents, and EOFError for a truncated pickle.") {
  PyObject *data, *storages, *make, *safe;
  int64_t at;
  Py_buffer bytes;
  EXT_BIND(data, at, storages, make, safe);
  EXT_OWNED *names = PyDict_Check(safe) ? PyDict_Copy(safe) : NULL;
  if (!names || !PyDict_Check(storages)) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "storages and safe must be dicts");
    return NULL;
  }
  if (ext_pickle_init_globals() < 0 || PyObject_GetBuffer(data, &bytes, PyBUF_SIMPLE) < 0)
    return NULL;
  if (at < 0 || at > bytes.len) at = bytes.len;
  Py_ssize_t length = bytes.len - at;
  machine m = {.pickle = {.safe = names, .values = length / 2 + 4096, .copies = 4 * length + 4096},
               .data = bytes.buf,
               .at = at,
               .end = bytes.len,
               .storages = storages,
               .make = make};
  EXT_OWNED *value = run(&m);
  if (!value) explain_error(m.pickle.refusal);
  machine_end(&m);
  PyBuffer_Release(&bytes);
  return value ? Py_BuildValue("(On)", value, m.at) : NULL;
}
