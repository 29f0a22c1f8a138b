// SPDX-License-Identifier: Apache-2.0
// DLPack: memory is lent and taken over without a copy, and given back once.
#include "test.h"

#include "phlox/dlpack.h"

static px_tensor *made(px_dtype dtype) {
  px_tensor *t;
  OK(px_tensor_empty(&t, 2, (int64_t[]){2, 3}, dtype, px_cpu()));
  return t;
}

PX_TEST(an_export_shares_memory_and_keeps_it) {
  px_tensor *t = made(PX_FLOAT32);
  void *data = px_tensor_data(t);
  px_dl_managed *managed;
  OK(px_dlpack_export(&managed, t, NULL));
  px_release(t);
  CHECK(managed->dl_tensor.data == data);
  CHECK_EQ(managed->dl_tensor.device.device_type, 1);
  CHECK_EQ(managed->dl_tensor.shape[1], 3);
  CHECK_EQ(managed->dl_tensor.strides[0], 3);
  CHECK_EQ(managed->dl_tensor.dtype.bits, 32);
  managed->deleter(managed);
  CHECK_EQ(px_live_objects("tensor"), 0);
}

PX_TEST(there_and_back_is_the_same_memory) {
  for (int dtype = 0; dtype < PX_DTYPE_COUNT; dtype++) {
    px_tensor *t = made((px_dtype)dtype), *back;
    px_dl_managed *managed;
    OK(px_dlpack_export(&managed, t, NULL));
    OK(px_dlpack_import_take(&back, managed));
    CHECK(px_tensor_data(back) == px_tensor_data(t));
    CHECK_EQ(px_tensor_dtype(back), dtype);
    CHECK_EQ(px_tensor_size(back, 1), 3);
    px_release(t);
    px_release(back);
    CHECK_EQ(px_live_objects("tensor"), 0);
  }
}

PX_TEST(what_phlox_has_not_is_refused_and_stays_the_givers) {
  px_tensor *t = made(PX_FLOAT32), *back;
  px_dl_managed *managed;
  OK(px_dlpack_export(&managed, t, NULL));
  managed->dl_tensor.dtype.code = 5;  // complex
  FAILS(px_dlpack_import_take(&back, managed), PX_RUNTIME, "Unsupported DLPack dtype");
  managed->dl_tensor.dtype.code = 2;
  managed->dl_tensor.device.device_type = 7;  // Vulkan
  FAILS(px_dlpack_import_take(&back, managed), PX_RUNTIME, "Unsupported device_type: 7");
  managed->deleter(managed);
  px_release(t);
}
