// SPDX-License-Identifier: Apache-2.0
// Fault points: fail the n-th allocation, launch, copy... for tests. Always compiled in.
#include <stdio.h>

#include "base/base_impl.h"

// Starts at 1: the first point reached then reads PHLOX_FAULT.
int px__fault_armed = 1;

static const char *const names[] = {
#define XX(name, text) text,
    PX_FAULT_POINTS(XX)
#undef XX
};
// Fields are atomic: many threads reach points.
static struct {
  int64_t nth;   // 0: disarmed
  int64_t seen;  // times reached since armed
  bool from_then_on;
} points[PX__FAULT_COUNT];

static const char *name_at(const void *table, int i) {
  return i < PX__FAULT_COUNT ? names[i] : NULL;
}

static int point_of(const char *name) {
  for (int i = 0; i < PX__FAULT_COUNT; i++)
    if (!strcmp(names[i], name)) return i;
  return -1;
}

static void arm(int i, int64_t nth, bool from_then_on) {
  int before = __atomic_load_n(&points[i].nth, __ATOMIC_RELAXED) != 0;
  __atomic_store_n(&points[i].seen, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&points[i].from_then_on, from_then_on, __ATOMIC_RELAXED);
  __atomic_store_n(&points[i].nth, nth, __ATOMIC_RELAXED);
  __atomic_add_fetch(&px__fault_armed, (nth != 0) - before, __ATOMIC_RELAXED);
}

// Parses an item of PHLOX_FAULT, "launch:3" or "copy:2+".
static bool read_item(const char *at, size_t length, int *point, int64_t *nth, bool *from_then_on) {
  char item[48], name[32];
  long long number = 0;
  int end = 0;
  if (length >= sizeof item) return false;
  snprintf(item, sizeof item, "%.*s", (int)length, at);
  if (sscanf(item, "%31[a-z.]:%lld%n", name, &number, &end) != 2) return false;
  *point = point_of(name);
  *nth = number;
  *from_then_on = item[end] == '+';
  return *point >= 0 && number > 0 && !item[end + *from_then_on];
}

// Parses PHLOX_FAULT, and arms its points if `arms`.
static px_status read_list(bool arms) {
  const char *text;
  PX_TRY(px__env_PHLOX_FAULT(&text));
  for (const char *at = text; at && *at;) {
    size_t length = strcspn(at, ",");
    int point;
    int64_t nth;
    bool from_then_on;
    PX_CHECK(read_item(at, length, &point, &nth, &from_then_on), PX_VALUE,
             "PHLOX_FAULT must be fault points such as launch:3 or copy:2+, separated by commas, "
             "but is '%.40s'",
             text);
    if (arms) arm(point, nth, from_then_on);
    at += length + (at[length] == ',');
  }
  return PX_OK;
}

px_status px__fault_begin(void) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static bool begun;  // atomic; set under the lock
  if (__atomic_load_n(&begun, __ATOMIC_ACQUIRE)) return PX_OK;
  pthread_mutex_lock(&lock);
  px_status status = begun ? PX_OK : read_list(false);
  if (status == PX_OK && !begun) {
    status = read_list(true);
    __atomic_sub_fetch(&px__fault_armed, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&begun, true, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&lock);
  return status;
}

bool px__fault_hit(px__fault_point point) {
  if (px__fault_begin() != PX_OK) return point == PX__FAULT_ALLOC;  // its caller reports the error
  int64_t nth = __atomic_load_n(&points[point].nth, __ATOMIC_RELAXED);
  if (!nth) return false;
  int64_t seen = __atomic_add_fetch(&points[point].seen, 1, __ATOMIC_RELAXED);
  bool later = __atomic_load_n(&points[point].from_then_on, __ATOMIC_RELAXED);
  return seen == nth || (later && seen > nth);
}

px_status px_fault_arm(const char *point, int64_t nth, bool from_then_on) {
  PX_GIVEN(point);
  int i = point_of(point);
  PX_CHECK(i >= 0, PX_KEY, "there is no fault point '%.64s': the nearest name is %s", point,
           px_name_suggest(point, name_at, NULL));
  PX_TRY(px__fault_begin());
  PX_CHECK(nth >= 0, PX_VALUE, "a fault's number counts from 1, but got %lld", (long long)nth);
  arm(i, nth, from_then_on);
  return PX_OK;
}

int64_t px_fault_seen(const char *point) {
  int i = point_of(point);
  return i < 0 ? 0 : __atomic_load_n(&points[i].seen, __ATOMIC_RELAXED);
}

bool px_fault_check(const char *point) {
  if (PX_LIKELY(__atomic_load_n(&px__fault_armed, __ATOMIC_RELAXED) == 0)) return false;
  int i = point_of(point);
  return i >= 0 && px__fault_hit((px__fault_point)i);
}

void px_fault_disarm_all(void) {
  if (px__fault_begin() != PX_OK) px_error_clear();
  for (int i = 0; i < PX__FAULT_COUNT; i++) arm(i, 0, false);
}
