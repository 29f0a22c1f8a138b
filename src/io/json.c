// SPDX-License-Identifier: Apache-2.0
// JSON of files, by json-c. What is read may come from anywhere: a cursor goes over the members of
// a large text, so that only one of them is in memory as a value; a value that nests too deeply, or
// is longer than its caller expects, is refused before it is complete.
#include <stdio.h>
#include <string.h>

#include "io/io_impl.h"

enum { DEPTH = 128 };  // a tree of values takes two levels for each of its own

// ---- reading

static px_status wrong(const px__json *json, const char *what) {
  return px_error_set(PX_RUNTIME, 0, __FILE__, __LINE__, __func__, "'%s': %s: %s at byte %zu",
                      json->path, json->of, what, json->at);
}

static char peek(px__json *json) {
  while (json->at < json->length && strchr(" \t\r\n", json->text[json->at])) {
    if (!json->text[json->at]) return 0;  // strchr finds the end of its text too
    json->at++;
  }
  if (json->at == json->length) return 0;
  return json->text[json->at];
}

static px_status step(px__json *json, char expected) {
  char what[] = "'?' expected";
  what[1] = expected;
  if (peek(json) != expected) return wrong(json, what);
  json->at++;
  return PX_OK;
}

px_status px__json_begin(px__json *json) {
  json->first = true;
  return step(json, '{');
}

px_status px__json_more(px__json *json, bool *more) {
  *more = peek(json) != '}';
  if (*more && !json->first) PX_TRY(step(json, ','));
  json->first = false;
  return *more ? PX_OK : step(json, '}');
}

px_status px__json_end(px__json *json) {
  return peek(json) || json->at < json->length ? wrong(json, "more than one value") : PX_OK;
}

static px_status parsed(json_object **out, px__json *json, json_tokener *parser, size_t limit) {
  size_t rest = json->length - json->at, length = rest < limit ? rest : limit;
  *out = json_tokener_parse_ex(parser, json->text + json->at, (int)length);
  enum json_tokener_error error = json_tokener_get_error(parser);
  // A number may go on, so the parser waits for what follows it; a blank ends it.
  if (error == json_tokener_continue && length == rest) {
    *out = json_tokener_parse_ex(parser, " ", 1);
    error = json_tokener_get_error(parser);
    json->at += error == json_tokener_success ? length : 0;
  } else if (error == json_tokener_success) {
    json->at += json_tokener_get_parse_end(parser);
  }
  if (error == json_tokener_success) return PX_OK;
  if (error == json_tokener_error_depth) return wrong(json, "it is nested too deeply");
  if (error == json_tokener_continue)
    return wrong(json, length < rest ? "a value is too long" : "a value has no end");
  return wrong(json, json_tokener_error_desc(error));
}

px_status px__json_value(json_object **out, px__json *json, size_t limit) {
  *out = NULL;
  if (!json->parser && !px_fault_pass("alloc")) json->parser = json_tokener_new_ex(DEPTH);
  PX_CHECK(json->parser, PX_NOMEM, "out of memory while reading '%s'", json->path);
  json_tokener_reset(json->parser);
  json_tokener_set_flags(json->parser, JSON_TOKENER_STRICT | JSON_TOKENER_ALLOW_TRAILING_CHARS |
                                           JSON_TOKENER_VALIDATE_UTF8);
  return parsed(out, json, json->parser, limit);
}

px_status px__json_text(const char **out, json_object *value, const px__json *json) {
  *out = json_object_is_type(value, json_type_string) ? json_object_get_string(value) : NULL;
  if (*out && strlen(*out) != (size_t)json_object_get_string_len(value))
    return wrong(json, "a text holds a zero byte");
  return PX_OK;
}

px_status px__json_key(json_object **key, const char **text, px__json *json, size_t limit) {
  PX_TRY(px__json_value(key, json, limit));
  px_status status = px__json_text(text, *key, json);
  if (status == PX_OK && !*text) status = wrong(json, "a member without a name");
  if (status == PX_OK) status = step(json, ':');
  if (status == PX_OK) peek(json);
  if (status != PX_OK) json_object_put(*key);
  return status;
}

px_status px__json_skip_text(px__json *json) {
  PX_TRY(step(json, '"'));
  while (json->at < json->length && json->text[json->at] != '"')
    json->at += json->text[json->at] == '\\' ? 2 : 1;
  if (json->at >= json->length) return wrong(json, "a value has no end");
  json->at++;
  return PX_OK;
}

void px__json_close(px__json *json) {
  if (json->parser) json_tokener_free(json->parser);
  json->parser = NULL;
}

// ---- writing

static px_status put(px__json_writer *w, const char *text) {
  return px__writer_write(w->to, text, strlen(text));
}

// What stands before a value: a comma, unless it is the first of its container.
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

// What the parser would not read is not written.
static px_status readable(px__json_writer *w, const char *literal) {
  px__json back = {.text = literal, .length = strlen(literal), .path = "", .of = "a text"};
  back.parser = w->parser;
  json_object *value = NULL;
  px_status status = px__json_value(&value, &back, back.length);
  json_object_put(value);
  w->parser = back.parser;
  PX_CHECK(status != PX_RUNTIME, PX_VALUE, "a text of '%s' is not UTF-8", w->to->path);
  return status;
}

px_status px__json_put_text(px__json_writer *w, const char *text) {
  json_object *value = px_fault_pass("alloc") ? NULL : json_object_new_string(text);
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
