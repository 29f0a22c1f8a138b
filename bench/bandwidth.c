// SPDX-License-Identifier: Apache-2.0
// Lower bounds of memory-bound kernels: the bandwidth of a plain copy, read and in-place update on
// the given number of threads. Prints lines "copy N GB/s". Reads and writes both count.
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "bench.h"

enum { BYTES = 64 << 20, MAX_THREADS = 64 };
typedef struct task {
  char *from, *to;
  size_t bytes;
  uint64_t sum;
} task;
typedef struct job {
  void *(*fn)(void *task);
  task tasks[MAX_THREADS];
  int count;
} job;

static void *copy(void *task_) {
  task *t = task_;
  memcpy(t->to, t->from, t->bytes);
  return NULL;
}

static void *read_all(void *task_) {
  task *t = task_;
  const uint64_t *at = (const uint64_t *)(const void *)t->from;
  uint64_t sum[8] = {0};
  for (size_t i = 0; i < t->bytes / 8; i += 8)
    for (int k = 0; k < 8; k++) sum[k] += at[i + (size_t)k];
  for (int k = 0; k < 8; k++) t->sum += sum[k];
  return NULL;
}

static void *update(void *task_) {
  task *t = task_;
  float *at = (float *)(void *)t->to;
  for (size_t i = 0; i < t->bytes / sizeof *at; i++) at[i] *= 0.5f;
  return NULL;
}

static void run_threads(void *context) {
  job *j = context;
  pthread_t threads[MAX_THREADS];
  for (int i = 1; i < j->count; i++) pthread_create(&threads[i], NULL, j->fn, &j->tasks[i]);
  j->fn(&j->tasks[0]);
  for (int i = 1; i < j->count; i++) pthread_join(threads[i], NULL);
}

int main(int argc, char **argv) {
  job j = {.count = argc > 1 ? atoi(argv[1]) : 1};
  if (j.count < 1 || j.count > MAX_THREADS) j.count = 1;
  char *from = malloc(BYTES), *to = malloc(BYTES);
  if (!from || !to) return 1;
  memset(from, 1, BYTES), memset(to, 2, BYTES);
  size_t part = (size_t)BYTES / (size_t)j.count / 64 * 64;
  for (int i = 0; i < j.count; i++)
    j.tasks[i] = (task){from + (size_t)i * part, to + (size_t)i * part, part, 0};
  double bytes = (double)part * j.count;
  const struct {
    const char *name;
    void *(*fn)(void *task);
    int transfers;
  } rows[] = {{"copy", copy, 2}, {"read", read_all, 1}, {"update", update, 2}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    j.fn = rows[i].fn;
    double moved = 1e-9 * bytes * rows[i].transfers;
    printf("%s %.2f GB/s\n", rows[i].name, moved / bench_min_seconds(run_threads, NULL, &j, 1, 20));
  }
  free(from), free(to);
  return 0;
}
