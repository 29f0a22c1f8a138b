// SPDX-License-Identifier: Apache-2.0
// Process groups, for the files binding collectives.
#pragma once
#include "bind/ext.h"
#include "phlox/comm.h"

// Milliseconds of a timedelta (0 for None), and the reverse.
int ext_to_milliseconds(PyObject *object, int64_t *out);
PyObject *ext_timedelta(int64_t milliseconds);
// Store of a torch.distributed.Store, borrowed, or TypeError.
px_store *ext_store(PyObject *object);
// Wraps a pending collective as torch.distributed.Work. `outputs` is the list of tensors it writes,
// NULL for a send or receive.
PyObject *ext_work(px_work *work_take, PyObject *outputs);
// Returns a new torch.futures.Future; completes one with its value, or its exception if `failed`.
PyObject *ext_future_new(void);
int ext_future_complete(PyObject *future, PyObject *value, bool failed);
// Starts an in-place sum over a group; returns its Work.
PyObject *ext_all_reduce_async(PyObject *group, PyObject *tensor);

typedef struct group_object {
  PyObject_HEAD px_comm *comm;
  PyObject *backend, *store, *ranks;  // ranks: global ranks, a tuple
  PyObject *name, *description;
  PyObject *device;   // bound by init_process_group(device_id=), or NULL
  PyObject *numbers;  // counters of subgroups, a dict; NULL until one is created
} group_object;
#define G(object) ((group_object *)(object))
extern PyTypeObject ext_group_type;

// Resolves a group argument, borrowed; the default group for None. ValueError if there is none.
PyObject *ext_group(PyObject *given);
// True for the placeholder of groups without this process.
bool ext_is_non_member(PyObject *group);
// Resolves a group that includes this process; NULL otherwise, with or without an exception.
PyObject *ext_member_group(PyObject *given);
// A group over a communicator, with backend and store of `like`. Its ranks refer to `like`.
PyObject *ext_group_from_comm(px_comm *comm_take, PyObject *like, PyObject *ranks_take,
                              const char *description);
// Converts a global rank to a rank in a group; -1 with ValueError.
int ext_group_rank(PyObject *group, int64_t global_rank);
