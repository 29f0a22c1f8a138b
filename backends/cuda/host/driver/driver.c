// SPDX-License-Identifier: Apache-2.0
// The CUDA driver: functions loaded by name, errors with PyTorch's texts, thread contexts.
//
// Each call checks the thread's current context, because other libraries of the process may have
// changed it. The check takes a few nanoseconds.
#include "cuda/host/driver/cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

px__cuda_api px__cu;
const px_core *px__cuda_core;
px__cuda_device px__cuda_devices[PX__CUDA_DEVICES];

// ---- functions

bool px__cuda_symbols(void *api, void *library, const px__cuda_symbol *symbols, size_t count) {
  for (size_t i = 0; library && i < count; i++) {
    void *found = dlsym(library, symbols[i].name);
    if (!found) return false;
    memcpy((char *)api + symbols[i].at, &found, sizeof found);
  }
  return library != NULL;
}

#define TEXT_OF(name) TEXT(name)
#define TEXT(name) #name
static const px__cuda_symbol symbols[] = {
#define XX(name) {TEXT_OF(name), offsetof(px__cuda_api, name)},
#include "cuda/cuda.sym"
#undef XX
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool loaded;

// Fails for drivers older than the toolkit: they lack functions.
static void load(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  loaded = px__cuda_symbols(&px__cu, library, symbols, sizeof symbols / sizeof *symbols);
}

bool px__cuda_load(void) {
  pthread_once(&once, load);
  return loaded;
}

// ---- errors

// Driver codes with a name in the runtime's reference, linked by PyTorch's error texts. Other codes
// get no link.
static const struct {
  int code;
  const char *name;
} names[] = {{1, "InvalidValue"},
             {3, "InitializationError"},
             {4, "CudartUnloading"},
             {46, "DevicesUnavailable"},
             {100, "NoDevice"},
             {200, "InvalidKernelImage"},
             {201, "DeviceUninitialized"},
             {209, "NoKernelImageForDevice"},
             {214, "ECCUncorrectable"},
             {217, "PeerAccessUnsupported"},
             {218, "InvalidPtx"},
             {220, "NvlinkUncorrectable"},
             {221, "JitCompilerNotFound"},
             {222, "UnsupportedPtxVersion"},
             {304, "OperatingSystem"},
             {400, "InvalidResourceHandle"},
             {401, "IllegalState"},
             {500, "SymbolNotFound"},
             {600, "NotReady"},
             {700, "IllegalAddress"},
             {701, "LaunchOutOfResources"},
             {702, "LaunchTimeout"},
             {704, "PeerAccessAlreadyEnabled"},
             {705, "PeerAccessNotEnabled"},
             {709, "ContextIsDestroyed"},
             {710, "Assert"},
             {711, "TooManyPeers"},
             {714, "HardwareStackError"},
             {715, "IllegalInstruction"},
             {716, "MisalignedAddress"},
             {717, "InvalidAddressSpace"},
             {718, "InvalidPc"},
             {719, "LaunchFailure"},
             {720, "CooperativeLaunchTooLarge"},
             {800, "NotPermitted"},
             {801, "NotSupported"},
             {802, "SystemNotReady"},
             {803, "SystemDriverMismatch"},
             {804, "CompatNotSupportedOnDevice"},
             {900, "StreamCaptureUnsupported"},
             {901, "StreamCaptureInvalidated"},
             {906, "StreamCaptureImplicit"},
             {999, "Unknown"}};

// Writes PyTorch's hint for an error code.
static void hint(int code, char *text, size_t capacity) {
  *text = 0;
  if (code == CUDA_ERROR_INVALID_DEVICE)
    snprintf(text, capacity, "\nGPU device may be out of range, do you have enough GPUs?");
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (names[i].code == code)
      snprintf(text, capacity,
               "\nSearch for `cudaError%s' in https://docs.nvidia.com/cuda/cuda-runtime-api/"
               "group__CUDART__TYPES.html for more information.",
               names[i].name);
}

static bool blocking(void) {
  bool on;
  return px_env_CUDA_LAUNCH_BLOCKING(px__cuda_core, &on) == PX_OK && on;
}

px_status px__cuda_error(int code, const char *file, int line, const char *function) {
  const char *text = NULL;
  char more[256];
  if (px__cu.cuGetErrorString((CUresult)code, &text) != CUDA_SUCCESS || !text)
    text = "unknown error";
  hint(code, more, sizeof more);
  px_status status = code == CUDA_ERROR_OUT_OF_MEMORY   ? PX_OUT_OF_MEMORY
                     : code == CUDA_ERROR_INVALID_VALUE ? PX_VALUE
                                                        : PX_ACCELERATOR;
  return px__cuda_core->error(
      status, code, file, line, function,
      "CUDA error: %s%s\n%sCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n",
      text, more,
      blocking() ? ""
                 : "CUDA kernel errors might be asynchronously reported at some other API call, so "
                   "the stacktrace below might be incorrect.\nFor debugging consider passing "
                   "CUDA_LAUNCH_BLOCKING=1\n");
}

// ---- contexts

static px_status use(CUcontext context) {
  CUcontext now = NULL;
  PX_CUDA_TRY(cuCtxGetCurrent(&now));
  if (__builtin_expect(now != context, 0)) PX_CUDA_TRY(cuCtxSetCurrent(context));
  return PX_OK;
}

px_status px__cuda_use(int device) {
  bool inside = device >= 0 && device < PX__CUDA_DEVICES;
  if (!inside || !__atomic_load_n(&px__cuda_devices[device].open, __ATOMIC_ACQUIRE))
    return px__cuda_error(CUDA_ERROR_INVALID_DEVICE, __FILE__, __LINE__, __func__);
  return use(px__cuda_devices[device].context);
}

px_status px__cuda_use_any(void) {
  CUcontext now = NULL;
  PX_CUDA_TRY(cuCtxGetCurrent(&now));
  if (now) return PX_OK;
  for (int i = 0; i < PX__CUDA_DEVICES; i++)
    if (__atomic_load_n(&px__cuda_devices[i].open, __ATOMIC_ACQUIRE)) return px__cuda_use(i);
  return px__cuda_error(CUDA_ERROR_INVALID_CONTEXT, __FILE__, __LINE__, __func__);
}

px_status px__cuda_use_stream(CUstream stream) {
  CUcontext context = NULL;
  PX_CUDA_PASS(px__cuda_use_any());
  PX_CUDA_TRY(cuStreamGetCtx(stream, &context));
  return use(context);
}
