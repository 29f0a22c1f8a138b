// SPDX-License-Identifier: Apache-2.0
// Convolutions by cuDNN: which plan, and running it.
//
// Making a plan takes milliseconds, so plans are kept, by everything that they depend on, in a
// table of each device. The device's cuDNN lock guards it and is held while the library is called.
// The memory that a plan works in is scratch memory of the launch, like that of cuBLAS.
#include "cuda/host/cudnn.h"

#include <stdlib.h>
#include <string.h>

typedef struct entry {
  px__cudnn_problem problem;
  px__cudnn_plan plan;  // without parts: there is none for the problem
  bool known;
} entry;
enum { ENTRIES = 1024, NEIGHBOURS = 8, TRIED = 8, RUNS = 3 };
static entry *tables[PX__CUDA_DEVICES];  // guarded by the device's lock

_Static_assert(sizeof(px__cudnn_problem) == 8 * (12 + 3 + 8) + 16, "problems have no holes");

// ---- choosing

// The time of a few runs, in milliseconds; false where the plan does not run. The result is
// written by each of them, and each writes the same.
static bool time_of(const px__cudnn_plan *plan, const px_launch *l, void *handle,
                    void *const data[3], void *room, float *out) {
  CUevent start = NULL, end = NULL;
  bool good = !px__cu.cuEventCreate(&start, 0) && !px__cu.cuEventCreate(&end, 0) &&
              !px__cudnn_plan_run(plan, handle, data, room) &&
              !px__cu.cuEventRecord(start, l->stream);
  for (int i = 0; good && i < RUNS; i++) good = !px__cudnn_plan_run(plan, handle, data, room);
  good = good && !px__cu.cuEventRecord(end, l->stream) && !px__cu.cuEventSynchronize(end) &&
         !px__cu.cuEventElapsedTime(out, start, end);
  if (start) px__cu.cuEventDestroy(start);
  if (end) px__cu.cuEventDestroy(end);
  return good;
}

// Memory for as many of the plans as can be; `bytes` becomes its size.
static void *room_for(const px_launch *l, const px__cudnn_plan *plans, int count, int64_t *bytes) {
  void *room = NULL;
  *bytes = 0;
  for (int i = 0; i < count; i++)
    if (plans[i].workspace > *bytes) *bytes = plans[i].workspace;
  while (*bytes && !(room = px__cuda_core->scratch(l, (size_t)*bytes))) *bytes /= 2;
  return room;
}

// The fastest of several plans becomes the entry's; waits for each of them.
static void choose_by_trial(entry *e, const px_launch *l, void *handle, void *const data[3],
                            int64_t most) {
  px__cudnn_plan plans[TRIED];
  int count = px__cudnn_plans(plans, TRIED, handle, &e->problem, most), best = -1;
  int64_t bytes;
  void *room = room_for(l, plans, count, &bytes);
  float least = 0, now;
  for (int i = 0; i < count; i++)
    if (plans[i].workspace <= bytes && time_of(&plans[i], l, handle, data, room, &now) &&
        (best < 0 || now < least))
      best = i, least = now;
  for (int i = 0; i < count; i++)
    if (i == best)
      e->plan = plans[i];
    else
      px__cudnn_plan_release(&plans[i]);
}

static void choose(entry *e, const px_launch *l, void *handle, void *const data[3], int64_t most) {
  px__cudnn_plan_release(&e->plan);
  if (e->problem.benchmark && !px__cuda_captures(l->stream))  // where nothing can be timed
    choose_by_trial(e, l, handle, data, most);
  else
    px__cudnn_plans(&e->plan, 1, handle, &e->problem, most);
}

// ---- the table

static uint64_t hash_of(const px__cudnn_problem *problem) {
  uint64_t words[sizeof *problem / 8], hash = 14695981039346656037u;
  memcpy(words, problem, sizeof words);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    hash = (hash ^ words[i]) * 1099511628211u, hash ^= hash >> 29;
  return hash;
}

// The entry of the problem, known or to be filled in; NULL where there is no memory for a table.
static entry *entry_of(int device, const px__cudnn_problem *problem) {
  entry **table = &tables[device], *spare = NULL;
  if (!*table) *table = calloc(ENTRIES, sizeof **table);
  if (!*table) return NULL;
  uint64_t hash = hash_of(problem);
  for (unsigned i = 0; i < NEIGHBOURS; i++) {
    entry *e = &(*table)[(hash + i) % ENTRIES];
    if (e->known && !memcmp(&e->problem, problem, sizeof *problem)) return e;
    if (!e->known && !spare) spare = e;
  }
  if (!spare) spare = &(*table)[(hash + (hash >> 32) % NEIGHBOURS) % ENTRIES];
  px__cudnn_plan_release(&spare->plan);
  *spare = (entry){.problem = *problem};
  return spare;
}

// ---- running

static int64_t alignment_of(const void *at) {
  uintptr_t lowest = (uintptr_t)at & -(uintptr_t)at;
  return lowest && lowest < 16 ? (int64_t)lowest : 16;
}

static void complete(px__cudnn_problem *problem, void *const data[3]) {
  const px_core *core = px__cuda_core;
  problem->tf32 = problem->dtype == PX_FLOAT32 && core->setting(PX_SETTING_CUDNN_TF32);
  problem->deterministic =
      core->setting(PX_SETTING_CUDNN_DETERMINISTIC) || core->setting(PX_SETTING_DETERMINISTIC);
  problem->benchmark = core->setting(PX_SETTING_CUDNN_BENCHMARK);
  for (int i = 0; i < 3; i++) problem->alignments[i] = alignment_of(data[i]);
}

// cuDNN wants elements, and counts them in 32 bits. Of padding that differs at the two ends not all
// its plans are right: one that a trial chose gave another gradient of the weight.
static bool fits(const px__cudnn_problem *problem) {
  for (int k = 0; k < 2; k++)
    if (problem->before[k] != problem->behind[k]) return false;
  for (int i = 0; i < 3; i++) {
    double count = 1;
    for (int k = 0; k < 4; k++) count *= (double)problem->sizes[i][k];
    if (count < 1 || count > INT32_MAX) return false;
  }
  return px__cudnn_has_dtype(problem->dtype);
}

// If there is no memory for a plan, one that needs less takes its place. If there is no such plan,
// the next call tries again: there may be more memory then.
static px_status run(const px_launch *l, entry *e, void *handle, void *const data[3], bool *done) {
  if (!e->known) choose(e, l, handle, data, INT64_MAX);
  e->known = true;
  while (e->plan.plan) {
    int64_t bytes = e->plan.workspace;
    void *room = bytes ? px__cuda_core->scratch(l, (size_t)bytes) : NULL;
    if (bytes && !room) {
      choose(e, l, handle, data, bytes - 1);
      e->known = e->plan.plan != NULL;
      continue;
    }
    int status = px__cudnn_plan_run(&e->plan, handle, data, room);
    if (status) return px__cudnn_error(status, "cudnnBackendExecute");
    *done = true;
    return PX_OK;
  }
  return PX_OK;
}

px_status px__cudnn_convolve(const px_launch *l, px__cudnn_problem *problem, void *const data[3],
                             bool *done) {
  void *handle;
  *done = false;
  if (!fits(problem) || !px__cudnn_ready()) return PX_OK;
  complete(problem, data);
  px__cudnn_lock(l->device);
  px_status status = px__cudnn_handle(&handle, l);
  if (status == PX_OK) {
    entry *e = entry_of(l->device, problem);
    if (e) status = run(l, e, handle, data, done);
  }
  px__cudnn_unlock(l->device);
  return status;
}
