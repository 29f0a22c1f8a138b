// SPDX-License-Identifier: Apache-2.0
// JSON of files, parsed by json-c. The input is untrusted. A cursor iterates over the members of a
// large text, so only one member at a time is in memory as a value. Values nested too deeply or
// longer than expected are rejected early. Files contain up to hundreds of thousands of strings and
// sizes, so the cursor reads plain ones itself and uses the parser for the rest.
#include <endian.h>
#include <stdio.h>
#include <string.h>

#include "io/io_impl.h"

enum { DEPTH = 128, VALUE_LIMIT = 1 << 13, KEY_LIMIT = 1 << 16, DIGITS = 18 };

// ---- reading

static px_status fail(const px__json *json, const char *what) {
  return px_error_set(PX_RUNTIME, 0, __FILE__, __LINE__, __func__, "'%s': %s: %s at byte %zu",
                      json->path, json->of, what, json->at);
}

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static inline char peek(px__json *json) {
  while (is_blank(json->text[json->at])) json->at++;
  return json->text[json->at];
}
char px__json_peek(px__json *json) { return peek(json); }

static px_status step(px__json *json, char expected) {
  char what[] = "'?' expected";
  what[1] = expected;
  if (peek(json) != expected) return fail(json, what);
  json->at++;
  return PX_OK;
}

px_status px__json_begin(px__json *json, char bracket) {
  json->first = true;
  return step(json, bracket);
}

px_status px__json_more(px__json *json, char bracket, bool *more) {
  *more = peek(json) != bracket;
  if (*more && !json->first) PX_TRY(step(json, ','));
  json->first = false;
  return *more ? PX_OK : step(json, bracket);
}

px_status px__json_end(px__json *json) {
  return peek(json) || json->at < json->length ? fail(json, "more than one value") : PX_OK;
}

static px_status parser_reset(json_tokener **parser, const char *path) {
  if (!*parser && !px_fault_check("alloc")) *parser = json_tokener_new_ex(DEPTH);
  PX_CHECK(*parser, PX_NOMEM, "out of memory while reading or writing '%s'", path);
  json_tokener_reset(*parser);
  json_tokener_set_flags(*parser, JSON_TOKENER_STRICT | JSON_TOKENER_ALLOW_TRAILING_CHARS |
                                      JSON_TOKENER_VALIDATE_UTF8);
  return PX_OK;
}

px_status px__json_value(json_object **out, px__json *json, size_t limit) {
  *out = NULL;
  PX_TRY(parser_reset(&json->parser, json->path));
  size_t rest = json->length - json->at, length = rest < limit ? rest : limit;
  *out = json_tokener_parse_ex(json->parser, json->text + json->at, (int)length);
  enum json_tokener_error error = json_tokener_get_error(json->parser);
  // A number at the end is incomplete for the parser; a blank terminates it.
  if (error == json_tokener_continue && length == rest) {
    *out = json_tokener_parse_ex(json->parser, " ", 1);
    error = json_tokener_get_error(json->parser);
    json->at += error == json_tokener_success ? length : 0;
  } else if (error == json_tokener_success) {
    json->at += json_tokener_get_parse_end(json->parser);
  }
  if (error == json_tokener_success) return PX_OK;
  if (error == json_tokener_error_depth) return fail(json, "nested too deeply");
  if (error == json_tokener_continue)
    return fail(json, length < rest ? "a value is too long" : "an unterminated value");
  return fail(json, json_tokener_error_desc(error));
}

px_status px__json_skip(px__json *json) {
  json_object *value;
  PX_TRY(px__json_value(&value, json, VALUE_LIMIT));
  json_object_put(value);
  return PX_OK;
}

// ---- fast paths for plain strings and sizes

static bool is_plain_escape(char c) { return c == '"' || c == '\\' || c == '/'; }
static bool is_letter(char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; }

enum { BLOCK = 16 };  // bytes per vector
typedef signed char block __attribute__((vector_size(BLOCK)));

// Number of leading letters of a block. In the comparison a non-letter byte has all bits set. Bytes
// over 127 are negative here.
static size_t letters_of(const char *text) {
  block x;
  uint64_t marks[2];
  memcpy(&x, text, sizeof x);
  block others = (x < ' ') | (x == '"') | (x == '\\') | (x > '~');
  memcpy(marks, &others, sizeof marks);
  if (marks[0]) return (size_t)__builtin_ctzll(le64toh(marks[0])) / 8;
  return marks[1] ? 8 + (size_t)__builtin_ctzll(le64toh(marks[1])) / 8 : BLOCK;
}

// Number of leading letters, possibly undercounted near the end of the text.
static size_t letters_before(const char *text, size_t rest) {
  return rest >= BLOCK ? letters_of(text) : rest && is_letter(*text);
}

// Returns the index of the closing quote of an ASCII string with only \", \\ and \/ escapes; 0 for
// any other value.
static size_t plain_end(const px__json *json, size_t limit, bool *escapes) {
  const char *text = json->text + json->at;
  size_t rest = json->length - json->at, end = rest < limit ? rest : limit;
  if (!end || *text != '"') return 0;
  for (size_t i = 1; i < end;) {
    i += letters_before(text + i, end - i);
    if (i == end || is_letter(text[i])) continue;
    if (text[i] == '"') return json->at + i;
    if (text[i] != '\\' || ++i == end || !is_plain_escape(text[i])) return 0;
    *escapes = true;
    i++;
  }
  return 0;
}

// Decodes the string in place and returns it.
static const char *take_plain(px__json *json, size_t end, bool escapes) {
  char *begin = json->text + json->at + 1, *to = begin, *stop = json->text + end;
  for (const char *from = begin; escapes && from < stop;) {
    size_t letters = letters_before(from, (size_t)(stop - from));
    memmove(to, from, letters);
    to += letters;
    from += letters;
    if (from < stop && *from == '\\') *to++ = from[1], from += 2;
  }
  *(escapes ? to : stop) = 0;
  json->at = end + 1;
  return begin;
}

px_status px__json_text(const char **out, px__json *json, size_t limit) {
  peek(json);
  char *start = json->text + json->at;
  json_object *value;
  bool escapes = false;
  size_t end = plain_end(json, limit, &escapes);
  if (end) return *out = take_plain(json, end, escapes), PX_OK;
  PX_TRY(px__json_value(&value, json, limit));
  const char *text =
      json_object_is_type(value, json_type_string) ? json_object_get_string(value) : NULL;
  bool cut = text && strlen(text) != (size_t)json_object_get_string_len(value);
  *out = text ? memcpy(start, text, strlen(text) + 1) : NULL;
  json_object_put(value);
  return cut ? fail(json, "a text contains a zero byte") : PX_OK;
}

px_status px__json_key(const char **out, px__json *json) {
  PX_TRY(px__json_text(out, json, KEY_LIMIT));
  if (!*out) return fail(json, "a member without a name");
  PX_TRY(step(json, ':'));
  peek(json);
  return PX_OK;
}

px_status px__json_skip_text(px__json *json) {
  PX_TRY(step(json, '"'));
  while (json->at < json->length && json->text[json->at] != '"')
    json->at += json->text[json->at] == '\\' ? 2 : 1;
  if (json->at >= json->length) return fail(json, "an unterminated value");
  json->at++;
  return PX_OK;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Numbers of up to DIGITS digits are read without the parser.
static px_status size_read(int64_t *out, px__json *json) {
  json_object *value;
  size_t at = json->at;
  int64_t n = 0;
  for (; at < json->length && at < json->at + DIGITS && is_digit(json->text[at]); at++)
    n = 10 * n + (json->text[at] - '0');
  bool ends = at < json->length && (json->text[at] == ',' || json->text[at] == ']');
  bool plain = ends && at > json->at && (json->text[json->at] != '0' || at == json->at + 1);
  *out = n;
  if (plain) return json->at = at, PX_OK;
  PX_TRY(px__json_value(&value, json, VALUE_LIMIT));
  *out = json_object_is_type(value, json_type_int) ? json_object_get_int64(value) : -1;
  json_object_put(value);
  return PX_OK;
}

px_status px__json_sizes(int64_t *out, int capacity, int *count, px__json *json) {
  bool more;
  int64_t size;
  *count = -1;
  if (peek(json) != '[') return px__json_skip(json);
  PX_TRY(px__json_begin(json, '['));
  for (*count = 0;; ++*count) {
    PX_TRY(px__json_more(json, ']', &more));
    if (!more) return PX_OK;
    peek(json);
    PX_TRY(size_read(&size, json));
    if (*count < capacity) out[*count] = size;
  }
}

void px__json_close(px__json *json) {
  if (json->parser) json_tokener_free(json->parser);
  json->parser = NULL;
}

// ---- writing

static px_status put(px__json_writer *w, const char *text) {
  return px__writer_write(w->to, text, strlen(text));
}

// Writes a comma, unless the value is the first of its container.
static px_status begin(px__json_writer *w) {
  const char *before = w->after_key || w->first ? "" : ",";
  w->first = w->after_key = false;
  return put(w, before);
}

px_status px__json_put(px__json_writer *w, const char *literal) {
  PX_TRY(begin(w));
  return put(w, literal);
}

px_status px__json_open(px__json_writer *w, char bracket) {
  PX_TRY(px__json_put(w, (char[]){bracket, 0}));
  w->first = true;
  return PX_OK;
}

px_status px__json_shut(px__json_writer *w, char bracket) {
  w->first = false;
  return put(w, (char[]){bracket, 0});
}

// Rejects strings that the parser would not accept.
static px_status readable(px__json_writer *w, const char *literal) {
  PX_TRY(parser_reset(&w->parser, w->to->path));
  json_object_put(json_tokener_parse_ex(w->parser, literal, (int)strlen(literal)));
  PX_CHECK(json_tokener_get_error(w->parser) == json_tokener_success, PX_VALUE,
           "a text of '%s' is not UTF-8", w->to->path);
  return PX_OK;
}

px_status px__json_put_text(px__json_writer *w, const char *text) {
  json_object *value = px_fault_check("alloc") ? NULL : json_object_new_string(text);
  const char *literal =
      value ? json_object_to_json_string_ext(value, JSON_C_TO_STRING_NOSLASHESCAPE) : NULL;
  px_status status = literal ? readable(w, literal) : PX_NOMEM;
  if (status == PX_OK) status = px__json_put(w, literal);
  json_object_put(value);
  PX_CHECK(literal, PX_NOMEM, "out of memory while writing '%s'", w->to->path);
  return status;
}

px_status px__json_put_key(px__json_writer *w, const char *text) {
  PX_TRY(px__json_put_text(w, text));
  w->after_key = true;
  return put(w, ":");
}

void px__json_writer_close(px__json_writer *w) {
  if (w->parser) json_tokener_free(w->parser);
  w->parser = NULL;
}
