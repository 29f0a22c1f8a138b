// SPDX-License-Identifier: Apache-2.0
// The table of environment variables, and reading them.
#include "base/base_impl.h"

#include <strings.h>

static const px_env_row rows[] = {
#define PX_ENV(name, type, fallback, doc) {name, type, fallback, doc},
#include "base/env.def"
#undef PX_ENV
};

const px_env_row *px_env_at(int i) { return i >= 0 && i < PX_COUNT_OF(rows) ? &rows[i] : NULL; }

const char *px__env(const char *name) { return getenv(name); }

int64_t px__env_int(const char *name, int64_t fallback) {
  const char *text = px__env(name);
  if (!text || !*text) return fallback;
  char *end;
  int64_t value = strtoll(text, &end, 10);
  int shift = *end == 'K' || *end == 'k'   ? 10
              : *end == 'M' || *end == 'm' ? 20
              : *end == 'G' || *end == 'g' ? 30
                                           : 0;
  return end == text ? fallback : value << shift;
}

bool px__env_flag(const char *name) {
  const char *text = px__env(name);
  return text && (!strcmp(text, "1") || !strcasecmp(text, "true") || !strcasecmp(text, "yes") ||
                  !strcasecmp(text, "on"));
}
