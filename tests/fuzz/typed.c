// SPDX-License-Identifier: Apache-2.0
// The public C functions of the ops, called with random arguments (arguments.h) in the types of
// their prototypes, and with NULL or an invalid count for a list.

#include "fuzz/arguments.h"

typedef enum form { NEW, INPLACE, OUT, SCALAR, SCALAR_INPLACE } form;

// Arguments of the generated calls, by type and position.
static px_value given[SAMPLE_PARAMS];
static bool flags[SAMPLE_PARAMS];
static void *results[4];
static int64_t counts[SAMPLE_PARAMS];  // of lists
static const bool *as_flag(bool *to, bool flag) {
  *to = flag;
  return to;
}
#define NEW(k) ((px_tensor **)&results[k])
#define NEW_LIST(k) ((px_list **)&results[k])
#define OUT(k) results[k]
#define TENSOR(k) given[k].v.tensor
#define TENSORS(k) given[k].v.tensors, counts[k]
#define INTS(k) given[k].v.ints, counts[k]
#define SCALAR(k) px_value_scalar(given[k])
#define INT(k) given[k].v.i
#define FLOAT(k) given[k].v.f
#define BOOL(k) (given[k].v.i != 0)
#define MAYBE_INT(k) (given[k].kind == PX_ARG_NONE ? NULL : &given[k].v.i)
#define MAYBE_FLOAT(k) (given[k].kind == PX_ARG_NONE ? NULL : &given[k].v.f)
#define MAYBE_BOOL(k) (given[k].kind == PX_ARG_NONE ? NULL : as_flag(&flags[k], BOOL(k)))
#define DTYPE(k) (given[k].kind == PX_ARG_NONE ? PX_DTYPE_NONE : (px_dtype)given[k].v.i)
#define DEVICE(k) (given[k].kind == PX_ARG_NONE ? PX_DEVICE_NONE : given[k].v.device)
#define TEXT(k) given[k].v.text
#define GENERATOR(k) given[k].v.generator

#define PX_TYPED(op, form, call) \
  static px_status op##_##form(void) { return call; }
#include "typed_calls.inc"
#undef PX_TYPED

static const struct {
  const char *op;
  form form;
  px_status (*call)(void);
} functions[] = {
#define PX_TYPED(op, form, call) {#op, form, op##_##form},
#include "typed_calls.inc"
#undef PX_TYPED
};

// Arguments of other kinds than the prototype's become absent; absent ones get their default.
static void give(const px_op *op, form f, const px_value *args) {
  for (int i = 0; i < op->param_count; i++) {
    const px_param *p = &op->params[i];
    int kind = i == 1 && (f == SCALAR || f == SCALAR_INPLACE) ? PX_ARG_SCALAR : (int)p->kind;
    given[i] = args[i].kind == kind ? args[i] : PX_NONE();
    if (args[i].kind == PX_ARG_NONE && p->has_default && !fuzz_one_in(8)) given[i] = p->fallback;
    if (kind == PX_ARG_SCALAR && given[i].kind != kind) given[i] = some_scalar();
    counts[i] = given[i].n;
    bool list = kind == PX_ARG_INTS || kind == PX_ARG_TENSORS;
    if (list && fuzz_one_in(40))
      counts[i] = (int64_t[]){-1, INT64_MIN, (int64_t)1 << 32, INT64_MAX}[fuzz_below(4)];
    if (list && fuzz_one_in(40)) given[i] = PX_NONE();
  }
}

FUZZ(typed_calls) {
  prepare();
  int64_t i = fuzz_below(sizeof functions / sizeof *functions);
  const px_op *op = px_op_find(functions[i].op), *only = chosen_op();
  form f = functions[i].form;
  if (only && op != only) return;
  sample s;
  px_value args[SAMPLE_PARAMS] = {{0}};
  px_manual_seed(1);
  some_arguments(&s, op, args);
  give(op, f, args);
  for (int k = 0; k < 4; k++) results[k] = NULL;
  for (int k = 0; f == OUT && k < op->result_count; k++)
    results[k] = fuzz_one_in(20) ? NULL : any_tensor(&s);
  show(op, (const char *[]){"new", "in place", "out=", "scalar", "scalar_"}[f], given);
  bool fine = fuzz_fine(functions[i].call());
  if (fine && (f == NEW || f == SCALAR))
    use_results(op->flags & PX_OP_RETURNS_LIST, op->result_count, results);
  else if (f == NEW || f == SCALAR)
    for (int k = 0; k < op->result_count; k++) CHECK(!results[k]);
  close_case(&s);
  for (int k = 0; k < 2; k++) wait_for(k);
}
