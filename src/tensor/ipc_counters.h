// SPDX-License-Identifier: Apache-2.0
// Records of storages sent to or received from other processes (ipc_counters.c).
#pragma once
#include "tensor/tensor_impl.h"

typedef struct px__counters px__counters;
struct px__ipc_reference {
  px__ipc_reference *next;
  px_storage *storage;        // NULL: destroyed
  px_allocation *allocation;  // sent and destroyed: the memory, held by other processes
  px_event *event;            // sent: recorded before each message
  px__counters *from;         // received: the sender's counters; sent: NULL
  uint64_t slot, serial;
};

// Sending. of_storage returns the record of a sent storage, valid as long as the storage;
// PX_RUNTIME if it was received. fly counts a message in flight and stores the record in it.
px_status px__ipc_reference_of_storage(px__ipc_reference **out, px_storage *storage)
    __attribute__((warn_unused_result));
void px__ipc_reference_send(px_storage_handle *out, px__ipc_reference *p);
// collect frees kept memory without references; returns the number of storages referenced by other
// processes. many: true if enough memory is kept to make a collection worthwhile.
int64_t px__ipc_references_collect(void);
bool px__ipc_references_collect_is_due(void);

// Receiving. ours: true if this process is the sender; take_back then returns the storage, or
// installs its kept memory in `fresh`, and the event. find returns the storage if this process
// received it before, else a new record: put installs its memory, drop (of a px__ipc_reference *)
// releases it. land: decrements the messages in flight.
bool px__ipc_reference_is_own(const px_storage_handle *handle);
px_status px__ipc_reference_take_back(px_storage **out, px_event **event, px_storage *fresh,
                                      const px_storage_handle *handle)
    __attribute__((warn_unused_result));
px_status px__ipc_reference_find(px_storage **out, px__ipc_reference **fresh,
                                 const px_storage_handle *handle)
    __attribute__((warn_unused_result));
void px__ipc_reference_attach(px_storage *fresh, px_allocation *allocation, px__ipc_reference *p);
void px__ipc_reference_drop(void *p);
void px__ipc_reference_received(const px__ipc_reference *p);
