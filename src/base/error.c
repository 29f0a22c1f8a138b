// SPDX-License-Identifier: Apache-2.0
// The error record of each thread, and the warning sink.
//
// Thread-local storage holds only a pointer to it. Fast thread-local access, in a library loaded by
// Python, requires all of it to fit in the few hundred bytes reserved by the loader
// (tools/check/binary.sh). A thread takes a record at its first error and releases it at its
// end. Memory is allocated only if many threads have one.
#include "base/base_impl.h"
#include "phlox/base.h"

#include <stdio.h>

typedef struct record {
  px__thread_slot slot;
  px_error error;
  const void *names;  // set of names that lacks `missed`
  char missed[128];
} record;
enum { STATIC_RECORDS = 64 };
static record first[STATIC_RECORDS];
static px__thread_slot *records;  // atomic; never removed
static _Thread_local record *mine;
static _Thread_local bool lost;  // no memory for the thread's record
static const px_error no_error;
static const px_error lost_error = {
    .code = PX_NOMEM, .message = "out of memory: there is no room for the text of an error"};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t at_exit;
static bool have_key;

static void thread_exit(void *self) {
  mine = NULL;
  px__thread_slot_release(&((record *)self)->slot);
}

static void begin(void) {
  for (int i = STATIC_RECORDS; i-- > 0;) px__thread_slot_add(&records, &first[i].slot);
  have_key = pthread_key_create(&at_exit, thread_exit) == 0;
}

// Returns the thread's record; NULL without memory.
static record *own(void) {
  if (mine) return mine;
  pthread_once(&once, begin);
  mine = px__thread_slot_take(&records, sizeof *mine);
  lost = !mine;
  if (!mine) return NULL;
  if (have_key) pthread_setspecific(at_exit, mine);
  px_error_clear();  // of the record's earlier thread
  mine->names = NULL;
  return mine;
}

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

const px_error *px_error_last(void) { return mine ? &mine->error : lost ? &lost_error : &no_error; }

void px_error_print(void) {
  const px_error *error = px_error_last();
  const char *name = px_status_exception(error->code);
  if (error->code == PX_OK) return;
  fprintf(stderr, "%s: %s\n", *name ? name : px_status_text(error->code), error->message);
  for (int i = 0; i < error->frame_count; i++)
    fprintf(stderr, "  at %s:%d in %s\n", error->frames[i].file, error->frames[i].line,
            error->frames[i].function);
}

static void drop_foreign(void *object, void (*release)(void *)) {
  if (object && release) release(object);
}

void px_error_drop(px_error *error) {
  void *object = error->foreign;
  error->foreign = NULL;
  drop_foreign(object, error->foreign_release);
}

void px_error_clear(void) {
  lost = false;
  if (!mine) return;
  px_error *error = &mine->error;
  px_error_drop(error);
  error->code = PX_OK;
  error->detail = error->frame_count = 0;
  error->message[0] = 0;
}

void px_error_take(px_error *out) {
  *out = *px_error_last();
  if (mine) mine->error.foreign = NULL;
  px_error_clear();
}

px_status px_error_give(const px_error *error) {
  px_error_clear();
  record *to = own();
  if (to)
    to->error = *error;
  else
    drop_foreign(error->foreign, error->foreign_release);
  return error->code;
}

px_status px_error_add_frame(px_status code, const char *file, int line, const char *function) {
  px_error *error = mine ? &mine->error : NULL;
  if (error && error->frame_count < PX_ERROR_FRAMES) {
    error->frames[error->frame_count].file = file;
    error->frames[error->frame_count].line = line;
    error->frames[error->frame_count++].function = function;
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
  record *to = own();
  if (!to) return code;
  to->error.code = code;
  to->error.detail = detail;
  memcpy(to->error.message, text, sizeof text);
  return px_error_add_frame(code, file, line, function);
}

px_status px_error_set_foreign(void *object, void (*release)(void *), const char *message) {
  px_error_clear();
  record *to = own();
  if (!to) return drop_foreign(object, release), PX_FOREIGN;
  to->error.code = PX_FOREIGN;
  to->error.foreign = object;
  to->error.foreign_release = release;
  snprintf(to->error.message, sizeof to->error.message, "%s", message ? message : "");
  return PX_FOREIGN;
}

void px_error_note(const char *format, ...) {
  if (!mine) return;
  char *text = mine->error.message;
  size_t used = strlen(text);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + used, PX_ERROR_MESSAGE - used, format, arguments);
  va_end(arguments);
}

void px__error_save(px__error_guard *guard) {
  bool held = mine && mine->error.code != PX_OK;
  *guard = (px__error_guard){held ? mine : NULL, lost};
  if (held) mine = NULL;
}

void px__error_restore(px__error_guard *guard) {
  px_error_clear();
  lost = guard->lost;
  if (!guard->record) return;
  if (mine) px__thread_slot_release(&mine->slot);
  mine = guard->record;
  if (have_key) pthread_setspecific(at_exit, mine);
}

// ---- failed look-ups of names

void px_name_miss(const void *names, const char *name) {
  record *to = own();
  if (!to) return;
  to->names = names;
  snprintf(to->missed, sizeof to->missed, "%s", name);
}

const char *px_name_missed(const void *names) {
  return mine && mine->names == names ? mine->missed : NULL;
}

static px_status print_warning(px_warning category, const char *text) {
  static const char *const names[] = {
#define XX(name, category) category,
      PX_WARNING_MAP(XX)
#undef XX
  };
  fprintf(stderr, "phlox: %s: %s\n", names[category], text);
  return PX_OK;
}

static px_warning_sink warning_sink = print_warning;  // replaced at start by embedding languages

void px_warning_set_sink(px_warning_sink sink) {
  __atomic_store_n(&warning_sink, sink, __ATOMIC_RELEASE);
}

static bool always;  // atomic
void px_warn_set_always(bool on) { __atomic_store_n(&always, on, __ATOMIC_RELAXED); }
bool px_warn_always(void) { return __atomic_load_n(&always, __ATOMIC_RELAXED); }
bool px__warns(bool *warned) {
  return !__atomic_exchange_n(warned, true, __ATOMIC_RELAXED) || px_warn_always();
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
