// SPDX-License-Identifier: Apache-2.0
// The table of CPU kernels: the variant for this processor, with a hash table of names built once.
#include "device/work/work.h"

extern const px_kernel_row *px__cpu_table_base(int *count);
extern const px_kernel_row *px__cpu_table_v3(int *count) __attribute__((weak));

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const px_kernel_row *rows, *base_rows;
static int row_count, base_count;
static int32_t *slots;  // 1 + row, 0: empty. NULL without memory: search linearly
static uint32_t slot_mask;

static uint32_t hash_of(const char *name) {
  uint32_t hash = 2166136261u;
  for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 16777619u;
  return hash;
}

static bool has_v3(void) { return px__cpu_table_v3 && px_cpu_level_used() >= PX_CPU_AVX2; }

const char *px_cpu_capability(void) {
  if (!has_v3()) return "DEFAULT";
  return px_cpu_level_used() >= PX_CPU_AVX512 ? "AVX512" : "AVX2";
}

static void prepare(void) {
  base_rows = px__cpu_table_base(&base_count);
  rows = base_rows, row_count = base_count;
  if (has_v3()) rows = px__cpu_table_v3(&row_count);
  uint32_t size = 64;
  while (size < 2 * (uint32_t)row_count) size *= 2;
  slots = calloc(size, sizeof *slots);  // no fault point: the first call is unpredictable
  slot_mask = size - 1;
  if (!slots) return;
  for (int i = 0; i < row_count; i++) {
    uint32_t at = hash_of(rows[i].name) & slot_mask;
    while (slots[at]) at = (at + 1) & slot_mask;
    slots[at] = i + 1;
  }
}

static px_kernel find_line(const px_kernel_row *table, int count, const char *name) {
  for (int i = 0; i < count; i++)
    if (!strcmp(table[i].name, name)) return table[i].run;
  return NULL;
}

px_kernel px__host_kernel(const char *name) {
  pthread_once(&once, prepare);
  if (!slots) return find_line(rows, row_count, name);
  for (uint32_t at = hash_of(name) & slot_mask; slots[at]; at = (at + 1) & slot_mask)
    if (!strcmp(rows[slots[at] - 1].name, name)) return rows[slots[at] - 1].run;
  return rows == base_rows ? NULL : find_line(base_rows, base_count, name);
}

const px_kernel_row *px__host_kernels(int *count) {
  pthread_once(&once, prepare);
  *count = row_count;
  return rows;
}
