// SPDX-License-Identifier: Apache-2.0
// Loads cuDNN on first use. Each device has one handle, guarded by a lock.
#include "cuda/host/library/cudnn.h"

#include <pthread.h>
#include <string.h>

px__cudnn_api px__cudnn;
px__cudnn_recurrent_api px__cudnn_recurrent;

static const px__cuda_symbol symbols[] = {
#define XX(result, name, parameters) {#name, offsetof(px__cudnn_api, name)},
#include "cuda/cudnn.sym"
#undef XX
};
static const px__cuda_symbol recurrent_symbols[] = {
#define XX(result, name, parameters) {#name, offsetof(px__cudnn_recurrent_api, name)},
#include "cuda/cudnn_recurrent.sym"
#undef XX
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool loaded, recurrent_loaded;
static struct {
  pthread_mutex_t lock;
  void *handle;
  CUstream stream;  // set on the handle
} devices[PX__CUDA_DEVICES];

static void load(void) {
  static const char *const names[] = {"libcudnn.so.9"};
  bool wanted;
  for (int i = 0; i < PX__CUDA_DEVICES; i++) pthread_mutex_init(&devices[i].lock, NULL);
  if (px_env_PHLOX_CUDNN(px__cuda_core, &wanted) != PX_OK || !wanted)
    return;  // open() reports errors
  void *library = px__cuda_library(names, 1);
  loaded = px__cuda_symbols(&px__cudnn, library, symbols, sizeof symbols / sizeof *symbols);
  recurrent_loaded =
      loaded && px__cuda_symbols(&px__cudnn_recurrent, library, recurrent_symbols,
                                 sizeof recurrent_symbols / sizeof *recurrent_symbols);
}

static bool available(void) {
  pthread_once(&once, load);
  return loaded;
}

bool px__cudnn_ready(void) {
  return px__cuda_core->setting(PX_SETTING_CUDNN_ENABLED) && available();
}

bool px__cudnn_recurrent_available(void) { return available() && recurrent_loaded; }

int64_t px__cudnn_version(void) { return available() ? (int64_t)px__cudnn.cudnnGetVersion() : 0; }

px_status px__cudnn_error(int status, const char *call) {
  char more[512] = "";
  px__cudnn.cudnnGetLastErrorString(more, sizeof more);
  return px__cuda_core->error(PX_ACCELERATOR, status, __FILE__, __LINE__, __func__,
                              "cuDNN error: %s when calling `%s`%s%s",
                              px__cudnn.cudnnGetErrorString(status), call, *more ? ": " : "", more);
}

void px__cudnn_lock(int device) { pthread_mutex_lock(&devices[device].lock); }
void px__cudnn_unlock(int device) { pthread_mutex_unlock(&devices[device].lock); }

px_status px__cudnn_any_handle(void **out, int device) {
  void **handle = &devices[device].handle;
  if (!*handle) {
    int status = px__cudnn.cudnnCreate(handle);
    if (status) return *handle = NULL, *out = NULL, px__cudnn_error(status, "cudnnCreate");
    devices[device].stream = NULL;
  }
  *out = *handle;
  return PX_OK;
}

px_status px__cudnn_handle(void **out, const px_launch *l) {
  PX_CUDA_PASS(px__cudnn_any_handle(out, l->device));
  if (devices[l->device].stream != l->stream) {
    int status = px__cudnn.cudnnSetStream(*out, l->stream);
    if (status) return *out = NULL, px__cudnn_error(status, "cudnnSetStream");
    devices[l->device].stream = l->stream;
  }
  return PX_OK;
}
