// SPDX-License-Identifier: Apache-2.0
// Module names for operation counters (phlox/flops.h): the class of the outermost module, and the
// paths of its children. Destroyed modules are removed.
#include "phlox/flops.h"

#include <pthread.h>

#include "nn/module/nn_impl.h"

typedef struct known {
  const px_module *module;
  char *name;
} known;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // guards the variables below
static known *all;
static int count, capacity;
static uint64_t session;  // in which the names were recorded

static known *find(const px_module *module) {
  for (int i = 0; i < count; i++)
    if (all[i].module == module) return &all[i];
  return NULL;
}

static void clear_all(void) {
  for (int i = 0; i < count; i++) px_free(all[i].name);
  count = 0;
  __atomic_store_n(&px__nn_ended, NULL, __ATOMIC_RELEASE);
}

// The first module destroyed after counting has ended clears the table, so later ones take no lock.
static void remove_module(const px_module *self) {
  pthread_mutex_lock(&lock);
  known *found = find(self);
  if (px_flops_session() != session) {
    clear_all();
  } else if (found) {
    px_free(found->name);
    *found = all[--count];
  }
  pthread_mutex_unlock(&lock);
}

static px_status record(const px_module *module, const char *name) {
  char *copy;
  PX_TRY(px__nn_grow((void **)&all, &capacity, count, sizeof *all));
  PX_TRY(px_strdup(&copy, name));
  known *found = find(module);
  if (!found) {
    found = &all[count++];
    *found = (known){module, NULL};
    __atomic_store_n(&px__nn_ended, remove_module, __ATOMIC_RELEASE);
  }
  px_free(found->name);
  found->name = copy;
  return PX_OK;
}

static px_status record_entry(const char *name, const px_module_entry *entry, px_module *owner,
                              void *context) {
  return record(entry->module, name);
}

static px_status enter(px_module *self, const char *class_name) {
  uint64_t now = px_flops_session();
  if (now != session) clear_all();
  session = now;
  if (!find(self)) {
    PX_TRY(record(self, class_name));
    PX_TRY(px_module_walk(self, PX_ENTRY_MODULE, class_name, true, true, record_entry, NULL));
  }
  return px_flops_enter(find(self)->name);
}

px_status px_module_count_flops(px_module *self, const char *class_name) {
  PX_GIVEN(self);
  pthread_mutex_lock(&lock);
  px_status status = enter(self, class_name ? class_name : self->kind->name);
  pthread_mutex_unlock(&lock);
  return status == PX_OK ? PX_OK : px_error_add_frame(status, __FILE__, __LINE__, __func__);
}

px_status px__nn_call(bool *counted, px_module *self) {
  PX_TRY(px__nn_enter(self));
  *counted = px_flops_session() != 0;
  px_status status = *counted ? px_module_count_flops(self, NULL) : PX_OK;
  if (status != PX_OK) px__nn_leave();
  return status;
}

void px__nn_called(bool counted) {
  if (counted) px_flops_leave();
  px__nn_leave();
}
