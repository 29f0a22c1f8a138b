// SPDX-License-Identifier: Apache-2.0
// DLPack: zero-copy export and import, with exactly one release.
#include "devices.h"
#include "phlox/dlpack.h"

#include <semaphore.h>

static px_tensor *made(px_dtype dtype) {
  px_tensor *t;
  OK(px_tensor_empty(&t, 2, (int64_t[]){2, 3}, dtype, px_cpu()));
  return t;
}

PX_TEST(an_export_shares_memory_and_keeps_it) {
  px_tensor *t = made(PX_FLOAT32);
  void *data = px_tensor_data(t);
  px_dl_managed *managed;
  OK(px_dlpack_export(&managed, t, NULL));
  px_release(t);
  CHECK(managed->dl_tensor.data == data);
  CHECK_EQ(managed->dl_tensor.device.device_type, 1);
  CHECK_EQ(managed->dl_tensor.shape[1], 3);
  CHECK_EQ(managed->dl_tensor.strides[0], 3);
  CHECK_EQ(managed->dl_tensor.dtype.bits, 32);
  managed->deleter(managed);
  CHECK_EQ(px_live_objects("tensor"), 0);
}

PX_TEST(a_round_trip_keeps_the_memory) {
  for (int dtype = 0; dtype < PX_DTYPE_COUNT; dtype++) {
    px_tensor *t = made((px_dtype)dtype), *back;
    px_dl_managed *managed;
    OK(px_dlpack_export(&managed, t, NULL));
    OK(px_dlpack_import_take(&back, managed));
    CHECK(px_tensor_data(back) == px_tensor_data(t));
    CHECK_EQ(px_tensor_dtype(back), dtype);
    CHECK_EQ(px_tensor_size(back, 1), 3);
    px_release(t);
    px_release(back);
    CHECK_EQ(px_live_objects("tensor"), 0);
  }
}

PX_TEST(versioned_exports_have_a_version_and_flags) {
  const uint64_t flags[] = {0, PX_DL_READ_ONLY, PX_DL_IS_COPIED, PX_DL_READ_ONLY | PX_DL_IS_COPIED};
  for (int i = 0; i < 4; i++) {
    px_tensor *t = made(PX_FLOAT32), *back;
    px_dl_versioned *managed;
    void *data = px_tensor_data(t);
    OK(px_dlpack_export_versioned(&managed, t, NULL, flags[i]));
    px_release(t);
    CHECK_EQ(managed->version.major, 1);
    CHECK(managed->flags == flags[i] && px_dlpack_is_own(managed));
    CHECK(managed->dl_tensor.data == data);
    CHECK_EQ(managed->dl_tensor.strides[0], 3);
    OK(px_dlpack_import_versioned_take(&back, managed));
    CHECK(px_tensor_data(back) == data);
    px_release(back);
    CHECK_EQ(px_live_objects("tensor"), 0);
  }
}

PX_TEST(unknown_flags_and_versions_are_refused) {
  px_tensor *t = made(PX_FLOAT32), *back;
  px_dl_versioned *managed;
  FAILS(px_dlpack_export_versioned(&managed, t, NULL, 8), PX_VALUE, "unknown DLPack flags: 8");
  CHECK(!managed);
  OK(px_dlpack_export_versioned(&managed, t, NULL, 0));
  managed->version.major = 2;
  FAILS(px_dlpack_import_versioned_take(&back, managed), PX_RUNTIME, "got version 2.3");
  managed->version = (px_dl_version){1, 99};  // minor versions add only values
  OK(px_dlpack_import_versioned_take(&back, managed));
  px_release(back);
  px_release(t);
}

static int versions_released;
static void count_version(px_dl_versioned *self) { versions_released++; }
PX_TEST(foreign_versioned_memory_is_released_once) {
  float numbers[] = {1, 2, 3};
  int64_t size = 3;
  px_scalar last;
  px_tensor *t;
  px_dl_versioned managed = {.version = {1, 0},
                             .deleter = count_version,
                             .flags = PX_DL_READ_ONLY,
                             .dl_tensor = {numbers, {1, 0}, 1, {2, 32, 1}, &size, NULL, 4}};
  CHECK(!px_dlpack_is_own(&managed));
  managed.dl_tensor.shape[0] = 2;
  OK(px_dlpack_import_versioned_take(&t, &managed));
  PX_SCOPED(px_tensor) one = NULL;
  OK(px_select(&one, t, 0, 1));
  OK(px_tensor_item(&last, one));
  CHECK_EQ(px_scalar_float(last), 3);
  px_release(t);
  CHECK_EQ(versions_released, 0);
  px_release(PX_MOVE(one));
  CHECK_EQ(versions_released, 1);
}

PX_TEST(a_description_borrows_the_tensor) {
  PX_SCOPED(px_tensor) t = made(PX_FLOAT32);
  px_dl_tensor described;
  OK(px_dlpack_describe(&described, t));
  CHECK(described.data == px_tensor_data(t) && described.shape == px_tensor_sizes(t));
  CHECK(described.strides == px_tensor_strides(t));
  CHECK_EQ(described.ndim, 2);
}

PX_TEST(an_empty_tensor_follows_its_prototype) {
  px_tensor *t;
  int64_t sizes[] = {2, 3};
  px_dl_tensor prototype = {.device = {1, 0}, .ndim = 2, .dtype = {0, 16, 1}, .shape = sizes};
  OK(px_dlpack_empty(&t, &prototype));
  CHECK_EQ(px_tensor_dtype(t), PX_INT16);
  CHECK_EQ(px_tensor_size(t, 1), 3);
  px_release(t);
  prototype.device.device_type = 7;
  FAILS(px_dlpack_empty(&t, &prototype), PX_RUNTIME, "Unsupported device_type: 7");
  prototype.device.device_type = 1;
  prototype.ndim = 65;
  FAILS(px_dlpack_empty(&t, &prototype), PX_RUNTIME, "dimensions, got 65");
}

PX_TEST(unsupported_imports_stay_with_the_exporter) {
  px_tensor *t = made(PX_FLOAT32), *back;
  px_dl_managed *managed;
  OK(px_dlpack_export(&managed, t, NULL));
  managed->dl_tensor.dtype.code = 3;  // an opaque handle
  FAILS(px_dlpack_import_take(&back, managed), PX_RUNTIME, "Unsupported DLPack dtype");
  managed->dl_tensor.dtype.code = 2;
  managed->dl_tensor.device.device_type = 7;  // Vulkan
  FAILS(px_dlpack_import_take(&back, managed), PX_RUNTIME, "Unsupported device_type: 7");
  managed->dl_tensor.device.device_type = 1;
  px_dl_tensor good = managed->dl_tensor;
  managed->dl_tensor.ndim = -1;
  FAILS(px_dlpack_import_take(&back, managed), PX_RUNTIME, "dimensions, got -1");
  managed->dl_tensor.ndim = 65;
  FAILS(px_dlpack_import_take(&back, managed), PX_RUNTIME, "dimensions, got 65");
  managed->dl_tensor.ndim = good.ndim;
  managed->dl_tensor.shape = NULL;
  FAILS(px_dlpack_import_take(&back, managed), PX_RUNTIME, "needs a shape");
  managed->dl_tensor.shape = (int64_t[]){(int64_t)1 << 62, 8, 8};
  FAILS(px_dlpack_import_take(&back, managed), PX_RUNTIME, "overflowed");
  managed->dl_tensor.shape = (int64_t[]){-2, 8, 8};
  FAILS(px_dlpack_import_take(&back, managed), PX_RUNTIME, "");
  managed->dl_tensor = good;
  managed->dl_tensor.data = NULL;
  FAILS(px_dlpack_import_take(&back, managed), PX_VALUE, "needs memory, but got NULL");
  managed->dl_tensor = good;
  managed->dl_tensor.byte_offset = (uint64_t)1 << 63;
  FAILS(px_dlpack_import_take(&back, managed), PX_RUNTIME, "byte_offset");
  managed->dl_tensor = good;
  managed->deleter(managed);
  px_release(t);
}

static px_dl_managed managed_tensor(void *data, px_dl_device device, int64_t *sizes,
                                    int64_t *strides) {
  return (px_dl_managed){.dl_tensor = {.data = data,
                                       .device = device,
                                       .ndim = 1,
                                       .dtype = {2, 32, 1},
                                       .shape = sizes,
                                       .strides = strides}};
}

PX_TEST(unaligned_elements_are_computed_without_touching_gaps) {
  char bytes[1 + 5 * sizeof(float)];
  int64_t sizes[] = {3}, strides[] = {2};
  float two = 2, result;
  px_tensor *t;
  memset(bytes, 0x55, sizeof bytes);
  for (int i = 0; i < 3; i++) memcpy(bytes + 1 + 8 * i, &two, sizeof two);
  px_dl_managed managed = managed_tensor(bytes + 1, (px_dl_device){1, 0}, sizes, strides);
  OK(px_dlpack_import_take(&t, &managed));
  OK(px_add_(t, t, px_int(3)));
  OK(px_mul_(t, t));
  memcpy(&result, bytes + 17, sizeof result);
  CHECK_EQ(result, 64);
  for (int i = 0; i < 4; i++) CHECK(bytes[5 + i] == 0x55 && bytes[13 + i] == 0x55);
  px_scalar last;
  PX_SCOPED(px_tensor) one = NULL;
  OK(px_select(&one, t, 0, 2));
  OK(px_tensor_item(&last, one));
  CHECK_EQ(px_scalar_float(last), 64);
  px_release(t);
}

PX_TEST(without_memory_for_aligned_copies_nothing_is_written) {
  char bytes[17] = {0}, zeros[17] = {0};
  int64_t size = 4;
  px_tensor *t;
  px_dl_managed managed = managed_tensor(bytes + 1, (px_dl_device){1, 0}, &size, NULL);
  OK(px_dlpack_import_take(&t, &managed));
  px_status status = PX_NOMEM;
  for (int n = 1; status == PX_NOMEM; n++) {
    CHECK(!memcmp(bytes, zeros, sizeof bytes));
    OK(px_fault_arm("alloc", n, false));
    status = px_fill_(t, px_float(1));
    px_fault_disarm_all();
  }
  CHECK_EQ(status, PX_OK);
  CHECK(memcmp(bytes, zeros, sizeof bytes));
  px_release(t);
}

PX_TEST(memory_unreadable_by_the_device_is_refused) {
  simulate(1);
  px_tensor *t;
  int64_t size = 1;
  PX_SCOPED(px_tensor) memory = NULL;
  OK(px_ones(&memory, (int64_t[]){4}, 1, PX_FLOAT32, px_cuda(0), false, false));
  char *at = px_tensor_data(memory);
  px_dl_managed odd = managed_tensor(at + 2, (px_dl_device){2, 0}, &size, NULL);
  FAILS(px_dlpack_import_take(&t, &odd), PX_RUNTIME, "aligned to 4 bytes");
  px_dl_managed nowhere = managed_tensor(at, (px_dl_device){2, -1}, &size, NULL);
  FAILS(px_dlpack_import_take(&t, &nowhere), PX_RUNTIME, "invalid device_id -1");
}

PX_TEST(any_nonzero_byte_is_true) {
  uint8_t bytes[] = {0, 1, 2, 255};
  int64_t size = 4, read;
  px_tensor *t;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_SCOPED(px_tensor) both = NULL;
  px_dl_managed managed = managed_tensor(bytes, (px_dl_device){1, 0}, &size, NULL);
  managed.dl_tensor.dtype = (px_dl_dtype){6, 8, 1};
  OK(px_dlpack_import_take(&t, &managed));
  OK(px_bitwise_and(&both, t, t));
  OK(px_sum_all(&sum, both, PX_DTYPE_NONE));
  OK(px_tensor_read(sum, &read, sizeof read));
  CHECK_EQ(read, 3);
  px_release(t);
}

// ---- devices: the race checker verifies ordering

static px_tensor *filled(void) {
  px_tensor *t;
  simulate(1);
  px_race_enable(1, false);
  OK(px_ones(&t, (int64_t[]){4}, 1, PX_FLOAT32, px_cuda(0), false, false));
  return t;
}
// Reads the tensor on a stream. Returns the number of races so far.
static int64_t races_of_a_read(px_tensor *t, px_stream *stream) {
  PX_SCOPED(px_tensor) sum = NULL;
  OK(px_stream_set_current(stream));
  OK(px_sum_all(&sum, t, PX_DTYPE_NONE));
  OK(px_device_synchronize(0));
  return px_race_count();
}

PX_TEST(an_export_orders_work_before_the_consumer_stream) {
  PX_SCOPED(px_tensor) t = filled();
  PX_SCOPED(px_stream) s = NULL;
  px_dl_managed *managed;
  OK(px_stream_new(&s, px_cuda(0), 0));
  OK(px_dlpack_export_native(&managed, t, px_stream_native(s)));
  CHECK_EQ(races_of_a_read(t, s), 0);
  managed->deleter(managed);
}

PX_TEST(an_export_without_a_stream_orders_nothing) {
  setenv("PHLOX_SIM_MODE", "schedule", 1);  // one thread: the race is reported and does not happen
  PX_SCOPED(px_tensor) t = filled();
  PX_SCOPED(px_stream) s = NULL;
  px_dl_managed *managed;
  OK(px_stream_new(&s, px_cuda(0), 0));
  OK(px_dlpack_export(&managed, t, NULL));
  CHECK_EQ(races_of_a_read(t, s), 1);
  managed->deleter(managed);
}

PX_TEST(the_host_waits_for_simulated_work_before_foreign_streams) {
  setenv("PHLOX_SIM_DELAY", "2000", 1);
  PX_SCOPED(px_tensor) t = filled();
  px_stream *s;
  px_dl_managed *managed;
  bool done = false;
  for (int i = 0; i < 10; i++) OK(px_mul_(t, t));
  OK(px_dlpack_export_native(&managed, t, (void *)1));
  OK(px_stream_default(&s, px_cuda(0)));
  OK(px_stream_query(&done, s));
  CHECK(done);
  managed->deleter(managed);
}

// ---- imported memory

static int released_count;
static void count_release(px_dl_managed *self) { released_count++; }
static void wait_for_post(void *gate) {
  while (sem_wait(gate)) continue;
}
PX_TEST(memory_in_use_is_released_after_its_work_without_blocking) {
  PX_SCOPED(px_tensor) t = filled();
  px_tensor *imported;
  px_stream *s;
  sem_t gate;
  int64_t size = 4;
  px_dl_managed managed = {.dl_tensor = {.data = px_tensor_data(t),
                                         .device = {2, 0},
                                         .ndim = 1,
                                         .dtype = {2, 32, 1},
                                         .shape = &size},
                           .deleter = count_release};
  OK(px_dlpack_import_take(&imported, &managed));
  sem_init(&gate, 0, 0);
  OK(px_device_synchronize(0));
  OK(px_stream_current(&s, px_cuda(0)));
  OK(px_stream_host_call(s, wait_for_post, &gate));
  OK(px_mul_(imported, imported));
  px_release(imported);
  CHECK_EQ(released_count, 0);
  sem_post(&gate);
  OK(px_device_synchronize(0));
  CHECK_EQ(released_count, 1);
}
PX_TEST(idle_memory_is_released_immediately) {
  PX_SCOPED(px_tensor) t = filled();
  px_tensor *imported;
  px_dl_managed *managed;
  OK(px_dlpack_export(&managed, t, NULL));
  OK(px_dlpack_import_take(&imported, managed));
  OK(px_mul_(imported, imported));
  OK(px_device_synchronize(0));
  int64_t before = px_live_objects("tensor");
  px_release(imported);
  CHECK_EQ(px_live_objects("tensor"), before - 1);
}
PX_TEST(export_keeps_its_memory_after_the_tensor_gets_other_data) {
  PX_SCOPED(px_tensor) t = NULL;
  PX_SCOPED(px_tensor) other = NULL;
  PX_SCOPED(px_tensor) imported = NULL;
  px_scalar sum;
  px_dl_managed *managed;
  OK(px_full(&t, (int64_t[]){4096}, 1, px_float(3), PX_FLOAT32, px_cpu(), false, false));
  OK(px_dlpack_export(&managed, t, NULL));
  OK(px_tensor_empty(&other, 0, NULL, PX_FLOAT32, px_cpu()));
  OK(px_tensor_set_data(t, other));
  OK(px_dlpack_import_take(&imported, managed));
  PX_SCOPED(px_tensor) total = NULL;
  OK(px_sum(&total, imported, NULL, 0, false, PX_DTYPE_NONE));
  OK(px_tensor_item(&sum, total));
  CHECK_EQ(px_scalar_float(sum), 3 * 4096);
}
