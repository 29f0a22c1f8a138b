// SPDX-License-Identifier: Apache-2.0
// Mixed precision: per-thread settings, casts of a call's arguments by the op's policy, and the
// cache of cast parameters.
#include "call/autocast.h"
#include "call/call_impl.h"
#include "phlox/ops/copy.h"

_Thread_local px__autocast px__autocast_here = {
    .set = {.cache = true,
            .dtype = {[PX_CPU] = PX_BFLOAT16, [PX_CUDA] = PX_FLOAT16, [PX_META] = PX_FLOAT16}}};

// ---- the cache: a hash table keyed by the address of the source tensor. Holds references to the
// source and its storage, so that their addresses are not reused.

typedef struct px__cast {
  px_tensor *from, *to;
  px_storage *storage;
  uint64_t version;
  bool recorded;  // `to` has an autograd history
} px__cast;
struct px__casts {
  int64_t count, capacity;  // capacity: a power of two and at least twice the count
  px__cast *items;
};

static void drop(const px__cast *cast) {
  px_release(cast->from);
  px_release(cast->to);
  px_release(cast->storage);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t at_exit;
static bool have_key;
static void free_cache(void *casts_) {
  px__casts *casts = casts_;
  for (int64_t i = 0; i < casts->capacity; i++) drop(&casts->items[i]);
  px__free(casts->items);
  px__free(casts);
}
static void end_of_thread(void *casts) {
  px__autocast_here.casts = NULL;
  free_cache(casts);
}
static void make_key(void) { have_key = pthread_key_create(&at_exit, end_of_thread) == 0; }

static px__cast *find_slot(px__cast *items, int64_t capacity, const px_tensor *from) {
  uint64_t hash = ((uint64_t)(uintptr_t)from >> 5) * 0x9e3779b97f4a7c15u >> 20;
  int64_t i = (int64_t)hash & (capacity - 1);
  while (items[i].from && items[i].from != from) i = (i + 1) & (capacity - 1);
  return &items[i];
}

static px_status grow(px__casts *casts) {
  px__cast *items;
  if (casts->capacity > 2 * casts->count) return PX_OK;
  int64_t capacity = casts->capacity ? 2 * casts->capacity : 64;
  PX_TRY(px__alloc((void **)&items, (size_t)capacity * sizeof *items));
  for (int64_t i = 0; i < casts->capacity; i++)
    if (casts->items[i].from) *find_slot(items, capacity, casts->items[i].from) = casts->items[i];
  px__free(casts->items);
  casts->items = items, casts->capacity = capacity;
  return PX_OK;
}

static px_status new_cache(px__casts **out) {
  px__casts *casts;
  pthread_once(&once, make_key);
  PX_TRY(PX_NEW(&casts));
  px_status status = grow(casts);
  if (status != PX_OK || !have_key || pthread_setspecific(at_exit, casts)) {
    free_cache(casts);
    PX_TRY(status);
    PX_FAIL(PX_OUT_OF_MEMORY, "autocast: out of memory for the thread's cache");
  }
  *out = casts;
  return PX_OK;
}

void px_autocast_clear_cache(void) {
  px__casts *casts = px__autocast_here.casts;
  // Releasing tensors can run user code that uses the cache.
  px__autocast_here.casts = NULL;
  if (!casts) return;
  (void)pthread_setspecific(at_exit, NULL);
  free_cache(casts);
}

// True if a cached cast is valid: same dtype, storage and version, and recorded if recording.
static bool is_valid(const px__cast *cast, const px_tensor *t, px_dtype dtype, bool recording) {
  return cast->to && cast->to->dtype == dtype && cast->storage == t->storage &&
         cast->version == px_tensor_version(t) && (cast->recorded || !recording);
}

// Stores a cast and drops the previous one.
static px_status store(px_tensor *t, px_tensor *to, bool recorded) {
  px__autocast *here = &px__autocast_here;
  if (!here->casts) PX_TRY(new_cache(&here->casts));
  PX_TRY(grow(here->casts));
  px__cast *slot = find_slot(here->casts->items, here->casts->capacity, t), before = *slot;
  here->casts->count += !before.from;
  *slot = (px__cast){px_retain(t), px_retain(to), px_retain(t->storage), px_tensor_version(t),
                     recorded};
  drop(&before);
  return PX_OK;
}

static px_status cast_cached(px_tensor **out, px_tensor *t, px_dtype dtype) {
  bool recording = px__hooks && px__hooks->recording();
  const px__casts *casts = px__autocast_here.casts;
  const px__cast *found = casts ? find_slot(casts->items, casts->capacity, t) : NULL;
  if (found && is_valid(found, t, dtype, recording)) return *out = px_retain(found->to), PX_OK;
  PX_TRY(px_to(out, t, dtype, PX_DEVICE_NONE, false, false));
  return store(t, *out, recording);
}

// ---- casting the arguments of a call

// True for tensors that a policy may cast: floating-point, of the device type, not float64.
static bool is_eligible(const px_tensor *t, px_device_type type) {
  return t && px_dtype_is_float((px_dtype)t->dtype) && t->dtype != PX_FLOAT64 &&
         !(px__flags(t) & PX_TENSOR_WRAPPED) && px__tensor_device(t).type == (int)type;
}

static bool is_cached(const px_tensor *t, px_dtype dtype, px_device_type type) {
  const px__autocast *here = &px__autocast_here;
  return here->set.cache && here->nesting > 0 && dtype == here->set.dtype[type] &&
         t->dtype == PX_FLOAT32 && (px__flags(t) & PX_TENSOR_NEEDS_GRAD) &&
         !(px__flags(t) & PX_TENSOR_VIEW) && px__hooks && px__hooks->is_leaf &&
         px__hooks->is_leaf(t);
}

static px_status cast_one(px__casting *c, px_tensor *t) {
  px_tensor **out = &c->made[c->count++];
  *out = NULL;
  if (!is_eligible(t, c->type) || t->dtype == c->dtype) return *out = px_retain(t), PX_OK;
  if (is_cached(t, c->dtype, c->type)) return cast_cached(out, t, c->dtype);
  return px_to(out, t, c->dtype, PX_DEVICE_NONE, false, false);
}

static px_status cast_argument(px__casting *c, px_value *a) {
  if (a->kind == PX_ARG_TENSOR) {
    PX_TRY(cast_one(c, a->v.tensor));
    a->v.tensor = c->made[c->count - 1];
  } else if (a->kind == PX_ARG_TENSORS) {
    px_tensor **list = c->made + c->count;
    for (int k = 0; k < a->n; k++) PX_TRY(cast_one(c, a->v.tensors[k]));
    a->v.tensors = list;
  }
  return PX_OK;
}

static px_status cast_all(px__casting *c, const px_op *op) {
  int64_t count = 0;
  for (int i = 0; i < op->param_count; i++)
    count += c->args[i].kind == PX_ARG_TENSORS ? c->args[i].n : c->args[i].kind == PX_ARG_TENSOR;
  if (count > PX__CASTS) PX_TRY(px__alloc((void **)&c->made, (size_t)count * sizeof(px_tensor *)));
  for (int i = 0; i < op->param_count; i++) PX_TRY(cast_argument(c, &c->args[i]));
  return PX_OK;
}

// Calls `visit` with each tensor argument until it returns false.
static void each_tensor(const px_op *op, const px_value *args,
                        bool (*visit)(const px_tensor *t, void *context), void *context) {
  for (int i = 0; i < op->param_count; i++) {
    const px_value *a = &args[i];
    if (a->kind == PX_ARG_TENSOR && !visit(a->v.tensor, context)) return;
    for (int k = 0; a->kind == PX_ARG_TENSORS && k < a->n; k++)
      if (a->v.tensors[k] && !visit(a->v.tensors[k], context)) return;
  }
}

// The device type of a call is CPU if all its tensors are on the CPU.
static bool find_type(const px_tensor *t, void *type) {
  *(px_device_type *)type = (px_device_type)px__tensor_device(t).type;
  return *(px_device_type *)type == PX_CPU;
}

// Result: float32 if a tensor has it; otherwise the lower dtype, required of all.
typedef struct widening {
  px_device_type type;
  px_dtype lower, dtype;
  bool mismatched;
} widening;
static bool widen(const px_tensor *t, void *context) {
  widening *w = context;
  if (!is_eligible(t, w->type)) return true;
  if (t->dtype == PX_FLOAT32) w->dtype = PX_FLOAT32;
  w->mismatched |= w->dtype != PX_FLOAT32 && t->dtype != w->lower;
  return true;
}
static px_status widest(px__casting *c, const px_op *op) {
  px_dtype lower = (px_dtype)px__autocast_here.set.dtype[c->type];
  widening w = {c->type, lower, lower, false};
  each_tensor(op, c->args, widen, &w);
  PX_CHECK(!w.mismatched, PX_RUNTIME, "Unexpected floating ScalarType in at::autocast::prioritize");
  c->dtype = w.dtype;
  return cast_all(c, op);
}

// Sets the argument `dtype` to float32 if the op has one and the caller did not set it.
static px_status float32(px__casting *c, const px_op *op) {
  c->dtype = PX_FLOAT32;
  for (int i = 0; i < op->param_count; i++) {
    if (op->params[i].kind != PX_ARG_DTYPE) continue;
    bool given = c->args[i].kind == PX_ARG_DTYPE && c->args[i].v.i != PX_DTYPE_NONE;
    bool eligible =
        c->args[PX__SELF].kind == PX_ARG_TENSOR && is_eligible(c->args[PX__SELF].v.tensor, c->type);
    if (!given && eligible) c->args[i] = PX_DT(PX_FLOAT32);
    return PX_OK;
  }
  return cast_all(c, op);
}

static px_status lower(px__casting *c, const px_op *op) {
  c->dtype = (px_dtype)px__autocast_here.set.dtype[c->type];
  return cast_all(c, op);
}

static px_status keep_dtypes(px__casting *c, const px_op *op) { return PX_OK; }

// Indexed by px_autocast_policy.
static px_status (*const policies[])(px__casting *c, const px_op *op) = {NULL, lower, float32,
                                                                         widest, keep_dtypes};

px_status px__unchecked(const px_call *call) { return PX_OK; }

bool px__autocast_due(void) {
  bool due = !px__autocast_here.passed;
  px__autocast_here.passed = false;
  return due;
}

px_status px__autocast_begin(px__casting *c, const px_op *op, px_call_mode mode,
                             const px_value *args) {
  px__autocast *here = &px__autocast_here;
  c->given = args, c->was_on = here->on;
  c->type = PX_CPU, c->made = c->small, c->count = 0;
  each_tensor(op, args, find_type, &c->type);
  int policy = op->autocast[c->type];
  here->passed = policy == PX_AUTOCAST_NONE || !here->set.enabled[c->type];
  if (here->passed) return PX_OK;
  if (mode == PX_CALL_NEW) {
    memcpy(c->args, args, op->param_count * sizeof *args);
    PX_TRY(policies[policy](c, op));
    c->given = c->args;
  }
  here->on = false;
  return PX_OK;
}

void px__autocast_end(px__casting *c) {
  px__autocast_here.on = c->was_on;
  for (int64_t i = 0; i < c->count; i++) px_release(c->made[i]);
  if (c->made != c->small) px__free(c->made);
}

// ---- settings

px_autocast px_autocast_get(void) { return px__autocast_here.set; }

void px_autocast_set(px_autocast settings) {
  bool on = false;
  for (int type = 0; type < PX_DEVICE_TYPES; type++) on |= settings.enabled[type];
  px__autocast_here.set = settings;
  px__autocast_here.on = on;
}

bool px_autocast_is_available(px_device_type type) { return type == PX_CPU || type == PX_CUDA; }

px_status px_autocast_set_enabled(px_device_type type, bool enabled) {
  PX_CHECK(px_autocast_is_available(type), PX_RUNTIME,
           "unknown device type for autocast in get_autocast_dispatch_key_from_device_type");
  px_autocast settings = px_autocast_get();
  settings.enabled[type] = enabled;
  px_autocast_set(settings);
  return PX_OK;
}

px_status px_autocast_set_dtype(px_device_type type, px_dtype dtype) {
  PX_CHECK(px_autocast_is_available(type), PX_RUNTIME, "unsupported scalarType");
  PX_CHECK(dtype >= 0 && dtype < PX_DTYPE_COUNT && px_dtype_is_float(dtype), PX_TYPE,
           "autocast: expected a floating-point dtype, but got %s", px_dtype_name(dtype));
  px__autocast_here.set.dtype[type] = (uint8_t)dtype;
  return PX_OK;
}

void px_autocast_set_cache_enabled(bool enabled) { px__autocast_here.set.cache = enabled; }

int px_autocast_nest(int by) { return px__autocast_here.nesting += by; }

px_status px_autocast_check(px_device_type type, px_dtype dtype, bool *enabled) {
  PX_GIVEN(enabled);
  const char *text =
      type == PX_CPU && dtype != PX_FLOAT16 && dtype != PX_BFLOAT16
          ? "In CPU autocast, but the target dtype is not supported. Disabling autocast.\nCPU "
            "Autocast only supports dtypes of torch.bfloat16, torch.float16 currently."
      : type == PX_CUDA && !px_device_count(PX_CUDA)
          ? "CUDA is not available or torch_xla is imported. Disabling autocast."
          : NULL;
  if (!*enabled || !text) return PX_OK;
  PX_TRY(px_warn(PX_WARN_USER, "%s", text));
  *enabled = false;
  return PX_OK;
}

px_status px_autocast_enter(px_autocast *before, px_device_type type, px_dtype dtype,
                            bool enabled) {
  PX_GIVEN(before);
  PX_CHECK(px_autocast_is_available(type), PX_RUNTIME, "unsupported scalarType");
  px_autocast was = px_autocast_get();
  if (dtype == PX_DTYPE_NONE) dtype = (px_dtype)was.dtype[type];
  PX_TRY(px_autocast_check(type, dtype, &enabled));
  PX_TRY(px_autocast_set_dtype(type, dtype));
  PX_TRY(px_autocast_set_enabled(type, enabled));
  (void)px_autocast_nest(1);
  *before = was;
  return PX_OK;
}

void px_autocast_exit(px_autocast before) {
  px_autocast_set(before);
  if (px_autocast_nest(-1) == 0) px_autocast_clear_cache();
}
