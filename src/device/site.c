// SPDX-License-Identifier: Apache-2.0
// The source line of the calling thread's launches: set by the program, or asked of the embedding
// language.
#include "device/state.h"

static _Thread_local px__site site;
static void (*source)(const char **file, int *line);  // atomic

void px_site_set(const char *file, int line) { site = (px__site){file, line}; }

void px_site_set_source(void (*ask)(const char **file, int *line)) {
  __atomic_store_n(&source, ask, __ATOMIC_RELEASE);
}

px__site px__site_now(void) {
  px__site now = site;
  void (*ask)(const char **, int *) = __atomic_load_n(&source, __ATOMIC_ACQUIRE);
  if (!now.file && ask) ask(&now.file, &now.line);
  return now;
}

void px_site_get(const char **file, int *line) {
  px__site now = px__site_now();
  *file = now.file, *line = now.line;
}
