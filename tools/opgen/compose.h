// SPDX-License-Identifier: Apache-2.0
// The state of a formula being written as C, and the writers of its parts (compose.c), for the
// functions that consist of formulas (functions.c).
#pragma once
#include "opgen/opgen.h"

typedef enum sort { IS_TENSOR, IS_NUMBER, IS_OTHER } sort;
// The C expression of a px_value.
typedef struct value {
  sort sort;
  const char *c;
  const og_node *list;    // a list literal: written once its type is known
  const char *typed;      // a number in C, if its type is known: folded by the compiler
  og_type type;           // of `typed`
  const og_param *param;  // the parameter passed, unchanged
  bool stored;            // in the target of the context
} value;
enum { MAX_TEMPORARIES = 128, MAX_CONDITIONS = 32 };
typedef struct context {
  FILE *to;
  const og_op *op;
  int steps;
  const char *indent;
  bool body;           // not a gradient
  const char *target;  // where the next call stores its result; NULL for a temporary
  // Written lets: px_values of tensors and lists, typed numbers.
  og_value lets[OG_MAX_LETS][OG_OP_RESULTS];
  int held[OG_MAX_LETS][OG_OP_RESULTS];  // 1 + number of the temporary of a let; 0 if released
  int temporaries[MAX_TEMPORARIES], temporary_count;  // numbers of owned, unnamed tensors
  int tensors;                                        // size of the array t
  // Declared conditions of lets: c1, c2 ...
  const char *conditions[MAX_CONDITIONS];
  int condition_count;
  const char *const *values;  // of the loop being written
  int index;                  // number of its index, i1
} context;

// A function that reads the elements of a tensor: the C function, the type of its number in C, and
// the number without elements.
typedef struct og_read_function {
  const char *name, *c, *type, *initial;
  og_type of;
} og_read_function;
extern const og_read_function og_reads[];

const char *og_test_of(context *x, const og_node *n);
const char *og_formula_function(const char *name);
bool og_is_list(const og_node *n);
og_scope og_names_of(context *x);
int og_new_temporary(context *x);
int og_read_of(const og_node *n);
bool og_reads_elements(const og_node *n);
const char *og_shared_test(context *x, const og_node *n);
sort og_sort_of(const og_op *op, const og_node *n);
int og_write_arguments(context *x, const og_node *call, const og_op *op, bool *wide);
// The same in a block.
void og_write_branch(context *x, const og_node *n, const char *const *to, int count);
// Stores one tensor.
void og_write_into(context *x, const char *target, const og_node *n);
const char *og_write_list(context *x, const og_node *n, og_type type);
void og_write_list_call(context *x, const og_node *call);
// Stores the tensors of a formula in `to`.
void og_write_many(context *x, const og_node *n, const char *const *to, int count);
// Writes the calls of a formula and returns its value.
value og_write_node(context *x, const og_node *n);
