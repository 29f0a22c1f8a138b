// SPDX-License-Identifier: Apache-2.0
// Compiled programs on disk: a file for each, named by a hash of what decides its code. A file
// holds the program's text, too, so that programs with one hash are told apart, and a sum, so that
// a damaged file is compiled anew. Files are written under another name and renamed: several
// processes may share the folder.
#include "cuda/host/chain/chain.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 1024, MAX_FILE = 64 << 20 };
static const uint64_t magic = 0x316e696168637870;  // "pxchain1"

typedef struct header {
  uint64_t magic, sum, text_bytes, code_bytes;
} header;

uint64_t px__cuda_sum(uint64_t sum, const void *from, size_t bytes) {
  const unsigned char *at = from;
  for (size_t i = 0; i < bytes; i++) sum = (sum ^ at[i]) * 1099511628211u;
  return sum;
}

// False if programs are not kept: PHLOX_CACHE is 0, or nothing names a folder.
static bool folder_name(char *path) {
  const char *chosen, *caches, *home;
  int length;
  if (px_env_PHLOX_CACHE(px__cuda_core, &chosen) != PX_OK || !strcmp(chosen, "0") ||
      px_env_XDG_CACHE_HOME(px__cuda_core, &caches) != PX_OK ||
      px_env_HOME(px__cuda_core, &home) != PX_OK)
    return false;
  if (*chosen)
    length = snprintf(path, PATH, "%s", chosen);
  else if (*caches)
    length = snprintf(path, PATH, "%s/phlox", caches);
  else if (*home)
    length = snprintf(path, PATH, "%s/.cache/phlox", home);
  else
    return false;
  return length < PATH - 64;
}

// Makes the folder and those around it.
static bool make_folder(char *path) {
  for (char *at = path + 1; (at = strchr(at, '/')); at++) {
    *at = 0;
    int failed = mkdir(path, 0700) != 0 && errno != EEXIST;
    *at = '/';
    if (failed) return false;
  }
  return mkdir(path, 0700) == 0 || errno == EEXIST;
}

static void add_file_name(char *path, const px__cuda_program *p) {
  uint64_t a = PX__SUM_START, b = 0x9e3779b97f4a7c15u;
  a = px__cuda_sum(px__cuda_sum(a, p->about, strlen(p->about)), p->source, strlen(p->source));
  b = px__cuda_sum(px__cuda_sum(b, p->source, strlen(p->source)), p->about, strlen(p->about));
  size_t length = strlen(path);
  snprintf(path + length, PATH - length, "/%016llx%016llx.chain", (unsigned long long)a,
           (unsigned long long)b);
}

static bool read_all(int fd, void *to, size_t bytes) {
  for (char *at = to; bytes;) {
    ssize_t n = read(fd, at, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n, bytes -= (size_t)n;
  }
  return true;
}
static bool write_all(int fd, const void *from, size_t bytes) {
  for (const char *at = from; bytes;) {
    ssize_t n = write(fd, at, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n, bytes -= (size_t)n;
  }
  return true;
}

// A file that only this user can have written.
static bool is_own_file(int fd, size_t bytes) {
  struct stat about;
  return fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == geteuid() &&
         !(about.st_mode & (S_IWGRP | S_IWOTH)) && (size_t)about.st_size == bytes;
}

static void *read_code(int fd, const px__cuda_program *p, size_t *bytes) {
  header h;
  size_t text = strlen(p->source);
  if (!read_all(fd, &h, sizeof h) || h.magic != magic || h.text_bytes != text ||
      h.code_bytes > MAX_FILE || !is_own_file(fd, sizeof h + text + h.code_bytes))
    return NULL;
  char *both = malloc(text + h.code_bytes), *code = malloc(h.code_bytes + 1);
  bool good = both && code && read_all(fd, both, text + h.code_bytes) &&
              px__cuda_sum(magic, both, text + h.code_bytes) == h.sum &&
              !memcmp(both, p->source, text);
  if (good) memcpy(code, both + text, h.code_bytes);
  free(both);
  *bytes = h.code_bytes;
  if (good) return code;
  free(code);
  return NULL;
}

void *px__cuda_cache_find(const px__cuda_program *p, size_t *bytes) {
  char path[PATH];
  if (!folder_name(path)) return NULL;
  add_file_name(path, p);
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return NULL;
  void *code = read_code(fd, p, bytes);
  close(fd);
  return code;
}

static bool write_file(int fd, const px__cuda_program *p, const void *code, size_t bytes) {
  size_t text = strlen(p->source);
  header h = {magic, px__cuda_sum(px__cuda_sum(magic, p->source, text), code, bytes), text, bytes};
  return write_all(fd, &h, sizeof h) && write_all(fd, p->source, text) &&
         write_all(fd, code, bytes);
}

void px__cuda_cache_keep(const px__cuda_program *p, const void *code, size_t bytes) {
  char path[PATH], draft[PATH];
  if (!folder_name(path) || !make_folder(path)) return;
  if (snprintf(draft, sizeof draft, "%s/XXXXXX", path) >= (int)sizeof draft) return;
  add_file_name(path, p);
  int fd = mkostemp(draft, O_CLOEXEC);
  if (fd < 0) return;
  bool good = write_file(fd, p, code, bytes);
  good &= close(fd) == 0;
  if (!good || rename(draft, path) != 0) unlink(draft);
}
