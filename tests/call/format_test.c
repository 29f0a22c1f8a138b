// SPDX-License-Identifier: Apache-2.0
// Memory formats: detection, conversion, and the format of results.
#include "test.h"

#include "ops_help.h"

static const px_memory_format LAST = PX_FORMAT_CHANNELS_LAST;

static px_tensor *image(const int64_t *sizes, px_memory_format format) {
  px_tensor *t = NULL;
  OK(px_tensor_empty_format(&t, 4, sizes, format, PX_FLOAT32, px_cpu()));
  OK(px_uniform_(t, -1, 1, NULL));
  return t;
}
static bool has_strides(const px_tensor *t, int64_t a, int64_t b, int64_t c, int64_t d) {
  const int64_t *s = px_tensor_strides(t);
  return px_tensor_ndim(t) == 4 && s[0] == a && s[1] == b && s[2] == c && s[3] == d;
}

PX_TEST(format_names_parse_back) {
  for (int i = PX_FORMAT_CONTIGUOUS; i <= PX_FORMAT_CHANNELS_LAST_3D; i++) {
    px_memory_format format;
    OK(px_memory_format_parse(&format, px_memory_format_name((px_memory_format)i)));
    CHECK_EQ(format, i);
  }
  px_memory_format format;
  FAILS(px_memory_format_parse(&format, "nhwc"), PX_VALUE, "memory_format must be");
}

PX_TEST(channels_last_makes_channels_contiguous) {
  PX_SCOPED(px_tensor) x = image((int64_t[]){2, 3, 4, 5}, LAST);
  CHECK(has_strides(x, 60, 1, 15, 3));
  CHECK(px_tensor_has_format(x, LAST) && !px_tensor_has_format(x, PX_FORMAT_CONTIGUOUS));
  CHECK(px_tensor_is_dense(x) && px_tensor_suggest_format(x) == LAST);
}

PX_TEST(strides_of_size_one_dimensions_decide_the_format) {
  const int64_t channel[] = {2, 1, 4, 5}, pixel[] = {2, 3, 1, 1}, none[] = {2, 1, 1, 1};
  const int64_t *const sizes[] = {channel, pixel, none};
  for (int i = 0; i < 3; i++) {
    PX_SCOPED(px_tensor) last = image(sizes[i], LAST);
    PX_SCOPED(px_tensor) first = image(sizes[i], PX_FORMAT_CONTIGUOUS);
    CHECK(px_tensor_has_format(last, PX_FORMAT_CONTIGUOUS) && px_tensor_has_format(first, LAST));
    CHECK_EQ(px_tensor_suggest_format(first), PX_FORMAT_CONTIGUOUS);
    CHECK_EQ(px_tensor_suggest_format(last), i < 2 ? LAST : PX_FORMAT_CONTIGUOUS);
  }
}

PX_TEST(formats_require_their_rank) {
  px_tensor *t = NULL;
  FAILS(px_tensor_empty_format(&t, 3, (int64_t[]){1, 2, 3}, LAST, PX_FLOAT32, px_cpu()), PX_RUNTIME,
        "required rank 4 tensor to use channels_last format");
  FAILS(px_tensor_empty_format(&t, 4, (int64_t[]){1, 2, 3, 4}, PX_FORMAT_CHANNELS_LAST_3D,
                               PX_FLOAT32, px_cpu()),
        PX_RUNTIME, "required rank 5 tensor to use channels_last_3d format");
  FAILS(px_tensor_empty_format(&t, 1, (int64_t[]){2}, (px_memory_format)9, PX_FLOAT32, px_cpu()),
        PX_VALUE, "invalid memory format 9");
  CHECK(t == NULL);
}

PX_TEST(a_tensor_in_the_requested_format_is_not_copied) {
  PX_SCOPED(px_tensor) x = image((int64_t[]){2, 3, 4, 5}, PX_FORMAT_CONTIGUOUS);
  PX_SCOPED(px_tensor) same = NULL;
  PX_SCOPED(px_tensor) last = NULL;
  PX_SCOPED(px_tensor) again = NULL;
  px_tensor *none = NULL;
  OK(px_contiguous_in(&same, x, "contiguous_format"));
  OK(px_contiguous_in(&last, x, "channels_last"));
  OK(px_to_format(&again, last, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, "channels_last"));
  CHECK(same == x && last != x && again == last && px_tensor_has_format(last, LAST));
  CHECK(max_difference(x, last) == 0);
  FAILS(px_contiguous_in(&none, last, "preserve_format"), PX_RUNTIME,
        "preserve memory format is unsupported by the contiguous operator");
}

PX_TEST(results_follow_the_format_of_the_first_full_operand) {
  PX_SCOPED(px_tensor) a = image((int64_t[]){2, 3, 4, 5}, LAST);
  PX_SCOPED(px_tensor) b = image((int64_t[]){2, 3, 4, 5}, PX_FORMAT_CONTIGUOUS);
  PX_SCOPED(px_tensor) bias = image((int64_t[]){1, 3, 1, 1}, PX_FORMAT_CONTIGUOUS);
  PX_SCOPED(px_tensor) ab = NULL;
  PX_SCOPED(px_tensor) ba = NULL;
  PX_SCOPED(px_tensor) shifted = NULL;
  OK(px_add(&ab, a, b, px_int(1)));
  OK(px_add(&ba, b, a, px_int(1)));
  OK(px_add(&shifted, bias, a, px_int(1)));
  CHECK(px_tensor_has_format(ab, LAST) && px_tensor_is_contiguous(ba));
  CHECK(max_difference(ab, ba) == 0 && px_tensor_has_format(shifted, LAST));
}

PX_TEST(a_convolution_follows_a_channels_last_weight) {
  PX_SCOPED(px_tensor) x = image((int64_t[]){2, 3, 6, 5}, PX_FORMAT_CONTIGUOUS);
  PX_SCOPED(px_tensor) w = image((int64_t[]){4, 3, 3, 3}, PX_FORMAT_CONTIGUOUS);
  PX_SCOPED(px_tensor) last = NULL;
  PX_SCOPED(px_tensor) plain = NULL;
  PX_SCOPED(px_tensor) formed = NULL;
  const int64_t one = 1, none = 0;
  OK(px_contiguous_in(&last, w, "channels_last"));
  OK(px_conv2d(&plain, x, w, NULL, &one, 1, &none, 1, &one, 1, 1));
  OK(px_conv2d(&formed, x, last, NULL, &one, 1, &none, 1, &one, 1, 1));
  CHECK(px_tensor_is_contiguous(plain) && px_tensor_has_format(formed, LAST));
  CHECK(max_difference(plain, formed) == 0);
}
