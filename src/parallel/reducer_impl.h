// SPDX-License-Identifier: Apache-2.0
// Internal header of the reducer (DistributedDataParallel).
#pragma once
#include <pthread.h>

#include "parallel/parallel_impl.h"
#include "phlox/distributed.h"
#include "phlox/memory.h"
#include "phlox/stream.h"

#define PX__MUST __attribute__((warn_unused_result))

// A parameter and the destination of its gradient.
typedef struct px__variable {
  px_reducer *reducer;  // back pointer for the hook
  px_tensor *tensor;    // owned
  px_node *node;        // its AccumulateGrad node; owned
  int64_t hook;
  int bucket;
  bool in_place;    // reduced in place, without a copy into the bucket
  px_tensor *view;  // of the bucket; if in place, of the gradient during a step; owned
  bool ready;       // its gradient has arrived or is known to be unused
  bool unused;      // the outputs do not depend on it
  bool noted;       // listed in `arrival`
  bool used;        // this rank received a gradient after the previous reduction
  int uses, left;   // static graph: gradient arrivals per step, and those still pending
} px__variable;

typedef struct px__bucket {
  px_tensor *flat;  // memory of all members but in-place ones; owned
  int *members;     // indices of parameters; a range of the reducer's `order`
  int count, pending;
  int64_t bytes;
  px_tensor *sent;     // copy in the compressed dtype, or NULL; owned
  px_work *work;       // pending collective
  void *pending_hook;  // result of the user's communication hook
  bool begun;
  px_stream *stream;  // stream of the last gradient
} px__bucket;

typedef struct px__mixed px__mixed;

struct px_reducer {
  px_object head;
  pthread_mutex_t lock;  // guards the fields below against concurrent backward threads
  px_comm *comm;
  px__variable *variables;
  int count;
  px__bucket *buckets;
  int bucket_count;
  int *order;  // parameters in bucket order
  int64_t first_bytes, bucket_bytes;
  int64_t unbucketed_bytes;  // minimum size for in-place reduction; INT64_MAX: disabled
  bool averages;             // the collective computes the mean
  bool view, find_unused, static_graph;
  bool armed;    // the next backward is reduced
  bool in_step;  // between the first gradient of a step and its end
  bool rebuilt, marked_unused, warned_unused;
  bool learned;  // the first step of a static graph is complete
  int next;      // next bucket to start
  int *arrival;  // parameters in order of gradient arrival
  int arrived;
  int divisor;  // of the sums
  px_dtype compress;
  px__mixed *mixed;  // owned, or NULL
  px_bucket_hook hook;
  void *hook_context;
  bool has_hook;
  px_tensor *used;  // number of ranks with a gradient, for each parameter; owned
  px_work *used_work;
};

// ---- verify_ranks.c
PX__MUST px_status px__run_all_reduce(px_work **work, px_comm *comm, px_tensor *tensor);
PX__MUST px_status px__numbers_put(px_tensor **out, const int64_t *numbers, int64_t count,
                                   px_device device);
PX__MUST px_status px__numbers_get(int64_t *numbers, const px_tensor *tensor);
// Broadcasts rank `root`'s integers.
PX__MUST px_status px__numbers_from(px_comm *comm, int root, int64_t *numbers, int64_t count,
                                    px_device device);

// ---- buckets.c
// Assigns parameters to buckets in self->order and allocates the buckets.
PX__MUST px_status px__buckets_lay_out(px_reducer *self);
void px__buckets_drop(px_reducer *self);
// Fails if a communication hook, compression or mixed precision is set already.
PX__MUST px_status px__check_no_hook(const px_reducer *self);

// ---- mixed_precision.c
// Called for each gradient. Registers the restore of full-precision parameters after backward.
PX__MUST px_status px__mixed_on_gradient(px_reducer *self);
void px__mixed_drop(px_reducer *self);

// ---- unused.c
// Marks parameters not reachable from the outputs.
PX__MUST px_status px__find_unused(px_reducer *self, px_tensor *const *outputs, int count);
