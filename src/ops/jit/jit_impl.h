// SPDX-License-Identifier: Apache-2.0
// What code for one element (phlox/jit.h) is made of: words, types and functions. Words point into
// the code, which its caller owns.
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
  px__word element;     // what its template calls the type
  bool gives;           // is not void
  const char *returns;  // where the type of its result is read
  const char *params;   // the parenthesis
  const char *body;     // the brace
} px__jit_function;

enum { PX__JIT_FUNCTIONS = 16 };
typedef struct px__jit_code {
  const char *text;
  px__jit_function functions[PX__JIT_FUNCTIONS];
  int count;
} px__jit_code;

// Where code is read: `word` is the next word.
typedef struct px__words {
  const px__jit_code *code;
  const px__jit_function *function;  // whose code it is
  px__word word;
} px__words;

// A type: a dtype, PX_DTYPE_NONE for auto.
typedef struct px__jit_type {
  px_dtype dtype;
  bool out;  // T&
} px__jit_type;

bool px__word_is(const px__word *word, const char *text);
bool px__word_same(const px__word *a, const px__word *b);
// Goes on at `at`; to the next word.
void px__words_at(px__words *w, const char *at);
void px__words_next(px__words *w);
// Passes over the next word if it is this one, and tells whether it was.
bool px__words_take(px__words *w, const char *text);
// The same; fails if it is another one.
px_status px__words_expect(px__words *w, const char *text) __attribute__((warn_unused_result));
// Fails with the function, the line, and `what` of the next word: "expected ')', not 'x'".
px_status px__words_fail(const px__words *w, px_status code, const char *what);
// Reads a type, of which `element` is the template's. *found: whether there was one.
px_status px__words_type(px__words *w, px_dtype element, px__jit_type *type, bool *found)
    __attribute__((warn_unused_result));
// Finds the functions of the code.
px_status px__jit_read(px__jit_code *code, const char *text) __attribute__((warn_unused_result));
