// SPDX-License-Identifier: Apache-2.0
// Tokens, types and functions of element functions (phlox/jit.h). Tokens point into the code, owned
// by the caller.
#pragma once
#include "phlox/jit.h"

typedef enum px__token_kind {
  PX__TOKEN_END,
  PX__TOKEN_NAME,
  PX__TOKEN_NUMBER,
  PX__TOKEN_SIGN
} px__token_kind;
typedef struct px__jit_token {
  const char *at;
  int length;
  px__token_kind kind;
} px__jit_token;

typedef struct px__jit_function {
  px__jit_token name;
  px__jit_token element;  // the template's type parameter
  bool returns_value;     // not void
  const char *returns;    // start of the result type
  const char *params;     // the opening parenthesis
  const char *body;       // the opening brace
} px__jit_function;

enum { PX__JIT_FUNCTIONS = 16 };
typedef struct px__jit_code {
  const char *text;
  px__jit_function functions[PX__JIT_FUNCTIONS];
  int count;
} px__jit_code;

// Read position in the code: `word` is the next token.
typedef struct px__tokens {
  const px__jit_code *code;
  const px__jit_function *function;  // the function being read
  px__jit_token word;
} px__tokens;

// A type. dtype is PX_DTYPE_NONE for auto.
typedef struct px__jit_type {
  px_dtype dtype;
  bool out;  // T&
} px__jit_type;

bool px__token_is(const px__jit_token *word, const char *text);
bool px__token_same(const px__jit_token *a, const px__jit_token *b);
// px__tokens_at moves to `at`, px__tokens_next to the next token.
void px__tokens_at(px__tokens *w, const char *at);
void px__tokens_next(px__tokens *w);
// Skips the next token and returns true if it equals `text`.
bool px__tokens_take(px__tokens *w, const char *text);
// Like px__tokens_take, but fails on another token.
px_status px__tokens_expect(px__tokens *w, const char *text) __attribute__((warn_unused_result));
// Fails with the function, the line, `message` and the next token: "expected ')', not 'x'".
px_status px__tokens_fail(const px__tokens *w, px_status code, const char *message);
// Reads a type. `element`: dtype of the template parameter. *found is false if there is none.
px_status px__tokens_type(px__tokens *w, px_dtype element, px__jit_type *type, bool *found)
    __attribute__((warn_unused_result));
// Finds the functions of the code.
px_status px__jit_read(px__jit_code *code, const char *text) __attribute__((warn_unused_result));
