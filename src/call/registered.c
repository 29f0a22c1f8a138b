// SPDX-License-Identifier: Apache-2.0
// Ops registered by programs.
//
// Their indices (px_op_at) follow those of the op tables. Publication is ordered: after
// loading the count, readers may read all ops below it. These never change. Only adding an op takes
// the lock.
#include "call/registered.h"

enum { LIMIT = 1024 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const px__registered *all[LIMIT];  // up to `count`; written under `lock`
static int count;                         // atomic

int px__registered_count(void) { return __atomic_load_n(&count, __ATOMIC_ACQUIRE); }

const px_op *px__registered_at(int i) {
  return i >= 0 && i < px__registered_count() ? &all[i]->op : NULL;
}

const px_op *px__registered_find(const char *name) {
  for (int i = 0, n = px__registered_count(); i < n; i++)
    if (!strcmp(all[i]->op.name, name)) return &all[i]->op;
  return NULL;
}

static px_status add(px__registered *r) {
  PX_CHECK(!px__registered_find(r->op.name), PX_VALUE, "op '%s' is already registered", r->op.name);
  PX_CHECK(count < LIMIT, PX_VALUE, "at most %d ops can be registered", LIMIT);
  all[count] = r;
  __atomic_store_n(&count, count + 1, __ATOMIC_RELEASE);
  return PX_OK;
}

px_status px__registered_add(px__registered *r) {
  pthread_mutex_lock(&lock);
  px_status status = add(r);
  pthread_mutex_unlock(&lock);
  return status;
}

px_kernel px__registered_kernel_find(const px_op *op, px_device_type type) {
  const px__registered *r = px__impl(op)->registered;
  if (type == PX_META) return r->kernels->device ? px__meta_launch : NULL;
  const char *device = type == PX_CPU ? "cpu" : px_device_backend();
  px_kernel host = NULL;
  for (const px_op_kernel *k = r->kernels; k->device; k++) {
    if (!strcmp(k->device, device)) return k->run;
    if (!strcmp(k->device, "cpu")) host = k->run;
  }
  return px__runs_host_kernels(type) ? host : NULL;
}
