// SPDX-License-Identifier: Apache-2.0
// The kernels of chains: found by key, read from the cache on disk, or compiled by NVRTC on a
// thread of their own, since it needs a large stack. A key is the key of the chain and the device's
// architecture.
#include "cuda/host/chain/chain.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- NVRTC

typedef struct nvrtc_api {
#define XX(name, parameters) int(*name) parameters;
#include "cuda/nvrtc.sym"
#undef XX
} nvrtc_api;
static nvrtc_api nvrtc;
static const px__cuda_symbol symbols[] = {
#define XX(name, parameters) {#name, offsetof(nvrtc_api, name)},
#include "cuda/nvrtc.sym"
#undef XX
};
static pthread_once_t library_once = PTHREAD_ONCE_INIT;
static bool loaded, waits;
static int version;
static uint64_t headers_sum;  // of the library's headers

static void load(void) {
  static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
  const char *mode;
  int major = 0, minor = 0;
  if (px_env_PHLOX_FUSE_COMPILE(px__cuda_core, &mode) != PX_OK || !strcmp(mode, "never")) return;
  waits = !strcmp(mode, "wait");
  void *library = px__cuda_library(names, sizeof names / sizeof *names);
  loaded = px__cuda_symbols(&nvrtc, library, symbols, sizeof symbols / sizeof *symbols) &&
           nvrtc.nvrtcVersion(&major, &minor) == 0;
  version = 100 * major + minor;
  headers_sum = PX__SUM_START;
  for (int i = 0; i < px__cuda_sources_count; i++)
    headers_sum =
        px__cuda_sum(headers_sum, px__cuda_sources[i].content, strlen(px__cuda_sources[i].content));
}

bool px__cuda_can_compile(void) {
  pthread_once(&library_once, load);
  return loaded;
}

// ---- programs

typedef enum state { WAITING, COMPILED, READY, FAILED } state;
typedef struct program {
  struct program *next, *later;  // in the hash chain; in the queue
  uint32_t hash;
  int state;         // atomic
  int architecture;  // 90 for compute capability 9.0
  char *source;      // until it is compiled
  void *code;        // COMPILED
  size_t code_bytes;
  CUkernel kernel;  // READY
  char *log;        // FAILED: NVRTC's messages
  int key_count;
  int32_t key[];
} program;

enum { CHAINS = 1024 };
static program *programs[CHAINS];  // atomic
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static program *first, **last = &first;  // the queue
static pthread_t worker;
static pid_t worker_process;  // 0: no worker
static bool stops;

static uint32_t hash_of(const px__cuda_chain *c, int architecture) {
  uint32_t hash = 2166136261u ^ (uint32_t)architecture;
  for (int i = 0; i < c->key_count; i++) hash = (hash ^ (uint32_t)c->key[i]) * 16777619u;
  return hash ^ hash >> 15;
}

static program *find(const px__cuda_chain *c, int architecture, uint32_t hash) {
  program *p = __atomic_load_n(&programs[hash % CHAINS], __ATOMIC_ACQUIRE);
  size_t bytes = (size_t)c->key_count * sizeof *c->key;
  for (; p; p = p->next)
    if (p->hash == hash && p->architecture == architecture && p->key_count == c->key_count &&
        !memcmp(p->key, c->key, bytes))
      return p;
  return NULL;
}

static char *text_of(const px__cuda_chain *c) {
  char *text = NULL;
  size_t length;
  FILE *to = open_memstream(&text, &length);
  if (!to) return NULL;
  px__cuda_chain_write(to, c);
  if (fclose(to) == 0) return text;
  free(text);
  return NULL;
}

// ---- compilation

enum { SOURCES = 32, STANDARD = 7, ABOUT = 128 };

// Writes the architecture, the compiler and the headers: they and its text decide a program's code.
static void describe(const program *p, char about[ABOUT]) {
  snprintf(about, ABOUT, "sm_%d, NVRTC %d, headers %016llx", p->architecture, version,
           (unsigned long long)headers_sum);
}

static int build(void *handle, int architecture) {
  char option[32];
  snprintf(option, sizeof option, "--gpu-architecture=sm_%d", architecture);
  const char *options[] = {option, "-std=c++17", "-fmad=false", "-w"};
  return nvrtc.nvrtcCompileProgram(handle, sizeof options / sizeof *options, options);
}

static void *read_code(void *handle, size_t *bytes) {
  void *code = nvrtc.nvrtcGetCUBINSize(handle, bytes) == 0 ? malloc(*bytes) : NULL;
  if (!code || nvrtc.nvrtcGetCUBIN(handle, code) == 0) return code;
  free(code);
  return NULL;
}

static char *read_log(void *handle) {
  size_t bytes = 0;
  char *log = nvrtc.nvrtcGetProgramLogSize(handle, &bytes) == 0 ? malloc(bytes + 1) : NULL;
  if (!log || nvrtc.nvrtcGetProgramLog(handle, log) == 0) return log;
  free(log);
  return NULL;
}

// Standard and toolkit headers are replaced by kernels/standard.cuh.
static void *compile(program *p, size_t *bytes) {
  static const char *const standard[STANDARD] = {"stdint.h", "stdbool.h",   "string.h",   "math.h",
                                                 "float.h",  "cuda_fp16.h", "cuda_bf16.h"};
  const char *names[SOURCES], *texts[SOURCES];
  int count = 0;
  void *handle, *code = NULL;
  for (int i = 0; i < px__cuda_sources_count; i++)
    names[count] = px__cuda_sources[i].name, texts[count++] = px__cuda_sources[i].content;
  for (int i = 0; i < STANDARD; i++)
    names[count] = standard[i], texts[count++] = "#include \"standard.cuh\"\n";
  if (nvrtc.nvrtcCreateProgram(&handle, p->source, "chain", count, texts, names)) return NULL;
  if (build(handle, p->architecture) == 0)
    code = read_code(handle, bytes);
  else
    p->log = read_log(handle);
  (void)nvrtc.nvrtcDestroyProgram(&handle);
  return code;
}

static void set_code(program *p, void *code, size_t bytes) {
  p->code = code, p->code_bytes = bytes;
  free(p->source);
  p->source = NULL;
  __atomic_store_n(&p->state, code ? COMPILED : FAILED, __ATOMIC_RELEASE);
}

static void compile_and_keep(program *p) {
  char about[ABOUT];
  size_t bytes = 0;
  void *code = compile(p, &bytes);
  describe(p, about);
  if (code) px__cuda_cache_keep(&(px__cuda_program){p->source, about}, code, bytes);
  set_code(p, code, bytes);
}

// ---- the thread

static void *work(void *unused) {
  (void)unused;
  pthread_mutex_lock(&lock);
  while (!stops) {
    program *p = first;
    if (!p) {
      pthread_cond_wait(&changed, &lock);
      continue;
    }
    first = p->later;
    if (!first) last = &first;
    pthread_mutex_unlock(&lock);
    compile_and_keep(p);
    pthread_mutex_lock(&lock);
    pthread_cond_broadcast(&changed);
  }
  pthread_mutex_unlock(&lock);
  return NULL;
}

// A forked process has no worker.
static void stop_worker(void) {
  if (worker_process != getpid()) return;
  pthread_mutex_lock(&lock);
  stops = true;
  for (; first; first = first->later) __atomic_store_n(&first->state, FAILED, __ATOMIC_RELEASE);
  last = &first;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  pthread_join(worker, NULL);
}

// NVRTC must not be in use when its static data is destroyed. It registers destructors while it
// compiles; functions of atexit() registered before then run too late. As in C++, destructors of a
// thread run before those of static data. The main thread's run when the process ends.
extern int __cxa_thread_atexit_impl(void (*destructor)(void *), void *object, void *library);
extern void *__dso_handle;
static void leave_thread(void *unused) {
  (void)unused;
  if (gettid() == getpid()) stop_worker();
}
static void watch_thread(void) {
  static _Thread_local bool watched;
  if (!watched) watched = __cxa_thread_atexit_impl(leave_thread, NULL, &__dso_handle) == 0;
}

// Lock held. The thread takes no signals.
static bool start_worker(void) {
  enum { STACK = 16 << 20 };  // bytes
  sigset_t all, before;
  pthread_attr_t about;
  if (worker_process == getpid()) return true;
  if (pthread_attr_init(&about) != 0) return false;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  bool started =
      !pthread_attr_setstacksize(&about, STACK) && !pthread_create(&worker, &about, work, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&about);
  if (!started) return false;
  worker_process = getpid();
  return true;
}

// Lock held.
static void queue(program *p) {
  if (stops || !start_worker()) {
    set_code(p, NULL, 0);
    return;
  }
  p->later = NULL, *last = p, last = &p->later;
  pthread_cond_broadcast(&changed);
}

static void wait_for(const program *p) {
  pthread_mutex_lock(&lock);
  while (__atomic_load_n(&p->state, __ATOMIC_ACQUIRE) == WAITING)
    pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
}

// ---- kernels

// Lock held. Reads the program's code from the cache, or has it compiled.
static program *add(const px__cuda_chain *c, int architecture, uint32_t hash) {
  char about[ABOUT];
  size_t bytes = (size_t)c->key_count * sizeof *c->key, code_bytes;
  program *p = calloc(1, sizeof *p + bytes);
  if (!p || !(p->source = text_of(c))) {
    free(p);
    return NULL;
  }
  p->hash = hash, p->architecture = architecture, p->key_count = c->key_count;
  memcpy(p->key, c->key, bytes);
  describe(p, about);
  void *code = px__cuda_cache_find(&(px__cuda_program){p->source, about}, &code_bytes);
  if (code)
    set_code(p, code, code_bytes);
  else
    queue(p);
  p->next = programs[hash % CHAINS];
  __atomic_store_n(&programs[hash % CHAINS], p, __ATOMIC_RELEASE);
  return p;
}

// Lock held. The driver may refuse the code, e.g. that of a newer NVRTC.
static void load_kernel(program *p) {
  CUlibrary library;
  if (__atomic_load_n(&p->state, __ATOMIC_ACQUIRE) != COMPILED) return;
  bool good =
      px__cu.cuLibraryLoadData(&library, p->code, NULL, NULL, 0, NULL, NULL, 0) == CUDA_SUCCESS &&
      px__cu.cuLibraryGetKernel(&p->kernel, library, "chain") == CUDA_SUCCESS;
  free(p->code);
  p->code = NULL;
  __atomic_store_n(&p->state, good ? READY : FAILED, __ATOMIC_RELEASE);
}

static program *find_or_add(const px__cuda_chain *c, int architecture, uint32_t hash) {
  program *p = find(c, architecture, hash);
  if (p) return p;
  pthread_mutex_lock(&lock);
  p = find(c, architecture, hash);
  if (!p) p = add(c, architecture, hash);
  pthread_mutex_unlock(&lock);
  return p;
}

px_status px__cuda_chain_kernel(CUkernel *out, const px__cuda_chain *c) {
  *out = NULL;
  if (!px__cuda_can_compile()) return PX_OK;
  watch_thread();
  const px__cuda_device *device = &px__cuda_devices[c->launch->device];
  int architecture = 10 * device->major + device->minor;
  program *p = find_or_add(c, architecture, hash_of(c, architecture));
  if (!p) PX_CUDA_FAIL(PX_NOMEM, "%s: out of memory", c->launch->op);
  if (waits) wait_for(p);
  if (__atomic_load_n(&p->state, __ATOMIC_ACQUIRE) == COMPILED) {
    pthread_mutex_lock(&lock);
    load_kernel(p);
    pthread_mutex_unlock(&lock);
  }
  int now = __atomic_load_n(&p->state, __ATOMIC_ACQUIRE);
  if (now == READY) *out = p->kernel;
  if (now == FAILED && waits)
    PX_CUDA_FAIL(PX_BUG, "%s: the kernel of a chain does not compile:\n%s", c->launch->op,
                 p->log ? p->log : "");
  return PX_OK;
}
