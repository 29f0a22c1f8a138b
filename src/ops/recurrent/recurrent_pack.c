// SPDX-License-Identifier: Apache-2.0
// Run functions of padded and packed sequences of different lengths. In a packed sequence the rows
// of a time step are contiguous. Both conversions are one index_select of rows.
#include "ops/core/run.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/view.h"
#include "run_functions/recurrent.h"

PX_RUN(pad_sequence) {
  px_tensor *const *all = args->sequences.v.tensors;
  int count = args->sequences.n, done = 0;
  bool left = !strcmp(args->padding_side, "left");
  int64_t longest = 0, pads[2 * PX_MAX_DIMS] = {0};
  px_tensor **padded;
  for (int i = 0; i < count; i++) {
    PX_CHECK(all[i]->ndim > 0, PX_INDEX, "pad_sequence: sequence %d has no dimensions", i);
    PX_CHECK(all[i]->ndim == all[0]->ndim, PX_RUNTIME,
             "pad_sequence: sequence %d has %d dimensions, but the first has %d", i, all[i]->ndim,
             all[0]->ndim);
    for (int d = 1; d < all[i]->ndim; d++)
      PX_CHECK(
          all[i]->sizes[d] == all[0]->sizes[d], PX_RUNTIME,
          "The size of tensor a (%lld) must match the size of tensor b (%lld) at non-singleton "
          "dimension %d",
          (long long)all[0]->sizes[d], (long long)all[i]->sizes[d], d);
    if (all[i]->sizes[0] > longest) longest = all[i]->sizes[0];
  }
  PX_TRY(px_alloc((void **)&padded, (size_t)count * sizeof *padded));
  px_status status = PX_OK;
  for (; done < count && status == PX_OK; done++) {
    int last = 2 * all[done]->ndim - 1;  // pads are listed from the last dimension to the first
    pads[last - left] = longest - all[done]->sizes[0];
    status =
        px_pad(&padded[done], all[done], pads, last + 1, "constant", px_float(args->padding_value));
  }
  if (status == PX_OK)
    status = px_stack(&call->results[0], padded, count, args->batch_first ? 0 : 1);
  for (int i = 0; i < count; i++) px_release(padded[i]);
  px_free(padded);
  return status;
}

// ---- packed

static px_status new_int64(px_tensor **out, int64_t **at, int64_t count) {
  PX_TRY(px_tensor_empty(out, 1, &count, PX_INT64, px_cpu()));
  *at = px__tensor_at(*out);
  return PX_OK;
}

static px_status check_host(const px_tensor *t, const char *name) {
  PX_CHECK(
      t->ndim == 1 && t->dtype == PX_INT64 && t->contiguous && px__tensor_device(t).type == PX_CPU,
      PX_RUNTIME, "'%s' argument should be a 1D CPU int64 tensor, but got %dD %s %s tensor", name,
      t->ndim, px_device_type_name(px__tensor_device(t).type), px_dtype_name((px_dtype)t->dtype));
  return PX_OK;
}

// Selects rows of a tensor by CPU indices.
static px_status rows_of(px_tensor **out, const px_tensor *from, const px_tensor *indices) {
  PX_SCOPED(px_tensor) on_device = NULL;
  PX_TRY(px__tensor_to(&on_device, indices, PX_DTYPE_NONE, px__tensor_device(from)));
  return px_index_select(out, from, 0, on_device);
}

static px_status check_lengths(const int64_t *lengths, int64_t batch, int64_t times) {
  PX_CHECK(lengths[batch - 1] > 0, PX_RUNTIME,
           "Length of all samples has to be greater than 0, but found an element in 'lengths' that "
           "is <= 0");
  for (int64_t k = 1; k < batch; k++)
    PX_CHECK(
        lengths[k] <= lengths[k - 1], PX_RUNTIME,
        "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You "
        "can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to "
        "sidestep this requirement if you do not need ONNX exportability.");
  PX_CHECK(lengths[0] <= times, PX_RUNTIME,
           "Expected lengths of at most %lld, the size of the input, but got %lld",
           (long long)times, (long long)lengths[0]);
  return PX_OK;
}

PX_RUN(pack_padded_sequence) {
  const px_tensor *input = args->input, *given = args->lengths;
  PX_SCOPED(px_tensor) sizes = NULL;
  PX_SCOPED(px_tensor) indices = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  PX_TRY(check_host(given, "lengths"));
  PX_CHECK(input->ndim >= 2, PX_INDEX, "Dimension out of range (input must have 2 dimensions)");
  int64_t times = input->sizes[args->batch_first], batch = input->sizes[!args->batch_first];
  PX_CHECK(input->numel > 0 && batch > 0, PX_RUNTIME, "Cannot pack empty tensors.");
  PX_CHECK(given->numel == batch, PX_RUNTIME,
           "Expected `len(lengths)` to be equal to batch_size, but got %lld (batch_size=%lld)",
           (long long)given->numel, (long long)batch);
  PX_TRY(px__check_not_batched(given));
  const int64_t *length;
  PX_TRY(px__tensor_read(&length, given));
  PX_TRY(check_lengths(length, batch, times));
  int64_t *size, *index, all = 0, last = batch;
  for (int64_t k = 0; k < batch; k++) all += length[k];
  PX_TRY(new_int64(&sizes, &size, length[0]));
  PX_TRY(new_int64(&indices, &index, all));
  for (int64_t t = 0; t < length[0]; t++) {
    while (length[last - 1] <= t) last--;
    size[t] = last;
    for (int64_t k = 0; k < last; k++) *index++ = args->batch_first ? k * times + t : t * batch + k;
  }
  PX_TRY(px_flatten(&rows, input, 0, 1));
  PX_TRY(rows_of(&call->results[0], rows, indices));
  call->results[1] = PX_MOVE(sizes);
  return PX_OK;
}

static px_status check_batch_sizes(const int64_t *sizes, int64_t times, int64_t rows) {
  int64_t sum = 0;
  PX_CHECK(times > 0, PX_RUNTIME,
           "expected batch_sizes with an element for each time step, got none");
  for (int64_t t = 0; t < times; t++) {
    PX_CHECK(sizes[t] > 0 && (t == 0 || sizes[t] <= sizes[t - 1]) && sizes[t] <= rows - sum,
             PX_RUNTIME,
             "batch_sizes[%lld] is %lld, but batch sizes must be positive, non-increasing and sum "
             "to the rows of data",
             (long long)t, (long long)sizes[t]);
    sum += sizes[t];
  }
  PX_CHECK(sum == rows, PX_RUNTIME,
           "expected batch_sizes to sum to the rows of data, got %lld for %lld rows",
           (long long)sum, (long long)rows);
  return PX_OK;
}

// The data with one row of the padding value appended.
static px_status append_padding(px_tensor **out, const px_tensor *data, px_scalar value) {
  PX_SCOPED(px_tensor) row = NULL;
  int64_t sizes[PX_MAX_DIMS];
  px__sizes_copy(sizes, data->sizes, data->ndim);
  sizes[0] = 1;
  PX_TRY(px_full(&row, sizes, data->ndim, value, (px_dtype)data->dtype, px__tensor_device(data),
                 false, false));
  return px_cat(out, (px_tensor *[]){(px_tensor *)data, row}, 2, 0);
}

PX_RUN(pad_packed_sequence) {
  const px_tensor *data = args->data, *sizes = args->batch_sizes;
  PX_SCOPED(px_tensor) indices = NULL;
  PX_SCOPED(px_tensor) lengths = NULL;
  PX_SCOPED(px_tensor) source = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  PX_TRY(check_host(sizes, "batch_sizes"));
  PX_TRY(px__check_not_batched(sizes));
  PX_CHECK(data->ndim >= 1 && data->ndim < PX_MAX_DIMS, PX_RUNTIME,
           "expected data with 1 to %d dimensions, got %d", PX_MAX_DIMS - 1, data->ndim);
  const int64_t *size;
  PX_TRY(px__tensor_read(&size, sizes));
  int64_t times = sizes->numel, total = args->total_length > 0 ? args->total_length : times;
  PX_TRY(check_batch_sizes(size, times, data->sizes[0]));
  PX_CHECK(total >= times, PX_RUNTIME,
           "Expected total_length to be at least the length of the longest sequence in input, but "
           "got total_length=%lld and max sequence length being %lld",
           (long long)total, (long long)times);
  int64_t batch = size[0], *index, *length, first = 0, count;
  PX_CHECK(!__builtin_mul_overflow(total, batch, &count), PX_RUNTIME, "total_length is too large");
  PX_TRY(new_int64(&indices, &index, count));
  PX_TRY(new_int64(&lengths, &length, batch));
  memset(length, 0, (size_t)batch * sizeof *length);
  for (int64_t t = 0; t < total; first += t < times ? size[t] : 0, t++)
    for (int64_t k = 0; k < batch; k++) {
      bool present = t < times && k < size[t];
      index[args->batch_first ? k * total + t : t * batch + k] =
          present ? first + k : data->sizes[0];
      length[k] += present;
    }
  int64_t shape[PX_MAX_DIMS] = {args->batch_first ? batch : total,
                                args->batch_first ? total : batch};
  memcpy(shape + 2, data->sizes + 1, (size_t)(data->ndim - 1) * sizeof *shape);
  PX_TRY(append_padding(&source, data, args->padding_value));
  PX_TRY(rows_of(&rows, source, indices));
  PX_TRY(px_view(&call->results[0], rows, shape, data->ndim + 1));
  call->results[1] = PX_MOVE(lengths);
  return PX_OK;
}
