// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a simulated cluster meet, threads of one process: what the files that have to
// do with it share. All of it is guarded by px__sim.lock.
#pragma once
#include "phlox/engine.h"
#include "sim/sim.h"

enum { PX__SIM_WHY = 1024 };

typedef struct px__sim_group px__sim_group;
typedef struct px__sim_slot px__sim_slot;

// What one rank knows itself by.
typedef struct px__sim_seat {
  px__sim_group *group;
  int rank;
  bool taken, left;
  uint64_t come;   // the latest number that it came to
  uint64_t stays;  // it comes to calls up to this number alone, if it is `gone`
  bool gone;       // for the reason in `why`
  char why[PX__SIM_WHY];
} px__sim_seat;

// One call of one rank on its way. A call of host memory has no stream.
struct px__sim_visit {
  px__sim_visit *next;  // among the receives that wait
  px__sim_seat *seat;
  const px_engine_call *call;
  px__sim_stream *stream;
  char *in, *out;     // where the host finds them, once it has come
  char *held, *home;  // or that is here, and goes there
  size_t in_bytes, out_bytes;
  bool come, over, failed;
  bool passed;       // turns.c
  int peer;          // of a receive, the other rank
  int64_t deadline;  // of the monotonic clock, in nanoseconds
  bool waits;        // a thread does, for `wake`
  pthread_cond_t wake;
  px_engine_ended ended;
  void *argument;
};

// meet.c. `arrive` says that a rank has come to its call; the last of a collective does the work of
// all, for which the lock is given up. `late` ends the group if the call is not over. `over` ends
// it for a reason; of calls from `number` on.
void px__sim_arrive(px__sim_visit *visit);
void px__sim_late(px__sim_visit *visit);
void px__sim_over(px__sim_group *group, uint64_t number, const char *format, ...) PX_PRINTF(3, 4);
void px__sim_over_all(const char *why);       // of all groups
void px__sim_withdraw(px__sim_visit *visit);  // a receive
// A rank does not come to calls behind its `stays`.
void px__sim_gone(px__sim_seat *seat, uint64_t stays, const char *why);
// The reason why a visit has failed.
void px__sim_reason(const px__sim_visit *visit, char *why, size_t room);
px__sim_group *px__sim_group_new(int size);
px__sim_group *px__sim_group_find(uint64_t id);
uint64_t px__sim_group_id(const px__sim_group *group);
px__sim_seat *px__sim_seat_of(px__sim_group *group, int rank);
int px__sim_group_size(const px__sim_group *group);
bool px__sim_is_over(const px__sim_group *group);
bool px__sim_group_full(const px__sim_group *group);
void px__sim_leave(px__sim_seat *seat);

// turns.c. A cluster of so many ranks begins, on the first devices; 0: it has ended. Whether a
// device is one of them. `next` gives the stream that runs next, and `settle` whether something has
// changed after it gave NULL; `patience` when that may be asked again, or 0. `issue` gives a host's
// virtual clock and moves it, `meet` sets it. `poll` adds to the tasks that a host asks for, and
// gives whether some are left. All but the first with the lock held.
void px__sim_cluster(int ranks);
bool px__sim_alone(int device);
px__sim_stream *px__sim_turn_next(void);
bool px__sim_turn_settle(void);
int64_t px__sim_turn_patience(void);
int64_t px__sim_turn_issue(int device, int64_t cost);
void px__sim_turn_meet(int device, int64_t time);
bool px__sim_turn_poll(int device, int change);

// exchange.c. The bytes of a call's two sides, of a rank in a group of `size`. `exchange` moves and
// reduces what the calls of all ranks say, in the order of ranks; `exchange_cost` is how long that
// takes over the links. `differ` writes what is wrong with calls that cannot meet.
size_t px__sim_side(const px_engine_call *call, int size, int rank, bool out);
void px__sim_exchange(px__sim_visit *const *visits, int size);
int64_t px__sim_exchange_cost(px__sim_visit *const *visits, int size);
int64_t px__sim_link_cost(int steps, size_t bytes);
