// SPDX-License-Identifier: Apache-2.0
// Process groups, for the files that bind what processes do together.
#pragma once
#include "bind/ext.h"
#include "phlox/comm.h"

// A time as a number of milliseconds: a timedelta; 0 for None. And a timedelta of them.
int ext_to_milliseconds(PyObject *object, int64_t *out);
PyObject *ext_delta(int64_t milliseconds);
// The store of a torch.distributed.Store, borrowed, or TypeError.
px_store *ext_store(PyObject *object);
// A collective that has begun, as torch.distributed.Work, and the list of tensors that it writes;
// NULL for a send or receive.
PyObject *ext_work(px_work *work_take, PyObject *outputs);
// A torch.futures.Future, and its value, or its exception if it has failed.
PyObject *ext_future_new(void);
int ext_future_complete(PyObject *future, PyObject *value, bool failed);
// Begins to sum a tensor over a group, in place: the work.
PyObject *ext_begin_sum(PyObject *group, PyObject *tensor);

typedef struct group_object {
  PyObject_HEAD px_comm *comm;
  PyObject *backend, *store, *ranks;  // ranks: of all processes, a tuple
  PyObject *name, *description;
  PyObject *device;   // that programs bound it to, or NULL
  PyObject *numbers;  // of groups made out of it, a dict; NULL until one was
} group_object;
#define G(object) ((group_object *)(object))
extern PyTypeObject ext_group_type;

// The group that an argument means, borrowed: that of all for None. ValueError where there is none.
PyObject *ext_group(PyObject *given);
// Whether it is what stands for groups that this process is not in.
bool ext_is_no_member(PyObject *group);
// The group of an argument, which this process is in; NULL, perhaps without an exception, else.
PyObject *ext_own_group(PyObject *given);
// A group over a communicator, with the backend and store of another one; ranks as of that one's.
PyObject *ext_group_over(px_comm *comm_take, PyObject *like, PyObject *ranks_take,
                         const char *description);
// The rank in a group of one of all processes, or -1 with ValueError.
int ext_group_rank(PyObject *group, int64_t global_rank);
