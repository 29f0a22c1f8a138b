// SPDX-License-Identifier: Apache-2.0
// Factories: values, result dtypes and error texts.
#include "test.h"

#include "ops_help.h"

#define PLAIN PX_DTYPE_NONE, PX_DEVICE_NONE, false, false

PX_TEST(full_takes_the_dtype_of_its_value) {
  PX_SCOPED(px_tensor) i = NULL;
  PX_SCOPED(px_tensor) f = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  const int64_t two = 2;
  OK(px_full(&i, &two, 1, px_int(7), PLAIN));
  OK(px_full(&f, &two, 1, px_float(7), PLAIN));
  OK(px_full(&b, &two, 1, px_bool(true), PLAIN));
  CHECK_EQ(px_tensor_dtype(i), PX_INT64);
  CHECK_EQ(px_tensor_dtype(f), PX_FLOAT32);
  CHECK_EQ(px_tensor_dtype(b), PX_BOOL);
  IS(i, 2, 7., 7.);
}

PX_TEST(arange_includes_start_and_excludes_end) {
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  PX_SCOPED(px_tensor) c = NULL;
  OK(px_arange(&a, px_int(3), (px_scalar){0}, px_int(1), PLAIN));
  CHECK_EQ(px_tensor_dtype(a), PX_INT64);
  IS(a, 3, 0., 1., 2.);
  OK(px_arange(&b, px_int(5), px_int(0), px_int(-2), PLAIN));
  IS(b, 3, 5., 3., 1.);
  OK(px_arange(&c, px_float(0), px_float(1), px_float(0.3), PLAIN));
  CHECK_EQ(px_tensor_dtype(c), PX_FLOAT32);
  IS(c, 4, 0., 0.3, 0.6, 0.9);
}

PX_TEST(linspace_and_eye) {
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) e = NULL;
  const int64_t three = 3;
  OK(px_linspace(&a, px_int(0), px_int(1), 5, PLAIN));
  IS(a, 5, 0., 0.25, 0.5, 0.75, 1.);
  OK(px_eye(&e, 2, &three, PLAIN));
  IS(e, 6, 1., 0., 0., 0., 1., 0.);
}

PX_TEST(tril_and_triu_indices) {
  PX_SCOPED(px_tensor) low = NULL;
  PX_SCOPED(px_tensor) high = NULL;
  PX_SCOPED(px_tensor) corner = NULL;
  PX_SCOPED(px_tensor) none = NULL;
  px_tensor *t = NULL;
  OK(px_tril_indices(&low, 3, 2, 0, PLAIN));
  CHECK_EQ(px_tensor_dtype(low), PX_INT64);
  IS(low, 10, 0., 1., 1., 2., 2., 0., 0., 1., 0., 1.);
  OK(px_triu_indices(&high, 3, 2, 1, PX_INT32, PX_DEVICE_NONE, false, false));
  CHECK_EQ(px_tensor_dtype(high), PX_INT32);
  IS(high, 2, 0., 1.);
  OK(px_tril_indices(&corner, INT64_C(1) << 60, 1, 1 - (INT64_C(1) << 60), PLAIN));
  IS(corner, 2, (double)((INT64_C(1) << 60) - 1), 0.);
  OK(px_tril_indices(&none, 2, 3, INT64_MIN, PLAIN));
  CHECK_EQ(px_tensor_numel(none), 0);
  FAILS(px_tril_indices(&t, -1, 3, 0, PLAIN), PX_RUNTIME, "row must be non-negative, got-1");
  FAILS(px_triu_indices(&t, 1, -3, 0, PLAIN), PX_RUNTIME, "col must be non-negative, got-3");
  FAILS(px_triu_indices(&t, INT64_MAX, 3, 0, PLAIN), PX_RUNTIME, "possible overflow");
  FAILS(px_triu_indices(&t, 2, 3, 0, PX_FLOAT32, PX_DEVICE_NONE, false, false), PX_UNIMPLEMENTED,
        "\"triu_indices\" not implemented for 'Float'");
}

PX_TEST(like_factories_take_dtype_and_shape_of_self) {
  PX_SCOPED(px_tensor) i = longs(3, 1, 2, 3);
  PX_SCOPED(px_tensor) o = NULL;
  PX_SCOPED(px_tensor) n = NULL;
  const int64_t two = 2;
  OK(px_ones_like(&o, i, PLAIN, NULL));
  CHECK_EQ(px_tensor_dtype(o), PX_INT64);
  IS(o, 3, 1., 1., 1.);
  OK(px_new_full(&n, i, &two, 1, px_float(0.3), PLAIN));
  IS(n, 2, 0., 0.);
}

PX_TEST(invalid_sizes_are_named) {
  px_tensor *t = NULL;
  const int64_t negative = -1, huge = (int64_t)1 << 62;
  FAILS(px_empty(&t, &negative, 1, PLAIN, NULL), PX_RUNTIME,
        "Trying to create tensor with negative dimension -1: [-1]");
  FAILS(px_empty(&t, &huge, 1, PLAIN, NULL), PX_RUNTIME,
        "Storage size calculation overflowed with sizes=[4611686018427387904]");
  FAILS(px_arange(&t, px_int(0), px_int(1), px_int(0), PLAIN), PX_RUNTIME, "step must be nonzero");
  FAILS(px_arange(&t, px_int(INT64_MIN), px_int(INT64_MAX), px_int(1), PLAIN), PX_RUNTIME,
        "invalid size, possible overflow?");
}

PX_TEST(only_floats_can_require_gradients) {
  PX_SCOPED(px_tensor) x = NULL;
  px_tensor *t = NULL;
  const int64_t two = 2;
  OK(px_zeros(&x, &two, 1, PX_DTYPE_NONE, PX_DEVICE_NONE, false, true));
  CHECK(px_tensor_requires_grad(x) && px_tensor_is_leaf(x) && px_tensor_version(x) == 0);
  FAILS(px_zeros(&t, &two, 1, PX_INT64, PX_DEVICE_NONE, false, true), PX_RUNTIME,
        "Only Tensors of floating point and complex dtype can require gradients");
}

PX_TEST(filled_tensors_keep_dtype_and_shape_of_self) {
  PX_SCOPED(px_tensor) i = longs(3, 1, 2, 3);
  PX_SCOPED(px_tensor) value = floats(1, 2.5);
  PX_SCOPED(px_tensor) alone = NULL;
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  px_tensor *none = NULL;
  OK(px_filled(&a, i, px_float(7.9)));
  CHECK_EQ(px_tensor_dtype(a), PX_INT64);
  IS(a, 3, 7., 7., 7.);
  FAILS(px_filled_tensor(&none, i, value), PX_RUNTIME,
        "fill_ only supports 0-dimension value tensor but got tensor with 1 dimensions.");
  OK(px_squeeze(&alone, value));
  OK(px_filled_tensor(&b, i, alone));
  IS(b, 3, 2., 2., 2.);
  OK(px_fill_tensor_(i, alone));
  IS(i, 3, 2., 2., 2.);
}

// Large enough that one element is computed and copied to the others.
PX_TEST(full_sets_all_elements_of_any_dtype) {
  static const int64_t sizes[] = {30, 41};
  for (int dtype = 0; dtype < PX_DTYPE_COMPUTED; dtype++) {
    PX_SCOPED(px_tensor) t = NULL;
    OK(px_full(&t, sizes, 2, px_int(3), (px_dtype)dtype, PX_DEVICE_NONE, false, false));
    for (int round = 0; round < 2; round++) {
      const char *at = px_tensor_data(t);
      double wanted = round ? 0 : dtype == PX_BOOL ? 1 : 3;
      for (int64_t i = 0; i < 30 * 41; i++, at += px_dtype_size((px_dtype)dtype))
        CHECK_NEAR(px_scalar_float(px_scalar_load((px_dtype)dtype, at)), wanted, 0);
      if (round == 0) OK(px_zero_(t));
    }
  }
}
