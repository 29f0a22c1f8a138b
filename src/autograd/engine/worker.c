// SPDX-License-Identifier: Apache-2.0
// One worker thread per device, started on first use and never ended. A forked child has no workers
// and cannot use devices.
#include <stdatomic.h>

#include "autograd/engine/engine.h"

enum { DEVICES = 64 };

typedef struct px__worker {
  px__queue queue;
  pthread_t thread;
  int device;
  void (*run)(px__item item);
  _Atomic bool started;
} px__worker;

static px__worker workers[DEVICES];
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local px__worker *here;

px__queue *px__worker_queue(void) { return here ? &here->queue : NULL; }
int px__worker_device(void) { return here ? here->device : -1; }

static void *work(void *argument) {
  here = argument;
  // An error recurs when a node makes its device current.
  if (px_device_set(here->device) != PX_OK) px_error_clear();
  px__item item;
  for (bool found; px__queue_pop(&here->queue, NULL, &found, &item) == PX_OK;)
    if (found) here->run(item);
  return NULL;
}

static px_status start(px__worker *worker, int device, void (*run)(px__item item)) {
  if (worker->started) return PX_OK;
  worker->device = device;
  worker->run = run;
  px__queue_init(&worker->queue, false);
  PX_TRY(px_thread_start(&worker->thread, work, worker));
  (void)pthread_detach(worker->thread);
  worker->started = true;
  return PX_OK;
}

px_status px__worker_of(px__queue **out, int device, void (*run)(px__item item)) {
  PX_CHECK(device >= 0 && device < DEVICES, PX_BUG, "no worker for device %d", device);
  px__worker *worker = &workers[device];
  *out = &worker->queue;
  if (worker->started) return PX_OK;
  pthread_mutex_lock(&starting);
  px_status status = start(worker, device, run);
  pthread_mutex_unlock(&starting);
  return status;
}
