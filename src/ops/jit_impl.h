// SPDX-License-Identifier: Apache-2.0
// Tokens, types and functions of element functions (phlox/jit.h). Tokens point into the code, owned
// by the caller.
#pragma once
#include "phlox/jit.h"

typedef enum px__word_kind {
  PX__WORD_END,
  PX__WORD_NAME,
  PX__WORD_NUMBER,
  PX__WORD_SIGN
} px__word_kind;
typedef struct px__word {
  const char *at;
  int length;
  px__word_kind kind;
} px__word;

typedef struct px__jit_function {
  px__word name;
  px__word element;     // the template's type parameter
  bool gives;           // not void
  const char *returns;  // start of the result type
  const char *params;   // the opening parenthesis
  const char *body;     // the opening brace
} px__jit_function;

enum { PX__JIT_FUNCTIONS = 16 };
typedef struct px__jit_code {
  const char *text;
  px__jit_function functions[PX__JIT_FUNCTIONS];
  int count;
} px__jit_code;

// Read position in the code: `word` is the next token.
typedef struct px__words {
  const px__jit_code *code;
  const px__jit_function *function;  // the function being read
  px__word word;
} px__words;

// A type. dtype is PX_DTYPE_NONE for auto.
typedef struct px__jit_type {
  px_dtype dtype;
  bool out;  // T&
} px__jit_type;

bool px__word_is(const px__word *word, const char *text);
bool px__word_same(const px__word *a, const px__word *b);
// px__words_at moves to `at`, px__words_next to the next token.
void px__words_at(px__words *w, const char *at);
void px__words_next(px__words *w);
// Skips the next token and returns true if it equals `text`.
bool px__words_take(px__words *w, const char *text);
// As px__words_take, but fails on another token.
px_status px__words_expect(px__words *w, const char *text) __attribute__((warn_unused_result));
// Fails with the function, the line, `what` and the next token: "expected ')', not 'x'".
px_status px__words_fail(const px__words *w, px_status code, const char *what);
// Reads a type. `element`: dtype of the template parameter. *found is false if there is none.
px_status px__words_type(px__words *w, px_dtype element, px__jit_type *type, bool *found)
    __attribute__((warn_unused_result));
// Finds the functions of the code.
px_status px__jit_read(px__jit_code *code, const char *text) __attribute__((warn_unused_result));
