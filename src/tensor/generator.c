// SPDX-License-Identifier: Apache-2.0
// Random number generators: default ones for the CPU and each device, and user-created ones.
//
// A CPU generator is an mt19937 engine with a lock, held by kernels while they draw. A device
// generator refers to a state, a Philox key and offset; several generators may share one. A launch
// reserves numbers by advancing the offset, so launches never share numbers. Default generators and
// their first states are static and never destroyed.
#include "cpu/random/mt19937.h"
#include "cpu/random/philox.h"
#include "phlox/extend.h"
#include "tensor/engine_states.h"

enum { DEFAULT_LIMIT = 64 };
static const uint64_t first_seed = 67280421310721u;

typedef struct philox_position {
  uint64_t seed, offset;
} philox_position;
typedef struct philox_state {
  px_object head;
  philox_position at;  // guarded by generators_lock
} philox_state;

struct px_generator {
  px_object head;
  px_device device;
  philox_state *state;  // a reference, of device generators; guarded by generators_lock
  px_mt19937 *engine;   // CPU generators; else NULL
};

static pthread_mutex_t generators_lock = PTHREAD_MUTEX_INITIALIZER;
static px_generator cpu_default, device_defaults[DEFAULT_LIMIT];
static philox_state device_states[DEFAULT_LIMIT];
static px_mt19937 cpu_engine;
// Threads simulating processes (px_random_isolate); guarded by generators_lock. Not thread-local:
// static TLS is scarce and such threads are few.
static struct {
  pthread_t thread;
  px_generator *host;  // borrowed; NULL: the row is free
  int device;
} isolated[DEFAULT_LIMIT];
static int isolated_count;
static uint64_t default_seed = 67280421310721u;  // for devices without a generator yet

static void state_destroy(void *self) {
  px__object_end(self);
  px__free(self);
}
static const px_class state_class = {"generator state", state_destroy};
static void generator_destroy(void *self) {
  px_release(((px_generator *)self)->state);
  px__object_end(self);
  px__free(self);
}
static const px_class generator_class = {"generator", generator_destroy};
static void destroy_nothing(void *self) { (void)self; }
static const px_class default_class = {"generator", destroy_nothing};
static const px_class default_state_class = {"generator state", destroy_nothing};

// Returns the calling thread's row, or a free one; -1: none. Lock held.
static int isolated_row(bool free_one) {
  for (int i = 0; i < DEFAULT_LIMIT && (isolated_count || free_one); i++)
    if (free_one ? !isolated[i].host
                 : isolated[i].host && pthread_equal(isolated[i].thread, pthread_self()))
      return i;
  return -1;
}

// Lock held.
static px_generator *default_of(px_device device) {
  bool host = device.type == PX_CPU;
  px_generator *g = host ? &cpu_default : &device_defaults[device.index];
  int row = host ? isolated_row(false) : -1;
  if (row >= 0) return isolated[row].host;
  if (g->head.cls) return g;
  g->head.cls = &default_class;
  g->head.refs = 1;
  g->device = device;
  if (host) {
    g->engine = &cpu_engine;
    px_mt19937_seed(g->engine, default_seed);
  } else {
    g->state = &device_states[device.index];
    *g->state = (philox_state){.head = {1, &default_state_class}, .at = {default_seed, 0}};
  }
  return g;
}

static px_status check_has_elements(px_device device) {
  PX_CHECK(device.type != PX_META, PX_RUNTIME,
           "there is no generator for device type meta: its tensors have no elements");
  return PX_OK;
}

// A CPU generator with an engine, or a device generator without a state.
static px_status allocate(px_generator **out, px_device device) {
  bool host = device.type == PX_CPU;
  size_t head = (sizeof **out + 15) / 16 * 16;
  PX_TRY(px__alloc((void **)out, head + (host ? sizeof(px_mt19937) : 0)));
  px__object_init(*out, &generator_class);
  (*out)->device = device;
  if (host) (*out)->engine = (px_mt19937 *)((char *)*out + head);
  return PX_OK;
}

static px_status new_state(philox_state **out) {
  PX_TRY(PX_NEW(out));
  px__object_init(*out, &state_class);
  return PX_OK;
}

px_status px_generator_new(px_generator **out, px_device device) {
  PX_GIVEN(out);
  px_device resolved;
  *out = NULL;
  PX_TRY(px_device_resolve(&resolved, device));
  PX_TRY(check_has_elements(resolved));
  bool host = resolved.type == PX_CPU;
  PX_SCOPED(px_generator) made = NULL;
  PX_TRY(allocate(&made, host ? resolved : device));
  if (!host) PX_TRY(new_state(&made->state));
  px_generator_seed(made, first_seed);
  *out = PX_MOVE(made);
  return PX_OK;
}

// Seeding must not initialise CUDA: before initialisation any visible device index is accepted.
static px_status resolve(px_device *device) {
  if (device->type == PX_CUDA && !px_device_initialized()) {
    int index = device->index < 0 ? px_device_peek() : device->index;
    if (index < px_device_count(PX_CUDA)) return *device = px_cuda(index), PX_OK;
  }
  return px_device_resolve(device, *device);
}
px_status px_generator_default(px_generator **out, px_device device) {
  PX_GIVEN(out);
  *out = NULL;
  PX_TRY(resolve(&device));
  PX_TRY(check_has_elements(device));
  PX_CHECK(device.type == PX_CPU || device.index < DEFAULT_LIMIT, PX_RUNTIME,
           "device index %d has no default generator", device.index);
  pthread_mutex_lock(&generators_lock);
  *out = default_of(device);
  pthread_mutex_unlock(&generators_lock);
  return PX_OK;
}

px_device px_generator_device(const px_generator *generator) { return generator->device; }

static philox_position get_philox(const px_generator *generator) {
  pthread_mutex_lock(&generators_lock);
  philox_position at = generator->state->at;
  pthread_mutex_unlock(&generators_lock);
  return at;
}
static void set_philox(px_generator *generator, philox_position at) {
  pthread_mutex_lock(&generators_lock);
  generator->state->at = at;
  pthread_mutex_unlock(&generators_lock);
}

// A captured draw reads the seed when the graph is replayed.
static px_status check_seed(philox_position at, uint64_t seed) {
  PX_CHECK(at.seed == seed || !px__capturing(), PX_RUNTIME,
           "CUDAGeneratorImpl::set_current_seed can be called during stream capture only if new "
           "seed is the same as the original seed.");
  return PX_OK;
}

px_status px_generator_seed(px_generator *generator, uint64_t seed) {
  PX_GIVEN(generator);
  if (generator->engine) {
    px_spin_lock(&generator->engine->lock);
    px_mt19937_seed(generator->engine, seed);
    px_spin_unlock(&generator->engine->lock);
    return PX_OK;
  }
  PX_TRY(check_seed(get_philox(generator), seed));
  set_philox(generator, (philox_position){seed, 0});
  return PX_OK;
}

uint64_t px_generator_initial_seed(const px_generator *generator) {
  return generator->engine ? generator->engine->seed : get_philox(generator).seed;
}

size_t px_generator_state_size(const px_generator *generator) {
  return generator->engine ? PX__MT19937_STATE : PX__PHILOX_STATE;
}

void px_generator_get_state(px_generator *generator, void *state) {
  if (generator->engine) {
    px_spin_lock(&generator->engine->lock);
    px__mt19937_save(generator->engine, state);
    px_spin_unlock(&generator->engine->lock);
    return;
  }
  philox_position at = get_philox(generator);
  px__philox_save(at.seed, at.offset, state);
}

px_status px_generator_set_state(px_generator *generator, const void *state, size_t bytes) {
  PX_GIVEN(generator);
  PX_GIVEN(state);
  PX_CHECK(bytes == px_generator_state_size(generator), PX_RUNTIME, "RNG state is wrong size");
  if (generator->engine) {
    px_spin_lock(&generator->engine->lock);
    px_status status = px__mt19937_load(generator->engine, state);
    px_spin_unlock(&generator->engine->lock);
    PX_TRY(status);
    return PX_OK;
  }
  philox_position at;
  PX_TRY(px__philox_load(&at.seed, &at.offset, state));
  PX_TRY(check_seed(get_philox(generator), at.seed));
  set_philox(generator, at);
  return PX_OK;
}

px_status px_generator_offset(uint64_t *out, const px_generator *generator) {
  PX_GIVEN(out);
  PX_GIVEN(generator);
  PX_CHECK(!generator->engine, PX_RUNTIME, "CPU Generator does not use offset");
  *out = get_philox(generator).offset;
  return PX_OK;
}

px_status px_generator_set_offset(px_generator *generator, uint64_t offset) {
  PX_GIVEN(generator);
  PX_CHECK(!generator->engine, PX_RUNTIME, "CPU Generator does not use offset");
  PX_CHECK(offset % 4 == 0, PX_RUNTIME, "offset must be a multiple of 4");
  if (px__capturing()) return px__capture_refuse("Cannot call CUDAGeneratorImpl::set_offset");
  pthread_mutex_lock(&generators_lock);
  generator->state->at.offset = offset;
  pthread_mutex_unlock(&generators_lock);
  return PX_OK;
}

px_status px_generator_clone(px_generator **out, px_generator *generator) {
  PX_GIVEN(out);
  *out = NULL;
  PX_GIVEN(generator);
  PX_SCOPED(px_generator) made = NULL;
  PX_TRY(allocate(&made, generator->device));
  if (generator->engine) {
    px_spin_lock(&generator->engine->lock);
    *made->engine = *generator->engine;
    px_spin_unlock(&generator->engine->lock);
    px_spin_unlock(&made->engine->lock);
  } else {
    PX_TRY(new_state(&made->state));
    set_philox(made, get_philox(generator));
  }
  *out = PX_MOVE(made);
  return PX_OK;
}

px_status px_generator_alias(px_generator **out, px_generator *generator) {
  PX_GIVEN(out);
  *out = NULL;
  PX_GIVEN(generator);
  PX_CHECK(!generator->engine, PX_UNIMPLEMENTED,
           "graphsafe_get_state is not supported in this Generator");
  PX_SCOPED(px_generator) made = NULL;
  PX_TRY(allocate(&made, generator->device));
  pthread_mutex_lock(&generators_lock);
  made->state = px_retain(generator->state);
  pthread_mutex_unlock(&generators_lock);
  *out = PX_MOVE(made);
  return PX_OK;
}

px_status px_generator_share(px_generator *generator, px_generator *other) {
  PX_GIVEN(generator);
  PX_GIVEN(other);
  PX_CHECK(!generator->engine, PX_UNIMPLEMENTED,
           "graphsafe_set_state is not supported in this Generator");
  PX_CHECK(!other->engine, PX_RUNTIME, "Expected a CUDA Generator");
  pthread_mutex_lock(&generators_lock);
  philox_state *before = generator->state;
  generator->state = px_retain(other->state);
  pthread_mutex_unlock(&generators_lock);
  px_release(before);
  return PX_OK;
}

// Offsets advance in blocks of four words. Lock held.
static philox_position advance(philox_state *state, uint64_t words) {
  philox_position before = state->at;
  state->at.offset += (words + 3) / 4 * 4;
  return before;
}
static philox_position reserve(px_generator *generator, uint64_t words) {
  pthread_mutex_lock(&generators_lock);
  philox_position before = advance(generator->state, words);
  pthread_mutex_unlock(&generators_lock);
  return before;
}

uint64_t px_generator_next(px_generator *generator) {
  if (generator->engine) {
    px_spin_lock(&generator->engine->lock);
    uint64_t bits = px_mt19937_random64(generator->engine);
    px_spin_unlock(&generator->engine->lock);
    return bits;
  }
  philox_position at = reserve(generator, 4);
  px_philox4 block = px_philox(at.seed, 0, at.offset);
  return (uint64_t)block.v[0] << 32 | block.v[1];
}

void px_random_isolate(px_generator *host, int device) {
  pthread_mutex_lock(&generators_lock);
  int row = isolated_row(false);
  if (row < 0 && host) row = isolated_row(true);
  if (row >= 0) {
    isolated_count += (host != NULL) - (isolated[row].host != NULL);
    isolated[row].thread = pthread_self();
    isolated[row].host = host;
    isolated[row].device = device;
  }
  pthread_mutex_unlock(&generators_lock);
  if (host) (void)px_manual_seed(first_seed);
}

px_status px_manual_seed(uint64_t seed) {
  pthread_mutex_lock(&generators_lock);
  int row = isolated_row(false);
  px_generator *own = row >= 0 ? isolated[row].host : NULL;
  px_generator *device = own ? default_of(px_cuda(isolated[row].device)) : NULL;
  px_generator *host = own ? own : default_of(px_cpu());
  philox_position before = {.seed = default_seed};
  pthread_mutex_unlock(&generators_lock);
  if (own) {
    PX_TRY(px_generator_seed(device, seed));
    return px_generator_seed(host, seed);
  }
  PX_TRY(check_seed(before, seed));
  pthread_mutex_lock(&generators_lock);
  default_seed = seed;
  for (int i = 0; i < DEFAULT_LIMIT; i++) {
    philox_state *state = device_defaults[i].state;
    if (state) state->at = (philox_position){seed, 0};
  }
  pthread_mutex_unlock(&generators_lock);
  return px_generator_seed(host, seed);
}

// A generator for "cuda" without index fits any device.
px_status px__generator_fits(const px_generator *generator, px_device device) {
  px_device have = generator->device;
  char wanted[PX_DEVICE_TEXT], found[PX_DEVICE_TEXT];
  PX_CHECK(have.type == device.type, PX_RUNTIME,
           "Expected a '%s' device type for generator but found '%s'",
           px_device_type_name(device.type), px_device_type_name(have.type));
  PX_CHECK(have.index < 0 || device.index < 0 || have.index == device.index, PX_RUNTIME,
           "Expected a '%s' device type for generator but found '%s'",
           px_device_format(device, wanted), px_device_format(have, found));
  return PX_OK;
}

// A graph replay reserves all numbers drawn by the graph, and returns them on failure.
static void take(void *state, uint64_t words, uint64_t taken[2]) {
  pthread_mutex_lock(&generators_lock);
  philox_position before = advance(state, words);
  pthread_mutex_unlock(&generators_lock);
  taken[0] = before.seed, taken[1] = before.offset;
}
static void give_back(void *state, uint64_t words, const uint64_t taken[2]) {
  philox_position *at = &((philox_state *)state)->at;
  pthread_mutex_lock(&generators_lock);
  if (at->seed == taken[0] && at->offset == taken[1] + words) at->offset = taken[1];
  pthread_mutex_unlock(&generators_lock);
}
static const px__draw_functions draws = {take, give_back};

static px_status draw_captured(px_launch *launch, px_generator *generator, px_device device,
                               uint64_t words) {
  pthread_mutex_lock(&generators_lock);
  PX_SCOPED(philox_state) state = px_retain(generator->state);
  pthread_mutex_unlock(&generators_lock);
  return px__capture_draw(launch, device.index, state, words, &draws);
}

px_status px__generator_use(px_launch *launch, px_generator *generator, px_device device,
                            uint64_t counter_offset) {
  if (device.type == PX_META) return PX_OK;  // no numbers are drawn
  if (!generator) PX_TRY(px_generator_default(&generator, device));
  PX_TRY(px__generator_fits(generator, device));
  launch->mt19937 = generator->engine;
  if (generator->engine) return PX_OK;
  uint64_t words = (counter_offset + 3) / 4 * 4;
  if (px__captures_any()) PX_TRY(draw_captured(launch, generator, device, words));
  if (launch->random) return PX_OK;
  philox_position drawn = reserve(generator, words);
  launch->seed = drawn.seed, launch->offset = drawn.offset;
  return PX_OK;
}
