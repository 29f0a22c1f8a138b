// SPDX-License-Identifier: Apache-2.0
// Compiled calls: calls with fusion on (phlox/fuse.h). nn/compile.c makes the functions.
#pragma once
#include "bind/ext.h"

// Brackets a call. `whole`: reads of values by the program fail. begin returns false with an
// exception set if it fails. end takes the call's result and returns it, or NULL with an exception.
typedef struct ext_compiled_call {
  bool fuses, compiling, whole;  // compiling, whole: before the call
} ext_compiled_call;
bool ext_compiled_begin(ext_compiled_call *call, bool fuses, bool whole);
PyObject *ext_compiled_end(const ext_compiled_call *call, PyObject *result);
bool ext_is_compiling(void);
// Calls a function with fusion off, also within a compiled call.
PyObject *ext_call_uncompiled(PyObject *function, PyObject *const *args, size_t nargsf,
                              PyObject *kwnames);

// True in a call with fullgraph=True: the program must not read values. refuse sets the exception.
bool ext_refuses_reads(void);
px_status ext_refuse_read(const char *what);

enum { EXT_DEFAULT_STANCE, EXT_FORCE_EAGER };
extern int ext_stance;  // EXT_FORCE_EAGER: compiled functions run uncompiled
extern PyObject *ext_InvalidBackend;
