// SPDX-License-Identifier: Apache-2.0
// Limits of matrix products C (m x n) = A (m x k) * B (k x n): the constants that decide how a
// product is computed and divided. "min" and "max" are inclusive. docs/measurements/cpu.md names
// the machines they were measured on. Sizes of register tiles are next to their kernels.
#pragma once

// ---- choice of the method

// Direct: B is packed panel by panel, and A not at all.
enum {
  DIRECT_MAX_ELEMENTS = 48 * 1024,  // elements of A and B, max
  DIRECT_MAX_RESULTS = 256 * 1024,  // elements of C, max
  DIRECT_MAX_TILES = 3,             // tiles per row of B, max
  DIRECT_PANEL_BYTES = 32 * 1024    // bytes of a panel of B, on the stack
};
// Dot products, for few columns of B.
enum {
  DOT_MIN_LENGTH = 128,          // k, min
  DOT_MAX_COLUMNS = 16,          // columns of B, max
  DOT_MAX_COLUMNS_ALIGNED = 32,  // the same if rows are whole cache lines
  DOT_MAX_COLUMNS_INDIRECT = 8,  // the same if rows of A are indirect
  DOT_MIN_TERMS_PER_COLUMN = 16  // k per column of B, min, to amortize the horizontal sums
};
// Packed blocks.
enum {
  SHALLOW_MAX_K = 64,     // k, max, with which writing C dominates
  DEEP_MIN_ROWS = 400,    // rows of A, min, for long blocks of k, which reuse B's panels more
  UNPACKED_MAX_ROWS = 16  // rows of A, max, with which indirect rows of B are not packed
};

// ---- float16 and bfloat16

enum {
  BF16_MAX_ROWS_ALONG_K = 4,        // rows of A, max, if B is contiguous along k, without AMX
  BF16_MAX_ROWS_ALONG_N = 16,       // rows of A, max, if B is contiguous along n, without AMX
  BF16_MAX_UNPACKED_COLUMNS = 256,  // columns of C, max, without packing A
  BF16_PACKED_BYTES = 768 * 1024,   // bytes of B packed at a time
  BF16_MAX_PACKED_PANELS = 32       // panels of B packed at a time, max
};
// B converted in pieces that stay in cache.
enum {
  PIECES_MAX_ROWS = 32,      // rows of A, max
  PIECE_BYTES = 256 * 1024,  // bytes of a piece
  PIECE_MIN_COLUMNS = 16,    // columns of a piece, min
  CONVERT_GRAIN = 32 * 1024  // elements converted per thread, min
};

// ---- units of work

// Multiplications in about the time of waking a thread.
#define PX__THREAD_WORK (64.0 * 64 * 64)
enum {
  THIN_DEPTH = 64,                        // rows of B per block of thin products
  BATCH_UNIT_WORK = 64 * 1024,            // multiplications of a batch's unit, min
  BATCH_MAX_DIVIDED = 3,                  // products of a batch, max, to divide each of them
  BATCH_MAX_WHOLE_WORK = 4 * 1024 * 1024  // multiplications of a product, max, not to divide it
};
