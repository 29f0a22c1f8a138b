// SPDX-License-Identifier: Apache-2.0
// DataParallel: replicas of a module, one thread for each, and the forward pass over them.
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "parallel/parallel_impl.h"
#include "phlox/memory.h"

// ---- threads

typedef struct replica_thread {
  int number;
  px_device device;
  px_stream *stream;  // the caller's current one on the device, borrowed
  bool grad;
  px_autocast autocast;
  px_site site;  // of the caller
  px_parallel_work work;
  void *context;
  px_status status;
  px_error *error;
  pthread_t thread;
} replica_thread;

static px_status run_work(const replica_thread *self) {
  (void)px_site_lend(self->site);
  px_grad_set_enabled(self->grad);
  px_autocast_set(self->autocast);
  if (self->device.type == PX_CUDA) PX_TRY(px_device_set(self->device.index));
  if (self->stream) PX_TRY(px_stream_set_current(self->stream));
  return self->work(self->number, self->context);
}

static void *run_replica(void *argument) {
  replica_thread *self = argument;
  self->status = run_work(self);
  if (self->status != PX_OK) px_error_take(self->error);
  return NULL;
}

// Prefixes the error with "Caught X in replica i on device d.", except exceptions of another
// language.
static px_status raise_error(const replica_thread *failed) {
  px_error *error = failed->error;
  if (error->code == PX_FOREIGN) return px_error_give(error);
  char text[PX_ERROR_MESSAGE];
  snprintf(text, sizeof text, "%s", error->message);
  int used = snprintf(error->message, sizeof error->message,
                      "Caught %s in replica %d on device %d.\nOriginal error: ",
                      px_status_exception(error->code), failed->number, failed->device.index);
  snprintf(error->message + used, sizeof error->message - (size_t)used, "%.*s",
           PX_ERROR_MESSAGE - used - 1, text);
  return px_error_give(error);
}

static px_status prepare(replica_thread *threads, int count, const px_device *devices,
                         px_parallel_work work, void *context) {
  for (int i = 0; i < count; i++) {
    threads[i] = (replica_thread){.number = i,
                                  .device = devices[i],
                                  .grad = px_grad_enabled(),
                                  .autocast = px_autocast_get(),
                                  .work = work,
                                  .context = context};
    threads[i].site = px_site_here();
    PX_TRY(px_alloc((void **)&threads[i].error, sizeof(px_error)));
    if (devices[i].type == PX_CUDA) PX_TRY(px_stream_current(&threads[i].stream, devices[i]));
  }
  return PX_OK;
}

// Starts all threads, joins the started ones and returns the first error.
static px_status run_all(replica_thread *threads, int count) {
  px_status status = PX_OK;
  int started = 0;
  while (started < count && status == PX_OK) {
    status = px_thread_start(&threads[started].thread, run_replica, &threads[started]);
    started += status == PX_OK;
  }
  const replica_thread *failed = NULL;
  for (int i = 0; i < started; i++) {
    pthread_join(threads[i].thread, NULL);
    if (threads[i].status == PX_OK) continue;
    if (!failed && status == PX_OK)
      failed = &threads[i];
    else
      px_error_drop(threads[i].error);
  }
  return failed ? raise_error(failed) : status;
}

px_status px_parallel_apply(int count, const px_device *devices, px_parallel_work work,
                            void *context) {
  PX_GIVEN(work);
  PX_TRY(px__check_devices("parallel_apply", 0, count));
  if (count == 1) return work(0, context);
  PX_GIVEN_N(devices, count);
  replica_thread *threads;
  PX_TRY(px_alloc((void **)&threads, (size_t)count * sizeof *threads));
  px_status status = prepare(threads, count, devices, work, context);
  if (status == PX_OK) status = run_all(threads, count);
  for (int i = 0; i < count; i++) px_free(threads[i].error);
  px_free(threads);
  return status;
}

// ---- side streams

// Parameters are broadcast on side streams. The engine runs backward nodes on the stream of their
// forward call, so gradient reductions then overlap the backward of the layers.
static pthread_mutex_t side_streams_lock = PTHREAD_MUTEX_INITIALIZER;
static px_stream
    *side_streams[PX__REPLICAS];  // by device index; never freed; by `side_streams_lock`

static px_status side_stream(px_stream **out, px_device device) {
  px_status status = PX_OK;
  *out = NULL;
  // Invalid devices are rejected by their later use.
  if (device.type != PX_CUDA || device.index < 0 || device.index >= PX__REPLICAS) return PX_OK;
  pthread_mutex_lock(&side_streams_lock);
  if (!side_streams[device.index]) status = px_stream_new(&side_streams[device.index], device, 0);
  *out = side_streams[device.index];
  pthread_mutex_unlock(&side_streams_lock);
  return status;
}

// For each entry of `devices`: the replaced current stream (owned, or NULL) and the side stream.
typedef struct stream_swap {
  px_stream *current_streams[PX__REPLICAS], *side_stream[PX__REPLICAS];
} stream_swap;

static px_status enter_side_streams(stream_swap *self, const px_device *devices, int count) {
  for (int i = 0; i < count; i++) {
    px_stream *current, *other;
    PX_TRY(side_stream(&other, devices[i]));
    if (!other) continue;
    PX_TRY(px_stream_current(&current, devices[i]));
    if (current == other) continue;  // the device is listed twice
    PX_TRY(px_stream_wait_stream(other, current));
    self->current_streams[i] = px_retain(current);
    self->side_stream[i] = other;
    PX_TRY(px_stream_set_current(other));
  }
  return PX_OK;
}
// Always called. Restores the current streams and makes them wait for the side streams.
static px_status leave_side_streams(stream_swap *self, int count, px_status status) {
  for (int i = 0; i < count; i++) {
    if (!self->current_streams[i]) continue;
    px_status back = px_stream_set_current(self->current_streams[i]);
    if (back == PX_OK) back = px_stream_wait_stream(self->current_streams[i], self->side_stream[i]);
    px_release(self->current_streams[i]);
    if (status == PX_OK) status = back;
  }
  return status;
}

// ---- replicas

// The tensors of a module and their copies: copies[i * device_count + d] is tensors[i] on device d.
typedef struct copy_all {
  const px_device *devices;
  int device_count, count, capacity;
  px_tensor **tensors, **copies;
} copy_all;

static px_status grow(copy_all *all) {
  if (all->count < all->capacity) return PX_OK;
  int capacity = all->capacity ? all->capacity * 2 : 16;
  size_t bytes = (size_t)capacity * sizeof(px_tensor *);
  PX_TRY(px_realloc((void **)&all->tensors, bytes));
  PX_TRY(px_realloc((void **)&all->copies, bytes * (size_t)all->device_count));
  all->capacity = capacity;
  return PX_OK;
}

static px_status copy_entry(const char *name, const px_module_entry *entry, px_module *owner,
                            void *context) {
  copy_all *all = context;
  PX_TRY(grow(all));
  PX_TRY(px_broadcast(all->copies + all->count * all->device_count, entry->tensor, all->devices,
                      all->device_count));
  all->tensors[all->count++] = entry->tensor;
  return PX_OK;
}

typedef struct replica {
  const copy_all *all;
  int number;
} replica;

static px_status replica_tensor(px_tensor **out, px_tensor *tensor, px_entry_sort sort,
                                void *context) {
  const replica *self = context;
  // Replica 0 shares the module's buffers, so its updates persist.
  if (sort == PX_ENTRY_BUFFER && self->number == 0) return PX_OK;
  for (int i = 0; i < self->all->count; i++) {
    if (self->all->tensors[i] != tensor) continue;
    *out = px_retain(self->all->copies[i * self->all->device_count + self->number]);
    return PX_OK;
  }
  PX_FAIL(PX_BUG, "a module's tensor was not broadcast");
}

static px_status replicate_all(px_module **replicas, px_module *module, copy_all *all) {
  PX_TRY(px_module_walk(module, PX_ENTRY_PARAMETER | PX_ENTRY_BUFFER, "", true, false, copy_entry,
                        all));
  for (int i = 0; i < all->device_count; i++) {
    replica self = {all, i};
    PX_TRY(px_module_copy(&replicas[i], module, replica_tensor, &self));
  }
  return PX_OK;
}

px_status px_replicate(px_module **replicas, px_module *module, const px_device *devices,
                       int device_count) {
  PX_GIVEN_N(replicas, device_count);
  PX_GIVEN(module);
  PX_GIVEN_N(devices, device_count);
  PX_TRY(px__check_devices("replicate", 0, device_count));
  memset(replicas, 0, (size_t)device_count * sizeof *replicas);
  copy_all all = {.devices = devices, .device_count = device_count};
  stream_swap streams = {0};
  px_status status = enter_side_streams(&streams, devices, device_count);
  if (status == PX_OK) status = replicate_all(replicas, module, &all);
  status = leave_side_streams(&streams, device_count, status);
  px__drop_all(all.copies, all.count * device_count);
  px_free(all.copies);
  px_free(all.tensors);
  for (int i = 0; i < device_count && status != PX_OK; i++) {
    px_release(replicas[i]);
    replicas[i] = NULL;
  }
  return status;
}

// ---- the forward pass

static px_status on_device(const char *name, const px_module_entry *entry, px_module *owner,
                           void *context) {
  px_device *first = context;
  if (px_device_equal(px_tensor_device(entry->tensor), *first)) return PX_OK;
  char expected[PX_DEVICE_TEXT], found[PX_DEVICE_TEXT];
  PX_FAIL(PX_RUNTIME,
          "module must have its parameters and buffers on device %s (device_ids[0]) but found one "
          "of them on device: %s",
          px_device_format(*first, expected),
          px_device_format(px_tensor_device(entry->tensor), found));
}

px_status px_data_parallel_check(px_module *module, px_device first) {
  PX_GIVEN(module);
  return px_module_walk(module, PX_ENTRY_PARAMETER | PX_ENTRY_BUFFER, "", true, false, on_device,
                        &first);
}

typedef struct pass {
  px_module *replicas[PX__REPLICAS];
  px_tensor *inputs[PX__REPLICAS], *outputs[PX__REPLICAS];
} pass;

static px_status forward_one(int i, void *context) {
  pass *p = context;
  return px_module_call(&p->outputs[i], p->replicas[i], p->inputs[i]);
}

static px_status run_pass(px_tensor **out, pass *p, px_module *module, px_tensor *input,
                          const px_device *devices, int device_count, px_device output, int dim) {
  int count;
  PX_TRY(px_scatter_parts(p->inputs, &count, input, devices, device_count, dim));
  if (count == 1) return px_module_call(out, module, *p->inputs);
  PX_TRY(px_replicate(p->replicas, module, devices, count));
  PX_TRY(px_parallel_apply(count, devices, forward_one, p));
  return px_gather_parts(out, p->outputs, count, output, dim);
}

px_status px_data_parallel(px_tensor **out, px_module *module, px_tensor *input,
                           const px_device *devices, int device_count, px_device output_device,
                           int dim) {
  PX_GIVEN(out);
  PX_GIVEN(module);
  PX_GIVEN(input);
  PX_GIVEN_N(devices, device_count);
  *out = NULL;
  if (device_count == 0) return px_module_call(out, module, input);
  PX_TRY(px__check_devices("data_parallel", 0, device_count));
  PX_TRY(px_data_parallel_check(module, devices[0]));
  pass p = {0};
  px_device output = output_device.type < 0 ? devices[0] : output_device;
  px_status status = run_pass(out, &p, module, input, devices, device_count, output, dim);
  px__drop_all(p.inputs, device_count);
  px__drop_all(p.outputs, device_count);
  for (int i = 0; i < device_count; i++) px_release(p.replicas[i]);
  return status;
}
