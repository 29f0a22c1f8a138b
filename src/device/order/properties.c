// SPDX-License-Identifier: Apache-2.0
// Properties of devices, and peer access.
#include "device/core/state.h"

static bool is_device(int index) { return index >= 0 && index < px__rt.count; }

px_status px_device_get_properties(px_device_properties *out, int index) {
  PX_GIVEN(out);
  px__device *d;
  PX_TRY(px_device_init());
  PX_CHECK(is_device(index), PX_ASSERTION, "Invalid device id");
  PX_TRY(px__device_get(&d, index));
  *out = d->properties;
  return PX_OK;
}

px_status px__device_of_uuid(int *out, const unsigned char uuid[16]) {
  px_device_properties properties;
  PX_TRY(px_device_init());
  for (*out = 0; *out < px__rt.count; ++*out) {  // does not open devices
    PX_TRY(px__rt.backend->properties(px__rt.devices[*out]->physical, &properties));
    if (!memcmp(properties.uuid, uuid, sizeof properties.uuid)) return PX_OK;
  }
  PX_FAIL(PX_RUNTIME, "the device of the IPC handle is not visible to this process");
}

px_status px_device_memory(size_t *free, size_t *total, int index) {
  PX_GIVEN(free);
  PX_GIVEN(total);
  px__device *d;
  PX_TRY(px_device_init());
  PX_TRY(px__device_get(&d, index < 0 ? px_device_peek() : index));
  return px__rt.backend->memory_info(d->physical, free, total);
}

px_status px_device_of_memory(int *out, const void *memory) {
  PX_GIVEN(out);
  PX_TRY(px_device_init());
  const px_backend *b = px__rt.backend;
  int physical = PX__BACKEND_HAS(b, memory_device) ? b->memory_device(memory) : -1;
  *out = px__rt.count - 1;
  while (*out >= 0 && (physical < 0 || (int)px__rt.devices[*out]->physical != physical)) --*out;
  return PX_OK;
}

px_status px_device_metric(int64_t *out, int index, px_metric figure) {
#define XX(name, python, doc) #python,
  static const char *const names[] = {PX_METRIC_MAP(XX)};
#undef XX
  px__device *d;
  PX_GIVEN(out);
  PX_CHECK((unsigned)figure < PX_COUNT_OF(names), PX_VALUE, "there is no figure %d", (int)figure);
  PX_TRY(px_device_init());
  PX_TRY(px__device_get(&d, index < 0 ? px_device_peek() : index));
  bool known = px__rt.backend->metric && px__rt.backend->metric((int)d->physical, figure, out);
  PX_CHECK(
      known, PX_UNIMPLEMENTED, "%s is unknown for cuda:%d: the backend %s %s", names[figure],
      d->index, px__rt.backend->name,
      px__rt.backend->metric ? "has no NVML, or NVML does not report it" : "has no such figures");
  return PX_OK;
}

// ---- plans of Fourier transforms

// Sets the backend's limit of cached plans (negative: unchanged). Returns the number of plans. Lock
// held.
static int64_t set_plan_limit(const px__device *d, int64_t limit) {
  const px_backend *b = px__rt.backend;
  return PX__BACKEND_HAS(b, fft_plans) ? b->fft_plans(d->physical, limit) : 0;
}
px_status px_device_fft_plans(int64_t *count, int64_t *capacity, int index) {
  px__device *d;
  PX_GIVEN(count);
  PX_GIVEN(capacity);
  PX_TRY(px_device_init());
  PX_TRY(px__device_get(&d, index < 0 ? px_device_peek() : index));
  px__device_lock(d);
  *count = set_plan_limit(d, -1), *capacity = d->fft_plans;
  px__device_unlock(d);
  return PX_OK;
}
px_status px_device_set_fft_plans(int index, int64_t capacity) {
  px__device *d;
  PX_TRY(px_device_init());
  PX_TRY(px__device_get(&d, index < 0 ? px_device_peek() : index));
  PX_CHECK(capacity >= 0, PX_RUNTIME, "cuFFT plan cache size must be non-negative, but got %lld",
           (long long)capacity);
  px__device_lock(d);
  d->fft_plans = capacity;
  set_plan_limit(d, capacity);
  px__device_unlock(d);
  return PX_OK;
}
px_status px_device_clear_fft_plans(int index) {
  px__device *d;
  PX_TRY(px_device_init());
  PX_TRY(px__device_get(&d, index < 0 ? px_device_peek() : index));
  px__device_lock(d);
  set_plan_limit(d, 0);
  set_plan_limit(d, d->fft_plans);
  px__device_unlock(d);
  return PX_OK;
}

// ---- peers

static px_status pair(px__device **a, px__device **b, int from, int to) {
  PX_TRY(px_device_init());
  PX_CHECK(is_device(from), PX_ASSERTION, "Invalid device id");
  PX_CHECK(is_device(to), PX_ASSERTION, "Invalid peer device id");
  PX_TRY(px__device_get(a, from));
  return px__device_get(b, to);
}

px_status px_device_can_access_peer(bool *out, int from, int to) {
  PX_GIVEN(out);
  px__device *a, *b;
  PX_TRY(pair(&a, &b, from, to));
  *out = a != b && px__rt.backend->can_access_peer(a->physical, b->physical);
  return PX_OK;
}

px_status px_device_enable_peer(int from, int to) {
  px__device *a, *b;
  PX_TRY(pair(&a, &b, from, to));
  PX_CHECK(a != b && px__rt.backend->can_access_peer(a->physical, b->physical), PX_RUNTIME,
           "peer access from cuda:%d to cuda:%d is not possible", from, to);
  px__device_lock(a);
  px_status status =
      a->peer_open[to] ? PX_OK : px__rt.backend->enable_peer(a->physical, b->physical);
  if (status == PX_OK) {
    __atomic_store_n(&a->peer_open[to], true, __ATOMIC_RELEASE);
    __atomic_store_n(&a->peer_enabled[to], true, __ATOMIC_RELEASE);
    __atomic_store_n(&px__rt.peers_enabled, true, __ATOMIC_RELEASE);
  }
  px__device_unlock(a);
  return status;
}

bool px_device_peer_enabled(int from, int to) {
  if (!px__device_alive() || !is_device(from) || !is_device(to)) return false;
  return __atomic_load_n(&px__rt.devices[from]->peer_enabled[to], __ATOMIC_ACQUIRE);
}
