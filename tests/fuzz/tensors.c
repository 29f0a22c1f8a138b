// SPDX-License-Identifier: Apache-2.0
// User-provided numbers: indices, sizes and steps of views, and index tensors; and the printed form
// of arbitrary bits.
#include "fuzz.h"

static px_tensor *some_tensor(px_dtype dtype, int max_dims) {
  px_tensor *t = NULL;
  int64_t sizes[5], count = 1;
  int ndim = (int)fuzz_below(max_dims + 1);
  for (int d = 0; d < ndim; d++) count *= sizes[d] = fuzz_one_in(9) ? 0 : 1 + fuzz_below(4);
  unsigned char bytes[8 * 256 * 4] = {0};
  for (int64_t i = 0; i < count * (int64_t)px_dtype_size(dtype); i++)
    bytes[i] = (unsigned char)(dtype == PX_BOOL ? fuzz_below(2) : (int64_t)fuzz_bits());
  OK(px_tensor_from_data(&t, bytes, ndim, sizes, dtype, px_cpu()));
  return t;
}

// Replaces *t by a view with random arguments, if they are valid.
static void view(px_tensor **t) {
  px_tensor *out = NULL;
  int64_t a = fuzz_int(), b = fuzz_int(), c = fuzz_int(), d = fuzz_int(), list[] = {a, b, c};
  px_status status;
  switch (fuzz_below(12)) {
    case 0:
      status = px_select(&out, *t, a, b);
      break;
    case 1:
      status = px_narrow(&out, *t, a, b, c);
      break;
    case 2:
      status = px_slice(&out, *t, a, &b, &c, d);
      break;
    case 3:
      status = px_transpose(&out, *t, a, b);
      break;
    case 4:
      status = px_unsqueeze(&out, *t, a);
      break;
    case 5:
      status = px_reshape(&out, *t, list, fuzz_below(4));
      break;
    case 6:
      status = px_expand(&out, *t, list, fuzz_below(4));
      break;
    case 7:
      status = px_permute(&out, *t, list, fuzz_below(4));
      break;
    case 8:
      status = px_view(&out, *t, list, fuzz_below(4));
      break;
    case 9:
      status = px_flatten(&out, *t, a, b);
      break;
    case 10:
      status = px_unfold(&out, *t, a, b, c);
      break;
    default:
      status = px_squeeze_dim(&out, *t, list, fuzz_below(3));
  }
  if (!fuzz_fine(status)) return;
  px_release(*t);
  *t = out;
}

// Views stay inside their base: a sanitizer catches a sum outside of it.
FUZZ(views) {
  PX_SCOPED(px_tensor) t = some_tensor(PX_INT64, 4);
  PX_SCOPED(px_tensor) copy = NULL;
  for (int64_t n = fuzz_below(5); n > 0; n--) view(&t);
  if (px_tensor_numel(t) <= 1 << 16) fuzz_fine(px_clone(&copy, t, NULL));
}

FUZZ(index_tensors) {
  PX_SCOPED(px_tensor) t = some_tensor(PX_FLOAT32, 3);
  PX_SCOPED(px_tensor) index = NULL;
  PX_SCOPED(px_tensor) out = NULL;
  int64_t indices[4], count = fuzz_below(5), dim = fuzz_int();
  for (int64_t i = 0; i < count; i++) indices[i] = fuzz_int();
  OK(px_tensor_from_data(&index, indices, 1, &count, PX_INT64, px_cpu()));
  switch (fuzz_below(4)) {
    case 0:
      fuzz_fine(px_index_select(&out, t, dim, index));
      break;
    case 1:
      fuzz_fine(px_take(&out, t, index));
      break;
    case 2:
      fuzz_fine(px_gather(&out, t, dim, index, false));
      break;
    default:
      fuzz_fine(px_index(&out, t, (px_tensor *[]){index}, 1, (int64_t[]){0}, 1));
  }
}

// The printed form of arbitrary bits: lines of at most 80 columns, without brackets and the
// trailing comma, and balanced brackets. As in PyTorch, inf and NaN may count as one column, and
// the j of a complex number as none.
enum { LINE = 80 + 6 };
static size_t unlimited(const char *at) {
  size_t sign = *at == '-';
  return strncmp(at + sign, "nan", 3) && strncmp(at + sign, "inf", 3) ? 0 : sign + 2;
}
FUZZ(printing) {
  PX_SCOPED(px_tensor) t = some_tensor((px_dtype)fuzz_below(PX_DTYPE_COUNT), 4);
  char *text = NULL;
  int depth = 0;
  for (int64_t n = fuzz_below(3); n > 0; n--) view(&t);
  if (px_tensor_numel(t) > 1 << 16) return;
  OK(px_tensor_text(&text, t, "tensor("));
  size_t column = 0;
  for (const char *at = text; *at; at++) {
    depth += (*at == '[' || *at == '(') - (*at == ']' || *at == ')');
    at += unlimited(at);
    column = *at == '\n' ? 0 : column + (*at != 'j');
    CHECK(depth >= 0 && column <= LINE);
  }
  CHECK_EQ(depth, 0);
  px_free(text);
}
