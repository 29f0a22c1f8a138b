// SPDX-License-Identifier: Apache-2.0
// Counters of floating-point operations: modules of C and their backward passes, module names,
// failed allocations and misuse.
#include "phlox/phlox.h"

#include "../test.h"

static px_module *net(void) {
  px_module *layers[2], *out;
  OK(px_linear_new(&layers[0], 4, 8));
  OK(px_linear_new(&layers[1], 8, 2));
  OK(px_sequential_new(&out, layers, 2));
  px_release(layers[0]), px_release(layers[1]);
  return out;
}

// Forward and backward of three rows.
static px_status step(px_module *module) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) total = NULL;
  int64_t size[] = {3, 4};
  PX_TRY(px_ones(&x, size, 2, PX_FLOAT32, px_cpu(), false, false));
  PX_TRY(px_module_call(&y, module, x));
  PX_TRY(px_sum(&total, y, NULL, 0, false, PX_DTYPE_NONE));
  return px_backward(1, &total, NULL, false, false);
}

static int64_t counted(const px_flop_counter *counter, const char *module, const char *op) {
  px_flop_count c;
  for (int i = 0; px_flop_counter_at(counter, i, &c); i++)
    if (!strcmp(c.module, module) && !strcmp(c.op, op)) return c.operations;
  return 0;
}

PX_TEST(operations_are_counted_by_module_and_op) {
  PX_SCOPED(px_module) module = net();
  PX_SCOPED(px_flop_counter) counter = NULL;
  OK(px_flop_counter_new(&counter));
  OK(px_flop_counter_begin(counter));
  OK(step(module));
  px_flop_counter_end(counter);
  OK(step(module));  // not counted
  CHECK_EQ(px_flop_counter_total(counter), 2 * 3 * 4 * 8 * 2 + 2 * 3 * 8 * 2 * 3);
  CHECK_EQ(counted(counter, "Sequential.0", "addmm"), 2 * 3 * 4 * 8);
  CHECK_EQ(counted(counter, "Sequential.0", "mm"), 2 * 3 * 4 * 8);
  CHECK_EQ(counted(counter, "Sequential.1", "mm"), 2 * 2 * 3 * 8 * 2);
  CHECK_EQ(counted(counter, "Sequential", "mm"), counted(counter, "Global", "mm"));
  char *text = NULL;
  OK(px_flop_counter_table(&text, counter, 1));
  CHECK_TEXT(text,
             "Module           FLOP    % Total\n"
             "-------------  ------  ---------\n"
             "Sequential        672    100.00%\n"
             " - aten.addmm     288     42.86%\n"
             " - aten.mm        384     57.14%");
  px_free(text);
}

PX_TEST(module_names_start_at_the_first_module_called) {
  PX_SCOPED(px_module) module = net();
  PX_SCOPED(px_flop_counter) counter = NULL;
  px_module_entry first;
  CHECK(px_module_entry_at(module, PX_ENTRY_MODULE, 0, &first));
  OK(px_flop_counter_new(&counter));
  for (int i = 0; i < 2; i++) {  // begin resets the counts and the module names
    OK(px_flop_counter_begin(counter));
    if (!i) OK(step(module));
    OK(step(first.module));
    px_flop_counter_end(counter);
    CHECK_EQ(counted(counter, i ? "Linear" : "Sequential.0", "addmm"), (2 - i) * 2 * 3 * 4 * 8);
  }
  OK(px_flop_counter_begin(counter));
  OK(px_flops_enter("mine"));
  OK(step(module));
  px_flops_leave();
  px_flops_leave();  // no module is entered
  px_flop_counter_end(counter);
  CHECK_EQ(counted(counter, "mine", "mm"), counted(counter, "Global", "mm"));
}

PX_TEST(without_a_callback_nothing_is_counted) {
  PX_SCOPED(px_module) module = net();
  PX_SCOPED(px_flop_counter) counter = NULL;
  OK(px_flop_counter_new(&counter));
  OK(px_flop_counter_begin(counter));
  px_op_set_flop_callback(NULL);
  OK(step(module));
  CHECK_EQ(px_flop_counter_total(counter), 0);
  px_flop_counter_end(counter);
}

PX_TEST(failed_allocations_are_errors_or_harmless) {
  int64_t live = px_live_objects("flop_counter");
  bool failed = true;
  for (int64_t n = 1; failed; n++) {
    PX_SCOPED(px_module) module = net();
    px_flop_counter *counter = NULL;
    char *text = NULL;
    OK(px_fault_arm("alloc", n, false));
    px_status status = px_flop_counter_new(&counter);
    if (status == PX_OK) status = px_flop_counter_begin(counter);
    if (status == PX_OK) status = step(module);
    if (status == PX_OK) status = px_flop_counter_table(&text, counter, -1);
    px_fault_disarm_all();
    failed = status != PX_OK;
    if (failed) CHECK_EQ(px_error_last()->code, PX_NOMEM);
    if (!failed) CHECK_EQ(px_flop_counter_total(counter), 672);
    px_flop_counter_end(counter);
    px_free(text), px_release(counter);
    CHECK_EQ(px_live_objects("flop_counter"), live);
    CHECK_EQ(px_flops_session(), 0);
  }
}

PX_TEST(misuse_of_a_counter_is_an_error) {
  PX_SCOPED(px_flop_counter) counter = NULL;
  char *text;
  px_flop_count c;
  FAILS(px_flop_counter_new(NULL), PX_TYPE, "");
  OK(px_flop_counter_new(&counter));
  px_flop_counter_end(counter);
  px_flop_counter_end(NULL);
  OK(px_flop_counter_begin(counter));
  FAILS(px_flop_counter_begin(counter), PX_RUNTIME, "the counter is already active");
  px_flop_counter_end(counter);
  FAILS(px_flops_enter(NULL), PX_TYPE, "");
  FAILS(px_flop_counter_table(&text, NULL, 1), PX_TYPE, "");
  CHECK(!px_flop_counter_at(counter, 0, &c) && !px_flop_counter_at(counter, -1, &c));
}
