// SPDX-License-Identifier: Apache-2.0
// A race report names simulator settings that reproduce the wrong result. Each race runs in two
// processes: with the checker, and with the reported settings.

// The streams race on purpose.
#define TSAN_DEFAULTS "report_bugs=0:atexit_sleep_ms=20"
#include "devices.h"

enum { LENGTH = 100 };

typedef struct scene {
  px_tensor *x, *y;  // zeros
  px_stream *home, *side;
} scene;

static void fill_on(px_stream *stream, px_tensor *t, double value) {
  OK(px_stream_set_current(stream));
  OK(px_fill_(t, px_float(value)));
}
static void add_on(px_stream *stream, px_tensor *to, px_tensor *from) {
  OK(px_stream_set_current(stream));
  OK(px_add_(to, from, px_int(1)));
}

// ---- races, each with the expected y[0]
static void read_after_write(scene *s) {
  fill_on(s->home, s->x, 5);
  add_on(s->side, s->y, s->x);
}
static void write_after_read(scene *s) {
  add_on(s->side, s->y, s->x);
  fill_on(s->home, s->x, 5);
}
static void write_after_write(scene *s) {
  fill_on(s->side, s->y, 1);
  fill_on(s->home, s->y, 2);
}
static void write_through_an_alias(scene *s) {
  PX_SCOPED(px_tensor) alias = NULL;
  OK(px_tensor_alias(&alias, s->x));
  fill_on(s->home, alias, 5);
  add_on(s->side, s->y, s->x);
}
static void write_through_dlpack(scene *s) {
  PX_SCOPED(px_tensor) alias = NULL;
  px_dl_managed *managed = NULL;
  OK(px_dlpack_export(&managed, s->x, s->home));
  OK(px_dlpack_import_take(&alias, managed));
  fill_on(s->home, alias, 5);
  add_on(s->side, s->y, s->x);
}
static const struct {
  void (*run)(scene *s);
  float right;
} races[] = {{read_after_write, 5},
             {write_after_read, 0},
             {write_after_write, 2},
             {write_through_an_alias, 5},
             {write_through_dlpack, 5}};
enum { RACES = sizeof races / sizeof *races };

// ---- runs
static px_tensor *zeros(void) {
  px_tensor *made;
  OK(px_zeros(&made, (int64_t[]){LENGTH}, 1, PX_FLOAT32, px_cuda(0), false, false));
  return made;
}

static float result(int i) {
  scene s = {0};
  float numbers[LENGTH];
  simulate(1);
  s.x = zeros(), s.y = zeros();
  OK(px_stream_default(&s.home, px_cuda(0)));
  OK(px_stream_new(&s.side, px_cuda(0), 0));
  OK(px_device_synchronize(0));
  races[i].run(&s);
  OK(px_device_synchronize(0));
  px_race_enable(0, false);
  OK(px_tensor_read(s.y, numbers, sizeof numbers));
  return numbers[0];
}

// Returns the starved stream of the report, or -1 if there is none.
static int starved(int i) {
  px_race_enable(1, false);
  (void)result(i);
  const char *text = px_race_report(0), *at = text ? strstr(text, "PHLOX_SIM_STARVE=") : NULL;
  return at ? atoi(at + strlen("PHLOX_SIM_STARVE=")) : -1;
}

// Runs a race in a child process with a stream starved (-1: none). Returns its result.
static int run_race(int i, int stream, bool checks) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    char number[16];
    snprintf(number, sizeof number, "%d", stream);
    setenv("PHLOX_SIM_MODE", "schedule", 1);
    setenv("PHLOX_SIM_STARVE", number, 1);
    px_race_enable(0, false);
    int value = checks ? starved(i) : (int)result(i);
    _exit(value < 0 ? 255 : value);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
  return WEXITSTATUS(status);
}

PX_TEST(the_reported_settings_reproduce_the_race) {
  for (int i = 0; i < RACES; i++) {
    int stream = run_race(i, -1, true);
    CHECK(stream == 0 || stream == 1);
    CHECK(run_race(i, stream, false) != (int)races[i].right);
    CHECK_EQ(run_race(i, !stream, false), (int)races[i].right);  // the intended order
  }
  tally("races", RACES);
}
