// SPDX-License-Identifier: Apache-2.0
// The records of storages that went to other processes, or came from them (passed.c).
#pragma once
#include "tensor/tensor_impl.h"

typedef struct px__counters px__counters;
struct px__ipc_reference {
  px__ipc_reference *next;
  px_storage *storage;   // NULL: it has ended
  px_allocation *block;  // sent, and then: its memory, which others have
  px_event *event;       // sent: recorded before each message
  px__counters *from;    // received: the sender's; sent: NULL
  uint64_t place, serial;
};

// Sending. of_storage gives the record of a storage that is sent, as long as that lives; PX_RUNTIME
// if it was received. fly counts a message, and describes the record in it.
px_status px__ipc_reference_of_storage(px__ipc_reference **out, px_storage *storage)
    __attribute__((warn_unused_result));
void px__ipc_reference_send(px_storage_handle *out, px__ipc_reference *p);
// Frees what was kept for others and is nobody's any more; gives how many storages are others'.
// many: so many are kept that it is worth the time.
int64_t px__ipc_references_collect(void);
bool px__ipc_references_collect_is_due(void);

// Receiving. ours: whether this process has sent it. take_back gives such a storage, or puts its
// memory, which was kept, into `fresh`; and the event. find gives a storage that this process has
// received before, or a new record, which put gives a block, and drop (of a px__ipc_reference *)
// ends. land: the message has arrived.
bool px__ipc_reference_is_own(const px_storage_handle *handle);
px_status px__ipc_reference_take_back(px_storage **out, px_event **event, px_storage *fresh,
                                      const px_storage_handle *handle)
    __attribute__((warn_unused_result));
px_status px__ipc_reference_find(px_storage **out, px__ipc_reference **fresh,
                                 const px_storage_handle *handle)
    __attribute__((warn_unused_result));
void px__ipc_reference_attach(px_storage *fresh, px_allocation *block, px__ipc_reference *p);
void px__ipc_reference_drop(void *p);
void px__ipc_reference_received(const px__ipc_reference *p);
