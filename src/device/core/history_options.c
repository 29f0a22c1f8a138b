// SPDX-License-Identifier: Apache-2.0
// Options of the memory history, and the reasons to bypass the fast bins.
#include "device/cache/cache.h"

int px__bins_disabled;
static int wanted;        // px_history_stacks; atomic
static unsigned skipped;  // bits of px_memory_action; atomic
static bool lines_only;   // atomic

bool px__history_wants(px_history_stacks stacks) {
  return px__history_on() && __atomic_load_n(&wanted, __ATOMIC_RELAXED) >= (int)stacks;
}

bool px__history_names_ops(void) { return !__atomic_load_n(&lines_only, __ATOMIC_RELAXED); }

bool px__history_skips(px_memory_action action) {
  return __atomic_load_n(&skipped, __ATOMIC_RELAXED) >> action & 1;
}

void px__history_choose(const px_memory_history *history) {
  static const px_memory_history none;
  const px_memory_history *h = history ? history : &none;
  __atomic_store_n(&wanted, (int)h->stacks, __ATOMIC_RELAXED);
  __atomic_store_n(&skipped, h->skipped, __ATOMIC_RELAXED);
  __atomic_store_n(&lines_only, h->lines_only, __ATOMIC_RELAXED);
  px__bins_disable(PX__RECORDED, history != NULL);
  px__watch(PX__WATCH_CALLERS, h->stacks != PX_HISTORY_NO_STACKS && !h->lines_only);
}
