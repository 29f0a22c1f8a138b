// SPDX-License-Identifier: Apache-2.0
// Indexing by tensors and masks, concatenation and rearrangement: elements, gradients, error texts.
#include "test.h"

#include "ops_help.h"

static px_tensor *leaf(void) {
  px_tensor *m = matrix();
  OK(px_tensor_set_requires_grad(m, true));
  return m;
}
static void backward_of_sum(px_tensor *y) {
  PX_SCOPED(px_tensor) sum = NULL;
  OK(px_sum(&sum, y, NULL, 0, false, PX_DTYPE_NONE));
  OK(px_backward(1, &sum, NULL, false, false));
}

PX_TEST(index_selects_rows_and_accumulates_gradients) {
  PX_SCOPED(px_tensor) m = leaf();
  PX_SCOPED(px_tensor) i = longs(3, 1, 1, -2);
  PX_SCOPED(px_tensor) y = NULL;
  const int64_t dim = 0;
  OK(px_index(&y, m, &i, 1, &dim, 1));
  SHAPE(y, 2, 3, 3);
  IS(y, 9, 3., 4., 5., 3., 4., 5., 0., 1., 2.);
  px_node *node = NULL;
  OK(px_tensor_grad_fn(&node, y));
  CHECK_TEXT(px_node_name(node), "IndexBackward0");
  backward_of_sum(y);
  IS(px_tensor_grad(m), 6, 1., 1., 1., 2., 2., 2.);
}

PX_TEST(index_tensors_broadcast) {
  PX_SCOPED(px_tensor) m = matrix();
  PX_SCOPED(px_tensor) i = longs(2, 0, 1);
  PX_SCOPED(px_tensor) j = longs(2, 2, 0);
  PX_SCOPED(px_tensor) y = NULL;
  px_tensor *both[2] = {i, j};
  const int64_t dims[2] = {0, 1};
  OK(px_index(&y, m, both, 2, dims, 2));
  IS(y, 2, 2., 3.);
}

PX_TEST(separated_index_tensors_move_to_the_front) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) i = longs(5, 0, 1, 0, 1, 0);
  const int64_t sizes[3] = {2, 3, 4}, dims[2] = {0, 2};
  OK(px_zeros(&x, sizes, 3, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false));
  px_tensor *both[2] = {i, i};
  OK(px_index(&y, x, both, 2, dims, 2));
  SHAPE(y, 2, 5, 3);
}

PX_TEST(a_mask_is_an_index) {
  PX_SCOPED(px_tensor) m = leaf();
  PX_SCOPED(px_tensor) mask = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  const int64_t dim = 0;
  OK(px_gt_scalar(&mask, m, px_float(2.5)));
  OK(px_index(&y, m, &mask, 1, &dim, 1));
  IS(y, 3, 3., 4., 5.);
  backward_of_sum(y);
  IS(px_tensor_grad(m), 6, 0., 0., 0., 1., 1., 1.);
}

PX_TEST(invalid_indices_are_named_and_change_nothing) {
  PX_SCOPED(px_tensor) m = matrix();
  PX_SCOPED(px_tensor) i = longs(2, 0, 5);
  PX_SCOPED(px_tensor) nine = floats(1, 9.);
  px_tensor *y = NULL;
  const int64_t dim = 0;
  FAILS(px_index(&y, m, &i, 1, &dim, 1), PX_INDEX,
        "index 5 is out of bounds for dimension 0 with size 2");
  FAILS(px_index_put_(m, &i, 1, &dim, 1, nine, false), PX_INDEX, "index 5 is out of bounds");
  IS(m, 6, 0., 1., 2., 3., 4., 5.);
  PX_SCOPED(px_tensor) f = floats(1, 0.);
  FAILS(px_index(&y, m, &f, 1, &dim, 1), PX_INDEX,
        "tensors used as indices must be long, int, byte or bool tensors");
}

PX_TEST(mismatched_index_shapes_are_named) {
  PX_SCOPED(px_tensor) m = matrix();
  PX_SCOPED(px_tensor) i = longs(2, 0, 1);
  PX_SCOPED(px_tensor) j = longs(3, 0, 1, 2);
  px_tensor *both[2] = {i, j}, *y = NULL;
  const int64_t dims[2] = {0, 1};
  FAILS(px_index(&y, m, both, 2, dims, 2), PX_INDEX,
        "shape mismatch: indexing tensors could not be broadcast together with shapes [2], [3]");
}

PX_TEST(index_put_accumulates_or_replaces) {
  PX_SCOPED(px_tensor) x = floats(3, 0., 0., 0.);
  PX_SCOPED(px_tensor) i = longs(3, 0, 2, 2);
  PX_SCOPED(px_tensor) v = floats(3, 1., 2., 3.);
  const int64_t dim = 0;
  OK(px_index_put_(x, &i, 1, &dim, 1, v, true));
  IS(x, 3, 1., 0., 5.);
  OK(px_index_put_(x, &i, 1, &dim, 1, v, false));
  IS(x, 3, 1., 0., 3.);
}

PX_TEST(the_gradient_of_gather_scatters) {
  PX_SCOPED(px_tensor) m = leaf();
  PX_SCOPED(px_tensor) flat = longs(4, 2, 0, 1, 1);
  PX_SCOPED(px_tensor) i = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  const int64_t sizes[2] = {2, 2};
  OK(px_view(&i, flat, sizes, 2));
  OK(px_gather(&y, m, 1, i, false));
  IS(y, 4, 2., 0., 4., 4.);
  backward_of_sum(y);
  IS(px_tensor_grad(m), 6, 1., 0., 1., 0., 2., 0.);
}

PX_TEST(index_add_scales_by_alpha) {
  PX_SCOPED(px_tensor) x = floats(3, 1., 1., 1.);
  PX_SCOPED(px_tensor) i = longs(2, 2, 2);
  PX_SCOPED(px_tensor) v = floats(2, 1., 2.);
  OK(px_index_add_(x, 0, i, v, px_float(2)));
  IS(x, 3, 1., 1., 7.);
}

PX_TEST(index_add_truncates_alpha_for_integers) {
  PX_SCOPED(px_tensor) x = longs(3, 1, 1, 1);
  PX_SCOPED(px_tensor) i = longs(2, 2, 2);
  PX_SCOPED(px_tensor) v = longs(2, 1, 2);
  PX_SCOPED(px_tensor) y = NULL;
  OK(px_index_add_(x, 0, i, v, px_float(2.75)));
  IS(x, 3, 1., 1., 7.);
  FAILS(px_index_add(&y, x, 0, i, v, px_float(INFINITY)), PX_RUNTIME,
        "value cannot be converted to type int64_t without overflow");
}

PX_TEST(nonzero_returns_a_row_per_element) {
  PX_SCOPED(px_tensor) m = matrix();
  PX_SCOPED(px_tensor) n = NULL;
  OK(px_nonzero(&n, m));
  SHAPE(n, 2, 5, 2);
  IS(n, 10, 0., 1., 0., 2., 1., 0., 1., 1., 1., 2.);
}

PX_TEST(masked_select_has_a_gradient) {
  PX_SCOPED(px_tensor) m = leaf();
  PX_SCOPED(px_tensor) mask = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  OK(px_lt_scalar(&mask, m, px_float(2)));
  OK(px_masked_select(&y, m, mask));
  IS(y, 2, 0., 1.);
  backward_of_sum(y);
  IS(px_tensor_grad(m), 6, 1., 1., 0., 0., 0., 0.);
}

PX_TEST(cat_splits_its_gradient) {
  PX_SCOPED(px_tensor) a = leaf();
  PX_SCOPED(px_tensor) b = leaf();
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) z = NULL;
  px_tensor *both[2] = {a, b};
  OK(px_cat(&y, both, 2, 1));
  SHAPE(y, 2, 2, 6);
  OK(px_mul(&z, y, y));
  backward_of_sum(z);
  IS(px_tensor_grad(b), 6, 0., 2., 4., 6., 8., 10.);
}

// Thirty tensors of one to four columns. `gaps` makes one of them non-contiguous, so that all are
// copied one by one.
static void join_many(px_dtype dtype, bool gaps) {
  enum { MANY = 30, ROWS = 3, COLUMNS = 73 };
  px_tensor *parts[MANY];
  PX_SCOPED(px_tensor) numbers = NULL;
  PX_SCOPED(px_tensor) all = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) joined = NULL;
  OK(px_arange(&numbers, px_int(0), px_int(ROWS * COLUMNS), px_int(1), PX_INT64, PX_DEVICE_NONE,
               false, false));
  OK(px_to(&all, numbers, dtype, PX_DEVICE_NONE, false, false));
  OK(px_reshape(&rows, all, (int64_t[]){ROWS, COLUMNS}, 2));
  for (int64_t k = 0, at = 0; k < MANY; at += k++ % 4 + 1) {
    PX_SCOPED(px_tensor) part = NULL;
    OK(px_narrow(&part, rows, 1, at, k % 4 + 1));
    if (gaps && k == 7)
      parts[k] = PX_MOVE(part);
    else
      OK(px_contiguous(&parts[k], part));
  }
  OK(px_cat(&joined, parts, MANY, 1));
  CHECK(!memcmp(px_tensor_data(joined), px_tensor_data(rows),
                (size_t)(ROWS * COLUMNS) * px_dtype_size(dtype)));
  for (int k = 0; k < MANY; k++) px_release(parts[k]);
}
PX_TEST(cat_of_many_tensors) {
  static const px_dtype dtypes[] = {PX_UINT8, PX_INT16, PX_FLOAT32, PX_INT64, PX_COMPLEX64};
  for (int i = 0; i < 5 * 2; i++) join_many(dtypes[i % 5], i >= 5);
}

PX_TEST(cat_and_stack_name_mismatched_sizes) {
  PX_SCOPED(px_tensor) a = matrix();
  PX_SCOPED(px_tensor) b = floats(2, 1., 2.);
  PX_SCOPED(px_tensor) c = floats(3, 1., 2., 3.);
  px_tensor *y = NULL, *ab[2] = {b, a}, *bc[2] = {b, c};
  FAILS(px_cat(&y, ab, 2, 0), PX_RUNTIME,
        "Tensors must have same number of dimensions: got 1 and 2");
  FAILS(px_stack(&y, bc, 2, 0), PX_RUNTIME,
        "stack expects each tensor to be equal size, but got [2] at entry 0 and [3] at entry 1");
}

PX_TEST(repeat_flip_and_roll) {
  PX_SCOPED(px_tensor) x = floats(3, 1., 2., 3.);
  PX_SCOPED(px_tensor) y = NULL;
  const int64_t repeats[2] = {2, 2}, dim = 0, shift = 1;
  OK(px_repeat(&y, x, repeats, 2));
  SHAPE(y, 2, 2, 6);
  IS(y, 12, 1., 2., 3., 1., 2., 3., 1., 2., 3., 1., 2., 3.);
  px_release(y);
  OK(px_flip(&y, x, &dim, 1));
  IS(y, 3, 3., 2., 1.);
  px_release(y);
  OK(px_roll(&y, x, &shift, 1, &dim, 1));
  IS(y, 3, 3., 1., 2.);
}

PX_TEST(repeat_has_a_gradient) {
  PX_SCOPED(px_tensor) m = leaf();
  PX_SCOPED(px_tensor) y = NULL;
  const int64_t repeats[3] = {2, 1, 3};
  OK(px_repeat(&y, m, repeats, 3));
  backward_of_sum(y);
  IS(px_tensor_grad(m), 6, 6., 6., 6., 6., 6., 6.);
}

PX_TEST(tril_and_triu) {
  PX_SCOPED(px_tensor) m = matrix();
  PX_SCOPED(px_tensor) y = NULL;
  OK(px_tril(&y, m, 0));
  IS(y, 6, 0., 0., 0., 3., 4., 0.);
  px_release(y);
  OK(px_triu(&y, m, 1));
  IS(y, 6, 0., 1., 2., 0., 0., 5.);
  OK(px_tril_(m, -1));
  IS(m, 6, 0., 0., 0., 3., 0., 0.);
}

PX_TEST(embedding_selects_rows_and_accumulates_their_gradient) {
  PX_SCOPED(px_tensor) w = leaf();
  PX_SCOPED(px_tensor) i = longs(3, 1, 0, 1);
  PX_SCOPED(px_tensor) y = NULL;
  OK(px_embedding(&y, i, w, NULL));
  IS(y, 9, 3., 4., 5., 0., 1., 2., 3., 4., 5.);
  backward_of_sum(y);
  IS(px_tensor_grad(w), 6, 1., 1., 1., 2., 2., 2.);
  PX_SCOPED(px_tensor) bad = longs(1, 7);
  px_tensor *none = NULL;
  FAILS(px_embedding(&none, bad, w, NULL), PX_INDEX, "index out of range in self");
}

PX_TEST(sparse_softmax_of_stored_elements) {
  PX_SCOPED(px_tensor) flat = longs(6, 0, 0, 1, 1, 0, 1);  // indices (0, 1), (0, 0) and (1, 1)
  PX_SCOPED(px_tensor) at = NULL;
  PX_SCOPED(px_tensor) values = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) logs = NULL;
  px_tensor *none = NULL;
  const int64_t size[] = {2, 3};
  OK(px_reshape(&at, flat, (int64_t[]){2, 3}, 2));
  OK(px_full(&values, (int64_t[]){3}, 1, px_int(2), PX_FLOAT32, px_cpu(), false, false));
  OK(px_sparse_softmax(&y, at, values, size, 2, 1));
  IS(y, 3, 0.5, 0.5, 1.);
  OK(px_sparse_log_softmax(&logs, at, values, size, 2, 1));
  IS(logs, 3, -0.693147182, -0.693147182, 0.);
  FAILS(px_sparse_softmax(&none, at, values, size, 1, 0), PX_RUNTIME,
        "expected 2 sizes, but got 1");
  FAILS(px_sparse_softmax(&none, flat, values, size, 2, 0), PX_RUNTIME,
        "must be a matrix of int64");
  FAILS(px_sparse_softmax(&none, at, flat, size, 2, 0), PX_RUNTIME, "for each of the 3 columns");
}

PX_TEST(bincount_and_one_hot) {
  PX_SCOPED(px_tensor) x = longs(4, 1, 3, 1, 0);
  PX_SCOPED(px_tensor) y = NULL;
  OK(px_bincount(&y, x, NULL, 0));
  IS(y, 4, 1., 2., 0., 1.);
  px_release(y);
  OK(px_one_hot(&y, x, -1));
  SHAPE(y, 2, 4, 4);
}

PX_TEST(positive_pads_extend_and_negative_pads_crop) {
  PX_SCOPED(px_tensor) m = leaf();
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) edges = NULL;
  px_tensor *none = NULL;
  const int64_t wide[] = {1, -1, 0, 1}, one[] = {2, 1};
  OK(px_constant_pad_nd(&y, m, wide, 4, px_float(7)));
  SHAPE(y, 2, 3, 3);
  IS(y, 9, 7., 0., 1., 7., 3., 4., 7., 7., 7.);
  backward_of_sum(y);
  IS(px_tensor_grad(m), 6, 1., 1., 0., 1., 1., 0.);
  OK(px_pad(&edges, m, one, 2, "reflect", (px_scalar){0}));
  IS(edges, 12, 2., 1., 0., 1., 2., 1., 5., 4., 3., 4., 5., 4.);
  FAILS(px_pad(&none, m, (int64_t[]){3, 0}, 2, "reflect", (px_scalar){0}), PX_RUNTIME,
        "Padding size should be less than the corresponding input dimension, but got: padding "
        "(3, 0) at dimension 1 of input [2, 3]");
}
PX_TEST(pads_at_the_ends_of_int64_are_refused) {
  PX_SCOPED(px_tensor) m = leaf();
  px_tensor *none = NULL;
  const int64_t cut[] = {-1, INT64_MIN, INT64_MIN, INT64_MAX}, grown[] = {INT64_MAX, INT64_MAX};
  for (int i = 0; i < 2; i++)
    FAILS(px_constant_pad_nd(&none, m, cut + 2 * i, 2, px_int(0)), PX_RUNTIME,
          "narrow(): length must be non-negative.");
  FAILS(px_constant_pad_nd(&none, m, grown, 2, px_int(0)), PX_RUNTIME, "is too large");
}

PX_TEST(padding_modes_of_long_rows) {
  static const char *const modes[] = {"reflect", "replicate", "circular"};
  static const int64_t pads[][2] = {{3, 4}, {0, 2}, {5, 0}, {9, 9}};
  PX_SCOPED(px_tensor) x = NULL;
  OK(px_arange(&x, px_int(0), px_int(40), px_int(1), PX_INT64, PX_DEVICE_NONE, false, false));
  PX_SCOPED(px_tensor) rows = NULL;
  OK(px_reshape(&rows, x, (int64_t[]){1, 2, 20}, 3));
  for (int mode = 0; mode < 3; mode++)
    for (int k = 0; k < 4; k++) {
      PX_SCOPED(px_tensor) padded = NULL;
      int64_t before = pads[k][0], width = 20 + before + pads[k][1];
      OK(px_pad(&padded, rows, pads[k], 2, modes[mode], px_int(0)));
      CHECK_EQ(px_tensor_numel(padded), 2 * width);
      const int64_t *got = px_tensor_data(padded);
      for (int64_t i = 0; i < 2 * width; i++) {
        int64_t at = i % width - before;
        if (mode == 0) at = at < 0 ? -at : at > 19 ? 38 - at : at;
        if (mode == 1) at = at < 0 ? 0 : at > 19 ? 19 : at;
        CHECK_EQ(got[i], i / width * 20 + (at + 20) % 20);
      }
    }
}
// Returns the source index of index i in a padded dimension of size `size`.
static int64_t source(int mode, int64_t i, int64_t size) {
  if (mode == 0) return i < 0 ? -i : i >= size ? 2 * (size - 1) - i : i;
  if (mode == 1) return i < 0 ? 0 : i >= size ? size - 1 : i;
  return (i + size) % size;
}
enum { IMAGES = 2, PLANES = 3, HIGH = 4, WIDE = 6 };
// Compares a padded image of numbered elements with the source of each pixel.
static bool is_padded(px_tensor *x, const int64_t *pad, int mode) {
  static const char *const modes[] = {"reflect", "replicate", "circular"};
  PX_SCOPED(px_tensor) padded = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  OK(px_pad(&padded, x, pad, 4, modes[mode], px_int(0)));
  OK(px_clone(&rows, padded, "contiguous_format"));
  const int16_t *got = px_tensor_data(rows);
  int64_t h = HIGH + pad[2] + pad[3], w = WIDE + pad[0] + pad[1];
  bool fine = px_tensor_numel(rows) == IMAGES * PLANES * h * w;
  for (int64_t i = 0; fine && i < IMAGES * PLANES * h * w; i++) {
    int64_t y = source(mode, i / w % h - pad[2], HIGH), z = source(mode, i % w - pad[0], WIDE);
    fine = got[i] == (i / (w * h) * HIGH + y) * WIDE + z;
  }
  return fine;
}
// Images in row-major, channels_last and transposed layout. A negative pad crops.
PX_TEST(padding_modes_of_images_in_any_layout) {
  static const int64_t pads[][4] = {{2, 1, 1, 2}, {0, 0, 2, 0}, {3, 3, 0, 0}, {-1, 2, 1, -2}};
  px_tensor *x[3] = {NULL};
  PX_SCOPED(px_tensor) all = NULL;
  PX_SCOPED(px_tensor) channels_last = NULL;
  PX_SCOPED(px_tensor) transposed = NULL;
  OK(px_arange(&all, px_int(0), px_int(IMAGES * PLANES * HIGH * WIDE), px_int(1), PX_INT16,
               PX_DEVICE_NONE, false, false));
  OK(px_reshape(&x[0], all, (int64_t[]){IMAGES, PLANES, HIGH, WIDE}, 4));
  OK(px_clone(&x[1], x[0], "channels_last"));
  OK(px_transpose(&channels_last, x[0], 2, 3));
  OK(px_clone(&transposed, channels_last, "contiguous_format"));
  OK(px_transpose(&x[2], transposed, 2, 3));
  for (int i = 0; i < 3; i++) {
    for (int k = 0; k < 3 * 4; k++)
      if (k % 3 < 2 || pads[k / 3][0] >= 0) CHECK(is_padded(x[i], pads[k / 3], k % 3));
    px_release(x[i]);
  }
}
PX_TEST(a_too_large_pad_is_named_with_the_input_sizes) {
  PX_SCOPED(px_tensor) x = NULL;
  px_tensor *none = NULL;
  OK(px_zeros(&x, (int64_t[]){1, 2, 3, 4}, 4, PX_FLOAT32, PX_DEVICE_NONE, false, false));
  FAILS(px_pad(&none, x, (int64_t[]){1, 0, 5, 0}, 4, "reflect", px_int(0)), PX_RUNTIME,
        "padding (5, 0) at dimension 2 of input [1, 2, 3, 4]");
}
