// SPDX-License-Identifier: Apache-2.0
// Storages in shared memory: visibility in other processes, and refused calls.
#include "test.h"
#include "tensor/tensor_impl.h"

#include <fcntl.h>
#include <sys/mman.h>

#define SIZES(...) \
  (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]) { __VA_ARGS__ }

static px_tensor *ramp(int64_t count) {
  float data[256];
  for (int i = 0; i < 256; i++) data[i] = (float)i;
  px_tensor *t;
  OK(px_tensor_from_data(&t, data, 1, &count, PX_FLOAT32, px_cpu()));
  return t;
}
static float *floats(px_tensor *t) { return px_tensor_data(t); }

PX_TEST(a_child_and_its_parent_share_memory) {
  PX_SCOPED(px_tensor) t = ramp(4);
  PX_SCOPED(px_tensor) view = NULL;
  OK(px_tensor_as_strided(&view, t, SIZES(2), (int64_t[]){1}, 2));
  px_storage *storage = px_tensor_storage(t);
  CHECK(!px_storage_is_shared(storage));
  OK(px_storage_share(storage));
  void *memory = px_storage_data(storage);
  OK(px_storage_share(storage));  // a second call is a no-op
  CHECK(px_storage_is_shared(storage) && px_storage_data(storage) == memory);
  CHECK(floats(t)[3] == 3 && floats(view)[1] == 3);
  pid_t child = fork();
  if (child == 0) {
    floats(t)[3] = 30;
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK_EQ(floats(view)[1], 30);
  CHECK_EQ(px_tensor_version(t), 0);
}

PX_TEST(a_file_is_mapped_once_and_outlives_its_creator) {
  px_tensor *t = ramp(8);
  int fd;
  px_storage *again, *third;
  OK(px_storage_share(px_tensor_storage(t)));
  OK(px_storage_fd(&fd, px_tensor_storage(t)));
  OK(px_storage_from_fd(&again, fd, 8 * sizeof(float)));
  CHECK(px_storage_data(again) == px_tensor_data(t) && px_storage_bytes(again) == 32);
  px_release(t);
  CHECK_EQ(((float *)px_storage_data(again))[7], 7);
  OK(px_storage_fd(&fd, again));
  OK(px_storage_from_fd(&third, fd, 4));
  px_release(again);
  CHECK_EQ(((float *)px_storage_data(third))[0], 0);
  px_release(third);
  CHECK(fcntl(fd, F_GETFD) < 0);  // closed with the last reference
}

PX_TEST(empty_shared_memory) {
  PX_SCOPED(px_tensor) t = ramp(0);
  int fd;
  OK(px_storage_share(px_tensor_storage(t)));
  OK(px_storage_fd(&fd, px_tensor_storage(t)));
  PX_SCOPED(px_storage) again = NULL;
  OK(px_storage_from_fd(&again, fd, 0));
  CHECK_EQ(px_storage_bytes(again), 0);
}

PX_TEST(invalid_shared_memory_is_refused) {
  PX_SCOPED(px_tensor) t = ramp(4);
  px_storage *none;
  int fd, pipes[2];
  FAILS(px_storage_fd(&fd, px_tensor_storage(t)), PX_RUNTIME, "not in shared memory");
  FAILS(px_storage_share(NULL), PX_TYPE, "`storage` is NULL");
  FAILS(px_storage_from_fd(&none, -1, 4), PX_RUNTIME, "unable to open shared memory");
  CHECK(pipe(pipes) == 0);
  FAILS(px_storage_from_fd(&none, pipes[0], 4), PX_VALUE,
        "a shared memory file of at least 4 bytes");
  OK(px_storage_share(px_tensor_storage(t)));
  OK(px_storage_fd(&fd, px_tensor_storage(t)));
  FAILS(px_storage_from_fd(&none, fd, 17), PX_VALUE, "a shared memory file of at least 17 bytes");
  CHECK(!none && ftruncate(fd, 1) < 0);  // no process can truncate the memory
  FAILS(px_tensor_resize(t, SIZES(100)), PX_RUNTIME, "storage that is not resizable");
}

static void only_in_child(void (*act)(const char *name), const char *name) {
  pid_t child = fork();
  if (child == 0) {
    act(name);
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}
static void write_30(const char *name) {
  px_storage *storage;
  if (px_storage_from_name(&storage, name, 16) != PX_OK) _exit(1);
  ((float *)px_storage_data(storage))[3] = 30;
  px_release(storage);
}

PX_TEST(named_memory_opens_in_another_process_and_is_unlinked) {
  px_tensor *t = ramp(4);
  char name[PX_SHARED_NAME], file[PX_SHARED_NAME] = "/dev/shm";
  int fd;
  OK(px_storage_share_named(px_tensor_storage(t)));
  CHECK(px_storage_is_shared(px_tensor_storage(t)) && px_storage_is_named(px_tensor_storage(t)));
  CHECK(floats(t)[3] == 3);
  FAILS(px_storage_fd(&fd, px_tensor_storage(t)), PX_RUNTIME, "without an open descriptor");
  OK(px_storage_name(name, px_tensor_storage(t)));
  only_in_child(write_30, name);
  CHECK_EQ(floats(t)[3], 30);
  strcpy(file + 8, name);
  *strchr(file, '@') = 0;
  CHECK(access(file, F_OK) == 0);
  px_release(t);
  CHECK(access(file, F_OK) < 0);
}

static px_tensor *named_tensor;
static void check_lost_name(const char *name) {
  char other[PX_SHARED_NAME];
  if (px_storage_name(other, px_tensor_storage(named_tensor)) != PX_RUNTIME) _exit(1);
  if (floats(named_tensor)[3] != 3) _exit(2);
}

PX_TEST(a_forked_child_keeps_memory_without_a_name) {
  named_tensor = ramp(4);
  char name[PX_SHARED_NAME];
  OK(px_storage_share_named(px_tensor_storage(named_tensor)));
  OK(px_storage_name(name, px_tensor_storage(named_tensor)));
  *strchr(name, '@') = 0;
  CHECK(shm_unlink(name) == 0);
  only_in_child(check_lost_name, name);
  px_release(named_tensor);
}

PX_TEST(addresses_stay_valid_after_sharing_or_resizing) {
  PX_SCOPED(px_tensor) t = ramp(4);
  PX_SCOPED(px_tensor) other = ramp(4);
  const float *known = floats(t), *grown = floats(other);
  OK(px_storage_share(px_tensor_storage(t)));
  OK(px_tensor_resize(other, SIZES(100000)));
  CHECK(known != floats(t) && known[3] == 3);
  CHECK(grown != floats(other) && grown[3] == 3);
}

static px_status share_and_reopen(px_storage *storage) {
  char name[PX_SHARED_NAME];
  PX_SCOPED(px_storage) back = NULL;
  PX_TRY(px_storage_share_named(storage));
  PX_TRY(px_storage_name(name, storage));
  return px_storage_from_name(&back, name, 16);
}

static void survives(px_status (*share)(px_storage *), bool is_whole) {
  static const char *const points[] = {"alloc", "file"};
  for (int point = 0; point < 2; point++) {
    bool failed = true;
    for (int64_t n = 1; failed; n++) {
      PX_SCOPED(px_tensor) t = ramp(4);
      floats(t);
      int64_t before = px_live_objects(NULL);
      OK(px_fault_arm(points[point], n, false));
      failed = share(px_tensor_storage(t)) != PX_OK;
      px_fault_disarm_all();
      CHECK(n > 1 || failed);
      CHECK(!is_whole || px_storage_is_shared(px_tensor_storage(t)) == !failed);
      CHECK(floats(t)[3] == 3 && px_live_objects(NULL) == before);
    }
  }
}
PX_TEST(sharing_survives_every_failure) {
  survives(px_storage_share, true);
  survives(px_storage_share_named, true);
  survives(share_and_reopen, false);
}
