// SPDX-License-Identifier: Apache-2.0
// Measures the machine parameters of PHLOX_SIM_MACHINE on the first CUDA devices and writes them to
// a file: `calibrate FILE [SIZE]`. SIZE is the matrices' size, 8192 by default. On simulated
// devices with virtual time it reproduces their parameters.
//
// A rate is measured on large work, minus the time of the smallest work. Products use random
// numbers and run for a while: a card at its power limit lowers its clock, and zeros never reach
// the limit. bench/distributed.py measures links between ranks.
#include <math.h>
#include <phlox/phlox.h>
#include <phlox/profile.h>

#include "bench.h"

enum { LAUNCHES = 500, QUEUED = 20, REPEATS = 5, MAX_CALLS = 1000 };
static const double sustained = 0.3;  // seconds

typedef struct job {
  px_tensor *from, *to;
  px_event *begin, *end;
  px_stream *stream, *side;
} job;

static void must(px_status status) {
  if (status == PX_OK) return;
  fprintf(stderr, "calibrate: %s\n", px_error_last()->message);
  exit(1);
}

static double host_seconds(void) {
  int64_t virtual_time;
  if (px_time_host(&virtual_time) == PX_OK) return 1e-9 * (double)virtual_time;
  px_error_clear();
  return bench_seconds();
}

// Returns the minimum device time of one call of fn, in seconds.
static double device_seconds(job *j, void (*fn)(job *), int calls) {
  double minimum = 1e30;
  fn(j);
  for (int r = 0; r < REPEATS; r++) {
    float ms;
    must(px_device_synchronize(0));
    must(px_event_record(j->begin, j->stream));
    for (int i = 0; i < calls; i++) fn(j);
    must(px_event_record(j->end, j->stream));
    must(px_event_synchronize(j->end));
    must(px_event_elapsed(&ms, j->begin, j->end));
    if (1e-3 * (double)ms / calls < minimum) minimum = 1e-3 * (double)ms / calls;
  }
  return minimum;
}

static void negate(job *j) {
  px_tensor *out;
  must(px_neg(&out, j->from));
  px_release(out);
}
static void multiply(job *j) {
  px_tensor *out;
  must(px_mm(&out, j->from, j->from));
  px_release(out);
}
static void convolve(job *j) {
  const int64_t one[] = {1, 1}, none[] = {0, 0};
  px_tensor *out;
  must(px_conv2d(&out, j->from, j->to, NULL, one, 2, none, 2, one, 2, 1));
  px_release(out);
}
// Runs a kernel on the other stream, ordered after this stream and before its next work.
static void round_trip(job *j) {
  must(px_stream_wait_stream(j->side, j->stream));
  must(px_stream_set_current(j->side));
  must(px_neg_(j->to));
  must(px_stream_set_current(j->stream));
  must(px_stream_wait_stream(j->stream, j->side));
}
static void transfer(job *j) { must(px_copy_(j->to, j->from, true)); }

static px_tensor *matrix(int64_t n, px_dtype dtype, px_device device) {
  px_tensor *t;
  must(px_tensor_empty(&t, 2, (int64_t[]){n, n}, dtype, device));
  must(px_zero_(t));
  return t;
}

static px_tensor *image(int64_t n) {
  px_tensor *flat = matrix(n, PX_FLOAT32, px_cuda(0)), *out;
  must(px_reshape(&out, flat, (int64_t[]){1, 1, n, n}, 4));
  px_release(flat);
  return out;
}

static double negated(job *j, int64_t n) {
  j->from = matrix(n, PX_FLOAT32, px_cuda(0));
  double seconds = device_seconds(j, negate, 1);
  px_release(j->from);
  return seconds;
}

static double multiplied(job *j, int64_t n, px_dtype dtype) {
  j->from = matrix(n, dtype, px_cuda(0));
  must(px_normal_(j->from, 0, 1, NULL));
  double once = device_seconds(j, multiply, 1);
  double seconds = device_seconds(j, multiply, (int)fmin(1 + sustained / once, MAX_CALLS));
  px_release(j->from);
  return seconds;
}

static px_tensor *page_locked(int64_t n) {
  px_tensor *plain = matrix(n, PX_FLOAT32, px_cpu()), *pinned;
  must(px_pin_memory(&pinned, plain));
  px_release(plain);
  return pinned;
}

static double transferred(job *j, int64_t n, bool up) {
  px_tensor *host = page_locked(n), *device = matrix(n, PX_FLOAT32, px_cuda(0));
  j->from = up ? host : device, j->to = up ? device : host;
  double seconds = device_seconds(j, transfer, 1);
  px_release(host);
  px_release(device);
  return seconds;
}

static double sent(job *j, int64_t n) {
  j->from = matrix(n, PX_FLOAT32, px_cuda(0)), j->to = matrix(n, PX_FLOAT32, px_cuda(1));
  must(px_device_synchronize(1));
  double seconds = device_seconds(j, transfer, 1);
  px_release(j->from);
  px_release(j->to);
  return seconds;
}

// Returns the host's time per launch, without waiting for the device.
static double issued(job *j, void (*fn)(job *)) {
  double minimum = 1e30;
  for (int r = 0; r < REPEATS; r++) {
    must(px_device_synchronize(0));
    double start = host_seconds();
    for (int i = 0; i < LAUNCHES; i++) fn(j);
    double took = (host_seconds() - start) / LAUNCHES;
    if (took < minimum) minimum = took;
  }
  return minimum;
}

// Returns the device time of the smallest work of a kind in a full queue: it is queued after enough
// other work that all of it is pending before the first one starts.
static double queued(job *j, int64_t n, double issue, px_tensor *small, void (*fn)(job *)) {
  px_tensor *large = matrix(n, PX_FLOAT32, px_cuda(0));
  float ms;
  j->from = large;
  double preceding = 4 * QUEUED * issue / device_seconds(j, negate, 1);
  must(px_device_synchronize(0));
  for (int i = 0; i <= (int)preceding; i++) negate(j);
  j->from = small;
  must(px_event_record(j->begin, j->stream));
  for (int i = 0; i < QUEUED; i++) fn(j);
  must(px_event_record(j->end, j->stream));
  must(px_event_synchronize(j->end));
  must(px_event_elapsed(&ms, j->begin, j->end));
  px_release(large);
  return 1e-3 * (double)ms / QUEUED;
}

// Writes the host's parameters. Returns the time per launch.
static double write_issue(FILE *to, job *j) {
  px_tensor *small = image(8), *filter = image(3);
  j->from = small, j->to = filter;
  double issue = issued(j, negate), convolution = issued(j, convolve);
  px_release(small);
  px_release(filter);
  fprintf(to, "issue_ns = %.0f\n", 1e9 * issue);
  if (convolution > issue) fprintf(to, "plan_ns = %.0f\n", 1e9 * (convolution - issue));
  return issue;
}

// Writes the additional time of a stream wait: a round trip to another stream of the device, with
// one kernel there.
static void write_wait(FILE *to, job *j, int64_t n, double kernel, const char *name, int device) {
  px_stream *current;
  px_tensor *small = matrix(1, PX_FLOAT32, px_cuda(device));
  must(px_stream_current(&current, px_cuda(device)));
  must(px_stream_new(&j->side, px_cuda(device), 0));
  must(px_device_synchronize(device));
  j->to = small;
  double round = queued(j, n, issued(j, round_trip), small, round_trip);
  if (device) must(px_stream_set_current(current));
  fprintf(to, "%s = %.0f\n", name, 1e9 * fmax(0, round - kernel) / 2);
  px_release(j->side);
  px_release(small);
}

static void write_smallest(FILE *to, job *j, int64_t n, double issue) {
  px_tensor *small = matrix(1, PX_FLOAT32, px_cuda(0)), *host = page_locked(1);
  j->to = small;
  double kernel = queued(j, n, issue, small, negate);
  fprintf(to, "kernel_ns = %.0f\n", 1e9 * kernel);
  fprintf(to, "copy_ns = %.0f\n", 1e9 * queued(j, n, issue, host, transfer));
  write_wait(to, j, n, kernel, "wait_ns", 0);
  if (px_device_count(PX_CUDA) > 1) write_wait(to, j, n, kernel, "peer_wait_ns", 1);
  px_release(small);
  px_release(host);
}

static void write_rate(FILE *to, const char *name, double units, double seconds) {
  if (seconds > 0) fprintf(to, "%s = %.4g\n", name, units / seconds);
}

static void write_products(FILE *to, job *j, int64_t n, double smallest) {
  static const struct {
    const char *name;
    px_dtype dtype;
    int tf32;
  } rows[] = {{"float64", PX_FLOAT64, 0},
              {"float32", PX_FLOAT32, 0},
              {"tfloat32", PX_FLOAT32, 1},
              {"float16", PX_FLOAT16, 0},
              {"bfloat16", PX_BFLOAT16, 0}};
  double work = 2.0 * (double)n * (double)n * (double)n;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    px_setting_set(PX_SETTING_MATMUL_TF32, rows[i].tf32);
    write_rate(to, rows[i].name, work, multiplied(j, n, rows[i].dtype) - smallest);
  }
  px_setting_set(PX_SETTING_MATMUL_TF32, 0);
}

static void write_all(FILE *to, job *j, int64_t n) {
  double bytes = 4.0 * (double)n * (double)n;
  double issue = write_issue(to, j), smallest = negated(j, 1), copy = transferred(j, 1, true);
  write_smallest(to, j, n, issue);
  write_rate(to, "memory", 2 * bytes, negated(j, n) - smallest);
  write_rate(to, "to_device", bytes, transferred(j, n, true) - copy);
  write_rate(to, "to_host", bytes, transferred(j, n, false) - copy);
  bool peers = false;
  if (px_device_count(PX_CUDA) > 1) must(px_device_can_access_peer(&peers, 0, 1));
  if (peers) write_rate(to, "peer", bytes, sent(j, n) - sent(j, 1));
  write_products(to, j, n, smallest);
}

int main(int argc, char **argv) {
  job j = {0};
  int64_t n = argc > 2 ? atoi(argv[2]) : 8192;
  FILE *to = argc > 1 && n > 0 ? fopen(argv[1], "w") : NULL;
  px_device_properties p;
  if (!to) return fprintf(stderr, "calibrate FILE [SIZE]: FILE is to be written\n"), 2;
  must(px_device_get_properties(&p, 0));
  must(px_stream_current(&j.stream, px_cuda(0)));
  must(px_event_new(&j.begin, PX_EVENT_TIMING));
  must(px_event_new(&j.end, PX_EVENT_TIMING));
  fprintf(to, "# %s, matrices of %lld\n", p.name, (long long)n);
  write_all(to, &j, n);
  px_release(j.begin);
  px_release(j.end);
  return fclose(to) != 0;
}
