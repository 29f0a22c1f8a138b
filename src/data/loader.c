// SPDX-License-Identifier: Apache-2.0
// The data loader: batches of a dataset in order, optionally prefetched by worker threads.
//
// Batch b uses slot b mod slot_count. Workers claim the next batch while its slot is free. The
// consumer takes batches in order. `lock` guards the fields below it.
#include "phlox/autograd.h"
#include "phlox/data.h"
#include "phlox/ops/copy.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct px_loader {
  px_object head;
  px_dataset *dataset;
  px_loader_options options;  // sampler and generator are owned
  px_sampler *sampler;
};

typedef struct slot {
  bool full;
  px_list *batch;
  px_status status;
  px_error *error;  // set if status is not PX_OK
} slot;

struct px_loader_iter {
  px_object head;
  px_loader *loader;
  int64_t *indices;
  int64_t index_count, batch_count, next;  // next: owned by the consumer
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int64_t claimed;  // batches claimed by workers
  bool stop;
  slot *slots;
  int slot_count, worker_count;
  pthread_t *workers;
};

static void loader_destroy(void *object) {
  px_loader *self = object;
  px_release(self->dataset);
  px_release(self->sampler);
  px_release(self->options.generator);
  px_object_end(self);
  px_free(self);
}

static const px_class loader_class = {"loader", loader_destroy};

static px_status options_check(const px_loader_options *o) {
  PX_CHECK(o->batch_size >= 0, PX_VALUE,
           "batch_size should be a positive integer value, but got batch_size=%lld",
           (long long)o->batch_size);
  PX_CHECK(o->workers >= 0, PX_VALUE,
           "num_workers option should be non-negative; use num_workers=0 to disable "
           "multiprocessing.");
  PX_CHECK(o->prefetch <= INT32_MAX / (o->workers ? o->workers : 1), PX_VALUE,
           "cannot prefetch %d batches per worker with %d workers", o->prefetch, o->workers);
  PX_CHECK(!o->sampler || !o->shuffle, PX_VALUE,
           "sampler option is mutually exclusive with shuffle");
  return PX_OK;
}

px_status px_loader_new(px_loader **out, px_dataset *dataset, const px_loader_options *options) {
  PX_GIVEN(out);
  PX_GIVEN(dataset);
  static const px_loader_options defaults;
  *out = NULL;
  if (!options) options = &defaults;
  PX_TRY(options_check(options));
  PX_SCOPED(px_sampler) sampler = px_retain(options->sampler);
  int64_t length = px_dataset_length(dataset);
  if (!sampler && options->shuffle) PX_TRY(px_sampler_random(&sampler, length, options->generator));
  if (!sampler) PX_TRY(px_sampler_sequential(&sampler, length));
  PX_TRY(px_alloc((void **)out, sizeof **out));
  px_object_init(*out, &loader_class);
  (*out)->dataset = px_retain(dataset);
  (*out)->options = *options;
  (*out)->options.generator = px_retain(options->generator);
  if (!options->batch_size) (*out)->options.batch_size = 1;
  if (options->prefetch <= 0) (*out)->options.prefetch = 2;
  (*out)->sampler = PX_MOVE(sampler);
  return PX_OK;
}

int64_t px_loader_length(const px_loader *self) {
  int64_t n = px_sampler_length(self->sampler), size = self->options.batch_size;
  return n / size + (!self->options.drop_last && n % size != 0);
}

// ---- fetching

static px_status pinned(px_list **out, px_list *batch) {
  int64_t n = px_list_size(batch);
  px_tensor **made;
  PX_TRY(px_alloc((void **)&made, (size_t)n * sizeof *made));
  px_status status = PX_OK;
  for (int64_t i = 0; i < n && status == PX_OK; i++)
    status = px_pin_memory(&made[i], px_list_get(batch, i));
  if (status == PX_OK) status = px_list_new(out, made, n);
  for (int64_t i = 0; i < n; i++) px_release(made[i]);
  px_free(made);
  return status;
}

static px_status fetch(px_list **out, px_loader_iter *self, int64_t number) {
  *out = NULL;
  int64_t size = self->loader->options.batch_size, begin = number * size;
  int64_t left = self->index_count - begin, count = left < size ? left : size;
  PX_SCOPED(px_list) batch = NULL;
  PX_TRY(px_dataset_batch(&batch, self->loader->dataset, self->indices + begin, count));
  if (self->loader->options.pin_memory && px_device_count(PX_CUDA) > 0) return pinned(out, batch);
  *out = PX_MOVE(batch);
  return PX_OK;
}

// ---- workers

typedef struct worker {
  px_loader_iter *pass;
  int number;
  px_modes modes;  // of the thread that started the pass
} worker;

// Takes the current error and prefixes it with the worker, as PyTorch does for its processes.
static px_error *kept_error(int number) {
  px_error *kept;
  px_error error;
  px_error_take(&error);
  if (px_alloc((void **)&kept, sizeof *kept) != PX_OK) return px_error_drop(&error), NULL;
  *kept = error;
  int used = snprintf(kept->message, sizeof kept->message,
                      "Caught %s in DataLoader worker thread %d.\nOriginal error: ",
                      px_status_exception(error.code), number);
  snprintf(kept->message + used, sizeof kept->message - (size_t)used, "%.*s",
           (int)(sizeof kept->message) - used - 1, error.message);
  return kept;
}

// Claims the next batch once its slot is free. Returns -1 at the end.
static int64_t claim(px_loader_iter *self) {
  pthread_mutex_lock(&self->lock);
  while (!self->stop && self->claimed < self->batch_count &&
         self->claimed - self->next >= self->slot_count)
    pthread_cond_wait(&self->changed, &self->lock);
  int64_t number = self->stop || self->claimed >= self->batch_count ? -1 : self->claimed++;
  pthread_mutex_unlock(&self->lock);
  return number;
}

static void deliver(px_loader_iter *self, int64_t number, slot result) {
  pthread_mutex_lock(&self->lock);
  self->slots[number % self->slot_count] = result;
  pthread_cond_broadcast(&self->changed);
  pthread_mutex_unlock(&self->lock);
}

static void *work(void *argument) {
  worker self = *(worker *)argument;
  px_free(argument);
  px_modes_set(self.modes);
  px_set_single_threaded(true);  // the workers themselves are the parallelism
  for (int64_t number; (number = claim(self.pass)) >= 0;) {
    slot result = {.full = true};
    result.status = fetch(&result.batch, self.pass, number);
    if (result.status != PX_OK) result.error = kept_error(self.number);
    deliver(self.pass, number, result);
  }
  return NULL;
}

static px_status start_worker(px_loader_iter *self, int number) {
  worker *argument;
  PX_TRY(px_alloc((void **)&argument, sizeof *argument));
  *argument = (worker){self, number, px_modes_get()};
  px_status status = px_thread_start(&self->workers[number], work, argument);
  if (status != PX_OK)
    px_free(argument);
  else
    self->worker_count++;
  return status;
}

static px_status start_workers(px_loader_iter *self) {
  int workers = self->loader->options.workers;
  if (!workers) return PX_OK;
  self->slot_count = workers * self->loader->options.prefetch;
  PX_TRY(px_alloc((void **)&self->slots, (size_t)self->slot_count * sizeof *self->slots));
  PX_TRY(px_alloc((void **)&self->workers, (size_t)workers * sizeof *self->workers));
  for (int i = 0; i < workers; i++) PX_TRY(start_worker(self, i));
  return PX_OK;
}

// ---- a pass

static void iter_destroy(void *object) {
  px_loader_iter *self = object;
  pthread_mutex_lock(&self->lock);
  self->stop = true;
  pthread_cond_broadcast(&self->changed);
  pthread_mutex_unlock(&self->lock);
  for (int i = 0; i < self->worker_count; i++) pthread_join(self->workers[i], NULL);
  for (int i = 0; i < self->slot_count && self->slots; i++) {
    px_release(self->slots[i].batch);
    if (self->slots[i].error) px_error_drop(self->slots[i].error);
    px_free(self->slots[i].error);
  }
  pthread_cond_destroy(&self->changed);
  pthread_mutex_destroy(&self->lock);
  px_free(self->slots);
  px_free(self->workers);
  px_free(self->indices);
  px_release(self->loader);
  px_object_end(self);
  px_free(self);
}

static const px_class iter_class = {"loader_iter", iter_destroy};

px_status px_loader_start(px_loader_iter **out, px_loader *loader) {
  PX_GIVEN(out);
  PX_GIVEN(loader);
  *out = NULL;
  px_loader_iter *made;
  int64_t unused;
  PX_TRY(px_alloc((void **)&made, sizeof *made));
  px_object_init(made, &iter_class);
  pthread_mutex_init(&made->lock, NULL);
  pthread_cond_init(&made->changed, NULL);
  PX_SCOPED(px_loader_iter) self = made;
  self->loader = px_retain(loader);
  self->batch_count = px_loader_length(loader);
  self->index_count = px_sampler_length(loader->sampler);
  // PyTorch draws the workers' base seed first, which affects the order of a seeded run.
  PX_TRY(px_seed_draw(&unused, loader->options.generator));
  PX_TRY(px_alloc((void **)&self->indices, (size_t)self->index_count * sizeof(int64_t)));
  PX_TRY(px_sampler_draw(loader->sampler, self->indices));
  PX_TRY(start_workers(self));
  *out = PX_MOVE(self);
  return PX_OK;
}

// Blocks until the slot is full; caller holds the lock. Fails on an interrupt.
static px_status await(px_loader_iter *self, const slot *at) {
  px_status status = PX_OK;
  while (!at->full && status == PX_OK) {
    px_interrupt_wait(&self->changed, &self->lock);
    pthread_mutex_unlock(&self->lock);
    status = px_interrupt_poll();
    pthread_mutex_lock(&self->lock);
  }
  return status;
}

static px_status receive(px_list **batch, px_loader_iter *self) {
  pthread_mutex_lock(&self->lock);
  slot *at = &self->slots[self->next % self->slot_count];
  px_status waited = await(self, at);
  if (waited != PX_OK) {
    pthread_mutex_unlock(&self->lock);
    return waited;
  }
  slot result = *at;
  memset(at, 0, sizeof *at);
  self->next++;
  pthread_cond_broadcast(&self->changed);
  pthread_mutex_unlock(&self->lock);
  *batch = result.batch;
  if (result.status == PX_OK) return PX_OK;
  PX_CHECK(result.error, PX_NOMEM, "out of memory in a DataLoader worker thread");
  px_status status = px_error_give(result.error);
  px_free(result.error);
  return status;
}

px_status px_loader_next(px_list **batch, px_loader_iter *self) {
  PX_GIVEN(batch);
  PX_GIVEN(self);
  *batch = NULL;
  PX_CHECK(self->next < self->batch_count, PX_STOP, "end of the pass");
  if (self->worker_count) return receive(batch, self);
  return fetch(batch, self, self->next++);
}
