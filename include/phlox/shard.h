// SPDX-License-Identifier: Apache-2.0
// Parameters that are sharded over processes: each rank keeps some rows of each, and its gradients
// and the optimiser's state are of these rows alone; on the CPU, if that is wanted.
//
// px_fully_shard cuts the parameters of a module, as one group, along their first dimension, or
// another one. The
// group is gathered before the module's forward and let go of after it, gathered again before its
// backward, after which the mean of the gradients is cut among the ranks. Modules within modules
// are sharded first; then the outer one has what is left. While one group computes, the next is
// on its way: all collectives are given to streams of their own, which wait for nothing but what
// they need. Ranks make the same calls in the same order.
//
// Example: tests/comm/shard_test.c.
#pragma once
#include "phlox/comm.h"
#include "phlox/nn.h"
#ifdef __cplusplus
extern "C" {
#endif

// Which of `rows` rows a rank has: as many for each rank, but the last ones have fewer, or none.
PX_API void px_shard_rows(int64_t *first, int64_t *count, int64_t rows, int rank, int size);

typedef struct px_shards px_shards;
// Along which dimension a parameter is cut; a negative one counts from behind.
typedef px_status (*px_shard_dim)(int *dim, px_tensor *parameter, void *context);
typedef struct px_shard_options {
  px_comm *comm;
  // NULL, or the ranks that have the same rows, one of each such group: each computes with its own
  // batch, and after the ranks of `comm` have cut the gradients among them, rows are averaged over
  // these. The others' `comm` and `replicas` make up a mesh of two dimensions.
  px_comm *replicas;
  px_device device;           // where parameters and buffers go; PX_DEVICE_NONE: they stay
  px_tensor *const *ignored;  // parameters that are left as they are
  int ignored_count;
  bool keep;  // the parameters stay whole from forward to backward: more memory, one gather less
  bool keep_outermost;    // the same, where the module's forward is in no other sharded one's
  px_dtype param_dtype;   // in which they are gathered and computed with; PX_DTYPE_NONE: their own
  px_dtype reduce_dtype;  // in which gradients are added up; PX_DTYPE_NONE: as they come
  // Further modules whose parameters are in the group; borrowed, and to live as long as it. The
  // group is gathered before the forward of whichever is called first, and let go of after that of
  // the last; only the inputs of that first, and the outputs of that last, are seen.
  px_module *const *others;
  int other_count;
  // NULL: the first one. Along others each rank is to have as many places: PX_UNIMPLEMENTED.
  px_shard_dim dim_of;
  void *dim_context;
  // Parts, and their gradients, are on the CPU, in pinned memory if `pin`. They go to `device`,
  // which is to be told, to be gathered; what has been reduced is back when backward ends.
  bool offload, pin;
} px_shard_options;

// Cuts the parameters of a module and of all below it, but for those that are cut already, and
// registers this rank's rows, leaf tensors, in their place: optimisers are made afterwards, and
// step on them. Hooks of the module do the rest, until it ends; they see its first result alone,
// so another one may not lead to a gradient on its own. *out may be used as long as the module.
// PX_VALUE for parameters without dimensions, PX_UNIMPLEMENTED for such as are not contiguous.
PX_CALL px_fully_shard(px_shards **out, px_module *module, const px_shard_options *options);
// The same without hooks, for bindings that make the four calls below themselves.
PX_CALL px_shards_new(px_shards **out, px_module *module, const px_shard_options *options);
// Around the module's forward, with the tensors that go in and come out. After an error within it
// the call after is px_shards_forward_failed.
PX_CALL px_shards_before_forward(px_shards *self, px_tensor *const *inputs, int count);
PX_CALL px_shards_after_forward(px_shards *self, px_tensor *const *outputs, int count);
PX_API void px_shards_forward_failed(px_shards *self);
// Where the group has several modules, whether the forward of this one is the first of them, and
// wants the call before it, or the last, and wants the call after it. To be asked once of each, in
// turn.
PX_API bool px_shards_enters(px_shards *self, const px_module *module);
PX_API bool px_shards_leaves(px_shards *self, const px_module *module);

// The i-th parameter; false past the end. Pointers are borrowed.
typedef struct px_shard {
  const char *name;      // with dots, as the module has it
  px_tensor *local;      // this rank's rows: (0, ...) where it has none
  px_tensor *whole;      // NULL until it was gathered; without memory while it is not
  const int64_t *sizes;  // of the whole
  int ndim;
  int dim;  // along which it is cut
} px_shard;
PX_API bool px_shards_at(const px_shards *self, int i, px_shard *out);

// Gathers the group, and lets go of it again; calls that find it as it is to be do nothing. With
// `begin` it only begins to gather, and another px_shards_unshard waits. PX_RUNTIME for parameters
// on meta.
PX_CALL px_shards_unshard(px_shards *self, bool begin);
PX_CALL px_shards_reshard(px_shards *self);
PX_API bool px_shards_is_whole(const px_shards *self);

// Whether the parameters stay whole after forward, or after backward.
PX_API void px_shards_keep(px_shards *self, bool after_backward, bool keep);
// Whether backward gathers the group, as it does at first. Without, a backward pass that needs one
// of its parameters fails with PX_RUNTIME: those of an embedding, for one, it does not need.
PX_API void px_shards_gather_for_backward(px_shards *self, bool gathers);
// The next forward from outside waits, before it gathers, for the event in the place of all that
// the current stream was given: it was recorded behind what changed the parameters. NULL: none.
PX_CALL px_shards_after_event(px_shards *self, px_event *event);
// Without reduction, gradients add up in this process, as whole ones, until a backward pass with
// it. A backward pass that fails ends that: the next forward pass forgets what has added up.
PX_API void px_shards_reduce(px_shards *self, bool reduces);
// Without, where there are replicas, what backward has reduced is not averaged over them, but adds
// up in each until a backward pass with it, and is no gradient so far.
PX_API void px_shards_average(px_shards *self, bool averages);
// The next backward passes of the communicator's modules are not the last before the gradients are
// used: reductions may still be under way when they end.
PX_API void px_shards_last_backward(px_shards *self, bool last);
// What gradients are divided by, in the place of the number of ranks, replicas included; 0: that.
PX_API void px_shards_divide(px_shards *self, double factor);
// Calls fn with what this rank has of each reduction of the group, after the replicas' average:
// rows of all its parameters, in one piece, which fn may change before they become gradients. On
// devices it runs on the stream of reductions, or on `stream`, which waits for that one and is
// waited for; a stream is not for groups with replicas: PX_VALUE. fn may not call this group. NULL:
// none. release(context) is called when fn is not needed any more.
typedef px_status (*px_shards_reduced_hook)(px_tensor *reduced, void *context);
PX_CALL px_shards_on_reduced(px_shards *self, px_shards_reduced_hook fn, void *context_take,
                             void (*release)(void *context), px_stream *stream);
// The groups that are gathered while this one computes, in that order; borrowed, and to live as
// long. At first, none in forward; in backward the one whose forward came before this one's.
PX_CALL px_shards_prefetch(px_shards *self, bool backward, px_shards *const *others, int count);

// For starting values, which are those of one process where the ranks' generators are in the same
// state. px_shard_stand_in gives a tensor of the whole's sizes, to be filled, in the place of a
// group's part, or any other tensor itself; px_shard_take_rows copies this rank's rows of it.
PX_CALL px_shard_stand_in(px_tensor **out, px_tensor *part);
PX_CALL px_shard_take_rows(px_tensor *part, const px_tensor *whole);
// px_module_reset, of a layer whose parameters may be sharded.
PX_CALL px_shards_reset(px_module *layer);

// The common norm of tensors of which each rank has a part, as px_total_norm gives it of whole
// ones; of device memory without waiting. `own` are tensors that are no parts, and are counted
// once.
PX_CALL px_shard_norm(px_tensor **out, px_comm *comm, px_tensor *const *parts, int64_t count,
                      px_tensor *const *own, int64_t own_count, double norm_type);
// Gives all ranks, which all call it, the greatest of their numbers, in place of each: whether one
// found something, say. The numbers may be on the CPU where the communicator takes tensors of
// devices; they go by the current one then.
PX_CALL px_shard_greatest(px_comm *comm, px_tensor *number);
// Gives the whole of what each rank has rows of, which has these sizes; all ranks call it. Where it
// is recorded, a part's gradient is its rows of the gradient of the whole, which all ranks have.
PX_CALL px_shard_whole(px_tensor **out, px_comm *comm, px_tensor *local, int ndim,
                       const int64_t *sizes);

#ifdef __cplusplus
}
#endif
