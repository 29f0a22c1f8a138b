// SPDX-License-Identifier: Apache-2.0
// The reducer, for the files of this folder.
#pragma once
#include <pthread.h>

#include "parallel/parallel_impl.h"
#include "phlox/distributed.h"
#include "phlox/memory.h"
#include "phlox/stream.h"

#define PX__MUST __attribute__((warn_unused_result))

// A parameter, and where its gradient goes.
typedef struct px__variable {
  px_reducer *reducer;  // for its hook
  px_tensor *tensor;    // owned
  px_node *node;        // the one that accumulates its gradient; owned
  int64_t hook;
  int bucket;
  bool apart;       // it is averaged where it lies
  px_tensor *view;  // of the bucket's memory, or, apart, of the gradient's in a step; owned
  bool ready;       // its gradient is there, or will not come
  bool unused;      // the outputs do not depend on it
  bool came;        // it is in `arrival`
  bool used;        // a gradient has come here
  int uses, left;   // of a static graph: how often its gradient comes, and is still to come
} px__variable;

typedef struct px__bucket {
  px_tensor *flat;  // owned; of those that do not lie apart
  int *members;     // parameters; in the reducer's `order`
  int count, pending;
  int64_t bytes;
  px_tensor *sent;     // of another dtype, if it is compressed; owned
  px_work *work;       // under way
  void *pending_hook;  // what the program's hook gave
  bool begun;
  px_stream *stream;  // whose gradient came last
} px__bucket;

typedef struct px__mixed px__mixed;

struct px_reducer {
  px_object head;
  pthread_mutex_t lock;  // of all that follows, against threads of one backward pass
  px_comm *comm;
  px__variable *variables;
  int count;
  px__bucket *buckets;
  int bucket_count;
  int *order;  // parameters as they lie in the buckets
  int64_t first_bytes, bucket_bytes;
  int64_t unbucketed_bytes;  // INT64_MAX: none lie apart
  bool averages;             // the collective divides, not what is sent
  bool view, find_unused, static_graph;
  bool expects;   // the next gradients are reduced
  bool underway;  // some have come, and the end has not
  bool rebuilt, marked_unused, warned_unused;
  bool learned;  // the first step of a static graph is over
  int next;      // the bucket that begins next
  int *arrival;  // parameters in the order of their gradients
  int arrived;
  int divisor;  // of the sums
  px_dtype compress;
  px__mixed *mixed;  // owned; or NULL
  px_bucket_hook hook;
  void *hook_context;
  bool has_hook;
  px_tensor *used;  // how many ranks used each parameter; owned
  px_work *used_work;
};

// ---- alike.c
PX__MUST px_status px__run_all_reduce(px_work **work, px_comm *comm, px_tensor *tensor);
PX__MUST px_status px__numbers_put(px_tensor **out, const int64_t *numbers, int64_t count,
                                   px_device device);
PX__MUST px_status px__numbers_get(int64_t *numbers, const px_tensor *tensor);
// Copies rank `root`'s numbers to all.
PX__MUST px_status px__numbers_from(px_comm *comm, int root, int64_t *numbers, int64_t count,
                                    px_device device);

// ---- buckets.c
// Lays the parameters out in buckets, in self->order.
PX__MUST px_status px__buckets_lay_out(px_reducer *self);
void px__buckets_drop(px_reducer *self);
// Checks that buckets are sent as they are so far.
PX__MUST px_status px__check_no_hook(const px_reducer *self);

// ---- mixed.c
// A gradient has come: at the end of backward the parameters get their own precision again.
PX__MUST px_status px__mixed_on_gradient(px_reducer *self);
void px__mixed_drop(px_reducer *self);

// ---- unused.c
// Marks the parameters that no output depends on.
PX__MUST px_status px__find_unused(px_reducer *self, px_tensor *const *outputs, int count);
