// SPDX-License-Identifier: Apache-2.0
// Rendezvous of the ranks of a simulated cluster, which are threads of one process: shared
// declarations. Guarded by px__sim.lock.
#pragma once
#include "phlox/engine.h"
#include "sim/sim.h"

enum { PX__SIM_WHY = 1024 };  // bytes of an error text

typedef struct px__sim_group px__sim_group;
typedef struct px__sim_rendezvous px__sim_rendezvous;

// Membership of one rank in a group.
typedef struct px__sim_member {
  px__sim_group *group;
  int rank;
  bool taken, left;
  uint64_t latest;  // number of its latest collective
  uint64_t last;    // once `departed`: the last collective it takes part in
  bool departed;    // with the reason in `why`
  char why[PX__SIM_WHY];
} px__sim_member;

// One rank's participation in one call. Calls on host memory have no stream.
struct px__sim_participant {
  px__sim_participant *next;  // in the list of pending receives
  px__sim_member *member;
  const px_engine_call *call;
  px__sim_stream *stream;
  char *in, *out;        // host-visible addresses, valid once `arrived`
  char *staging, *dest;  // staging buffer and the output's destination, if the call is staged
  size_t in_bytes, out_bytes;
  bool arrived, done, failed;
  bool deferred;     // rank_schedule.c
  int peer;          // receives: the sender's rank
  int64_t deadline;  // monotonic clock, nanoseconds
  bool waits;        // a thread waits on `wake`
  pthread_cond_t wake;
  px_engine_ended ended;
  void *argument;
};

// rendezvous.c. `arrive` enters a rank's call; the last rank of a collective executes it for all,
// with the lock released. `time_out` fails the group if the call is still pending. `fail_group`
// fails all calls of the group from `number` on.
void px__sim_arrive(px__sim_participant *participant);
void px__sim_time_out(px__sim_participant *participant);
void px__sim_fail_group(px__sim_group *group, uint64_t number, const char *format, ...)
    PX_PRINTF(3, 4);
void px__sim_fail_all(const char *why);                   // every group
void px__sim_withdraw(px__sim_participant *participant);  // cancels a pending receive
// The rank takes no part in collectives after number `last`.
void px__sim_depart(px__sim_member *member, uint64_t last, const char *why);
// Writes the reason of a failed participant.
void px__sim_reason(const px__sim_participant *participant, char *why, size_t capacity);
px__sim_group *px__sim_group_new(int size);
px__sim_group *px__sim_group_find(uint64_t id);
uint64_t px__sim_group_id(const px__sim_group *group);
px__sim_member *px__sim_member_take(px__sim_group *group, int rank);
int px__sim_group_size(const px__sim_group *group);
bool px__sim_group_failed(const px__sim_group *group);
bool px__sim_group_full(const px__sim_group *group);
void px__sim_leave(px__sim_member *member);

// rank_schedule.c. `cluster` begins a cluster on the first `ranks` devices; 0 ends it.
// `in_cluster`: whether a device belongs to it. `next` returns the stream to run next. `settle`,
// called after NULL, unblocks devices and returns whether any state changed. `patience` returns the
// time of the next retry, or 0. `issue` advances a host's virtual clock and returns its previous
// value; `waited` moves it forward to a time. `poll` adds to the number of tasks requested by a
// polling host and returns whether any are left. Lock held in all but `cluster`.
void px__sim_cluster(int ranks);
bool px__sim_in_cluster(int device);
px__sim_stream *px__sim_cluster_next(void);
bool px__sim_cluster_settle(void);
int64_t px__sim_cluster_patience(void);
int64_t px__sim_cluster_issue(int device, int64_t cost);
void px__sim_cluster_waited(int device, int64_t time);
bool px__sim_cluster_poll(int device, int change);

// collective.c. `side` returns the bytes of a call's input or output for one rank of a group of
// `size`. `exchange` copies and reduces the data of all ranks in rank order; `exchange_cost`
// returns its virtual time on the links.
size_t px__sim_side(const px_engine_call *call, int size, int rank, bool out);
void px__sim_exchange(px__sim_participant *const *participants, int size);
int64_t px__sim_exchange_cost(px__sim_participant *const *participants, int size);
int64_t px__sim_link_cost(int steps, size_t bytes);
