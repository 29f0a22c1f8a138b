// SPDX-License-Identifier: Apache-2.0
// Pictures of the allocation history.
#include <stdio.h>
#include <string.h>

#include "device_test.h"
#include "folder.h"

#define MiB ((int64_t)1 << 20)

static const px_frame frames[] = {{"/lib/phlox/own.py", "own", 3, true},
                                  {"/a/b.py", "f", 7, false}};
static const px_traceback add = {"add", frames, 2}, nameless = {NULL, &frames[1], 1};

static px_memory_event event(px_memory_action action, int64_t address, int64_t size,
                             const px_traceback *stack) {
  return (px_memory_event){.action = action, .address = address, .size = size, .stack = stack};
}

// A segment of 8 MiB: an allocation older than the record, freed in it; one of add, one of f, one
// without a stack.
static px_memory_event events[] = {{0}, {0}, {0}, {0}, {0}};
static const px_memory_block block = {
    .segment_size = 8 << 20, .state = "inactive", .size = 8 << 20};
static px_memory_trace history = {
    .device = 1, .blocks = &block, .block_count = 1, .events = events};
static void make_history(void) {
  events[0] = event(PX_MEMORY_FREE_REQUESTED, 0, 5 * MiB, NULL);
  events[1] = event(PX_MEMORY_ALLOC, 0, 2 * MiB, &add);
  events[2] = event(PX_MEMORY_ALLOC, 2 * MiB, MiB, &nameless);
  events[3] = event(PX_MEMORY_ALLOC, 3 * MiB, 3 * MiB, NULL);
  events[4] = event(PX_MEMORY_FREE_REQUESTED, 3 * MiB, 3 * MiB, NULL);
  history.event_count = PX_COUNT_OF(events);
}

static void check_has(const char *text, const char *part) {
  if (!strstr(text, part)) fprintf(stderr, "%s is not in\n%s", part, text);
  CHECK(strstr(text, part) != NULL);
}

PX_TEST(a_picture_shows_live_memory_by_op_and_line) {
  char *text = NULL;
  make_history();
  OK(px_memory_picture(&text, &history, 1, 12));
  check_has(text, "cuda:1: 6 MiB live at most, at event 3, 0 ms, and then by op and line");
  check_has(text, ">2 MiB  add  b.py:7<");
  check_has(text, ">1 MiB  f  b.py:7<");
  check_has(text, ">3 MiB  no stack recorded<");
  check_has(text, ">8 MiB  reserved<");
  check_has(text, "<title>add  b.py:7</title>");
  px_free(text);
  OK(px_memory_picture(&text, &history, 1, 1));
  check_has(text, ">3 MiB  others (2)<");
  px_free(text);
}

PX_TEST(names_are_escaped_and_have_any_length) {
  static char long_name[100000];
  const px_frame odd[] = {{"/a/\xff\xc3<\x01.py", "f", 7, false}};
  const px_traceback stack = {"a&\n\"\xed\xa0\x80\xef\xbf\xbf", odd, 1},
                     longer = {long_name, odd, 1};
  char *text = NULL;
  make_history();
  events[1].stack = &stack;
  events[2].stack = &longer;
  memset(long_name, 'x', sizeof long_name - 1);
  OK(px_memory_picture(&text, &history, 1, 12));
  check_has(text,
            ">a&amp;&#10;&quot;\\xed\\xa0\\x80\\xef\\xbf\\xbf  \\xff\\xc3&lt;\xe2\x90\x81.py:7<");
  check_has(text, long_name);
  px_free(text);
}

PX_TEST(sizes_out_of_range_are_refused) {
  char *text = NULL;
  for (int i = 0; i < 2; i++) {
    make_history();
    events[1].size = i ? -1 : INT64_MAX;
    FAILS(px_memory_picture(&text, &history, 1, 12), PX_VALUE,
          "the sizes of the snapshot of device 1 are out of range");
  }
}

PX_TEST(older_allocations_are_shown) {
  char *text = NULL;
  make_history();
  history.event_count = 1;
  px_memory_block old = {.segment_size = 8 << 20, .state = "active_allocated", .size = 3 << 20};
  old.address = 5 * MiB;
  px_memory_trace both = history;
  both.blocks = &old;
  OK(px_memory_picture(&text, &both, 1, 12));
  check_has(text, ">3 MiB  before the history<");
  px_free(text);
}

PX_TEST(invalid_arguments_are_refused) {
  char *text = NULL;
  make_history();
  FAILS(px_memory_picture(&text, &history, 1, -1), PX_VALUE, "owners must not be negative");
  FAILS(px_memory_picture(&text, &history, -1, 1), PX_VALUE,
        "expected a non-negative count of `devices`, got -1");
  FAILS(px_memory_picture(&text, NULL, 1, 1), PX_TYPE, "`devices` is NULL");
  FAILS(px_memory_picture(&text, NULL, 0, 1), PX_VALUE, "expected a snapshot with events");
  events[0].action = PX_MEMORY_SEGMENT_ALLOC, history.event_count = 1;
  FAILS(px_memory_picture(&text, &history, 1, 1), PX_VALUE, "expected a snapshot with events");
  CHECK(!text);
}

// Fails each allocation in turn. Returns their number.
static int64_t fail_each(px_status (*call)(void)) {
  int64_t n = 1, live = px_live_objects(NULL);
  for (bool failed = true; failed; n++) {
    OK(px_fault_arm("alloc", n, false));
    failed = call() != PX_OK;
    if (failed) CHECK_EQ(px_error_last()->code, PX_NOMEM);
    px_fault_disarm_all();
    px_error_clear();
    CHECK_EQ(px_live_objects(NULL), live);
  }
  return n;
}
static px_status draw_text(void) {
  char *text = NULL;
  PX_TRY(px_memory_picture(&text, &history, 1, 2));
  px_free(text);
  return PX_OK;
}

static const char *path;
static px_status draw_file(void) { return px_memory_draw(path, 12); }

PX_TEST(a_process_draws_its_history) {
  static char text[1 << 16];
  simulate_plainly(2);
  path = path_of("memory.svg");
  FAILS(draw_file(), PX_VALUE, "expected a snapshot with events");
  OK(px_memory_record(&(px_memory_history){.max_entries = 100, .stacks = PX_HISTORY_ALL}));
  px_site_set("/home/me/train.c", 12);
  px_allocation *kept = block_on(px_cuda(1), 3 << 20);
  px_site_set(NULL, 0);
  OK(draw_file());
  FILE *file = fopen(path, "r");
  CHECK(file && fread(text, 1, sizeof text - 1, file) > 0);
  fclose(file);
  check_has(text, "cuda:1: 3 MiB live at most");
  check_has(text, "train.c:12");
  CHECK(!strstr(text, "cuda:0"));
  OK(px_fault_arm("file", 1, false));
  FAILS(draw_file(), PX_IO, "memory.svg: could not be written (injected)");
  px_fault_disarm_all();
  FAILS(px_memory_draw("/nowhere/at/all.svg", 1), PX_IO, "/nowhere/at/all.svg: No such file");
  CHECK(fail_each(draw_file) > 10);
  px__allocation_free(kept);
}

PX_TEST(a_picture_without_memory_is_an_error) {
  make_history();
  CHECK(fail_each(draw_text) > 10);
}
