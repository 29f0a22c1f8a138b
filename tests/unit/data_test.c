// SPDX-License-Identifier: Apache-2.0
// Random orders and batches of rows: PyTorch's orders for its seeds.
#include "devices.h"

static px_tensor *numbers(int64_t n) {
  px_tensor *t = NULL;
  OK(px_arange(&t, px_int(0), px_int(n), px_int(1), PX_INT64, px_cpu(), false, false));
  return t;
}

#define CHECK_ORDER(got, ...) \
  CHECK(!memcmp(got, ((const int64_t[]){__VA_ARGS__}), sizeof((int64_t[]){__VA_ARGS__})))

PX_TEST(a_seeded_order_is_pytorchs) {
  int64_t order[10];
  px_manual_seed(0);
  OK(px_random_order(order, 10, 10, false, NULL));
  CHECK_ORDER(order, 6, 9, 0, 7, 3, 5, 4, 2, 1, 8);
  OK(px_random_order(order, 10, 10, false, NULL));
  CHECK_ORDER(order, 6, 7, 1, 4, 2, 0, 9, 8, 3, 5);
}

PX_TEST(a_loaders_order_follows_the_seed_of_its_workers) {
  int64_t order[10], unused;
  px_manual_seed(0);
  OK(px_seed_draw(&unused, NULL));
  OK(px_random_order(order, 10, 10, false, NULL));
  CHECK_ORDER(order, 6, 7, 1, 4, 2, 0, 9, 8, 3, 5);
}

PX_TEST(a_generator_continues_across_orders) {
  PX_SCOPED(px_generator) generator = NULL;
  int64_t order[10], unused;
  OK(px_generator_new(&generator, px_cpu()));
  px_generator_seed(generator, 5);
  OK(px_seed_draw(&unused, generator));
  OK(px_random_order(order, 10, 10, false, generator));
  CHECK_ORDER(order, 7, 4, 8, 1, 2, 3, 6, 5, 9, 0);
  OK(px_seed_draw(&unused, generator));
  OK(px_random_order(order, 10, 10, false, generator));
  CHECK_ORDER(order, 2, 1, 6, 3, 5, 9, 4, 7, 8, 0);
}

PX_TEST(an_order_may_be_longer_than_its_dataset) {
  int64_t order[5];
  px_manual_seed(0);
  OK(px_random_order(order, 3, 5, false, NULL));
  CHECK_ORDER(order, 0, 1, 2, 2, 0);
  px_manual_seed(0);
  OK(px_random_order(order, 3, 5, true, NULL));
  CHECK_ORDER(order, 0, 2, 2, 0, 0);
  FAILS(px_random_order(order, 0, 1, false, NULL), PX_VALUE, "cannot draw 1 samples");
  FAILS(px_random_order(order, 3, -1, false, NULL), PX_VALUE, "-1");
}

PX_TEST(a_permutation_is_that_of_random_split) {
  int64_t order[10];
  px_manual_seed(0);
  OK(px_random_permutation(order, 10, NULL));
  CHECK_ORDER(order, 4, 1, 7, 5, 3, 9, 0, 8, 6, 2);
}

PX_TEST(batches_take_rows_of_all_tensors) {
  PX_SCOPED(px_tensor) t = numbers(5);
  PX_SCOPED(px_list) rows = NULL;
  px_tensor *tensors[] = {t, t, NULL};
  int64_t got[2];
  OK(px_collate_rows(&rows, tensors, 2, (int64_t[]){3, 0}, 2));
  for (int k = 0; k < 2; k++) {
    OK(px_tensor_read(px_list_get(rows, k), got, sizeof got));
    CHECK_ORDER(got, 3, 0);
  }
  rows = (px_release(rows), NULL);
  FAILS(px_collate_rows(&rows, tensors, 2, (int64_t[]){5}, 1), PX_INDEX, "");
  FAILS(px_collate_rows(&rows, tensors, 3, (int64_t[]){1}, 1), PX_TYPE, "tensor 2 of a batch");
  FAILS(px_collate_rows(&rows, tensors, 2, NULL, -1), PX_VALUE, "`indices`, got -1");
}

PX_TEST(an_order_survives_failing_allocations) {
  PX_SCOPED(px_tensor) t = numbers(6);
  int64_t objects = px_live_objects(NULL);
  for (int64_t n = 1, seen = n; seen >= n; n++) {
    int64_t order[6];
    PX_SCOPED(px_list) batch = NULL;
    OK(px_fault_arm("alloc", n, false));
    px_status status = px_random_order(order, 6, 6, false, NULL);
    if (status == PX_OK) status = px_collate_rows(&batch, &t, 1, order, 2);
    seen = px_fault_seen("alloc");
    px_fault_disarm_all();
    if (status != PX_OK) CHECK(px_error_last()->message[0]);
    batch = (px_release(batch), NULL);
    CHECK_EQ(px_live_objects(NULL), objects);
  }
}
