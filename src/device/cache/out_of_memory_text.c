// SPDX-License-Identifier: Apache-2.0
// PyTorch's text of an out-of-memory error.
#include "device/cache/cache.h"

#include <stdio.h>
#include <unistd.h>

// Describes the processes that hold memory of the device.
static void list_processes(px__device *d, char *text, size_t capacity) {
  px_process rows[4];
  char held[PX__SIZE_TEXT];
  size_t used = 0;
  int count = px__rt.backend->processes(d->physical, rows, PX_COUNT_OF(rows));
  *text = 0;
  for (int i = 0; i < count && used < capacity; i++) {
    px__bytes_text(held, rows[i].bytes);
    bool own = rows[i].id == (int64_t)getpid();
    int more =
        own ? snprintf(text + used, capacity - used,
                       "Including non-PyTorch memory, this process has %s memory in use. ", held)
            : snprintf(text + used, capacity - used, "Process %lld has %s memory in use. ",
                       (long long)rows[i].id, held);
    used += (size_t)more;
  }
}

typedef struct figures {
  size_t wanted, reserved, limit;
  uint64_t allocated, private_pools;  // bytes; graphs: the part in private pools
} figures;

static figures figures_of(px__device *d, size_t bytes) {
  px__device_lock(d);
  figures f = {.wanted = px__segment_size(d, bytes),
               .reserved = d->cache.reserved,
               .limit = d->cache.limit,
               .allocated = (uint64_t)d->cache.statistics.allocated_bytes[0].current,
               .private_pools = px__private_pools_allocated(d)};
  px__device_unlock(d);
  return f;
}

// ---- observers

enum { OBSERVERS = 16 };
static struct {
  px_shortage_observer call;
  void *context;
} observers[OBSERVERS];
static int observer_count;  // atomic; entries below it do not change
static pthread_mutex_t observers_lock = PTHREAD_MUTEX_INITIALIZER;

px_status px_memory_observe_shortage(px_shortage_observer observer, void *context) {
  PX_CHECK(observer, PX_TYPE, "an observer of shortages needs a function");
  pthread_mutex_lock(&observers_lock);
  int at = observer_count;
  if (at < OBSERVERS) {
    observers[at].call = observer, observers[at].context = context;
    __atomic_store_n(&observer_count, at + 1, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&observers_lock);
  PX_CHECK(at < OBSERVERS, PX_RUNTIME, "there are %d observers of shortages, the maximum",
           OBSERVERS);
  return PX_OK;
}

static void tell_observers(const px__device *d, const figures *f, size_t total, size_t unused) {
  int count = __atomic_load_n(&observer_count, __ATOMIC_ACQUIRE);
  for (int i = 0; i < count; i++)
    observers[i].call(d->index, f->wanted, f->limit ? f->limit : total, unused,
                      observers[i].context);
}

px_status px__out_of_memory(px__device *d, size_t bytes) {
  size_t free_bytes = 0, total = d->properties.total_memory;
  typedef char size[PX__SIZE_TEXT];
  size wanted, has, unused, allowed, live, idle, pools;
  char processes[320], limit[64] = "", private[96] = "", more[2600];
  figures f = figures_of(d, bytes);
  if (px__rt.backend->memory_info(d->physical, &free_bytes, &total) != PX_OK) px_error_clear();
  tell_observers(d, &f, total, free_bytes);
  list_processes(d, processes, sizeof processes);
  if (f.limit) snprintf(limit, sizeof limit, "%s allowed; ", px__bytes_text(allowed, f.limit));
  if (f.private_pools)
    snprintf(private, sizeof private, "with %s allocated in private pools (e.g., CUDA Graphs), ",
             px__bytes_text(pools, f.private_pools));
  px__shortage shortage = {.wanted = f.wanted, .unused = free_bytes, .limit = f.limit};
  px__shortage_text(more, sizeof more, d, &shortage);
  PX_FAIL(
      PX_OUT_OF_MEMORY,
      "CUDA out of memory. Tried to allocate %s. GPU %d has a total capacity of %s of which %s "
      "is free. %s%sOf the allocated memory %s is allocated by PyTorch, %sand %s is reserved by "
      "PyTorch but unallocated. If reserved but unallocated memory is large try setting "
      "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See "
      "documentation for Memory Management  "
      "(https://docs.pytorch.org/docs/stable/notes/"
      "cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)%s",
      px__bytes_text(wanted, f.wanted), d->index, px__bytes_text(has, total),
      px__bytes_text(unused, free_bytes), processes, limit, px__bytes_text(live, f.allocated),
      private, px__bytes_text(idle, f.reserved - f.allocated), more);
}
