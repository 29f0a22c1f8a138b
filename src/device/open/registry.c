// SPDX-License-Identifier: Apache-2.0
// Selects the backend for device type cuda, and initialises it and its devices.
//
// Before initialisation every call reads the environment again. Initialisation happens at most once
// and fixes the backend. Each device is opened at its first use. In a forked child of an
// initialised process every call fails with PyTorch's text.
#include "device/work/work.h"
#include "device/open/open.h"

#include <dlfcn.h>
#include <stdio.h>

enum { BACKENDS = 8 };

// All below: guarded by `lock`.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  char name[32], why[PX_LOADER_TEXT];  // why: the reason for having no table
  const char *library;                 // path, of the loader; NULL: not found
  const px_backend *table;             // NULL: not found, or of another version
} loaded[BACKENDS];
static int loaded_count;
static px_core core;
static bool driver_used;  // a driver has counted devices; a forked child cannot do that again

// The selected backend and its visible devices.
typedef struct choice {
  const px_backend *backend;
  int count, physical[PX__DEVICES];
  bool loaded;  // a backend of the list was found
} choice;

static void after_fork(void) {
  pthread_mutex_init(&lock, NULL);
  if (driver_used || __atomic_load_n(&px__rt.ready, __ATOMIC_ACQUIRE)) px__rt.forked = true;
  for (int i = 0; px__rt.forked && i < PX__DEVICES; i++)
    __atomic_store_n(&px__devices_open[i], NULL, __ATOMIC_RELEASE);
}
static void watch_forks(void) {
  static bool watching;
  if (!watching) watching = pthread_atfork(NULL, NULL, after_fork) == 0;
}

static void prepare_core(void) {
  if (core.size) return;
  core = (px_core){.size = sizeof core,
                   .abi = PX_BACKEND_ABI,
                   .error = px_error_set,
                   .env = px_env_read,
                   .pack = px__launch_pack,
                   .scratch = px__scratch_take,
                   .setting = px_setting_get,
                   .file_share = px__file_share,
                   .file_open = px__file_open,
                   .interrupt_wanted = px_interrupt_wanted,
                   .interrupt_poll = px_interrupt_poll};
  core.host_kernels = px__host_kernels(&core.host_kernel_count);
}

// Opens the library of loaded[i]. A backend without a library has no devices.
static void open_table(int i, const char *folder) {
  Dl_info at;
  void *handle = px_library_open(folder, loaded[i].name, loaded[i].why);
  px_backend_entry_fn entry = NULL;
  if (handle) *(void **)&entry = dlsym(handle, PX_BACKEND_ENTRY);
  prepare_core();
  const px_backend *table = entry ? entry(&core) : NULL;
  bool fits = table && table->abi == PX_BACKEND_ABI && table->type == PX_CUDA;
  loaded[i].table = fits ? table : NULL;
  if (entry && dladdr(*(void **)&entry, &at)) loaded[i].library = at.dli_fname;
  if (handle)
    snprintf(loaded[i].why, PX_LOADER_TEXT, "%s", fits ? "" : "it is no backend of this version");
}

// Sets *out to the index in `loaded` of the backend named at the start of `list`; -1 for a name
// that no backend can have, or if there are too many. Fails if PHLOX_BACKEND_PATH, read before the
// first search for each backend, is no folder.
static px_status load(int *out, const char *list, size_t length) {
  const char *folder;
  for (*out = 0; *out < loaded_count; ++*out)
    if (!strncmp(loaded[*out].name, list, length) && !loaded[*out].name[length]) return PX_OK;
  *out = -1;
  if (length == 0 || length >= sizeof loaded[0].name || loaded_count == BACKENDS) return PX_OK;
  PX_TRY(px__env_PHLOX_BACKEND_PATH(&folder));
  *out = loaded_count++;
  snprintf(loaded[*out].name, sizeof loaded[0].name, "%.*s", (int)length, list);
  open_table(*out, folder);
  return PX_OK;
}

// Returns the length of the name at the start of a list.
static size_t name_length(const char *list) { return strcspn(list, ","); }

// ---- the list of backends
static px_status list_names(px_backend_row *rows, int capacity, int *count, unsigned *seen,
                            const char *list, bool listed) {
  while (*list) {
    int i;
    size_t length = name_length(list);
    PX_TRY(load(&i, list, length));
    list += length + (list[length] == ',');
    if (i < 0 || *seen & 1u << i) continue;
    *seen |= 1u << i;
    if (*count < capacity) {
      px_backend_row *row = &rows[*count];
      *row = (px_backend_row){.listed = listed, .library = loaded[i].library};
      memcpy(row->name, loaded[i].name, sizeof row->name);
      memcpy(row->why, loaded[i].why, sizeof row->why);
    }
    ++*count;
  }
  return PX_OK;
}

// Returns the default of PHLOX_BACKENDS: the library's own backends.
static const char *own_backends(void) {
  const px_env_row *row;
  for (int i = 0; (row = px_env_at(i)); i++)
    if (!strcmp(row->name, "PHLOX_BACKENDS")) return row->fallback;
  return "";
}

static px_status list_backends(px_backend_row *rows, int capacity, int *count) {
  const char *list;
  unsigned seen = 0;
  PX_TRY(px__env_PHLOX_BACKENDS(&list));
  PX_TRY(list_names(rows, capacity, count, &seen, list, true));
  return list_names(rows, capacity, count, &seen, own_backends(), false);
}

px_status px_device_backends(px_backend_row *rows, int capacity, int *count) {
  int found = 0;
  PX_GIVEN(rows);
  PX_GIVEN(count);
  pthread_mutex_lock(&lock);
  px_status status = list_backends(rows, capacity, &found);
  pthread_mutex_unlock(&lock);
  PX_TRY(status);
  *count = found;
  return PX_OK;
}

// ---- the choice

#define NAMED_TWICE \
  "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling " \
  "NumCudaDevices() that might have already set an error? Error 101: invalid device ordinal"

// Selects the visible devices of a backend. The CUDA driver reads CUDA_VISIBLE_DEVICES itself; for
// other backends, and without starting the driver (`glance`), the core does.
static px_status list_visible(choice *c, int present, bool glance) {
  bool is_driver = !strcmp(c->backend->name, "cuda") && !glance;
  const char *names = NULL;
  if (is_driver && !px__rt.forked) driver_used = true, watch_forks();
  if (!is_driver) PX_TRY(px__env_CUDA_VISIBLE_DEVICES(&names));
  c->count = present < 0 ? -1 : px__visible(names, present, c->backend, glance, c->physical);
  PX_CHECK(c->count >= 0, PX_RUNTIME, NAMED_TWICE);
  return PX_OK;
}

// Counts a backend's devices; `no_start`: without starting its driver, if the backend can.
static int count_devices(const px_backend *backend, bool no_start, bool *glance) {
  bool asks = no_start && PX__BACKEND_HAS(backend, probe_forksafe);
  int present = asks ? backend->probe_forksafe() : PX_PROBE_UNKNOWN;
  *glance = present >= 0;
  return *glance ? present : backend->probe();
}

// Fails if simulated devices are requested: their library cannot be loaded.
static px_status check_no_simulator(const char *why) {
  int64_t simulated;
  PX_TRY(px_env_read("PHLOX_SIM_DEVICES", &simulated));
  PX_CHECK(!simulated, PX_RUNTIME,
           "PHLOX_SIM_DEVICES is set, but libphlox_sim.so cannot be loaded (%s): set "
           "PHLOX_BACKEND_PATH to its folder",
           why);
  return PX_OK;
}

// Chooses the first backend with a device, and lists its visible devices. Fails if the environment
// has a bad value.
static px_status choose(choice *c, bool no_start) {
  const char *list;
  c->backend = NULL, c->count = 0, c->loaded = false;
  PX_TRY(px__env_PHLOX_BACKENDS(&list));
  while (*list) {
    int i;
    bool glance = false;
    size_t length = name_length(list);
    PX_TRY(load(&i, list, length));
    const px_backend *backend = i < 0 ? NULL : loaded[i].table;
    if (!backend && length == 3 && !strncmp(list, "sim", 3))
      PX_TRY(check_no_simulator(i < 0 ? "too many backends" : loaded[i].why));
    list += length + (list[length] == ',');
    int present = backend ? count_devices(backend, no_start, &glance) : 0;
    c->loaded |= backend != NULL;
    if (present == 0) continue;
    if (present == PX_PROBE_ERROR) return px_error_last()->code;
    c->backend = backend;
    return list_visible(c, present, glance);
  }
  return PX_OK;
}

// For functions without a status: an error means no devices, and the first one is a warning.
static void choose_or_warn(choice *c) {
  static bool warned;
  char why[PX_ERROR_MESSAGE];
  if (px__env_check() != PX_OK) px_error_clear();
  pthread_mutex_lock(&lock);
  px_status status = choose(c, true);
  pthread_mutex_unlock(&lock);
  if (status == PX_OK) return;
  snprintf(why, sizeof why, "%s", px_error_last()->message);
  c->count = 0;
  px_error_clear();
  if (!px__warns(&warned)) return;
  if (px_warn(PX_WARN_USER, "CUDA initialization: %s", why) != PX_OK) px_error_clear();
}

static int count(px_device_type type) {
  if (type != PX_CUDA) return type == PX_CPU || type == PX_META;
  if (__atomic_load_n(&px__rt.ready, __ATOMIC_ACQUIRE)) return px__rt.count;
  choice c;
  choose_or_warn(&c);
  return c.count;
}

bool px_device_initialized(void) { return px__device_alive(); }

const char *px_device_backend(void) {
  if (__atomic_load_n(&px__rt.ready, __ATOMIC_ACQUIRE)) return px__rt.backend->name;
  choice c;
  choose_or_warn(&c);
  return c.count > 0 ? c.backend->name : "";
}

int64_t px_device_library(const char *name) {
  choice c;
  if (__atomic_load_n(&px__rt.ready, __ATOMIC_ACQUIRE))
    c.backend = px__rt.backend;
  else
    choose_or_warn(&c);
  return c.backend ? c.backend->library(name) : 0;
}

static px_status make_devices(int count, const int physical[PX__DEVICES]) {
  for (int i = 0; i < count; i++) {
    px__device **d = &px__rt.devices[i];
    if (!*d) PX_TRY(PX_NEW(d));
    pthread_mutex_init(&(*d)->lock, NULL);
    (*d)->index = i;
    (*d)->physical = physical[i];
    (*d)->fft_plans = PX_FFT_PLANS;
  }
  return PX_OK;
}

// Reads the variables of devices, including those used later: a bad value fails the first call to
// need a device.
static px_status read_environment(void) {
  bool unused, uncached;
  PX_TRY(px__env_CUDA_LAUNCH_BLOCKING(&px__rt.blocking));
  PX_TRY(px__env_PYTORCH_NO_CUDA_MEMORY_CACHING(&uncached));
  if (uncached) px__bins_disable(PX__UNCACHED, true);
  PX_TRY(px__env_TORCH_ALLOW_TF32_CUBLAS_OVERRIDE(&unused));
  PX_TRY(px__race_asked(&unused));
  return px__settings_start();
}

static px_status no_devices(const choice *c) {
  const char *list;
  int64_t simulated;
  PX_TRY(px__env_PHLOX_BACKENDS(&list));
  PX_TRY(px_env_read("PHLOX_SIM_DEVICES", &simulated));
  px_status status =
      px_error_set(PX_RUNTIME, 0, __FILE__, __LINE__, __func__, "No CUDA GPUs are available");
  if (!c->loaded)
    PX_NOTE(" (PHLOX_BACKENDS is '%.80s', and no such backend is found)", list);
  else if (simulated == 0)
    PX_NOTE("\nPHLOX_SIM_DEVICES=2 in the environment simulates two devices on the CPU.");
  return status;
}

px_status px_memory_set_allocator(const px_memory_allocator *allocator) {
  PX_CHECK(!allocator || (allocator->alloc && allocator->free), PX_TYPE,
           "an allocator needs both functions");
  pthread_mutex_lock(&lock);
  bool late = px__rt.ready;
  if (!late) px__rt.plugged = allocator ? *allocator : (px_memory_allocator){0};
  pthread_mutex_unlock(&lock);
  PX_CHECK(!late, PX_RUNTIME, "Can't swap an already initialized allocator");
  return PX_OK;
}

bool px_memory_is_plugged(void) {
  pthread_mutex_lock(&lock);
  bool plugged = px__rt.plugged.alloc != NULL;
  pthread_mutex_unlock(&lock);
  return plugged;
}

static px_status start(void) {
  choice c;
  PX_TRY(choose(&c, false));
  if (c.count == 0) return no_devices(&c);
  PX_TRY(read_environment());
  PX_TRY(make_devices(c.count, c.physical));
  px__rt.backend = c.backend;
  px__rt.count = c.count;
  px__rt.loads_late = PX__BACKEND_HAS(c.backend, loads_late) && c.backend->loads_late();
  c.backend->priority_range(&px__rt.lowest_priority, &px__rt.highest_priority);
  px__virtual_begin();
  px__biased_lock_start();
  if (px__rt.plugged.alloc) px__bins_disable(PX__PLUGGED, true);
  watch_forks();
  __atomic_store_n(&px__rt.ready, true, __ATOMIC_RELEASE);
  return PX_OK;
}

static px_status init(void) {
  PX_CHECK(!px__rt.forked, PX_RUNTIME,
           "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you "
           "must use the 'spawn' start method");
  if (__atomic_load_n(&px__rt.ready, __ATOMIC_ACQUIRE)) return PX_OK;
  pthread_mutex_lock(&lock);
  px_status status = px__rt.ready ? PX_OK : start();
  pthread_mutex_unlock(&lock);
  PX_TRY(status);
  PX_TRY(px__env_check());
  return px__settings_warn();
}

static px_status open_device(px__device *d) {
  const px_backend *backend = px__rt.backend;
  PX_TRY(backend->open(d->physical));
  PX_TRY(backend->properties(d->physical, &d->properties));
  d->slot = backend->fault_slot(d->physical);
  if (!d->ring) PX_TRY(px__alloc((void **)&d->ring, PX__RING * sizeof *d->ring));
  PX_TRY(px__stream_create(&d->streams[0], d, 0, 0));
  __atomic_store_n(&d->stream_count, 1, __ATOMIC_RELEASE);
  px__settings_apply(d);
  __atomic_store_n(&px__devices_open[d->index], d, __ATOMIC_RELEASE);
  px__fault_watch();
  return PX_OK;
}

static px_status open(px__device **out, int index) {
  PX_TRY(init());
  if (index < 0 || index >= px__rt.count) return px__error_cuda(101);
  px__device *d = px__rt.devices[index];
  pthread_mutex_lock(&lock);
  px_status status = px__device_found(index) ? PX_OK : open_device(d);
  pthread_mutex_unlock(&lock);
  *out = d;
  return status;
}

static const px__opener opener = {.init = init, .count = count, .open = open};
__attribute__((constructor)) static void provide(void) { px__device_opener = &opener; }
