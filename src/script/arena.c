// SPDX-License-Identifier: Apache-2.0
// Memory of syntax trees, until the end of the script.
#include "script/script_impl.h"

enum { ARENA_BLOCK = 1 << 14 };
struct px__arena_block {
  px__arena_block *next;
  size_t used, size;
  _Alignas(16) char bytes[];
};

px_status px__arena_alloc(void **out, px_script *script, size_t bytes) {
  px__arena_block *block = script->arena;
  bytes = (bytes + 15) & ~(size_t)15;
  if (!block || block->size - block->used < bytes) {
    size_t size = bytes > ARENA_BLOCK ? bytes : ARENA_BLOCK;
    PX_TRY(px_alloc((void **)&block, sizeof *block + size));
    *block = (px__arena_block){.next = script->arena, .size = size};
    script->arena = block;
  }
  *out = block->bytes + block->used;
  block->used += bytes;
  return PX_OK;
}

px_status px__arena_text(const char **out, px_script *script, const char *text, size_t length) {
  char *made;
  PX_TRY(px__arena_alloc((void **)&made, script, length + 1));
  if (length) memcpy(made, text, length);
  *out = made;
  return PX_OK;
}

void px__arena_free(px_script *script) {
  while (script->arena) {
    px__arena_block *block = script->arena;
    script->arena = block->next;
    px_free(block);
  }
}
