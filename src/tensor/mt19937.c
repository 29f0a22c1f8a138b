// SPDX-License-Identifier: Apache-2.0
// Serialised state of the CPU generator in PyTorch's layout: a legacy C struct with 64-bit words.
// Of its three normal numbers only normal_y is used.
#include "cpu/random/mt19937.h"
#include "tensor/engine_states.h"

typedef struct saved_state {
  struct header {
    uint64_t seed;
    int32_t left, seeded;
    uint64_t next;
  } head;
  uint64_t words[PX_MT19937_WORDS];
  double normal_x, normal_y, normal_rho;
} saved_state;
// Followed by a flag and a pair of float and flag, each padded to 8 bytes.
enum { AT_DOUBLE_FLAG = 5040, AT_FLOAT = 5048, AT_FLOAT_FLAG = 5052 };
_Static_assert(sizeof(saved_state) == AT_DOUBLE_FLAG, "PyTorch's layout");

// The memory of a state may be unaligned.
static char *word_at(const void *state, int i) {
  return (char *)state + offsetof(saved_state, words) + (size_t)i * sizeof(uint64_t);
}

void px__mt19937_save(const px_mt19937 *engine, void *state) {
  struct header head = {
      .seed = engine->seed, .left = engine->left, .seeded = 1, .next = engine->next};
  double normal = engine->has_normal_double ? engine->normal_double : 0;
  float single = engine->has_normal_float ? engine->normal_float : 0;
  int32_t has_double = engine->has_normal_double;
  memset(state, 0, PX__MT19937_STATE);
  memcpy(state, &head, sizeof head);
  for (int i = 0; i < PX_MT19937_WORDS; i++) {
    uint64_t word = engine->state[i];
    memcpy(word_at(state, i), &word, sizeof word);
  }
  memcpy((char *)state + offsetof(saved_state, normal_y), &normal, sizeof normal);
  memcpy((char *)state + AT_DOUBLE_FLAG, &has_double, sizeof has_double);
  memcpy((char *)state + AT_FLOAT, &single, sizeof single);
  memcpy((char *)state + AT_FLOAT_FLAG, &engine->has_normal_float, 1);
}

px_status px__mt19937_load(px_mt19937 *engine, const void *state) {
  struct header saved;
  uint64_t word;
  int32_t has_double;
  uint8_t has_float;
  memcpy(&saved, state, sizeof saved);
  memcpy(&has_double, (const char *)state + AT_DOUBLE_FLAG, sizeof has_double);
  memcpy(&has_float, (const char *)state + AT_FLOAT_FLAG, 1);
  PX_CHECK(saved.seeded && saved.left > 0 && saved.left <= PX_MT19937_WORDS &&
               saved.next <= PX_MT19937_WORDS,
           PX_RUNTIME, "Invalid mt19937 state");
  engine->seed = saved.seed;
  engine->left = saved.left;
  engine->next = (uint32_t)saved.next;
  for (int i = 0; i < PX_MT19937_WORDS; i++) {
    memcpy(&word, word_at(state, i), sizeof word);
    engine->state[i] = (uint32_t)word;
  }
  engine->has_normal_double = has_double != 0;
  memcpy(&engine->normal_double, (const char *)state + offsetof(saved_state, normal_y),
         sizeof engine->normal_double);
  engine->has_normal_float = has_float != 0;
  memcpy(&engine->normal_float, (const char *)state + AT_FLOAT, sizeof(float));
  return PX_OK;
}
