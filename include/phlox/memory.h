// SPDX-License-Identifier: Apache-2.0
// Memory of devices: statistics by PyTorch's names, the cache, limits.
//
// A tensor's memory is returned when its last reference goes; the allocator keeps it for the next
// request and hands it out again only where that is safe: on the same stream, or after the uses on
// other streams that the call path marked.
#pragma once
#include "phlox/stream.h"
#ifdef __cplusplus
extern "C" {
#endif

// One statistic: PyTorch's key "allocated_bytes.all.current" and its value.
typedef struct px_memory_stat {
  char key[64];
  int64_t value;
} px_memory_stat;
// Calls `each` for every statistic of a device in PyTorch's order; nothing before initialisation.
PX_CALL px_memory_stats(int device, void (*each)(const px_memory_stat *stat, void *context),
                        void *context);
// The same for pinned host memory.
PX_CALL px_memory_host_stats(void (*each)(const px_memory_stat *stat, void *context),
                             void *context);
// One value by key; 0 before initialisation. PX_KEY if there is no such key.
PX_CALL px_memory_stat_get(int64_t *out, int device, const char *key);
PX_API int64_t px_memory_allocated(int device);  // bytes in live blocks
PX_API int64_t px_memory_allocated_peak(int device);
PX_API int64_t px_memory_reserved(int device);  // bytes taken from the device
PX_API int64_t px_memory_reserved_peak(int device);
PX_CALL px_memory_reset_peak(int device);
PX_CALL px_memory_reset_accumulated(int device);
// Returns unused memory to all devices (nothing before initialisation), or pinned memory to the
// system.
PX_CALL px_memory_empty_cache(void);
PX_CALL px_memory_empty_host_cache(void);
// Limits what Phlox takes of a device to `fraction` (0 to 1) of its memory. PX_VALUE out of range.
PX_CALL px_memory_set_fraction(double fraction, int device);
// Sets the allocator up from a text in the form of PYTORCH_CUDA_ALLOC_CONF; what it does not name
// goes back to its default. Warns of keys that have no effect. PX_VALUE with PyTorch's texts;
// nothing is changed then.
PX_CALL px_memory_configure(const char *text);
// Every segment and block of a device, for memory_snapshot().
typedef struct px_memory_block {
  int64_t segment_address, segment_size, address, size, requested;
  int64_t stream;
  bool small_pool;
  const char *state;  // "active_allocated" "active_pending_free" "inactive"
} px_memory_block;
PX_CALL px_memory_snapshot(int device, void (*each)(const px_memory_block *block, void *context),
                           void *context);

// The race checker. Level 0 off, 1 on; a report is an error of code PX_RUNTIME at the offending
// call when `raise`, and is kept for px_race_report either way.
PX_API void px_race_enable(int level, bool raise);
PX_API int px_race_level(void);
PX_API int64_t px_race_count(void);
// Text of the i-th report since px_race_clear, or NULL.
PX_API const char *px_race_report(int64_t i);
PX_API void px_race_clear(void);
// Where the next launches of this thread come from, for reports and device errors: a static or
// interned string and a line. The Python extension sets the caller's frame. NULL clears.
PX_API void px_site_set(const char *file, int line);
// Asks the embedding language for the site when one is needed; called at launch only while races or
// errors are tracked.
PX_API void px_site_set_source(void (*source)(const char **file, int *line));
// The calling thread's site, *file NULL where none is known.
PX_API void px_site_get(const char **file, int *line);

#ifdef __cplusplus
}
#endif
