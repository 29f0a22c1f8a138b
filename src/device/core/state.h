// SPDX-License-Identifier: Apache-2.0
// State of the device layer: the runtime and its devices.
//
// Lock order: registry < graph, event < pinned memory < device < captures, race checker < spin lock
// of an allocation's uses, lock of a fast bin. A thread never holds the locks of two devices. Never
// block on a device while holding a lock, except in raw frees and to release idle segments.
#pragma once
#include "device/core/types.h"

// ---- the runtime
extern px__runtime px__rt;
extern _Thread_local PX__HIDDEN_THREAD int px__current_device;  // an index
// True if the backend's table has an optional row, and it is set.
#define PX__BACKEND_HAS(backend, row) \
  ((backend)->size > offsetof(px_backend, row) && (backend)->row)
extern px_stream *px__streams[PX__STREAM_LIMIT];  // by index
px_status px__error_cuda(int code) __attribute__((warn_unused_result));

// ---- devices
// Implementation of px_device_init, px_device_count and px__device_open. The registry sets it when
// the library is loaded.
typedef struct px__opener {
  px_status (*init)(void);
  int (*count)(px_device_type type);
  px_status (*open)(px__device **out, int index);
} px__opener;
extern const px__opener *px__device_opener;
// Returns the device, initialised and open. Fails with PX_ACCELERATOR 101 for a bad index.
px_status px__device_open(px__device **out, int index) __attribute__((warn_unused_result));
static inline px_status px__device_get(px__device **out, int index) {
  *out = px__device_found(index);
  return PX_LIKELY(*out != NULL) ? PX_OK : px__device_open(out, index);
}
// The same for an index from the program: a negative one means the current device.
px_status px__device_resolve(px__device **out, int index) __attribute__((warn_unused_result));
// True if device calls are allowed: initialised, and not in a forked child.
static inline bool px__device_alive(void) {
  return __atomic_load_n(&px__rt.ready, __ATOMIC_ACQUIRE) && !px__rt.forked;
}
static inline void px__device_lock(px__device *d) { pthread_mutex_lock(&d->lock); }
static inline void px__device_unlock(px__device *d) { pthread_mutex_unlock(&d->lock); }

// ---- waits of the host
// Warns or fails before a synchronizing call, as px_sync_debug_set asked. No lock held.
px_status px__sync_point(void) __attribute__((warn_unused_result));
// Brackets a wait of the host with the hooks of px_wait_set_hooks.
typedef struct px__waiting {
  void (*end)(void *held);
  void *held;
} px__waiting;
px__waiting px__wait_begin(void);
void px__wait_end(px__waiting now);

// ---- call sites
enum { PX__SITE_TEXT = 1024 };
// Fills in the origin of work of the calling thread. `written` is its first written operand, or
// NULL. No lock held.
void px__work_find_site(px__work *work, const px_allocation *written);
// Fills in up to `capacity` frames of the calling thread, the node of a running backward pass
// first, and returns their number. `other` is the origin of its work if the language reports no
// frames. latest: only the origin of the thread's latest work.
int px__site_frames(px_frame *frames, int capacity, bool latest, px_site *other);
// Origin of the thread's work now.
void px__site_find(px_site *out);
// Formats " at FILE:LINE in NODE of FILE:LINE"; unknown parts are left out.
const char *px__site_text(const px__work *work, char text[PX__SITE_TEXT]);

// ---- stacks
// Return the op and the frames of the calling thread; NULL without memory. The first and the last
// require no lock held. at_launch runs under the device's lock, for the launch being issued.
const px_traceback *px__stack_here(void);
const px_traceback *px__stack_at_launch(void);
const px_traceback *px__stack_of_lines(void);  // without the op

// ---- settings
extern bool px__deterministic;        // atomic; settings.deterministic
extern size_t px__pinned_max_cached;  // atomic; settings.pinned_max_cached
// Reads the environment unless settings were made already. PX_VALUE with PyTorch's texts.
px_status px__settings_start(void) __attribute__((warn_unused_result));
px_status px__settings_warn(void) __attribute__((warn_unused_result));  // no lock held
void px__settings_apply(px__device *d);                                 // no lock held
void px__settings_limit(px__device *d, double fraction);                // lock held

// ---- trees of free memory
void px__tree_insert(px__tree_node **root, px__tree_node *node);
void px__tree_remove(px__tree_node **root, px__tree_node *node);
px__tree_node *px__tree_lower_bound(px__tree_node *root, size_t size);  // first of at least `size`
px__tree_node *px__tree_next(px__tree_node *root, px__tree_node *of);   // next in order

// ---- options of the memory history, and reasons to bypass the fast bins
enum { PX__RECORDED = 1, PX__UNCACHED = 2, PX__PLUGGED = 4 };
extern PX__HIDDEN int px__bins_disabled;  // atomic; reasons to bypass the fast bins
static inline bool px__bins_disabled_for(int why) {
  return PX_UNLIKELY((__atomic_load_n(&px__bins_disabled, __ATOMIC_RELAXED) & why) != 0);
}
static inline void px__bins_disable(int why, bool on) {
  if (on)
    __atomic_fetch_or(&px__bins_disabled, why, __ATOMIC_RELAXED);
  else
    __atomic_fetch_and(&px__bins_disabled, ~why, __ATOMIC_RELAXED);
}
static inline bool px__history_on(void) { return px__bins_disabled_for(PX__RECORDED); }
bool px__history_wants(px_history_stacks stacks);
bool px__history_names_ops(void);
bool px__history_skips(px_memory_action action);
// Sets the history options from now on (NULL: no history). Call px__history_begin for each device
// first, under its lock.
void px__history_choose(const px_memory_history *history);
