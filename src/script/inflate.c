// SPDX-License-Identifier: Apache-2.0
// Decompression by zlib, opened at its first use.
#include <dlfcn.h>

#include "script/script_impl.h"

// zlib's z_stream: its layout is part of the library's stable binary interface.
typedef struct stream {
  const unsigned char *next_in;
  unsigned avail_in;
  unsigned long total_in;
  unsigned char *next_out;
  unsigned avail_out;
  unsigned long total_out;
  const char *message;
  void *state, *allocate, *release, *opaque;
  int data_type;
  unsigned long adler, reserved;
} stream;
enum { RAW_WINDOW = -15, FINISH = 4, STREAM_END = 1 };  // zlib.h

static struct {
  int (*init)(stream *, int window, const char *version, int size);
  int (*run)(stream *, int flush);
  int (*end)(stream *);
} zlib;
static bool found;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find(void) {
  void *library = dlopen("libz.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return;
  void *symbols[] = {dlsym(library, "inflateInit2_"), dlsym(library, "inflate"),
                     dlsym(library, "inflateEnd")};
  memcpy(&zlib, symbols, sizeof zlib);
  found = symbols[0] && symbols[1] && symbols[2];
}

px_status px__inflate(void *to, size_t size, const void *from, size_t length) {
  pthread_once(&once, find);
  PX_CHECK(found, PX_UNIMPLEMENTED,
           "compressed records of TorchScript archives need zlib: libz.so.1 was not found");
  stream s = {
      .next_in = from, .avail_in = (unsigned)length, .next_out = to, .avail_out = (unsigned)size};
  PX_CHECK(length <= UINT32_MAX && size <= UINT32_MAX, PX_RUNTIME,
           "a compressed record of the archive has more than 4 GiB");
  PX_CHECK(zlib.init(&s, RAW_WINDOW, "1", sizeof s) == 0, PX_NOMEM, "zlib cannot start");
  bool whole = zlib.run(&s, FINISH) == STREAM_END && s.avail_out == 0;
  zlib.end(&s);
  PX_CHECK(whole, PX_RUNTIME, "a compressed record of the archive is damaged");
  return PX_OK;
}
