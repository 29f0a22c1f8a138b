// SPDX-License-Identifier: Apache-2.0
// Tokenizer for element functions (phlox/jit.h): tokens, types, and positions of functions. Keeps
// only pointers into the text.
#include "ops/jit/jit_impl.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

// ---- tokens

bool px__token_is(const px__jit_token *word, const char *text) {
  return word->kind != PX__TOKEN_END && (size_t)word->length == strlen(text) &&
         memcmp(word->at, text, (size_t)word->length) == 0;
}
bool px__token_same(const px__jit_token *a, const px__jit_token *b) {
  return a->length == b->length && memcmp(a->at, b->at, (size_t)a->length) == 0;
}

// Skips blanks and comments.
static const char *skip_blanks(const char *at) {
  for (;;) {
    while (isspace((unsigned char)*at)) at++;
    if (at[0] == '/' && at[1] == '/') {
      at += strcspn(at, "\n");
    } else if (at[0] == '/' && at[1] == '*') {
      const char *end = strstr(at + 2, "*/");
      at = end ? end + 2 : at + strlen(at);
    } else {
      return at;
    }
  }
}
static bool in_name(char c) { return isalnum((unsigned char)c) || c == '_'; }
static int name_length(const char *at) {
  int n = 0;
  while (in_name(at[n])) n++;
  return n;
}
// Includes the exponent with its sign, and the suffix: 1.5e-3f.
static int number_length(const char *at) {
  bool hex = at[0] == '0' && (at[1] == 'x' || at[1] == 'X');
  int n = 1;
  while (in_name(at[n]) || at[n] == '.' ||
         (!hex && (at[n] == '+' || at[n] == '-') && (at[n - 1] == 'e' || at[n - 1] == 'E')))
    n++;
  return n;
}
static int sign_length(const char *at) {
  static const char *const longer[] = {
      "<<=", ">>=", "&&", "||", "==", "!=", "<=", ">=", "<<", ">>", "+=",
      "-=",  "*=",  "/=", "%=", "&=", "|=", "^=", "++", "--", "::", "->"};
  for (size_t i = 0; i < sizeof longer / sizeof *longer; i++)
    if (strncmp(at, longer[i], strlen(longer[i])) == 0) return (int)strlen(longer[i]);
  return 1;
}

void px__tokens_at(px__tokens *w, const char *at) {
  px__jit_token *word = &w->word;
  word->at = at = skip_blanks(at);
  bool number = isdigit((unsigned char)*at) || (*at == '.' && isdigit((unsigned char)at[1]));
  if (!*at)
    word->kind = PX__TOKEN_END, word->length = 0;
  else if (number)
    word->kind = PX__TOKEN_NUMBER, word->length = number_length(at);
  else if (in_name(*at))
    word->kind = PX__TOKEN_NAME, word->length = name_length(at);
  else
    word->kind = PX__TOKEN_SIGN, word->length = sign_length(at);
}
void px__tokens_next(px__tokens *w) { px__tokens_at(w, w->word.at + w->word.length); }
bool px__tokens_take(px__tokens *w, const char *text) {
  if (!px__token_is(&w->word, text)) return false;
  px__tokens_next(w);
  return true;
}

px_status px__tokens_fail(const px__tokens *w, px_status code, const char *message) {
  int line = 1;
  for (const char *c = w->code->text; c < w->word.at; c++) line += *c == '\n';
  const px__jit_token *name = w->function ? &w->function->name : NULL;
  const px__jit_token *word = &w->word;
  if (word->kind == PX__TOKEN_END)
    PX_FAIL(code, "%.*s, line %d: %s at the end", name ? name->length : 4, name ? name->at : "code",
            line, message);
  PX_FAIL(code, "%.*s, line %d: %s '%.*s'", name ? name->length : 4, name ? name->at : "code", line,
          message, word->length, word->at);
}
px_status px__tokens_expect(px__tokens *w, const char *text) {
  char message[48];
  if (px__tokens_take(w, text)) return PX_OK;
  snprintf(message, sizeof message, "expected '%s', not", text);
  return px__tokens_fail(w, PX_RUNTIME, message);
}

// ---- types

static const struct {
  const char *name;
  px_dtype dtype;
} types[] = {{"bool", PX_BOOL},      {"char", PX_INT8},     {"int8_t", PX_INT8},
             {"uint8_t", PX_UINT8},  {"short", PX_INT16},   {"int16_t", PX_INT16},
             {"int", PX_INT32},      {"int32_t", PX_INT32}, {"long", PX_INT64},
             {"int64_t", PX_INT64},  {"float", PX_FLOAT32}, {"double", PX_FLOAT64},
             {"auto", PX_DTYPE_NONE}};

static bool is_type(const px__tokens *w, px_dtype element, px_dtype *dtype) {
  if (w->function && px__token_same(&w->word, &w->function->element)) {
    *dtype = element;
    return true;
  }
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    if (!px__token_is(&w->word, types[i].name)) continue;
    *dtype = types[i].dtype;
    return true;
  }
  return false;
}

px_status px__tokens_type(px__tokens *w, px_dtype element, px__jit_type *type, bool *found) {
  bool constant = false;
  *type = (px__jit_type){PX_DTYPE_NONE, false};
  while (px__tokens_take(w, "const") || px__tokens_take(w, "constexpr")) constant = true;
  *found = is_type(w, element, &type->dtype);
  if (!*found && px__token_is(&w->word, "unsigned"))
    return px__tokens_fail(w, PX_UNIMPLEMENTED, "unsupported type");
  if (!*found) return constant ? px__tokens_fail(w, PX_RUNTIME, "expected a type, not") : PX_OK;
  bool wide = px__token_is(&w->word, "long");
  px__tokens_next(w);
  if (wide) (void)(px__tokens_take(w, "long") || px__tokens_take(w, "int"));
  constant |= px__tokens_take(w, "const");
  if (px__token_is(&w->word, "*"))
    return px__tokens_fail(w, PX_UNIMPLEMENTED, "unsupported pointer");
  if (px__tokens_take(w, "&")) type->out = !constant;
  return PX_OK;
}

// ---- functions

// Skips a pair of signs with everything between them, nested pairs included.
static bool skip_pair(px__tokens *w, const char *open, const char *close) {
  int depth = 0;
  if (!px__token_is(&w->word, open)) return false;
  do {
    if (w->word.kind == PX__TOKEN_END) return false;
    depth += px__token_is(&w->word, open) - px__token_is(&w->word, close);
    px__tokens_next(w);
  } while (depth > 0);
  return true;
}
// Parses `template <typename T> T name(...) {...}`. The result type precedes the name.
static bool find_function(px__tokens *w, px__jit_function *f) {
  if (!px__tokens_take(w, "template") || !px__tokens_take(w, "<")) return false;
  if (!px__tokens_take(w, "typename") && !px__tokens_take(w, "class")) return false;
  f->element = w->word;
  px__tokens_next(w);
  if (f->element.kind != PX__TOKEN_NAME || !px__tokens_take(w, ">")) return false;
  while (px__tokens_take(w, "__device__") || px__tokens_take(w, "inline") ||
         px__tokens_take(w, "static")) {
  }
  f->returns = w->word.at;
  f->returns_value = !px__token_is(&w->word, "void");
  f->name = w->word;
  px__tokens_next(w);
  while (w->word.kind == PX__TOKEN_NAME) {
    f->name = w->word;
    px__tokens_next(w);
  }
  f->params = w->word.at;
  if (f->name.at == f->returns || !skip_pair(w, "(", ")")) return false;
  f->body = w->word.at;
  return skip_pair(w, "{", "}");
}

px_status px__jit_read(px__jit_code *code, const char *text) {
  px__tokens w = {.code = code};
  code->text = text, code->count = 0;
  px__tokens_at(&w, text);
  do {
    PX_CHECK(code->count < PX__JIT_FUNCTIONS, PX_RUNTIME, "code has more than %d functions",
             PX__JIT_FUNCTIONS);
    PX_CHECK(find_function(&w, &code->functions[code->count++]), PX_RUNTIME,
             "Couldn't parse code, please check correctness:\n %s", text);
  } while (w.word.kind != PX__TOKEN_END);
  return PX_OK;
}

px_status px_jit_check(const char *code) {
  px__jit_code found;
  PX_GIVEN(code);
  return px__jit_read(&found, code);
}
