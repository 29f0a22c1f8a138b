// SPDX-License-Identifier: Apache-2.0
// Internal header of TorchScript: archives, values, syntax trees and the interpreter.
//
// One lock per script serialises its calls, so values have plain reference counts. Functions return
// new references through `out` and borrow their arguments.
#pragma once
#include <pthread.h>
#include <string.h>

#include "phlox/script.h"

#define PX__STATUS __attribute__((warn_unused_result)) px_status

enum {
  PX__SCRIPT_DEPTH = 1500,  // nested evaluations: bounds the C stack to about 2 MB
  PX__SCRIPT_NESTING = 150  // nested expressions and blocks of a source file
};

// ---- values

typedef enum px__sort {
  PX__UNSET,
  PX__NONE,
  PX__BOOL,
  PX__INT,
  PX__FLOAT,
  PX__COMPLEX,
  PX__DEVICE,
  PX__TENSOR,  // the following sorts are reference-counted
  PX__TEXT,
  PX__LIST,
  PX__TUPLE,
  PX__DICT,
  PX__OBJECT,
  PX__CLASS,    // a class of the archive, or a function: `node`
  PX__GLOBAL,   // while unpickling: a name such as "torch._utils._rebuild_tensor_v2"
  PX__STORAGE,  // while unpickling: a uint8 tensor with its dtype
  PX__MARKER    // while unpickling
} px__sort;

typedef struct px__box px__box;
typedef struct px__node px__node;
typedef struct px__definition px__definition;
typedef struct px__var {
  px__sort sort;
  union {
    int64_t i;
    double f;
    px_complex c;
    px_device device;
    px_tensor *tensor;
    px__box *box;
    px__definition *definition;
    const char *name;
  } v;
} px__var;

// A container, text or object. Boxes form the script's list: its destruction empties them all and
// so breaks cycles.
struct px__box {
  int64_t refs;
  px__box *next, *previous;
  px_script *script;
  int64_t count, capacity;  // of items; of a text: its bytes
  px__var *items;           // a dict has keys at even and values at odd positions
  char *text;
  px__definition *definition;  // of an object: its class
  px_module *module;           // of a Module
  bool built;                  // a Module with all its submodules, which therefore form a tree
  px_dtype dtype;              // of a storage
};

void px__var_free(px__var *var);
#define PX__SCOPED_VAR __attribute__((cleanup(px__var_free))) px__var
px__var px__var_keep(px__var var);  // a new reference
static inline px__var px__var_move(px__var *var) {
  px__var moved = *var;
  var->sort = PX__UNSET;
  return moved;
}
static inline px__var px__none(void) { return (px__var){.sort = PX__NONE}; }
static inline px__var px__of_int(int64_t i) { return (px__var){PX__INT, {.i = i}}; }
static inline px__var px__of_bool(bool b) { return (px__var){PX__BOOL, {.i = b}}; }
static inline px__var px__of_float(double f) { return (px__var){PX__FLOAT, {.f = f}}; }
static inline px__var px__of_tensor(px_tensor *take) {
  return (px__var){PX__TENSOR, {.tensor = take}};
}
static inline bool px__is_number(px__var v) { return v.sort >= PX__BOOL && v.sort <= PX__FLOAT; }
static inline double px__to_float(px__var v) { return v.sort == PX__FLOAT ? v.v.f : (double)v.v.i; }
px_scalar px__to_scalar(px__var number);
const char *px__sort_name(px__var var);
PX__STATUS px__box_new(px__var *out, px_script *script, px__sort sort);
PX__STATUS px__text_new(px__var *out, px_script *script, const char *text, size_t length);
void px__box_empty(px__box *box);
PX__STATUS px__push(px__box *box, px__var value);
PX__STATUS px__insert(px__box *box, int64_t at, px__var value);
void px__erase(px__box *box, int64_t at, int64_t count);
bool px__same(px__var a, px__var b);  // equality of values that are not tensors
// Returns the position of a key in a dict's items, or -1.
int64_t px__dict_find(const px__box *dict, px__var key);
PX__STATUS px__dict_set(px__box *dict, px__var key, px__var value);

// ---- text under construction
typedef struct px__string {
  char *text;  // zero-terminated once anything was added
  size_t length, capacity;
} px__string;
PX__STATUS px__string_add(px__string *buffer, const char *text, size_t length);
void px__string_free(px__string *buffer);
#define PX__SCOPED_STRING __attribute__((cleanup(px__string_free))) px__string
// Adds Python's str(value), or repr(value).
PX__STATUS px__string_value(px__string *buffer, px__var value, bool repr, int depth);

// ---- archives
typedef struct px__record {
  const char *name;  // inside the archive's folder; not zero-terminated
  size_t name_length, offset, packed, size;
  uint32_t check;  // CRC-32
  bool deflated;
} px__record;
typedef struct px__archive {
  unsigned char *bytes;
  size_t length;
  px__record *records;
  int count;
  size_t left;  // bytes that records may still yield: bounds the memory of overlapping records
} px__archive;
PX__STATUS px__archive_open(px__archive *out, const char *path);
PX__STATUS px__archive_copy(px__archive *out, const void *bytes, size_t length);
const px__record *px__archive_find(const px__archive *archive, const char *name);
// Reads a record, with a zero after its end, into memory to be freed with px_free.
PX__STATUS px__archive_read(char **out, px__archive *archive, const px__record *record);
void px__archive_close(px__archive *archive);
PX__STATUS px__inflate(void *to, size_t size, const void *from, size_t length);

// ---- syntax trees

typedef enum px__node_kind {
  PX__LITERAL,    // value
  PX__NAME,       // name; slot: of the frame, or -1
  PX__ATTRIBUTE,  // of parts[0]
  PX__SUBSCRIPT,  // parts[0][parts[1]]
  PX__CALL,       // parts[0](parts[1], ...)
  PX__KEYWORD,    // an argument: name=parts[0]
  PX__TUPLE_OF,
  PX__LIST_OF,
  PX__DICT_OF,
  PX__CHOICE,  // parts[1] if parts[0] else parts[2]
  PX__AND,
  PX__OR,
  PX__PASS,  // the following kinds are statements
  PX__VALUE,
  PX__ASSIGN,  // parts[0] = parts[1]
  PX__RETURN,
  PX__IF,     // condition, block, block
  PX__WHILE,  // condition, block
  PX__FOR,    // target, list, block
  PX__WITH,   // context, block; parts[2]: the name, if any
  PX__BLOCK,
  PX__DECLARE,  // name : parts[0] (= parts[1])
} px__node_kind;
struct px__node {
  px__node_kind kind;
  int line, slot, count;
  const char *name;
  const char *path;  // of a chain of attributes from a name: "torch.add"
  px__var value;     // of a literal; its text is owned by the arena
  px__node **parts;
  const px_op *op;             // of a call, once found
  px__definition *definition;  // of a path, once found
};

// A function, method or class.
typedef struct px__parameter {
  const char *name;
  px__node *type, *fallback;
} px__parameter;
struct px__definition {
  px__definition *next;  // in the script
  const char *name;      // "__torch__.a.Net", "__torch__.a.Net.forward"
  const char *own;       // "forward"
  px__definition *owner, *methods, *next_method;
  const char *file;
  bool is_class;
  // of a function
  px__parameter *parameters;
  int parameter_count, slots;
  px__node *body;
  // of a class
  const char *base;  // "Module", "NamedTuple", "Enum", ""
  const char **attributes;
  px__node **types;
  px__node **values;  // of a Final attribute, an enum's member or a default; else NULL
  char *kinds;        // 'p' parameter, 'b' buffer, 'f' Final, else 0
  int attribute_count;
};

typedef struct px__arena_block px__arena_block;
struct px_script {
  px_object head;
  pthread_mutex_t lock;  // recursive: guards everything below
  px__archive archive;   // while loading: the code; closed after it
  px__arena_block *arena;
  px__definition *definitions;
  px__box *boxes, *dying;
  px__var constants, root;
  px_device device;
  char *path;
  int depth;
  // px__constant: the interpreter is above classes.
  px_status (*constant)(px__var *out, px_script *script, px__node *node);
  bool frees;  // `dying` is being freed
};
void px__arena_free(px_script *script);
PX__STATUS px__arena_alloc(void **out, px_script *script, size_t bytes);
PX__STATUS px__arena_text(const char **out, px_script *script, const char *text, size_t length);

// ---- tokens
typedef enum px__token {
  PX__END,
  PX__NEWLINE,
  PX__INDENT,
  PX__DEDENT,
  PX__WORD,
  PX__NUMBER,
  PX__STRING,
  PX__SIGN  // `length` characters
} px__token;
typedef struct px__lexer {
  px_script *script;
  const char *file, *at;
  px__token token;
  const char *text;  // of the token
  size_t length;
  px__var value;  // of a number
  int line, brackets, pending, depth;
  int indents[PX__SCRIPT_NESTING];
} px__lexer;
PX__STATUS px__lexer_next(px__lexer *lexer);
#define PX__FAIL_SYNTAX(lexer, ...) return px__syntax_error((lexer), __VA_ARGS__)
px_status px__syntax_error(const px__lexer *lexer, const char *format, ...) PX_PRINTF(2, 3);

// ---- programs
// Parses a source file of the archive, named "code/__torch__/a.py", with qualifier "__torch__.a".
PX__STATUS px__parse_file(px_script *script, const char *file, const char *qualifier, char *text);
// Finds a class or function by qualified name; NULL if there is none.
px__definition *px__definition_find(px_script *script, const char *name);
px__definition *px__method_find(const px__definition *cls, const char *name);
int px__attribute_index(const px__definition *cls, const char *name);
PX__STATUS px__object_new(px__var *out, px_script *script, px__definition *cls);
PX__STATUS px__object_get(px__var *out, px__var object, const char *name);
PX__STATUS px__object_set(px__var object, const char *name, px__var value);
PX__STATUS px__unpickle(px__var *out, px_script *script, const char *name);

// ---- the interpreter

typedef struct px__named_var {
  const char *name;  // NULL: positional
  px__var value;
} px__named_var;
// Evaluates an expression outside of functions.
PX__STATUS px__constant(px__var *out, px_script *script, px__node *node);
// Calls a function; a method's first argument is its object.
PX__STATUS px__call(px__var *out, px_script *script, px__definition *function,
                    const px__named_var *args, int count);
// Calls an op or a function of TorchScript by name, "torch.add" without "torch.".
PX__STATUS px__call_op(px__var *out, px_script *script, px__node *site, const char *name,
                       const px__named_var *args, int count);
// A builtin: *known is false if it does not take such arguments.
typedef px_status px__builtin(px__var *out, px_script *script, const char *name,
                              const px__var *args, int count, bool *known);
px__builtin px__call_numbers, px__call_texts, px__call_lists, px__call_dicts, px__call_general,
    px__call_tensors;
static inline bool px__is(const char *name, const char *other) { return !strcmp(name, other); }
PX__STATUS px__truth(bool *out, px__var value);
PX__STATUS px__is_instance(bool *out, px_script *script, px__var value, const px__node *type);
PX__STATUS px__subscript(px__var *out, px_script *script, px__var of, px__var index);
// TorchScript's number of a dtype, and back: PX_DTYPE_NONE if unknown.
int px__dtype_number(px_dtype dtype);
px_dtype px__dtype_of(int64_t number);

// ---- trees
PX__STATUS px__from_tree(px__var *out, px_script *script, const px_tree *tree, int depth);
PX__STATUS px__to_tree(px_tree **out, px__var value, int depth);
