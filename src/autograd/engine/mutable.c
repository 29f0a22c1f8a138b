// SPDX-License-Identifier: Apache-2.0
// allow_mutation_on_saved_tensors. Within a region, a thread saves tensors through its own hooks
// (packed.c) and copies them before a call writes to their memory.
//
// A tensor saved several times before it changes is stored once, with a use count. Nodes hold uses,
// not references: the region finds a tensor as long as it has uses. Copies are made without the
// lock, as they may run code of the embedding language, which may destroy nodes.
#include "autograd/engine/graph.h"
#include "phlox/ops/copy.h"

enum { BUCKETS = 1024 };

typedef struct kept {
  struct region *region;  // owned
  px_tensor *tensor;      // owned: the saved one or its copy; NULL after the region has ended
  uintptr_t storage;      // identity of the saved tensor's storage
  uint64_t version;
  int uses;
  bool copied;
  struct kept *next;     // in the bucket
  struct kept *written;  // list of tensors about to be written; used by one thread
} kept;

typedef struct region {
  px_object head;
  pthread_mutex_t lock;  // guards the buckets and their contents
  kept *buckets[BUCKETS];
  px_write_watch watch;
} region;

// The region of each thread, owned by it. A pthread key, as in src/call/hooks.c.
static pthread_key_t region_key;
static bool has_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void make_key(void) { has_key = pthread_key_create(&region_key, px_release) == 0; }
static region *region_here(void) {
  pthread_once(&once, make_key);
  return has_key ? pthread_getspecific(region_key) : NULL;
}

static void region_destroy(void *self) {
  pthread_mutex_destroy(&((region *)self)->lock);
  px_object_end(self);
  px_free(self);
}
static const px_class region_class = {"region of saved tensors", region_destroy};

static uintptr_t storage_of(const px_tensor *t) { return (uintptr_t)px_tensor_storage(t); }
static kept **bucket_of(region *r, uintptr_t storage) {
  return &r->buckets[storage / 64 % BUCKETS];
}

// ---- saved tensor hooks

static bool is_same(const kept *k, const px_tensor *t) {
  int ndim = px_tensor_ndim(t);
  if (k->copied || k->version != px_tensor_version(t) || px_tensor_ndim(k->tensor) != ndim ||
      px_tensor_dtype(k->tensor) != px_tensor_dtype(t) ||
      px_tensor_offset(k->tensor) != px_tensor_offset(t))
    return false;
  size_t bytes = (size_t)ndim * sizeof(int64_t);
  return px_tensor_same_sizes(k->tensor, t) &&
         !memcmp(px_tensor_strides(k->tensor), px_tensor_strides(t), bytes);
}

static kept *use_existing(region *r, const px_tensor *t) {
  for (kept *k = *bucket_of(r, storage_of(t)); k; k = k->next)
    if (k->storage == storage_of(t) && k->tensor && is_same(k, t)) return k->uses++, k;
  return NULL;
}

static px_status pack(void **out, px_tensor *t, void *context) {
  region *r = context;
  pthread_mutex_lock(&r->lock);
  *out = use_existing(r, t);
  pthread_mutex_unlock(&r->lock);
  if (*out) return PX_OK;
  kept *k = NULL;
  PX_TRY(px_alloc((void **)&k, sizeof *k));
  *k = (kept){.region = px_retain(r), .tensor = px_retain(t), .storage = storage_of(t), .uses = 1};
  k->version = px_tensor_version(t);
  kept **bucket = bucket_of(r, k->storage);
  pthread_mutex_lock(&r->lock);
  k->next = *bucket;
  *bucket = k;
  pthread_mutex_unlock(&r->lock);
  *out = k;
  return PX_OK;
}

static px_status unpack(px_tensor **out, void *packed, void *context) {
  region *r = context;
  pthread_mutex_lock(&r->lock);
  *out = px_retain(((kept *)packed)->tensor);
  pthread_mutex_unlock(&r->lock);
  PX_CHECK(*out, PX_ASSERTION,
           "Trying to backward outside of the 'allow_mutation_on_saved_tensors' contextin which "
           "the graph was originally recorded.");
  return PX_OK;
}

static void drop(void *packed) {
  kept *k = packed;
  region *r = k->region;
  pthread_mutex_lock(&r->lock);
  bool last = !--k->uses;
  kept **link = bucket_of(r, k->storage);
  while (last && *link != k) link = &(*link)->next;
  if (last) *link = k->next;
  pthread_mutex_unlock(&r->lock);
  if (!last) return;
  px_release(k->tensor);
  px_release(r);
  px_free(k);
}

// ---- copy before write

static px_status copy_of(px_tensor **out, px_tensor *t) {
  bool before = px__grad_swap(false);
  px_status status = px_clone(out, t, NULL);
  px__grad_swap(before);
  return status;
}

static kept *use_written(region *r, uintptr_t storage) {
  kept *found = NULL;
  pthread_mutex_lock(&r->lock);
  for (kept *k = *bucket_of(r, storage); k; k = k->next) {
    if (k->storage != storage || k->copied) continue;
    k->uses++;
    k->written = found;
    found = k;
  }
  pthread_mutex_unlock(&r->lock);
  return found;
}

static px_status copy(region *r, kept *k) {
  px_tensor *made = NULL;
  PX_TRY(copy_of(&made, k->tensor));
  pthread_mutex_lock(&r->lock);
  px_tensor *saved = k->tensor;
  k->tensor = made;
  k->copied = true;
  pthread_mutex_unlock(&r->lock);
  px_release(saved);
  return PX_OK;
}

static px_status before_write(px_tensor *written, void *context) {
  px_status status = PX_OK;
  kept *next, *k = px_tensor_storage(written) ? use_written(context, storage_of(written)) : NULL;
  for (; k; k = next) {
    next = k->written;
    if (status == PX_OK) status = copy(context, k);
    drop(k);
  }
  return status;
}

// ---- the region

px_status px_saved_mutable_begin(void) {
  static const px_saved_hooks hooks = {pack, unpack, drop, px_release};
  PX_CHECK(!region_here(), PX_RUNTIME, "allow_mutation_on_saved_tensors contexts cannot be nested");
  PX_SCOPED(region) r = NULL;
  PX_TRY(px_alloc((void **)&r, sizeof *r));
  px_object_init(r, &region_class);
  pthread_mutex_init(&r->lock, NULL);
  r->watch = (px_write_watch){before_write, r};
  PX_TRY(px_saved_hooks_push(&hooks, r));
  px_retain(r);  // owned by the hooks
  bool known = has_key && pthread_setspecific(region_key, r) == 0;
  if (known && px_op_watch_writes(&r->watch) == PX_OK) return (void)PX_MOVE(r), PX_OK;
  if (known) pthread_setspecific(region_key, NULL);
  px_saved_hooks_pop();
  PX_FAIL(PX_NOMEM, "out of memory for thread-local saved tensor hooks");
}

// Releases one tensor of a bucket. Returns false if there is none.
static bool release_one(region *r, int bucket) {
  px_tensor *gone = NULL;
  pthread_mutex_lock(&r->lock);
  for (kept *k = r->buckets[bucket]; k && !gone; k = k->next) gone = k->tensor, k->tensor = NULL;
  pthread_mutex_unlock(&r->lock);
  px_release(gone);
  return gone;
}

void px_saved_mutable_end(void) {
  PX_SCOPED(region) r = region_here();
  if (!r) return;
  pthread_setspecific(region_key, NULL);
  (void)!px_op_watch_writes(NULL);  // cannot fail: the key exists
  px_saved_hooks_pop();
  for (int i = 0; i < BUCKETS; i++)
    while (release_one(r, i)) continue;
}

// Lists the region's tensors into `items` unless that is NULL. Returns their number.
static int64_t list(const region *r, bool copies, px_tensor **items) {
  int64_t n = 0;
  for (int i = 0; i < BUCKETS; i++)
    for (const kept *k = r->buckets[i]; k; k = k->next) {
      if (k->copied != copies) continue;
      if (items) items[n] = k->tensor;
      n++;
    }
  return n;
}

static px_status list_locked(px_list **out, const region *r, bool copies) {
  px_tensor **items = NULL;
  PX_TRY(px_alloc((void **)&items, (size_t)(list(r, copies, NULL) + 1) * sizeof(px_tensor *)));
  px_status status = px_list_new(out, items, list(r, copies, items));
  px_free(items);
  return status;
}

px_status px_saved_mutable_list(px_list **out, bool copies) {
  PX_GIVEN(out);
  region *r = region_here();
  if (!r) return px_list_new(out, NULL, 0);
  pthread_mutex_lock(&r->lock);
  px_status status = list_locked(out, r, copies);
  pthread_mutex_unlock(&r->lock);
  return status;
}
