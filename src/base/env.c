// SPDX-License-Identifier: Apache-2.0
// Environment variables. Only this file reads the environment. It reads at each call, since
// programs set variables after their start.
#include "base/base_impl.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- readers by type
static const char *const true_words[] = {"1", "true", "yes", "on"};
static const char *const false_words[] = {"0", "false", "no", "off"};

static bool among(const char *const words[4], const char *text) {
  for (int i = 0; i < 4; i++)
    if (!strcasecmp(words[i], text)) return true;
  return false;
}

static px_status read_flag(const px_env_row *row, const char *text, void *out) {
  bool on = among(true_words, text);
  PX_CHECK(on || among(false_words, text), PX_VALUE,
           "%s must be 1, true, yes or on, or 0, false, no or off, but is '%.40s'", row->name,
           text);
  *(bool *)out = on;
  return PX_OK;
}

// Parses an integer, with an optional suffix if `bytes`. Returns the rest of the text, or NULL.
static const char *read_number(const char *text, bool bytes, int64_t *out) {
  char *end;
  errno = 0;
  *out = strtoll(text, &end, 10);
  if (end == text || errno) return NULL;
  const char *suffixes = "KMG";
  const char *suffix = bytes && *end ? strchr(suffixes, toupper((unsigned char)*end)) : NULL;
  if (!suffix) return end;
  return px__mul_size(*out, (int64_t)1024 << 10 * (suffix - suffixes), out) ? NULL : end + 1;
}

// True if `text` is a number within the row's bounds "MIN..MAX". Defaults are always valid.
static bool read_bounded(const px_env_row *row, const char *text, bool bytes, int64_t *out) {
  int64_t min, max;
  const char *end = read_number(text, bytes, out);
  if (text == row->fallback) return true;
  const char *dots = read_number(row->allowed, bytes, &min);
  read_number(dots + 2, bytes, &max);
  return end && !*end && *out >= min && *out <= max;
}

static px_status read_int(const px_env_row *row, const char *text, void *out) {
  int64_t number;
  const char *dots = strchr(row->allowed, '.');
  PX_CHECK(read_bounded(row, text, false, &number), PX_VALUE,
           "%s must be a number from %.*s to %s, but is '%.40s'", row->name,
           (int)(dots - row->allowed), row->allowed, dots + 2, text);
  *(int64_t *)out = number;
  return PX_OK;
}

static px_status read_bytes(const px_env_row *row, const char *text, void *out) {
  int64_t number;
  const char *dots = strchr(row->allowed, '.');
  PX_CHECK(read_bounded(row, text, true, &number), PX_VALUE,
           "%s must be a size such as 512M or 4G, but is '%.40s' (%.*s to %s are allowed)",
           row->name, text, (int)(dots - row->allowed), row->allowed, dots + 2);
  *(int64_t *)out = number;
  return PX_OK;
}

static px_status read_choice(const px_env_row *row, const char *text, void *out) {
  size_t length = strlen(text);
  char words[80] = "";
  for (const char *at = row->allowed; *at; at += *at == '|') {
    size_t word = strcspn(at, "|"), used = strlen(words);
    if (word == length && !strncmp(at, text, word)) return *(const char **)out = text, PX_OK;
    snprintf(words + used, sizeof words - used, "%s%.*s", used ? " or " : "", (int)word, at);
    at += word;
  }
  PX_FAIL(PX_VALUE, "%s must be %s, but is '%.40s'", row->name, words, text);
}

static px_status read_folder(const px_env_row *row, const char *text, void *out) {
  struct stat about;
  bool named = text && *text;
  PX_CHECK(!named || (stat(text, &about) == 0 && S_ISDIR(about.st_mode)), PX_VALUE,
           "%s must be a folder that exists, but is '%.200s'", row->name, text);
  *(const char **)out = named ? text : NULL;
  return PX_OK;
}

static px_status read_text(const px_env_row *row, const char *text, void *out) {
  *(const char **)out = text;
  return PX_OK;
}

// ---- the table
static const struct {
  px_env_row row;
  px_status (*read)(const px_env_row *row, const char *text, void *out);
} variables[] = {
#define PX_ENV(name, type, fallback, allowed, doc) \
  {{#name, #type, fallback, doc, allowed}, read_##type},
#include "phlox/tables/env.def"
#include "phlox/tables/env_cluster.def"
#undef PX_ENV
};

const px_env_row *px_env_at(int i) {
  return i >= 0 && i < PX_COUNT_OF(variables) ? &variables[i].row : NULL;
}

static const char *name_at(const void *names, int i) {
  const px_env_row *row = px_env_at(i);
  return row ? row->name : NULL;
}

static int find(const char *name) {
  for (int i = 0; i < PX_COUNT_OF(variables); i++)
    if (!strcmp(variables[i].row.name, name)) return i;
  return -1;
}

px_status px__env_read_row(int i, void *out) {
  const px_env_row *row = &variables[i].row;
  const char *text = getenv(row->name);
  if (*row->fallback && (!text || !*text)) text = row->fallback;
  return variables[i].read(row, text, out);
}

px_status px_env_read(const char *name, void *out) {
  PX_GIVEN(out);
  PX_GIVEN(name);
  int i = find(name);
  PX_CHECK(i >= 0, PX_KEY, "Phlox has no environment variable '%.64s': the nearest name is %s",
           name, px_name_suggest(name, name_at, NULL));
  return px__env_read_row(i, out);
}

// ---- misspelt names
static px_status check_name(const char *entry) {
  char name[80];
  if (strncmp(entry, "PHLOX_", 6)) return PX_OK;
  snprintf(name, sizeof name, "%.*s", (int)strcspn(entry, "="), entry);
  if (find(name) >= 0) return PX_OK;
  return px_warn(PX_WARN_USER,
                 "the environment has %s, which Phlox does not read: the nearest name is %s", name,
                 px_name_suggest(name, name_at, NULL));
}

px_status px__env_check(void) {
  static bool checked;  // atomic
  if (__atomic_exchange_n(&checked, true, __ATOMIC_RELAXED)) return PX_OK;
  px_status status = PX_OK;
  for (char **at = environ; at && *at && status == PX_OK; at++) status = check_name(*at);
  if (status != PX_OK) __atomic_store_n(&checked, false, __ATOMIC_RELAXED);
  return status;
}
