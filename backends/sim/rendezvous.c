// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a simulated cluster meet. Collectives meet by their number: the rank that
// comes last does the work of all. A send leaves its bytes for the receive that asks for them.
//
// A group ends at a number: calls from there on fail at all ranks for the same reason, whoever
// comes first, and calls before it end well. Everything is guarded by px__sim.lock, which is given
// up while bytes are moved.
#include "sim/rendezvous.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct px__sim_slot {
  px__sim_slot *next;
  uint64_t number;
  int come;
  px__sim_visit *visits[];
};
// What was sent, and nobody has received.
typedef struct message {
  struct message *next;
  int from, to;
  uint32_t tag;
  int64_t time;  // virtual, when it is there
  size_t bytes;
  char data[];
} message;
struct px__sim_group {
  px__sim_group *next;
  uint64_t id;
  int size, taken, left;
  px__sim_slot *slots;
  message *messages;        // the oldest first
  px__sim_visit *receives;  // that wait, the oldest first
  bool over;
  uint64_t end;  // the first number that fails
  char why[PX__SIM_WHY];
  px__sim_seat seats[];
};
static px__sim_group *groups;

// ---- groups

px__sim_group *px__sim_group_new(int size) {
  static uint64_t made;
  px__sim_group *group = calloc(1, sizeof *group + (size_t)size * sizeof *group->seats);
  if (!group) return NULL;
  group->id = ++made;
  group->size = size;
  for (int r = 0; r < size; r++) group->seats[r].group = group, group->seats[r].rank = r;
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
bool px__sim_is_over(const px__sim_group *group) { return group->over; }
bool px__sim_group_full(const px__sim_group *group) { return group->taken == group->size; }

px__sim_seat *px__sim_seat_of(px__sim_group *group, int rank) {
  px__sim_seat *seat = rank < group->size ? &group->seats[rank] : NULL;
  if (!seat || seat->taken) return NULL;
  seat->taken = true;
  group->taken++;
  return seat;
}

static void free_group(px__sim_group *group) {
  px__sim_group **at = &groups;
  while (*at != group) at = &(*at)->next;
  *at = group->next;
  while (group->messages) {
    message *gone = group->messages;
    group->messages = gone->next;
    free(gone);
  }
  free(group);
}

// ---- ends

static void end_visit(px__sim_visit *visit, bool failed) {
  visit->over = true;
  visit->failed = failed;
  if (visit->waits) pthread_cond_signal(&visit->wake);
}

static void drop_slot(px__sim_slot **at) {
  px__sim_slot *slot = *at;
  *at = slot->next;
  free(slot);
}

void px__sim_over(px__sim_group *group, uint64_t number, const char *format, ...) {
  if (group->over && group->end <= number) return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(group->why, sizeof group->why, format, arguments);
  va_end(arguments);
  group->over = true;
  group->end = number;
  for (px__sim_slot **at = &group->slots; *at;) {
    px__sim_slot *slot = *at;
    if (slot->number < number) {
      at = &slot->next;
      continue;
    }
    for (int r = 0; r < group->size; r++)
      if (slot->visits[r]) end_visit(slot->visits[r], true);
    drop_slot(at);
  }
  while (group->receives) {
    px__sim_visit *visit = group->receives;
    group->receives = visit->next;
    end_visit(visit, true);
  }
  px__sim_schedule_wake();
}

void px__sim_over_all(const char *why) {
  for (px__sim_group *group = groups; group; group = group->next) px__sim_over(group, 0, "%s", why);
}

void px__sim_reason(const px__sim_visit *visit, char *why, size_t room) {
  snprintf(why, room, "%s", visit->seat->group->why);
}

// Whether nobody is left who could send what a receive waits for.
static const px__sim_seat *lost(const px__sim_visit *receive) {
  const px__sim_seat *seats = receive->seat->group->seats, *gone = NULL;
  for (int r = 0; r < receive->seat->group->size; r++) {
    bool asked = receive->call->peer < 0 ? r != receive->seat->rank : r == receive->call->peer;
    if (asked && !seats[r].gone) return NULL;
    if (asked && !gone) gone = &seats[r];
  }
  return gone;
}

// Ends the group if one has begun what another one will not come to.
static void look_for_gone(px__sim_group *group) {
  for (px__sim_slot *slot = group->slots; slot; slot = slot->next)
    for (int r = 0; r < group->size; r++)
      if (group->seats[r].gone && slot->number > group->seats[r].stays) {
        px__sim_over(group, slot->number, "%s", group->seats[r].why);
        return;
      }
  for (px__sim_visit *v = group->receives; v; v = v->next) {
    const px__sim_seat *gone = lost(v);
    if (gone) return px__sim_over(group, v->seat->come + 1, "%s", gone->why);
  }
}

void px__sim_gone(px__sim_seat *seat, uint64_t stays, const char *why) {
  if (seat->gone) return;
  seat->gone = true;
  seat->stays = stays;
  snprintf(seat->why, sizeof seat->why, "%s", why);
  look_for_gone(seat->group);
}

void px__sim_leave(px__sim_seat *seat) {
  px__sim_group *group = seat->group;
  char why[PX__SIM_WHY];
  snprintf(why, sizeof why, "rank %d has left the group after its call number %llu", seat->rank,
           (unsigned long long)seat->come);
  px__sim_gone(seat, seat->come, why);
  seat->left = true;
  if (++group->left == group->taken) free_group(group);
}

// ---- collectives

static void describe(const px__sim_visit *visit, char text[PX__SIM_WHY / 2]) {
  visit->call->describe(visit->call, text, PX__SIM_WHY / 2);
}

// The first rank whose call differs from the lowest rank's that has come; -1: none does.
static int differing(const px__sim_slot *slot, int size, int *from) {
  *from = -1;
  for (int r = 0; r < size; r++) {
    if (!slot->visits[r]) continue;
    if (*from < 0)
      *from = r;
    else if (slot->visits[r]->call->tag != slot->visits[*from]->call->tag)
      return r;
  }
  return -1;
}

static bool agree(px__sim_group *group, const px__sim_slot *slot) {
  char one[PX__SIM_WHY / 2], other[PX__SIM_WHY / 2];
  int from, rank = differing(slot, group->size, &from);
  if (rank < 0) return true;
  describe(slot->visits[rank], one);
  describe(slot->visits[from], other);
  px__sim_over(group, slot->number, "rank %d called %.450s, and rank %d called %.450s", rank, one,
               from, other);
  return false;
}

// Of all_to_all: what one sends is what the other one expects.
static bool parts_agree(px__sim_group *group, const px__sim_slot *slot) {
  if (slot->visits[0]->call->op != PX_ALL_TO_ALL) return true;
  for (int r = 0; r < group->size; r++)
    for (int to = 0; to < group->size; to++) {
      int64_t sent = slot->visits[r]->call->in_counts[to];
      int64_t wanted = slot->visits[to]->call->out_counts[r];
      if (sent == wanted) continue;
      px__sim_over(group, slot->number,
                   "rank %d sends %lld elements to rank %d, which expects %lld, in all_to_all "
                   "number %llu",
                   r, (long long)sent, to, (long long)wanted, (unsigned long long)slot->number);
      return false;
    }
  return true;
}

// Virtual time: all go on when the last has come, and the links have done their part.
static void spend(px__sim_visit *const *visits, int size) {
  int64_t latest = 0, cost = px__sim_exchange_cost(visits, size);
  for (int r = 0; r < size; r++)
    if (visits[r]->stream && visits[r]->stream->now > latest) latest = visits[r]->stream->now;
  for (int r = 0; r < size; r++)
    if (visits[r]->stream) visits[r]->stream->now = latest + cost;
}

// All have come: the slot is this thread's from here on.
static void complete(px__sim_group *group, px__sim_slot **at) {
  px__sim_slot *slot = *at;
  if (!agree(group, slot) || !parts_agree(group, slot)) return;
  *at = slot->next;
  spend(slot->visits, group->size);
  px__sim_unlock();
  px__sim_exchange(slot->visits, group->size);
  px__sim_lock();
  for (int r = 0; r < group->size; r++) end_visit(slot->visits[r], false);
  free(slot);
  px__sim_schedule_wake();
}

static px__sim_slot **find_slot(px__sim_group *group, uint64_t number) {
  px__sim_slot **at = &group->slots;
  while (*at && (*at)->number < number) at = &(*at)->next;
  if (*at && (*at)->number == number) return at;
  px__sim_slot *slot = calloc(1, sizeof *slot + (size_t)group->size * sizeof(px__sim_visit *));
  if (!slot) return NULL;
  slot->number = number;
  slot->next = *at;
  *at = slot;
  return at;
}

static void join_slot(px__sim_visit *visit) {
  px__sim_group *group = visit->seat->group;
  uint64_t number = visit->call->number;
  px__sim_slot **at = find_slot(group, number);
  if (!at) {
    px__sim_over(group, number, "rank %d has no memory left", visit->seat->rank);
    end_visit(visit, true);
    return;
  }
  visit->seat->come = number;
  (*at)->visits[visit->seat->rank] = visit;
  if (++(*at)->come == group->size)
    complete(group, at);
  else
    look_for_gone(group);
}

// ---- sends and receives

static bool fits(const px__sim_visit *receive, int from, int to, uint32_t tag) {
  return receive->seat->rank == to && receive->call->tag == tag &&
         (receive->call->peer < 0 || receive->call->peer == from);
}

static void deliver(px__sim_visit *receive, int from, const char *data, size_t bytes,
                    int64_t time) {
  char text[PX__SIM_WHY / 2];
  receive->peer = from;
  if (bytes != receive->out_bytes) {
    describe(receive, text);
    px__sim_over(receive->seat->group, 0,
                 "rank %d sent %zu bytes, and rank %d, which receives %zu, called %.450s", from,
                 bytes, receive->seat->rank, receive->out_bytes, text);
    end_visit(receive, true);
    return;
  }
  if (bytes) memcpy(receive->out, data, bytes);
  if (receive->stream && receive->stream->now < time) receive->stream->now = time;
  end_visit(receive, false);
  px__sim_schedule_wake();
}

static int64_t arrival(const px__sim_visit *send) {
  return (send->stream ? send->stream->now : 0) + px__sim_link_cost(1, send->in_bytes);
}

static void leave_message(px__sim_visit *send) {
  px__sim_group *group = send->seat->group;
  message **at = &group->messages, *m = malloc(sizeof *m + send->in_bytes);
  if (!m) px__sim_over(group, 0, "rank %d has no memory left", send->seat->rank);
  if (!m) return end_visit(send, true);
  *m = (message){NULL,          send->seat->rank, send->call->peer, send->call->tag,
                 arrival(send), send->in_bytes};
  if (m->bytes) memcpy(m->data, send->in, m->bytes);
  while (*at) at = &(*at)->next;
  *at = m;
  end_visit(send, false);
}

static void send(px__sim_visit *visit) {
  px__sim_visit **at = &visit->seat->group->receives;
  int from = visit->seat->rank;
  while (*at && !fits(*at, from, visit->call->peer, visit->call->tag)) at = &(*at)->next;
  px__sim_visit *receive = *at;
  if (!receive) return leave_message(visit);
  *at = receive->next;
  deliver(receive, from, visit->in, visit->in_bytes, arrival(visit));
  end_visit(visit, false);
}

static void receive(px__sim_visit *visit) {
  px__sim_group *group = visit->seat->group;
  message **at = &group->messages;
  while (*at && !fits(visit, (*at)->from, (*at)->to, (*at)->tag)) at = &(*at)->next;
  message *m = *at;
  if (m) {
    *at = m->next;
    deliver(visit, m->from, m->data, m->bytes, m->time);
    free(m);
    return;
  }
  if (group->over) return end_visit(visit, true);
  px__sim_visit **last = &group->receives;
  while (*last) last = &(*last)->next;
  *last = visit;
  look_for_gone(group);
}

void px__sim_withdraw(px__sim_visit *visit) {
  px__sim_visit **at = &visit->seat->group->receives;
  while (*at && *at != visit) at = &(*at)->next;
  if (*at) *at = visit->next;
}

// ---- coming and waiting

static char *translate(const px__sim_visit *visit, const void *at, size_t bytes, bool *good) {
  intptr_t delta = 0;
  if (visit->stream && bytes)
    *good &= px__sim_reach(visit->stream->device, (uintptr_t)at, bytes, &delta);
  return (char *)((uintptr_t)at + (uintptr_t)delta);
}

// Whether a call writes the memory that it is given back: a root's broadcast, for one, does not.
static bool writes(const px__sim_visit *visit) {
  bool root = visit->call->peer == visit->seat->rank;
  return visit->out_bytes && (visit->call->op != PX_BROADCAST || !root) &&
         (visit->call->op != PX_REDUCE || root);
}

// Takes the input along, and room for the output, which is written when the stream goes on: what
// other work of the rank does meanwhile has the same effect whenever the other ranks come.
static bool hold(px__sim_visit *visit) {
  bool in_place = visit->in == visit->out;
  visit->held = malloc(visit->in_bytes + (in_place ? 0 : visit->out_bytes) + 1);
  if (!visit->held) return false;
  if (visit->in_bytes) memcpy(visit->held, visit->in, visit->in_bytes);
  visit->home = visit->out;
  visit->in = visit->held;
  visit->out = in_place ? visit->held : visit->held + visit->in_bytes;
  return true;
}

static void give_held(px__sim_visit *visit) {
  if (visit->held && !visit->failed && writes(visit))
    memcpy(visit->home, visit->out, visit->out_bytes);
  free(visit->held);
  visit->held = NULL;
}

// False, with the group over, if the rank's device cannot do its part.
static bool locate(px__sim_visit *visit) {
  bool good = true;
  visit->in = translate(visit, visit->call->in, visit->in_bytes, &good);
  visit->out = translate(visit, visit->call->out, visit->out_bytes, &good);
  const px__sim_device *device = visit->stream ? &px__sim.device[visit->stream->device] : NULL;
  const char *why = "its memory is out of reach";
  if (device && device->broken) good = false, why = device->reason;
  if (good && device && px__sim_alone(visit->stream->device) && !hold(visit))
    good = false, why = "the host has no memory left";
  if (!good)
    px__sim_over(visit->seat->group, visit->call->number, "the device of rank %d fails: %.800s",
                 visit->seat->rank, why);
  return good;
}

void px__sim_arrive(px__sim_visit *visit) {
  const px__sim_group *group = visit->seat->group;
  px_collective_op op = visit->call->op;
  visit->come = true;
  if (!locate(visit)) return end_visit(visit, true);
  if (op == PX_RECV) return receive(visit);
  if (group->over && (op == PX_SEND || visit->call->number >= group->end))
    return end_visit(visit, true);
  if (op == PX_SEND) return send(visit);
  join_slot(visit);
}

// The ranks that have not come: "rank 2 has", "ranks 1, 2 have".
static void missing(const px__sim_group *group, const px__sim_slot *slot, char *text, size_t room) {
  int n = 0;
  size_t at = 0;
  char list[256] = "";
  for (int r = 0; r < group->size; r++)
    if (!slot->visits[r] && at < sizeof list)
      at += (size_t)snprintf(list + at, sizeof list - at, "%s%d", n++ ? ", " : "", r);
  snprintf(text, room, "rank%s %s ha%s", n > 1 ? "s" : "", list, n > 1 ? "ve" : "s");
}

void px__sim_late(px__sim_visit *visit) {
  px__sim_group *group = visit->seat->group;
  uint64_t number = visit->call->number;
  px__sim_slot *slot = group->slots;
  char who[300];
  if (visit->over) return;
  if (visit->call->op == PX_RECV) {
    snprintf(who, sizeof who, visit->call->peer < 0 ? "any rank" : "rank %d", visit->call->peer);
    px__sim_over(group, 0, "nothing has come to rank %d from %s in time", visit->seat->rank, who);
    return;
  }
  while (slot && slot->number != number) slot = slot->next;
  if (!slot || !agree(group, slot)) return;  // the last one is at work; or they differ
  missing(group, slot, who, sizeof who);
  px__sim_over(group, number, "%s not called number %llu", who, (unsigned long long)number);
}

void px__sim_visit_stay(px__sim_visit *visit) {
  if (!visit->come) px__sim_arrive(visit);
  if (visit->over) return;
  px__sim_condition(&visit->wake);
  visit->waits = true;
  struct timespec until = {visit->deadline / 1000000000, visit->deadline % 1000000000};
  while (!visit->over)
    if (pthread_cond_timedwait(&visit->wake, &px__sim.lock, &until) && !visit->over) {
      px__sim_late(visit);
      // The last to come is at work, or the device's turn is over: look again soon.
      until.tv_sec++;
    }
  visit->waits = false;
  pthread_cond_destroy(&visit->wake);
}

void px__sim_visit_end(px__sim_visit *visit) {
  char why[PX__SIM_WHY];
  px__sim_reason(visit, why, sizeof why);
  give_held(visit);
  px__sim_unlock();
  visit->ended(visit->argument, visit->peer, visit->failed ? why : NULL);
  px__sim_lock();
}
