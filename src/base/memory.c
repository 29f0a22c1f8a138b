// SPDX-License-Identifier: Apache-2.0
// Host memory of the library, thread creation, growing texts.
#include "base/base_impl.h"

#include <stdio.h>

static px_status no_memory(size_t bytes) {
  PX_TRY(px__fault_begin());  // a bad PHLOX_FAULT fails every allocation
  PX_FAIL(PX_NOMEM, "out of memory: could not allocate %zu bytes on the host", bytes);
}

px_status px__alloc(void **out, size_t bytes) {
  *out = px__fault(PX__FAULT_ALLOC) ? NULL : calloc(1, bytes ? bytes : 1);
  return PX_LIKELY(*out != NULL) ? PX_OK : no_memory(bytes);
}

px_status px__realloc(void **place, size_t bytes) {
  void *moved = px__fault(PX__FAULT_ALLOC) ? NULL : realloc(*place, bytes ? bytes : 1);
  if (!moved) return no_memory(bytes);
  *place = moved;
  return PX_OK;
}

void px__free(void *memory) { free(memory); }

px_status px__thread_start(pthread_t *out, void *(*run)(void *), void *argument) {
  int code = px__fault(PX__FAULT_THREAD) ? 11 : pthread_create(out, NULL, run, argument);
  PX_CHECK(code == 0, PX_RUNTIME, "could not start a thread: %s", strerror(code));
  return PX_OK;
}

static bool text_reserve(px__text *text, size_t added) {
  size_t capacity = text->capacity ? text->capacity : 256;
  while (capacity < text->length + added + 1) capacity *= 2;
  if (capacity == text->capacity) return true;
  if (px__realloc((void **)&text->at, capacity) != PX_OK) return text->failed = true, false;
  text->capacity = capacity;
  return true;
}

void px__text_add(px__text *text, const char *format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  int length = vsnprintf(NULL, 0, format, arguments);
  if (length >= 0 && text_reserve(text, (size_t)length)) {
    vsnprintf(text->at + text->length, (size_t)length + 1, format, again);
    text->length += (size_t)length;
  }
  va_end(again);
  va_end(arguments);
}

int px__utf8_length(const char *text) {
  const unsigned char *at = (const unsigned char *)text;
  int length = *at < 0x80   ? 1
               : *at < 0xc2 ? 0
               : *at < 0xe0 ? 2
               : *at < 0xf0 ? 3
               : *at < 0xf5 ? 4
                            : 0;
  for (int i = 1; i < length; i++)
    if ((at[i] & 0xc0) != 0x80) return 0;
  // The limits of the second byte exclude longer forms than needed, surrogates, and codes above
  // U+10FFFF.
  bool bad = (*at == 0xe0 && at[1] < 0xa0) || (*at == 0xed && at[1] > 0x9f) ||
             (*at == 0xf0 && at[1] < 0x90) || (*at == 0xf4 && at[1] > 0x8f);
  return bad ? 0 : length;
}

const char *px__sizes_text(char *text, size_t capacity, int n, const int64_t *sizes) {
  size_t used = (size_t)snprintf(text, capacity, "[");
  for (int i = 0; i < n && used < capacity; i++)
    used += (size_t)snprintf(text + used, capacity - used, "%s%lld", i ? ", " : "",
                             (long long)sizes[i]);
  if (used < capacity) snprintf(text + used, capacity - used, "]");
  return text;
}

px_status px_alloc(void **out, size_t bytes) {
  PX_GIVEN(out);
  return px__alloc(out, bytes);
}
px_status px_realloc(void **memory, size_t bytes) { return px__realloc(memory, bytes); }

px_status px_strdup(char **out, const char *text) {
  PX_GIVEN(out);
  PX_GIVEN(text);
  size_t bytes = strlen(text) + 1;
  PX_TRY(px__alloc((void **)out, bytes));
  memcpy(*out, text, bytes);
  return PX_OK;
}
px_status px_thread_start(void *thread, void *(*run)(void *), void *argument) {
  return px__thread_start(thread, run, argument);
}

const char *px_version(void) { return PX_VERSION; }
