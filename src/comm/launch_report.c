// SPDX-License-Identifier: Apache-2.0
// Reports on failed ranks: which ranks, how they ended, and the traceback from the error file
// (JSON in the format of torch.distributed.elastic's `record`).
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "comm/launch_impl.h"

enum {
  MAX_FILE = 1 << 20,  // bytes read of an error file
  MAX_OTHER = 300,     // bytes of traceback of other failures
  MAX_ROOT = 2200,     // bytes of traceback of the root cause
  REPORT = PX_ERROR_MESSAGE
};

static const struct {
  const char *name;
  int number;
} names[] = {
#define XX(name) \
  { #name, name }
    XX(SIGTERM), XX(SIGINT),  XX(SIGHUP),  XX(SIGQUIT), XX(SIGUSR1), XX(SIGUSR2), XX(SIGABRT),
    XX(SIGALRM), XX(SIGKILL), XX(SIGSEGV), XX(SIGBUS),  XX(SIGFPE),  XX(SIGILL),  XX(SIGPIPE),
    XX(SIGTRAP), XX(SIGXCPU), XX(SIGXFSZ), XX(SIGSYS)
#undef XX
};
enum { NAMES = sizeof names / sizeof *names, HANDLED = 6 };

const char *px__signal_name(int signal) {
  for (int i = 0; i < NAMES; i++)
    if (names[i].number == signal) return names[i].name;
  return "another signal";
}

int px__signal_number(const char *name, size_t length) {
  for (int i = 0; i < HANDLED; i++)
    if (strlen(names[i].name) == length && !strncmp(names[i].name, name, length))
      return names[i].number;
  return 0;
}

static size_t put_utf8(char *to, unsigned code) {
  if (!code) code = 0x2400;  // the symbol of the null character, which would end the text
  if (code >= 0x10000) {
    to[0] = (char)(0xf0 | code >> 18);
    to[1] = (char)(0x80 | (code >> 12 & 63));
    to[2] = (char)(0x80 | (code >> 6 & 63));
    to[3] = (char)(0x80 | (code & 63));
    return 4;
  }
  if (code < 0x80) return to[0] = (char)code, 1;
  if (code < 0x800) return to[0] = (char)(0xc0 | code >> 6), to[1] = (char)(0x80 | (code & 63)), 2;
  to[0] = (char)(0xe0 | code >> 12);
  to[1] = (char)(0x80 | (code >> 6 & 63));
  to[2] = (char)(0x80 | (code & 63));
  return 3;
}

// Reads \u and four hexadecimal digits.
static bool read_unit(const char *at, unsigned *unit) {
  char digits[5];
  if (strncmp(at, "\\u", 2) != 0) return false;
  snprintf(digits, sizeof digits, "%.4s", at + 2);
  *unit = (unsigned)strtoul(digits, NULL, 16);
  return strspn(digits, "0123456789abcdefABCDEF") == 4;
}

// Reads one unit, or two of a surrogate pair. Returns the number of characters read; 0 for none.
static int read_code(const char *at, unsigned *code) {
  unsigned low;
  if (!read_unit(at, code)) return 0;
  if (*code < 0xd800 || *code > 0xdfff) return 6;
  if (*code < 0xdc00 && read_unit(at + 6, &low) && low >= 0xdc00 && low <= 0xdfff)
    return *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00), 12;
  return *code = 0xfffd, 6;  // a lone surrogate
}

// Decodes a JSON string in place; `text` starts after the opening quote. Returns false if it is
// unterminated.
static bool unquote(char *text) {
  static const char from[] = "nrtbf", to[] = "\n\r\t\b\f";
  size_t out = 0;
  for (const char *in = text; *in; in++) {
    if (*in == '"') return text[out] = 0, true;
    if (*in != '\\') {
      text[out++] = *in;
      continue;
    }
    unsigned code;
    int length = read_code(in, &code);
    if (length) {
      out += put_utf8(text + out, code);
      in += length - 1;
      continue;
    }
    const char *known = *++in ? strchr(from, *in) : NULL;
    if (!*in || *in == 'u') return false;
    text[out++] = known ? to[known - from] : *in;
  }
  return false;
}

// Returns the string value of a key, or NULL.
static char *string_of(char *json, const char *key) {
  for (char *at = json; (at = strstr(at, key));) {
    at += strlen(key);
    char *value = at + strspn(at, ": ");
    if (value > at && *value == '"') return unquote(value + 1) ? value + 1 : NULL;
  }
  return NULL;
}

static char *read_file(const char *path) {
  char *text;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return NULL;
  if (px_alloc((void **)&text, MAX_FILE) != PX_OK) return px_error_clear(), close(file), NULL;
  ssize_t got = read(file, text, MAX_FILE - 1);
  close(file);
  if (got > 0) return text;
  px_free(text);
  return NULL;
}

// Returns the last `max` bytes of a text, from the start of a line if a short one precedes them.
static const char *last_part(const char *text, size_t max) {
  size_t length = strlen(text);
  if (length <= max) return text;
  text += length - max;
  const char *line = strchr(text, '\n');
  if (line && line < text + max / 2) return line;
  while ((*text & 0xc0) == 0x80) text++;  // the rest of a character
  return text;
}

// Appends indented lines. A long text is cut at the front, as a traceback names the error last.
static size_t add_lines(char *to, size_t at, size_t size, const char *text, size_t max) {
  for (text = last_part(text, max); *text && at + 4 < size; text++) {
    if (*text == '\n' && !text[1]) break;
    to[at++] = *text;
    if (*text == '\n') to[at++] = ' ', to[at++] = ' ';
  }
  to[at] = 0;
  return at;
}

static size_t describe(char *to, size_t at, size_t size, const px__launch_rank *r, int number,
                       size_t max) {
  char host[PX__HOST] = "", when[32] = "", how[128];
  time_t seconds = (time_t)(r->ended / 1000000000);
  struct tm parts;
  bool killed = WIFSIGNALED(r->status);
  int signal = killed ? WTERMSIG(r->status) : 0;
  gethostname(host, sizeof host - 1);
  strftime(when, sizeof when, "%Y-%m-%d_%H:%M:%S", localtime_r(&seconds, &parts));
  char *json = read_file(r->error_file),
       *traceback = json ? string_of(json, "\"py_callstack\"") : NULL;
  if (json && !traceback) traceback = string_of(json, "\"message\"");
  snprintf(how, sizeof how, "Signal %d (%s) received by PID %d", signal, px__signal_name(signal),
           (int)r->pid);
  if (!traceback)
    traceback = killed ? how
                       : "none: torch.distributed.elastic.multiprocessing.errors.record "
                         "writes one";
  int length =
      snprintf(to + at, size - at,
               "[%d]:\n  time      : %s\n  host      : %s\n  rank      : %d (local_rank: %d)\n"
               "  exitcode  : %d (pid: %d)%s%s%s\n  error_file: %s\n  traceback : ",
               number, when, host, r->rank, r->local, killed ? -signal : WEXITSTATUS(r->status),
               (int)r->pid, killed ? " (" : "", killed ? px__signal_name(signal) : "",
               killed ? ")" : "", json ? r->error_file : "<N/A>");
  at = length > 0 && at + (size_t)length < size ? at + (size_t)length : size - 1;
  at = add_lines(to, at, size - 2, traceback, max);
  px_free(json);
  return at;
}

px_status px__launch_report(const px__launch_rank *ranks, int count, const char *program) {
  static const char thick[] = "============================================================";
  static const char thin[] = "------------------------------------------------------------";
  char text[REPORT] = "";
  int first = -1, number = 0, root = 0;
  for (int i = 0; i < count; i++)
    if (ranks[i].failed && (first < 0 || ranks[i].ended < ranks[first].ended)) first = i;
  PX_CHECK(first >= 0, PX_BUG, "no rank has failed");
  size_t at = (size_t)snprintf(text, sizeof text, "\n%s\n%.200s FAILED\n%s\nFailures:\n", thick,
                               program, thin);
  for (int i = 0; i < count; i++) {
    if (!ranks[i].failed) continue;
    if (i == first)
      root = number++;
    else if (at + MAX_ROOT + 2 * MAX_OTHER + 600 < sizeof text) {
      at = describe(text, at, sizeof text, &ranks[i], number++, MAX_OTHER);
      text[at++] = '\n';
    } else
      number++;
  }
  at +=
      (size_t)snprintf(text + at, sizeof text - at, "%s%s\nRoot Cause (first observed failure):\n",
                       number == 1 ? "  <NO_OTHER_FAILURES>\n" : "", thin);
  at = describe(text, at, sizeof text - 64, &ranks[first], root, MAX_ROOT);
  snprintf(text + at, sizeof text - at, "\n%s", thick);
  PX_FAIL(PX_RUNTIME, "%s", text);
}
