// SPDX-License-Identifier: Apache-2.0
// Passing an exception on with a word about where it was met: replicas of DataParallel, workers of
// DataLoader.
#pragma once
#include "ext.h"

// Replaces the pending exception by one of the same class whose text is "Caught CLASS
// WHERE.\nOriginal Traceback ...".
void ext_rewrap(const char *where);
// The same for an exception that came as its class and its formatted traceback.
void ext_raise_caught(PyObject *cls, PyObject *traceback, const char *where);
