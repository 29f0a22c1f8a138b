// SPDX-License-Identifier: Apache-2.0
// Storages in shared memory: what other processes see of them, and what is refused.
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

PX_TEST(a_child_and_its_parent_write_to_one_memory) {
  PX_SCOPED(px_tensor) t = ramp(4);
  PX_SCOPED(px_tensor) view = NULL;
  OK(px_tensor_as_strided(&view, t, SIZES(2), (int64_t[]){1}, 2));
  px_storage *storage = px_tensor_storage(t);
  CHECK(!px_storage_is_shared(storage));
  OK(px_storage_share(storage));
  void *memory = px_storage_data(storage);
  OK(px_storage_share(storage));  // again is nothing
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

PX_TEST(a_file_is_mapped_once_and_outlives_its_maker) {
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
  CHECK(fcntl(fd, F_GETFD) < 0);  // closed with the last
}

PX_TEST(shared_memory_of_no_bytes) {
  PX_SCOPED(px_tensor) t = ramp(0);
  int fd;
  OK(px_storage_share(px_tensor_storage(t)));
  OK(px_storage_fd(&fd, px_tensor_storage(t)));
  PX_SCOPED(px_storage) again = NULL;
  OK(px_storage_from_fd(&again, fd, 0));
  CHECK_EQ(px_storage_bytes(again), 0);
}

PX_TEST(what_is_no_shared_memory_is_refused) {
  PX_SCOPED(px_tensor) t = ramp(4);
  px_storage *none;
  int fd, pipes[2];
  FAILS(px_storage_fd(&fd, px_tensor_storage(t)), PX_RUNTIME, "not in shared memory");
  FAILS(px_storage_share(NULL), PX_TYPE, "`storage` is NULL");
  FAILS(px_storage_from_fd(&none, -1, 4), PX_RUNTIME, "unable to open shared memory");
  CHECK(pipe(pipes) == 0);
  FAILS(px_storage_from_fd(&none, pipes[0], 4), PX_VALUE, "has not the 4 bytes");
  OK(px_storage_share(px_tensor_storage(t)));
  OK(px_storage_fd(&fd, px_tensor_storage(t)));
  FAILS(px_storage_from_fd(&none, fd, 17), PX_VALUE, "has not the 17 bytes");
  CHECK(!none && ftruncate(fd, 1) < 0);  // nobody can take the memory away
  FAILS(px_tensor_resize(t, SIZES(100)), PX_RUNTIME, "storage that is not resizable");
}

PX_TEST(an_address_that_was_handed_out_stays_readable) {
  PX_SCOPED(px_tensor) t = ramp(4);
  PX_SCOPED(px_tensor) other = ramp(4);
  const float *known = floats(t), *grown = floats(other);
  OK(px_storage_share(px_tensor_storage(t)));
  OK(px_tensor_resize(other, SIZES(100000)));
  CHECK(known != floats(t) && known[3] == 3);
  CHECK(grown != floats(other) && grown[3] == 3);
}

PX_TEST(sharing_survives_every_failure) {
  static const char *const points[] = {"alloc", "file"};
  for (int point = 0; point < 2; point++) {
    bool failed = true;
    for (int64_t n = 1; failed; n++) {
      PX_SCOPED(px_tensor) t = ramp(4);
      floats(t);
      int64_t before = px_live_objects(NULL);
      OK(px_fault_arm(points[point], n, false));
      failed = px_storage_share(px_tensor_storage(t)) != PX_OK;
      px_fault_disarm_all();
      CHECK(n > 1 || failed);
      CHECK(px_storage_is_shared(px_tensor_storage(t)) == !failed);
      CHECK(floats(t)[3] == 3 && px_live_objects(NULL) == before);
    }
  }
}
