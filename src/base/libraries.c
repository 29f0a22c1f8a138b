// SPDX-License-Identifier: Apache-2.0
// Opens libraries of device backends and of collective engines.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base_impl.h"

enum { FOLDER = 1500 };

// Keeps the loader's message for a library that exists.
static void *open_in(const char *folder, const char *below, const char *name,
                     char why[PX_LOADER_TEXT]) {
  char path[4096];
  int needed = snprintf(path, sizeof path, "%s%s/libphlox_%s.so", folder, below, name);
  if (needed < 0 || needed >= (int)sizeof path) return NULL;
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle || access(path, F_OK)) return handle;
  const char *text = dlerror();
  snprintf(why, PX_LOADER_TEXT, "%s", text ? text : "");
  return NULL;
}

// Writes the folder of this library, or of the program if it is linked statically.
static void own_folder(char out[FOLDER]) {
  static const char here = 0;
  Dl_info self;
  const char *path = dladdr(&here, &self) && self.dli_fname ? self.dli_fname : "";
  const char *slash = strrchr(path, '/');
  snprintf(out, FOLDER, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
}

void *px_library_open(const char *folder, const char *name, char why[PX_LOADER_TEXT]) {
  char own[FOLDER], file[64], ignored[PX_LOADER_TEXT] = "";
  own_folder(own);
  *why = 0;
  void *handle = folder ? open_in(folder, "", name, ignored) : NULL;
  if (!handle) handle = open_in(own, "", name, why);
  if (!handle) handle = open_in(own, "/phlox", name, why);
  if (!handle) handle = open_in(PX_BACKEND_FOLDER, "", name, why);
  if (handle) return handle;
  snprintf(file, sizeof file, "libphlox_%s.so", name);
  if (!*why) snprintf(why, PX_LOADER_TEXT, "%s is not installed", file);
  return dlopen(file, RTLD_NOW | RTLD_LOCAL);
}
