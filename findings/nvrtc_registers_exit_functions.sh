#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# NVRTC 13.0.88: it registers functions that run at exit not only when it is loaded, but during compilations, too.
#
# exit() runs such functions in the reverse order. A program that compiles on a thread of its own and ends that thread in a function of atexit() can
# register it after loading NVRTC and before the first compilation. That function then runs after functions of NVRTC, while NVRTC still compiles.
# Destructors of thread-local objects of the main thread run before all of them. The example counts registrations.
#
# Output seen:
#   registered while the library was loaded: some
#   registered during the first compilation: some
#   registered during the second compilation: none
exec "$(dirname "$0")/../tools/finding.sh" "$0" nvidia-cuda-nvrtc==13.0.88 <<'PROGRAM'
import importlib.util
import os
import subprocess
import tempfile

TEXT = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

static int count;
int __cxa_atexit(void (*function)(void *), void *object, void *library) {
  int (*real)(void (*)(void *), void *, void *);
  *(void **)&real = dlsym(RTLD_NEXT, "__cxa_atexit");
  count++;
  return real(function, object, library);
}
static void report(const char *when) {
  printf("registered %s: %s\n", when, count ? "some" : "none");
  count = 0;
}

int main(int argc, char **argv) {
  static const char *const text = "__global__ void f(float *x) { x[threadIdx.x] += 1; }";
  void *library = dlopen(argv[1], RTLD_NOW), *program;
  if (!library) return 1;
  int (*create)(void **, const char *, const char *, int, const char *const *, const char *const *);
  int (*compile)(void *, int, const char *const *);
  *(void **)&create = dlsym(library, "nvrtcCreateProgram");
  *(void **)&compile = dlsym(library, "nvrtcCompileProgram");
  report("while the library was loaded");
  for (int i = 0; i < 2; i++) {
    if (create(&program, text, "f.cu", 0, NULL, NULL) || compile(program, 0, NULL)) return 1;
    report(i ? "during the second compilation" : "during the first compilation");
  }
  return 0;
}
"""

place = importlib.util.find_spec("nvidia.cu13").submodule_search_locations[0]
with tempfile.TemporaryDirectory() as folder:
    source, program = os.path.join(folder, "count.c"), os.path.join(folder, "count")
    with open(source, "w") as file:
        file.write(TEXT)
    subprocess.run(["cc", "-O1", "-rdynamic", "-o", program, source, "-ldl"], check=True)
    subprocess.run([program, os.path.join(place, "lib", "libnvrtc.so.13")], check=True)
PROGRAM
