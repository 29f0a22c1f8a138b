// SPDX-License-Identifier: Apache-2.0
// The error record of each thread, and the warning sink.
#include "base/base_impl.h"

#include <stdio.h>

static _Thread_local px_error record;

static const struct {
  const char *name, *text, *exception;
} codes[] = {
#define XX(name, text, exception) {#name, text, exception},
    PX_STATUS_MAP(XX)
#undef XX
};

const char *px_status_name(px_status code) {
  return code < PX_STATUS_COUNT ? codes[code].name : "?";
}
const char *px_status_text(px_status code) {
  return code < PX_STATUS_COUNT ? codes[code].text : "?";
}
const char *px_status_exception(px_status code) {
  return code < PX_STATUS_COUNT ? codes[code].exception : "";
}

const px_error *px_error_last(void) { return &record; }

static void drop_foreign(void) {
  void *object = record.foreign;
  record.foreign = NULL;
  if (object && record.foreign_release) record.foreign_release(object);
}

void px_error_clear(void) {
  drop_foreign();
  record.code = PX_OK;
  record.detail = record.frame_count = 0;
  record.message[0] = 0;
}

void px_error_take(px_error *out) {
  *out = record;
  record.foreign = NULL;
  px_error_clear();
}

px_status px_error_give(const px_error *error) {
  px_error_clear();
  record = *error;
  return record.code;
}

px_status px_error_pass(px_status code, const char *file, int line, const char *function) {
  if (record.frame_count < PX_ERROR_FRAMES) {
    record.frames[record.frame_count].file = file;
    record.frames[record.frame_count].line = line;
    record.frames[record.frame_count++].function = function;
  }
  return code;
}

px_status px_error_set(px_status code, int detail, const char *file, int line, const char *function,
                       const char *format, ...) {
  char text[PX_ERROR_MESSAGE];  // arguments may point into the old message
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  px_error_clear();
  record.code = code;
  record.detail = detail;
  memcpy(record.message, text, sizeof text);
  return px_error_pass(code, file, line, function);
}

px_status px_error_set_foreign(void *object, void (*release)(void *), const char *message) {
  px_error_clear();
  record.code = PX_FOREIGN;
  record.foreign = object;
  record.foreign_release = release;
  snprintf(record.message, sizeof record.message, "%s", message ? message : "");
  return PX_FOREIGN;
}

void px_error_note(const char *format, ...) {
  size_t used = strlen(record.message);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(record.message + used, sizeof record.message - used, format, arguments);
  va_end(arguments);
}

void px__error_save(px__error_guard *guard) {
  guard->held = record.code != PX_OK;
  if (guard->held) px_error_take(&guard->error);
}

void px__error_restore(px__error_guard *guard) {
  if (guard->held)
    px_error_give(&guard->error);
  else
    px_error_clear();
}

static px_warning_sink warning_sink;  // set once at start by the embedding language

void px_warning_set_sink(px_warning_sink sink) {
  __atomic_store_n(&warning_sink, sink, __ATOMIC_RELEASE);
}

px_status px_warn(px_warning category, const char *format, ...) {
  px_warning_sink sink = __atomic_load_n(&warning_sink, __ATOMIC_ACQUIRE);
  if (!sink) return PX_OK;
  char text[PX_ERROR_MESSAGE];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return sink(category, text);
}
