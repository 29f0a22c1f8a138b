// SPDX-License-Identifier: Apache-2.0
// Mode `schedule` of the devices of a simulated cluster. Each rank's device has an order of its
// own, which follows from the seed and from what its host thread does, however the threads of other
// ranks run: so a program that is wrong is wrong in the same way each time.
//
// A device's tasks run only while a host thread waits or polls for it. A collective that has not
// ended stays among the streams to choose from; if it is chosen, the device stands still until it
// ends, whenever that is. Only when all devices stand still, and all hosts wait, it is passed over
// until nothing else is left to do. The same happens when nothing was issued for PATIENCE, since a
// host may wait for what is not known here.
#include "sim/rendezvous.h"

#define PATIENCE 2000000000ll  // nanoseconds of real time

typedef struct turn {
  bool alone;
  uint64_t random;
  px__sim_stream *still;  // whose collective the device stands still for
  int polls;              // of the host, for one task each
  int64_t host;           // its virtual clock
} turn;
static turn turns[PX__SIM_DEVICES];
static int alone;  // how many
static int64_t last_word;

bool px__sim_alone(int device) { return turns[device].alone; }

void px__sim_cluster(int ranks) {
  px__sim_lock();
  alone = px__sim.schedule ? ranks : 0;
  last_word = px__sim_clock();
  for (int d = 0; d < PX__SIM_DEVICES; d++)
    turns[d] = (turn){.alone = d < alone, .random = px__sim.seed * 1000003u + (uint64_t)d};
  px__sim_schedule_wake();
  px__sim_unlock();
}

int64_t px__sim_turn_issue(int device, int64_t cost) {
  last_word = px__sim_clock();
  turns[device].host += cost;
  return turns[device].host - cost;
}

void px__sim_turn_meet(int device, int64_t time) {
  if (turns[device].host < time) turns[device].host = time;
}

// ---- what may run

static bool waits_for(const px__sim_waiter *w, int device) {
  bool any = !w->mark && !w->stream && w->device < 0;  // for who uses memory of the host
  return any || w->device == device || (w->stream && w->stream->device == device) ||
         (w->mark && w->mark->device == device);
}

static bool is_asked(int device) {
  if (turns[device].polls) return true;
  for (const px__sim_waiter *w = px__sim.waiters; w; w = w->next)
    if (waits_for(w, device)) return true;
  return false;
}

static px__sim_visit *visit_of(const px__sim_stream *s) {
  return s->head && s->head->kind == PX__SIM_TASK_VISIT ? s->head->visit : NULL;
}

// Whether the stream may be chosen, among those of its device that are or are not passed over.
static bool is_open(const px__sim_stream *s, int device, bool passed) {
  const px__sim_task *task = s->head;
  const px__sim_visit *visit = visit_of(s);
  if (s->device != device || !task || task->away) return false;
  if (task->kind == PX__SIM_TASK_WAIT && !task->mark->done) return false;
  return (visit && visit->passed) == passed;
}

static int count_open(int device, bool passed, bool starved) {
  int count = 0;
  for (const px__sim_stream *s = px__sim.streams; s; s = s->next)
    count += is_open(s, device, passed) && (s->number == px__sim.starve) == starved;
  return count;
}

static px__sim_stream *choose_of(int device, bool passed) {
  bool starved = count_open(device, passed, false) == 0;
  int count = count_open(device, passed, starved);
  if (!count) return NULL;
  int left = (int)(px__sim_random(&turns[device].random) % (uint64_t)count);
  px__sim_stream *s = px__sim.streams;
  while (!is_open(s, device, passed) || (s->number == px__sim.starve) != starved || left--)
    s = s->next;
  return s;
}

// What runs next on a device; NULL if it has nothing to do, or stands still.
static px__sim_stream *next_of(int device) {
  px__sim_stream *s = turns[device].still;
  if (!s) s = choose_of(device, false);
  if (!s) s = choose_of(device, true);
  px__sim_visit *visit = s ? visit_of(s) : NULL;
  bool stands = visit && visit->come && !visit->over;
  if (visit) visit->passed = false;
  turns[device].still = stands ? s : NULL;
  return stands ? NULL : s;
}

px__sim_stream *px__sim_turn_next(void) {
  bool all = alone && px__sim_clock() >= last_word + PATIENCE;
  for (int d = 0; d < alone; d++) {
    px__sim_stream *s = all || is_asked(d) ? next_of(d) : NULL;
    if (s) return s;
  }
  return NULL;
}

// ---- when nothing runs

// Lets a device go on that stands still, if there is something else for it to do.
static bool pass_over(int device) {
  px__sim_stream *still = turns[device].still;
  if (!still) return false;
  visit_of(still)->passed = true;
  bool other = count_open(device, false, false) + count_open(device, false, true) > 0;
  for (px__sim_stream *s = px__sim.streams; s && !other; s = s->next)
    if (is_open(s, device, true) && visit_of(s)->over) {
      visit_of(s)->passed = false;
      other = true;
    }
  if (other) turns[device].still = NULL;
  if (!other) visit_of(still)->passed = false;
  return other;
}

bool px__sim_turn_settle(void) {
  bool waits = px__sim_clock() < last_word + PATIENCE, moved = false;
  for (int d = 0; d < alone && waits; d++)
    if (!is_asked(d)) return false;
  for (int d = 0; d < alone; d++) moved |= pass_over(d);
  for (int d = 0; d < alone && !moved; d++) turns[d].polls = 0;
  return moved;
}

int64_t px__sim_turn_patience(void) {
  int64_t end = last_word + PATIENCE;
  return alone && px__sim_clock() < end ? end : 0;
}

bool px__sim_turn_poll(int device, int change) {
  turns[device].polls += change;
  if (turns[device].polls < 0) turns[device].polls = 0;
  return turns[device].polls > 0;
}
