// SPDX-License-Identifier: Apache-2.0
// What a stand-in for NCCL keeps of its calls, and is told to do: the symbol `nccl_stub` of
// tests/nccl/stub.c. It moves nothing.
#pragma once
#include <stddef.h>

typedef struct nccl_stub_call {
  const char *name;
  const void *in;
  void *out;
  size_t count;
  int type, op, peer;
  void *stream;
} nccl_stub_call;

enum { NCCL_STUB_CALLS = 128 };
typedef struct nccl_stub_state {
  int count;
  nccl_stub_call calls[NCCL_STUB_CALLS];
  int joined_size, joined_rank, blocking;
  int finalized, destroyed, aborted;
  int others_want;       // how many are finalized before one is destroyed
  int delay;             // how often what has begun is still in progress; negative: always
  const char *bad_call;  // the call that fails
  int bad_state;         // what ncclCommGetAsyncError tells, if not 0
  void (*on_abort)(void);
  int taken_down;  // by a thread that ncclCommDestroy has started
  int stays;       // 1: so has another thread, which ends when this is 0 again
} nccl_stub_state;
