// SPDX-License-Identifier: Apache-2.0
// Datasets, samplers and loaders: PyTorch's orders for its seeds, with and without workers, and
// failing items.
#include "devices.h"

static px_dataset *numbers(int64_t n) {
  px_tensor *t = NULL;
  px_dataset *dataset = NULL;
  OK(px_arange(&t, px_int(0), px_int(n), px_int(1), PX_INT64, px_cpu(), false, false));
  OK(px_dataset_tensors(&dataset, &t, 1));
  px_release(t);
  return dataset;
}

static px_loader *loader(px_dataset *dataset, px_loader_options options) {
  px_loader *made = NULL;
  OK(px_loader_new(&made, dataset, &options));
  return made;
}

// Collects all numbers of one iteration in order, with -1 after each batch. Returns their count.
static int collect(px_loader *from, int64_t *out) {
  PX_SCOPED(px_loader_iter) iter = NULL;
  int count = 0;
  OK(px_loader_start(&iter, from));
  for (int64_t b = 0; b < px_loader_length(from); b++) {
    PX_SCOPED(px_list) batch = NULL;
    OK(px_loader_next(&batch, iter));
    int64_t n = px_tensor_size(px_list_get(batch, 0), 0);
    OK(px_tensor_read(px_list_get(batch, 0), out + count, (size_t)n * 8));
    count += (int)n;
    out[count++] = -1;
  }
  px_list *none = NULL;
  FAILS(px_loader_next(&none, iter), PX_STOP, "");
  FAILS(px_loader_next(&none, iter), PX_STOP, "");  // and again
  return count;
}

static void check_order(px_loader *from, const int64_t *wanted, int count) {
  int64_t got[64];
  CHECK_EQ(collect(from, got), count);
  for (int i = 0; i < count; i++) CHECK_EQ(got[i], wanted[i]);
}
#define CHECK_ORDER(from, ...) \
  check_order(from, (const int64_t[]){__VA_ARGS__}, sizeof((int64_t[]){__VA_ARGS__}) / 8)

PX_TEST(batches_come_in_order) {
  PX_SCOPED(px_dataset) dataset = numbers(10);
  PX_SCOPED(px_loader) plain = loader(dataset, (px_loader_options){.batch_size = 4});
  CHECK_EQ(px_loader_length(plain), 3);
  CHECK_ORDER(plain, 0, 1, 2, 3, -1, 4, 5, 6, 7, -1, 8, 9, -1);
}

PX_TEST(an_incomplete_batch_may_be_dropped) {
  PX_SCOPED(px_dataset) dataset = numbers(10);
  PX_SCOPED(px_loader)
  whole = loader(dataset, (px_loader_options){.batch_size = 4, .drop_last = true});
  CHECK_EQ(px_loader_length(whole), 2);
  CHECK_ORDER(whole, 0, 1, 2, 3, -1, 4, 5, 6, 7, -1);
}

PX_TEST(a_shuffled_iteration_has_pytorchs_order) {
  PX_SCOPED(px_dataset) dataset = numbers(10);
  for (int workers = 0; workers < 4; workers++) {
    px_manual_seed(0);
    PX_SCOPED(px_loader)
    shuffled =
        loader(dataset, (px_loader_options){.batch_size = 4, .shuffle = true, .workers = workers});
    CHECK_ORDER(shuffled, 6, 7, 1, 4, -1, 2, 0, 9, 8, -1, 3, 5, -1);
  }
}

PX_TEST(an_order_may_be_longer_than_its_dataset) {
  static const int64_t wanted[][5] = {{0, 1, 2, 2, 0}, {0, 2, 2, 0, 0}};
  for (int replacement = 0; replacement < 2; replacement++) {
    int64_t order[5];
    px_manual_seed(0);
    OK(px_random_order(order, 3, 5, replacement, NULL));
    for (int i = 0; i < 5; i++) CHECK_EQ(order[i], wanted[replacement][i]);
  }
  FAILS(px_random_order((int64_t[1]){0}, 0, 1, false, NULL), PX_VALUE, "cannot draw 1 samples");
}

PX_TEST(batches_take_rows_of_all_tensors) {
  PX_SCOPED(px_dataset) dataset = numbers(5);
  PX_SCOPED(px_list) item = NULL;
  PX_SCOPED(px_list) rows = NULL;
  int64_t got[2];
  OK(px_dataset_batch(&item, dataset, (int64_t[]){4, 3, 2, 1, 0}, 5));
  px_tensor *tensors[] = {px_list_get(item, 0), px_list_get(item, 0)};
  OK(px_collate_rows(&rows, tensors, 2, (int64_t[]){3, 0}, 2));
  for (int k = 0; k < 2; k++) {
    OK(px_tensor_read(px_list_get(rows, k), got, sizeof got));
    CHECK_EQ(got[0], 1);
    CHECK_EQ(got[1], 4);
  }
  rows = (px_release(rows), NULL);
  FAILS(px_collate_rows(&rows, tensors, 2, (int64_t[]){5}, 1), PX_INDEX, "");
}

PX_TEST(a_generator_continues_across_iterations) {
  PX_SCOPED(px_dataset) dataset = numbers(10);
  PX_SCOPED(px_generator) generator = NULL;
  OK(px_generator_new(&generator, px_cpu()));
  px_generator_seed(generator, 5);
  PX_SCOPED(px_loader)
  shuffled = loader(dataset,
                    (px_loader_options){.batch_size = 4, .shuffle = true, .generator = generator});
  CHECK_ORDER(shuffled, 7, 4, 8, 1, -1, 2, 3, 6, 5, -1, 9, 0, -1);
  CHECK_ORDER(shuffled, 2, 1, 6, 3, -1, 5, 9, 4, 7, -1, 8, 0, -1);
}

PX_TEST(a_random_sampler_draws_a_seed_per_iteration) {
  PX_SCOPED(px_sampler) sampler = NULL;
  int64_t order[10];
  static const int64_t first[] = {6, 9, 0, 7, 3, 5, 4, 2, 1, 8},
                       second[] = {6, 7, 1, 4, 2, 0, 9, 8, 3, 5};
  px_manual_seed(0);
  OK(px_sampler_random(&sampler, 10, NULL));
  CHECK_EQ(px_sampler_length(sampler), 10);
  OK(px_sampler_draw(sampler, order));
  CHECK(!memcmp(order, first, sizeof order));
  OK(px_sampler_draw(sampler, order));
  CHECK(!memcmp(order, second, sizeof order));
}

PX_TEST(a_weighted_sampler_draws_like_multinomial) {
  PX_SCOPED(px_sampler) sampler = NULL;
  PX_SCOPED(px_generator) generator = NULL;
  PX_SCOPED(px_tensor) weights = NULL;
  PX_SCOPED(px_tensor) square = NULL;
  const double values[] = {0.1, 0.9, 0.4, 0.7, 3, 0.6};
  int64_t order[4];
  static const int64_t first[] = {1, 3, 4, 1}, second[] = {4, 4, 2, 4};  // PyTorch's
  OK(px_tensor_from_data(&weights, values, 1, (int64_t[]){6}, PX_FLOAT64, px_cpu()));
  OK(px_tensor_from_data(&square, values, 2, (int64_t[]){2, 3}, PX_FLOAT64, px_cpu()));
  OK(px_generator_new(&generator, px_cpu()));
  px_generator_seed(generator, 3);
  px_sampler *none = NULL;
  FAILS(px_sampler_weighted(&none, square, 4, true, NULL), PX_VALUE,
        "weights should be a 1d sequence but given weights have shape (2, 3)");
  FAILS(px_sampler_weighted(&none, weights, 0, true, NULL), PX_VALUE, "got num_samples=0");
  FAILS(px_sampler_weighted(&none, NULL, 4, true, NULL), PX_TYPE, "`weights` is NULL");
  OK(px_sampler_weighted(&sampler, weights, 4, true, generator));
  OK(px_sampler_draw(sampler, order));
  CHECK(!memcmp(order, first, sizeof order));
  OK(px_sampler_draw(sampler, order));
  CHECK(!memcmp(order, second, sizeof order));
}

PX_TEST(a_random_split_has_pytorchs_parts) {
  PX_SCOPED(px_dataset) dataset = numbers(10);
  px_dataset *parts[2];
  px_manual_seed(0);
  OK(px_dataset_random_split(parts, dataset, (int64_t[]){7, 3}, 2, NULL));
  PX_SCOPED(px_loader) larger = loader(parts[0], (px_loader_options){.batch_size = 7});
  PX_SCOPED(px_loader) rest = loader(parts[1], (px_loader_options){.batch_size = 3});
  CHECK_ORDER(larger, 4, 1, 7, 5, 3, 9, 0, -1);
  CHECK_ORDER(rest, 8, 6, 2, -1);
  px_release(parts[0]), px_release(parts[1]);
  int64_t order[10];
  px_manual_seed(0);
  OK(px_random_permutation(order, 10, NULL));
  CHECK(order[0] == 4 && order[6] == 0 && order[9] == 2);
  FAILS(px_dataset_random_split(parts, dataset, (int64_t[]){7, 4}, 2, NULL), PX_VALUE,
        "Sum of input lengths does not equal the length of the input dataset!");
}

PX_TEST(workers_keep_the_order) {
  PX_SCOPED(px_dataset) dataset = numbers(50);
  int64_t wanted[80], got[80];
  PX_SCOPED(px_loader) alone = loader(dataset, (px_loader_options){.batch_size = 3});
  int count = collect(alone, wanted);
  for (int workers = 1; workers <= 8; workers++) {
    PX_SCOPED(px_loader)
    helped =
        loader(dataset, (px_loader_options){.batch_size = 3, .workers = workers, .prefetch = 1});
    for (int times = 0; times < 3; times++) {
      CHECK_EQ(collect(helped, got), count);
      CHECK(!memcmp(got, wanted, (size_t)count * 8));
    }
  }
}

PX_TEST(an_iteration_may_end_early) {
  PX_SCOPED(px_dataset) dataset = numbers(50);
  PX_SCOPED(px_loader) helped = loader(dataset, (px_loader_options){.batch_size = 1, .workers = 3});
  int64_t objects = px_live_objects(NULL);
  for (int taken = 0; taken < 5; taken++) {
    PX_SCOPED(px_loader_iter) iter = NULL;
    OK(px_loader_start(&iter, helped));
    for (int i = 0; i < taken; i++) {
      PX_SCOPED(px_list) batch = NULL;
      OK(px_loader_next(&batch, iter));
    }
  }
  CHECK_EQ(px_live_objects(NULL), objects);
}

// ---- a dataset of the test: squares; item `broken` fails

typedef struct squares {
  int64_t length, broken;
  int fetched;  // atomic
} squares;

static int64_t squares_length(void *context) { return ((squares *)context)->length; }

static px_status squares_get(px_list **out, int64_t index, void *context) {
  squares *self = context;
  __atomic_add_fetch(&self->fetched, 1, __ATOMIC_RELAXED);
  PX_CHECK(index != self->broken, PX_KEY, "item %lld is broken", (long long)index);
  PX_SCOPED(px_tensor) square = NULL;
  PX_SCOPED(px_tensor) name = NULL;
  int64_t number = index * index, none = 0;
  PX_TRY(px_tensor_from_data(&square, &number, 0, &none, PX_INT64, px_cpu()));
  PX_TRY(px_full(&name, (int64_t[]){2}, 1, px_int(index), PX_FLOAT32, px_cpu(), false, false));
  return px_list_new(out, (px_tensor *[]){square, name}, 2);
}

static const px_dataset_kind squares_kind = {"Squares", squares_length, squares_get, NULL, NULL};

static px_dataset *dataset_of(squares *self) {
  px_dataset *dataset = NULL;
  OK(px_dataset_new(&dataset, &squares_kind, self));
  return dataset;
}

PX_TEST(items_are_stacked) {
  squares self = {5, -1, 0};
  PX_SCOPED(px_dataset) dataset = dataset_of(&self);
  PX_SCOPED(px_loader) from = loader(dataset, (px_loader_options){.batch_size = 5, .workers = 2});
  PX_SCOPED(px_loader_iter) iter = NULL;
  PX_SCOPED(px_list) batch = NULL;
  int64_t values[5];
  OK(px_loader_start(&iter, from));
  OK(px_loader_next(&batch, iter));
  CHECK_EQ(px_list_size(batch), 2);
  OK(px_tensor_read(px_list_get(batch, 0), values, sizeof values));
  CHECK_EQ(values[4], 16);
  CHECK_EQ(px_tensor_ndim(px_list_get(batch, 1)), 2);
  CHECK_EQ(px_tensor_size(px_list_get(batch, 1), 1), 2);
}

PX_TEST(an_items_error_is_returned_by_the_loader) {
  squares self = {6, 3, 0};
  PX_SCOPED(px_dataset) dataset = dataset_of(&self);
  PX_SCOPED(px_loader) from = loader(dataset, (px_loader_options){.batch_size = 2});
  PX_SCOPED(px_loader_iter) iter = NULL;
  px_list *batch = NULL;
  OK(px_loader_start(&iter, from));
  OK(px_loader_next(&batch, iter));
  px_release(batch);
  FAILS(px_loader_next(&batch, iter), PX_KEY, "item 3 is broken");
  CHECK(!batch);
  OK(px_loader_next(&batch, iter));  // the iteration continues after it
  px_release(batch);
}

PX_TEST(an_error_in_a_worker_names_the_worker) {
  squares self = {6, 3, 0};
  PX_SCOPED(px_dataset) dataset = dataset_of(&self);
  PX_SCOPED(px_loader) from = loader(dataset, (px_loader_options){.batch_size = 2, .workers = 1});
  PX_SCOPED(px_loader_iter) iter = NULL;
  px_list *batch = NULL;
  OK(px_loader_start(&iter, from));
  OK(px_loader_next(&batch, iter));
  px_release(batch);
  FAILS(px_loader_next(&batch, iter), PX_KEY,
        "Caught KeyError in DataLoader worker thread 0.\nOriginal error: item 3 is broken");
  CHECK(!batch);
  OK(px_loader_next(&batch, iter));
  px_release(batch);
}

PX_TEST(workers_fetch_no_further_than_prefetch) {
  squares self = {100, -1, 0};
  PX_SCOPED(px_dataset) dataset = dataset_of(&self);
  PX_SCOPED(px_loader)
  from = loader(dataset, (px_loader_options){.batch_size = 1, .workers = 2, .prefetch = 3});
  PX_SCOPED(px_loader_iter) iter = NULL;
  OK(px_loader_start(&iter, from));
  for (int i = 0; i < 200 && __atomic_load_n(&self.fetched, __ATOMIC_RELAXED) < 6; i++)
    usleep(5000);
  usleep(30000);
  CHECK_EQ(__atomic_load_n(&self.fetched, __ATOMIC_RELAXED), 6);
}

PX_TEST(failing_to_start_threads_is_an_error) {
  PX_SCOPED(px_dataset) dataset = numbers(10);
  PX_SCOPED(px_loader) from = loader(dataset, (px_loader_options){.batch_size = 1, .workers = 3});
  int64_t objects = px_live_objects(NULL);
  for (int n = 1; n <= 3; n++) {
    px_loader_iter *iter = NULL;
    OK(px_fault_arm("thread", n, false));
    FAILS(px_loader_start(&iter, from), PX_RUNTIME, "could not start a thread");
    CHECK(!iter);
  }
  px_fault_disarm_all();
  CHECK_EQ(px_live_objects(NULL), objects);
}

PX_TEST(an_iteration_survives_failing_allocations) {
  PX_SCOPED(px_dataset) dataset = numbers(6);
  int64_t unused[16], objects = 0;
  for (int workers = 0; workers < 2; workers++) {
    PX_SCOPED(px_loader)
    from =
        loader(dataset, (px_loader_options){.batch_size = 2, .shuffle = true, .workers = workers});
    collect(from, unused);
    objects = px_live_objects(NULL);
    for (int64_t n = 1, seen = n; seen >= n; n++) {
      PX_SCOPED(px_loader_iter) iter = NULL;
      OK(px_fault_arm("alloc", n, false));
      px_status status = px_loader_start(&iter, from);
      for (int b = 0; b < 3 && status == PX_OK; b++) {
        PX_SCOPED(px_list) batch = NULL;
        status = px_loader_next(&batch, iter);
      }
      px_release(iter), iter = NULL;
      seen = px_fault_seen("alloc");
      px_fault_disarm_all();
      if (status != PX_OK) CHECK(px_error_last()->message[0]);
      CHECK_EQ(px_live_objects(NULL), objects);
    }
  }
}

PX_TEST(indices_out_of_range_are_refused) {
  PX_SCOPED(px_dataset) dataset = numbers(10);
  PX_SCOPED(px_dataset) part = NULL;
  PX_SCOPED(px_list) item = NULL;
  px_scalar number;
  OK(px_dataset_subset(&part, dataset, (int64_t[]){9, 2}, 2));
  CHECK_EQ(px_dataset_length(part), 2);
  OK(px_dataset_get(&item, part, -2));
  OK(px_tensor_item(&number, px_list_get(item, 0)));
  CHECK_EQ(px_scalar_int(number), 9);
  px_list *none = NULL;
  FAILS(px_dataset_get(&none, part, 2), PX_INDEX, "index 2 is out of bounds");
  FAILS(px_dataset_get(&none, part, -3), PX_INDEX, "index -3 is out of bounds");
}

PX_TEST(tensors_of_a_dataset_must_have_one_length) {
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  px_dataset *none = NULL;
  OK(px_zeros(&a, (int64_t[]){3}, 1, PX_FLOAT32, px_cpu(), false, false));
  OK(px_zeros(&b, (int64_t[]){4, 2}, 2, PX_FLOAT32, px_cpu(), false, false));
  FAILS(px_dataset_tensors(&none, (px_tensor *[]){a, b}, 2), PX_ASSERTION,
        "Size mismatch between tensors");
}

PX_TEST(contradicting_options_are_refused) {
  PX_SCOPED(px_dataset) dataset = numbers(3);
  PX_SCOPED(px_sampler) sampler = NULL;
  px_loader *none = NULL;
  OK(px_sampler_sequential(&sampler, 3));
  FAILS(px_loader_new(&none, dataset, &(px_loader_options){.batch_size = -1}), PX_VALUE,
        "batch_size should be a positive integer value, but got batch_size=-1");
  FAILS(px_loader_new(&none, dataset, &(px_loader_options){.workers = -1}), PX_VALUE,
        "num_workers option should be non-negative; use num_workers=0 to disable");
  FAILS(px_loader_new(&none, dataset, &(px_loader_options){.sampler = sampler, .shuffle = true}),
        PX_VALUE, "sampler option is mutually exclusive with shuffle");
}

PX_TEST(items_of_different_shapes_are_not_stacked) {
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  OK(px_zeros(&a, (int64_t[]){1}, 1, PX_FLOAT32, px_cpu(), false, false));
  OK(px_zeros(&b, (int64_t[]){2}, 1, PX_FLOAT32, px_cpu(), false, false));
  PX_SCOPED(px_list) one = NULL;
  PX_SCOPED(px_list) other = NULL;
  PX_SCOPED(px_list) wide = NULL;
  px_list *none = NULL;
  OK(px_list_new(&one, &a, 1));
  OK(px_list_new(&other, &b, 1));
  OK(px_list_new(&wide, (px_tensor *[]){a, b}, 2));
  FAILS(px_collate(&none, (px_list *[]){one, other}, 2), PX_RUNTIME,
        "stack expects each tensor to be equal size, but got [1] at entry 0 and [2] at entry 1");
  FAILS(px_collate(&none, (px_list *[]){one, wide}, 2), PX_RUNTIME,
        "each element in list of batch should be of equal size");
}

PX_TEST(batches_are_pinned_if_there_is_a_device) {
  simulate(1);
  PX_SCOPED(px_dataset) dataset = numbers(4);
  for (int workers = 0; workers < 2; workers++) {
    PX_SCOPED(px_loader)
    from = loader(dataset,
                  (px_loader_options){.batch_size = 4, .pin_memory = true, .workers = workers});
    PX_SCOPED(px_loader_iter) iter = NULL;
    PX_SCOPED(px_list) batch = NULL;
    OK(px_loader_start(&iter, from));
    OK(px_loader_next(&batch, iter));
    CHECK(px_tensor_is_pinned(px_list_get(batch, 0)));
  }
}

// ---- requests that only C callers can make

PX_TEST(a_batch_may_be_larger_than_any_dataset) {
  PX_SCOPED(px_dataset) d = numbers(5);
  for (int workers = 0; workers < 3; workers += 2) {
    PX_SCOPED(px_loader)
    all = loader(d, (px_loader_options){.batch_size = INT64_MAX, .workers = workers});
    PX_SCOPED(px_loader) none = loader(d, (px_loader_options){.batch_size = 6, .drop_last = true});
    CHECK_EQ(px_loader_length(all), 1);
    CHECK_EQ(px_loader_length(none), 0);
    check_order(all, (int64_t[]){0, 1, 2, 3, 4, -1}, 6);
  }
  PX_SCOPED(px_loader) plain = NULL;
  OK(px_loader_new(&plain, d, NULL));  // all defaults
  CHECK_EQ(px_loader_length(plain), 5);
  px_loader_options far = {.workers = 3, .prefetch = INT32_MAX};
  px_loader *refused = NULL;
  FAILS(px_loader_new(&refused, d, &far), PX_VALUE, "cannot prefetch");
}

PX_TEST(a_batch_of_a_subset_ends_where_the_subset_ends) {
  PX_SCOPED(px_dataset) d = numbers(5);
  PX_SCOPED(px_dataset) part = NULL;
  PX_SCOPED(px_sampler) longer = NULL;
  PX_SCOPED(px_list) batch = NULL;
  int64_t last = -1, value;
  OK(px_dataset_subset(&part, d, (int64_t[]){3, 1}, 2));
  FAILS(px_dataset_batch(&batch, part, (int64_t[]){0, 2}, 2), PX_INDEX, "index 2 is out of bounds");
  FAILS(px_dataset_batch(&batch, part, NULL, -1), PX_VALUE,
        "expected a non-negative count of `indices`, got -1");
  OK(px_dataset_batch(&batch, part, &last, 1));
  OK(px_tensor_read(px_list_get(batch, 0), &value, sizeof value));
  CHECK_EQ(value, 1);
  OK(px_sampler_sequential(&longer, 100));
  PX_SCOPED(px_loader)
  over = loader(part, (px_loader_options){.batch_size = 50, .sampler = longer});
  PX_SCOPED(px_loader_iter) iter = NULL;
  px_list *none = NULL;
  OK(px_loader_start(&iter, over));
  FAILS(px_loader_next(&none, iter), PX_INDEX, "index 2 is out of bounds");
}

PX_TEST(negative_counts_are_refused) {
  PX_SCOPED(px_dataset) d = numbers(4);
  px_dataset *parts[3], *made = NULL;
  px_sampler *order = NULL;
  px_tensor *missing = NULL;
  int64_t below[] = {-1, 5}, beyond[] = {INT64_MAX, INT64_MAX, 6};
  FAILS(px_dataset_random_split(parts, d, below, 2, NULL), PX_VALUE, "Sum of input lengths");
  FAILS(px_dataset_random_split(parts, d, beyond, 3, NULL), PX_VALUE, "Sum of input lengths");
  FAILS(px_dataset_subset(&made, d, NULL, -1), PX_VALUE,
        "expected a non-negative count of `indices`, got -1");
  FAILS(px_sampler_sequential(&order, -4), PX_VALUE, "expected a length >= 0, got -4");
  FAILS(px_dataset_tensors(&made, &missing, 1), PX_TYPE, "missing");
  FAILS(px_dataset_new(&made, NULL, NULL), PX_VALUE, "length");
}
