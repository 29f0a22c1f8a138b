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
  int joined_size, joined_rank;
  int blocking[2];  // of the communicator that joined, and of its child, to which calls go
  int leaving, destroyed, aborted, aborted_children;
  int others_want;       // how many are let go of before the end of one
  int delay;             // how often a join is still in progress; negative: always
  int holds;             // 1: a group of calls does not return until something is aborted
  const char *bad_call;  // the call that fails
  int bad_state;         // what ncclCommGetAsyncError tells, if not 0
  void (*on_abort)(void);
  int taken_down;  // by a thread that ncclCommDestroy has started
  int stays;       // 1: so has another thread, which ends when this is 0 again
} nccl_stub_state;
