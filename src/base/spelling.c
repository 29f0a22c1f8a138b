// SPDX-License-Identifier: Apache-2.0
// Suggestions for misspelt names: the nearest valid name.
#include "base/base_impl.h"

enum { MAX_LENGTH = 48 };

static int min_of(int a, int b, int c) {
  int smaller = a < b ? a : b;
  return smaller < c ? smaller : c;
}

// Returns the edit distance: insertions, deletions and substitutions of letters.
static int distance(const char *name, size_t length, const char *other) {
  int row[MAX_LENGTH + 1], corner;
  for (size_t k = 0; k <= length; k++) row[k] = (int)k;
  for (int i = 1; other[i - 1]; i++) {
    corner = row[0], row[0] = i;
    for (size_t k = 1; k <= length; k++) {
      int kept = corner + (other[i - 1] != name[k - 1]);
      corner = row[k];
      row[k] = min_of(kept, corner + 1, row[k - 1] + 1);
    }
  }
  return row[length];
}

const char *px_name_suggest(const char *name, px_name_at at, const void *names) {
  int best = INT32_MAX;
  const char *found = "", *other;
  if (!name || !at) return found;
  size_t length = strnlen(name, MAX_LENGTH);
  for (int i = 0; (other = at(names, i)); i++) {
    int edits = distance(name, length, other);
    if (edits < best) best = edits, found = other;
  }
  return found;
}
