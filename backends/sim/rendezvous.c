// SPDX-License-Identifier: Apache-2.0
// Rendezvous of the ranks of a simulated cluster. Collectives match by number: the last rank to
// arrive executes the collective for all. A send copies its bytes into a message, unless a matching
// receive is pending.
//
// A group fails from a number on: collectives from that number fail at all ranks with the same
// reason, in any order of arrival; earlier ones complete. Everything is guarded by px__sim.lock,
// released while bytes are moved.
#include "sim/rendezvous.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct px__sim_rendezvous {
  px__sim_rendezvous *next;
  uint64_t number;
  int arrived;
  px__sim_participant *participants[];
};
// A sent message without a receiver yet.
typedef struct message {
  struct message *next;
  int from, to;
  uint32_t tag;
  int64_t time;  // virtual time of arrival
  size_t bytes;
  char data[];
} message;
struct px__sim_group {
  px__sim_group *next;
  uint64_t id;
  int size, taken, left;
  px__sim_rendezvous *pending;
  message *messages;              // oldest first
  px__sim_participant *receives;  // pending, oldest first
  bool failed;
  uint64_t first_failed;  // number of the first failing call
  char why[PX__SIM_WHY];
  px__sim_member members[];
};
static px__sim_group *groups;

// ---- groups

px__sim_group *px__sim_group_new(int size) {
  static uint64_t made;
  px__sim_group *group = calloc(1, sizeof *group + (size_t)size * sizeof *group->members);
  if (!group) return NULL;
  group->id = ++made;
  group->size = size;
  for (int r = 0; r < size; r++) group->members[r].group = group, group->members[r].rank = r;
  group->next = groups;
  return groups = group;
}

px__sim_group *px__sim_group_find(uint64_t id) {
  px__sim_group *group = groups;
  while (group && group->id != id) group = group->next;
  return group;
}

uint64_t px__sim_group_id(const px__sim_group *group) { return group->id; }
int px__sim_group_size(const px__sim_group *group) { return group->size; }
bool px__sim_group_failed(const px__sim_group *group) { return group->failed; }
bool px__sim_group_full(const px__sim_group *group) { return group->taken == group->size; }

px__sim_member *px__sim_member_take(px__sim_group *group, int rank) {
  px__sim_member *member = rank < group->size ? &group->members[rank] : NULL;
  if (!member || member->taken) return NULL;
  member->taken = true;
  group->taken++;
  return member;
}

static void free_group(px__sim_group *group) {
  px__sim_group **at = &groups;
  while (*at != group) at = &(*at)->next;
  *at = group->next;
  while (group->messages) {
    message *first = group->messages;
    group->messages = first->next;
    free(first);
  }
  free(group);
}

// ---- failures

static void end_participant(px__sim_participant *participant, bool failed) {
  participant->done = true;
  participant->failed = failed;
  if (participant->waits) pthread_cond_signal(&participant->wake);
}

static void drop_rendezvous(px__sim_rendezvous **at) {
  px__sim_rendezvous *rendezvous = *at;
  *at = rendezvous->next;
  free(rendezvous);
}

void px__sim_fail_group(px__sim_group *group, uint64_t number, const char *format, ...) {
  if (group->failed && group->first_failed <= number) return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(group->why, sizeof group->why, format, arguments);
  va_end(arguments);
  group->failed = true;
  group->first_failed = number;
  for (px__sim_rendezvous **at = &group->pending; *at;) {
    px__sim_rendezvous *rendezvous = *at;
    if (rendezvous->number < number) {
      at = &rendezvous->next;
      continue;
    }
    for (int r = 0; r < group->size; r++)
      if (rendezvous->participants[r]) end_participant(rendezvous->participants[r], true);
    drop_rendezvous(at);
  }
  while (group->receives) {
    px__sim_participant *participant = group->receives;
    group->receives = participant->next;
    end_participant(participant, true);
  }
  px__sim_schedule_wake();
}

void px__sim_fail_all(const char *why) {
  for (px__sim_group *group = groups; group; group = group->next)
    px__sim_fail_group(group, 0, "%s", why);
}

void px__sim_reason(const px__sim_participant *participant, char *why, size_t capacity) {
  snprintf(why, capacity, "%s", participant->member->group->why);
}

// Returns a departed rank if all possible senders of a receive have departed, else NULL.
static const px__sim_member *departed_sender(const px__sim_participant *receive) {
  const px__sim_member *members = receive->member->group->members, *departed = NULL;
  for (int r = 0; r < receive->member->group->size; r++) {
    bool asked = receive->call->peer < 0 ? r != receive->member->rank : r == receive->call->peer;
    if (asked && !members[r].departed) return NULL;
    if (asked && !departed) departed = &members[r];
  }
  return departed;
}

// Fails the group if a pending call waits for a departed rank.
static void check_departed(px__sim_group *group) {
  for (px__sim_rendezvous *rendezvous = group->pending; rendezvous; rendezvous = rendezvous->next)
    for (int r = 0; r < group->size; r++)
      if (group->members[r].departed && rendezvous->number > group->members[r].last) {
        px__sim_fail_group(group, rendezvous->number, "%s", group->members[r].why);
        return;
      }
  for (px__sim_participant *v = group->receives; v; v = v->next) {
    const px__sim_member *departed = departed_sender(v);
    if (departed) return px__sim_fail_group(group, v->member->latest + 1, "%s", departed->why);
  }
}

void px__sim_depart(px__sim_member *member, uint64_t last, const char *why) {
  if (member->departed) return;
  member->departed = true;
  member->last = last;
  snprintf(member->why, sizeof member->why, "%s", why);
  check_departed(member->group);
}

void px__sim_leave(px__sim_member *member) {
  px__sim_group *group = member->group;
  char why[PX__SIM_WHY];
  snprintf(why, sizeof why, "rank %d has left the group after its call number %llu", member->rank,
           (unsigned long long)member->latest);
  px__sim_depart(member, member->latest, why);
  member->left = true;
  if (++group->left == group->taken) free_group(group);
}

// ---- collectives

static void describe(const px__sim_participant *participant, char text[PX__SIM_WHY / 2]) {
  participant->call->describe(participant->call, text, PX__SIM_WHY / 2);
}

// Returns the first rank whose call differs from the lowest arrived rank's, or -1.
static int differing(const px__sim_rendezvous *rendezvous, int size, int *from) {
  *from = -1;
  for (int r = 0; r < size; r++) {
    if (!rendezvous->participants[r]) continue;
    if (*from < 0)
      *from = r;
    else if (rendezvous->participants[r]->call->tag != rendezvous->participants[*from]->call->tag)
      return r;
  }
  return -1;
}

static bool agree(px__sim_group *group, const px__sim_rendezvous *rendezvous) {
  char first[PX__SIM_WHY / 2], second[PX__SIM_WHY / 2];
  int from, rank = differing(rendezvous, group->size, &from);
  if (rank < 0) return true;
  describe(rendezvous->participants[rank], first);
  describe(rendezvous->participants[from], second);
  px__sim_fail_group(group, rendezvous->number, "rank %d called %.450s, and rank %d called %.450s",
                     rank, first, from, second);
  return false;
}

// all_to_all: each rank's send counts must equal the receivers' expected counts.
static bool counts_agree(px__sim_group *group, const px__sim_rendezvous *rendezvous) {
  if (rendezvous->participants[0]->call->op != PX_ALL_TO_ALL) return true;
  for (int r = 0; r < group->size; r++)
    for (int to = 0; to < group->size; to++) {
      int64_t sent = rendezvous->participants[r]->call->in_counts[to];
      int64_t wanted = rendezvous->participants[to]->call->out_counts[r];
      if (sent == wanted) continue;
      px__sim_fail_group(
          group, rendezvous->number,
          "rank %d sends %lld elements to rank %d, which expects %lld, in all_to_all "
          "number %llu",
          r, (long long)sent, to, (long long)wanted, (unsigned long long)rendezvous->number);
      return false;
    }
  return true;
}

// Virtual time: all ranks continue at the last arrival plus the cost of the links.
static void advance_clocks(px__sim_participant *const *participants, int size) {
  int64_t latest = 0, cost = px__sim_exchange_cost(participants, size);
  for (int r = 0; r < size; r++)
    if (participants[r]->stream && participants[r]->stream->now > latest)
      latest = participants[r]->stream->now;
  for (int r = 0; r < size; r++)
    if (participants[r]->stream) participants[r]->stream->now = latest + cost;
}

// All ranks have arrived. Removes the rendezvous from the list, then executes it.
static void complete(px__sim_group *group, px__sim_rendezvous **at) {
  px__sim_rendezvous *rendezvous = *at;
  if (!agree(group, rendezvous) || !counts_agree(group, rendezvous)) return;
  *at = rendezvous->next;
  advance_clocks(rendezvous->participants, group->size);
  px__sim_unlock();
  px__sim_exchange(rendezvous->participants, group->size);
  px__sim_lock();
  for (int r = 0; r < group->size; r++) end_participant(rendezvous->participants[r], false);
  free(rendezvous);
  px__sim_schedule_wake();
}

static px__sim_rendezvous **find_rendezvous(px__sim_group *group, uint64_t number) {
  px__sim_rendezvous **at = &group->pending;
  while (*at && (*at)->number < number) at = &(*at)->next;
  if (*at && (*at)->number == number) return at;
  px__sim_rendezvous *rendezvous =
      calloc(1, sizeof *rendezvous + (size_t)group->size * sizeof(px__sim_participant *));
  if (!rendezvous) return NULL;
  rendezvous->number = number;
  rendezvous->next = *at;
  *at = rendezvous;
  return at;
}

static void join_rendezvous(px__sim_participant *participant) {
  px__sim_group *group = participant->member->group;
  uint64_t number = participant->call->number;
  px__sim_rendezvous **at = find_rendezvous(group, number);
  if (!at) {
    px__sim_fail_group(group, number, "rank %d is out of host memory", participant->member->rank);
    end_participant(participant, true);
    return;
  }
  participant->member->latest = number;
  (*at)->participants[participant->member->rank] = participant;
  if (++(*at)->arrived == group->size)
    complete(group, at);
  else
    check_departed(group);
}

// ---- sends and receives

static bool matches(const px__sim_participant *receive, int from, int to, uint32_t tag) {
  return receive->member->rank == to && receive->call->tag == tag &&
         (receive->call->peer < 0 || receive->call->peer == from);
}

static void deliver(px__sim_participant *receive, int from, const char *data, size_t bytes,
                    int64_t time) {
  char text[PX__SIM_WHY / 2];
  receive->peer = from;
  if (bytes != receive->out_bytes) {
    describe(receive, text);
    px__sim_fail_group(receive->member->group, 0,
                       "rank %d sent %zu bytes, and rank %d, which receives %zu, called %.450s",
                       from, bytes, receive->member->rank, receive->out_bytes, text);
    end_participant(receive, true);
    return;
  }
  if (bytes) memcpy(receive->out, data, bytes);
  if (receive->stream && receive->stream->now < time) receive->stream->now = time;
  end_participant(receive, false);
  px__sim_schedule_wake();
}

static int64_t arrival(const px__sim_participant *send) {
  return (send->stream ? send->stream->now : 0) + px__sim_link_cost(1, send->in_bytes);
}

static void enqueue_message(px__sim_participant *send) {
  px__sim_group *group = send->member->group;
  message **at = &group->messages, *m = malloc(sizeof *m + send->in_bytes);
  if (!m) px__sim_fail_group(group, 0, "rank %d is out of host memory", send->member->rank);
  if (!m) return end_participant(send, true);
  *m = (message){NULL,          send->member->rank, send->call->peer, send->call->tag,
                 arrival(send), send->in_bytes};
  if (m->bytes) memcpy(m->data, send->in, m->bytes);
  while (*at) at = &(*at)->next;
  *at = m;
  end_participant(send, false);
}

static void send(px__sim_participant *participant) {
  px__sim_participant **at = &participant->member->group->receives;
  int from = participant->member->rank;
  while (*at && !matches(*at, from, participant->call->peer, participant->call->tag))
    at = &(*at)->next;
  px__sim_participant *receive = *at;
  if (!receive) return enqueue_message(participant);
  *at = receive->next;
  deliver(receive, from, participant->in, participant->in_bytes, arrival(participant));
  end_participant(participant, false);
}

static void receive(px__sim_participant *participant) {
  px__sim_group *group = participant->member->group;
  message **at = &group->messages;
  while (*at && !matches(participant, (*at)->from, (*at)->to, (*at)->tag)) at = &(*at)->next;
  message *m = *at;
  if (m) {
    *at = m->next;
    deliver(participant, m->from, m->data, m->bytes, m->time);
    free(m);
    return;
  }
  if (group->failed) return end_participant(participant, true);
  px__sim_participant **last = &group->receives;
  while (*last) last = &(*last)->next;
  *last = participant;
  check_departed(group);
}

void px__sim_withdraw(px__sim_participant *participant) {
  px__sim_participant **at = &participant->member->group->receives;
  while (*at && *at != participant) at = &(*at)->next;
  if (*at) *at = participant->next;
}

// ---- arrival and waiting

static char *translate(const px__sim_participant *participant, const void *at, size_t bytes,
                       bool *good) {
  intptr_t delta = 0;
  if (participant->stream && bytes)
    *good &= px__sim_reach(participant->stream->device, (uintptr_t)at, bytes, &delta);
  return (char *)((uintptr_t)at + (uintptr_t)delta);
}

// True if the call writes its output; a broadcast's root and a reduction's other ranks do not.
static bool writes(const px__sim_participant *participant) {
  bool root = participant->call->peer == participant->member->rank;
  return participant->out_bytes && (participant->call->op != PX_BROADCAST || !root) &&
         (participant->call->op != PX_REDUCE || root);
}

// Copies the input into a staging buffer with space for the output. The output is written when the
// stream continues, so the rank's other work has the same effect whenever the other ranks arrive.
static bool stage(px__sim_participant *participant) {
  bool in_place = participant->in == participant->out;
  participant->staging =
      malloc(participant->in_bytes + (in_place ? 0 : participant->out_bytes) + 1);
  if (!participant->staging) return false;
  if (participant->in_bytes) memcpy(participant->staging, participant->in, participant->in_bytes);
  participant->dest = participant->out;
  participant->in = participant->staging;
  participant->out = in_place ? participant->staging : participant->staging + participant->in_bytes;
  return true;
}

static void copy_back(px__sim_participant *participant) {
  if (participant->staging && !participant->failed && writes(participant))
    memcpy(participant->dest, participant->out, participant->out_bytes);
  free(participant->staging);
  participant->staging = NULL;
}

// Resolves the call's addresses. Fails the group and returns false if the rank's device cannot take
// part.
static bool locate(px__sim_participant *participant) {
  bool good = true;
  participant->in = translate(participant, participant->call->in, participant->in_bytes, &good);
  participant->out = translate(participant, participant->call->out, participant->out_bytes, &good);
  const px__sim_device *device =
      participant->stream ? &px__sim.device[participant->stream->device] : NULL;
  const char *why = "its memory is not accessible";
  if (device && device->broken) good = false, why = device->reason;
  if (good && device && px__sim_in_cluster(participant->stream->device) && !stage(participant))
    good = false, why = "out of host memory";
  if (!good)
    px__sim_fail_group(participant->member->group, participant->call->number,
                       "the device of rank %d failed: %.800s", participant->member->rank, why);
  return good;
}

void px__sim_arrive(px__sim_participant *participant) {
  const px__sim_group *group = participant->member->group;
  px_collective_op op = participant->call->op;
  participant->arrived = true;
  if (!locate(participant)) return end_participant(participant, true);
  if (op == PX_RECV) return receive(participant);
  if (group->failed && (op == PX_SEND || participant->call->number >= group->first_failed))
    return end_participant(participant, true);
  if (op == PX_SEND) return send(participant);
  join_rendezvous(participant);
}

// Lists the ranks that have not arrived: "rank 2 has", "ranks 1, 2 have".
static void list_missing(const px__sim_group *group, const px__sim_rendezvous *rendezvous,
                         char *text, size_t capacity) {
  int n = 0;
  size_t at = 0;
  char list[256] = "";
  for (int r = 0; r < group->size; r++)
    if (!rendezvous->participants[r] && at < sizeof list)
      at += (size_t)snprintf(list + at, sizeof list - at, "%s%d", n++ ? ", " : "", r);
  snprintf(text, capacity, "rank%s %s ha%s", n > 1 ? "s" : "", list, n > 1 ? "ve" : "s");
}

void px__sim_time_out(px__sim_participant *participant) {
  px__sim_group *group = participant->member->group;
  uint64_t number = participant->call->number;
  px__sim_rendezvous *rendezvous = group->pending;
  char ranks[300];
  if (participant->done) return;
  if (participant->call->op == PX_RECV) {
    snprintf(ranks, sizeof ranks, participant->call->peer < 0 ? "any rank" : "rank %d",
             participant->call->peer);
    px__sim_fail_group(group, 0, "rank %d timed out receiving from %s", participant->member->rank,
                       ranks);
    return;
  }
  while (rendezvous && rendezvous->number != number) rendezvous = rendezvous->next;
  if (!rendezvous || !agree(group, rendezvous)) return;  // executing, or failed by a mismatch
  list_missing(group, rendezvous, ranks, sizeof ranks);
  px__sim_fail_group(group, number, "%s not called number %llu", ranks, (unsigned long long)number);
}

void px__sim_participant_wait(px__sim_participant *participant) {
  if (!participant->arrived) px__sim_arrive(participant);
  if (participant->done) return;
  px__sim_condition(&participant->wake);
  participant->waits = true;
  struct timespec until = {participant->deadline / 1000000000, participant->deadline % 1000000000};
  while (!participant->done)
    if (pthread_cond_timedwait(&participant->wake, &px__sim.lock, &until) && !participant->done) {
      px__sim_time_out(participant);
      // Already executing, or the device is blocked: check again soon.
      until.tv_sec++;
    }
  participant->waits = false;
  pthread_cond_destroy(&participant->wake);
}

void px__sim_participant_finish(px__sim_participant *participant) {
  char why[PX__SIM_WHY];
  px__sim_reason(participant, why, sizeof why);
  copy_back(participant);
  px__sim_unlock();
  participant->ended(participant->argument, participant->peer, participant->failed ? why : NULL);
  px__sim_lock();
}
