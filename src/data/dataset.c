// SPDX-License-Identifier: Apache-2.0
// Datasets: tensors by rows, subsets, random splits, and collation.
#include "phlox/data.h"
#include "phlox/ops/index.h"
#include "phlox/ops/random.h"
#include "phlox/ops/view.h"

#include <string.h>

struct px_dataset {
  px_object head;
  const px_dataset_kind *kind;
  void *context;
};

static void dataset_destroy(void *object) {
  px_dataset *self = object;
  if (self->kind->release) self->kind->release(self->context);
  px_object_end(self);
  px_free(self);
}

static const px_class dataset_class = {"dataset", dataset_destroy};

px_status px_dataset_new(px_dataset **out, const px_dataset_kind *kind, void *context) {
  PX_GIVEN(out);
  *out = NULL;
  PX_CHECK(kind && kind->length && (kind->get || kind->batch), PX_VALUE,
           "expected a dataset kind with length and get or batch");
  PX_TRY(px_alloc((void **)out, sizeof **out));
  px_object_init(*out, &dataset_class);
  (*out)->kind = kind;
  (*out)->context = context;
  return PX_OK;
}

int64_t px_dataset_length(const px_dataset *self) { return self->kind->length(self->context); }

// Negative indices count from the end.
static px_status index_check(int64_t *at, int64_t index, int64_t length) {
  *at = index < 0 ? index + length : index;
  PX_CHECK(*at >= 0 && *at < length, PX_INDEX,
           "index %lld is out of bounds for dimension 0 with size %lld", (long long)index,
           (long long)length);
  return PX_OK;
}

px_status px_dataset_get(px_list **out, px_dataset *self, int64_t index) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  int64_t at;
  PX_TRY(index_check(&at, index, px_dataset_length(self)));
  return self->kind->get(out, at, self->context);
}

static px_status collate_items(px_list **out, px_dataset *self, const int64_t *indices,
                               int64_t count, px_list **items) {
  for (int64_t i = 0; i < count; i++) PX_TRY(px_dataset_get(&items[i], self, indices[i]));
  return px_collate(out, items, count);
}

px_status px_dataset_batch(px_list **out, px_dataset *self, const int64_t *indices, int64_t count) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  PX_GIVEN_N(indices, count);
  *out = NULL;
  PX_CHECK(count > 0, PX_VALUE, "expected at least one item in a batch, got %lld",
           (long long)count);
  int64_t length = px_dataset_length(self), at;
  bool wrapped = false;  // a kind's own batch function is called with indices in range only
  for (int64_t i = 0; i < count; i++) {
    PX_TRY(index_check(&at, indices[i], length));
    wrapped |= at != indices[i];
  }
  if (self->kind->batch && !wrapped) return self->kind->batch(out, indices, count, self->context);
  px_list **items;
  PX_TRY(px_alloc((void **)&items, (size_t)count * sizeof *items));
  px_status status = collate_items(out, self, indices, count, items);
  for (int64_t i = 0; i < count; i++) px_release(items[i]);
  px_free(items);
  return status;
}

// Makes a list of the tensors on success. Takes the array.
static px_status listed(px_list **out, px_tensor **made_take, int64_t n, px_status status) {
  if (status == PX_OK) status = px_list_new(out, made_take, n);
  for (int64_t i = 0; i < n; i++) px_release(made_take[i]);
  px_free(made_take);
  return status;
}

// ---- rows of tensors: the context is a list

static int64_t rows_length(void *context) { return px_tensor_size(px_list_get(context, 0), 0); }

static px_status rows_get(px_list **out, int64_t index, void *context) {
  px_list *from = context;
  int64_t n = px_list_size(from);
  px_tensor **made;
  PX_TRY(px_alloc((void **)&made, (size_t)n * sizeof *made));
  px_status status = PX_OK;
  for (int64_t i = 0; i < n && status == PX_OK; i++)
    status = px_select(&made[i], px_list_get(from, i), 0, index);
  return listed(out, made, n, status);
}

// The index tensor is created once per device.
static px_status cut_rows(px_tensor **made, px_tensor *const *tensors, int64_t n,
                          const int64_t *indices, int64_t count) {
  PX_SCOPED(px_tensor) index = NULL;
  for (int64_t i = 0; i < n; i++) {
    px_device device = px_tensor_device(tensors[i]);
    if (!index || !px_device_equal(px_tensor_device(index), device)) {
      px_release(index), index = NULL;
      PX_TRY(px_tensor_from_data(&index, indices, 1, &count, PX_INT64, device));
    }
    PX_TRY(px_index_select(&made[i], tensors[i], 0, index));
  }
  return PX_OK;
}

px_status px_collate_rows(px_list **out, px_tensor *const *tensors, int64_t n,
                          const int64_t *indices, int64_t count) {
  PX_GIVEN(out);
  PX_GIVEN_N(tensors, n);
  PX_GIVEN_N(indices, count);
  *out = NULL;
  for (int64_t i = 0; i < n; i++)
    PX_CHECK(tensors[i], PX_TYPE, "tensor %lld of a batch is missing", (long long)i);
  px_tensor **made;
  PX_TRY(px_alloc((void **)&made, (size_t)n * sizeof *made));
  return listed(out, made, n, cut_rows(made, tensors, n, indices, count));
}

static px_status rows_batch(px_list **out, const int64_t *indices, int64_t count, void *context) {
  px_list *from = context;
  return px_collate_rows(out, px_list_items(from), px_list_size(from), indices, count);
}

static const px_dataset_kind rows_kind = {"TensorDataset", rows_length, rows_get, rows_batch,
                                          px_release};

px_status px_dataset_tensors(px_dataset **out, px_tensor *const *tensors, int count) {
  PX_GIVEN(out);
  PX_GIVEN_N(tensors, count);
  *out = NULL;
  for (int i = 0; i < count; i++) {
    PX_CHECK(tensors[i], PX_TYPE, "tensor %d of a dataset is missing", i);
    PX_CHECK(px_tensor_ndim(tensors[i]) > 0 &&
                 px_tensor_size(tensors[i], 0) == px_tensor_size(tensors[0], 0),
             PX_ASSERTION, "Size mismatch between tensors");
  }
  PX_CHECK(count > 0, PX_VALUE, "expected at least one tensor in a dataset, got %d", count);
  PX_SCOPED(px_list) rows = NULL;
  PX_TRY(px_list_new(&rows, tensors, count));
  PX_TRY(px_dataset_new(out, &rows_kind, rows));
  rows = NULL;
  return PX_OK;
}

// ---- subsets

typedef struct subset {
  px_dataset *whole;
  int64_t count;
  int64_t indices[];
} subset;

static int64_t subset_length(void *context) { return ((subset *)context)->count; }

static px_status subset_get(px_list **out, int64_t index, void *context) {
  subset *self = context;
  return px_dataset_get(out, self->whole, self->indices[index]);
}

static px_status subset_batch(px_list **out, const int64_t *indices, int64_t count, void *context) {
  subset *self = context;
  int64_t *mapped;
  PX_TRY(px_alloc((void **)&mapped, (size_t)count * sizeof *mapped));
  for (int64_t i = 0; i < count; i++) mapped[i] = self->indices[indices[i]];
  px_status status = px_dataset_batch(out, self->whole, mapped, count);
  px_free(mapped);
  return status;
}

static void subset_release(void *context) {
  px_release(((subset *)context)->whole);
  px_free(context);
}

static const px_dataset_kind subset_kind = {"Subset", subset_length, subset_get, subset_batch,
                                            subset_release};

px_status px_dataset_subset(px_dataset **out, px_dataset *dataset, const int64_t *indices,
                            int64_t count) {
  PX_GIVEN(out);
  PX_GIVEN(dataset);
  PX_GIVEN_N(indices, count);
  *out = NULL;
  subset *context;
  PX_TRY(px_alloc((void **)&context, sizeof *context + (size_t)count * sizeof *indices));
  context->whole = px_retain(dataset);
  context->count = count;
  if (count) memcpy(context->indices, indices, (size_t)count * sizeof *indices);
  px_status status = px_dataset_new(out, &subset_kind, context);
  if (status != PX_OK) subset_release(context);
  return status;
}

px_status px_random_permutation(int64_t *out, int64_t length, px_generator *generator) {
  PX_GIVEN_N(out, length);
  PX_SCOPED(px_tensor) order = NULL;
  PX_TRY(px_randperm(&order, length, generator, PX_INT64, px_cpu(), false, false));
  return px_tensor_read(order, out, (size_t)length * sizeof *out);
}

static px_status split_at(px_dataset **parts, px_dataset *dataset, const int64_t *lengths,
                          int count, const int64_t *order) {
  for (int i = 0; i < count; i++) {
    PX_TRY(px_dataset_subset(&parts[i], dataset, order, lengths[i]));
    order += lengths[i];
  }
  return PX_OK;
}

px_status px_dataset_random_split(px_dataset **parts, px_dataset *dataset, const int64_t *lengths,
                                  int count, px_generator *generator) {
  PX_GIVEN_N(parts, count);
  PX_GIVEN(dataset);
  PX_GIVEN_N(lengths, count);
  int64_t sum = 0, *order;
  bool sound = true;
  for (int i = 0; i < count; i++) {
    sound &= lengths[i] >= 0 && !__builtin_add_overflow(sum, lengths[i], &sum);
    parts[i] = NULL;
  }
  PX_CHECK(sound && sum == px_dataset_length(dataset), PX_VALUE,
           "Sum of input lengths does not equal the length of the input dataset!");
  PX_TRY(px_alloc((void **)&order, (size_t)sum * sizeof *order));
  px_status status = px_random_permutation(order, sum, generator);
  if (status == PX_OK) status = split_at(parts, dataset, lengths, count, order);
  px_free(order);
  for (int i = 0; i < count && status != PX_OK; i++) px_release(parts[i]), parts[i] = NULL;
  return status;
}

// ---- collation

static px_status stack_column(px_tensor **out, px_list *const *items, int64_t count, int64_t k,
                              px_tensor **column) {
  for (int64_t i = 0; i < count; i++) column[i] = px_list_get(items[i], k);
  return px_stack(out, column, count, 0);
}

px_status px_collate(px_list **out, px_list *const *items, int64_t count) {
  PX_GIVEN(out);
  PX_GIVEN_N(items, count);
  *out = NULL;
  PX_CHECK(count > 0, PX_VALUE, "expected at least one item in a batch, got %lld",
           (long long)count);
  for (int64_t i = 0; i < count; i++)
    PX_CHECK(items[i], PX_TYPE, "item %lld of a batch is missing", (long long)i);
  int64_t width = px_list_size(items[0]);
  for (int64_t i = 1; i < count; i++)
    PX_CHECK(px_list_size(items[i]) == width, PX_RUNTIME,
             "each element in list of batch should be of equal size");
  px_tensor **scratch;  // the results, then one column of items
  PX_TRY(px_alloc((void **)&scratch, (size_t)(width + count) * sizeof *scratch));
  px_status status = PX_OK;
  for (int64_t k = 0; k < width && status == PX_OK; k++)
    status = stack_column(&scratch[k], items, count, k, scratch + width);
  return listed(out, scratch, width, status);
}
