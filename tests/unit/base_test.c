// SPDX-License-Identifier: Apache-2.0
// Errors, objects, memory and warnings.
#include <pthread.h>

#include "base/base_impl.h"
#include "phlox/memory.h"
#include "phlox/base.h"
#include "phlox/readers.h"
#include "phlox/tensor.h"
#include "test.h"

// ---- errors
PX_TEST(characters_of_utf8_have_lengths_and_other_bytes_have_none) {
  static const char *const good[] = {"a",
                                     "\x7f",
                                     "\xc2\x80",
                                     "\xe0\xa0\x80",
                                     "\xed\x9f\xbf",
                                     "\xef\xbf\xbf",
                                     "\xf0\x90\x80\x80",
                                     "\xf4\x8f\xbf\xbf"};
  static const char *const bad[] = {"\x80",
                                    "\xc0\x80",
                                    "\xc1\xbf",
                                    "\xc3",
                                    "\xc3(",
                                    "\xe0\x9f\xbf",
                                    "\xe2\x82",
                                    "\xed\xa0\x80",
                                    "\xf0\x8f\xbf\xbf",
                                    "\xf4\x90\x80\x80",
                                    "\xf5\x80\x80\x80",
                                    "\xff"};
  for (int i = 0; i < PX_COUNT_OF(good); i++)
    CHECK_EQ(px__utf8_length(good[i]), (int)strlen(good[i]));
  for (int i = 0; i < PX_COUNT_OF(bad); i++) CHECK_EQ(px__utf8_length(bad[i]), 0);
}

PX_TEST(a_status_has_a_name_a_text_and_an_exception) {
  CHECK_TEXT(px_status_name(PX_VALUE), "VALUE");
  CHECK_TEXT(px_status_text(PX_VALUE), "invalid value");
  CHECK_TEXT(px_status_exception(PX_VALUE), "ValueError");
  CHECK_TEXT(px_status_text(PX_STATUS_COUNT), "?");
}

static px_status fails(void) { PX_FAIL(PX_KEY, "there is no '%s'", "x"); }
static px_status propagates(void) {
  PX_TRY(fails());
  return PX_OK;
}

static void count_release(void *count) { ++*(int *)count; }

PX_TEST(a_taken_error_owns_its_foreign_exception) {
  int released = 0;
  px_error error;
  CHECK_EQ(px_error_set_foreign(&released, count_release, "boom"), PX_FOREIGN);
  px_error_take(&error);
  px_error_clear();
  CHECK_EQ(released, 0);
  px_error_drop(&error);
  px_error_drop(&error);
  CHECK_EQ(released, 1);
}

PX_TEST(an_error_keeps_its_frames_and_moves_to_another_record) {
  px_error error;
  CHECK_EQ(propagates(), PX_KEY);
  PX_NOTE(" in %d places", 2);
  px_error_take(&error);
  CHECK_EQ(px_error_last()->code, PX_OK);
  CHECK_TEXT(px_error_last()->message, "");
  CHECK_EQ(px_error_give(&error), PX_KEY);
  CHECK_TEXT(px_error_last()->message, "there is no 'x' in 2 places");
  CHECK_EQ(px_error_last()->frame_count, 2);
  CHECK_TEXT(px_error_last()->frames[0].function, "fails");
  CHECK_TEXT(px_error_last()->frames[1].function, "propagates");
}

// More threads than preallocated error records, in two rounds. Threads of the second round reuse
// the records of the first.
enum { MANY = 70 };
static pthread_barrier_t all_failed;
static void count_end(void *ended) { __atomic_add_fetch((int *)ended, 1, __ATOMIC_RELAXED); }
static void *fail_with_the_others(void *ended) {
  char text[32];
  bool clean = px_error_last()->code == PX_OK && !*px_error_last()->message;
  snprintf(text, sizeof text, "error at %p", (void *)text);
  px_error_set_foreign(ended, count_end, text);
  pthread_barrier_wait(&all_failed);
  bool own = px_error_last()->code == PX_FOREIGN && !strcmp(px_error_last()->message, text);
  return clean && own ? ended : NULL;
}

PX_TEST(each_of_many_threads_has_its_own_error) {
  pthread_t threads[MANY];
  int ended = 0;
  pthread_barrier_init(&all_failed, NULL, MANY);
  CHECK_EQ(fails(), PX_KEY);
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < MANY; i++) OK(px_thread_start(&threads[i], fail_with_the_others, &ended));
    for (int i = 0; i < MANY; i++) {
      void *good;
      pthread_join(threads[i], &good);
      CHECK(good);
    }
    CHECK_EQ(ended, round * MANY);  // the next error releases the exception left behind
  }
  CHECK_TEXT(px_error_last()->message, "there is no 'x'");
  pthread_barrier_destroy(&all_failed);
}

PX_TEST(a_missed_name_is_returned_once) {
  static const char fruits, trees;
  px_name_miss(&fruits, "aple");
  CHECK_TEXT(px_name_missed(&fruits), "aple");
  CHECK(!px_name_missed(&trees));
  px_name_miss(&trees, "ohk");
  CHECK_TEXT(px_name_missed(&trees), "ohk");
  CHECK(!px_name_missed(&fruits));
}

// ---- objects
typedef struct thing {
  px_object head;
  int *ended;
} thing;
static void thing_destroy(void *self) {
  ++*((thing *)self)->ended;
  px_object_end(self);
  px_free(self);
}
static const px_class thing_class = {"thing", thing_destroy};

PX_TEST(an_object_is_destroyed_with_its_last_reference) {
  int ended = 0;
  thing *one;
  OK(px_alloc((void **)&one, sizeof *one));
  one->ended = &ended;
  px_object_init(one, &thing_class);
  CHECK_EQ(px_live_objects("thing"), 1);
  CHECK(px_retain(one) == one && px_refs(one) == 2);
  px_release(one);
  CHECK_EQ(ended, 0);
  px_release(one);
  CHECK_EQ(ended, 1);
  CHECK_EQ(px_live_objects("thing"), 0);
}

// With one thread, references are counted without atomics. Once a second thread starts, all counts
// are atomic.
enum { COUNTERS = 4, TIMES = 100000 };
static pthread_barrier_t all_started;
static void *retain_and_release(void *object) {
  pthread_barrier_wait(&all_started);
  for (int i = 0; i < TIMES; i++) px_retain(object), px_retain(object), px_release(object);
  return NULL;
}

PX_TEST(reference_counts_work_for_one_and_several_threads) {
  pthread_t threads[COUNTERS];
  int ended = 0;
  thing *one;
  OK(px_alloc((void **)&one, sizeof *one));
  one->ended = &ended;
  px_object_init(one, &thing_class);
  pthread_barrier_init(&all_started, NULL, COUNTERS);
  for (int round = 1; round <= 2; round++) {
    px_release(px_retain(one));
    for (int i = 0; i < COUNTERS; i++) OK(px_thread_start(&threads[i], retain_and_release, one));
    for (int i = 0; i < COUNTERS; i++) pthread_join(threads[i], NULL);
    CHECK_EQ(px_refs(one), 1 + round * COUNTERS * TIMES);
  }
  for (int i = 0; i < 2 * COUNTERS * TIMES; i++) px_release(one);
  CHECK(!ended && px_refs(one) == 1);
  px_release(one);
  CHECK_EQ(ended, 1);
  pthread_barrier_destroy(&all_started);
}

// ---- names
static const char *fruit(const void *names, int i) { return ((const char *const *)names)[i]; }
PX_TEST(the_nearest_name_differs_in_the_fewest_letters) {
  const char *names[] = {"apple", "pear", "quince", NULL}, *none[] = {NULL};
  CHECK_TEXT(px_name_suggest("aple", fruit, names), "apple");
  CHECK_TEXT(px_name_suggest("bear", fruit, names), "pear");
  CHECK_TEXT(px_name_suggest("", fruit, names), "pear");
  char longer[200] = "quince";
  memset(longer + 6, 'x', 190);
  CHECK(*px_name_suggest(longer, fruit, names));
  CHECK_TEXT(px_name_suggest("aple", fruit, none), "");
  FAILS(px_fault_arm("lanch", 1, false), PX_KEY,
        "there is no fault point 'lanch': the nearest name is launch");
}

// ---- readers
static int ended_items;
static void count_item(px_retired *item) { ended_items++; }

PX_TEST(an_item_without_readers_ends_at_once) {
  px_readers readers = {0};
  px_retired item = {.end = count_item};
  px_readers_retire(&readers, &item);
  px_readers_retire(&readers, NULL);
  px_readers_sweep(&readers);
  CHECK_EQ(ended_items, 1);
}

PX_TEST(an_item_ends_with_the_last_of_its_readers) {
  px_readers readers = {0};
  px_retired item = {.end = count_item};
  int outer = px_read_begin(&readers), inner = px_read_begin(&readers);
  px_readers_retire(&readers, &item);
  px_read_end(&readers, inner);
  CHECK_EQ(ended_items, 0);
  px_read_end(&readers, outer);
  CHECK_EQ(ended_items, 1);
}

PX_TEST(an_item_ends_while_later_readers_run) {
  px_readers readers = {0};
  px_retired first = {.end = count_item}, second = {.end = count_item};
  int before = px_read_begin(&readers);
  px_readers_retire(&readers, &first);
  int between = px_read_begin(&readers);
  px_readers_retire(&readers, &second);
  px_read_end(&readers, before);
  CHECK_EQ(ended_items, 1);
  int after = px_read_begin(&readers);
  px_read_end(&readers, between);
  CHECK_EQ(ended_items, 2);
  px_read_end(&readers, after);
}

// ---- memory
PX_TEST(a_failed_resize_keeps_the_memory) {
  int64_t *numbers;
  OK(px_alloc((void **)&numbers, 2 * sizeof *numbers));
  CHECK(numbers[0] == 0 && numbers[1] == 0);
  numbers[1] = 7;
  OK(px_fault_arm("alloc", 1, false));
  int64_t *before = numbers;
  FAILS(px_realloc((void **)&numbers, 100 * sizeof *numbers), PX_NOMEM, "out of memory");
  CHECK(numbers == before && numbers[1] == 7);
  OK(px_realloc((void **)&numbers, 100 * sizeof *numbers));
  CHECK_EQ(numbers[1], 7);
  px_free(numbers);
}

PX_TEST(strdup_copies_or_fails) {
  char *copy = NULL;
  OK(px_strdup(&copy, "a text"));
  CHECK_TEXT(copy, "a text");
  px_free(copy);
  FAILS(px_strdup(&copy, NULL), PX_TYPE, "`text` is NULL");
  OK(px_fault_arm("alloc", 1, false));
  FAILS(px_strdup(&copy, "a text"), PX_NOMEM, "out of memory");
  px_fault_disarm_all();
}

// ---- warnings
static char warned[64];
static px_status save_warning(px_warning category, const char *text) {
  snprintf(warned, sizeof warned, "%d: %s", (int)category, text);
  return PX_OK;
}
static px_status refuse(px_warning category, const char *text) {
  PX_FAIL(PX_RUNTIME, "a warning: %s", text);
}

PX_TEST(a_warning_goes_to_the_sink_or_nowhere) {
  OK(px_warn(PX_WARN_USER, "not delivered %d", 1));
  px_warning_set_sink(save_warning);
  OK(px_warn(PX_WARN_DEPRECATION, "delivered %d", 2));
  CHECK_TEXT(warned, "2: delivered 2");
  px_warning_set_sink(refuse);
  FAILS(px_warn(PX_WARN_USER, "and %s", "objects"), PX_RUNTIME, "a warning: and objects");
}

// ---- call sites
static void query_site(const char **file, int *line) { *file = "asked.py", *line = 4; }

PX_TEST(a_call_site_is_set_or_queried) {
  const char *file;
  int line;
  px_site_get(&file, &line);
  CHECK(!file);
  px_site_set_source(query_site);
  px_site_get(&file, &line);
  CHECK_TEXT(file, "asked.py");
  px_site_set("set.c", 9);
  px_site_get(&file, &line);
  CHECK_TEXT(file, "set.c");
  CHECK_EQ(line, 9);
}

PX_TEST(libraries_of_backends) {
  char why[PX_LOADER_TEXT] = "before";
  CHECK(!px_library_open("/nowhere", "nothing", why));
  CHECK(strstr(why, "libphlox_nothing.so is not installed"));
}

static void print_an_error(void) {
  px_error_clear();
  px_error_print();  // nothing
  CHECK_EQ(px_error_set(PX_VALUE, 0, "set.c", 7, "set", "bad number %d", 3), PX_VALUE);
  CHECK_EQ(px_error_add_frame(PX_VALUE, "call.c", 9, "call"), PX_VALUE);
  px_error_print();
}
PX_TEST(errors_are_printed_with_their_locations) {
  char text[256];
  capture_stderr(text, sizeof text, print_an_error);
  CHECK_TEXT(text, "ValueError: bad number 3\n  at set.c:7 in set\n  at call.c:9 in call\n");
}
