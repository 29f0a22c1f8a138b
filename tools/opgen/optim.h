// SPDX-License-Identifier: Apache-2.0
// A parsed entry of an optimiser (optim.c), and the functions that write its outputs.
#pragma once
#include "opgen/opgen.h"

enum {
  OPTIM_STATES = 6,
  OPTIM_SCALARS = 3,  // PX_NUMBERS_SCALARS
  OPTIM_PAIRS = 4,
  OPTIM_NUMBERS = 16,  // PX_NUMBERS
  OPTIM_LINES = 40
};

// A number or tensor kept between steps.
typedef struct optim_state {
  const char *name;
  bool scalar;
  og_node *initial, *needed;  // NULL: zero; unconditional
} optim_state;

// A line of the update, in the order of the entry.
typedef enum optim_sort { OPTIM_CHECK, OPTIM_NUMBER, OPTIM_NEXT, OPTIM_LET, OPTIM_SET } optim_sort;
typedef struct optim_line {
  optim_sort sort;
  const char *name;
  og_node *tree;
  og_check check;
  og_location location;
} optim_line;

// Options grouped in one tuple in Python.
enum { OPTIM_PARTS = 3 };
typedef struct optim_pair {
  const char *name, *parts[OPTIM_PARTS];  // trailing ones are NULL
} optim_pair;

typedef struct optim {
  const og_entry *entry;
  const char *op;                          // "adam_step"; with numbers on the device "adam_step_by"
  const char *numbers_op;                  // "adam_numbers"
  const og_param *options[OG_MAX_PARAMS];  // without implementation options
  int option_count;
  optim_pair pairs[OPTIM_PAIRS];
  int pair_count;
  optim_state states[OPTIM_STATES];
  int state_count;
  optim_line lines[OPTIM_LINES];
  int line_count;
  const char *numbers[OPTIM_NUMBERS];  // arguments of the kernel besides the tensors
  int number_count;
} optim;

// Implementation options of PyTorch without effect on results, e.g. `foreach`: `bool? NAME`.
static inline bool optim_is_implementation(const og_param *p) {
  return p->type == OG_BOOL && p->optional;
}
// Returns the tuple of an option and its index there; NULL if it has none.
const optim_pair *optim_pair_of(const optim *o, const char *option, int *index);
bool optim_has_option(const optim *o, const char *name);
int optim_scalars(const optim *o);  // number of scalar states, which come first
// Returns the k-th entry; NULL past the last.
const optim *optim_at(int k);
// The same for optimisers with a step in Python: these have only options and tuples.
const optim *optim_loop_at(int k);

void optim_write_constructor(FILE *to, const optim *o);
void optim_write_kind(FILE *to, const optim *o);
// Writes the body that computes the numbers `n` and updates the scalars `s` from options `o`.
// `checked`: it returns a px_status and runs the checks.
void optim_write_numbers(FILE *to, const optim *o, bool checked);

// ---- optim_kernels.c
void optim_write_cpu(FILE *to, const optim *o);
void optim_write_cuda(FILE *to, const optim *o);
void optim_write_cuda_row(FILE *to, const optim *o);
// ---- optim_text.c
void optim_write_python(FILE *to, const optim *o);
void optim_write_loop(FILE *to, const optim *o);
void optim_write_formula(FILE *to, const optim *o);
void optim_write_page(FILE *to, const optim *o);
