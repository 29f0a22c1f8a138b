// SPDX-License-Identifier: Apache-2.0
// Dimensions and counts at their limits: tensors without dimensions and with the most, dimensions
// out of range, lists too short, too long, with duplicates or of an invalid length. Each outcome is
// a value or PyTorch's error. Arrays of fixed length are never indexed out of bounds.
#include "test.h"

#include "devices.h"
#include "hidden.h"
#include "ops_help.h"
#include "phlox/vmap.h"

#define RANGE(first, last) \
  "Dimension out of range (expected to be in range of [" first ", " last "]"
#define TOO_MANY "only tensors with up to 64 dims are supported"

static px_tensor *number(double x) {
  px_tensor *t = NULL;
  OK(px_full(&t, NULL, 0, px_float(x), PX_FLOAT32, px_cpu(), false, false));
  return t;
}
// Ones of size 1 in `ndim` dimensions.
static px_tensor *points(int ndim) {
  int64_t sizes[PX_MAX_DIMS];
  px_tensor *t = NULL;
  for (int d = 0; d < ndim; d++) sizes[d] = 1;
  OK(px_ones(&t, sizes, ndim, PX_FLOAT32, px_cpu(), false, false));
  return t;
}
static const int64_t zeros[PX_MAX_DIMS + 8];
static const int64_t ones[PX_MAX_DIMS + 8] = {[0 ... PX_MAX_DIMS + 7] = 1};

// Begins a map of two samples, and makes batched tensors of two copies.
static void begin(void) {
  int level;
  OK(px_vmap_begin(&level, 2, PX_RANDOMNESS_ERROR));
}
static px_tensor *both(px_tensor *t) {
  PX_SCOPED(px_tensor) stacked = NULL;
  px_tensor *out = NULL;
  OK(px_stack(&stacked, (px_tensor *[]){t, t}, 2, 0));
  OK(px_batch(&out, stacked, 0));
  return out;
}

// ---- _chunk_cat

static px_status chunk_cat(px_tensor **out, px_tensor *t, int64_t dim) {
  return px_op_call(px_op_find("_chunk_cat"), PX_CALL_NEW,
                    (const px_value[]){PX_TS(&t, 1), PX_I(dim), PX_I(2)}, (void **)out);
}

PX_TEST(chunk_cat_refuses_tensors_without_dimensions) {
  PX_SCOPED(px_tensor) t = number(3);
  px_tensor *out = NULL;
  FAILS(chunk_cat(&out, t, 0), PX_RUNTIME, "_chunk_cat expects dim < ndim for all input tensors");
  FAILS(chunk_cat(&out, t, -1), PX_RUNTIME, "_chunk_cat expects dim < ndim for all input tensors");
  FAILS(chunk_cat(&out, t, 1), PX_INDEX, RANGE("-1", "0") ", but got 1)");
}

PX_TEST(chunk_cat_wraps_dimensions_and_refuses_those_out_of_range) {
  PX_SCOPED(px_tensor) t = floats(3, 1., 2., 3.);
  PX_SCOPED(px_tensor) made = NULL;
  px_tensor *out = NULL;
  OK(chunk_cat(&made, t, -1));
  IS(made, 4, 1., 2., 3., 0.);
  FAILS(chunk_cat(&out, t, 1), PX_INDEX, RANGE("-1", "0") ", but got 1)");
  FAILS(chunk_cat(&out, t, -2), PX_INDEX, RANGE("-1", "0") ", but got -2)");
  FAILS(chunk_cat(&out, t, INT64_MIN), PX_INDEX, RANGE("-1", "0"));
}

PX_TEST(chunk_cat_of_64_dimensions_needs_another_dimension) {
  PX_SCOPED(px_tensor) t = points(PX_MAX_DIMS);
  px_tensor *out = NULL;
  FAILS(chunk_cat(&out, t, 63), PX_RUNTIME, TOO_MANY);
}

// ---- lists of dimensions

PX_TEST(masked_reductions_refuse_lists_longer_than_the_dimensions) {
  PX_SCOPED(px_tensor) t = number(3);
  px_tensor *out = NULL;
  FAILS(px_masked_norm(&out, t, px_float(2), zeros, PX_MAX_DIMS + 1, false, PX_DTYPE_NONE, NULL),
        PX_RUNTIME, "dim 0 appears multiple times in the list of dims");
  FAILS(px_masked_sum(&out, t, zeros, PX_MAX_DIMS + 8, false, PX_DTYPE_NONE, NULL), PX_RUNTIME,
        "dim 0 appears multiple times in the list of dims");
}

PX_TEST(fourier_transforms_refuse_repeated_dimensions) {
  PX_SCOPED(px_tensor) t = matrix();
  PX_SCOPED(px_tensor) complex = NULL;
  OK(px_to(&complex, t, PX_COMPLEX64, px_cpu(), false, false));
  px_tensor *out = NULL;
  FAILS(HIDDEN(_fft_r2c, (&out), PX_T(t), PX_IS(zeros, PX_MAX_DIMS + 8), PX_I(0), PX_B(true)),
        PX_RUNTIME, "dim 0 appears multiple times in the list of dims");
  FAILS(HIDDEN(_fft_c2c, (&out), PX_T(complex), PX_IS(zeros, PX_MAX_DIMS + 8), PX_I(0), PX_B(true)),
        PX_RUNTIME, "dim 0 appears multiple times in the list of dims");
}

PX_TEST(tensordot_contracts_no_dimension_of_a_number) {
  PX_SCOPED(px_tensor) t = number(3);
  px_tensor *out = NULL;
  FAILS(px_tensordot(&out, t, t, zeros, 1, zeros, 1), PX_INDEX,
        "Dimension specified as 0 but tensor has no dimensions");
}

PX_TEST(a_dimension_rolls_more_often_than_a_tensor_has_dimensions) {
  PX_SCOPED(px_tensor) x = floats(3, 1., 2., 3.);
  PX_SCOPED(px_tensor) rolled = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_SCOPED(px_tensor) inside = NULL;
  PX_SCOPED(px_tensor) result = NULL;
  PX_SCOPED(px_tensor) weights = floats(3, 1., 10., 100.);
  PX_SCOPED(px_tensor) product = NULL;
  OK(px_tensor_set_requires_grad(x, true));
  OK(px_roll(&rolled, x, ones, PX_MAX_DIMS + 3, zeros, PX_MAX_DIMS + 3));
  IS(rolled, 3, 3., 1., 2.);
  OK(px_mul(&product, rolled, weights));
  OK(px_sum_all(&sum, product, PX_DTYPE_NONE));
  OK(px_backward(1, &sum, NULL, false, false));
  IS(px_tensor_grad(x), 3, 10., 100., 1.);
  begin();
  PX_SCOPED(px_tensor) both_x = both(weights);
  OK(px_roll(&inside, both_x, ones, PX_MAX_DIMS + 3, zeros, PX_MAX_DIMS + 3));
  OK(px_unbatch(&result, inside, 0));
  px_vmap_end();
  IS(result, 6, 100., 1., 10., 100., 1., 10.);
}

// ---- numbers of dimensions

PX_TEST(strides_of_a_view_are_as_many_as_its_sizes) {
  PX_SCOPED(px_tensor) t = matrix();
  px_tensor *out = NULL;
  FAILS(HIDDEN(_as_strided, (&out), PX_T(t), PX_IS(ones, 3), PX_IS(ones, 1), PX_I(0),
               PX_IS(ones, 2), PX_I(0)),
        PX_RUNTIME, "mismatch in length of strides and shape");
}

PX_TEST(cross_entropy_of_a_number_is_an_index_error) {
  PX_SCOPED(px_tensor) x = number(3);
  PX_SCOPED(px_tensor) classes = longs(1, 0);
  px_tensor *out = NULL;
  FAILS(px_cross_entropy(&out, x, x, NULL, -100, "mean", 0), PX_INDEX,
        RANGE("-1", "0") ", but got 1)");
  FAILS(px_cross_entropy(&out, x, classes, NULL, -100, "mean", 0.1), PX_INDEX,
        RANGE("-1", "0") ", but got 1)");
}

PX_TEST(a_wrong_linear_bias_of_many_dimensions_is_named) {
  PX_SCOPED(px_tensor) x = matrix();
  PX_SCOPED(px_tensor) weight = matrix();
  PX_SCOPED(px_tensor) bias = points(PX_MAX_DIMS);
  PX_SCOPED(px_tensor) classes = longs(2, 0, 1);
  px_tensor *out = NULL;
  FAILS(px_linear_cross_entropy(&out, x, weight, classes, bias, NULL, "mean", NULL, 0, NULL),
        PX_RUNTIME, "expected linear_bias shape (2,), got (1, 1, 1");
}

PX_TEST(attention_needs_operands_of_two_dimensions) {
  PX_SCOPED(px_tensor) x = floats(3, 1., 2., 3.);
  px_tensor *out = NULL;
  FAILS(HIDDEN(composed_attention, (&out), PX_T(x), PX_T(x), PX_T(x), PX_NONE(), PX_F(0),
               PX_B(true), PX_F(1), PX_B(false)),
        PX_RUNTIME, "but got query.dim: 1 key.dim: 1 and value.dim: 1 instead.");
}

PX_TEST(segments_of_a_number_are_refused) {
  PX_SCOPED(px_tensor) x = number(3);
  PX_SCOPED(px_tensor) lengths = longs(1, 1);
  px_tensor *out = NULL;
  FAILS(px_segment_reduce(&out, x, "sum", lengths, NULL, NULL, 0, true, px_no_scalar()), PX_RUNTIME,
        "Expected data.dim() >= lengths_value.dim() to be true, but got false.");
  FAILS(px_segment_reduce(&out, x, "sum", NULL, NULL, lengths, 0, true, px_no_scalar()), PX_RUNTIME,
        "Expected data.dim() >= offsets_value.dim() to be true, but got false.");
}

PX_TEST(lengths_of_segments_take_precedence_over_offsets) {
  PX_SCOPED(px_tensor) x = floats(3, 1., 2., 4.);
  PX_SCOPED(px_tensor) lengths = longs(2, 1, 2);
  PX_SCOPED(px_tensor) offsets = NULL;
  PX_SCOPED(px_tensor) sums = NULL;
  OK(px_full(&offsets, NULL, 0, px_int(0), PX_INT64, px_cpu(), false, false));
  OK(px_segment_reduce(&sums, x, "sum", lengths, NULL, offsets, 0, true, px_no_scalar()));
  IS(sums, 2, 1., 6.);
}

PX_TEST(gradients_of_windows_and_embeddings_need_matching_sizes) {
  PX_SCOPED(px_tensor) x = number(3);
  PX_SCOPED(px_tensor) row = longs(1, 0);
  px_tensor *out = NULL;
  FAILS(HIDDEN(unfold_backward, (&out), PX_T(x), PX_IS(NULL, 0), PX_I(0), PX_I(1), PX_I(1)),
        PX_RUNTIME, "do not match a tensor of size []");
  FAILS(HIDDEN(embedding_backward, (&out), PX_T(x), PX_IS(NULL, 0), PX_T(row), PX_NONE()),
        PX_RUNTIME, "a gradient of size [] does not match indices of size [1]");
  FAILS(HIDDEN(embedding_backward, (&out), PX_T(x), PX_IS(ones, 1), PX_T(x), PX_NONE()), PX_RUNTIME,
        "a gradient of size [] does not match indices of size []");
}

// ---- counts and sizes

PX_TEST(lists_of_an_invalid_length_are_refused) {
  PX_SCOPED(px_tensor) t = matrix();
  px_tensor *out = NULL;
  for (int i = 0; i < 3; i++) {
    int64_t count = (int64_t[]){-1, (int64_t)1 << 32, INT64_MIN}[i];
    FAILS(px_view(&out, t, ones, count), PX_TYPE,
          "argument 'size' (position 2) must be tuple of ints, not list of invalid length");
    FAILS(px_sum(&out, t, zeros, count, false, PX_DTYPE_NONE), PX_TYPE,
          "argument 'dim' (position 2) must be tuple of ints, not list of invalid length");
    FAILS(px_cat(&out, &t, count, 0), PX_TYPE,
          "argument 'tensors' (position 1) must be tuple of Tensors, not list of invalid length");
  }
}

PX_TEST(lists_of_tensors_have_a_count_within_memory) {
  PX_SCOPED(px_tensor) t = matrix();
  px_list *out = NULL;
  FAILS(px_list_new(&out, &t, -1), PX_VALUE, "expected a non-negative count of `items`, got -1");
  FAILS(px_list_new(&out, &t, INT64_MAX), PX_NOMEM, "items is too long");
}

PX_TEST(kernels_have_a_largest_number_of_tensors) {
  PX_SCOPED(px_tensor) one = number(1);
  px_tensor *many[PX_MAX_OPERANDS], *out = NULL;
  for (int i = 0; i < PX_MAX_OPERANDS; i++) many[i] = one;
  FAILS(HIDDEN(rprop_numbers, (&out), PX_NONE(), PX_NONE(), PX_TS(many, PX_MAX_OPERANDS), PX_I(1),
               PX_F(0.1), PX_F(0.5), PX_F(1.2), PX_F(0), PX_F(50), PX_F(0), PX_F(0), PX_F(0)),
        PX_VALUE, "rprop_numbers: a kernel can have at most");
}

PX_TEST(page_locked_memory_has_a_largest_size) {
  const int64_t size = INT64_MAX / 4;
  px_tensor *out = NULL;
  simulate(1);
  FAILS(px_tensor_empty_pinned(&out, 1, &size, PX_FLOAT32), PX_NOMEM, "no host has");
}

PX_TEST(factors_of_matrices_without_rows_are_empty) {
  PX_SCOPED(px_tensor) t = NULL;
  PX_SCOPED(px_tensor) factors = NULL;
  PX_SCOPED(px_tensor) pivots = NULL;
  PX_SCOPED(px_tensor) info = NULL;
  OK(px_zeros(&t, (int64_t[]){2, 0, 1}, 3, PX_FLOAT32, px_cpu(), false, false));
  OK(px_linalg_lu_factor_ex(&factors, &pivots, &info, t, true, false));
  SHAPE(factors, 3, 2, 0, 1);
  IS(info, 2, 0., 0.);
}

PX_TEST(shifts_by_invalid_amounts_of_strided_numbers_are_zero) {
  const int64_t values[] = {1, -4, 1, 64, 1, INT64_MIN, 1, 3}, count = 8, step = 2;
  PX_SCOPED(px_tensor) all = NULL;
  PX_SCOPED(px_tensor) units = NULL;
  PX_SCOPED(px_tensor) amounts = NULL;
  PX_SCOPED(px_tensor) shifted = NULL;
  const int64_t first = 1;
  OK(px_tensor_from_data(&all, values, 1, &count, PX_INT64, px_cpu()));
  OK(px_slice(&units, all, 0, NULL, NULL, step));
  OK(px_slice(&amounts, all, 0, &first, NULL, step));
  OK(px_bitwise_left_shift(&shifted, units, amounts));
  IS(shifted, 4, 0., 0., 0., 8.);
}

// ---- inside a map

PX_TEST(batching_rules_receive_tensors_for_numbers) {
  PX_SCOPED(px_tensor) t = matrix();
  begin();
  PX_SCOPED(px_tensor) x = both(t);
  void *out[1] = {NULL};
  FAILS(px_op_call(px_op_find("conv2d"), PX_CALL_NEW, (const px_value[7]){PX_S(px_int(3)), PX_T(x)},
                   out),
        PX_RUNTIME, "conv2d");
  FAILS(px_op_call(px_op_find("index_copy"), PX_CALL_NEW,
                   (const px_value[]){PX_T(x), PX_I(0), PX_S(px_int(1)), PX_T(x)}, out),
        PX_RUNTIME, "index_copy(): Number of indices (1) should be equal to source.size(dim): (2)");
  FAILS(px_op_call(px_op_find("cdist_of_products"), PX_CALL_NEW,
                   (const px_value[]){PX_S(px_int(3)), PX_T(x)}, out),
        PX_UNIMPLEMENTED, "\"cdist_of_products_cpu\" not implemented for 'Long'");
  px_vmap_end();
}

PX_TEST(batching_rules_refuse_absent_index_tensors) {
  PX_SCOPED(px_tensor) t = matrix();
  begin();
  PX_SCOPED(px_tensor) x = both(t);
  px_tensor *out = NULL;
  FAILS(px_index(&out, x, (px_tensor *[]){NULL}, 1, zeros, 1), PX_TYPE,
        "expected Tensor as element 0 in argument 1, but got NoneType");
  px_vmap_end();
}

PX_TEST(indices_inside_a_map_wrap_dimensions) {
  PX_SCOPED(px_tensor) t = matrix();
  PX_SCOPED(px_tensor) columns = longs(2, 2, 0);
  PX_SCOPED(px_tensor) made = NULL;
  PX_SCOPED(px_tensor) result = NULL;
  px_tensor *out = NULL;
  begin();
  PX_SCOPED(px_tensor) x = both(t);
  PX_SCOPED(px_tensor) index = both(columns);
  OK(px_index(&made, x, (px_tensor *[]){columns}, 1, (int64_t[]){-1}, 1));
  OK(px_unbatch(&result, made, 0));
  IS(result, 8, 2., 0., 5., 3., 2., 0., 5., 3.);
  FAILS(px_index(&out, x, (px_tensor *[]){index}, 1, (int64_t[]){-3}, 1), PX_INDEX,
        RANGE("-2", "1") ", but got -3)");
  FAILS(px_index(&out, x, (px_tensor *[]){index}, 1, NULL, 0), PX_VALUE,
        "index(): expected a dimension for each index tensor");
  px_vmap_end();
}

PX_TEST(in_place_calls_inside_a_map_promote_batched_numbers) {
  PX_SCOPED(px_tensor) one = number(1.5);
  PX_SCOPED(px_tensor) ints = longs(2, 1, 2);
  PX_SCOPED(px_tensor) result = NULL;
  begin();
  PX_SCOPED(px_tensor) x = both(one);
  PX_SCOPED(px_tensor) self = both(ints);
  FAILS(px_xlogy_(self, x), PX_RUNTIME,
        "result type Float can't be cast to the desired output type Long");
  OK(px_lt_(self, x));
  OK(px_unbatch(&result, self, 0));
  IS(result, 4, 1., 0., 1., 0.);
  px_vmap_end();
}

PX_TEST(a_failed_call_inside_a_map_leaves_out_unchanged) {
  PX_SCOPED(px_tensor) t = matrix();
  PX_SCOPED(px_tensor) out = floats(3, 1., 2., 3.);
  begin();
  PX_SCOPED(px_tensor) x = both(t);
  CHECK(px_polygamma_out(out, 2, x) != PX_OK);
  CHECK(px_mode_out(out, NULL, x, 1, false) != PX_OK);
  px_vmap_end();
  IS(out, 3, 1., 2., 3.);
}

PX_TEST(sizes_of_batched_gradients_have_limits) {
  PX_SCOPED(px_tensor) t = NULL;
  OK(px_ones(&t, (const int64_t[]){1, 1, 1, 1}, 4, PX_FLOAT32, px_cpu(), false, false));
  begin();
  PX_SCOPED(px_tensor) x = both(t);
  px_tensor *out = NULL;
  FAILS(HIDDEN(conv2d_backward_input, (&out), PX_T(x), PX_T(t), PX_IS(ones, PX_MAX_DIMS + 1),
               PX_IS(ones, 1), PX_IS(zeros, 1), PX_IS(ones, 1), PX_I(1), PX_NONE()),
        PX_RUNTIME, TOO_MANY);
  FAILS(HIDDEN(conv2d_backward_input, (&out), PX_T(x), PX_T(t), PX_IS(NULL, 0), PX_IS(ones, 1),
               PX_IS(zeros, 1), PX_IS(ones, 1), PX_I(1), PX_NONE()),
        PX_RUNTIME, "expected at least 1 sizes, got 0");
  px_vmap_end();
}

PX_TEST(results_inside_a_map_have_its_batch_dimension) {
  PX_SCOPED(px_tensor) t = floats(2, 1., 2.);
  begin();
  PX_SCOPED(px_tensor) x = both(t);
  px_tensor *values = NULL, *vectors = NULL;
  CHECK(HIDDEN(_linalg_eig, (&values, &vectors), PX_T(x), PX_B(false)) != PX_OK);
  px_vmap_end();
}
