// SPDX-License-Identifier: Apache-2.0
// The names of modules where operations are counted (phlox/flops.h): the class of the module that
// was called first, and the way to those in it. A module that ends is forgotten.
#include "phlox/flops.h"

#include <pthread.h>

#include "nn/nn_impl.h"

typedef struct known {
  const px_module *module;
  char *name;
} known;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // guards what follows
static known *all;
static int count, room;
static uint64_t session;  // in which they were met

static known *find(const px_module *module) {
  for (int i = 0; i < count; i++)
    if (all[i].module == module) return &all[i];
  return NULL;
}

static void forget_all(void) {
  for (int i = 0; i < count; i++) px_free(all[i].name);
  count = 0;
  __atomic_store_n(&px__nn_ended, NULL, __ATOMIC_RELEASE);
}

// The first module that ends after counting did lets go of all, so that the others need no lock.
static void forget(const px_module *self) {
  pthread_mutex_lock(&lock);
  known *there = find(self);
  if (px_flops_session() != session) {
    forget_all();
  } else if (there) {
    px_free(there->name);
    *there = all[--count];
  }
  pthread_mutex_unlock(&lock);
}

static px_status know(const px_module *module, const char *name) {
  char *copy;
  PX_TRY(px__nn_grow((void **)&all, &room, count, sizeof *all));
  PX_TRY(px_strdup(&copy, name));
  known *there = find(module);
  if (!there) {
    there = &all[count++];
    *there = (known){module, NULL};
    __atomic_store_n(&px__nn_ended, forget, __ATOMIC_RELEASE);
  }
  px_free(there->name);
  there->name = copy;
  return PX_OK;
}

static px_status know_entry(const char *name, const px_module_entry *entry, px_module *owner,
                            void *context) {
  return know(entry->module, name);
}

static px_status enter(px_module *self, const char *class_name) {
  uint64_t now = px_flops_session();
  if (now != session) forget_all();
  session = now;
  if (!find(self)) {
    PX_TRY(know(self, class_name));
    PX_TRY(px_module_walk(self, PX_ENTRY_MODULE, class_name, true, true, know_entry, NULL));
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
