// SPDX-License-Identifier: Apache-2.0
// The generator's picture of the tables, shared by its files.
//
// A run is: read all entries (entry.c; an op's are parse.c's), sort them by name,
// analyse the gradient formulas (formula.c), write the outputs (the other files). The first
// mistake in a table ends the run with `file:line: what is wrong`. Memory is never given back: the
// process is short.
#pragma once
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  OG_MAX_PARAMS = 16,
  OG_MAX_REFUSALS = 4,
  OG_MAX_CHECKS = 12,
  OG_OP_RESULTS = 5,   // PX__MAX_RESULTS
  OG_MAX_RESULTS = 6,  // of kernels
  OG_MAX_SAMPLES = 24,
  OG_MAX_FIELDS = 48,
  OG_MAX_ARGUMENTS = 192,
  OG_MAX_OPS = 2048
};

typedef struct og_place {
  const char *file;
  int line;
} og_place;

typedef enum og_type {
  OG_TENSOR,
  OG_TENSORS,
  OG_SCALAR,
  OG_INT,
  OG_FLOAT,
  OG_BOOL,
  OG_INTS,
  OG_DTYPE,
  OG_DEVICE,
  OG_TEXT,
  OG_GENERATOR,
  OG_MODULE,
  OG_TYPE_COUNT
} og_type;
// What the outputs say of each type.
typedef struct og_type_row {
  const char *schema;   // "Tensor"
  const char *kind;     // "PX_ARG_TENSOR"
  const char *c;        // "const px_tensor *"
  const char *c_maybe;  // of the optional form
  const char *make;     // the macro that makes a px_value
  const char *python;   // in the stubs
} og_type_row;
extern const og_type_row og_types[OG_TYPE_COUNT];

typedef struct og_param {
  const char *name;
  og_type type;
  bool optional, keyword;
  bool worded;           // str|int[2]: a word may stand for the numbers
  int size;              // of int[2]: 2; 0 for any number of them
  bool passing;          // of a layer: what the constructor alone reads, no attribute
  bool owned;            // of a layer: sizes that may be the input's own
  const char *fallback;  // text of the default, or NULL
} og_param;

// A node of a formula.
typedef enum og_node_kind {
  OG_NAME,
  OG_NUMBER,
  OG_STRING,
  OG_CONSTANT,  // True False None
  OG_LIST,
  OG_BINARY,
  OG_NEGATE,
  OG_CALL,    // of an op
  OG_HELPER,  // @fn(...)
  OG_SHAPE,   // sizes numel dtype ndim
  // Of conditions and of the formulas of layers; those of ops have none.
  OG_COMPARE,  // < <= > >= == != is, is not
  OG_LOGIC,    // and or not
  OG_CHOICE,   // a if b else c, in this order
  OG_SPREAD    // *a in a list
} og_node_kind;
typedef struct og_node {
  og_node_kind kind;
  const char *text;  // name, literal, operator
  og_place place;
  int count;
  struct og_node *items[OG_MAX_PARAMS];
  const char *keys[OG_MAX_PARAMS];  // keyword of an argument, or NULL
} og_node;

typedef struct og_field {
  const char *text;  // NULL: not given
  og_place place;
  const char *name;  // of an og_entry's field
} og_field;
typedef struct og_op {
  const char *name, *schema;
  og_place place;
  og_param params[OG_MAX_PARAMS];
  int param_count;
  const char *result_names[OG_MAX_RESULTS];  // NULL for a lone unnamed result
  int result_count;
  bool result_list;
  const char *kind;
  bool elsewhere;  // a kernel that the CPU does not have
  unsigned words;  // bit i: og_words[i]
  og_field turned, alias, wrapper, autocast, shape, errors, example, expr, fold, dtypes, run,
      kernel, body, gradname, pyname, note, doc, masks, saves, nograd, domain, kind_field, cuda,
      expands, draws, out, expanded, format, batch, complex, of_unsigned, lazy, work, flops;
  og_field refusals[OG_MAX_REFUSALS];
  int refusal_count;
  og_field checks[OG_MAX_CHECKS];
  int check_count;
  og_field made[OG_MAX_RESULTS];  // `result` lines
  int made_count;
  og_field samples[OG_MAX_SAMPLES];
  int sample_count;
  og_field grads[OG_MAX_PARAMS];  // the formula of parameter i
  og_field grad_all;              // `grad * = FN`
  og_node *grad_nodes[OG_MAX_PARAMS], *body_node, *complex_node, *unsigned_node;
  unsigned grad_mask, save_mask, shape_mask, save_result_mask, mask_params;
  unsigned save_for[OG_MAX_PARAMS];
} og_op;

// An entry that is no op: what its schema line and its fields say, as text.
typedef struct og_entry {
  const char *sort, *name, *schema;  // "layer", "Linear", "Linear(int in_features, ...)"
  og_place place;
  og_param params[OG_MAX_PARAMS];
  int param_count;
  og_field fields[OG_MAX_FIELDS];  // in the order of the file
  int field_count;
} og_entry;

// The whole of the tables.
typedef struct og_tables {
  og_op *ops[OG_MAX_OPS];
  int count;
  og_entry *entries[OG_MAX_OPS];
  og_field arguments[OG_MAX_ARGUMENTS];  // `argument NAME TEXT`: what arguments of that name are
  int argument_count;
  int entry_count;
  og_op *kernels[OG_MAX_OPS];  // `kernel` lines
  int kernel_count;
  og_op *helpers[OG_MAX_OPS];  // `helper` lines: functions named by @
  int helper_count;
} og_tables;
extern og_tables og;

// Words after the kind.
// clang-format off
#define OG_WORDS(XX) \
  XX(promote) \
  XX(float) \
  XX(compare) \
  XX(first) \
  XX(whole) \
  XX(sum) \
  XX(inplace) XX(out) XX(nomethod) XX(nofunction) XX(numbers) XX(nn) XX(hidden) XX(factory) \
      XX(random) XX(onlyinplace) XX(mutates) XX(boolresult) XX(longresult) \
      XX(nonempty) XX(cpuscalars) XX(idempotent) XX(apart) XX(aside) XX(rows) XX(tensors) \
      XX(either) XX(realresult) XX(unconjugated) XX(ordered)
// clang-format on
typedef enum og_word {
#define XX(w) OG_W_##w,
  OG_WORDS(XX)
#undef XX
      OG_WORD_COUNT
} og_word;
static inline bool og_has(const og_op *op, og_word w) { return (op->words >> w & 1u) != 0; }
static inline bool og_is(const og_op *op, const char *kind) { return !strcmp(op->kind, kind); }

// ---- opgen.c
_Noreturn void og_die(og_place at, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *og_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *og_copy(const char *from, size_t length);
const og_op *og_find(const char *name);
const og_op *og_helper(const char *name);
// The run function's name without px__run_, or NULL.
const char *og_run(const og_op *op);
const char *og_run_function(const og_op *op);          // the whole name, declared where it is used
int og_param_find(const og_op *op, const char *name);  // -1: none
int og_result_find(const og_op *op, const char *name);
bool og_is_tensor(const og_param *p);    // Tensor or Tensor?
const char *og_quote(const char *text);  // as a C string literal
// An output, and its end; several may be open.
FILE *og_create(const char *folder, const char *name);
void og_finish(FILE *file);
// A declaration that the file which is being written needs: a generated file declares what it calls
// of other entries, and includes no header of all, so that a new entry leaves it as it is.
void og_use(const char *format, ...) __attribute__((format(printf, 1, 2)));
// The file that an op's generated kernels are in, of `shards` alike. It follows from the name
// alone, so that a new entry changes one of them.
int og_shard(const og_op *op, int shards);

// ---- entry.c: reads one file, or dies
void og_read(const char *path);
// The first field of a name, or the next one after `after`; NULL if there is none.
const og_field *og_entry_field(const og_entry *e, const char *name);
const og_field *og_entry_next(const og_entry *e, const char *name, const og_field *after);
// Reads "TYPE NAME=DEFAULT, ...)" into params[*count...]; returns what follows the parenthesis.
const char *og_read_params(const char *at, og_place place, const char *owner, og_param *params,
                           int *count);
// What an argument of an entry is: its field `argument NAME TEXT`, or the line for all entries of
// the folder.
const char *og_argument_text(const og_entry *e, const char *name);
int og_param_named(const og_param *params, int count, const char *name);  // -1: none
const char *og_option_type(const og_param *p);  // of an optimiser or a schedule: "int | None"
// Pieces of text: past blanks, past a word, without blanks at its ends.
const char *og_skip(const char *at);
const char *og_word_end(const char *at);
char *og_trimmed(const char *from, const char *to);

// ---- parse.c: ops
// `sort` is op, kernel or helper; a helper has no result, and only an op has fields.
og_op *og_op_begin(const char *sort, const char *text, og_place at);
void og_op_field(og_op *op, char *line, og_place at);
void og_op_end(const og_op *op);  // what an entry lacks

// ---- formula.c
og_node *og_formula(const char *text, og_place at);
// A formula and, if `if` and no `else` follows it, its condition: `zeros() if bias`.
og_node *og_formula_if(const char *text, og_place at, og_node **condition);
void og_analyse(og_op *op);

// ---- condition.c: numbers and conditions as C
typedef struct og_value {
  og_type type;        // OG_TYPE_COUNT: None
  const char *c;       // the expression: int64_t, double, bool, const char *, const int64_t *
  const char *n;       // of a list: how many numbers it has
  const char *absent;  // the condition that there is none; NULL: there always is one
  const char *worded;  // of what takes a word in place of numbers: the condition that it is `text`
  const char *text;
} og_value;
// What a name, or a shape of one (ndim(x)), stands for.
typedef og_value (*og_naming)(const og_node *n, void *context);
og_value og_number(const og_node *n, og_naming naming, void *context);
const char *og_condition(const og_node *n, og_naming naming, void *context);
// A whole number; anything else is an error.
const char *og_whole_number(const og_node *n, og_naming naming, void *context);
const char *og_test(const og_node *n, og_naming naming, void *context);  // for `if (...)`

// ---- checks.c: the same of an op's arguments `a`, px_values
const char *og_argument_number(const og_op *op, const og_node *n);  // a whole one, or an error
const char *og_argument_test(const og_op *op, const og_node *n);
void og_write_checks(FILE *to, const og_op *op);
bool og_has_checks(const og_op *op);                   // before anything else
void og_write_late_checks(FILE *to, const og_op *op);  // those behind `check device`
void og_write_work(FILE *to, const og_op *op);         // `work NUMBER`, a function of the call
void og_write_flops(FILE *to, const og_op *op);        // members of its px__op_impl

// ---- results.c: `result NAMES = SIZES : DTYPE, ...`
#define OG_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
typedef struct og_result {
  int results[OG_MAX_RESULTS], count;
  og_node *shape, *dtypes;  // one dtype for all, or one for each
  og_place place;
} og_result;
og_result og_result_parse(const og_op *op, const og_field *field);
void og_write_results(FILE *to, const og_op *op);

// ---- kernels.c: expressions for one type of number
typedef struct og_expr {
  const char *text;
  unsigned used;  // parameters mentioned
  bool extremes;  // `highest` or `lowest` occurred
  bool asks;      // is(PARAM, 'text') occurred, and was answered with `truth`
  int test_param;
  const char *test_text;
} og_expr;
// `names`: what may occur beside functions and numbers, NULL at the end; NULL means parameters.
og_expr og_rewrite(const og_op *op, const char *text, og_place at, const char *suffix,
                   const char *c, const char *const *names, bool truth);
// `start`: the identity is where an accumulator starts, and no result over nothing.
typedef struct og_fold {
  bool start;
  const char *identity, *map, *combine, *finish;
} og_fold;
og_fold og_fold_parse(const og_op *op);

// "pointwise" of "ops/pointwise.op".
const char *og_stem(const char *path);

// ---- args.c: views, by which C reads arguments by name
// The field `batch`: writes what the driver does for mapped dimensions; the name of the C function
// that it names, or NULL.
void og_write_batch(FILE *to, const og_op *op);
const char *og_batch_function(const og_op *op);
typedef enum og_view { OG_RUN_VIEW, OG_KERNEL_VIEW, OG_BATCH_VIEW } og_view;
// Writes the views of a table, and says whether there are any; `to` NULL: says only that. A view
// belongs to the table of the first entry that names its function.
bool og_write_views(FILE *to, og_view kind, const char *file);
void og_write_grad_views(FILE *to);
// The name of result r in a kernel's view: `out` of a lone one.
const char *og_result_name(const og_op *op, int r);
const char *og_helper_prototype(const og_op *helper);
// The C expression of a helper's i-th argument, of a px_value's.
const char *og_field_type(const og_param *p);  // of a view of what is no op
const char *og_field_value(const og_param *p, const char *value);
const char *og_helper_argument(const og_op *helper, int i, const char *value);

// ---- arith.c: arithmetic on numbers, as text
typedef enum og_language {
  OG_HOST,     // C, in double precision
  OG_ELEMENT,  // what og_rewrite takes
  OG_PYTHON
} og_language;
const char *og_arith(const og_node *n, og_language in);
const char *og_arith_test(const og_node *n, og_language in);  // as a condition
void og_names(const og_node *n, void (*each)(const og_node *name, void *context), void *context);
// `check CONDITION : CODE "text with {names}"`
typedef struct og_check {
  og_node *test;
  const char *code, *text;
  og_place place;
} og_check;
og_check og_check_parse(const og_field *field);
// `check NAME of TENSOR`: whether it is one, and its parts.
bool og_check_dimension(const og_field *field, char **dim, char **tensor);
// PX_CHECK of it; `params` tell which names are whole numbers.
void og_write_check(FILE *to, const og_check *c, const og_param *params, int count);

// The text of a function's body, which is written before the declarations that it needs.
typedef struct og_body {
  FILE *file;
  char *text;
  size_t length;
} og_body;
FILE *og_body_begin(og_body *b);
void og_body_end(og_body *b);
// Ends a body, and writes the declarations that were used, and the body.
void og_body_write(FILE *to, og_body *b);
// `const double NAME = VALUE;`, if the body mentions the name.
void og_declare(FILE *to, const og_body *body, const char *name, const char *value);

// ---- checks.c: functions of conditions
// One of `count` names: its C name and type, and words for it. `says`: what a
// condition says of the first name, %s being the second; for a count the noun, and `number` is how
// it is written where a number stands.
typedef struct og_function {
  const char *name, *c;
  int count;
  og_type type;
  const char *says, *number;
} og_function;
const og_function *og_function_of(const char *name);  // NULL for others

// ---- words.c: checks in words
// The error and when: "ValueError unless lr >= 0", or, with the prefix PX_, "PX_VALUE unless ...".
const char *og_check_sentence(const og_field *field, const char *prefix);

// ---- opgen_optim*.c: optimisers
void og_optim_read(void);              // makes an op of each update
bool og_show_optim(const char *name);  // whether there is one
void og_optim_rehearse(FILE *nowhere);
void og_optim_write(const char *folder);
void og_optim_write_texts(const char *folder);
void og_optim_write_kinds(FILE *to);
void og_optim_write_header(FILE *to);
void og_optim_write_page(FILE *to);

// ---- schedule.c: schedules of learning rates
bool og_show_schedule(const char *name);
void og_schedule_rehearse(FILE *nowhere);
void og_schedule_write(const char *folder);
void og_schedule_write_page(FILE *to);

// Policies of mixed precision, by their places in a list.
typedef struct og_policy {
  int cuda, cpu;
} og_policy;

// ---- comment.c: what is said of an op; NULL where there is nothing to say
typedef struct og_remarks {
  const char *shape, *dtypes, *errors;
} og_remarks;
const char *og_shape_of(const og_op *op);
const char *og_out_words(const og_op *op);
const char *og_autocast_words(const og_op *op);
bool og_is_nonempty(const og_op *op);  // a reduction: without elements there is no result
// The lines of a docstring that `example EXPRESSION -> TEXT` becomes.
const char *og_told_example(const og_field *f);
og_remarks og_remarks_of(const og_op *op, bool in_c);  // for C programs, or for Python's
const char *og_example(const og_op *op);               // a call in C

// ---- cuda.c
// A dtype of device kernels: b bool, i integer, f float.
void og_write_cuda(const char *folder);

// ---- dtypes.c
// A dtype that kernels are stamped out for: the ends of names; its type in memory, on CUDA and the
// CPU; the type of its numbers, and the suffix of their math.
typedef struct og_stamp {
  const char *suffix, *storage, *c, *math, *name, *dtype, *cell;
  const char *number;  // of the numbers in expressions: a complex one's parts, or c
  int bytes;
  char kind;  // of px_dtype_info
} og_stamp;
const og_stamp *og_stamps(int *count);
const og_stamp *og_stamp_of(const char *suffix);
bool og_is_wide(const og_stamp *s);                  // whether numbers are as they lie in memory
bool og_in_set(const og_op *op, const og_stamp *s);  // whether the op takes it
bool og_is_complex(const og_op *op);                 // whether its dtypes say `complex`
unsigned og_dtype_mask(const og_op *op);             // bit: the dtype
void og_write_conversions(const char *folder);

// ---- launch.c: a line `cuda`
void og_write_launch_struct(FILE *to, const og_op *op);
void og_write_launch(FILE *to, const og_op *op);

// ---- layer.c
void og_analyse_layers(void);
bool og_show_layer(const char *name);  // whether there is one
void og_write_layers(const char *folder);

// ---- the outputs: each writes what belongs to one op, or to all
void og_write_prototypes(FILE *to, const og_op *op);
const char *og_prototype(const og_op *op);  // of px_NAME
void og_write_api(FILE *to, const og_op *op);
void og_write_params(FILE *to, const og_op *op);
// The px_params of any sort of entry, as an array params_NAME.
typedef struct og_owner {
  const char *sort, *name;
  og_place place;
} og_owner;
void og_write_param_array(FILE *to, const og_owner *of, const og_param *params, int count);
void og_write_descriptor(FILE *to, const og_op *op);
void og_write_impl(FILE *to, const og_op *op);
bool og_faults(const og_op *op);     // kernels.c
bool og_has_texts(const og_op *op);  // texts.c
void og_write_texts(FILE *to, const og_op *op);
void og_write_body(FILE *to, const og_op *op);
void og_write_backward(FILE *to, const og_op *op);
void og_write_kernel(FILE *to, const og_op *op);
void og_write_page(FILE *to, const og_op *op);
void og_write_samples(FILE *to, const og_op *op);
bool og_has_backward(const og_op *op);
bool og_has_kernel(const og_op *op);          // generated
const char *og_hand_kernel(const og_op *op);  // the name of the hand-written one, or NULL
bool og_has_new(const og_op *op);             // px_NAME exists with a new result
bool og_has_inplace(const og_op *op);
bool og_is_hidden(const og_op *op);  // its C functions are the library's own
