// SPDX-License-Identifier: Apache-2.0
// Optimisers as Python objects, for the files that bind optim.
#pragma once
#include "ext.h"
#include "phlox/optim.h"

typedef struct ext_optimizer_object {
  PyObject_HEAD px_optimizer *optimizer;
  PyObject *groups;    // list of dicts: param_groups
  PyObject *defaults;  // dict
  PyObject *dict;
  bool stepped;  // step() was called
} ext_optimizer_object;

extern PyTypeObject ext_OptimizerType;
// Hands the options of all groups to the core; takes those that a schedule has changed back.
int ext_optimizer_push(PyObject *optimizer);
int ext_optimizer_pull(PyObject *optimizer);
int ext_init_schedules(PyObject *m, PyObject *optim);
