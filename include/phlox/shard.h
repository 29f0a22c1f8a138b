// SPDX-License-Identifier: Apache-2.0
// Fully sharded data parallelism: each rank keeps some rows of each parameter. Gradients and
// optimiser state cover these rows only, optionally on the CPU.
//
// px_fully_shard splits the parameters of a module, as one group, along their first dimension or
// another one. The group is gathered before the module's forward and freed after it, then gathered
// again before its backward. After backward, the mean gradients are reduce-scattered. Inner modules
// are sharded first; the outer one then covers the remaining parameters. While one group computes,
// the next is prefetched. Collectives run on separate streams with minimal dependencies. All ranks
// make the same calls in the same order.
//
// Example: tests/comm/shard_test.c.
#pragma once
#include "phlox/comm.h"
#include "phlox/nn.h"
#ifdef __cplusplus
extern "C" {
#endif

// Returns the range of `rows` rows owned by a rank: equal counts, except that the last ranks may
// have fewer, or none.
PX_API void px_shard_rows(int64_t *first, int64_t *count, int64_t rows, int rank, int size);

typedef struct px_shards px_shards;
// Chooses the dimension along which a parameter is sharded; negative values count from the end.
typedef px_status (*px_shard_dim)(int *dim, px_tensor *parameter, void *context);
typedef struct px_shard_options {
  px_comm *comm;
  // Replicas: NULL, or the communicator of the ranks holding the same rows. Gradients are
  // reduce-scattered over `comm`, then averaged over `replicas`. Both form a mesh of two
  // dimensions; each rank has its own batch.
  px_comm *replicas;
  px_device device;           // device of parameters and buffers; PX_DEVICE_NONE: unchanged
  px_tensor *const *ignored;  // parameters not to be sharded
  int ignored_count;
  bool keep;  // keep parameters gathered from forward to backward: more memory, one gather less
  bool keep_outermost;    // the same, if no other sharded module's forward encloses this one's
  px_dtype param_dtype;   // for gathering and computing; PX_DTYPE_NONE: unchanged
  px_dtype reduce_dtype;  // for reducing gradients; PX_DTYPE_NONE: the gradients' own
  // Further modules with parameters in the group; borrowed for the lifetime of the group. The group
  // is gathered before the forward of the first one called, and freed after the last one's. Only
  // the inputs of that first and the outputs of that last module are tracked.
  px_module *const *others;
  int other_count;
  // NULL: dimension 0. Other dimensions must be divisible by the ranks: else PX_UNIMPLEMENTED.
  px_shard_dim dim_of;
  void *dim_context;
  // Keep shards and their gradients on the CPU, in pinned memory if `pin`. They are copied to
  // `device`, which must be set, for gathering. Reduced gradients are back on the CPU when backward
  // ends.
  bool offload, pin;
} px_shard_options;

// Shards the parameters of a module and its descendants, except those already sharded, and
// registers this rank's rows, leaf tensors, in their place. Optimisers must be made afterwards and
// step on those. Hooks of the module do the rest, for its lifetime. They see its first result only,
// so gradients must not depend on other results alone. *out is valid as long as the module.
// PX_VALUE for 0-dim parameters, PX_UNIMPLEMENTED for non-contiguous ones.
PX_CALL px_fully_shard(px_shards **out, px_module *module, const px_shard_options *options);
// The same without hooks, for bindings that make the four calls below.
PX_CALL px_shards_new(px_shards **out, px_module *module, const px_shard_options *options);
// Called around the module's forward, with its input and output tensors. If forward fails, call
// px_shards_forward_failed instead of px_shards_after_forward.
PX_CALL px_shards_before_forward(px_shards *self, px_tensor *const *inputs, int count);
PX_CALL px_shards_after_forward(px_shards *self, px_tensor *const *outputs, int count);
PX_API void px_shards_forward_failed(px_shards *self);
// For groups of several modules: true if the forward of this module is the group's first (call
// before_forward) or last (call after_forward). Call each once, in order.
PX_API bool px_shards_enters(px_shards *self, const px_module *module);
PX_API bool px_shards_leaves(px_shards *self, const px_module *module);

// Returns the i-th parameter; false past the end. Pointers are borrowed.
typedef struct px_shard {
  const char *name;      // dotted name in the module
  px_tensor *local;      // this rank's rows: (0, ...) if it has none
  px_tensor *whole;      // NULL before the first gather; without memory while not gathered
  const int64_t *sizes;  // of the whole parameter
  int ndim;
  int dim;  // sharded dimension
} px_shard;
PX_API bool px_shards_at(const px_shards *self, int i, px_shard *out);

// Gather the group, and free the gathered parameters; no-ops if already done. With `begin`, unshard
// only starts gathering, and a second px_shards_unshard waits. PX_RUNTIME for parameters on meta.
PX_CALL px_shards_unshard(px_shards *self, bool begin);
PX_CALL px_shards_reshard(px_shards *self);
// True while the parameters are gathered.
PX_API bool px_shards_is_unsharded(const px_shards *self);

// Sets whether the parameters stay gathered after forward, or after backward.
PX_API void px_shards_keep(px_shards *self, bool after_backward, bool keep);
// Sets whether backward gathers the group (default true). If not, a backward pass needing one of
// its parameters fails with PX_RUNTIME; the gradient of an embedding, for example, does not need
// its weight.
PX_API void px_shards_gather_for_backward(px_shards *self, bool gathers);
// Makes the next outermost forward wait for `event`, recorded after the parameters were changed,
// before it gathers, instead of for all work of the current stream. NULL: none.
PX_CALL px_shards_after_event(px_shards *self, px_event *event);
// Without reduction, unsharded gradients accumulate locally until a backward pass with reduction. A
// failed backward pass drops them in the next forward pass.
PX_API void px_shards_reduce(px_shards *self, bool reduces);
// With replicas: without averaging, reduced gradients accumulate in each replica until a backward
// pass with averaging. They are not visible as gradients before.
PX_API void px_shards_average(px_shards *self, bool averages);
// Set to false if further backward passes of the communicator's modules follow before the gradients
// are used: reductions may then still be pending when backward ends.
PX_API void px_shards_last_backward(px_shards *self, bool last);
// Sets the divisor of gradients; 0: the number of ranks, including replicas.
PX_API void px_shards_divide(px_shards *self, double factor);
// Calls fn with this rank's part of each reduction of the group, after averaging over replicas: the
// rows of all its parameters, flattened into one tensor, which fn may modify before they become
// gradients. On devices it runs on the reduction stream, or on `stream`, synchronised with that
// one; `stream` is not allowed for groups with replicas: PX_VALUE. fn must not call this group.
// NULL: none. release(context) is called once fn is no longer needed.
typedef px_status (*px_shards_reduced_hook)(px_tensor *reduced, void *context);
PX_CALL px_shards_on_reduced(px_shards *self, px_shards_reduced_hook fn, void *context_take,
                             void (*release)(void *context), px_stream *stream);
// Sets the groups to prefetch while this one computes, in order; borrowed, and must live as long as
// this group. Default: none in forward; in backward the group with the preceding forward.
PX_CALL px_shards_prefetch(px_shards *self, bool backward, px_shards *const *others, int count);

// Initialise parameters with the values of a single process, given ranks with equal generator
// states. px_shard_placeholder returns a tensor of the whole's sizes to be filled, for a shard; any
// other tensor is returned itself. px_shard_take_rows copies this rank's rows of it.
PX_CALL px_shard_placeholder(px_tensor **out, px_tensor *part);
PX_CALL px_shard_take_rows(px_tensor *part, const px_tensor *whole);
// px_module_reset for a layer with possibly sharded parameters.
PX_CALL px_shards_reset(px_module *layer);

// Returns the total norm of tensors sharded over the ranks, as px_total_norm would for the whole
// tensors; for device memory without waiting. `own` are unsharded tensors, counted once.
PX_CALL px_shard_norm(px_tensor **out, px_comm *comm, px_tensor *const *parts, int64_t count,
                      px_tensor *const *own, int64_t own_count, double norm_type);
// Replaces the ranks' numbers by their maximum, on all ranks; for example, whether any found an
// inf. All ranks call it. With a communicator for devices, a CPU number is sent through the current
// device.
PX_CALL px_shard_max(px_comm *comm, px_tensor *number);
// Returns the whole tensor, with the given sizes, from the ranks' rows. All ranks call it. If
// recorded, the gradient of a part is its rows of the gradient of the whole, which must be the same
// on all ranks.
PX_CALL px_shard_gather(px_tensor **out, px_comm *comm, px_tensor *local, int ndim,
                        const int64_t *sizes);

#ifdef __cplusplus
}
#endif
