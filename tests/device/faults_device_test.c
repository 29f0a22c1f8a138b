// SPDX-License-Identifier: Apache-2.0
// Faults found by device kernels, such as out-of-range indices. The next synchronizing call raises
// the error once, with op and value. The context stays usable, and the next op works.
#include "device_help.h"
#include "hidden.h"
#include "phlox/event.h"

#include <sys/wait.h>
#include <unistd.h>

// ---- calls with an invalid index: x is f32[5, 3], bad holds 1 and 9, or 1 and -7

typedef struct things {
  px_tensor *x, *bad, *out_of_range, *square, *source, *wide, *weight;
} things;
static const int64_t first = 0, no_padding = -1;

#define CALL(name) static px_status call_##name(px_tensor **y, const things *t)
CALL(index_select) { return px_index_select(y, t->x, 0, t->bad); }
CALL(gather) { return px_gather(y, t->x, 0, t->square, false); }
CALL(index) { return px_index(y, t->x, &t->bad, 1, &first, 1); }
CALL(index_far) { return px_index(y, t->x, &t->out_of_range, 1, &first, 1); }
CALL(index_put) { return px_index_put(y, t->x, &t->bad, 1, &first, 1, t->source, false); }
CALL(index_put_sum) { return px_index_put(y, t->x, &t->bad, 1, &first, 1, t->source, true); }
CALL(index_add) { return px_index_add(y, t->x, 0, t->bad, t->source, px_int(1)); }
CALL(index_copy) { return px_index_copy(y, t->x, 0, t->bad, t->source); }
CALL(index_fill) { return px_index_fill(y, t->x, 0, t->bad, px_float(2)); }
CALL(scatter) { return px_scatter(y, t->x, 0, t->square, t->source); }
CALL(scatter_add) { return px_scatter_add(y, t->x, 0, t->square, t->source); }
CALL(scatter_value) { return px_scatter_value(y, t->x, 0, t->square, px_float(2)); }
CALL(take) { return px_take(y, t->x, t->wide); }
CALL(embedding) { return px_embedding(y, t->bad, t->x, NULL); }
CALL(embedding_far) { return px_embedding(y, t->out_of_range, t->x, &no_padding); }
CALL(nll_loss) { return px_nll_loss(y, t->source, t->bad, NULL, -100, "mean"); }
CALL(nll_loss_each) { return px_nll_loss(y, t->source, t->bad, t->weight, -100, "none"); }
CALL(cross_entropy) { return px_cross_entropy(y, t->source, t->bad, NULL, -100, "mean", 0); }
CALL(cross_entropy_sum) {
  return px_cross_entropy(y, t->source, t->out_of_range, t->weight, -100, "sum", 0);
}
CALL(cross_entropy_smooth) {
  return px_cross_entropy(y, t->source, t->bad, NULL, -100, "mean", 0.1);
}

#define DIMENSION(value) "index " value " is out of bounds for dimension 0 with size 5"
#define RANGE(value) "index out of range in self: index " value ", size 5"
static const struct {
  const char *name;
  px_status (*call)(px_tensor **y, const things *t);
  const char *text;
} rows[] = {
    {"index_select", call_index_select, RANGE("9")},
    {"gather", call_gather, DIMENSION("9")},
    {"index", call_index, DIMENSION("9")},
    {"index_far", call_index_far, DIMENSION("-7")},
    {"index_put", call_index_put, DIMENSION("9")},
    {"index_put_sum", call_index_put_sum, DIMENSION("9")},
    {"index_add", call_index_add, RANGE("9")},
    {"index_copy", call_index_copy, RANGE("9")},
    {"index_fill", call_index_fill, RANGE("9")},
    {"scatter", call_scatter, DIMENSION("9")},
    {"scatter_add", call_scatter_add, DIMENSION("9")},
    {"scatter_value", call_scatter_value, DIMENSION("9")},
    {"take", call_take, "index 99"},
    {"embedding", call_embedding, RANGE("9")},
    {"embedding_far", call_embedding_far, RANGE("-7")},
    {"nll_loss", call_nll_loss, "Target 9 is out of bounds."},
    {"nll_loss_each", call_nll_loss_each, "Target 9 is out of bounds."},
    {"cross_entropy", call_cross_entropy, "Target 9 is out of bounds."},
    {"cross_entropy_sum", call_cross_entropy_sum, "Target -7 is out of bounds."},
    {"cross_entropy_smooth", call_cross_entropy_smooth, "Target 9 is out of bounds."},
};
enum { ROWS = sizeof rows / sizeof *rows };

static things prepare(void) {
  arrange();
  return (things){.x = to_device_take(pattern(PX_FLOAT32, S(5, 3))),
                  .bad = to_device_take(made(PX_INT64, S(2), VALUES(1, 9))),
                  .out_of_range = to_device_take(made(PX_INT64, S(2), VALUES(1, -7))),
                  .square = to_device_take(made(PX_INT64, S(2, 3), VALUES(0, 1, 2, 3, 9, 4))),
                  .source = to_device_take(pattern(PX_FLOAT32, S(2, 3))),
                  .wide = to_device_take(made(PX_INT64, S(2), VALUES(14, 99))),
                  .weight = to_device_take(pattern(PX_FLOAT32, S(3)))};
}
static void release_things(things *t) {
  px_release(t->x), px_release(t->bad), px_release(t->out_of_range), px_release(t->square);
  px_release(t->source), px_release(t->wide), px_release(t->weight);
}
// Checks that ops still work and no old error is raised.
static void check_alive(const things *t) {
  PX_SCOPED(px_tensor) y = NULL;
  OK(px_index_select(&y, t->x, 0, t->bad) == PX_OK ? PX_OK : (px_error_clear(), PX_OK));
  px_release(PX_MOVE(y));
  if (px_device_synchronize(0)) px_error_clear();  // the error just caused
  OK(px_add_scalar(&y, t->x, px_float(1), px_int(1)));
  OK(px_device_synchronize(0));
  CHECK_NEAR(element(y, 0), element(t->x, 0) + 1, 0);
}

static int failures;
typedef px_status (*wait_fn)(px_tensor *x);
static void check_row(int i, wait_fn wait, const things *t) {
  px_tensor *y = NULL;
  px_status status = rows[i].call(&y, t);
  if (!status) status = wait(t->x);
  if (status != PX_INDEX || !strstr(px_error_last()->message, rows[i].text)) {
    fprintf(stderr, "%s: %s: %s\n", rows[i].name, px_status_name(status), px_error_last()->message);
    failures++;
  }
  px_error_clear();
  px_release(y);
  check_alive(t);
}
static px_status wait_for_device(px_tensor *x) { return px_device_synchronize(0); }

PX_TEST(invalid_indices_are_raised_by_name_and_value) {
  things t = prepare();
  for (int i = 0; i < ROWS; i++) check_row(i, wait_for_device, &t);
  CHECK_EQ(failures, 0);
  release_things(&t);
}

PX_TEST(the_message_names_the_op_and_the_stream) {
  things t = prepare();
  px_tensor *y = NULL;
  px_status status = call_embedding(&y, &t);
  if (!status) status = px_device_synchronize(0);
  CHECK_EQ(status, PX_INDEX);
  CHECK(strstr(px_error_last()->message, "It was reported by embedding (kernel index)"));
  CHECK(strstr(px_error_last()->message, "on the default stream of cuda:0"));
  px_error_clear();
  px_release(y);
  release_things(&t);
}

// ---- at process exit

// Runs a program with its standard error captured in `text`. Returns its exit status.
static int status_of(void (*program)(void), char *text, size_t capacity) {
  int pipe_ends[2], status;
  size_t length = 0;
  CHECK(!pipe(pipe_ends) && !fflush(NULL));
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    dup2(pipe_ends[1], 2);
    close(pipe_ends[1]);
    program();
    exit(0);
  }
  close(pipe_ends[1]);
  for (ssize_t n; (n = read(pipe_ends[0], text + length, capacity - 1 - length)) > 0;)
    length += (size_t)n;
  text[length] = 0;
  close(pipe_ends[0]);
  CHECK(waitpid(child, &status, 0) == child);
  return status;
}
static void exit_without_waiting(void) {
  things t = prepare();
  px_tensor *y = NULL;
  OK(call_index_select(&y, &t));
  px_release(y);
  release_things(&t);
}
static void wait_before_exit(void) {
  exit_without_waiting();
  CHECK_EQ(px_device_synchronize(0), PX_INDEX);
}
PX_TEST(an_unraised_fault_is_reported_at_exit) {
  char text[4096];
  CHECK_EQ(status_of(exit_without_waiting, text, sizeof text), 0);
  CHECK(strstr(text, "ended before a call waited for this error: IndexError: " RANGE("9")));
  CHECK(strstr(text, "It was reported by index_select"));
  CHECK_EQ(status_of(wait_before_exit, text, sizeof text), 0);
  CHECK_TEXT(text, "");
}

// ---- all synchronizing calls raise

static px_status wait_for_stream(px_tensor *x) {
  px_stream *s;
  PX_TRY(px_stream_current(&s, px_cuda(0)));
  return px_stream_synchronize(s);
}
static px_status wait_for_event(px_tensor *x) {
  PX_SCOPED(px_event) e = NULL;
  px_stream *s;
  PX_TRY(px_event_new(&e, 0));
  PX_TRY(px_stream_current(&s, px_cuda(0)));
  PX_TRY(px_event_record(e, s));
  return px_event_synchronize(e);
}
static px_status wait_for_read(px_tensor *x) {
  float values[15];
  return px_tensor_read(x, values, sizeof values);
}
static px_status wait_for_item(px_tensor *x) {
  PX_SCOPED(px_tensor) one = NULL;
  px_scalar value;
  PX_TRY(px_narrow(&one, x, 0, 0, 1));
  PX_SCOPED(px_tensor) single = NULL;
  PX_TRY(px_narrow(&single, one, 1, 0, 1));
  return px_tensor_item(&value, single);
}
static px_status wait_for_copy(px_tensor *x) {
  PX_SCOPED(px_tensor) here = NULL;
  return px_to(&here, x, PX_DTYPE_NONE, px_cpu(), false, false);
}
PX_TEST(every_synchronizing_call_raises) {
  static const wait_fn all[] = {wait_for_device, wait_for_stream, wait_for_event,
                                wait_for_read,   wait_for_item,   wait_for_copy};
  things t = prepare();
  for (int i = 0; i < 6; i++) check_row(0, all[i], &t);
  CHECK_EQ(failures, 0);
  release_things(&t);
}

PX_TEST(with_launch_blocking_the_call_itself_fails) {
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  things t = prepare();
  for (int i = 0; i < ROWS; i++) {
    px_tensor *y = NULL;
    FAILS(rows[i].call(&y, &t), PX_INDEX, rows[i].text);
    CHECK(!y);
  }
  release_things(&t);
}

// ---- in a backward pass and on another stream

PX_TEST(a_bad_target_is_raised_before_the_gradients_are_read) {
  things t = prepare();
  PX_SCOPED(px_tensor) loss = NULL;
  OK(px_tensor_set_requires_grad(t.source, true));
  px_status status = px_cross_entropy(&loss, t.source, t.bad, NULL, -100, "mean", 0);
  if (!status) status = px_backward(1, &loss, NULL, false, false);
  if (!status) status = px_device_synchronize(0);
  CHECK_EQ(status, PX_INDEX);
  px_error_clear();
  if (px_device_synchronize(0)) px_error_clear();  // the backward kernel finds the bad target, too
  check_alive(&t);
  release_things(&t);
}

PX_TEST(a_fault_on_a_stream_is_raised_by_device_synchronize) {
  things t = prepare();
  PX_SCOPED(px_stream) s = NULL;
  px_tensor *y = NULL;
  OK(px_device_synchronize(0));
  OK(px_stream_new(&s, px_cuda(0), 0));
  OK(px_stream_set_current(s));
  px_status status = call_gather(&y, &t);
  if (!status) status = px_device_synchronize(0);
  CHECK_EQ(status, PX_INDEX);
  CHECK(!strstr(px_error_last()->message, "default stream"));
  px_error_clear();
  px_release(y);
  check_alive(&t);
  release_things(&t);
}

PX_TEST(one_of_many_invalid_indices_is_named) {
  enum { N = 100000 };
  arrange();
  PX_SCOPED(px_tensor) x = to_device_take(pattern(PX_FLOAT32, S(1000)));
  PX_SCOPED(px_tensor) index = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  px_tensor *here = NULL;
  OK(px_tensor_empty(&here, 1, (int64_t[]){N}, PX_INT64, px_cpu()));
  int64_t *at = px_tensor_data(here);
  for (int64_t i = 0; i < N; i++) at[i] = i % 3 == 1 ? 1000 + i : i % 1000;
  index = to_device_take(here);
  px_status status = px_index_select(&y, x, 0, index);
  if (!status) status = px_device_synchronize(0);
  CHECK_EQ(status, PX_INDEX);
  long long named = -1;
  CHECK_EQ(sscanf(px_error_last()->message, "index out of range in self: index %lld", &named), 1);
  CHECK(named >= 1000 && (named - 1000) % 3 == 1);
  px_error_clear();
  OK(px_device_synchronize(0));
}

static void unpool_at(double index_value, bool good) {
  PX_SCOPED(px_tensor) plane = to_device_take(made(PX_FLOAT32, S(1, 1, 2, 2), VALUES(1, 2, 3, 4)));
  PX_SCOPED(px_tensor) small = to_device_take(made(PX_FLOAT32, S(1, 1, 1, 1), VALUES(5)));
  PX_SCOPED(px_tensor) at = to_device_take(made(PX_INT64, S(1, 1, 1, 1), VALUES(index_value)));
  for (int i = 0; i < 2; i++) {
    px_tensor *y = NULL;
    px_status status = i ? HIDDEN(max_pool2d_backward, (&y), PX_T(small), PX_T(at),
                                  PX_IS(((int64_t[]){1, 1, 2, 2}), 4))
                         : HIDDEN(max_pool2d_pick, (&y), PX_T(plane), PX_T(at));
    if (!status) status = px_device_synchronize(0);
    CHECK_EQ(status, good ? PX_OK : PX_INDEX);
    char text[64];
    snprintf(text, sizeof text, "index %.0f, size 4", index_value);
    CHECK(good || strstr(px_error_last()->message, text));
    px_error_clear();
    px_release(y);
  }
}

PX_TEST(pooling_indices_outside_the_plane_are_reported) {
  arrange();
  unpool_at(3, true);
  unpool_at(4, false);
  unpool_at(-1, false);
}

// ---- other faults

PX_TEST(invalid_probabilities_are_reported) {
  arrange();
  PX_SCOPED(px_tensor) p = to_device_take(made(PX_FLOAT32, S(3), VALUES(0.5, 1.5, 0)));
  px_tensor *y = NULL;
  px_status status = px_bernoulli(&y, p, NULL);
  if (!status) status = px_device_synchronize(0);
  CHECK_EQ(status, PX_RUNTIME);
  CHECK(strstr(px_error_last()->message, "Expected p_in >= 0 && p_in <= 1 to be true"));
  px_error_clear();
  OK(px_device_synchronize(0));
  px_release(y);
}

static void check_binary_cross_entropy(double input, double target, const char *text) {
  PX_SCOPED(px_tensor) x = to_device_take(made(PX_FLOAT32, S(2), VALUES(input, 0.5)));
  PX_SCOPED(px_tensor) t = to_device_take(made(PX_FLOAT32, S(2), VALUES(0, target)));
  PX_SCOPED(px_tensor) y = NULL;
  px_status status = px_binary_cross_entropy(&y, x, t, NULL, "mean");
  if (!status) status = px_device_synchronize(0);
  CHECK_EQ(status, PX_RUNTIME);
  CHECK(strstr(px_error_last()->message, text));
  px_error_clear();
  OK(px_device_synchronize(0));
}
PX_TEST(binary_cross_entropy_reports_invalid_probabilities) {
  arrange();
  check_binary_cross_entropy(1.5, 1, "all elements of input should be between 0 and 1");
  check_binary_cross_entropy(-0.5, 1, "all elements of input should be between 0 and 1");
  check_binary_cross_entropy(NAN, 1, "all elements of input should be between 0 and 1");
  check_binary_cross_entropy(0.5, 2, "all elements of target should be between 0 and 1");
}
