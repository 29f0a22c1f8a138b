// SPDX-License-Identifier: Apache-2.0
// Convolutions by cuDNN: choice and execution of plans.
//
// The device's cuDNN lock is held while plans are created and run. Workspace is scratch memory of
// the launch, as for cuBLAS.
#include <stdlib.h>

#include "cuda/host/library/cudnn.h"

static const int64_t ids[] = {1, 2, 3};  // image, weight, result
enum { TRIED = 8, RUNS = 3 };
typedef px__cudnn_entry entry;
static px__cudnn_table table = {.key_bytes = sizeof(px__cudnn_problem)};

_Static_assert(sizeof(px__cudnn_problem) == 8 * (12 + 3 + 8) + 16, "problems have no holes");

// ---- making plans

// Excludes engines with sums below float precision, and rounding of inputs unless allowed by the
// caller.
static uint32_t unwanted_by(const px__cudnn_problem *q) {
  bool half = q->dtype == PX_FLOAT16 || q->dtype == PX_BFLOAT16;
  uint32_t notes = 1u << PX_CUDNN_REDUCED_PRECISION_SUMS;
  if (!half) notes |= 1u << PX_CUDNN_DOWN_CONVERTS_INPUTS;
  if (q->dtype == PX_FLOAT32 && !q->tf32) notes |= 1u << PX_CUDNN_TENSOR_CORE;
  if (q->deterministic) notes |= 1u << PX_CUDNN_NONDETERMINISTIC;
  return notes;
}
static int plans_of(px__cudnn_plan *out, int capacity, void *handle, const px__cudnn_problem *q,
                    int64_t max_workspace) {
  px__cudnn_graph *g = calloc(1, sizeof *g);  // too large for small stacks
  const px__cudnn_tensor *tensors[3];
  if (!g) return 0;
  g->handle = handle;
  for (int i = 0; i < 3; i++) {
    int64_t strides[4];
    (q->last ? px__cudnn_channels_last : px__cudnn_row_major)(strides, q->sizes[i]);
    tensors[i] = px__cudnn_external(g, ids[i], px__cudnn_type(q->dtype), q->sizes[i], strides,
                                    q->alignments[i]);
  }
  px__cudnn_convolution(g, q, tensors);
  px__cudnn_graph_close(g);
  int count = px__cudnn_plans(out, capacity, g, unwanted_by(q), max_workspace);
  px__cudnn_graph_release(g);
  free(g);
  return count;
}
static int run_plan(const px__cudnn_plan *plan, void *handle, void *const data[3],
                    void *workspace) {
  return px__cudnn_plan_run(plan, handle, 3, ids, data, workspace);
}

// ---- choosing

// Measures a few runs, in milliseconds. False if the plan fails. Each run writes the same result.
static bool time_of(const px__cudnn_plan *plan, const px_launch *l, void *handle,
                    void *const data[3], void *workspace, float *out) {
  CUevent start = NULL, end = NULL;
  bool good = !px__cu.cuEventCreate(&start, 0) && !px__cu.cuEventCreate(&end, 0) &&
              !run_plan(plan, handle, data, workspace) && !px__cu.cuEventRecord(start, l->stream);
  for (int i = 0; good && i < RUNS; i++) good = !run_plan(plan, handle, data, workspace);
  good = good && !px__cu.cuEventRecord(end, l->stream) && !px__cu.cuEventSynchronize(end) &&
         !px__cu.cuEventElapsedTime(out, start, end);
  if (start) px__cu.cuEventDestroy(start);
  if (end) px__cu.cuEventDestroy(end);
  return good;
}

// Allocates workspace for as many plans as possible; sets `bytes` to its size.
static void *allocate_workspace(const px_launch *l, const px__cudnn_plan *plans, int count,
                                int64_t *bytes) {
  void *workspace = NULL;
  *bytes = 0;
  for (int i = 0; i < count; i++)
    if (plans[i].workspace > *bytes) *bytes = plans[i].workspace;
  while (*bytes && !(workspace = px__cuda_core->scratch(l, (size_t)*bytes))) *bytes /= 2;
  return workspace;
}

// Times several plans and keeps the fastest in the entry. Blocks until each has run.
static void choose_by_trial(entry *e, const px_launch *l, void *handle, const px__cudnn_problem *q,
                            void *const data[3], int64_t max_workspace) {
  px__cudnn_plan plans[TRIED];
  int count = plans_of(plans, TRIED, handle, q, max_workspace), best = -1;
  int64_t bytes;
  void *workspace = allocate_workspace(l, plans, count, &bytes);
  float best_time = 0, now;
  for (int i = 0; i < count; i++)
    if (plans[i].workspace <= bytes && time_of(&plans[i], l, handle, data, workspace, &now) &&
        (best < 0 || now < best_time))
      best = i, best_time = now;
  for (int i = 0; i < count; i++)
    if (i == best)
      e->plan = plans[i];
    else
      px__cudnn_plan_release(&plans[i]);
}

static void choose(entry *e, const px_launch *l, void *handle, const px__cudnn_problem *q,
                   void *const data[3], int64_t max_workspace) {
  px__cudnn_plan_release(&e->plan);
  if (q->benchmark && !px__cuda_captures(l->stream))  // captures cannot be timed
    choose_by_trial(e, l, handle, q, data, max_workspace);
  else
    plans_of(&e->plan, 1, handle, q, max_workspace);
}

// ---- running

static int64_t alignment_of(const void *at) {
  uintptr_t lowest = (uintptr_t)at & -(uintptr_t)at;
  return lowest && lowest < 16 ? (int64_t)lowest : 16;
}

static void complete_problem(px__cudnn_problem *problem, void *const data[3]) {
  const px_core *core = px__cuda_core;
  problem->tf32 = problem->dtype == PX_FLOAT32 && core->setting(PX_SETTING_CUDNN_TF32);
  problem->deterministic =
      core->setting(PX_SETTING_CUDNN_DETERMINISTIC) || core->setting(PX_SETTING_DETERMINISTIC);
  problem->benchmark = core->setting(PX_SETTING_CUDNN_BENCHMARK);
  for (int i = 0; i < 3; i++) problem->alignments[i] = alignment_of(data[i]);
}

// cuDNN requires nonempty tensors and 32-bit element counts. Asymmetric padding is excluded: a plan
// chosen by benchmarking returned a wrong weight gradient.
static bool is_supported(const px__cudnn_problem *problem) {
  for (int k = 0; k < 2; k++)
    if (problem->pad_before[k] != problem->pad_after[k]) return false;
  for (int i = 0; i < 3; i++) {
    double count = 1;
    for (int k = 0; k < 4; k++) count *= (double)problem->sizes[i][k];
    if (count < 1 || count > INT32_MAX) return false;
  }
  return px__cudnn_has_dtype(problem->dtype);
}

// If a plan's workspace cannot be allocated, falls back to one with less. If there is none, the
// next call retries, as more memory may be free then.
static px_status run(const px_launch *l, entry *e, void *handle, const px__cudnn_problem *q,
                     void *const data[3], bool *done) {
  if (!e->known) choose(e, l, handle, q, data, INT64_MAX);
  e->known = true;
  while (e->plan.plan) {
    int64_t bytes = e->plan.workspace;
    void *workspace = bytes ? px__cuda_core->scratch(l, (size_t)bytes) : NULL;
    if (bytes && !workspace) {
      choose(e, l, handle, q, data, bytes - 1);
      e->known = e->plan.plan != NULL;
      continue;
    }
    int status = run_plan(&e->plan, handle, data, workspace);
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
  if (!is_supported(problem) || !px__cudnn_ready()) return PX_OK;
  complete_problem(problem, data);
  px__cudnn_lock(l->device);
  px_status status = px__cudnn_handle(&handle, l);
  if (status == PX_OK) {
    entry *e = px__cudnn_find(&table, l->device, problem);
    if (e) status = run(l, e, handle, problem, data, done);
  }
  px__cudnn_unlock(l->device);
  return status;
}
