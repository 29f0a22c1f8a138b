// SPDX-License-Identifier: Apache-2.0
// Objects read by some threads while others change them, for programs with their own objects.
//
// A reader is counted, without a lock. All items that it finds in the object stay valid until it
// ends. A change replaces an item by one atomic store and retires the old item. The old item ends
// once no reader can have found it: in px_readers_retire, or when the last such reader ends.
// Readers nest, and a reader may change the object. Threads that change an object exclude each
// other by a lock of the object.
#pragma once
#include "phlox/base.h"
#include "phlox/spin.h"
#ifdef __cplusplus
extern "C" {
#endif

// The head of an item. `end` frees it, without locks held.
typedef struct px_retired {
  struct px_retired *next;
  void (*end)(struct px_retired *self);
  int awaited;  // bit k: readers of counts[k] may use the item
} px_retired;

// Zeroed memory is an object without readers.
typedef struct px_readers {
  int32_t counts[2];    // atomic: running readers by turn
  int32_t turn;         // atomic: counts of new readers
  uint8_t lock;         // guards `retired`
  px_retired *retired;  // atomic
} px_readers;

// Load and store an item of the object, or a number.
#define PX_READ(from) __atomic_load_n(&(from), __ATOMIC_SEQ_CST)
#define PX_PUBLISH(to, value) __atomic_store_n(&(to), value, __ATOMIC_SEQ_CST)

// Ends the retired items without readers.
PX_API void px_readers_sweep(px_readers *self);
// Takes over an item after its replacement. NULL-safe.
PX_API void px_readers_retire(px_readers *self, px_retired *item);

// Begins a reader. px_read_end takes the result. The counts need no locked instructions while the
// process has one thread.
static inline int px_read_begin(px_readers *self) {
  int turn = __atomic_load_n(&self->turn, __ATOMIC_RELAXED);
  int32_t *count = &self->counts[turn];
  if (PX_SINGLE_THREADED)
    __atomic_store_n(count, __atomic_load_n(count, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
  else
    __atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST);
  return turn;
}

static inline void px_read_end(px_readers *self, int turn) {
  int32_t *count = &self->counts[turn & 1], left;
  if (PX_SINGLE_THREADED)
    __atomic_store_n(count, left = __atomic_load_n(count, __ATOMIC_RELAXED) - 1, __ATOMIC_RELAXED);
  else
    left = __atomic_sub_fetch(count, 1, __ATOMIC_SEQ_CST);
  if (!left && PX_READ(self->retired)) px_readers_sweep(self);
}

// `PX_READS(&object->readers);` begins a reader that ends with the scope.
typedef struct px_reader {
  px_readers *of;
  int turn;
} px_reader;
static inline px_reader px_reader_begin(px_readers *of) {
  px_reader reader = {of, px_read_begin(of)};
  return reader;
}
static inline void px_reader_end(const px_reader *self) { px_read_end(self->of, self->turn); }
#define PX_READS(readers) \
  __attribute__((cleanup(px_reader_end))) const px_reader px_reader_ = px_reader_begin(readers)

#ifdef __cplusplus
}
#endif
