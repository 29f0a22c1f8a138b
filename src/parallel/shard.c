// SPDX-License-Identifier: Apache-2.0
// Groups of sharded parameters: construction, options, and initialization of values.
#include <stdio.h>
#include <string.h>

#include "formulas.h"
#include "parallel/shard_impl.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/view.h"

void px_shard_rows(int64_t *first, int64_t *count, int64_t rows, int rank, int size) {
  int64_t each = size > 0 ? (rows + size - 1) / size : rows;
  int64_t begin = rank * each < rows ? rank * each : rows;
  *first = begin;
  *count = rows - begin < each ? rows - begin : each;
}

// ---- shared contexts

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static px__shard_context *all;  // removed with its last group
// Guards the lists of groups, items and shards of all contexts. It is the innermost lock. Ranks as
// threads search all contexts for their tensors. They cannot take the contexts' locks, which are
// held while waiting for collectives. Writers hold both locks.
static pthread_mutex_t parts_lock = PTHREAD_MUTEX_INITIALIZER;

static void context_destroy(void *object) {
  px__shard_context *self = object;
  px_release(self->gather);
  px_release(self->reduce);
  px_release(self->comm);
  px_release(self->replicas);
  px_release(self->changed);
  px_free(self->groups);
  px_free(self->order);
  pthread_mutex_destroy(&self->lock);
  px_object_end(self);
  px_free(self);
}

static px_status context_new(px__shard_context **out, px_comm *comm, px_comm *replicas) {
  static const px_class cls = {"shard context", context_destroy};
  px__shard_context *self;
  pthread_mutexattr_t again;
  PX_TRY(px_alloc((void **)&self, sizeof *self));
  px_object_init(self, &cls);
  pthread_mutexattr_init(&again);
  pthread_mutexattr_settype(&again, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&self->lock, &again);
  pthread_mutexattr_destroy(&again);
  self->comm = px_retain(comm);
  self->replicas = px_retain(replicas);
  self->device = PX_DEVICE_NONE;
  self->last = true;
  self->next = all;
  *out = all = self;
  return PX_OK;
}

static px_status reserve(px__shard_context *self) {
  if (self->group_count < self->capacity) return PX_OK;
  int capacity = self->capacity ? 2 * self->capacity : 8;
  PX_TRY(px_realloc((void **)&self->groups, (size_t)capacity * sizeof *self->groups));
  PX_TRY(px_realloc((void **)&self->order, (size_t)capacity * sizeof *self->order));
  self->capacity = capacity;
  return PX_OK;
}

static px_status context_add(px__shard_context *self, px_shards *group) {
  pthread_mutex_lock(&parts_lock);
  px_status status = reserve(self);
  if (status == PX_OK) self->groups[self->group_count++] = group;
  pthread_mutex_unlock(&parts_lock);
  return status;
}

static void remove_group(px_shards **list, int *count, const px_shards *group) {
  int kept = 0;
  for (int i = 0; i < *count; i++)
    if (list[i] != group) list[kept++] = list[i];
  *count = kept;
}

// A context without groups is removed from the list.
static void context_remove(px__shard_context *self, const px_shards *group) {
  pthread_mutex_lock(&all_lock);
  pthread_mutex_lock(&self->lock);
  pthread_mutex_lock(&parts_lock);
  remove_group(self->groups, &self->group_count, group);
  pthread_mutex_unlock(&parts_lock);
  remove_group(self->order, &self->order_count, group);
  for (int i = 0; i < self->group_count; i++)
    for (int way = 0; way < 2; way++)
      remove_group(self->groups[i]->ahead[way], &self->groups[i]->ahead_count[way], group);
  if (self->root == group) self->root = NULL;
  if (self->reducing == group) self->reducing = NULL;
  if (self->averaging == group) self->averaging = NULL;
  bool over = !self->group_count;
  pthread_mutex_unlock(&self->lock);
  px__shard_context **at = &all;
  while (over && *at && *at != self) at = &(*at)->next;
  if (over && *at) *at = self->next;
  pthread_mutex_unlock(&all_lock);
}

static px_status join_context(px_shards *self, px_comm *comm, px_comm *replicas) {
  pthread_mutex_lock(&all_lock);
  px__shard_context *found = all;
  px_status status = PX_OK;
  while (found && (found->comm != comm || found->replicas != replicas)) found = found->next;
  if (found)
    px_retain(found);
  else
    status = context_new(&found, comm, replicas);
  if (status == PX_OK) {
    self->context = found;
    pthread_mutex_lock(&found->lock);
    status = context_add(found, self);
    pthread_mutex_unlock(&found->lock);
  }
  pthread_mutex_unlock(&all_lock);
  return status;
}

static void lock(const px_shards *self) { pthread_mutex_lock(&self->context->lock); }
static void unlock(const px_shards *self) { pthread_mutex_unlock(&self->context->lock); }
static void lock_parts(const px_shards *self) { lock(self), pthread_mutex_lock(&parts_lock); }
static void unlock_parts(const px_shards *self) { pthread_mutex_unlock(&parts_lock), unlock(self); }

// Origin of a rank's shard: the communicator (owned) and the unsharded sizes.
typedef struct found {
  px_comm *comm;
  int ndim, dim;
  int64_t sizes[PX_MAX_DIMS];
} found;

static void find_in(found *out, px__shard_context *context, const px_tensor *tensor) {
  pthread_mutex_lock(&parts_lock);
  for (int g = 0; g < context->group_count; g++)
    for (int i = 0; i < context->groups[g]->count; i++) {
      const px__shard *v = &context->groups[g]->items[i];
      if (v->local != tensor || out->comm) continue;
      out->comm = px_retain(context->comm);
      out->ndim = v->ndim;
      out->dim = v->dim;
      memcpy(out->sizes, v->sizes, sizeof out->sizes);
    }
  pthread_mutex_unlock(&parts_lock);
}

static bool find(found *out, const px_tensor *tensor) {
  out->comm = NULL;
  pthread_mutex_lock(&all_lock);
  for (px__shard_context *c = all; c && !out->comm; c = c->next) find_in(out, c, tensor);
  pthread_mutex_unlock(&all_lock);
  return out->comm;
}

static bool is_sharded(const px_tensor *tensor) {
  found of;
  bool is = find(&of, tensor);
  if (is) px_release(of.comm);
  return is;
}

// ---- construction

static void shard_end(px__shard *v) {
  if (v->hook) px_tensor_remove_hook(v->whole, v->hook);
  px_release(v->whole);
  px_release(v->local);
  px_release(v->summed);
  px_release(v->unaveraged);
  px_free(v->name);
  for (int i = 0; i < v->registration_count; i++) {
    if (!px__shards_member(v->shards, v->registrations[i].owner))
      px_release(v->registrations[i].owner);
    px_free(v->registrations[i].name);
  }
  px_free(v->registrations);
}

static void shards_destroy(void *object) {
  px_shards *self = object;
  if (self->context) context_remove(self->context, self);
  for (int i = 0; i < self->count; i++) shard_end(&self->items[i]);
  px_free(self->items);
  px_free(self->members);
  px_release(self->gathering);
  px_release(self->reduction);
  px_release(self->flat);
  px_release(self->mine);
  for (int way = 0; way < 2; way++) px_free(self->ahead[way]);
  if (self->on_reduced_release) self->on_reduced_release(self->on_reduced_context);
  px_release(self->on_reduced_stream);
  px_release(self->context);
  px_object_end(self);
  px_free(self);
}

// Search for parameters and their registrations, before anything changes.
typedef struct search {
  px_shards *self;
  const px_shard_options *options;
} search;

static bool is_ignored(const px_shard_options *o, const px_tensor *tensor) {
  for (int i = 0; i < o->ignored_count; i++)
    if (o->ignored[i] == tensor) return true;
  return false;
}

static px_status check_parameter(const char *name, const px_tensor *tensor) {
  PX_CHECK(px_tensor_ndim(tensor) > 0, PX_VALUE,
           "fully_shard doesn't support scalar parameters. Change %s to a 1D tensor with numel "
           "equal to 1.",
           name);
  PX_CHECK(px_tensor_is_contiguous(tensor), PX_UNIMPLEMENTED,
           "FSDP does not support non-contiguous parameters yet: %s", name);
  return PX_OK;
}

static px_status add_registration(px__shard *v, px_module *owner, const char *name) {
  const char *dot = strrchr(name, '.');
  PX_TRY(px_realloc((void **)&v->registrations,
                    (size_t)(v->registration_count + 1) * sizeof *v->registrations));
  px__registration *registration = &v->registrations[v->registration_count];
  PX_TRY(px_strdup(&registration->name, dot ? dot + 1 : name));
  registration->owner = px__shards_member(v->shards, owner) ? owner : px_retain(owner);
  v->registration_count++;
  return PX_OK;
}

// Caller holds the locks: ranks as threads search all groups.
static px_status grow(px_shards *self, px_tensor *tensor, int dim) {
  PX_TRY(px_realloc((void **)&self->items, (size_t)(self->count + 1) * sizeof *self->items));
  px__shard *v = &self->items[self->count++];
  memset(v, 0, sizeof *v);
  v->shards = self;
  v->local = px_retain(tensor);
  v->dim = dim;
  v->ndim = px_tensor_ndim(tensor);
  for (int d = 0; d < v->ndim; d++) v->sizes[d] = px_tensor_size(tensor, d);
  return PX_OK;
}

static px_status choose_dim(int *dim, const px_shard_options *o, px_tensor *tensor) {
  char text[256] = "";
  int ndim = px_tensor_ndim(tensor), size = px_comm_size(o->comm);
  *dim = 0;
  if (!o->dim_of) return PX_OK;
  PX_TRY(o->dim_of(dim, tensor, o->dim_context));
  int given = *dim;
  if (*dim < 0) *dim += ndim;
  for (int d = 0, n = 0; d < ndim && n < (int)sizeof text; d++)
    n += snprintf(text + n, sizeof text - (size_t)n, "%s%lld", d ? ", " : "",
                  (long long)px_tensor_size(tensor, d));
  PX_CHECK(*dim >= 0 && *dim < ndim, PX_ASSERTION,
           "Shard dim %d is invalid for %dD tensor: torch.Size([%s])", given, ndim, text);
  PX_CHECK(!*dim || px_tensor_size(tensor, *dim) % size == 0, PX_UNIMPLEMENTED,
           "FSDP does not support uneven sharding on dim %d: torch.Size([%s]) (world size: %d)",
           *dim, text, size);
  return PX_OK;
}

static px_status add_item(search *s, const char *name, px_tensor *tensor) {
  px_shards *self = s->self;
  int dim;
  PX_TRY(check_parameter(name, tensor));
  PX_TRY(choose_dim(&dim, s->options, tensor));
  lock_parts(self);
  px_status status = grow(self, tensor, dim);
  unlock_parts(self);
  PX_TRY(status);
  px__shard *v = &self->items[self->count - 1];
  int size = px_comm_size(self->context->comm);
  int64_t rows = v->sizes[dim], row = rows ? px_tensor_numel(tensor) / rows : 0;
  v->share = (rows + size - 1) / size * row;
  return px_strdup(&v->name, name);
}

static px_status find_parameter(const char *name, const px_module_entry *entry, px_module *owner,
                                void *context) {
  search *s = context;
  px_shards *self = s->self;
  int i = 0;
  if (!entry->tensor || is_ignored(s->options, entry->tensor)) return PX_OK;
  while (i < self->count && self->items[i].local != entry->tensor) i++;
  if (i == self->count) {
    if (is_sharded(entry->tensor)) return PX_OK;
    PX_TRY(add_item(s, name, entry->tensor));
  }
  return add_registration(&self->items[i], owner, name);
}

// ---- sharding

static px_status make_shard(px_tensor **out, const px__shard *v, px_device device) {
  PX_SCOPED(px_tensor) plain = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) dense = NULL;
  PX_SCOPED(px_tensor) there = NULL;
  px_comm *comm = v->shards->context->comm;
  int64_t first, count;
  px_shard_rows(&first, &count, v->sizes[v->dim], px_comm_rank(comm), px_comm_size(comm));
  PX_TRY(px_tensor_detach(&plain, v->local));
  PX_TRY(px_narrow(&rows, plain, v->dim, first, count));
  PX_TRY(px_contiguous(&dense, rows));
  PX_TRY(px_to(&there, dense, PX_DTYPE_NONE, device, false, dense == rows));
  if (v->shards->pin && device.type == PX_CPU)
    PX_TRY(px_pin_memory(out, there));
  else
    *out = PX_MOVE(there);
  px_tensor_set_parameter(*out, true);
  if (!px_tensor_requires_grad(v->local)) return PX_OK;
  return px_tensor_set_requires_grad(*out, true);
}

// Creates all shards before registering the first.
static px_status make_shards(px_shards *self, px_device device, px_tensor **parts) {
  for (int i = 0; i < self->count; i++) PX_TRY(make_shard(&parts[i], &self->items[i], device));
  lock_parts(self);
  for (int i = 0; i < self->count; i++) {
    px_tensor *whole = self->items[i].local;
    self->items[i].local = parts[i];
    parts[i] = whole;  // the caller releases it without the lock
  }
  unlock_parts(self);
  for (int i = 0; i < self->count; i++)
    PX_TRY(px__shard_register(&self->items[i], self->items[i].local));
  return PX_OK;
}

static px_status move_buffer(const char *name, const px_module_entry *entry, px_module *owner,
                             void *device) {
  PX_SCOPED(px_tensor) moved = NULL;
  if (!entry->tensor || px_tensor_device(entry->tensor).type == PX_META) return PX_OK;
  PX_TRY(px_to(&moved, entry->tensor, PX_DTYPE_NONE, *(px_device *)device, false, false));
  return px_tensor_set_data(entry->tensor, moved);
}

// Buffers are moved first, as a repeated move is harmless.
static px_status shard_module(px_shards *self, px_device device) {
  px_tensor **parts;
  if (self->count && px_tensor_device(self->items[0].local).type == PX_META)
    device = PX_DEVICE_NONE;
  else if (!px_device_equal(device, PX_DEVICE_NONE))
    for (int i = 0; i < self->member_count; i++)
      PX_TRY(px_module_walk(self->members[i].module, PX_ENTRY_BUFFER, "", true, false, move_buffer,
                            &device));
  bool on_cpu = self->offload && !px_device_equal(device, PX_DEVICE_NONE);
  PX_TRY(px_alloc((void **)&parts, (size_t)(self->count + 1) * sizeof *parts));
  bool was = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status = make_shards(self, on_cpu ? px_cpu() : device, parts);
  px_grad_set_enabled(was);
  px__drop_all(parts, self->count);
  px_free(parts);
  return status;
}

static px_status set_members(px_shards *self, px_module *module, const px_shard_options *o) {
  PX_TRY(px_alloc((void **)&self->members, (size_t)(o->other_count + 1) * sizeof *self->members));
  self->members[self->member_count++].module = module;
  for (int i = 0; i < o->other_count; i++)
    if (!px__shards_member(self, o->others[i]))
      self->members[self->member_count++].module = o->others[i];
  return PX_OK;
}

// Constructs the group without sharding its parameters.
static px_status find_all(px_shards **out, px_module *module, const px_shard_options *options) {
  static const px_class cls = {"shards", shards_destroy};
  PX_GIVEN(out);
  PX_GIVEN(module);
  PX_GIVEN(options);
  PX_GIVEN(options->comm);
  PX_GIVEN_N(options->ignored, options->ignored_count);
  PX_GIVEN_EACH(options->others, options->other_count);
  PX_CHECK(!options->offload || !px_device_equal(options->device, PX_DEVICE_NONE), PX_VALUE,
           "expected a compute device with offload: the shards are on the CPU");
  px_shards *self;
  PX_TRY(px_alloc((void **)&self, sizeof *self));
  PX_SCOPED(px_shards) owned = self;
  px_object_init(self, &cls);
  self->keep = options->keep;
  self->keep_outermost = options->keep_outermost;
  self->reduces = self->averages = true;
  self->on_gradient = px__shards_on_gradient;
  self->param_dtype = options->param_dtype;
  self->reduce_dtype = options->reduce_dtype;
  self->offload = options->offload;
  self->pin = options->offload && options->pin;
  self->device = options->offload ? options->device : PX_DEVICE_NONE;
  search s = {self, options};
  PX_TRY(join_context(self, options->comm, options->replicas));
  PX_TRY(set_members(self, module, options));
  for (int i = 0; i < self->member_count; i++)
    PX_TRY(px_module_walk(self->members[i].module, PX_ENTRY_PARAMETER, "", true, true,
                          find_parameter, &s));
  *out = PX_MOVE(owned);
  return PX_OK;
}

px_status px_shards_new(px_shards **out, px_module *module, const px_shard_options *options) {
  PX_SCOPED(px_shards) self = NULL;
  PX_GIVEN(out);
  PX_TRY(find_all(&self, module, options));
  PX_TRY(shard_module(self, options->device));
  *out = PX_MOVE(self);
  return PX_OK;
}

// The hooks of a member; 0 until added.
typedef struct hooks {
  int64_t before, after;
} hooks;

static px_status add_hooks(hooks *out, px_shards *self, px_module *module) {
  PX_TRY(px_module_add_hook(&out->before, module, true, px__shards_before_hook, self, NULL));
  PX_TRY(px_module_add_hook(&out->after, module, false, px__shards_after_hook, self, px_release));
  px_retain(self);  // owned by the hook
  return PX_OK;
}

static void remove_hooks(const hooks *of, px_module *module) {
  if (of->before) px_module_remove_hook(module, of->before);
  if (of->after) px_module_remove_hook(module, of->after);
}

px_status px_fully_shard(px_shards **out, px_module *module, const px_shard_options *options) {
  PX_SCOPED(px_shards) self = NULL;
  PX_GIVEN(out);
  hooks *all_hooks;
  PX_TRY(find_all(&self, module, options));
  PX_TRY(px_alloc((void **)&all_hooks, (size_t)self->member_count * sizeof *all_hooks));
  px_status status = PX_OK;
  for (int i = 0; i < self->member_count && status == PX_OK; i++)
    status = add_hooks(&all_hooks[i], self, self->members[i].module);
  if (status == PX_OK) status = shard_module(self, options->device);
  for (int i = 0; i < self->member_count && status != PX_OK; i++)
    remove_hooks(&all_hooks[i], self->members[i].module);
  px_free(all_hooks);
  PX_TRY(status);
  *out = PX_MOVE(self);
  return PX_OK;
}

// ---- options

bool px_shards_at(const px_shards *self, int i, px_shard *out) {
  if (i < 0 || i >= self->count) return false;
  const px__shard *v = &self->items[i];
  *out = (px_shard){v->name, v->local, v->whole, v->sizes, v->ndim, v->dim};
  return true;
}

bool px_shards_is_unsharded(const px_shards *self) { return self->state == PX__UNSHARDED; }

void px_shards_keep(px_shards *self, bool after_backward, bool keep) {
  lock(self);
  *(after_backward ? &self->keep_after_backward : &self->keep) = keep;
  self->keep_outermost &= after_backward;
  unlock(self);
}

void px_shards_gather_for_backward(px_shards *self, bool gathers) {
  lock(self);
  self->no_backward_gather = !gathers;
  unlock(self);
}

px_status px_shards_after_event(px_shards *self, px_event *event) {
  PX_GIVEN(self);
  lock(self);
  px_event *before = self->context->changed;
  self->context->changed = event ? px_retain(event) : NULL;
  unlock(self);
  px_release(before);
  return PX_OK;
}

void px_shards_reduce(px_shards *self, bool reduces) {
  lock(self);
  self->reduces = reduces;
  unlock(self);
}

void px_shards_average(px_shards *self, bool averages) {
  lock(self);
  self->averages = averages;
  unlock(self);
}

void px_shards_last_backward(px_shards *self, bool last) {
  lock(self);
  self->context->last = last;
  unlock(self);
}

void px_shards_divide(px_shards *self, double factor) {
  lock(self);
  self->divide = factor;
  unlock(self);
}

px_status px_shards_on_reduced(px_shards *self, px_shards_reduced_hook fn, void *context_take,
                               void (*release)(void *context), px_stream *stream) {
  PX_GIVEN(self);
  PX_CHECK(!stream || !self->context->replicas, PX_VALUE,
           "stream cannot be set when using native HSDP");
  lock(self);
  void (*release_before)(void *) = self->on_reduced_release;
  void *before = self->on_reduced_context;
  px_stream *stream_before = self->on_reduced_stream;
  self->on_reduced = fn;
  self->on_reduced_context = context_take;
  self->on_reduced_release = release;
  self->on_reduced_stream = px_retain(stream);
  unlock(self);
  if (release_before) release_before(before);
  px_release(stream_before);
  return PX_OK;
}

px_status px_shards_prefetch(px_shards *self, bool backward, px_shards *const *others, int count) {
  PX_GIVEN(self);
  PX_GIVEN_N(others, count);
  px_shards **list;
  for (int i = 0; i < count; i++)
    PX_CHECK(others[i] && others[i]->context == self->context, PX_VALUE,
             "expected prefetched groups of the same communicator");
  PX_TRY(px_alloc((void **)&list, (size_t)(count + 1) * sizeof *list));
  if (count) memcpy(list, others, (size_t)count * sizeof *list);
  lock(self);
  px_free(self->ahead[backward]);
  self->ahead[backward] = list;
  self->ahead_count[backward] = count;
  unlock(self);
  return PX_OK;
}

// ---- initialization of values

px_status px_shard_placeholder(px_tensor **out, px_tensor *part) {
  PX_GIVEN(out);
  PX_GIVEN(part);
  found of;
  if (!find(&of, part)) return *out = px_retain(part), PX_OK;
  px_release(of.comm);
  return px_tensor_empty(out, of.ndim, of.sizes, px_tensor_dtype(part), px_tensor_device(part));
}

px_status px_shard_take_rows(px_tensor *part, const px_tensor *whole) {
  PX_GIVEN(part);
  PX_GIVEN(whole);
  found of;
  if (whole == part || !find(&of, part)) return PX_OK;
  PX_SCOPED(px_comm) comm = of.comm;
  PX_SCOPED(px_tensor) taken = NULL;
  int64_t first, count;
  px_shard_rows(&first, &count, of.sizes[of.dim], px_comm_rank(comm), px_comm_size(comm));
  return px__formula_take_part(
      &taken, (px_value[]){PX_T(part), PX_T(whole), PX_I(of.dim), PX_I(first), PX_I(count)});
}

static px_status put_tensor(px_module *layer, const px_module_entry *entry, px_tensor *tensor) {
  px_module_entry changed = *entry;
  changed.tensor = tensor;
  return px_module_put(layer, &changed);
}

// Registers unsharded tensors in place of the shards; `restore_parts` reverses it.
static px_status register_wholes(px_module *layer, px_tensor **parts, px_tensor **wholes,
                                 int count) {
  px_module_entry entry;
  for (int at = 0, i = 0; px_module_entry_next(layer, PX_ENTRY_PARAMETER, &at, &entry); i++) {
    if (i >= count || !entry.tensor) continue;
    PX_TRY(px_shard_placeholder(&wholes[i], entry.tensor));
    if (wholes[i] == entry.tensor) continue;
    parts[i] = px_retain(entry.tensor);
    px_tensor_set_parameter(wholes[i], true);
    PX_TRY(put_tensor(layer, &entry, wholes[i]));
  }
  return PX_OK;
}

static px_status restore_parts(px_module *layer, px_tensor *const *parts, px_tensor *const *wholes,
                               int count, bool take) {
  px_module_entry entry;
  for (int at = 0, i = 0; px_module_entry_next(layer, PX_ENTRY_PARAMETER, &at, &entry); i++) {
    if (i >= count || !parts[i]) continue;
    PX_TRY(put_tensor(layer, &entry, parts[i]));
    if (take) PX_TRY(px_shard_take_rows(parts[i], wholes[i]));
  }
  return PX_OK;
}

px_status px_shards_reset(px_module *layer) {
  PX_GIVEN(layer);
  px_tensor **parts;
  px_module_entry entry;
  int count = 0;
  for (int at = 0; px_module_entry_next(layer, PX_ENTRY_PARAMETER, &at, &entry);) count++;
  PX_TRY(px_alloc((void **)&parts, 2 * (size_t)(count + 1) * sizeof *parts));
  px_tensor **wholes = parts + count;
  px_status status = register_wholes(layer, parts, wholes, count);
  if (status == PX_OK) status = px_module_reset(layer);
  px_status back = restore_parts(layer, parts, wholes, count, status == PX_OK);
  px__drop_all(parts, 2 * count);
  px_free(parts);
  return status == PX_OK ? back : status;
}
