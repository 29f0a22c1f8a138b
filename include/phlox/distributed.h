// SPDX-License-Identifier: Apache-2.0
// Data parallelism over processes: each has the whole module, and its part of a batch; the
// gradients are averaged while backward still runs.
//
// A reducer puts the gradients of parameters into buckets, one piece of memory each, beside which
// large ones may lie apart. When backward has filled a bucket, the collective that averages it over
// the ranks begins, in the order of the buckets; backward waits at its end for all of them. Each
// step is px_reducer_begin, the forward pass, px_reducer_expect, backward.
//
// Example: examples/ddp.c.
#pragma once
#include "phlox/autograd.h"
#include "phlox/comm.h"
#include "phlox/nn.h"
#ifdef __cplusplus
extern "C" {
#endif

// Copies tensors of rank `root` to those of the others, in place: many at once.
PX_CALL px_comm_copy_from(px_comm *self, int root, px_tensor *const *tensors, int count);
// Checks that all ranks have parameters of the same number, sizes, strides and dtypes: PX_RUNTIME
// "DDP expects same model across all ranks, but Rank 0 has 2 params, while rank 1 has inconsistent
// 3 params.", or "[1]: params[0] in this process with sizes [2, 2] appears not to match sizes of
// the same param in process 0.".
PX_CALL px_comm_check_alike(px_comm *self, px_tensor *const *parameters, int count);

// Splits tensors among `size` ranks, so that each rank's have about as many elements: the largest
// ones first, each to the rank that has the fewest so far. owners[i] is the rank of tensors[i];
// `loads`, of `size` numbers, are what ranks had before, and have then.
PX_CALL px_partition(int *owners, int64_t *loads, int size, px_tensor *const *tensors, int count);
// Gives all ranks the tensors of their owners, in place: those of each rank together.
PX_CALL px_comm_share(px_comm *self, px_tensor *const *tensors, const int *owners, int count);

typedef struct px_reducer px_reducer;
typedef struct px_reducer_options {
  px_comm *comm;
  px_tensor *const *parameters;  // in the same order at all ranks; each requires grad
  int count;
  int64_t first_bytes, bucket_bytes;  // of a bucket; 0: 1 MiB of the first, 25 MiB of the others
  bool bucket_view;                   // .grad is the place in the bucket
  bool find_unused;   // parameters that the outputs do not depend on are not waited for
  bool static_graph;  // each step uses the same parameters, and equally often
  // Gradients of so many bytes are averaged where they lie, and not in the bucket's memory, unless
  // they are views of it, compressed or a hook's. 0: of 1 MiB, where the communicator's engine
  // queues, and none elsewhere; negative: none.
  int64_t apart_bytes;
} px_reducer_options;
// Makes the reducer of a module's parameters, which it keeps.
PX_CALL px_reducer_new(px_reducer **out, const px_reducer_options *options);
// Before a forward pass whose backward is to reduce. After the first step, lays the buckets out
// anew, by the order in which rank 0's gradients came. PX_RUNTIME "Expected to have finished
// reduction in the prior iteration before starting a new one. ..." where gradients are missing.
PX_CALL px_reducer_begin(px_reducer *self);
// After the forward pass: the next gradients are to be reduced. The outputs tell which parameters
// are used; they are not needed (0) unless find_unused is set.
PX_CALL px_reducer_expect(px_reducer *self, px_tensor *const *outputs, int count);
// By how many ranks the sums of the next steps are divided; 0: all of the communicator. Not where a
// program's hook reduces, which divides itself. PX_VALUE for what is negative.
PX_CALL px_reducer_divide_by(px_reducer *self, int ranks);
// What a rank does that has no batch left, in the place of a step: it takes part in the collectives
// of the others' backward, and adds nothing. Gradients stay as they are. PX_UNIMPLEMENTED in the
// first step of a static graph, which is learned from.
PX_CALL px_reducer_shadow(px_reducer *self);
// Has the buckets sent as another dtype, of fewer bytes; PX_DTYPE_NONE: as they are.
PX_CALL px_reducer_compress(px_reducer *self, px_dtype dtype);

// Mixed precision of a module that is trained in its own; PX_DTYPE_NONE leaves all as it is.
typedef struct px_mixed_precision {
  px_dtype param_dtype;   // of parameters in forward and backward; floating-point ones alone
  px_dtype reduce_dtype;  // in which gradients are added up over ranks; none: as param_dtype
  px_dtype buffer_dtype;  // of floating-point buffers, which are cast here, and stay so
} px_mixed_precision;
// Has the reducer's module trained so, but for some parameters and buffers; called once, in the
// place of px_reducer_compress. PX_RUNTIME for dtypes that are no floating-point ones.
PX_CALL px_reducer_mix(px_reducer *self, px_module *module, const px_mixed_precision *policy,
                       px_tensor *const *ignored, int count);
// Before each forward pass of such a module: gives its parameters the low precision, which they
// have, the same tensors over other memory, until a backward pass has ended; then gradients are of
// their own precision, too. Where the pass is not recorded, px_reducer_raise ends it.
PX_CALL px_reducer_lower(px_reducer *self);
// After a forward pass: gives the parameters their own precision again, unless a backward pass is
// to come.
PX_CALL px_reducer_raise(px_reducer *self);

// A bucket that is full: its memory, and what lies in it, borrowed.
typedef struct px_bucket {
  int index;
  bool last;
  px_tensor *buffer;                                // of one dimension
  px_tensor *const *gradients, *const *parameters;  // gradients are views of the buffer
  int count;
} px_bucket;
// A program's own way of reducing a bucket, which is to average, too. begin is called when the
// bucket is full, end at the end of backward: it gives what becomes of the bucket, a new reference
// of the buffer's size, or NULL if the buffer itself has it. What begin gave in *pending goes to
// end or to drop.
typedef struct px_bucket_hook {
  px_status (*begin)(void **pending, const px_bucket *bucket, void *context);
  px_status (*end)(px_tensor **out, void *pending_take, void *context);
  void (*drop)(void *pending_take);
  void (*release)(void *context);
} px_bucket_hook;
// PX_RUNTIME "register_comm_hook or register_builtin_comm_hook can only be called once." The
// context stays the caller's on failure.
PX_CALL px_reducer_set_hook(px_reducer *self, const px_bucket_hook *hook, void *context);
PX_API int px_reducer_bucket_count(const px_reducer *self);

// Normalises each channel, dimension 1, over the batches of all ranks; running statistics, which
// may be NULL, follow those of the whole. Backward sums over the ranks, too: all of them call it.
// The gradients of weight and bias are of this rank's batch. PX_VALUE unless input is
// floating-point and has 2 dimensions or more; PX_RUNTIME if the others are not of its channels.
PX_CALL px_sync_batch_norm(px_tensor **out, px_comm *comm, px_tensor *input,
                           px_tensor *running_mean, px_tensor *running_var, px_tensor *weight,
                           px_tensor *bias, double momentum, double eps);
// Says which communicator each SyncBatchNorm that is training works with: a new reference in *out,
// or NULL for this process alone, which is so while nothing was said. Of the process; before layers
// are called.
typedef px_status (*px_sync_norm_choice)(px_comm **out, px_module *layer);
PX_API void px_sync_norm_choose(px_sync_norm_choice choice);

#ifdef __cplusplus
}
#endif
