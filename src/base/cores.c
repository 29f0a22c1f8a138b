// SPDX-License-Identifier: Apache-2.0
// The number of usable cores: the affinity mask, limited by the CPU quotas of the process's control
// groups and their ancestors, as set by containers. Unreadable files mean no limit.
#include "base/base_impl.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

enum { MAX_LINE = 896, MAX_NAME = 32 };

static bool read_numbers(const char *folder, const char *name, long long *out, int count) {
  char path[2 * MAX_LINE + MAX_NAME];
  int found = 0;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "re");
  if (!file) return false;
  while (found < count && fscanf(file, "%lld", &out[found]) == 1) found++;
  fclose(file);
  return found == count;
}

// Reads quota and period: from cpu.max, or in cgroup v1 from two files.
static bool read_share(const char *folder, long long share[2]) {
  bool found = read_numbers(folder, "cpu.max", share, 2) ||
               (read_numbers(folder, "cpu.cfs_quota_us", &share[0], 1) &&
                read_numbers(folder, "cpu.cfs_period_us", &share[1], 1));
  return found && share[0] > 0 && share[1] > 0;
}

// Rounds up to whole cores.
static void limit_by(const char *folder, int *limit) {
  long long share[2];
  if (!read_share(folder, share)) return;
  long long cores = (share[0] - 1) / share[1] + 1;
  if (cores < *limit) *limit = (int)cores;
}

// Applies the limits of the group at `path` and of its ancestors. In a container the path may
// belong to the host; then only the root exists.
static void limit_by_groups(const char *root, const char *below, const char *path, int *limit) {
  char folder[2 * MAX_LINE];
  size_t top = (size_t)snprintf(folder, sizeof folder, "%s%s", root, below);
  snprintf(folder + top, sizeof folder - top, "%s", path);
  for (;;) {
    limit_by(folder, limit);
    char *end = strrchr(folder + top, '/');
    if (!end) return;
    *end = 0;
  }
}

static bool has_word(const char *words, const char *word) {
  size_t length = strlen(word);
  for (const char *at = words;; at++) {
    if (!strncmp(at, word, length) && (!at[length] || at[length] == ',')) return true;
    at = strchr(at, ',');
    if (!at) return false;
  }
}

int px__cores_of_groups(const char *root, const char *list) {
  int limit = INT_MAX;
  char line[MAX_LINE];
  FILE *file = strlen(root) < MAX_LINE / 2 ? fopen(list, "re") : NULL;
  if (!file) return limit;
  while (fgets(line, sizeof line, file)) {  // v1: "4:cpu,cpuacct:/path"; v2: "0::/path"
    line[strcspn(line, "\n")] = 0;
    char *controllers = strchr(line, ':'),
         *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path) continue;
    *controllers++ = *path++ = 0;
    if (!*controllers) {
      limit_by_groups(root, "", path, &limit);
      limit_by_groups(root, "/unified", path, &limit);
    } else if (has_word(controllers, "cpu")) {
      limit_by_groups(root, "/cpu", path, &limit);
    }
  }
  fclose(file);
  return limit;
}

int px__cores(void) {
  cpu_set_t set;
  int affinity = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  int limit = px__cores_of_groups("/sys/fs/cgroup", "/proc/self/cgroup");
  return limit < affinity ? limit : affinity;
}
