// SPDX-License-Identifier: Apache-2.0
// The origin of the calling thread's work: the program's line, set by the program, returned by the
// embedding language or lent by another thread; and the running node of a backward pass.
#include "device/core/state.h"

#include <stdio.h>

static _Thread_local struct here {
  px_site set, lent;
  px_backward_site backward;
  px_site latest;  // of the thread's latest work; `written` was its first output
  const px_allocation *written;
} here;
static void (*source)(const char **file, int *line);         // atomic
static int (*frame_source)(px_frame *frames, int capacity);  // atomic

void px_site_set(const char *file, int line) { here.set = (px_site){.file = file, .line = line}; }

void px_site_set_source(void (*ask)(const char **file, int *line)) {
  __atomic_store_n(&source, ask, __ATOMIC_RELEASE);
}

void px_site_set_frames(int (*ask)(px_frame *frames, int capacity)) {
  __atomic_store_n(&frame_source, ask, __ATOMIC_RELEASE);
}

px_site px_site_lend(px_site site) {
  px_site before = here.lent;
  here.lent = site;
  return before;
}

px_backward_site px_site_set_backward(px_backward_site now) {
  px_backward_site before = here.backward;
  here.backward = now;
  return before;
}

static inline void find(px_site *out, const struct here *h) {
  void (*ask)(const char **, int *) = __atomic_load_n(&source, __ATOMIC_ACQUIRE);
  *out = h->set;
  if (!out->file && ask) ask(&out->file, &out->line);
  if (!out->file) *out = h->lent;
}

void px_site_get(const char **file, int *line) {
  px_site now;
  find(&now, &here);
  *file = now.file, *line = now.line;
}

void px__site_find(px_site *out) { find(out, &here); }

// A separate function: the thread-local address of `here` is computed only once.
__attribute__((noinline)) static void describe(px__work *work, const px_allocation *written,
                                               struct here *h) {
  find(&work->site, h);
  work->backward = h->backward;
  h->latest = work->site, h->written = written;
}

int px__site_frames(px_frame *frames, int capacity, bool latest, px_site *other) {
  const struct here *h = &here;
  int (*ask)(px_frame *, int) = __atomic_load_n(&frame_source, __ATOMIC_ACQUIRE);
  int count = 0, reported = 0;
  *other = latest ? h->latest : (px_site){0};
  if (h->backward.node)
    frames[count++] = (px_frame){.file = h->backward.forward.file ? h->backward.forward.file : "",
                                 .function = h->backward.node,
                                 .line = h->backward.forward.line};
  if (!latest && !h->set.file && ask) reported = ask(frames + count, capacity - count);
  if (!latest && !reported) find(other, h);
  return count + reported;
}

void px__work_find_site(px__work *work, const px_allocation *written) {
  describe(work, written, &here);
}

px_site px__site_of(const px_allocation *result) {
  const struct here *h = &here;
  px_site now = h->latest;
  if (!result->data || result != h->written) px_site_get(&now.file, &now.line);
  return now;
}

static size_t add(char *text, size_t used, const char *word, px_site site) {
  if (!site.file || used >= PX__SITE_TEXT) return used;
  return used + (size_t)snprintf(text + used, PX__SITE_TEXT - used, " %s %s:%d", word, site.file,
                                 site.line);
}

const char *px__site_text(const px__work *work, char text[PX__SITE_TEXT]) {
  text[0] = 0;
  size_t used = add(text, 0, "at", work->site);
  if (!work->backward.node || used >= PX__SITE_TEXT) return text;
  used += (size_t)snprintf(text + used, PX__SITE_TEXT - used, " in %s", work->backward.node);
  add(text, used, "of", work->backward.forward);
  return text;
}
