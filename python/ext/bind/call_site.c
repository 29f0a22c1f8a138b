// SPDX-License-Identifier: Apache-2.0
// Source line attributed to work of the core: the innermost Python frame outside the package.
//
// The core requests it when it issues device work. With the GIL held, the frames are read directly.
// EXT_NOGIL instead lends the core the line before it releases the GIL, but only after a first
// request: programs without devices pay nothing.
#include "declare/declare.h"

#include <frameobject.h>

bool ext_sites_enabled;  // guarded by the GIL, except for one write

// File and function names returned to the core, keyed by themselves: they live as long as the
// process. Equal names are shared, since recompiled code has its own copies.
static PyObject *site_names;
// "FOLDER/" of the package, computed on first use.
static PyObject *package;

// Cache by instruction: resolving a line walks the function's line table, which takes longer than
// a small launch.
typedef struct known_site {
  PyCodeObject *code;  // owned
  int instruction;
  bool inside;  // the package
  px_site site;
  const char *function;
} known_site;
enum { KNOWN_SITES = 512 };
static known_site known_sites[KNOWN_SITES];

static int instruction_of(PyFrameObject *frame) {
#if PY_VERSION_HEX >= 0x030B0000
  return PyFrame_GetLasti(frame);
#else
  return frame->f_lasti;
#endif
}

static PyObject *find_package(void) {
  EXT_OWNED *path = ext_import("phlox", "__path__");
  EXT_OWNED *first = path ? PySequence_GetItem(path, 0) : NULL;
  return first ? PyUnicode_FromFormat("%U/", first) : NULL;
}

bool ext_is_own_file(PyObject *file) {
  if (!package) package = find_package();
  bool inside = package && PyUnicode_Tailmatch(file, package, 0, PY_SSIZE_T_MAX, -1) == 1;
  PyErr_Clear();
  return inside;
}

static const char *intern_name(PyObject *name) {
  PyObject *kept = PyDict_SetDefault(site_names, name, name);
  return kept ? PyUnicode_AsUTF8(kept) : NULL;
}

static void remember_site(known_site *known, PyFrameObject *frame, PyCodeObject *code, int at) {
  PyCodeObject *old = known->code;
  px_site site = {.file = intern_name(code->co_filename), .line = PyFrame_GetLineNumber(frame)};
  const char *function = intern_name(code->co_name);
  PyErr_Clear();
  *known = (known_site){(PyCodeObject *)Py_NewRef(code), at, ext_is_own_file(code->co_filename),
                        site, function};
  Py_XDECREF(old);
}

static inline const known_site *look_up(PyFrameObject *frame) {
  PyCodeObject *code = PyFrame_GetCode(frame);
  int at = instruction_of(frame);
  known_site *known = &known_sites[((uintptr_t)code / 64 + (unsigned)at / 2) % KNOWN_SITES];
  if (known->code != code || known->instruction != at) remember_site(known, frame, code, at);
  Py_DECREF(code);
  return known;
}

// The first caller outside the package.
static const known_site *find_outside(PyFrameObject *frame) {
  const known_site *known = NULL;
  Py_INCREF(frame);
  do {
    PyFrameObject *back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
    known = frame ? look_up(frame) : NULL;
  } while (known && known->inside);
  Py_XDECREF(frame);
  return known;
}

// Caller holds the GIL.
static inline px_site find_site(void) {
  PyFrameObject *frame = PyEval_GetFrame();
  const known_site *known = frame ? look_up(frame) : NULL;
  if (known && __builtin_expect(known->inside, 0)) known = find_outside(frame);
  return known ? known->site : (px_site){0};
}

// The first request in a call without the GIL. Also lends the line to the rest of the call.
static px_site find_first(void) {
  if (ext_sites_enabled || !PyGILState_GetThisThreadState()) return (px_site){0};
  ext_gil gil;
  if (ext_gil_take(&gil) != PX_OK) return (px_site){0};
  ext_sites_enabled = true;
  px_site found = find_site();
  ext_gil_give(&gil);
  (void)px_site_lend(found);
  return found;
}

static void report_site(const char **file, int *line) {
  bool held = ext_gil_held();
  if (held) ext_sites_enabled = true;
  px_site found = held ? find_site() : find_first();
  *file = found.file, *line = found.line;
}

px_site ext_site_lend(void) { return px_site_lend(px_site_here()); }

// All Python frames, for the memory history. Preserves a pending exception: memory may be freed
// while one is raised.
static int report_frames(px_frame *frames, int capacity) {
  PyObject *type, *value, *traceback;
  int count = 0;
  if (!ext_gil_held()) return 0;
  PyErr_Fetch(&type, &value, &traceback);
  PyFrameObject *frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  while (frame && count < capacity) {
    const known_site *known = look_up(frame);
    const char *file = known->site.file, *function = known->function;
    frames[count++] =
        (px_frame){file ? file : "", function ? function : "", known->site.line, known->inside};
    PyFrameObject *back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  Py_XDECREF(frame);
  PyErr_Restore(type, value, traceback);
  return count;
}

static int make_sites(PyObject *torch) {
  site_names = PyDict_New();
  if (!site_names) return -1;
  px_site_set_source(report_site);
  px_site_set_frames(report_frames);
  return 0;
}
EXT_START(EXT_ERRORS, make_sites);
