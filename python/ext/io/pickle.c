// SPDX-License-Identifier: Apache-2.0
// Fast paths of torch.save: the opcodes of a tensor, and the records of a zip file (APPNOTE.TXT of
// PKWARE, with 64-bit fields where needed).
#include "bind/ext.h"

#include <string.h>

typedef struct writer {
  unsigned char data[3200];
  size_t count;
} writer;
_Static_assert(sizeof((writer *)0)->data > 1024 + 22 * PX_MAX_DIMS, "room for a tensor's opcodes");

static void put(writer *w, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) w->data[w->count++] = (unsigned char)(value >> 8 * i);
}
static void put_bytes(writer *w, const void *data, size_t size) {
  memcpy(w->data + w->count, data, size);
  w->count += size;
}
static PyObject *writer_bytes(const writer *w) {
  return PyBytes_FromStringAndSize((const char *)w->data, (Py_ssize_t)w->count);
}

// ---- tensors
enum {
  MARK = '(',
  TUPLE = 't',
  EMPTY_TUPLE = ')',
  TUPLE1 = 0x85,
  REDUCE = 'R',
  BINPERSID = 'Q',
  BINUNICODE = 'X',
  BININT1 = 'K',
  BININT = 'J',
  LONG1 = 0x8a,
  NEWTRUE = 0x88,
  NEWFALSE = 0x89,
  BINGET = 'h',
  LONG_BINGET = 'j',
  BINPUT = 'q',
  LONG_BINPUT = 'r',
  MEMOIZE = 0x94,
  LONGEST_KEY = 20,
};

static void put_int(writer *w, int64_t value) {
  int bytes = 5;
  if (value >= 0 && value < 256) {
    put(w, BININT1, 1);
    put(w, (uint64_t)value, 1);
  } else if (value >= INT32_MIN && value <= INT32_MAX) {
    put(w, BININT, 1);
    put(w, (uint64_t)value, 4);
  } else {
    while (bytes < 8 && value >> (8 * bytes - 1) != (value < 0 ? -1 : 0)) bytes++;
    put(w, LONG1, 1);
    put(w, (uint64_t)bytes, 1);
    put(w, (uint64_t)value, bytes);
  }
}
static void put_ints(writer *w, int count, const int64_t *values) {
  if (count > 3) put(w, MARK, 1);
  for (int i = 0; i < count; i++) put_int(w, values[i]);
  put(w, count > 3 ? TUPLE : count ? (uint64_t)(TUPLE1 - 1 + count) : EMPTY_TUPLE, 1);
}

static void put_index(writer *w, Py_ssize_t index, int narrow, int wide) {
  put(w, (uint64_t)(index < 256 ? narrow : wide), 1);
  put(w, (uint64_t)index, index < 256 ? 1 : 4);
}
// Returns the index of a memoized object; -1 if it is not memoized, or on error.
static Py_ssize_t memoized(PyObject *memo, PyObject *object) {
  EXT_OWNED *id = PyLong_FromVoidPtr(object);
  PyObject *entry = id ? PyDict_GetItemWithError(memo, id) : NULL;
  if (!entry) return -1;
  PyObject *index =
      PyTuple_Check(entry) && PyTuple_GET_SIZE(entry) ? PyTuple_GET_ITEM(entry, 0) : Py_None;
  Py_ssize_t number = PyNumber_AsSsize_t(index, PyExc_OverflowError);
  return number < 0 ? -1 : number;
}
static void put_get(writer *w, Py_ssize_t index) { put_index(w, index, BINGET, LONG_BINGET); }
static int put_memo(writer *w, PyObject *memo, PyObject *object, int64_t protocol) {
  Py_ssize_t index = PyDict_GET_SIZE(memo);
  if (protocol >= 4)
    put(w, MEMOIZE, 1);
  else
    put_index(w, index, BINPUT, LONG_BINPUT);
  EXT_OWNED *id = PyLong_FromVoidPtr(object);
  EXT_OWNED *entry = Py_BuildValue("(nO)", index, object);
  return id && entry ? PyDict_SetItem(memo, id, entry) : -1;
}

EXT_FUNCTION(
    torch, _tensor_opcodes,
    "(tensor: Tensor, saved: tuple, memo: dict, protocol: int, rebuild: Callable, "
    "hooks: Callable) -> bytes | None",
    "Returns the opcodes of rebuild(storage, offset, size, stride, requires_grad, hooks()) "
    "and adds the\ntensor to the pickler's memo. `saved` is the id of its storage. None if "
    "a referenced object is not\nmemoized yet.") {
  PyObject *tensor, *saved, *memo, *rebuild, *hooks, *word, *type, *key, *location;
  int64_t protocol, size;
  EXT_BIND(tensor, saved, memo, protocol, rebuild, hooks);
  px_tensor *t = ext_need_tensor(tensor, "_tensor_opcodes", "tensor");
  if (!t) return NULL;
  if (!PyDict_Check(memo)) EXT_FAIL(PyExc_TypeError, "memo must be dict");
  if (!PyArg_ParseTuple(saved, "OOO!OL", &word, &type, &PyUnicode_Type, &key, &location, &size))
    return NULL;
  PyObject *const names[] = {rebuild, word, type, location, hooks};
  Py_ssize_t known[EXT_LENGTH(names)];
  writer w;
  w.count = 0;
  for (int i = 0; i < EXT_LENGTH(names); i++) {
    known[i] = memoized(memo, names[i]);
    if (known[i] < 0) return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
  }
  Py_ssize_t length;
  const char *text = PyUnicode_AsUTF8AndSize(key, &length);
  if (!text) return NULL;
  if (length > LONGEST_KEY) EXT_FAIL(PyExc_ValueError, "the storage key is too long");
  put_get(&w, known[0]);
  put(&w, MARK, 1);
  put(&w, MARK, 1);
  put_get(&w, known[1]);
  put_get(&w, known[2]);
  put(&w, BINUNICODE, 1);
  put(&w, (uint64_t)length, 4);
  put_bytes(&w, text, (size_t)length);
  put_get(&w, known[3]);
  put_int(&w, size);
  put(&w, TUPLE, 1);
  put(&w, BINPERSID, 1);
  put_int(&w, px_tensor_offset(t));
  put_ints(&w, px_tensor_ndim(t), px_tensor_sizes(t));
  put_ints(&w, px_tensor_ndim(t), px_tensor_strides(t));
  put(&w, px_tensor_requires_grad(t) ? NEWTRUE : NEWFALSE, 1);
  put_get(&w, known[4]);
  put(&w, EMPTY_TUPLE, 1);
  put(&w, REDUCE, 1);
  put(&w, TUPLE, 1);
  put(&w, REDUCE, 1);
  return put_memo(&w, memo, tensor, protocol) < 0 ? NULL : writer_bytes(&w);
}

// ---- zip files
enum { PLAIN_VERSION = 20, LARGE_VERSION = 45, UTF8_NAME = 0x800, FIRST_DAY = 0x21, UNIX = 3 };
#define LARGE INT64_C(0x7fffffff)  // larger numbers use a 64-bit field
#define ELSEWHERE UINT32_MAX       // marks a number in a 64-bit field

typedef struct record {
  const char *name;
  Py_ssize_t length;
  int64_t at, size;
  uint32_t check;
  bool ascii;
} record;

// Fields shared by the local header and the central directory entry of a record.
static void put_common(writer *w, const record *r, bool large) {
  put(w, large ? LARGE_VERSION : PLAIN_VERSION, 2);
  put(w, r->ascii ? 0 : UTF8_NAME, 2);
  put(w, 0, 4);  // no compression; midnight
  put(w, FIRST_DAY, 2);
  put(w, r->check, 4);
  uint64_t size = r->size > LARGE ? ELSEWHERE : (uint64_t)r->size;
  put(w, size, 4);
  put(w, size, 4);
  put(w, (uint64_t)r->length, 2);
}
// Local header, padded such that the record starts at a multiple of the alignment.
static void put_header(writer *w, const record *r, int64_t alignment) {
  bool large = r->size > LARGE;
  int64_t before = 30 + r->length + (large ? 20 : 0) + 4;
  uint64_t blanks = (uint64_t)(alignment - (r->at + before) % alignment) % (uint64_t)alignment;
  put_bytes(w, "PK\3\4", 4);
  put_common(w, r, large);
  put(w, blanks + 4 + (large ? 20 : 0), 2);
  put_bytes(w, r->name, (size_t)r->length);
  if (large) {
    put(w, 1, 2);
    put(w, 16, 2);
    put(w, (uint64_t)r->size, 8);
    put(w, (uint64_t)r->size, 8);
  }
  put_bytes(w, "FB", 2);
  put(w, blanks, 2);
  while (blanks--) put(w, 'Z', 1);
}
static void put_entry(writer *w, const record *r) {
  bool large = r->size > LARGE, far = r->at > LARGE;
  int extra = (large ? 16 : 0) + (far ? 8 : 0);
  put_bytes(w, "PK\1\2", 4);
  put(w, large || far ? LARGE_VERSION : PLAIN_VERSION, 1);
  put(w, UNIX, 1);
  put_common(w, r, large || far);
  put(w, extra ? (uint64_t)extra + 4 : 0, 2);
  put(w, 0, 4);  // no comment; the first disk
  put(w, 0, 6);  // no attributes
  put(w, far ? ELSEWHERE : (uint64_t)r->at, 4);
  put_bytes(w, r->name, (size_t)r->length);
  if (!extra) return;
  put(w, 1, 2);
  put(w, (uint64_t)extra, 2);
  if (large) put(w, (uint64_t)r->size, 8);
  if (large) put(w, (uint64_t)r->size, 8);
  if (far) put(w, (uint64_t)r->at, 8);
}

EXT_FUNCTION(
    torch, _zip_record,
    "(name: str, at: int, size: int, check: int, alignment: int) -> tuple[bytes, bytes]",
    "Returns the local header of a stored zip record, and its central directory entry. `at` "
    "is the offset of\nthe header; the record starts at a multiple of `alignment`.") {
  PyObject *name;
  int64_t at, size, check, alignment;
  EXT_BIND(name, at, size, check, alignment);
  record r = {.at = at, .size = size, .check = (uint32_t)check};
  if (!PyUnicode_Check(name)) EXT_FAIL(PyExc_TypeError, "name must be str");
  if (!(r.name = PyUnicode_AsUTF8AndSize(name, &r.length))) return NULL;
  r.ascii = PyUnicode_IS_ASCII(name);
  if (r.length > 2048 || at < 0 || size < 0 || alignment < 1 || alignment > 1024)
    EXT_FAIL(PyExc_ValueError, "invalid zip record %R of %lld bytes at %lld", name, (long long)size,
             (long long)at);
  writer w;
  w.count = 0;
  put_header(&w, &r, alignment);
  EXT_OWNED *header = writer_bytes(&w);
  w.count = 0;
  put_entry(&w, &r);
  EXT_OWNED *entry = writer_bytes(&w);
  return header && entry ? PyTuple_Pack(2, header, entry) : NULL;
}

EXT_FUNCTION(torch, _zip_end, "(count: int, begin: int, size: int) -> bytes",
             "Returns the end of a zip file, after a central directory of that size.") {
  EXT_ARGS(int64_t, count, begin, size);
  writer w = {.count = 0};
  bool large = count >= UINT16_MAX || begin > LARGE || size > LARGE;
  if (large) {
    put_bytes(&w, "PK\6\6", 4);
    put(&w, 44, 8);  // bytes that follow
    put(&w, LARGE_VERSION, 2);
    put(&w, LARGE_VERSION, 2);
    put(&w, 0, 8);
    put(&w, (uint64_t)count, 8);
    put(&w, (uint64_t)count, 8);
    put(&w, (uint64_t)size, 8);
    put(&w, (uint64_t)begin, 8);
    put_bytes(&w, "PK\6\7", 4);
    put(&w, 0, 4);
    put(&w, (uint64_t)(begin + size), 8);
    put(&w, 1, 4);
  }
  uint64_t records = count > UINT16_MAX ? UINT16_MAX : (uint64_t)count;
  put_bytes(&w, "PK\5\6", 4);
  put(&w, 0, 4);
  put(&w, records, 2);
  put(&w, records, 2);
  put(&w, size > LARGE ? ELSEWHERE : (uint64_t)size, 4);
  put(&w, begin > LARGE ? ELSEWHERE : (uint64_t)begin, 4);
  put(&w, 0, 2);
  return writer_bytes(&w);
}
