// SPDX-License-Identifier: Apache-2.0
// The floor of kernels that only move memory: what a plain copy and a plain read reach on as many
// threads as the program is given. Prints "copy N GB/s" and "read N GB/s"; a copy counts both ways.
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "bench.h"

enum { BYTES = 64 << 20, MOST_THREADS = 64 };
typedef struct task {
  char *from, *to;
  size_t bytes;
  uint64_t sum;
} task;
typedef struct job {
  void *(*fn)(void *task);
  task tasks[MOST_THREADS];
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

static void together(void *context) {
  job *j = context;
  pthread_t threads[MOST_THREADS];
  for (int i = 1; i < j->count; i++) pthread_create(&threads[i], NULL, j->fn, &j->tasks[i]);
  j->fn(&j->tasks[0]);
  for (int i = 1; i < j->count; i++) pthread_join(threads[i], NULL);
}

int main(int argc, char **argv) {
  job j = {.count = argc > 1 ? atoi(argv[1]) : 1};
  if (j.count < 1 || j.count > MOST_THREADS) j.count = 1;
  char *from = malloc(BYTES), *to = malloc(BYTES);
  if (!from || !to) return 1;
  memset(from, 1, BYTES), memset(to, 2, BYTES);
  size_t part = (size_t)BYTES / (size_t)j.count / 64 * 64;
  for (int i = 0; i < j.count; i++)
    j.tasks[i] = (task){from + (size_t)i * part, to + (size_t)i * part, part, 0};
  double bytes = (double)part * j.count;
  j.fn = copy;
  printf("copy %.2f GB/s\n", 2e-9 * bytes / bench_least(together, &j, 1, 30));
  j.fn = read_all;
  printf("read %.2f GB/s\n", 1e-9 * bytes / bench_least(together, &j, 1, 30));
  free(from), free(to);
  return 0;
}
