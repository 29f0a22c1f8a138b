// SPDX-License-Identifier: Apache-2.0
// Challenge-response authentication: a client proves knowledge of the job's secret by
// HMAC-SHA-256 (RFC 2104, FIPS 180-4) of a nonce drawn per connection. Also packs store requests.
#include <string.h>

#include "comm/store_impl.h"

static const uint32_t rounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate_right(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void mix(uint32_t state[8], const uint8_t block[64]) {
  uint32_t w[64], s[8];
  for (int i = 0; i < 16; i++)
    w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
           (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
  for (int i = 16; i < 64; i++)
    w[i] = w[i - 16] + w[i - 7] +
           (rotate_right(w[i - 15], 7) ^ rotate_right(w[i - 15], 18) ^ w[i - 15] >> 3) +
           (rotate_right(w[i - 2], 17) ^ rotate_right(w[i - 2], 19) ^ w[i - 2] >> 10);
  memcpy(s, state, sizeof s);
  for (int i = 0; i < 64; i++) {
    uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
    uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
    uint32_t a = s[7] + (rotate_right(s[4], 6) ^ rotate_right(s[4], 11) ^ rotate_right(s[4], 25)) +
                 choice + rounds[i] + w[i];
    uint32_t b =
        (rotate_right(s[0], 2) ^ rotate_right(s[0], 13) ^ rotate_right(s[0], 22)) + majority;
    memmove(s + 1, s, 7 * sizeof *s);
    s[4] += a;
    s[0] = a + b;
  }
  for (int i = 0; i < 8; i++) state[i] += s[i];
}

// Hashes two pieces as one message.
static void digest(uint8_t out[32], px__bytes first, px__bytes second) {
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  uint8_t block[64];
  size_t at = 0, total = first.size + second.size;
  for (size_t i = 0; i < total; i++) {
    const px__bytes *piece = i < first.size ? &first : &second;
    block[at++] = ((const uint8_t *)piece->at)[i < first.size ? i : i - first.size];
    if (at == 64) mix(state, block), at = 0;
  }
  block[at++] = 0x80;
  if (at > 56) {
    memset(block + at, 0, 64 - at);
    mix(state, block);
    at = 0;
  }
  memset(block + at, 0, 64 - at);
  for (int i = 0; i < 8; i++) block[56 + i] = (uint8_t)((uint64_t)total * 8 >> (56 - 8 * i));
  mix(state, block);
  for (int i = 0; i < 32; i++) out[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
}

void px__secret_response(uint8_t out[PX__SECRET_BYTES], const char *secret, const uint8_t *nonce,
                         size_t size) {
  uint8_t key[64] = {0}, inner[32];
  size_t length = strlen(secret);
  if (length > 64)
    digest(key, (px__bytes){secret, length}, (px__bytes){0});
  else
    memcpy(key, secret, length);
  for (int i = 0; i < 64; i++) key[i] ^= 0x36;
  digest(inner, (px__bytes){key, 64}, (px__bytes){nonce, size});
  for (int i = 0; i < 64; i++) key[i] ^= 0x36 ^ 0x5c;
  digest(out, (px__bytes){key, 64}, (px__bytes){inner, 32});
}

// ---- frames

px_status px__request_pack(void **out, size_t *size, const px__store_request *request) {
  uint8_t *at;
  *size = 17;
  for (int i = 0; i < request->count; i++) *size += 4 + request->items[i].size;
  PX_CHECK(*size < PX__STORE_FRAME, PX_DIST_STORE,
           "expected fewer than %d bytes in a store request, got %zu", PX__STORE_FRAME, *size);
  PX_TRY(px_alloc(out, *size));
  uint32_t length = (uint32_t)(*size - 4), count = (uint32_t)request->count;
  at = *out;
  memcpy(at, &length, 4);
  at[4] = (uint8_t)request->kind;
  memcpy(at + 5, &request->number, 8);
  memcpy(at + 13, &count, 4);
  at += 17;
  for (int i = 0; i < request->count; i++) {
    uint32_t bytes = (uint32_t)request->items[i].size;
    memcpy(at, &bytes, 4);
    if (bytes) memcpy(at + 4, request->items[i].at, bytes);
    at += 4 + (size_t)bytes;
  }
  return PX_OK;
}

bool px__request_unpack(px__store_request *out, px__bytes *items, const uint8_t *frame,
                        size_t size) {
  uint32_t count, bytes;
  if (size < 13 || frame[0] >= PX__REQUEST_KINDS) return false;
  out->kind = (px__store_request_kind)frame[0];
  memcpy(&out->number, frame + 1, 8);
  memcpy(&count, frame + 9, 4);
  size_t at = 13;
  if (count >= PX__STORE_KEYS) return false;
  for (uint32_t i = 0; i < count; i++) {
    if (size - at < 4) return false;
    memcpy(&bytes, frame + at, 4);
    at += 4;
    if (size - at < bytes) return false;
    items[i] = (px__bytes){frame + at, bytes};
    at += bytes;
  }
  out->count = (int)count;
  out->items = items;
  return at == size;
}
