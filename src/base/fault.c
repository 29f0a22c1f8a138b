// SPDX-License-Identifier: Apache-2.0
// Fault points: making the n-th allocation, launch, copy... fail, for tests. Always compiled.
#include <stdio.h>

#include "base/base_impl.h"

// Not 0 at the start, so that the first passage reads PHLOX_FAULT.
int px__fault_armed = 1;

static const char *const names[] = {
#define XX(name, text) text,
    PX_FAULT_POINTS(XX)
#undef XX
};
// Each field is atomic: points are passed by many threads.
static struct {
  int64_t nth;  // 0 disarmed
  int64_t seen;
  bool onward;
} points[PX__FAULT_COUNT];

static int point_of(const char *name) {
  for (int i = 0; i < PX__FAULT_COUNT; i++)
    if (!strcmp(names[i], name)) return i;
  return -1;
}

static void arm(int i, int64_t nth, bool onward) {
  int before = __atomic_load_n(&points[i].nth, __ATOMIC_RELAXED) != 0;
  __atomic_store_n(&points[i].seen, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&points[i].onward, onward, __ATOMIC_RELAXED);
  __atomic_store_n(&points[i].nth, nth, __ATOMIC_RELAXED);
  __atomic_add_fetch(&px__fault_armed, (nth != 0) - before, __ATOMIC_RELAXED);
}

// "launch:3,copy:2+": the third launch, and all copies from the second. What cannot be read is left
// out.
static void read_environment(void) {
  const char *at = px__env("PHLOX_FAULT");
  while (at && *at) {
    size_t length = strcspn(at, ",");
    char name[32];
    long long nth = 0;
    char onward = 0;
    int read = length < sizeof name ? sscanf(at, "%31[a-z.]:%lld%c", name, &nth, &onward) : 0;
    if (read >= 2 && point_of(name) >= 0 && nth > 0) arm(point_of(name), nth, onward == '+');
    at += length + (at[length] == ',');
  }
  __atomic_sub_fetch(&px__fault_armed, 1, __ATOMIC_RELAXED);
}

static void begin(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, read_environment);
}

bool px__fault_hit(px__fault_point point) {
  begin();
  int64_t nth = __atomic_load_n(&points[point].nth, __ATOMIC_RELAXED);
  if (!nth) return false;
  int64_t seen = __atomic_add_fetch(&points[point].seen, 1, __ATOMIC_RELAXED);
  return seen == nth || (points[point].onward && seen > nth);
}

px_status px_fault_arm(const char *point, int64_t nth, bool from_then_on) {
  PX_GIVEN(point);
  int i = point_of(point);
  PX_CHECK(i >= 0, PX_KEY, "there is no fault point '%s'", point);
  begin();
  PX_CHECK(nth >= 0, PX_VALUE, "a fault's number counts from 1, but got %lld", (long long)nth);
  arm(i, nth, from_then_on);
  return PX_OK;
}

int64_t px_fault_seen(const char *point) {
  int i = point_of(point);
  return i < 0 ? 0 : __atomic_load_n(&points[i].seen, __ATOMIC_RELAXED);
}

bool px_fault_pass(const char *point) {
  if (PX_LIKELY(__atomic_load_n(&px__fault_armed, __ATOMIC_RELAXED) == 0)) return false;
  int i = point_of(point);
  return i >= 0 && px__fault_hit((px__fault_point)i);
}

void px_fault_disarm_all(void) {
  begin();
  for (int i = 0; i < PX__FAULT_COUNT; i++) arm(i, 0, false);
}
