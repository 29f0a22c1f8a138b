// SPDX-License-Identifier: Apache-2.0
// Data parallelism over processes: each process has a full copy of the module and a part of the
// batch; gradients are averaged during backward.
//
// A reducer assigns the gradients of parameters to buckets, each one contiguous buffer; large
// gradients may stay outside. When backward has filled a bucket, the collective averaging it over
// the ranks starts. Buckets are reduced in order, and backward waits for all of them at its end. A
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

// Copies the tensors of rank `root` to the other ranks, in place; batched.
PX_CALL px_comm_copy_from(px_comm *self, int root, px_tensor *const *tensors, int count);
// Checks that all ranks have parameters of equal count, sizes, strides and dtypes: PX_RUNTIME "DDP
// expects same model across all ranks, but Rank 0 has 2 params, while rank 1 has inconsistent 3
// params.", or "[1]: params[0] in this process with sizes [2, 2] appears not to match sizes of the
// same param in process 0.".
PX_CALL px_comm_check_parameters(px_comm *self, px_tensor *const *parameters, int count);

// Partitions tensors among `size` ranks with balanced element counts: greedily, the largest first,
// each to the rank with the lowest load. owners[i] is the rank of tensors[i]. `loads` holds `size`
// element counts, updated by the call.
PX_CALL px_partition(int *owners, int64_t *loads, int size, px_tensor *const *tensors, int count);
// Broadcasts tensors from their owners to all ranks, in place; the tensors of each owner as a
// group.
PX_CALL px_comm_broadcast_owned(px_comm *self, px_tensor *const *tensors, const int *owners,
                                int count);

typedef struct px_reducer px_reducer;
typedef struct px_reducer_options {
  px_comm *comm;
  px_tensor *const *parameters;  // in the same order at all ranks; each requires grad
  int count;
  int64_t first_bytes, bucket_bytes;  // capacity of the first and other buckets; 0: 1 and 25 MiB
  bool bucket_view;                   // .grad is a view of the bucket
  bool find_unused;   // do not wait for parameters that the outputs do not depend on
  bool static_graph;  // every step uses the same parameters, equally often
  // Gradients of at least this many bytes are averaged in place and not in the bucket's memory,
  // unless they are views of it, compressed, or handled by a hook. 0: 1 MiB if the communicator's
  // engine queues, else none; negative: none.
  int64_t unbucketed_bytes;
} px_reducer_options;
// Makes the reducer of a module's parameters, which it retains.
PX_CALL px_reducer_new(px_reducer **out, const px_reducer_options *options);
// Call before a forward pass with a backward to be reduced. After the first step it rebuilds the
// buckets in the arrival order of rank 0's gradients. PX_RUNTIME "Expected to have finished
// reduction in the prior iteration before starting a new one. ..." if gradients are missing.
PX_CALL px_reducer_begin(px_reducer *self);
// Call after the forward pass: the next gradients are reduced. `outputs` determine the parameters
// in use; they are required with find_unused only (else count 0).
PX_CALL px_reducer_expect(px_reducer *self, px_tensor *const *outputs, int count);
// Sets the divisor of the sums of later steps; 0: the communicator's size. No effect with a
// communication hook, which divides itself. PX_VALUE if negative.
PX_CALL px_reducer_divide_by(px_reducer *self, int ranks);
// Replaces a step on a rank without batches left: it joins the collectives of the others' backward
// and contributes zeros. Local gradients are unchanged. PX_UNIMPLEMENTED in the first step of a
// static graph, which records the parameters in use.
PX_CALL px_reducer_shadow(px_reducer *self);
// Sends buckets in a smaller dtype; PX_DTYPE_NONE: unchanged.
PX_CALL px_reducer_compress(px_reducer *self, px_dtype dtype);

// Mixed precision of a module with full-precision parameters; PX_DTYPE_NONE changes nothing.
typedef struct px_mixed_precision {
  px_dtype param_dtype;   // of floating-point parameters in forward and backward
  px_dtype reduce_dtype;  // of gradients summed over ranks; none: param_dtype
  px_dtype buffer_dtype;  // of floating-point buffers, cast once by px_reducer_set_mixed_precision
} px_mixed_precision;
// Enables mixed precision for the reducer's module, except `ignored` parameters and buffers. Called
// once, instead of px_reducer_compress. PX_RUNTIME for a dtype that is not floating-point.
PX_CALL px_reducer_set_mixed_precision(px_reducer *self, px_module *module,
                                       const px_mixed_precision *policy, px_tensor *const *ignored,
                                       int count);
// Call before each forward pass of such a module: switches its parameters to low precision (the
// same tensors over other memory) until the backward pass ends. Gradients then have full precision,
// too. If the pass is not recorded, px_reducer_restore_parameters switches back.
PX_CALL px_reducer_cast_parameters(px_reducer *self);
// Call after a forward pass: switches the parameters back to full precision, unless a backward pass
// is pending.
PX_CALL px_reducer_restore_parameters(px_reducer *self);

// A full bucket: its buffer and contents, borrowed.
typedef struct px_bucket {
  int index;
  bool last;
  px_tensor *buffer;                                // one-dimensional
  px_tensor *const *gradients, *const *parameters;  // gradients are views of the buffer
  int count;
} px_bucket;
// A user-defined reduction of buckets; it must also average. `begin` is called when the bucket is
// full, `end` at the end of backward. `end` returns the reduced bucket: a new reference of the
// buffer's size, or NULL if the buffer itself holds it. The *pending of `begin` is passed to `end`
// or to `drop`.
typedef struct px_bucket_hook {
  px_status (*begin)(void **pending, const px_bucket *bucket, void *context);
  px_status (*end)(px_tensor **out, void *pending_take, void *context);
  void (*drop)(void *pending_take);
  void (*release)(void *context);
} px_bucket_hook;
// Sets the hook. PX_RUNTIME "register_comm_hook or register_builtin_comm_hook can only be called
// once." On failure the caller keeps the context.
PX_CALL px_reducer_set_hook(px_reducer *self, const px_bucket_hook *hook, void *context);
PX_API int px_reducer_bucket_count(const px_reducer *self);

// Normalises each channel (dimension 1) over the batches of all ranks. Running statistics, which
// may be NULL, are updated with the global statistics. Backward sums over the ranks as well, so all
// ranks must call it. Gradients of weight and bias are those of this rank's batch. PX_VALUE unless
// input is floating-point with at least 2 dimensions; PX_RUNTIME if the other arguments do not
// match its channels.
PX_CALL px_sync_batch_norm(px_tensor **out, px_comm *comm, px_tensor *input,
                           px_tensor *running_mean, px_tensor *running_var, px_tensor *weight,
                           px_tensor *bias, double momentum, double eps);
// Sets the function that selects the communicator of each SyncBatchNorm in training: a new
// reference in *out, or NULL for this process alone, which is the default. Process-wide; set it
// before calling layers.
typedef px_status (*px_sync_norm_choice)(px_comm **out, px_module *layer);
PX_API void px_sync_norm_choose(px_sync_norm_choice choice);

#ifdef __cplusplus
}
#endif
