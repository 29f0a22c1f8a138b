// SPDX-License-Identifier: Apache-2.0
// Execution of collectives of a simulated cluster once all ranks have arrived. Data is copied and
// reduced in rank order, so results are identical on each run and at each rank. The cost model
// gives virtual time of ring and tree algorithms.
#include <string.h>

#include "sim/cost_model.h"
#include "sim/rendezvous.h"

enum { PIECE = 2048 };  // bytes reduced at a time: a buffer on the stack

// Shares on each side of a call: one, one for each rank, as given by the counts, or one for each
// rank at the root alone.
enum { ONE = 1, EACH, COUNTS, ROOTS_EACH };
static const struct {
  unsigned char in, out;
  // Cost. Steps: for each other rank, and for each doubling of ranks. Bytes over a link, in shares:
  // for each other rank, whole shares, and shares divided over the ranks.
  unsigned char steps, doublings, each, whole, cut;
} patterns[PX_COLLECTIVE_COUNT] = {
    [PX_BROADCAST] = {ONE, ONE, 0, 1, 0, 1, 0},
    [PX_ALL_REDUCE] = {ONE, ONE, 2, 0, 0, 0, 2},
    [PX_REDUCE] = {ONE, ONE, 0, 1, 0, 1, 0},
    [PX_ALL_GATHER] = {ONE, EACH, 1, 0, 1, 0, 0},
    [PX_REDUCE_SCATTER] = {EACH, ONE, 1, 0, 1},
    [PX_ALL_TO_ALL] = {COUNTS, COUNTS, 1},
    [PX_GATHER] = {ONE, ROOTS_EACH, 1, 0, 1},
    [PX_SCATTER] = {ROOTS_EACH, ONE, 1, 0, 1},
    [PX_BARRIER] = {0, 0, 0, 2},
    [PX_SEND] = {ONE, 0, 0, 0, 0, 1},
    [PX_RECV] = {0, ONE},
};

static int64_t sum(const int64_t *counts, int n) {
  int64_t all = 0;
  for (int i = 0; i < n; i++) all += counts[i];
  return all;
}

size_t px__sim_side(const px_engine_call *call, int size, int rank, bool out) {
  int kind = out ? patterns[call->op].out : patterns[call->op].in;
  if (!kind || (kind == ROOTS_EACH && call->peer != rank)) return 0;
  int64_t count = kind == COUNTS ? sum(out ? call->out_counts : call->in_counts, size)
                  : kind == ONE  ? call->count
                                 : call->count * size;
  return (size_t)count * call->item;
}

// ---- time

// Groups larger than a node communicate over the network.
static int64_t link_cost(int ranks, int steps, double bytes) {
  double latency = (double)px__sim.latency, bandwidth = (double)px__sim.bandwidth;
  double network = px__sim_figure(PX__SIM_network), network_ns = px__sim_figure(PX__SIM_network_ns);
  if (ranks > (int)px__sim_figure(PX__SIM_node)) {
    if (network > 0 && network < bandwidth) bandwidth = network;
    if (network_ns > latency) latency = network_ns;
  }
  return (int64_t)(steps * latency) + (int64_t)(bytes * 1e9 / bandwidth);
}

int64_t px__sim_link_cost(int steps, size_t bytes) { return link_cost(2, steps, (double)bytes); }

// The machine's `ranks` parameter may raise the number of ranks modelled.
int64_t px__sim_exchange_cost(px__sim_participant *const *participants, int size) {
  const px_engine_call *call = participants[0]->call;
  int op = call->op, ranks = (int)px__sim_figure(PX__SIM_ranks), doublings = 0;
  if (ranks < size) ranks = size;
  double share = (double)call->count * (double)call->item, max_bytes = 0, others = ranks - 1;
  while (1 << doublings < ranks) doublings++;
  for (int r = 0; r < size && op == PX_ALL_TO_ALL; r++)
    if ((double)participants[r]->in_bytes > max_bytes)
      max_bytes = (double)participants[r]->in_bytes;
  double bytes = max_bytes + share * (patterns[op].each * others + patterns[op].whole) +
                 share * patterns[op].cut * others / ranks;
  int steps = patterns[op].steps * (ranks - 1) + patterns[op].doublings * doublings;
  int64_t ring = link_cost(ranks, steps, bytes);
  int64_t tree = link_cost(ranks, 2 * doublings, 2 * share);
  return op == PX_ALL_REDUCE && tree < ring ? tree : ring;
}

// ---- bytes

// Reduces `n` elements at byte offset `at` of all ranks' inputs.
static void reduce_piece(px__sim_participant *const *participants, int size, size_t at, size_t n,
                         void *out, const px_engine_call *of) {
  memcpy(out, participants[0]->in + at, n * of->item);
  for (int r = 1; r < size; r++) of->reduce(out, out, participants[r]->in + at, n);
  if (of->finish) of->finish(of, out, (int64_t)n);
}

// Reduces the share at byte offset `from` of the inputs into the outputs of ranks [low, high).
static void reduce_share(px__sim_participant *const *participants, int size, size_t from, int low,
                         int high) {
  const px_engine_call *of = participants[low]->call;
  _Alignas(64) char piece[PIECE];
  size_t bytes = (size_t)of->count * of->item, step = PIECE / of->item * of->item;
  for (size_t at = 0; at < bytes; at += step) {
    size_t part = bytes - at < step ? bytes - at : step;
    reduce_piece(participants, size, from + at, part / of->item, piece, of);
    for (int r = low; r < high; r++) memcpy(participants[r]->out + at, piece, part);
  }
}

static void copy(char *to, const char *from, size_t bytes) {
  if (bytes && to != from) memmove(to, from, bytes);
}

// Copies each rank's part for rank `to` into its output.
static void collect(px__sim_participant *const *participants, int size, int to) {
  const px_engine_call *mine = participants[to]->call;
  size_t at = 0;
  for (int r = 0; r < size; r++) {
    const px_engine_call *theirs = participants[r]->call;
    size_t bytes = (size_t)mine->out_counts[r] * mine->item;
    copy(participants[to]->out + at,
         participants[r]->in + (size_t)sum(theirs->in_counts, to) * theirs->item, bytes);
    at += bytes;
  }
}

static void gather(px__sim_participant *const *participants, int size, int to) {
  size_t share = (size_t)participants[to]->call->count * participants[to]->call->item;
  for (int r = 0; r < size; r++)
    copy(participants[to]->out + (size_t)r * share, participants[r]->in, share);
}

void px__sim_exchange(px__sim_participant *const *participants, int size) {
  const px_engine_call *call = participants[0]->call;
  size_t share = (size_t)call->count * call->item;
  int root = call->peer;
  if (call->op == PX_ALL_REDUCE) reduce_share(participants, size, 0, 0, size);
  if (call->op == PX_REDUCE) reduce_share(participants, size, 0, root, root + 1);
  if (call->op == PX_GATHER) gather(participants, size, root);
  for (int r = 0; r < size; r++) {
    if (call->op == PX_BROADCAST) copy(participants[r]->out, participants[root]->in, share);
    if (call->op == PX_SCATTER)
      copy(participants[r]->out, participants[root]->in + (size_t)r * share, share);
    if (call->op == PX_ALL_GATHER) gather(participants, size, r);
    if (call->op == PX_ALL_TO_ALL) collect(participants, size, r);
    if (call->op == PX_REDUCE_SCATTER)
      reduce_share(participants, size, (size_t)r * share, r, r + 1);
  }
}
