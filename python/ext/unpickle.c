// SPDX-License-Identifier: Apache-2.0
// Reads pickles of values and tensors that may come from anybody (weights_only).
//
// A machine of the opcodes that torch.save writes, and of no others: a row of a table for each. It
// calls what stands in a closed list, and what the program has declared safe
// (unpickle_globals.c). Python's own Unpickler, with find_class restricted, is no help: it lets a
// pickle set attributes of the functions and classes that are allowed, calls them with any
// arguments (bytearray(2**40)), and takes memory by the largest memo index.
//
// What a pickle makes is bounded by its length. A machine lives during one call, and no code of a
// program's can reach it: what it gives to methods of safe classes has left the stack before.
#include "unpickle.h"

#include <string.h>

#define EMPTY "the pickle takes a value from an empty stack"
enum { NAME_LENGTH = 1000, MEMO_ROOM = 256 };

typedef struct machine {
  ext_pickle pickle;
  const unsigned char *data;
  Py_ssize_t at, end;
  PyObject *storages, *make;
  PyObject **stack;  // owns `count` objects
  Py_ssize_t count, room;
  Py_ssize_t *marks;  // how high the stack was at each mark
  Py_ssize_t mark_count, mark_room;
  // Objects by their index, NULL where there is none; the array is at most as long as twice the
  // number of puts. A larger index is in the dict, unless it was put again when it had a place.
  PyObject **memo;
  Py_ssize_t memo_room, puts;
  PyObject *far_memo;
} machine;

typedef struct opcode {
  const char *name;
  int (*step)(machine *m, const struct opcode *op, const unsigned char *operand);
  int bytes;  // of the operand
  int count;  // of what it takes from the stack, where opcodes differ in that
} opcode;
#define STEP(name) static int name(machine *m, const opcode *op, const unsigned char *operand)

// ---- what the steps share
static int grow(void **items, Py_ssize_t *room, size_t size) {
  Py_ssize_t wanted = *room ? *room * 2 : 64;
  void *grown = PyMem_Realloc(*items, (size_t)wanted * size);
  if (!grown) return PyErr_NoMemory(), -1;
  *items = grown;
  *room = wanted;
  return 0;
}

// NULL, with an exception, gives -1.
static int push(machine *m, PyObject *object_take) {
  if (!object_take) return -1;
  if (m->count == m->room && grow((void **)&m->stack, &m->room, sizeof *m->stack) < 0) {
    Py_DECREF(object_take);
    return -1;
  }
  m->stack[m->count++] = object_take;
  return 0;
}
static int push_made(machine *m, PyObject *object_take) {
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

// The objects above a place of the stack, which leave it.
static PyObject *list_above(machine *m, Py_ssize_t begin) {
  PyObject *list = PyList_New(m->count - begin);
  for (Py_ssize_t i = begin; list && i < m->count; i++)
    PyList_SET_ITEM(list, i - begin, m->stack[i]);
  if (list) m->count = begin;
  return list;
}
static PyObject *tuple_above(machine *m, Py_ssize_t begin) {
  PyObject *tuple = PyTuple_New(m->count - begin);
  for (Py_ssize_t i = begin; tuple && i < m->count; i++)
    PyTuple_SET_ITEM(tuple, i - begin, m->stack[i]);
  if (tuple) m->count = begin;
  return tuple;
}
// Takes the last mark: where the stack was at it, or -1.
static Py_ssize_t take_mark(machine *m) {
  if (m->mark_count) return m->marks[--m->mark_count];
  return ext_pickle_fail("the pickle takes a mark that is not there"), -1;
}

static const unsigned char *take(machine *m, Py_ssize_t count) {
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

// ---- names and what is called
static PyObject *take_line(machine *m) {
  Py_ssize_t left = m->end - m->at, most = left < NAME_LENGTH ? left : NAME_LENGTH;
  const unsigned char *begin = m->data + m->at, *end = memchr(begin, '\n', (size_t)most);
  if (!end) return ext_pickle_fail("a name has no end");
  m->at += end - begin + 1;
  return PyUnicode_DecodeUTF8((const char *)begin, end - begin, "replace");
}
STEP(global) {
  EXT_OWNED *module = take_line(m);
  EXT_OWNED *name = module ? take_line(m) : NULL;
  return name ? push(m, ext_pickle_find(&m->pickle, module, name)) : -1;
}
STEP(reduce) {
  EXT_OWNED *args = pop(m);
  EXT_OWNED *function = args ? pop(m) : NULL;
  return function ? push_made(m, ext_pickle_reduce(&m->pickle, function, args)) : -1;
}
STEP(new_object) {
  EXT_OWNED *args = pop(m);
  EXT_OWNED *cls = args ? pop(m) : NULL;
  return cls ? push_made(m, ext_pickle_new(&m->pickle, cls, args)) : -1;
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
  Py_ssize_t begin = take_mark(m);
  return begin < 0 ? -1 : extend(m, "extend", list_above(m, begin));
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
  return update(m, op, list_above(m, m->count - 2));
}
STEP(set_items) {
  Py_ssize_t begin = take_mark(m);
  return begin < 0 ? -1 : update(m, op, list_above(m, begin));
}

STEP(mark) {
  if (m->mark_count == m->mark_room &&
      grow((void **)&m->marks, &m->mark_room, sizeof *m->marks) < 0)
    return -1;
  m->marks[m->mark_count++] = m->count;
  return 0;
}
STEP(tuple) {
  Py_ssize_t begin = take_mark(m);
  return begin < 0 ? -1 : push_made(m, tuple_above(m, begin));
}
STEP(short_tuple) {
  if (height(m) < op->count) return ext_pickle_fail(EMPTY), -1;
  return push_made(m, tuple_above(m, m->count - op->count));
}
STEP(empty_tuple) { return push(m, PyTuple_New(0)); }
STEP(empty_list) { return push_made(m, PyList_New(0)); }
STEP(empty_dict) { return push_made(m, PyDict_New()); }
STEP(empty_set) { return push_made(m, PySet_New(NULL)); }

// ---- values
STEP(none) { return push(m, Py_NewRef(Py_None)); }
STEP(new_true) { return push(m, Py_NewRef(Py_True)); }
STEP(new_false) { return push(m, Py_NewRef(Py_False)); }
STEP(integer) { return push(m, PyLong_FromUnsignedLong(number(operand, op->bytes))); }
STEP(signed_integer) { return push(m, PyLong_FromLong((int32_t)number(operand, op->bytes))); }
STEP(long_integer) {
  const unsigned char *data = take(m, *operand);
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
  const char *data = (const char *)take(m, length);
  if (!data) return -1;
  PyObject *made = PyUnicode_DecodeUTF8(data, length, op->bytes == 1 ? NULL : "surrogatepass");
  if (!made && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
    EXT_OWNED *cause = ext_exception_take();
    ext_pickle_fail("a text is not UTF-8: %S", cause);
  }
  return push(m, made);
}

// ---- the memo
STEP(get) {
  uint32_t index = number(operand, op->bytes);
  PyObject *found = index < m->memo_room ? m->memo[index] : NULL;
  if (!found && m->far_memo) {
    EXT_OWNED *key = PyLong_FromUnsignedLong(index);
    found = key ? PyDict_GetItemWithError(m->far_memo, key) : NULL;
  }
  if (found || PyErr_Occurred()) return push(m, Py_XNewRef(found));
  return ext_pickle_fail("the pickle remembers nothing under %u", index), -1;
}
static int make_room(machine *m) {
  Py_ssize_t had = m->memo_room;
  while (m->memo_room < MEMO_ROOM || m->memo_room < m->puts)
    if (grow((void **)&m->memo, &m->memo_room, sizeof *m->memo) < 0) break;
  for (Py_ssize_t i = had; i < m->memo_room; i++) m->memo[i] = NULL;
  return PyErr_Occurred() ? -1 : 0;
}
STEP(put) {
  uint32_t index = number(operand, op->bytes);
  PyObject *object = top(m);
  m->puts++;
  if (!object || make_room(m) < 0) return -1;
  if (index < m->memo_room) {
    PyObject *before = m->memo[index];
    m->memo[index] = Py_NewRef(object);
    Py_XDECREF(before);
    return 0;
  }
  if (!m->far_memo) m->far_memo = PyDict_New();
  EXT_OWNED *key = m->far_memo ? PyLong_FromUnsignedLong(index) : NULL;
  return key ? PyDict_SetItem(m->far_memo, key, object) : -1;
}
// The newer protocols have opcodes that are not in the table: what PyTorch says of them.
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
    const unsigned char *operand = take(m, op->bytes);
    if (!operand || op->step(m, op, operand) < 0) return NULL;
  }
  PyErr_SetString(PyExc_EOFError, "the pickle has no end");
  return NULL;
}

static void machine_end(machine *m) {
  while (m->count) Py_DECREF(m->stack[--m->count]);
  for (Py_ssize_t i = 0; i < m->memo_room; i++) Py_XDECREF(m->memo[i]);
  PyMem_Free(m->stack);
  PyMem_Free(m->marks);
  PyMem_Free(m->memo);
  Py_XDECREF(m->far_memo);
}

// ---- errors as torch.load tells them
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
static void explain(ext_refusal refusal) {
  if (!PyErr_ExceptionMatches(ext_UnpicklingError)) return;
  EXT_OWNED *error = ext_exception_take();
  ext_pickle_fail(explanations[refusal], error);
}

EXT_FUNCTION(torch, _unpickle,
             "(data: object, at: int, storages: dict, make: Callable, safe: dict) -> tuple",
             "The value of the pickle that begins at a place of `data`, bytes or a map of a file, "
             "and where it\nends. Storages come from _storage_of_id; `safe` are objects that the "
             "pickle may name besides those\nof a closed list, by their names.\n\nRaises "
             "pickle.UnpicklingError for what it may not hold, and EOFError where it is cut off.") {
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
  if (!value) explain(m.pickle.refusal);
  machine_end(&m);
  PyBuffer_Release(&bytes);
  return value ? Py_BuildValue("(On)", value, m.at) : NULL;
}
