// SPDX-License-Identifier: Apache-2.0
// torch.distributed.Work: a collective that has begun.
#include "group.h"

typedef struct work_object {
  PyObject_HEAD px_work *work;
} work_object;
#define W(self) (((work_object *)(self))->work)
EXT_OWNS(work, EXT_CORE(work_object, work));
EXT_NEW(work, "()") { EXT_FAIL(PyExc_TypeError, "torch.distributed.Work: collectives make it"); }
EXT_TYPE(work, "torch.distributed.Work", "_Work", work_object, EXT_FINAL,
         "A collective that has begun.", EXT_LIFE(work), .tp_new = work_new);
EXT_METHOD(work, wait, "(timeout: Any | None = None) -> bool",
           "Waits for the end; of devices, makes the current stream wait.") {
  PyObject *timeout;
  int64_t milliseconds;
  EXT_BIND(timeout);
  if (ext_to_milliseconds(timeout, &milliseconds) < 0) return NULL;
  EXT_WAIT(px_work_wait(W(self), milliseconds));
  Py_RETURN_TRUE;
}
EXT_GIVES(work, is_completed, "bool", (bool)px_work_is_completed(W(self)), "Whether it has ended.");
EXT_GIVES(work, is_success, "bool",
          (bool)(px_work_is_completed(W(self)) && !px_work_error(W(self))),
          "Whether it has ended without an error.");
EXT_METHOD0(work, exception, "Exception | None", "What went wrong, or None.") {
  const px_error *error = px_work_error(W(self));
  if (!error) Py_RETURN_NONE;
  (void)px_error_give(error);
  ext_raise();
  return ext_exception_take();
}
EXT_GIVES(work, source_rank, "int", px_work_source(W(self)),
          "The rank of the group that a receive came from.");
EXT_ALSO(work, work_source_rank, _source_rank);

PyObject *ext_work(px_work *work_take) { return ext_over(&work_type, work_take); }
