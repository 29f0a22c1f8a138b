// SPDX-License-Identifier: Apache-2.0
// Mixed precision: in a region of autocast, ops that gain from it (products, convolutions) compute
// in float16 or bfloat16, and ops that would overflow or lose digits in float32.
//
// Each op's entry has its policy (px_op.autocast). The arguments of a call are cast before anything
// else, and the casts are recorded, so gradients have the dtypes of the parameters. Forms in place
// and with out= are left as they are. The settings belong to the thread; docs/threads.md says which
// threads of the library take them over.
//
// Example:
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

// The settings of a thread, by device type.
typedef struct px_autocast {
  bool enabled[PX_DEVICE_TYPES];
  bool cache;                      // casts of parameters are kept until the outermost region ends
  uint8_t dtype[PX_DEVICE_TYPES];  // px_dtype, the lower one: at first float16, on the CPU bfloat16
} px_autocast;
PX_API px_autocast px_autocast_get(void);
// Sets what px_autocast_get gave, on this thread or on another.
PX_API void px_autocast_set(px_autocast settings);

// Whether there is autocast for a device type: not for meta.
PX_API bool px_autocast_is_available(px_device_type type);
// PX_RUNTIME for a device type without autocast, PX_TYPE for a dtype that is not floating-point.
PX_CALL px_autocast_set_enabled(px_device_type type, bool enabled);
PX_CALL px_autocast_set_dtype(px_device_type type, px_dtype dtype);
PX_API void px_autocast_set_cache_enabled(bool enabled);

// Sets *enabled to false, with a warning, where it cannot be: on the CPU for a dtype other than
// float16 and bfloat16, of type cuda if there is no device.
PX_CALL px_autocast_check(px_device_type type, px_dtype dtype, bool *enabled);
// Begins a region; *before is what px_autocast_exit wants. PX_DTYPE_NONE: the device type's dtype
// as it is set. Regions nest; enabled false makes one where nothing is cast, and so does
// px_autocast_check. Errors as above.
PX_CALL px_autocast_enter(px_autocast *before, px_device_type type, px_dtype dtype, bool enabled);
// Ends it: the settings are those before it, and at the end of the outermost region the cache is
// emptied.
PX_API void px_autocast_exit(px_autocast before);

// The cache has the lower form of each float32 leaf that requires grad and was cast in a region, so
// that a parameter that is used twice is cast once. A parameter that was changed in place is cast
// anew.
PX_API void px_autocast_clear_cache(void);
// Counts regions that px_autocast_enter has not made: adds `by` to the thread's number of regions,
// and gives the sum.
PX_API int px_autocast_nest(int by);

#ifdef __cplusplus
}
#endif
