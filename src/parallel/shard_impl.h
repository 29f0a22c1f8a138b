// SPDX-License-Identifier: Apache-2.0
// Internal header of sharded parameters (FSDP).
#pragma once
#include <pthread.h>

#include "parallel/reducer_impl.h"
#include "phlox/shard.h"

// A registration of a parameter in a module: a member of the group (borrowed) or below one (owned).
typedef struct px__registration {
  px_module *owner;
  char *name;
} px__registration;

typedef struct px__shard {
  px_shards *shards;
  char *name;
  px_tensor *local;     // the shard; owned
  px_tensor *whole;     // the unsharded parameter, a leaf; its storage is freed when sharded; owned
  px_tensor *summed;    // gradient of passes without reduction, in the reduction dtype; owned
  px_tensor *reducing;  // gradient during its copy to the reduction buffer; owned
  px_tensor *unaveraged;  // reduced gradient not yet averaged over replicas; owned
  int ndim;
  int64_t sizes[PX_MAX_DIMS];
  int dim;            // sharded dimension
  int64_t share;      // elements of a shard; the last ranks may have fewer rows
  int64_t at;         // offset in a rank's part of the gather buffer, bytes
  int64_t reduce_at;  // offset in a rank's part of the reduction buffer, elements
  px__registration *registrations;
  int registration_count;
  int64_t hook;
  uint64_t version;  // of `local` at the last gather
  bool ready;        // its gradient has arrived
  bool reduced;      // part of the pending reduction
} px__shard;

// A module of a group. Borrowed: the module owns the hooks, which own the px_shards. `left`: its
// forward is pending in this pass.
typedef struct px__member {
  px_module *module;
  bool left;
} px__member;

typedef enum px__shard_state { PX__SHARDED, PX__GATHERING, PX__UNSHARDED } px__shard_state;

// State shared by the groups of a communicator. `lock` guards its fields and those of its groups.
// It is recursive, because releasing objects under it may destroy hooks.
typedef struct px__shard_context {
  px_object head;
  struct px__shard_context *next;  // in the global list; by its lock in shard.c
  pthread_mutex_t lock;
  px_comm *comm, *replicas;  // owned; replicas may be NULL
  px_device device;
  px_stream *gather, *reduce;   // of `device`, or NULL; owned
  px_shards **groups, **order;  // borrowed; `order`: order of forward passes
  int group_count, order_count, capacity;
  px_shards *root;       // outermost group in forward
  px_event *changed;     // awaited by the next pass instead of the current stream; owned
  px_shards *reducing;   // group with a pending reduction
  px_shards *averaging;  // group with a pending average over replicas
  bool end_registered;   // a callback at the end of backward is registered
  bool copies_pending;   // asynchronous gradient copies to the CPU are pending
  bool last;             // last backward before the gradients are used
} px__shard_context;

struct px_shards {
  px_object head;
  px__shard_context *context;  // owned
  px__member *members;         // at least one
  int member_count;
  px_status (*on_gradient)(px_tensor *tensor, void *shard);  // px__shards_on_gradient
  px__shard *items;
  int count;
  bool keep, keep_outermost, keep_after_backward, reduces, averages, backward, inside;
  bool no_backward_gather;  // backward does not gather
  bool offload, pin;        // shards are on the CPU; in pinned memory
  px_device device;         // of gathers and reductions; PX_DEVICE_NONE: that of the shards
  px_shards_reduced_hook on_reduced;
  void *on_reduced_context;
  void (*on_reduced_release)(void *context);
  px_stream *on_reduced_stream;  // owned, or NULL
  double divide;
  px_dtype param_dtype, reduce_dtype;
  px__shard_state state;
  px_tensor *flat;  // gather buffer: the parts of all ranks in order; owned
  px_work *gathering, *reduction;
  px_tensor *mine;       // this rank's part of the reduction; owned
  int64_t part;          // bytes of a rank's part
  px_shards **ahead[2];  // groups to prefetch in forward and backward; borrowed
  int ahead_count[2];
  int inputs;    // inputs with a pending gradient
  bool entered;  // the gradient of an input has arrived
};

// Returns NULL for a module outside the group.
static inline px__member *px__shards_member(const px_shards *self, const px_module *module) {
  for (int i = 0; i < self->member_count; i++)
    if (self->members[i].module == module) return &self->members[i];
  return NULL;
}

// ---- shard_move.c
// Registers a tensor in all places of the parameter.
PX__MUST px_status px__shard_register(px__shard *v, px_tensor *tensor);
// Starts the all-gather of the group.
PX__MUST px_status px__shards_gather(px_shards *self);
// Waits for the all-gather and registers the unsharded parameters.
PX__MUST px_status px__shards_unshard(px_shards *self);
// Registers the shards and frees the memory of the unsharded parameters.
PX__MUST px_status px__shards_reshard(px_shards *self);
// Discards a pending reduction and all unreduced gradients.
PX__MUST px_status px__shards_discard(px_shards *self);
// Starts the reduction of available gradients and advances those of earlier groups.
PX__MUST px_status px__shards_reduce(px_shards *self);
// Waits for all pending reductions and accumulates the results into the shards' gradients.
PX__MUST px_status px__shards_finish_reductions(px__shard_context *context);

// ---- shard_schedule.c
// Called after a gradient was accumulated into an unsharded parameter.
PX__MUST px_status px__shards_on_gradient(px_tensor *tensor, void *shard);
PX__MUST px_status px__shards_before_hook(px_tensor **replacement, px_module *module,
                                          px_tensor *const *inputs, int count, px_tensor *result,
                                          void *shards);
PX__MUST px_status px__shards_after_hook(px_tensor **replacement, px_module *module,
                                         px_tensor *const *inputs, int count, px_tensor *result,
                                         void *shards);
