// SPDX-License-Identifier: Apache-2.0
// Mixed precision. Inside an autocast region, ops that gain from it (matrix products, convolutions)
// compute in float16 or bfloat16. Ops that would overflow or lose digits compute in float32.
//
// px_op.autocast holds the policy of each op. A call casts its arguments before anything else, and
// records the casts: gradients have the dtypes of the parameters. In-place and out= calls are not
// cast. Settings are per thread; docs/reference/threads.md lists the library threads that inherit
// them. Example:
//   px_autocast before;
//   PX_TRY(px_autocast_enter(&before, PX_CUDA, PX_FLOAT16, true));
//   px_status status = px_module_call(&loss, model, input);
//   px_autocast_exit(before);
//   PX_TRY(status);
#pragma once
#include "phlox/device.h"
#include "phlox/dtype.h"
#ifdef __cplusplus
extern "C" {
#endif

// The autocast settings of a thread, indexed by device type.
typedef struct px_autocast {
  bool enabled[PX_DEVICE_TYPES];
  bool cache;                      // keep casts of parameters until the outermost region ends
  uint8_t dtype[PX_DEVICE_TYPES];  // lower px_dtype. Default: float16, on the CPU bfloat16
} px_autocast;
PX_API px_autocast px_autocast_get(void);
// Restores settings from px_autocast_get, on this thread or another.
PX_API void px_autocast_set(px_autocast settings);

// True if the device type supports autocast: all types but meta.
PX_API bool px_autocast_is_available(px_device_type type);
// Set the calling thread's settings of one device type. PX_RUNTIME for a type without autocast,
// PX_TYPE for a dtype that is not floating-point.
PX_CALL px_autocast_set_enabled(px_device_type type, bool enabled);
PX_CALL px_autocast_set_dtype(px_device_type type, px_dtype dtype);
PX_API void px_autocast_set_cache_enabled(bool enabled);

// Validates a region. Sets *enabled to false, with a warning, if autocast is not possible: on the
// CPU with a dtype other than float16 and bfloat16, and for cuda without a device.
PX_CALL px_autocast_check(px_device_type type, px_dtype dtype, bool *enabled);
// Begins a region and saves the previous settings in *before, for px_autocast_exit. dtype
// PX_DTYPE_NONE uses the current dtype of the device type. Regions nest. A region casts nothing if
// `enabled` is false or px_autocast_check disables it. Errors as px_autocast_set_enabled and
// px_autocast_set_dtype.
PX_CALL px_autocast_enter(px_autocast *before, px_device_type type, px_dtype dtype, bool enabled);
// Ends a region and restores the settings from before it. The end of the outermost region clears
// the cache.
PX_API void px_autocast_exit(px_autocast before);

// Clears the cache of casts. It holds the lower-precision copy of each float32 leaf that requires
// grad, so a parameter used twice in a region is cast once. A parameter changed in place is cast
// again.
PX_API void px_autocast_clear_cache(void);
// Counts regions opened by other means than px_autocast_enter: adds `by` to the thread's nesting
// depth and returns the new depth.
PX_API int px_autocast_nest(int by);

#ifdef __cplusplus
}
#endif
