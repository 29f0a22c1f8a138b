// SPDX-License-Identifier: Apache-2.0
// A stub of NCCL records its calls in the symbol `nccl_stub` (tests/nccl/stub.c) and takes its
// behaviour from there. It moves no data.
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
  int blocking[2];  // of the communicator that joined, and of its child for the calls
  int releasing, destroyed, aborted, aborted_children;
  int release_barrier;   // number of communicators that must be released before any release ends
  int delay;             // polls until a join completes; negative: never
  int blocks_calls;      // 1: a group of calls blocks until an abort
  const char *bad_call;  // the name of the failing call
  int bad_state;         // returned by ncclCommGetAsyncError if not 0
  void (*on_abort)(void);
  int torn_down;            // by a thread of ncclCommDestroy
  int driver_thread_alive;  // 1: a driver thread also runs; it ends once this is 0
} nccl_stub_state;
