// SPDX-License-Identifier: Apache-2.0
// Serialised state of a device generator: seed and offset, 64 bits each, little-endian.
#include "tensor/engine_states.h"

void px__philox_save(uint64_t seed, uint64_t offset, void *state) {
  unsigned char *bytes = state;
  for (int i = 0; i < 8; i++) {
    bytes[i] = (unsigned char)(seed >> 8 * i);
    bytes[8 + i] = (unsigned char)(offset >> 8 * i);
  }
}

px_status px__philox_load(uint64_t *seed, uint64_t *offset, const void *state) {
  const unsigned char *bytes = state;
  *seed = *offset = 0;
  for (int i = 0; i < 8; i++) {
    *seed |= (uint64_t)bytes[i] << 8 * i;
    *offset |= (uint64_t)bytes[8 + i] << 8 * i;
  }
  PX_CHECK(*offset % 4 == 0, PX_RUNTIME, "offset must be a multiple of 4");
  return PX_OK;
}
