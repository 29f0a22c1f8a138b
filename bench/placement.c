// SPDX-License-Identifier: Apache-2.0
// Offline placement: checks if a nearly full device could have served all requests. The traces are
// those of `heap near` on one stream; the placement knows the lifetime of each block.
//
// placement [TRACES [TRIES]]: each block gets the address that holds pages (2 MiB) for the shortest
// additional time. After a failed request, earlier requests are placed placed_again with random
// noise, up to TRIES times. A trace counts as placed if all requests fit; the others remain
// undecided. The address range is four times the number of pages, as in the library.
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  PAGE = 4096,
  PAGES = 32,
  RANGE = 4 * PAGES * PAGE,
  REQUESTS = 2200,
  LIVE = 1024,
  MAX_BACK = 700
};
#define MAX_LOAD 0.8  // maximum load; sizes are in units of 512 bytes

typedef struct block {
  int at, size, end;  // end: the index of the request that frees it
} block;
// The live blocks before a request, sorted by address.
typedef struct state {
  block blocks[LIVE];
  int count, touched;
  int held[4 * PAGES],
      end[4 * PAGES];  // per page: number of blocks touching it, and their latest end
} state;

static int sizes[REQUESTS], ends[REQUESTS];
static state states[REQUESTS + 1], saved[MAX_BACK];
static unsigned seed;
static double noise;

static double uniform(void) { return rand_r(&seed) / ((double)RAND_MAX + 1); }

static void make_trace(unsigned number) {
  int live[LIVE], count = 0;
  int64_t held = 0;
  seed = number;
  for (int r = 0; r < REQUESTS; r++) {
    sizes[r] = ((int)exp2(8 + 14.58 * uniform()) + 511) / 512, ends[r] = REQUESTS;
    while (count && (double)(held + sizes[r]) > MAX_LOAD * PAGES * PAGE) {
      int i = (int)(uniform() * count);
      held -= sizes[live[i]], ends[live[i]] = r, live[i] = live[--count];
    }
    live[count++] = r, held += sizes[r];
  }
}

// ---- placement
// Returns the cost of an address: the additional time that pages are held, plus a small cost for
// fragments left free on both sides. Negative if the page limit is exceeded.
static double cost_of(const state *s, int low, int high, int at, int size, int end, int now) {
  int first = at / PAGE, last = (at + size - 1) / PAGE, added = 0;
  int begin = first * PAGE, limit = (last + 1) * PAGE;
  double cost = 0;
  for (int p = first; p <= last; p++) {
    added += !s->held[p];
    if (!s->held[p] || end > s->end[p]) cost += end - (s->held[p] ? s->end[p] : now);
  }
  int left = at - (begin > low ? begin : low) + (limit < high ? limit : high) - at - size;
  cost += 0.02 * (end - now) * left / PAGE;
  if (noise > 0) cost = (cost + 1) * exp(noise * (2 * uniform() - 1));
  return s->touched + added <= PAGES ? cost : -1;
}

// Returns the address with minimum cost; -1 if there is none.
static int find_address(const state *s, int size, int end, int now) {
  double best_cost = INFINITY;
  int best = -1;
  for (int i = 0, low = 0; i <= s->count; i++) {
    int high = i < s->count ? s->blocks[i].at : RANGE;
    int candidates[] = {low, high - size, (low + PAGE - 1) / PAGE * PAGE,
                        high / PAGE * PAGE - size};
    for (int j = 0; j < 4 && high - low >= size; j++) {
      if (candidates[j] < low || candidates[j] > high - size) continue;
      double cost = cost_of(s, low, high, candidates[j], size, end, now);
      if (cost >= 0 && cost < best_cost) best_cost = cost, best = candidates[j];
    }
    if (i < s->count) low = s->blocks[i].at + s->blocks[i].size;
  }
  return best;
}

static void hold(state *s, const block *b, int by) {
  for (int p = b->at / PAGE; p <= (b->at + b->size - 1) / PAGE; p++) {
    if (by > 0 && (!s->held[p] || b->end > s->end[p])) s->end[p] = b->end;
    s->touched += by > 0 ? !s->held[p] : -(s->held[p] == 1);
    s->held[p] += by;
  }
}

static void end_blocks(state *s, int now) {
  int count = s->count;
  s->count = 0;
  for (int i = 0; i < count; i++) {
    if (s->blocks[i].end > now)
      s->blocks[s->count++] = s->blocks[i];
    else
      hold(s, &s->blocks[i], -1);
  }
}

// Places the requests from `r` up to `until`. Returns the first one that fails, or `until`.
static int place_from(int r, int until) {
  for (; r < until; r++) {
    state *s = &states[r + 1];
    *s = states[r];
    end_blocks(s, r);
    block b = {find_address(s, sizes[r], ends[r], r), sizes[r], ends[r]};
    if (b.at < 0) return r;
    int i = s->count++;
    for (; i && s->blocks[i - 1].at > b.at; i--) s->blocks[i] = s->blocks[i - 1];
    s->blocks[i] = b;
    hold(s, &b, 1);
  }
  return r;
}

// Places some requests before `failed` placed_again. Returns true if `failed` fits now; otherwise
// the state is restored.
static bool place_again(int failed, int back) {
  int from = failed - 1 - (int)(back * uniform());
  if (from < 0) from = 0;
  size_t bytes = (size_t)(failed - from + 1) * sizeof *states;
  memcpy(saved, &states[from], bytes);
  noise = 0.1 + 0.5 * uniform();
  bool placed = place_from(from, failed + 1) > failed;
  if (!placed) memcpy(&states[from], saved, bytes);
  noise = 0;
  return placed;
}

int main(int argc, char **argv) {
  int traces = argc > 1 ? atoi(argv[1]) : 100, max_tries = argc > 2 ? atoi(argv[2]) : 3000;
  int placed_again = 0, undecided = 0;
  for (int trace = 0; trace < traces; trace++) {
    make_trace((unsigned)trace + 1);
    int failed = place_from(0, REQUESTS), back = 20;
    placed_again += failed < REQUESTS;
    for (int tries = 0; failed < REQUESTS && tries < max_tries; tries++) {
      bool placed = place_again(failed, back);
      if (placed) failed = place_from(failed + 1, REQUESTS);
      back = placed ? 20 : tries % 40 == 39 && 2 * back < MAX_BACK ? 2 * back : back;
    }
    undecided += failed < REQUESTS;
  }
  printf("%d traces of %d requests: %d placed, of which %d again; of %d not all is placed\n",
         traces, REQUESTS, traces - undecided, placed_again - undecided, undecided);
  return 0;
}
