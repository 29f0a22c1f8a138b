// SPDX-License-Identifier: Apache-2.0
// The engine: one backward call is a task, a list of entries, one for each node that it can reach.
//
// When all gradients of an entry have arrived, it becomes an item in a queue. The calling thread
// runs the items of the task's home queue. If the graph has nodes of at most one device, all items
// go there: queueing a kernel takes less time than waking a thread. If it has nodes of several
// devices, the task is shared: the items of a device go to that device's worker, and those of the
// CPU to the home queue. A backward call that a worker makes has the worker's queue as its home, so
// a worker that waits for an inner task goes on with its other items. Locks: in a shared task, the
// task's lock guards entries, counters and the error; a queue's lock guards its heap. A queue's
// lock may be taken with a task's held, never the reverse.
#pragma once
#include "autograd/engine/graph.h"

typedef struct px__task px__task;
typedef struct px__item {
  px__task *task;
  uint32_t entry;
  int depth;          // of nested backward calls: inner ones first
  uint64_t sequence;  // later nodes first
} px__item;

typedef struct px__queue {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  px__item *heap;
  int count, room;
  unsigned pops;  // of the one thread that pops
  bool alone;     // no other thread knows it: it takes no lock
} px__queue;

typedef struct px__task_entry {
  px_node *node;        // borrowed: the roots hold the graph
  const px_node *from;  // whose gradient came last
  px_tensor *one;       // the gradient, if the node has one result
  px_tensor **many;     // else an array of them, or NULL
  int32_t dependencies;
  int32_t next_edge;  // of the traversal
  int32_t capture;    // first of this entry's captures, or -1
  bool needed;        // some input that the caller asks for is behind it
} px__task_entry;

typedef struct px__capture {
  uint32_t entry;
  int32_t nr, next;
  px_tensor *grad;    // owned
  px_stream *stream;  // where it is ready; owned
} px__capture;

// What is called when a task has run well.
typedef struct px__last_call {
  struct px__last_call *next;
  px_status (*fn)(void *context);
  void *context;
  void (*release)(void *context);
} px__last_call;

struct px__task {
  px__task *outer;            // which this one is inside of, or NULL
  px__last_call *last_calls;  // of a task that is inside of none; by task.c's lock
  pthread_mutex_t lock;
  px__queue *home;  // `own`, or that of the worker that made the call
  px__queue own;
  px__task_entry *entries;
  uint32_t count, room;
  uint32_t *table;  // hash of nodes: index + 1, 0 empty
  uint32_t table_room;
  uint32_t number;
  bool keep, create, limited;
  bool forward;  // which mode's nodes it sees
  int device;    // of the nodes that were reached, the first that is not the CPU; -1: none
  bool shared;   // another device was reached too: nodes run on workers
  bool failed;   // set under lock, read atomically
  int depth;
  int64_t outstanding;  // items queued or running; atomic
  px_error *error;
  px__capture *captures;
  int capture_count;
  px_stream **ends;  // streams on which leaves were written; owned references
  int end_count, end_room;
  // Of a shared task: the caller's current streams of devices whose memory others may use, so that
  // a worker's launches with operands on several devices are ordered with them. Owned references.
  px_stream **peers;
  int peer_count;
  px_modes modes;  // of the caller, for the threads that run the nodes
  px_site site;    // of a shared task: where the call was, for the same
};

// ---- queue.c
void px__queue_init(px__queue *queue, bool alone);
void px__queue_end(px__queue *queue);
__attribute__((warn_unused_result)) px_status px__queue_push(px__queue *queue, px__item item);
// Waits for an item; not found once the task `until` (may be NULL) has none outstanding. Fails if
// the program ends the wait.
__attribute__((warn_unused_result)) px_status px__queue_pop(px__queue *queue, const px__task *until,
                                                            bool *found, px__item *out);
void px__queue_wake(px__queue *queue);

// ---- task.c
__attribute__((warn_unused_result)) px_status px__task_init(px__task *task);
void px__task_end(px__task *task);
// Says whose node the thread runs from now on, and gives whose it was, or NULL.
px__task *px__task_enter(px__task *task);
__attribute__((warn_unused_result)) px_status px__task_run_last_calls(px__task *task);
// The entry of a node, made if it is new; -1 there if it is not known to `find`.
__attribute__((warn_unused_result)) px_status px__task_add(px__task *task, px_node *node,
                                                           uint32_t *entry);
int64_t px__task_find(const px__task *task, const px_node *node);
// Whether a node is run, by its address alone: it may have ended.
bool px__task_comes_to(const px__task *task, const px_node *node);
// Reaches all nodes from `root`, counting dependencies and marking what is needed.
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
// The queue of the thread if it is a worker, else NULL; the queue of a device, its worker started.
px__queue *px__worker_queue(void);
int px__worker_device(void);
__attribute__((warn_unused_result)) px_status px__worker_of(px__queue **out, int device);

// ---- buffer.c
// Adds a gradient (consumed) that is ready on this thread's current stream to an input of an entry,
// on the stream of its node.
__attribute__((warn_unused_result)) px_status px__buffer_add(px__task_entry *entry, int nr,
                                                             px_tensor *grad_take);

// ---- run.c
// Runs one item on this thread: the node, and what follows from it. Errors go to the task.
void px__run_item(px__item item);
int px__run_depth(void);  // how many backward calls this thread is inside of
// The node that the thread runs: its number, how deep it is, and whether its call is recorded.
typedef struct px__running_item {
  uint64_t sequence;
  int depth;  // 0: it runs none
  bool create;
} px__running_item;
px__running_item px__run_here(void);
__attribute__((warn_unused_result)) px_status px__task_push(px__task *task, uint32_t entry);
void px__task_fail(px__task *task);
