// SPDX-License-Identifier: Apache-2.0
// The backward engine. One backward call is a task: a list of entries, one per reachable node.
//
// An entry becomes an item of a queue when all its gradients have arrived. The calling thread runs
// the items of the task's home queue. With nodes on at most one device, all items go there, because
// queueing a kernel is cheaper than waking a thread. With several devices the task is shared: items
// of a device go to that device's worker thread, and CPU items to the home queue. A backward call
// made by a worker uses the worker's queue as home, so a worker waiting for a nested task keeps
// running its other items.
//
// Locks: in a shared task, the task's lock guards entries, counters and the error. A queue's lock
// guards its heap. Order: task, then queue.
#pragma once
#include "autograd/engine/graph.h"

typedef struct px__task px__task;
typedef struct px__item {
  px__task *task;
  uint32_t entry;
  int depth;          // nesting of backward calls; inner ones run first
  uint64_t sequence;  // later nodes first
} px__item;

typedef struct px__queue {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  px__item *heap;
  int count, capacity;
  unsigned pops;  // counted by the popping thread
  bool alone;     // used by one thread only; takes no lock
} px__queue;

typedef struct px__task_entry {
  px_node *node;        // borrowed: the roots retain the graph
  const px_node *from;  // source of the last gradient
  px_tensor *one;       // the gradient, if the node has one result
  px_tensor **many;     // otherwise an array of them, or NULL
  int32_t dependencies;
  int32_t next_edge;  // state of the traversal
  int32_t capture;    // index of this entry's first capture, or -1
  bool needed;        // a requested input is reachable
  bool target;        // of px_backward_inputs: the node runs, also if no input is reachable
} px__task_entry;

typedef struct px__capture {
  uint32_t entry;
  int32_t nr, next;
  px_tensor *grad;    // owned
  px_stream *stream;  // on which `grad` is ready; owned
} px__capture;

// A callback at the end of a successful task.
typedef struct px__last_call {
  struct px__last_call *next;
  px_status (*fn)(void *context);
  void *context;
  void (*release)(void *context);
} px__last_call;

struct px__task {
  px__task *outer;            // enclosing task, or NULL
  px__last_call *last_calls;  // of an outermost task; guarded by the lock in task.c
  pthread_mutex_t lock;
  px__queue *home;  // `own`, or that of the worker that made the call
  px__queue own;
  px__task_entry *entries;
  uint32_t count, capacity;
  uint32_t *table;  // hash of nodes: index + 1, 0 empty
  uint32_t table_capacity;
  uint32_t number;
  bool keep, create, limited;
  bool forward;      // mode: selects the nodes to follow
  int device;        // first accelerator among reached nodes; -1: none
  bool shared;       // several accelerators: nodes run on workers, unless `alone`
  bool alone;        // nodes run on the caller's thread
  bool fuses;        // the thread fuses calls since a fused node ran; not if `shared`
  uint64_t devices;  // bits of the accelerators among reached nodes
  bool failed;       // set under lock, read atomically
  int depth;
  int64_t outstanding;  // items queued or running; atomic
  px_error *error;
  px__capture *captures;
  int capture_count;
  px_stream **ends;  // streams on which leaves were written; owned
  int end_count, end_capacity;
  // Shared task: the caller's current streams of devices with peer access. Worker launches with
  // operands on several devices are ordered after them. Owned.
  px_stream **peers;
  int peer_count;
  px_modes modes;  // the caller's modes, applied on worker threads
  px_site site;    // shared task: call site of backward, for worker threads
};

// ---- queue.c
void px__queue_init(px__queue *queue, bool alone);
void px__queue_end(px__queue *queue);
__attribute__((warn_unused_result)) px_status px__queue_push(px__queue *queue, px__item item);
// Blocks until an item is available. Sets *found to false once the task `until` (may be NULL) has
// no outstanding items. Fails if an interrupt ends the wait.
__attribute__((warn_unused_result)) px_status px__queue_pop(px__queue *queue, const px__task *until,
                                                            bool *found, px__item *out);
void px__queue_wake(px__queue *queue);

// ---- task.c
__attribute__((warn_unused_result)) px_status px__task_init(px__task *task);
void px__task_end(px__task *task);
// Sets the task whose node runs on this thread, and returns the previous one or NULL.
px__task *px__task_enter(px__task *task);
__attribute__((warn_unused_result)) px_status px__task_run_last_calls(px__task *task);
// Returns the entry of a node, creating it if it is new. px__task_find returns -1 for unknown
// nodes.
__attribute__((warn_unused_result)) px_status px__task_add(px__task *task, px_node *node,
                                                           uint32_t *entry);
int64_t px__task_find(const px__task *task, const px_node *node);
// True if a node will run. Uses its address only: the node may be destroyed.
bool px__task_runs(const px__task *task, const px_node *node);
// Traverses all nodes from `root`, counting dependencies and marking needed entries.
__attribute__((warn_unused_result)) px_status px__task_reach(px__task *task, px_node *root);
static inline void px__task_lock(px__task *task) {
  if (!task->shared) return;
  px_interrupt_hold(true);
  pthread_mutex_lock(&task->lock);
}
static inline void px__task_unlock(px__task *task) {
  if (!task->shared) return;
  pthread_mutex_unlock(&task->lock);
  px_interrupt_hold(false);
}
static inline px_tensor **px__entry_grads(px__task_entry *entry) {
  return entry->node->result_count == 1 ? &entry->one : entry->many;
}

// ---- worker.c
// The queue of the calling thread if it is a worker, else NULL.
px__queue *px__worker_queue(void);
int px__worker_device(void);
// Returns the queue of a device, starting its worker if necessary. `run` runs the worker's items.
__attribute__((warn_unused_result)) px_status px__worker_of(px__queue **out, int device,
                                                            void (*run)(px__item item));

// ---- buffer.c
// Adds a gradient (consumed), ready on the current stream, to an input of an entry. Runs on the
// stream of the entry's node.
__attribute__((warn_unused_result)) px_status px__buffer_add(px__task_entry *entry, int nr,
                                                             px_tensor *grad_take);

// ---- run.c
// Runs one item: the node, and passing on its gradients. Errors are stored in the task.
void px__run_item(px__item item);
int px__run_depth(void);  // nesting depth of backward calls on this thread
// The node running on this thread.
typedef struct px__running_item {
  uint64_t sequence;
  int depth;    // 0: none
  bool create;  // create_graph of its task
} px__running_item;
px__running_item px__run_here(void);
__attribute__((warn_unused_result)) px_status px__task_push(px__task *task, uint32_t entry);
void px__task_fail(px__task *task);
