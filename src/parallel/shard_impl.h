// SPDX-License-Identifier: Apache-2.0
// Sharded parameters, for the files of this folder.
#pragma once
#include <pthread.h>

#include "parallel/reducer_impl.h"
#include "phlox/shard.h"

// Where a parameter is registered: in a member, or in a module below one, which is owned.
typedef struct px__place {
  px_module *owner;
  char *name;
} px__place;

typedef struct px__shard {
  px_shards *shards;
  char *name;
  px_tensor *local;   // owned
  px_tensor *whole;   // a leaf, over memory that comes and goes; owned
  px_tensor *summed;  // what passes without reduction gave, in the dtype of the reduction; owned
  px_tensor *apart;   // rows of what passes gave that were not averaged over replicas; owned
  int ndim;
  int64_t sizes[PX_MAX_DIMS];
  int dim;        // along which it is cut
  int64_t share;  // elements of a rank's part; of rows the last ranks may have fewer
  int64_t at;     // in a rank's part of what is gathered, in bytes
  int64_t place;  // in a rank's part of what is reduced, in elements
  px__place *places;
  int place_count;
  int64_t hook;
  uint64_t version;  // of `local` when it was gathered
  bool ready;        // its gradient has come
  bool reduced;      // it is in the reduction that is under way
} px__shard;

// A module of a group, which is borrowed: it owns the hooks which own the px_shards. `left`: its
// forward is still to come in this pass.
typedef struct px__member {
  px_module *module;
  bool left;
} px__member;

typedef enum px__shard_state { PX__SHARDED, PX__GATHERING, PX__WHOLE } px__shard_state;

// What the groups of a communicator have in common. All fields, and those of its groups, belong to
// the lock, which a thread may take again: what it lets go of may end hooks.
typedef struct px__shard_context {
  px_object head;
  struct px__shard_context *next;  // of all; of the lock of shard.c
  pthread_mutex_t lock;
  px_comm *comm, *replicas;  // owned; replicas may be NULL
  px_device device;
  px_stream *gather, *reduce;   // of `device`, or NULL; owned
  px_shards **groups, **order;  // borrowed; `order` is that of their forward passes
  int group_count, order_count, room;
  px_shards *root;       // whose forward is under way, from outside
  px_event *changed;     // what the next pass waits for, in the place of a stream; owned
  px_shards *reducing;   // whose reduction is under way
  px_shards *averaging;  // whose rows are under way between replicas
  bool ends;             // the end of backward will be told
  bool brings;           // gradients are on their way to the CPU
  bool last;             // it is the last one before the gradients are used
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
  bool bare_backward;  // it does not gather
  bool offload, pin;   // parts are on the CPU
  px_device device;    // of what is gathered and reduced; PX_DEVICE_NONE: that of the parts
  px_shards_reduced_hook on_reduced;
  void *on_reduced_context;
  void (*on_reduced_release)(void *context);
  px_stream *on_reduced_stream;  // owned, or NULL
  double divide;
  px_dtype param_dtype, reduce_dtype;
  px__shard_state state;
  px_tensor *flat;  // what is gathered, all ranks' parts in turn; owned
  px_work *gathering, *reduction;
  px_tensor *mine;       // what this rank gets of the reduction; owned
  int64_t part;          // bytes of a rank's part
  px_shards **ahead[2];  // groups to gather in forward and in backward; borrowed
  int ahead_count[2];
  int inputs;    // whose gradients are still to come
  bool entered;  // one has come
};

// NULL for a module that is no member.
static inline px__member *px__shards_member(const px_shards *self, const px_module *module) {
  for (int i = 0; i < self->member_count; i++)
    if (self->members[i].module == module) return &self->members[i];
  return NULL;
}

// ---- shard_move.c
// Registers a tensor where the parameter is.
PX__MUST px_status px__shard_show(px__shard *v, px_tensor *tensor);
// Begins to gather the group.
PX__MUST px_status px__shards_gather(px_shards *self);
// Waits for that, and has the module see the whole parameters.
PX__MUST px_status px__shards_take(px_shards *self);
// Has the module see the parts, and lets go of the memory of the whole.
PX__MUST px_status px__shards_part(px_shards *self);
// Forgets a reduction that is under way, and the gradients that have come for one.
PX__MUST px_status px__shards_forget(px_shards *self);
// Begins to reduce what gradients there are, and has the groups before go on with theirs.
PX__MUST px_status px__shards_reduce(px_shards *self);
// Waits for all reductions that are under way, whose parts are added to the gradients of the parts.
PX__MUST px_status px__shards_reduced(px__shard_context *context);

// ---- shard_pass.c
// Called when a whole parameter's gradient has been accumulated.
PX__MUST px_status px__shards_on_gradient(px_tensor *tensor, void *shard);
PX__MUST px_status px__shards_before_hook(px_tensor **replacement, px_module *module,
                                          px_tensor *const *inputs, int count, px_tensor *result,
                                          void *shards);
PX__MUST px_status px__shards_after_hook(px_tensor **replacement, px_module *module,
                                         px_tensor *const *inputs, int count, px_tensor *result,
                                         void *shards);
