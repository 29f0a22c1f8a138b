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

PX_TEST(exchanged_tensors_keep_their_users) {
  PX_SCOPED(px_tensor) a = ones(3);
  PX_SCOPED(px_tensor) deep = NULL;
  int64_t sizes[12] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4};
  OK(px_ones(&deep, sizes, 12, PX_FLOAT64, px_cpu(), false, false));
  int users[2];
  px_tensor_set_user(a, &users[0]);
  px_tensor_set_user(deep, &users[1]);
  px_tensor_mark(a, PX_MARK_PARAMETER, true);
  px_tensor_bump_version(a);
  OK(px_tensor_exchange(a, deep));
  CHECK(px_tensor_ndim(a) == 12 && px_tensor_numel(a) == 4 && px_tensor_dtype(a) == PX_FLOAT64);
  CHECK(px_tensor_ndim(deep) == 1 && px_tensor_size(deep, 0) == 3);
  CHECK(px_tensor_version(a) == 0 && px_tensor_version(deep) == 1);
  CHECK(!px_tensor_is_parameter(a) && px_tensor_is_parameter(deep));
  CHECK(px_tensor_user(a) == &users[0] && px_tensor_user(deep) == &users[1]);
}

PX_TEST(swapped_tensors_have_the_gradients_of_each_other) {
  PX_SCOPED(px_tensor) a = ones(2);
  PX_SCOPED(px_tensor) b = ones(3);
  PX_SCOPED(px_tensor) loss = NULL;
  OK(px_tensor_set_requires_grad(a, true));
  OK(px_sum(&loss, a, NULL, 0, false, PX_DTYPE_NONE));
  FAILS(px_tensor_swap(a, 0, b, 1), PX_RUNTIME, "Expected use_count of t1 to be 1 or 2");
  FAILS(px_tensor_swap(a, 1, a, 1), PX_VALUE, "expected two tensors to swap, got the same one");
  OK(px_tensor_swap(a, 1, b, 1));
  CHECK(!px_tensor_requires_grad(a) && px_tensor_requires_grad(b));
  FAILS(px_backward(1, &loss, NULL, false, false), PX_RUNTIME, "poisoned by swap_tensors");
  px_release(loss);
  OK(px_sum(&loss, b, NULL, 0, false, PX_DTYPE_NONE));
  OK(px_backward(1, &loss, NULL, false, false));
  CHECK(px_tensor_grad(b) && !px_tensor_grad(a));
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
