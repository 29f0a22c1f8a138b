// SPDX-License-Identifier: Apache-2.0
// Tokens of the Python subset of TorchScript. Indentation becomes tokens, outside of brackets.
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "script/script_impl.h"

px_status px__syntax_error(const px__lexer *lexer, const char *format, ...) {
  char text[300];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  PX_FAIL(PX_RUNTIME, "%s, line %d of %s: %s", lexer->script->path, lexer->line, lexer->file, text);
}

static void skip_blanks(px__lexer *l) {
  for (;; l->at++) {
    if (*l->at == '#')
      while (l->at[1] && l->at[1] != '\n') l->at++;
    else if (*l->at == '\\' && l->at[1] == '\n')
      l->line++, l->at++;
    else if (*l->at == '\n' && l->brackets)
      l->line++;
    else if (*l->at != ' ' && *l->at != '\t' && *l->at != '\r')
      return;
  }
}

// Skips empty lines at the start of a line, and compares its indentation.
static px_status begin_line(px__lexer *l) {
  for (;;) {
    const char *line = l->at;
    skip_blanks(l);
    if (*l->at == '\n') {
      l->line++, l->at++;
      continue;
    }
    int width = *l->at ? (int)(l->at - line < 10000 ? l->at - line : 10000) : 0;
    if (width > l->indents[l->depth]) {
      if (l->depth + 1 == PX__SCRIPT_NESTING) PX__FAIL_SYNTAX(l, "blocks are nested too deeply");
      l->indents[++l->depth] = width;
      l->pending = 1;
      return PX_OK;
    }
    while (width < l->indents[l->depth]) l->depth--, l->pending--;
    if (width != l->indents[l->depth]) PX__FAIL_SYNTAX(l, "the indentation does not match");
    return PX_OK;
  }
}

static px_status read_number(px__lexer *l) {
  char *end, *wide;
  double number = strtod(l->at, &end);
  long long integer = strtoll(l->at, &wide, 10);
  if (end <= l->at) PX__FAIL_SYNTAX(l, "expected a number");
  l->value = wide == end ? px__of_int(integer) : px__of_float(number);
  if (*end == 'j') l->value = (px__var){PX__COMPLEX, {.c = {0, number}}}, end++;
  l->token = PX__NUMBER;
  l->length = (size_t)(end - l->at);
  l->at = end;
  return PX_OK;
}

static void add_unicode(char *to, size_t *length, unsigned long code) {
  if (code < 0x80) {
    to[(*length)++] = (char)code;
  } else if (code < 0x800) {
    to[(*length)++] = (char)(0xc0 | code >> 6);
    to[(*length)++] = (char)(0x80 | (code & 63));
  } else {
    to[(*length)++] = (char)(0xe0 | (code >> 12 & 15));
    to[(*length)++] = (char)(0x80 | (code >> 6 & 63));
    to[(*length)++] = (char)(0x80 | (code & 63));
  }
}

// Reads the escape after a backslash: PyTorch writes octal numbers and C's letters.
static void read_escape(px__lexer *l, char *to, size_t *length) {
  static const char letters[] = "nrtabfv", meanings[] = "\n\r\t\a\b\f\v";
  const char *letter = *l->at ? strchr(letters, *l->at) : NULL;
  unsigned long code = 0;
  int digits = 0;
  if (*l->at >= '0' && *l->at <= '7') {
    for (; digits < 3 && *l->at >= '0' && *l->at <= '7'; digits++)
      code = code * 8 + (unsigned long)(*l->at++ - '0');
    to[(*length)++] = (char)code;
  } else if (*l->at == 'x' || *l->at == 'u') {
    int wanted = *l->at++ == 'x' ? 2 : 4;
    for (; digits < wanted && isxdigit((unsigned char)*l->at); digits++, l->at++)
      code = code * 16 + (unsigned long)(isdigit((unsigned char)*l->at) ? *l->at - '0'
                                                                        : (*l->at | 32) - 'a' + 10);
    if (wanted == 2)
      to[(*length)++] = (char)code;
    else
      add_unicode(to, length, code);
  } else if (*l->at) {
    to[(*length)++] = letter ? meanings[letter - letters] : *l->at;
    l->at++;
  }
}

static px_status read_string(px__lexer *l) {
  char quote = *l->at++, *made;
  PX_TRY(px__arena_alloc((void **)&made, l->script, strcspn(l->at, "\n") + 1));
  l->text = made;
  l->length = 0;
  while (*l->at != quote) {
    const char *at = l->at + (*l->at == '\\');
    if (!*at || *at == '\n') PX__FAIL_SYNTAX(l, "a string has no end");
    if (*l->at == '\\')
      l->at++, read_escape(l, made, &l->length);
    else
      made[l->length++] = *l->at++;
  }
  l->at++;
  l->token = PX__STRING;
  return PX_OK;
}

static px_status read_sign(px__lexer *l) {
  static const char *const two[] = {"->", "==", "!=", "<=", ">=", "**", "//", "<<", ">>"};
  l->token = PX__SIGN;
  l->length = 1;
  for (size_t i = 0; i < sizeof two / sizeof *two; i++)
    if (!strncmp(l->at, two[i], 2)) l->length = 2;
  if (!strchr("()[]{},.:=+-*/%@<>!&|^~", *l->at))
    PX__FAIL_SYNTAX(l, "unexpected character '%c'", isprint((unsigned char)*l->at) ? *l->at : '?');
  if (strchr("([{", *l->at)) l->brackets++;
  if (strchr(")]}", *l->at)) l->brackets -= l->brackets > 0;
  l->at += l->length;
  return PX_OK;
}

px_status px__lexer_next(px__lexer *l) {
  bool starts = l->token == PX__NEWLINE || l->token == PX__INDENT || l->token == PX__DEDENT;
  if (l->token == PX__NEWLINE) PX_TRY(begin_line(l));
  if (starts && l->pending) {
    l->token = l->pending > 0 ? PX__INDENT : PX__DEDENT;
    l->pending -= l->pending > 0 ? 1 : -1;
    return PX_OK;
  }
  skip_blanks(l);
  l->text = l->at;
  l->length = 0;
  if (!*l->at || *l->at == '\n') {
    bool ended = !*l->at;
    // The last line may lack its end.
    l->token = ended && starts ? PX__END : PX__NEWLINE;
    if (!ended) l->line++, l->at++;
    return PX_OK;
  }
  if (isalpha((unsigned char)*l->at) || *l->at == '_') {
    while (isalnum((unsigned char)*l->at) || *l->at == '_') l->at++;
    l->length = (size_t)(l->at - l->text);
    l->token = PX__WORD;
    return PX_OK;
  }
  if (isdigit((unsigned char)*l->at) || (*l->at == '.' && isdigit((unsigned char)l->at[1])))
    return read_number(l);
  return *l->at == '"' || *l->at == '\'' ? read_string(l) : read_sign(l);
}
