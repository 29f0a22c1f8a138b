// SPDX-License-Identifier: Apache-2.0
// Time per call from C: a small op, views, a tensor, a layer, and a layer with its gradient. Runs
// on the CPU, or with `call cuda` on the first CUDA device, with one synchronization after many
// calls. Prints lines "name value unit". To add a benchmark, add a row to `rows`.
#include <phlox/phlox.h>

#include <string.h>

#include "bench.h"

typedef struct fixture {
  px_device device;
  px_tensor *a, *b, *matrix, *input;
  px_module *linear;
  px_graph *graph;  // CUDA only
} fixture;

static void must(px_status status) {
  if (status == PX_OK) return;
  fprintf(stderr, "%s\n", px_error_last()->message);
  exit(1);
}

static void add(void *context) {
  fixture *s = context;
  px_tensor *out;
  must(px_add(&out, s->a, s->b, px_int(1)));
  px_release(out);
}

static void select_row(void *context) {
  px_tensor *out;
  must(px_select(&out, ((fixture *)context)->matrix, 0, 0));
  px_release(out);
}

static void narrow(void *context) {
  px_tensor *out;
  must(px_narrow(&out, ((fixture *)context)->matrix, 0, 1, 2));
  px_release(out);
}

static void empty(void *context) {
  px_tensor *out;
  must(px_tensor_empty(&out, 1, (int64_t[]){4}, PX_FLOAT32, ((fixture *)context)->device));
  px_release(out);
}

static void forward(void *context) {
  fixture *s = context;
  px_tensor *out;
  must(px_module_call(&out, s->linear, s->input));
  px_release(out);
}

static void forward_unrecorded(void *context) {
  px_grad_set_enabled(false);
  forward(context);
  px_grad_set_enabled(true);
}

static void backward(void *context) {
  fixture *s = context;
  px_tensor *out, *sum;
  must(px_module_call(&out, s->linear, s->input));
  must(px_sum(&sum, out, NULL, 0, false, PX_DTYPE_NONE));
  must(px_backward(1, &sum, NULL, false, false));
  px_release(sum);
  px_release(out);
}

static void replay(void *context) { must(px_graph_replay(((fixture *)context)->graph)); }

// Captures an addition in a graph. CUDA only.
static void capture(fixture *s) {
  px_stream *stream, *home;
  px_tensor *out;
  must(px_stream_new(&stream, s->device, 0));
  must(px_stream_default(&home, s->device));
  must(px_device_synchronize(0));
  must(px_stream_set_current(stream));
  must(px_graph_new(&s->graph));
  must(px_graph_begin(s->graph, (px_graph_pool){0}, PX_CAPTURE_GLOBAL));
  must(px_add(&out, s->a, s->b, px_int(1)));
  must(px_graph_end(s->graph));
  must(px_stream_set_current(home));
  px_release(out);
  px_release(stream);
}

static const struct {
  const char *name;
  void (*fn)(void *context);
} rows[] = {{"add of 4 floats", add},
            {"view: select", select_row},
            {"view: narrow", narrow},
            {"tensor: empty and release", empty},
            {"Linear 16x16 forward", forward},
            {"Linear 16x16 forward, no grad", forward_unrecorded},
            {"Linear 16x16 forward+backward", backward}};

static void finish(void *context) {
  if (((fixture *)context)->device.type == PX_CUDA) must(px_device_synchronize(0));
}

static void set_up(fixture *s) {
  must(px_ones(&s->a, (int64_t[]){4}, 1, PX_FLOAT32, s->device, false, false));
  must(px_ones(&s->b, (int64_t[]){4}, 1, PX_FLOAT32, s->device, false, false));
  must(px_ones(&s->matrix, (int64_t[]){4, 4}, 2, PX_FLOAT32, s->device, false, false));
  must(px_ones(&s->input, (int64_t[]){16, 16}, 2, PX_FLOAT32, s->device, false, false));
  must(px_linear_new(&s->linear, 16, 16));
  must(px_module_to(s->linear, PX_DTYPE_NONE, s->device, false));
}

// Returns the minimum seconds of an addition, with a profile per round or without.
static double profiled_add(fixture *s, bool on) {
  enum { CALLS = 2000, ROUNDS = 100 };
  double minimum = 1e30;
  for (int r = 0; r < ROUNDS; r++) {
    px_profile *profile = NULL;
    if (on) must(px_profile_start(&(px_profile_options){.host = true}));
    double start = bench_seconds();
    for (int i = 0; i < CALLS; i++) add(s);
    double took = (bench_seconds() - start) / CALLS;
    finish(s);
    if (on) must(px_profile_stop(&profile));
    px_profile_free(profile);
    if (took < minimum) minimum = took;
  }
  return minimum;
}

int main(int argc, char **argv) {
  fixture s = {.device = argc > 1 && !strcmp(argv[1], "cuda") ? px_cuda(0) : px_cpu()};
  set_up(&s);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    printf("%s %.1f ns\n", rows[i].name,
           1e9 * bench_min_seconds(rows[i].fn, finish, &s, 2000, 100));
  double off = profiled_add(&s, false), on = profiled_add(&s, true);
  printf("what a profile adds to an op %.1f ns\n", 1e9 * (on - off));
  if (s.device.type == PX_CUDA) {
    capture(&s);
    printf("replay of a graph of one add %.1f ns\n",
           1e9 * bench_min_seconds(replay, finish, &s, 2000, 100));
    px_release(s.graph);
  }
  px_release(s.a), px_release(s.b), px_release(s.matrix), px_release(s.input);
  px_release(s.linear);
  return 0;
}
