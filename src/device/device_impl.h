// SPDX-License-Identifier: Apache-2.0
// The device layer, for the layers above it: blocks of memory, launches, copies.
//
// Everything that runs on a device is issued through px__launch and px__copy_blocks: there streams'
// timelines advance, uses are marked, races are checked, faults are injected and errors get their
// site. Nothing else calls a backend's work functions.
#pragma once
#include "base/base_impl.h"
#include "phlox/backend.h"
#include "phlox/event.h"
#include "phlox/memory.h"

// A piece of memory: a storage's. Freed exactly once, by px__block_free, which leaves a ticket of
// the uses.
typedef struct px_block {
  void *data;            // address on `device`; 64-byte aligned (CPU), 512-byte aligned (devices)
  size_t bytes;          // asked for
  px_device device;      // index always given for cuda, -1 for cpu
  bool pinned, foreign;  // page-locked; address was handed out or memory is somebody else's
  bool pending;          // CPU: a copy into it may be running (atomic); px__block_wait clears
} px_block;              // the device layer's own fields follow (px__block, state.h)

// Gives a block on a device (index resolved), from the device's cache, on the current stream. 0
// bytes give data NULL (CPU and devices).
px_status px__block_new(px_block **out, size_t bytes, px_device device)
    __attribute__((warn_unused_result));
px_status px__block_new_pinned(px_block **out, size_t bytes) __attribute__((warn_unused_result));
px_status px__block_wrap(px_block **out, void *data, size_t bytes, px_device device,
                         void (*release)(void *), void *context)
    __attribute__((warn_unused_result));
void px__block_free(px_block *block);
// Marks a use by work issued to the stream so far and, conservatively, that the memory's address
// has left the library.
px_status px__block_record_stream(px_block *block, px_stream *stream)
    __attribute__((warn_unused_result));
void px__block_hand_out(px_block *block);
// Before the host reads or writes a CPU block: waits for copies that use it.
px_status px__block_wait(px_block *block) __attribute__((warn_unused_result));

// One access of a launch: bytes [begin, end) of a block. With gaps it is not all of them: each says
// that, from begin on, the first `width` of every `pitch` bytes hold all that is touched. They are
// for the race checker, and asked for where px__race_on is not 0.
enum { PX__GAPS = 3 };
typedef struct px__gap {
  uint32_t pitch, width;
} px__gap;
typedef struct px_access {
  px_block *block;
  size_t begin, end;
  bool write;
  px__gap gaps[PX__GAPS];  // up to the first of pitch 0
} px_access;
extern int px__race_on;  // atomic; -1: the environment was not asked yet
// Finds a kernel of the device type's backend; NULL if it has none. Cheap enough for first use
// only: keep the result.
px_kernel px__kernel_find(px_device_type type, const char *name);
// Whether the device type's backend can run functions of the host as kernels.
bool px__runs_host_kernels(px_device_type type);
// Fails if kernels of the type cannot run, for what the environment says. For first uses.
px_status px__kernels_ready(px_device_type type) __attribute__((warn_unused_result));
// Issues a launch on the current stream of the device (index resolved). Fills in launch->id, fault,
// stream, device. On the CPU the kernel has run on return, and its fault is raised; on devices a
// fault rises at the next synchronising call.
px_status px__launch(px_device device, px_launch *launch, const px_access *accesses,
                     int access_count) __attribute__((warn_unused_result));
// Outermost op being called by this thread; NULL outside a call. Used to name the op in errors; the
// layer of ops sets it.
extern _Thread_local const char *px__caller;
// Copies bytes between blocks of any devices, ordered as rule C6 of docs/simulator.md says: device
// work on the current stream of the device side (of the source for device to device, with waits
// both ways). Blocking for the host unless `non_blocking` and the host side is pinned.
px_status px__copy_blocks(px_block *to, size_t to_offset, px_block *from, size_t from_offset,
                          size_t bytes, bool non_blocking) __attribute__((warn_unused_result));
// Whether kernels of `device` may address memory of `other` (same device, or peer access enabled
// both ways).
bool px__device_reaches(px_device device, px_device other);

// Registers a function that frees what a layer above can do without (caches, garbage). It is called
// before out of memory is an answer, without any lock.
void px__reclaim_add(void (*reclaim)(void));
