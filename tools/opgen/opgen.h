// SPDX-License-Identifier: Apache-2.0
// The parsed tables and the functions shared by the generator's files.
//
// A run reads all entries (entry.c, parse.c for ops), sorts them by name, analyses the gradient
// formulas (formula.c) and writes the outputs (the other files). The first error in a table ends
// the run with `file:line: text`. Memory is never freed: the process is short-lived.
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
  OG_MAX_LETS = 24,    // `let` lines of an op
  OG_OP_RESULTS = 5,   // PX__MAX_RESULTS
  OG_MAX_RESULTS = 6,  // results of kernels
  OG_MAX_SAMPLES = 24,
  OG_MAX_FIELDS = 48,
  OG_MAX_ARGUMENTS = 192,
  OG_MAX_OPS = 2048
};

typedef struct og_location {
  const char *file;
  int line, column;  // column 0: unknown
} og_location;

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
// A type in the outputs.
typedef struct og_type_row {
  const char *schema;   // "Tensor"
  const char *kind;     // "PX_ARG_TENSOR"
  const char *c;        // "const px_tensor *"
  const char *c_maybe;  // type of the optional form
  const char *make;     // macro that makes a px_value
  const char *python;   // type in the stubs
} og_type_row;
extern const og_type_row og_types[OG_TYPE_COUNT];

typedef struct og_param {
  const char *name;
  og_type type;
  bool optional, keyword;
  bool worded;           // str|int[2]: a word is allowed instead of numbers
  int size;              // of int[2]: 2; 0: any number
  bool passing;          // layers: read by the constructor only, not an attribute
  bool owned;            // layers: None means the size of the input
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
  // In conditions and formulas of layers only, not in formulas of ops.
  OG_COMPARE,  // < <= > >= == != is, is not
  OG_LOGIC,    // and or not
  OG_CHOICE,   // a if b else c, in this order
  OG_SPREAD,   // *a in a list
  OG_LOOP      // of a let: step, first, end, starts with the names of their values as keys
} og_node_kind;
typedef struct og_node {
  og_node_kind kind;
  const char *text;  // name, literal, operator
  og_location location;
  int count;
  struct og_node *items[OG_MAX_PARAMS];
  const char *keys[OG_MAX_PARAMS];  // keyword of an argument, or NULL
} og_node;

typedef struct og_field {
  const char *text;  // NULL: not given
  og_location location;
  const char *name;  // field name of an og_entry, and of a let
} og_field;
// `let NAMES = FORMULA`, or `do CALL`: a let named do, which nothing reads, computed always.
typedef struct og_let {
  const char *names[OG_OP_RESULTS];
  int count;
  og_node *node;
  bool acts;
} og_let;
typedef struct og_op {
  const char *name, *schema;
  og_location location;
  og_param params[OG_MAX_PARAMS];
  int param_count;
  const char *result_names[OG_MAX_RESULTS];  // NULL for a lone unnamed result
  int result_count;
  bool result_list;
  const char *kind;
  bool library_only;  // a `library` kernel, not available on the CPU
  unsigned words;     // bit i: og_words[i]
  og_field transposed, alias, wrapper, autocast, shape, errors, example, expr, fold, dtypes, run,
      kernel, body, gradname, pyname, note, doc, saves, nograd, domain, kind_field, draws, out,
      expand_warning, format, order, fits, fits_wide, vmap, complex, of_unsigned, resolve, work,
      flops;
  og_field refusals[OG_MAX_REFUSALS];
  int refusal_count;
  og_field checks[OG_MAX_CHECKS];
  int check_count;
  og_field result_fields[OG_MAX_RESULTS];  // `result` lines
  og_field result_dtype;  // of a pointwise op or a reduction: `result : DTYPE`, without the colon
  int result_field_count;
  og_field samples[OG_MAX_SAMPLES];
  int sample_count;
  og_field let_fields[OG_MAX_LETS];
  og_let lets[OG_MAX_LETS];
  int let_count;
  og_field grads[OG_MAX_PARAMS];  // formula of parameter i
  og_field grad_all;              // `grad * = FN`
  og_node *grad_nodes[OG_MAX_PARAMS], *body_node, *complex_node, *unsigned_node, *vmap_node;
  unsigned grad_mask, save_mask, shape_mask, save_result_mask, mask_params;
  unsigned save_for[OG_MAX_PARAMS];
} og_op;

// An entry other than an op: its schema line and fields as text.
typedef struct og_entry {
  const char *sort, *name, *schema;  // "layer", "Linear", "Linear(int in_features, ...)"
  og_location location;
  og_param params[OG_MAX_PARAMS];
  int param_count;
  og_field fields[OG_MAX_FIELDS];  // in the order of the file
  int field_count;
} og_entry;

// All tables.
typedef struct og_tables {
  og_op *ops[OG_MAX_OPS];
  int count;
  og_entry *entries[OG_MAX_OPS];
  og_field arguments[OG_MAX_ARGUMENTS];  // `argument NAME TEXT`: shared descriptions
  int argument_count;
  int entry_count;
  og_op *kernels[OG_MAX_OPS];  // `kernel` lines
  int kernel_count;
  og_op *helpers[OG_MAX_OPS];  // `helper` lines: functions called by @
  int helper_count;
  og_op *formulas[OG_MAX_OPS];  // `formula` entries: formulas called by others
  int formula_count;
} og_tables;
extern og_tables og;

// Flags after the kind.
#define OG_WORDS(XX) \
  XX(promote) \
  XX(float) \
  XX(compare) \
  XX(first) \
  XX(whole) \
  XX(sum) \
  XX(inplace) \
  XX(out) \
  XX(nomethod) \
  XX(nofunction) \
  XX(numbers) \
  XX(nn) \
  XX(hidden) \
  XX(factory) \
  XX(random) \
  XX(onlyinplace) \
  XX(idempotent) \
  XX(noalias) \
  XX(noalias_others) \
  XX(pixel_rows) XX(no_numbers) XX(one_number) XX(unconjugated) XX(ordered)
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
_Noreturn void og_die(og_location at, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// Returns the location of `to` in a text that begins at `from`.
og_location og_advance(og_location from, const char *text, const char *to);
// Returns a text in one line, for comments and pages.
char *og_one_line(const char *text);
char *og_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *og_copy(const char *from, size_t length);
const og_op *og_find(const char *name);
const og_op *og_helper(const char *name);
const og_op *og_formula_named(const char *name);  // a `formula` entry
// Returns the op or formula that a call names; `add_` names add.
const og_op *og_callee(const char *name);
// Returns the run function's name without px__run_, or NULL.
const char *og_run(const og_op *op);
const char *og_run_function(const og_op *op);          // the full name; declares it
int og_param_find(const og_op *op, const char *name);  // -1 if none
int og_result_find(const og_op *op, const char *name);
bool og_is_tensor(const og_param *p);    // Tensor or Tensor?
const char *og_quote(const char *text);  // returns a C string literal
// Opens and closes an output; several may be open.
FILE *og_create(const char *folder, const char *name);
void og_finish(FILE *file);
// Adds a declaration to the file being written. Generated files declare the entries they call
// instead of including one header of all, so a new entry leaves them unchanged.
void og_use(const char *format, ...) __attribute__((format(printf, 1, 2)));
// Returns the shard of an op's generated code. It depends only on the name, so a new entry changes
// one file.
int og_shard(const og_op *op, int shards);

// ---- entry.c: reads one file, or dies
void og_read(const char *path);
// Returns the first field of a name, or the next one after `after`; NULL if there is none.
const og_field *og_entry_field(const og_entry *e, const char *name);
const og_field *og_entry_next(const og_entry *e, const char *name, const og_field *after);
// Reads "TYPE NAME=DEFAULT, ...)" into params[*count...]; returns the text after the parenthesis.
const char *og_read_params(const char *at, og_location location, const char *owner,
                           og_param *params, int *count);
// Returns the description of an argument: the entry's field `argument NAME TEXT`, or the shared
// line of the folder.
const char *og_argument_text(const og_entry *e, const char *name);
int og_param_named(const og_param *params, int count, const char *name);  // -1 if none
const char *og_option_type(const og_param *p);  // optimisers and schedules: "int | None"
// Text utilities: skip blanks, find the end of a word, trim blanks.
const char *og_skip(const char *at);
const char *og_word_end(const char *at);
char *og_trimmed(const char *from, const char *to);

// ---- parse.c: ops
// `sort` is op, kernel or helper; a helper has no result, and only an op has fields.
og_op *og_op_begin(const char *sort, const char *text, og_location at);
void og_op_field(og_op *op, char *line, og_location at);
void og_op_end(og_op *op);  // reports missing fields

// ---- formula.c
// Returns the let of a name and sets *which, its position in the let; NULL if there is none.
const og_let *og_let_find(const og_op *op, const char *name, int *which);
// Returns the result whose gradient a name is (grad, grad_NAME), or -1.
int og_grad_find(const og_op *op, const char *name);
const char *og_constant_named(const char *name);  // inf, nan
og_node *og_formula(const char *text, og_location at);
// Parses a formula and, for `if` without `else`, its condition: `zeros() if bias`.
og_node *og_formula_if(const char *text, og_location at, og_node **condition);
// The loop whose step is walked or written, and the position of a name among its items: 1 for the
// index, 3 and more for values; 0 for other names.
extern const og_node *og_loop;
// True while the formula of a field `vmap` is walked or written: it may call samples(x).
extern bool og_in_vmap;
bool og_is_samples(const og_node *n);
bool og_is_vmap_number(const char *name);  // batch, rank
int og_loop_name(const char *name);
// True if a node, or any of several, mentions the name. A node may be NULL.
bool og_mentions(const og_node *n, const char *name);
bool og_mentioned(const og_node *const *nodes, int count, const char *name);
void og_analyse(og_op *op);
void og_analyse_body(og_op *op);  // of a formula that is parsed

// ---- condition.c: numbers and conditions as C
typedef struct og_value {
  og_type type;        // OG_TYPE_COUNT for None
  const char *c;       // the expression: int64_t, double, bool, const char *, const int64_t *
  const char *n;       // lists: the number of elements
  const char *absent;  // the condition of absence; NULL: always present
  const char *worded;  // str|int[]: the condition that the value is the word `text`
  const char *text;
} og_value;
// Resolves a name, or a shape of one (ndim(x)), to a value.
typedef og_value (*og_resolver)(const og_node *n, void *context);
og_value og_number(const og_node *n, og_resolver resolve, void *context);
const char *og_condition(const og_node *n, og_resolver resolve, void *context);
// Returns an integer expression; other types are an error.
const char *og_integer(const og_node *n, og_resolver resolve, void *context);
const char *og_test(const og_node *n, og_resolver resolve, void *context);  // for `if (...)`

// ---- checks.c: conditions over an op's arguments `a`, px_values
// The names of a condition: parameters of `op`, and others resolved by `other`. It returns type
// OG_TENSOR and a px_value for a tensor, and a number otherwise; `c` NULL: the name is unknown.
typedef struct og_scope {
  const og_op *op;
  og_value (*other)(const og_node *name, void *context);
  void *context;
} og_scope;
og_value og_resolve(const og_node *n, void *names);  // an og_resolver
// True if a call is a function of conditions: size(x, 0).
bool og_is_condition_call(const og_node *n);
void og_write_checks(FILE *to, const og_op *op);
bool og_has_checks(const og_op *op);  // checks that run first
void og_write_formula_checks(FILE *to, const og_op *formula);
void og_write_late_checks(FILE *to, const og_op *op);  // checks after `check device`
// Returns the index of the let after which a check is tested: the last one that it, or a check of
// lets before it, reads. -1 if it reads none.
int og_check_let(const og_op *op, const og_field *field);
void og_write_let_checks(FILE *to, const og_scope *names, int let);
void og_write_work(FILE *to, const og_op *op);   // `work NUMBER`, a function of the call
void og_write_flops(FILE *to, const og_op *op);  // members of its px__op_impl

// ---- results.c: `result NAMES = SIZES : DTYPE, ...`
#define OG_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
typedef struct og_result {
  int results[OG_MAX_RESULTS], count;
  og_node *shape, *dtypes;  // one dtype for all results, or one each
  og_location location;
} og_result;
// Writes statements that append sizes, `[*sizes(x), 1]`, to the px__shape `shape`.
void og_write_shape(FILE *to, const og_scope *names, const og_node *n, const char *shape,
                    const char *indent);
bool og_is_shape_call(const og_node *n);  // leading(x, 1)
bool og_is_read(const og_node *n);        // some(x)
// Returns a dtype as a px_value: float32, promoted(a, b), dtype or self.
const char *og_dtype_value(const og_scope *names, const og_node *n);
og_result og_result_parse(const og_op *op, const og_field *field);
void og_write_results(FILE *to, const og_op *op);

// ---- kernels.c: expressions for one type of number
typedef struct og_expr {
  const char *text;
  unsigned used;  // mask of used parameters
  bool extremes;  // uses `highest` or `lowest`
  bool has_test;  // has is(PARAM, 'text'), evaluated as `truth`
  int test_param;
  const char *test_text;
} og_expr;
// `names`: allowed names besides functions and numbers, NULL-terminated; NULL: the parameters.
og_expr og_rewrite(const og_op *op, const char *text, og_location at, const char *suffix,
                   const char *c, const char *const *names, bool truth);
// `start`: the identity only initialises the accumulator; an empty reduction is an error.
typedef struct og_fold {
  bool start;
  const char *identity, *map, *combine, *finish;
} og_fold;
og_fold og_fold_parse(const og_op *op);

// "pointwise" of "ops/pointwise.op".
const char *og_stem(const char *path);

// ---- args.c: views, structs of arguments by name
// Writes the vmap rule of the field `vmap`; returns the name of its C function, or NULL.
void og_write_vmap(FILE *to, const og_op *op);
const char *og_vmap_function(const og_op *op);
const char *og_vmap_formula(const og_op *op);  // the text of a rule that is a formula, or NULL
bool og_is_vmap_rule(const og_node *n);        // another rule after `else`
void og_write_vmap_rule(FILE *to, const og_op *op);
typedef enum og_view { OG_RUN_VIEW, OG_KERNEL_VIEW, OG_VMAP_VIEW } og_view;
// Writes the views of a table; returns false if there are none. `to` NULL: only tests. A view
// belongs to the table of the first entry naming its function.
bool og_write_views(FILE *to, og_view kind, const char *file);
void og_write_grad_views(FILE *to);
// Returns the name of result r in a view; `out` if unnamed.
const char *og_result_name(const og_op *op, int r);
const char *og_helper_prototype(const og_op *helper);
// Return the C type and expression of a field, and of a helper's i-th argument.
const char *og_field_type(const og_param *p);  // of a view of a function other than an op
const char *og_field_value(const og_param *p, const char *value);
const char *og_helper_argument(const og_op *helper, int i, const char *value);

// ---- arith.c: arithmetic on numbers, as text
typedef enum og_language {
  OG_HOST,     // C, in double precision
  OG_ELEMENT,  // input of og_rewrite
  OG_PYTHON
} og_language;
const char *og_arith(const og_node *n, og_language in);
const char *og_arith_test(const og_node *n, og_language in);  // as a condition
void og_names(const og_node *n, void (*each)(const og_node *name, void *context), void *context);
// `check CONDITION : CODE "text with {names}"`
typedef struct og_check {
  og_node *test;
  const char *code, *text;
  og_location location;
} og_check;
// Replaces `\\n` by line breaks, in place.
const char *og_with_lines(char *text);
og_check og_check_parse(const og_field *field);
// Returns true and the parts of a check `NAME of TENSOR`.
bool og_check_dimension(const og_field *field, char **dim, char **tensor);
// Writes its PX_CHECK; `params` has the types of the names.
void og_write_check(FILE *to, const og_check *c, const og_param *params, int count);

// The text of a function's body, written before its declarations.
typedef struct og_body {
  FILE *file;
  char *text;
  size_t length;
} og_body;
FILE *og_body_begin(og_body *b);
void og_body_end(og_body *b);
// Ends a body and writes the used declarations, then the body.
void og_body_write(FILE *to, og_body *b);
// Writes `const double NAME = VALUE;` if the body mentions the name.
void og_declare(FILE *to, const og_body *body, const char *name, const char *value);

// ---- checks.c: functions of conditions
// A function of `count` names: its C name, type and words. `predicate`: the predicate of the first
// name, with %s for the second; for a count the noun. `number`: the form in arithmetic.
typedef struct og_function {
  const char *name, *c;
  int count;
  og_type type;
  const char *predicate, *number;
} og_function;
const og_function *og_function_of(const char *name);  // NULL if unknown

// ---- words.c: checks in words
// Returns the error and its condition: "ValueError unless lr >= 0"; with the prefix PX_, "PX_VALUE
// unless ...".
const char *og_check_sentence(const og_field *field, const char *prefix);

// ---- optim*.c: optimisers
void og_optim_read(void);              // makes an op of each update step
bool og_show_optim(const char *name);  // false if there is none
void og_optim_dry_run(FILE *sink);
void og_optim_write(const char *folder);
void og_optim_write_texts(const char *folder);
void og_optim_write_kinds(FILE *to);
void og_optim_write_header(FILE *to);
void og_optim_write_page(FILE *to);

// ---- schedule.c: schedules of learning rates
bool og_show_schedule(const char *name);
void og_schedule_dry_run(FILE *sink);
void og_schedule_write(const char *folder);
void og_schedule_write_page(FILE *to);

// Autocast policies, as indices into a list.
typedef struct og_policy {
  int cuda, cpu;
} og_policy;

// ---- comment.c: documentation of an op; NULL if empty
typedef struct og_remarks {
  const char *shape, *dtypes, *errors;
} og_remarks;
const char *og_shape_of(const og_op *op);
const char *og_out_words(const og_op *op);
const char *og_autocast_words(const og_op *op);
bool og_results_are(const og_op *op, const char *dtype);  // by `result : DTYPE`
bool og_is_nonempty(const og_op *op);                     // a reduction that requires elements
// Returns the docstring lines of `example EXPRESSION -> TEXT`.
const char *og_example_lines(const og_field *f);
og_remarks og_remarks_of(const og_op *op, bool in_c);  // for the C header or for Python
const char *og_example(const og_op *op);               // a call in C

// ---- cuda.c
void og_write_cuda(const char *folder);
void og_write_cuda_kernels(FILE *to, const og_op *op);  // of one op, for `make show`

// ---- dtypes.c
// An element type of kernels: the suffix of names; the storage type on CUDA and the CPU; the
// compute type and the suffix of its math functions.
typedef struct og_stamp {
  const char *suffix, *storage, *c, *math, *name, *dtype, *cell;
  const char *number;  // type of number parameters: the real part type of a complex one, else c
  int bytes;
  char kind;  // as in px_dtype_info
} og_stamp;
const og_stamp *og_stamps(int *count);
const og_stamp *og_stamp_of(const char *suffix);
bool og_is_wide(const og_stamp *s);  // true if storage and compute type are the same
bool og_in_set(const og_op *op, const og_stamp *s);  // true if the op supports it
bool og_is_complex(const og_op *op);                 // true if its dtypes have `complex`
unsigned og_dtype_mask(const og_op *op);             // bit i: dtype i
void og_write_conversions(const char *folder);

// ---- launch.c: `cuda` lines

// ---- layer.c
void og_analyse_layers(void);
bool og_show_layer(const char *name);  // false if there is none
void og_write_layers(const char *folder);

// ---- outputs of one op, or of all
void og_write_prototypes(FILE *to, const og_op *op);
const char *og_prototype(const og_op *op);  // prototype of px_NAME
void og_write_api(FILE *to, const og_op *op);
void og_write_params(FILE *to, const og_op *op);
// Writes the px_params of any sort of entry as an array params_NAME.
typedef struct og_owner {
  const char *sort, *name;
  og_location location;
} og_owner;
void og_write_param_array(FILE *to, const og_owner *of, const og_param *params, int count);
void og_write_descriptor(FILE *to, const og_op *op);
void og_write_impl(FILE *to, const og_op *op);
bool og_faults(const og_op *op);     // kernels.c
bool og_has_texts(const og_op *op);  // texts.c
void og_write_texts(FILE *to, const og_op *op);
const char *og_formula_prototype(const char *name);
void og_write_formula(FILE *to, const og_op *formula);
// The forward function of a layer as a formula over its inputs, tensors and arguments: the
// statements up to its end, and the call in place if the last parameter is true.
void og_write_forward(FILE *to, const og_op *formula);
void og_write_forward_inplace(FILE *to, const og_op *formula);
void og_write_body(FILE *to, const og_op *op);
void og_write_backward(FILE *to, const og_op *op);
void og_write_kernel(FILE *to, const og_op *op);
void og_write_page(FILE *to, const og_op *op);
void og_write_samples(FILE *to, const og_op *op);
void og_write_typed_calls(FILE *to, const og_op *op);
bool og_has_backward(const og_op *op);
bool og_has_kernel(const og_op *op);            // generated
bool og_has_generated_kernel(const og_op *op);  // its own or another entry's
const char *og_hand_kernel(const og_op *op);    // name of the hand-written kernel, or NULL
bool og_has_new(const og_op *op);               // has the form px_NAME with a new result
bool og_has_inplace(const og_op *op);
bool og_is_hidden(const og_op *op);  // its C functions are private
