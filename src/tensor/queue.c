// SPDX-License-Identifier: Apache-2.0
// Stream work of other libraries on device tensors. Accesses are declared and addresses do not
// leave the library, so the allocations count as used by this work only.
#include "phlox/extend.h"
#include "device/core/queue.h"
#include "tensor/tensor_impl.h"

typedef struct call {
  px_status (*queue)(void *native, void *const *addresses, void *context);
  void **addresses, *context;
} call;

static px_status queue_call(void *native, void *context) {
  const call *c = context;
  return c->queue(native, c->addresses, c->context);
}

static px_status record_accesses(px_access *accesses, void **addresses, px_tensor *const *tensors,
                                 int count, int reads, px_device device) {
  for (int i = 0; i < count; i++) {
    const px_tensor *t = tensors[i];
    PX_CHECK(px_device_equal(px_tensor_device(t), device), PX_VALUE,
             "expected tensors on the device of the stream");
    PX_TRY(px__tensor_memory(&addresses[i], t));
    accesses[i] = px__access_of(t, i >= reads);
  }
  return PX_OK;
}

px_status px_stream_queue(px_stream *stream, const char *name, px_tensor *const *tensors, int count,
                          int reads,
                          px_status (*queue)(void *native, void *const *addresses, void *context),
                          void *context) {
  PX_GIVEN(stream);
  PX_GIVEN(name);
  PX_GIVEN(queue);
  PX_GIVEN_EACH(tensors, count);
  px_access *accesses;
  size_t each = sizeof *accesses + sizeof(void *);
  PX_TRY(px__alloc((void **)&accesses, (size_t)(count + 1) * each));
  call c = {queue, (void **)(accesses + count), context};
  px_status status =
      record_accesses(accesses, c.addresses, tensors, count, reads, px_stream_device(stream));
  if (status == PX_OK) status = px__stream_queue(stream, name, accesses, count, queue_call, &c);
  px__free(accesses);
  return status;
}
