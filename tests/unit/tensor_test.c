// SPDX-License-Identifier: Apache-2.0
// Tensors: external sizes, geometry, views and their bounds, copies, versions, failed allocations.
#include "device_test.h"
#include "phlox/dlpack.h"
#include "phlox/extend.h"
#include "tensor/tensor_impl.h"

#define SIZES(...) \
  (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]) { __VA_ARGS__ }

static px_tensor *ramp(px_device device, int ndim, const int64_t *sizes) {
  int64_t data[256];
  for (int i = 0; i < 256; i++) data[i] = i;
  px_tensor *t;
  OK(px_tensor_from_data(&t, data, ndim, sizes, PX_INT64, device));
  return t;
}

PX_TEST(invalid_sizes_are_refused) {
  px_tensor *t;
  FAILS(px_tensor_empty(&t, SIZES(-1), PX_FLOAT32, px_cpu()), PX_RUNTIME,
        "Trying to create tensor with negative dimension -1: [-1]");
  FAILS(px_tensor_empty(&t, SIZES(4611686018427387904), PX_FLOAT32, px_cpu()), PX_RUNTIME,
        "Storage size calculation overflowed with sizes=[4611686018427387904]");
  FAILS(px_tensor_empty_strided(&t, 1, (int64_t[]){3}, (int64_t[]){INT64_MAX}, PX_INT8, px_cpu()),
        PX_RUNTIME, "Storage size calculation overflowed with sizes=[3] and strides=[");
  int64_t many[65] = {0};
  FAILS(px_tensor_empty(&t, 65, many, PX_FLOAT32, px_cpu()), PX_RUNTIME, "up to 64 dims");
  CHECK(!t);
  OK(px_tensor_empty(&t, SIZES(4611686018427387904, 0), PX_FLOAT32, px_cpu()));
  CHECK_EQ(px_tensor_numel(t), 0);
  px_release(t);
}

PX_TEST(has_sizes_compares_all_sizes) {
  PX_SCOPED(px_tensor) t = ramp(px_cpu(), SIZES(2, 3));
  PX_SCOPED(px_tensor) none = ramp(px_cpu(), 0, NULL);
  CHECK(px_tensor_has_sizes(t, SIZES(2, 3)));
  CHECK(!px_tensor_has_sizes(t, SIZES(3, 2)) && !px_tensor_has_sizes(t, SIZES(2)));
  CHECK(!px_tensor_has_sizes(t, SIZES(2, 3, 1)) && !px_tensor_has_sizes(t, 0, NULL));
  PX_SCOPED(px_tensor) same = NULL;
  PX_SCOPED(px_tensor) other = NULL;
  OK(px_tensor_empty(&same, SIZES(2, 3), PX_BOOL, px_cpu()));
  OK(px_tensor_empty(&other, SIZES(3, 2), PX_FLOAT32, px_cpu()));
  CHECK(px_tensor_same_sizes(t, same) && !px_tensor_same_sizes(t, other));
  CHECK(px_tensor_has_sizes(none, 0, NULL) && !px_tensor_has_sizes(none, SIZES(1)));
}

PX_TEST(broadcasting_and_dimension_errors_match_pytorch) {
  int ndim, dim;
  int64_t sizes[PX_MAX_DIMS];
  OK(px__broadcast(&ndim, sizes, SIZES(2, 1, 3), SIZES(4, 1)));
  CHECK(ndim == 3 && sizes[0] == 2 && sizes[1] == 4 && sizes[2] == 3);
  FAILS(px__broadcast(&ndim, sizes, SIZES(2, 3), SIZES(2, 5)), PX_RUNTIME,
        "The size of tensor a (3) must match the size of tensor b (5) at non-singleton dimension "
        "1");
  OK(px__wrap_dim(&dim, -1, 3));
  CHECK_EQ(dim, 2);
  FAILS(px__wrap_dim(&dim, 4, 0), PX_INDEX,
        "Dimension out of range (expected to be in range of [-1, 0], but got 4)");
}

static bool view(const px_tensor *t, int ndim, const int64_t *wanted, int64_t *strides) {
  bool possible;
  int64_t sizes[PX_MAX_DIMS];
  memcpy(sizes, wanted, sizeof *sizes * (size_t)ndim);
  OK(px__view_strides(&possible, t, ndim, sizes, strides));
  return possible;
}

PX_TEST(a_view_is_possible_if_strides_allow) {
  PX_SCOPED(px_tensor) t = ramp(px_cpu(), SIZES(4, 6));
  PX_SCOPED(px_tensor) transposed = NULL;
  PX_SCOPED(px_tensor) part = NULL;
  int64_t strides[PX_MAX_DIMS];
  OK(px_tensor_as_strided(&transposed, t, 2, (int64_t[]){6, 4}, (int64_t[]){1, 6}, 0));
  OK(px_tensor_as_strided(&part, t, 2, (int64_t[]){4, 3}, (int64_t[]){6, 1}, 3));
  CHECK(view(t, SIZES(2, -1), strides) && strides[0] == 12 && strides[1] == 1);
  CHECK(view(transposed, SIZES(2, 3, 1, 4), strides) && strides[0] == 3 && strides[3] == 6);
  CHECK(!view(transposed, SIZES(24), strides) && !view(part, SIZES(12), strides));
  CHECK(view(part, SIZES(2, 2, 3), strides) && strides[0] == 12 && strides[1] == 6);
  bool possible;
  FAILS(px__view_strides(&possible, t, SIZES(5), strides), PX_RUNTIME,
        "shape '[5]' is invalid for input of size 24");
  FAILS(px__view_strides(&possible, t, SIZES(-1, -1), strides), PX_RUNTIME,
        "only one dimension can be inferred");
}

PX_TEST(as_strided_stays_within_the_storage) {
  PX_SCOPED(px_tensor) t = NULL;
  px_tensor *v;
  OK(px_tensor_empty(&t, SIZES(3), PX_FLOAT32, px_cpu()));
  FAILS(px_tensor_as_strided(&v, t, 1, (int64_t[]){2}, (int64_t[]){3}, 1), PX_RUNTIME,
        "setStorage: sizes [2], strides [3], storage offset 1, and itemsize 4 requiring a storage "
        "size of 20 are out of bounds for storage of size 12");
  FAILS(px_tensor_as_strided(&v, t, 1, (int64_t[]){2}, (int64_t[]){-1}, 2), PX_RUNTIME,
        "Negative strides are not supported at the moment, got strides: [-1]");
  FAILS(px_tensor_as_strided(&v, t, 1, (int64_t[]){2}, (int64_t[]){1}, -1), PX_RUNTIME,
        "Tensor: invalid storage offset -1");
  FAILS(px_tensor_as_strided(&v, t, 1, (int64_t[]){2}, (int64_t[]){INT64_MAX}, 1), PX_RUNTIME,
        "overflowed");
  CHECK(!v);
}

PX_TEST(versions_are_shared_except_by_aliases) {
  PX_SCOPED(px_tensor) t = ramp(px_cpu(), SIZES(4));
  PX_SCOPED(px_tensor) detached = NULL;
  PX_SCOPED(px_tensor) alias = NULL;
  OK(px_tensor_detach(&detached, t));
  OK(px_tensor_alias(&alias, t));
  px_tensor_bump_version(detached);
  CHECK(px_tensor_version(t) == 1 && px_tensor_version(alias) == 0);
  px_tensor_bump_version(alias);
  CHECK(px_tensor_version(t) == 1 && px_tensor_version(alias) == 1);
}

PX_TEST(set_data_and_resize_change_a_tensor_in_place) {
  PX_SCOPED(px_tensor) t = ramp(px_cpu(), SIZES(4));
  PX_SCOPED(px_tensor) other = ramp(px_cpu(), SIZES(2, 3));
  px_tensor_bump_version(t);
  OK(px_tensor_set_data(t, other));
  CHECK(t->storage == other->storage && px_tensor_ndim(t) == 2 && px_tensor_version(t) == 1);
  OK(px_tensor_resize(t, SIZES(3, 4)));
  px_scalar last;
  PX_SCOPED(px_tensor) sixth = NULL;
  OK(px_tensor_as_strided(&sixth, t, 0, NULL, NULL, 5));
  OK(px_tensor_item(&last, sixth));
  CHECK(last.v.i == 5 && px_tensor_numel(t) == 12);
  int64_t memory[2] = {0};
  PX_SCOPED(px_tensor) theirs = NULL;
  OK(px_tensor_wrap(&theirs, memory, sizeof memory, SIZES(2), NULL, PX_INT64, px_cpu(), NULL,
                    NULL));
  FAILS(px_tensor_resize(theirs, SIZES(9)), PX_RUNTIME, "storage that is not resizable");
}

PX_TEST(copies_convert_broadcast_and_survive_overlap) {
  PX_SCOPED(px_tensor) t = ramp(px_cpu(), SIZES(8));
  PX_SCOPED(px_tensor) head = NULL;
  PX_SCOPED(px_tensor) tail = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  OK(px_tensor_as_strided(&head, t, 1, (int64_t[]){7}, (int64_t[]){1}, 0));
  OK(px_tensor_as_strided(&tail, t, 1, (int64_t[]){7}, (int64_t[]){1}, 1));
  OK(px__tensor_copy(tail, head, false));
  int64_t got[8];
  OK(px_tensor_read(t, got, sizeof got));
  for (int i = 0; i < 8; i++) CHECK_EQ(got[i], i ? i - 1 : 0);
  OK(px_tensor_empty(&wide, SIZES(2, 8), PX_FLOAT32, px_cpu()));
  OK(px__tensor_copy(wide, t, false));
  float floats[16];
  OK(px_tensor_read(wide, floats, sizeof floats));
  CHECK(floats[7] == 6 && floats[15] == 6);
  FAILS(px__tensor_copy(t, wide, false), PX_RUNTIME,
        "output with shape [8] doesn't match the broadcast shape [2, 8]");
}

PX_TEST(copies_between_devices_take_any_geometry) {
  simulate_plainly(2);
  PX_SCOPED(px_tensor) from = ramp(px_cuda(0), SIZES(3, 4));
  PX_SCOPED(px_tensor) transposed = NULL;
  PX_SCOPED(px_tensor) to = NULL;
  OK(px_tensor_as_strided(&transposed, from, 2, (int64_t[]){4, 3}, (int64_t[]){1, 4}, 0));
  OK(px_tensor_empty_strided(&to, 2, (int64_t[]){4, 3}, (int64_t[]){6, 2}, PX_FLOAT64, px_cuda(1)));
  OK(px__tensor_copy(to, transposed, false));
  double got[12];
  OK(px_tensor_read(to, got, sizeof got));
  for (int i = 0; i < 12; i++) CHECK_EQ(got[i], i % 3 * 4 + i / 3);
}

PX_TEST(item_reads_one_element) {
  PX_SCOPED(px_tensor) six = ramp(px_cpu(), SIZES(6));
  PX_SCOPED(px_tensor) number = NULL;
  px_scalar s;
  FAILS(px_tensor_item(&s, six), PX_RUNTIME,
        "a Tensor with 6 elements cannot be converted to Scalar");
  OK(px_tensor_from_scalar(&number, px_float(0.1)));
  OK(px_tensor_item(&s, number));
  CHECK(s.kind == 'f' && s.v.f == 0.1 && px_tensor_is_wrapped(number));
}

static void count_release(void *context) { ++*(int *)context; }

PX_TEST(wrapped_memory_is_released_once_and_never_on_failure) {
  int64_t memory[4] = {0}, live = px_live_objects(NULL), failures = 0;
  int released = 0;
  px_tensor *t = NULL;
  FAILS(px_tensor_wrap(&t, memory, sizeof memory, SIZES(5), NULL, PX_INT64, px_cpu(), count_release,
                       &released),
        PX_RUNTIME, "does not fit in memory");
  for (int64_t nth = 1; !t; nth++) {
    OK(px_fault_arm("alloc", nth, false));
    failures += px_tensor_wrap(&t, memory, sizeof memory, SIZES(4), NULL, PX_INT64, px_cpu(),
                               count_release, &released) != PX_OK;
    px_fault_disarm_all();
    if (!t) CHECK_EQ(px_live_objects(NULL), live);
    CHECK_EQ(released, 0);
  }
  CHECK(failures >= 2);
  px_release(t);
  CHECK(released == 1 && px_live_objects(NULL) == live);
}

PX_TEST(empty_fails_cleanly_at_every_allocation) {
  int64_t live = px_live_objects(NULL), failures = 0;
  px_tensor *t = NULL;
  for (int64_t nth = 1; !t; nth++) {
    OK(px_fault_arm("alloc", nth, false));
    failures += px_tensor_empty(&t, SIZES(2, 3), PX_FLOAT32, px_cpu()) != PX_OK;
    px_fault_disarm_all();
    if (!t) CHECK_EQ(px_live_objects(NULL), live);
  }
  CHECK(failures >= 2);
  px_release(t);
  CHECK_EQ(px_live_objects(NULL), live);
}

static px_tensor *two_by_three(void) {
  px_tensor *t;
  OK(px_tensor_empty(&t, SIZES(2, 3), PX_FLOAT32, px_cpu()));
  return t;
}

// Returns one tensor to the joining thread and leaves one to the thread's destructor.
static void *return_one_leave_one(void *key) {
  CHECK(!pthread_setspecific(*(pthread_key_t *)key, two_by_three()));
  return two_by_three();
}

PX_TEST(live_objects_are_counted_across_threads_and_their_exits) {
  px_release(two_by_three());  // creates the library's keys before ours, so that their destructors
                               // run first
  int64_t live = px_live_objects("tensor");
  pthread_key_t key;
  CHECK(!pthread_key_create(&key, px_release));
  for (int i = 0; i < 3; i++) {
    pthread_t thread;
    void *left;
    CHECK(!pthread_create(&thread, NULL, return_one_leave_one, &key) &&
          !pthread_join(thread, &left));
    CHECK_EQ(px_live_objects("tensor"), live + 1);
    px_release(left);
    CHECK_EQ(px_live_objects("tensor"), live);
  }
}

// A tensor of many dimensions over foreign memory, and a view and an alias of another.
static void make_and_end(px_device device) {
  static int64_t memory[1], many[12];
  for (int d = 0; d < 12; d++) many[d] = 1;
  PX_SCOPED(px_tensor) t = ramp(device, SIZES(2, 3));
  px_tensor *view, *alias, *wrapped = NULL;
  OK(px__tensor_view(&view, t, SIZES(2), (int64_t[]){1}, 1));
  OK(px_tensor_alias(&alias, t));
  px_tensor_bump_version(t);
  px_tensor_set_user(alias, memory);
  if (device.type == PX_CPU)
    OK(px_tensor_wrap(&wrapped, memory, 8, 12, many, NULL, PX_INT64, device, NULL, NULL));
  px_release(view), px_release(alias), px_release(wrapped);
}

PX_TEST(a_recycled_tensor_keeps_no_old_state) {
  simulate_plainly(2);
  px_tensor *made[16];
  for (int on = 0; on < 2; on++) {
    px_device device = on ? px_cuda(0) : px_cpu();
    for (int i = 0; i < 3; i++) make_and_end(device);
    for (int i = 0; i < 16; i++) {
      OK(px_tensor_empty(&made[i], SIZES(2), PX_INT8, device));
      const px_tensor *t = made[i];
      CHECK(!t->version && !t->base && !t->autograd && !t->user && !t->physical);
      CHECK(!t->offset && !t->own_version && !t->flags && px__tensor_owns_dims(t) && t->contiguous);
      CHECK(!t->storage->version && !t->storage->fixed && !t->storage->shared);
      CHECK(!t->storage->allocation->foreign && !t->storage->allocation->irregular);
      CHECK_EQ(t->head.refs, 1);
      CHECK_EQ(t->storage->head.refs, 1);
    }
    for (int i = 0; i < 16; i++) px_release(made[i]);
  }
}

PX_TEST(derived_tensors_share_the_version_after_set_data) {
  PX_SCOPED(px_tensor) t = ramp(px_cpu(), 2, (int64_t[]){2, 3});
  PX_SCOPED(px_tensor) other = ramp(px_cpu(), 2, (int64_t[]){2, 3});
  PX_SCOPED(px_tensor) view = NULL;
  PX_SCOPED(px_tensor) plain = NULL;
  OK(px_tensor_set_data(t, other));
  OK(px_tensor_as_strided(&view, t, 1, (int64_t[]){6}, (int64_t[]){1}, 0));
  OK(px_tensor_detach(&plain, view));
  px_tensor_bump_version(t);
  CHECK_EQ(px_tensor_version(plain), px_tensor_version(t));
  CHECK_EQ(px_tensor_version(view), px_tensor_version(t));
  CHECK_EQ(px_tensor_version(other), 0);
}

PX_TEST(missing_memory_is_an_error) {
  px_tensor *t = NULL;
  px_dtype dtype;
  FAILS(px_tensor_wrap(&t, NULL, 64, SIZES(4), NULL, PX_FLOAT32, px_cpu(), NULL, NULL), PX_VALUE,
        "needs memory");
  FAILS(px_tensor_from_data(&t, NULL, SIZES(4), PX_FLOAT32, px_cpu()), PX_VALUE, "needs data");
  FAILS(px_dtype_parse(&dtype, NULL), PX_TYPE, "expected a dtype name");
  CHECK(!t);
  OK(px_tensor_wrap(&t, NULL, 0, SIZES(0, 4), NULL, PX_FLOAT32, px_cpu(), NULL, NULL));
  px_release(t);
  px_setting_set((px_setting)-1, 7);
  CHECK_EQ(px_setting_get((px_setting)99), 0);
}

// ---- addresses

PX_TEST(addresses_of_conjugate_and_negative_views_are_refused) {
  static const char *const bits[] = {"conjugate", "negative"};
  for (int i = 0; i < 2; i++) {
    void *at;
    px_dl_managed *managed;
    PX_SCOPED(px_tensor) t = NULL;
    OK(px_tensor_from_data(&t, (float[]){1, 2, 3, 4}, SIZES(2), PX_COMPLEX64, px_cpu()));
    CHECK(px_tensor_data(t) && !px_tensor_unresolved(t));
    px_tensor_mark(t, i ? PX_MARK_NEG : PX_MARK_CONJ, true);
    CHECK(!strcmp(px_tensor_unresolved(t), bits[i]));
    CHECK(!px_tensor_data(t));
    FAILS(px_tensor_host_data(&at, t), PX_RUNTIME, bits[i]);
    CHECK(!at);
    FAILS(px_dlpack_export(&managed, t, NULL), PX_RUNTIME, bits[i]);
  }
}

// ---- storages that release their memory
PX_TEST(a_storage_can_release_and_reallocate_its_memory) {
  const float numbers[] = {1, 2, 3, 4};
  PX_SCOPED(px_tensor) t = NULL;
  OK(px_tensor_from_data(&t, numbers, SIZES(4), PX_FLOAT32, px_cpu()));
  px_storage *storage = px_tensor_storage(t);
  CHECK(px_storage_resizable(storage));
  OK(px_storage_resize(storage, 8));
  CHECK_EQ(px_storage_bytes(storage), 8);
  void *at;
  FAILS(px_tensor_host_data(&at, t), PX_RUNTIME,
        "a tensor reaches to byte 16 of a storage that resize_ has left with 8");
  CHECK(!px_tensor_data(t));
  OK(px_storage_resize(storage, 0));
  OK(px_storage_resize(storage, 16));
  OK(px_tensor_host_data(&at, t));
  memcpy(at, numbers, sizeof numbers);
  px_scalar first;
  PX_SCOPED(px_tensor) head = NULL;
  OK(px_tensor_as_strided(&head, t, 0, NULL, NULL, 2));
  OK(px_tensor_item(&first, head));
  CHECK(first.kind == 'f' && first.v.f == 3);
}

PX_TEST(a_failed_resize_changes_nothing) {
  const float numbers[] = {1, 2, 3, 4};
  PX_SCOPED(px_tensor) t = NULL;
  OK(px_tensor_from_data(&t, numbers, SIZES(4), PX_FLOAT32, px_cpu()));
  OK(px_fault_arm("alloc", 1, false));
  CHECK(px_storage_resize(px_tensor_storage(t), 64) == PX_NOMEM);
  px_fault_disarm_all();
  CHECK_EQ(px_storage_bytes(px_tensor_storage(t)), 16);
  PX_SCOPED(px_tensor) theirs = NULL;
  float memory[4] = {0};
  OK(px_tensor_wrap(&theirs, memory, sizeof memory, SIZES(4), NULL, PX_FLOAT32, px_cpu(), NULL,
                    NULL));
  CHECK(!px_storage_resizable(px_tensor_storage(theirs)));
  FAILS(px_storage_resize(px_tensor_storage(theirs), 0), PX_RUNTIME,
        "Trying to resize storage that is not resizable");
}

#ifdef __SANITIZE_ADDRESS__
int __asan_address_is_poisoned(const volatile void *address);
static void check_poison(const px_tensor *t) {
  for (int d = -1; d <= t->ndim; d++) {
    bool outside = d < 0 || d == t->ndim;
    CHECK_EQ(__asan_address_is_poisoned(t->sizes + d) != 0, outside);
    CHECK_EQ(__asan_address_is_poisoned(t->strides + d) != 0, outside);
  }
}
#else
static void check_poison(const px_tensor *t) { SKIP("no address sanitizer"); }
#endif
PX_TEST(sizes_and_strides_outside_of_the_dimensions_are_poisoned) {
  static const int64_t sizes[PX_MAX_DIMS] = {[0 ... PX_MAX_DIMS - 1] = 1};
  for (int i = 0; i < 5; i++) {
    PX_SCOPED(px_tensor) t = NULL;
    int ndim = (int[]){0, 1, PX__OWN_DIMS, PX__OWN_DIMS + 1, PX_MAX_DIMS}[i];
    OK(px_tensor_empty(&t, ndim, sizes, PX_FLOAT32, px_cpu()));
    check_poison(t);
    OK(px_tensor_resize(t, 1, sizes));
    check_poison(t);
  }
}
