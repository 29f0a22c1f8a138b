// SPDX-License-Identifier: Apache-2.0
// Graphs of the simulated devices: captured tasks, issued again at each replay.
//
// A capture keeps the tasks of its streams in issue order. Each captured stream is a branch of the
// graph. A replay creates a task and new marks for each captured one. Tasks of branch 0 go to the
// launching stream and those of other branches to streams owned by the graph, so unordered work may
// run in any order. Branch 0 forks into the others at the beginning and joins them at the end.
#include "sim/cost_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- captures

// Appends a branch with its device. False if host memory runs out.
static bool branch_add(px__sim_graph *g, int device) {
  int *more = realloc(g->devices, (size_t)(g->branches + 1) * sizeof *more);
  if (!more) return false;
  g->devices = more;
  more[g->branches++] = device;
  return true;
}

px_status px__sim_capture_begin(void *stream) {
  px__sim_stream *s = stream;
  PX__SIM_TRY(px__sim_check(s->device));
  px__sim_graph *g = calloc(1, sizeof *g);
  if (!g || !branch_add(g, s->device)) {
    free(g);
    PX__SIM_FAIL(PX_NOMEM, 0, "no host memory for a graph of a simulated device");
  }
  g->refs = g->owners = 1, g->origin = s;
  px__sim_lock();
  bool captured = s->capture != NULL;
  if (captured)
    px__sim_graph_free(g);
  else
    s->capture = g, s->branch = 0;
  px__sim_unlock();
  return captured ? px__sim_fail(PX__SIM_CAPTURING) : PX_OK;
}

px_status px__sim_join(px__sim_stream *s, const px__sim_mark *mark) {
  if (!mark->captured) return s->capture ? px__sim_fail(PX__SIM_ISOLATION) : PX_OK;
  if (!mark->graph) return px__sim_fail(PX__SIM_CAPTURED);
  if (s->capture && s->capture != mark->graph) return px__sim_fail(PX__SIM_MERGE);
  if (s->capture) return PX_OK;
  if (!branch_add(mark->graph, s->device))
    PX__SIM_FAIL(PX_NOMEM, 0, "no host memory for a branch of a graph");
  s->capture = mark->graph;
  s->branch = mark->graph->branches - 1;
  return PX_OK;
}

// Detaches the graph from its streams and marks; nodes keep only the marks' indices. Lock held.
static void detach(px__sim_graph *g) {
  for (px__sim_stream *s = px__sim.streams; s; s = s->next)
    if (s->capture == g) s->capture = NULL;
  for (px__sim_task *node = g->first; node; node = node->next) {
    px__sim_mark *mark = node->mark;
    if (!mark) continue;
    node->step = mark->step;
    mark->graph = NULL;
    node->mark = NULL;
    px__sim_mark_release(mark);
  }
  g->origin = NULL;
}

// Creates the branches' streams and starts their threads, so that a replay is issued without
// failures in between.
static px_status make_branch_streams(px__sim_graph *g) {
  if (g->branches == 1) return PX_OK;
  g->branch_streams = calloc((size_t)g->branches, sizeof *g->branch_streams);
  if (!g->branch_streams)
    PX__SIM_FAIL(PX_NOMEM, 0, "no host memory for a graph of a simulated device");
  for (int i = 1; i < g->branches; i++) {
    void *side;
    PX__SIM_TRY(px__sim_stream_new(g->devices[i], 0, &side));
    g->branch_streams[i] = side;
    px__sim_lock();
    px_status status = px__sim_start(side);
    px__sim_unlock();
    PX__SIM_TRY(status);
  }
  return PX_OK;
}

static px_status end(px__sim_stream *s, void **out, bool ready) {
  px__sim_lock();
  px__sim_graph *g = s->capture;
  bool begun = g && g->origin == s;
  if (begun) detach(g);
  px__sim_unlock();
  if (out) *out = NULL;
  if (!begun) return px__sim_fail(PX__SIM_UNMATCHED);
  px_status status = out && ready ? make_branch_streams(g) : PX_OK;
  if (out && status == PX_OK)
    *out = g;
  else
    px__sim_graph_release(s->device, g);
  return status;
}

px_status px__sim_capture_end(void *stream, void **out) { return end(stream, out, true); }
px_status px__sim_capture_keep(void *stream, void **out) { return end(stream, out, false); }

px_status px__sim_graph_make(int device, void *kept, void **out) {
  px__sim_graph *g = kept;
  PX__SIM_TRY(px__sim_check(device));
  if (!g->branch_streams) PX__SIM_TRY(make_branch_streams(g));
  px__sim_lock();
  g->refs++, g->owners++;
  px__sim_unlock();
  *out = g;
  return PX_OK;
}

// Prints one node a task with an edge from its predecessor on the branch; waits get an edge from
// their record too.
static void print_nodes(FILE *to, const px__sim_graph *g) {
  static const char *const names[] = {"work", "host call", "record", "wait"};
  int at = 0;
  for (const px__sim_task *node = g->first; node; node = node->next, at++) {
    const char *what =
        node->kind == PX__SIM_TASK_WORK && node->launch ? node->launch->op : names[node->kind];
    fprintf(to, "  n%d [label=\"%s\\nbranch %d\"];\n", at, what, node->branch);
    int other = 0, before = -1;
    for (const px__sim_task *n = g->first; n != node; n = n->next, other++) {
      if (n->branch == node->branch) before = other;
      if (node->kind == PX__SIM_TASK_WAIT && n->kind == PX__SIM_TASK_RECORD &&
          n->step == node->step)
        fprintf(to, "  n%d -> n%d;\n", other, at);
    }
    if (before >= 0) fprintf(to, "  n%d -> n%d;\n", before, at);
  }
}

px_status px__sim_graph_print(int device, void *kept, const char *path) {
  FILE *to = fopen(path, "w");
  if (!to) PX__SIM_FAIL(PX_IO, errno, "%s: %s", path, strerror(errno));
  fprintf(to, "digraph graph_of_device_%d {\n", device);
  print_nodes(to, kept);
  fprintf(to, "}\n");
  bool written = !ferror(to);
  if (fclose(to) || !written) PX__SIM_FAIL(PX_IO, errno, "%s: %s", path, strerror(errno));
  return PX_OK;
}

void px__sim_graph_release(int device, void *graph) {
  px__sim_graph *g = graph;
  px__sim_lock();
  bool last = --g->owners == 0;
  if (!last) px__sim_graph_free(g);
  px__sim_unlock();
  if (!last) return;
  for (int i = 1; g->branch_streams && i < g->branches; i++)
    if (g->branch_streams[i]) px__sim_stream_release(g->devices[i], g->branch_streams[i]);
  px__sim_lock();
  px__sim_graph_free(g);
  px__sim_unlock();
}

// ---- replays

// Tasks of a replay, issued after all were created. Marks: of the records, the fork, and the ends
// of the other branches.
typedef struct replay {
  px__sim_graph *graph;
  px__sim_stream *stream;
  px__sim_task *first, *last;
  px__sim_mark **marks;
  int mark_count;
  bool failed;
} replay;

static void run_node(px__sim_stream *stream, px__sim_task *task) {
  task->node->run(stream, task->node);
}
static bool node_touches(const px__sim_task *task, uintptr_t low, uintptr_t high) {
  return task->node->touches(task->node, low, high);
}

static px__sim_task *add(replay *r, px__sim_kind kind, int branch) {
  px__sim_task *task = px__sim_task_new(kind, 0);
  if (!task) return r->failed = true, NULL;
  task->branch = branch;
  task->host = r->first ? 0 : px__sim_host_cost(NULL);  // a replay has the host cost of one launch
  *(r->last ? &r->last->next : &r->first) = task;
  return r->last = task;
}

static void add_step(replay *r, px__sim_kind kind, int branch, int step) {
  px__sim_task *task = add(r, kind, branch);
  if (task) task->mark = r->marks[step], task->mark->refs++;
}

static void add_node(replay *r, px__sim_task *node) {
  if (node->kind == PX__SIM_TASK_RECORD || node->kind == PX__SIM_TASK_WAIT) {
    add_step(r, node->kind, node->branch, node->step);
    return;
  }
  px__sim_task *task = add(r, node->kind, node->branch);
  if (!task) return;
  task->node = node, task->cost = node->cost;
  task->call = node->call, task->argument = node->argument;
  task->graph = r->graph, r->graph->refs++;
  if (node->run) task->run = run_node, task->touches = node_touches;
}

static void make_marks(replay *r) {
  const px__sim_graph *g = r->graph;
  r->mark_count = g->steps + g->branches;
  r->marks = calloc((size_t)r->mark_count, sizeof *r->marks);
  for (int i = 0; r->marks && i < r->mark_count && !r->failed; i++)
    r->failed = !(r->marks[i] = px__sim_mark_new(1));
  r->failed |= !r->marks;
}

static void make_tasks(replay *r) {
  const px__sim_graph *g = r->graph;
  int fork = g->steps;
  make_marks(r);
  if (r->failed) return;
  if (g->branches > 1) add_step(r, PX__SIM_TASK_RECORD, 0, fork);
  for (int i = 1; i < g->branches; i++) add_step(r, PX__SIM_TASK_WAIT, i, fork);
  for (px__sim_task *node = g->first; node; node = node->next) add_node(r, node);
  for (int i = 1; i < g->branches; i++) {
    add_step(r, PX__SIM_TASK_RECORD, i, fork + i);
    add_step(r, PX__SIM_TASK_WAIT, 0, fork + i);
  }
}

static void drop_tasks(replay *r) {
  while (r->first) {
    px__sim_task *task = r->first;
    r->first = task->next;
    px__sim_task_free(task);
  }
}

static px_status issue(replay *r) {
  px_status status = PX_OK;
  while (r->first && status == PX_OK) {
    px__sim_task *task = r->first;
    r->first = task->next;
    px__sim_stream *s = task->branch ? r->graph->branch_streams[task->branch] : r->stream;
    status = px__sim_issue(s, task, NULL);
  }
  return status;
}

px_status px__sim_graph_launch(void *stream, void *graph) {
  replay r = {.graph = graph, .stream = stream};
  PX__SIM_TRY(px__sim_check(r.stream->device));
  px__sim_lock();
  px_status status = r.stream->capture ? px__sim_fail(PX__SIM_CAPTURING) : PX_OK;
  if (status == PX_OK) status = px__sim_start(r.stream);
  if (status == PX_OK) make_tasks(&r);
  px__sim_unlock();
  if (status == PX_OK && !r.failed) status = issue(&r);
  px__sim_lock();
  drop_tasks(&r);
  for (int i = 0; r.marks && i < r.mark_count; i++) px__sim_mark_release(r.marks[i]);
  px__sim_unlock();
  free(r.marks);
  if (r.failed) PX__SIM_FAIL(PX_NOMEM, 0, "no host memory for a replay of a graph");
  return status;
}
