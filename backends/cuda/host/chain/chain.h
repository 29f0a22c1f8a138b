// SPDX-License-Identifier: Apache-2.0
// Chains of pointwise ops (px_chain_step): one kernel for each, written from the expressions of its
// ops and compiled by NVRTC while the program runs.
//
// A kernel has shapes, addresses and numbers as parameters (`words`), so it serves all sizes. Until
// it is compiled, and where it cannot be, the steps run one by one.
#pragma once
#include "cuda/host/ops/kernel.h"

enum {
  PX__CHAIN_WORDS = 320,     // a kernel's parameters have at most 4 KiB
  PX__CHAIN_OPERANDS = 512,  // more than words
  PX__CHAIN_KEY = 4096       // words of 4 bytes; about 10 for a step
};

typedef enum px__cuda_reading { PX__FLAT, PX__ONE, PX__SPREAD } px__cuda_reading;
// An array operand: how it is read, its dimensions, and its first word: the address, which the
// dimensions follow.
typedef struct px__cuda_chained {
  uint8_t reading, dims;
  int16_t word;
} px__cuda_chained;

// A launch of the kernel "chain" as a kernel of its own.
typedef struct px__cuda_chain {
  const px_launch *launch;
  const px_chain_step *steps;
  int count;                                       // pointwise steps
  const px__cuda_pointwise *rows[PX_CHAIN_STEPS];  // NULL: a conversion
  uint32_t has[PX_CHAIN_STEPS], truth[PX_CHAIN_STEPS];
  px__cuda_chained operands[PX__CHAIN_OPERANDS];
  int first_number[PX_CHAIN_STEPS];  // word of a step's first number
  int each, flight;                  // elements of a vector; vectors in flight a thread
  int ahead;                         // of a fold: vectors that a thread computes before adding them
  const char *members;               // of the fold at the end; NULL: none
  bool columns;                      // the fold's input is read by columns
  int word_count, key_count;
  int32_t key[PX__CHAIN_KEY];  // chains with equal keys share a kernel
  // The kernel's parameters: without a fold those from `n` on, the program's struct k_chain.
  struct {
    k_fold fold;
    int64_t n;
    k_where where;
    k_number words[PX__CHAIN_WORDS];
  } params;
} px__cuda_chain;
_Static_assert(sizeof((px__cuda_chain *)0)->params <= 4096, "limit of a kernel's parameters");

// The launch of a step of a chain, without operands.
static inline px_launch px__cuda_step_launch(const px_launch *chain, const px_chain_step *step) {
  px_launch l = *chain;
  l.op = step->op, l.kernel = step->kernel, l.compute = step->compute;
  l.params = chain->params + step->first_param, l.param_count = step->param_count;
  l.operands = NULL, l.operand_count = 0;
  return l;
}

// ---- steps.c: runs the steps of a launch one by one, and the fold at its end, if any
px_status px__cuda_chain_steps(const px_launch *l, const px_chain_step *steps, int count,
                               const px_chain_step *fold);

// ---- source.c: writes the program
void px__cuda_chain_write(FILE *to, const px__cuda_chain *c);

// ---- compile.c: kernels by key

// True if NVRTC is installed.
bool px__cuda_can_compile(void);
// The chain's kernel; NULL while it is compiled, and if it cannot be, which is an error with
// PHLOX_FUSE_COMPILE=wait.
px_status px__cuda_chain_kernel(CUkernel *out, const px__cuda_chain *c);

// ---- cache.c: compiled programs on disk

// A program's text, and everything else that decides its code: `about` is a text.
typedef struct px__cuda_program {
  const char *source, *about;
} px__cuda_program;
// Adds bytes to a sum (FNV-1a), which begins with PX__SUM_START.
#define PX__SUM_START UINT64_C(14695981039346656037)
uint64_t px__cuda_sum(uint64_t sum, const void *from, size_t bytes);
// Returns the code kept for a program, to be freed, or NULL.
void *px__cuda_cache_find(const px__cuda_program *p, size_t *bytes);
void px__cuda_cache_keep(const px__cuda_program *p, const void *code, size_t bytes);
