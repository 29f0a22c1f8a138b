// SPDX-License-Identifier: Apache-2.0
// The interface of phlox/extend.h for language bindings: marks, the slot, versions of views, and
// hooks around calls.
#include "phlox/extend.h"
#include "phlox/phlox.h"
#include "test.h"

static px_tensor *ones(int64_t n) {
  px_tensor *t;
  OK(px_ones(&t, &n, 1, PX_FLOAT32, px_cpu(), false, false));
  return t;
}

PX_TEST(marks_belong_to_one_tensor) {
  PX_SCOPED(px_tensor) t = ones(3);
  unsigned before = px_tensor_marks(t);
  px_tensor_mark(t, PX_MARK_PARAMETER | PX_MARK_MULTI_VIEW, true);
  CHECK_EQ(px_tensor_marks(t), before | PX_MARK_PARAMETER | PX_MARK_MULTI_VIEW);
  CHECK(px_tensor_is_parameter(t));
  px_tensor_mark(t, PX_MARK_MULTI_VIEW, false);
  CHECK_EQ(px_tensor_marks(t), before | PX_MARK_PARAMETER);
}

PX_TEST(new_tensors_and_views_get_the_threads_marks) {
  px_tensor_set_new_marks(PX_MARK_PARAMETER, PX_MARK_VIEW | PX_MARK_UNRECORDED);
  PX_SCOPED(px_tensor) t = ones(3);
  PX_SCOPED(px_tensor) view = NULL;
  OK(px_view(&view, t, (int64_t[]){3, 1}, 2));
  px_tensor_set_new_marks(0, PX_MARK_VIEW);
  PX_SCOPED(px_tensor) other = ones(3);
  CHECK(px_tensor_marks(t) & PX_MARK_PARAMETER);
  CHECK(px_tensor_marks(view) & PX_MARK_UNRECORDED && px_tensor_base(view) == t);
  CHECK_EQ(px_tensor_marks(other) & (PX_MARK_PARAMETER | PX_MARK_UNRECORDED), 0);
}

static int ended;
static void note_destroy(void *self) {
  ended++;
  px_object_end(self);
  px_free(self);
}
static const px_class note_class = {"note", note_destroy};
static px_object *note(void) {
  px_object *made;
  OK(px_alloc((void **)&made, sizeof *made));
  px_object_init(made, &note_class);
  return made;
}

PX_TEST(a_slot_is_set_once_and_released_with_the_tensor) {
  px_tensor *t = ones(3);
  px_object *first = note();
  CHECK(!px_tensor_slot(t));
  CHECK(px_tensor_set_slot_take(t, first) == first);
  CHECK(px_tensor_set_slot_take(t, note()) == first);
  CHECK_EQ(ended, 1);
  CHECK(px_tensor_slot(t) == first);
  px_release(t);
  CHECK_EQ(ended, 2);
}

PX_TEST(a_view_records_the_version_of_its_creation) {
  PX_SCOPED(px_tensor) t = ones(4);
  PX_SCOPED(px_tensor) view = NULL;
  OK(px_add_(t, t, px_int(1)));
  OK(px_view(&view, t, (int64_t[]){2, 2}, 2));
  uint64_t made = px_tensor_view_version(view);
  CHECK_EQ(made, px_tensor_version(t));
  OK(px_add_(t, t, px_int(1)));
  CHECK_EQ(px_tensor_view_version(view), made);
  px_tensor_set_view_version(view, px_tensor_version(t));
  CHECK_EQ(px_tensor_view_version(view), made + 1);
}

// ---- hooks
static struct {
  int calls, inplace;
  const px_op *op;
} seen;
static bool recording(void) { return true; }
static void suspend(bool on) {}
static px_status before_inplace(const px_op *op, px_call_mode mode, px_tensor *self,
                                const px_value *args, px_tensor **original) {
  seen.inplace++;
  PX_CHECK(px_tensor_numel(self) < 5, PX_RUNTIME, "%s would change too much", op->name);
  return PX_OK;
}
static px_status record(const px_op *op, px_call_mode mode, const px_value *args, int result_count,
                        px_tensor *const *results, px_tensor *original) {
  seen.calls++, seen.op = op;
  return PX_OK;
}
static void print_suffix(const px_tensor *self, char *text, size_t capacity) {
  snprintf(text, capacity, ", noted=%d", seen.calls);
}

PX_TEST(hooks_run_around_every_call) {
  static const px_op_hooks hooks = {recording, suspend, before_inplace, record, print_suffix,
                                    NULL,      NULL};
  PX_SCOPED(px_tensor) few = ones(2);
  PX_SCOPED(px_tensor) many = ones(9);
  PX_SCOPED(px_tensor) sum = NULL;
  char *text = NULL;
  px_op_set_hooks(&hooks);
  OK(px_mul(&sum, few, few));
  CHECK_EQ(seen.calls, 0);  // no operand requires grad
  px_release(PX_MOVE(sum));
  px_tensor_mark(few, PX_MARK_NEEDS_GRAD, true);
  OK(px_add(&sum, few, few, px_int(1)));
  CHECK_EQ(seen.calls, 1);
  CHECK_TEXT(seen.op->name, "add");
  FAILS(px_mul_(many, many), PX_RUNTIME, "mul would change too much");
  CHECK_EQ(seen.inplace, 1);
  CHECK_EQ(seen.calls, 1);
  OK(px_tensor_text(&text, sum, "tensor("));
  CHECK(strstr(text, "noted=1"));
  px_free(text);
}
