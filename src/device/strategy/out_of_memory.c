// SPDX-License-Identifier: Apache-2.0
// The last strategy: reports that the device is out of memory.
//
// PyTorch's text comes first. An explanation follows: the caller, the owners of live memory,
// fragmented free memory, and a remedy. It is formatted into a fixed buffer, since host memory may
// be exhausted as well.
#include "device/strategy/strategy.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

enum { OWNERS = 256, NAMED = 10, SIZE_TEXT = 32 };

// Live blocks of one op and line.
typedef struct owner {
  const char *op;  // or the function, if no op is known
  px_frame line;
  size_t bytes;
  int64_t blocks;
} owner;
typedef struct pending {
  const px_stream *stream;
  size_t bytes;
} pending;
typedef struct survey {
  owner owners[OWNERS];
  int owner_count;
  size_t unattributed;  // live bytes without a stack
  pending pending[NAMED];
  int pending_count;
  size_t free, largest;  // in segments
} survey;

typedef struct figures {
  size_t wanted, unused, total;  // unused and total: free and all memory of the device
  size_t reserved, limit;
  uint64_t allocated, private_pools;  // bytes; private_pools: the part in these
} figures;

// ---- survey; lock of the device held
// The program's line: the innermost frame outside the language's own code.
static const px_frame *line_of(const px_traceback *stack) {
  for (int i = 0; i < stack->count; i++)
    if (!stack->frames[i].inside) return &stack->frames[i];
  return stack->count ? &stack->frames[0] : NULL;
}

static void add_owner(survey *s, const px__block *block) {
  const px_traceback *stack = block->stack;
  const px_frame *line = stack ? line_of(stack) : NULL;
  if (!line) {
    s->unattributed += block->node.size;
    return;
  }
  const char *op = stack->op ? stack->op : line->function;
  int i = 0;
  while (i < s->owner_count && (s->owners[i].op != op || s->owners[i].line.file != line->file ||
                                s->owners[i].line.line != line->line))
    i++;
  if (i == OWNERS) return;
  if (i == s->owner_count) s->owners[s->owner_count++] = (owner){.op = op, .line = *line};
  s->owners[i].bytes += block->node.size;
  s->owners[i].blocks++;
}

static void add_pending(survey *s, px__block *block) {
  const px_stream *stream = px__allocation_user(&block->allocation, 0);
  int i = 0;
  while (i < s->pending_count && s->pending[i].stream != stream) i++;
  if (!stream || i == NAMED) return;
  if (i == s->pending_count) s->pending[s->pending_count++] = (pending){.stream = stream};
  s->pending[i].bytes += block->node.size;
}

static void add_block(survey *s, px__block *block) {
  if (block->state == PX__ALLOCATED) add_owner(s, block);
  if (block->state == PX__PENDING) add_pending(s, block);
  if (block->state != PX__FREE) return;
  s->free += block->node.size;
  if (block->node.size > s->largest) s->largest = block->node.size;
}

// ---- the explanation
static const char *bytes_text(char text[SIZE_TEXT], uint64_t bytes) {
  static const char *const units[] = {"KiB", "MiB", "GiB"};
  if (bytes <= 1024) {
    snprintf(text, SIZE_TEXT, "%llu bytes", (unsigned long long)bytes);
    return text;
  }
  int unit = bytes <= 1 << 20 ? 0 : bytes <= 1 << 30 ? 1 : 2;
  snprintf(text, SIZE_TEXT, "%.2f %s", (double)bytes / (double)(1ull << (10 * (unit + 1))),
           units[unit]);
  return text;
}

typedef struct writer {
  char *at;
  size_t capacity;
} writer;
__attribute__((format(printf, 2, 3))) static void put(writer *w, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(w->at, w->capacity, format, arguments);
  va_end(arguments);
  size_t used = length < 0 ? 0 : (size_t)length < w->capacity ? (size_t)length : w->capacity - 1;
  w->at += used, w->capacity -= used;
}

static void put_caller(writer *w) {
  const char *file;
  int line;
  px_site_get(&file, &line);
  if (!px__caller() && !file) return;
  put(w, "\nRequested");
  if (px__caller()) put(w, " by %s", px__caller());
  if (file) put(w, " at %s:%d", file, line);
  put(w, ".");
}

static void put_pending(writer *w, const survey *s) {
  char bytes[SIZE_TEXT], stream[64];
  for (int i = 0; i < s->pending_count; i++)
    put(w, "\nFreed, but in use by %s: %s.", px__stream_text(s->pending[i].stream, stream),
        bytes_text(bytes, s->pending[i].bytes));
}

static void put_owners(writer *w, survey *s) {
  char bytes[SIZE_TEXT];
  if (s->owner_count) put(w, "\nLive memory by op and line:");
  for (int n = 0; n < NAMED && n < s->owner_count; n++) {
    owner *top = &s->owners[0];
    for (int i = 1; i < s->owner_count; i++)
      if (s->owners[i].bytes > top->bytes) top = &s->owners[i];
    put(w, "\n  %s in %lld block%s: %s at %s:%d", bytes_text(bytes, top->bytes),
        (long long)top->blocks, top->blocks == 1 ? "" : "s", top->op, top->line.file,
        top->line.line);
    top->bytes = 0;
  }
  if (s->owner_count && s->unattributed)
    put(w, "\n  %s from before the history", bytes_text(bytes, s->unattributed));
}

static void put_remedy(writer *w, const survey *s, const figures *f) {
  char free_text[SIZE_TEXT], missing[SIZE_TEXT];
  size_t available = s->free + f->unused;
  put(w, "\nPossible remedy: ");
  if (f->limit && f->unused >= f->wanted)
    put(w, "a higher limit (set_per_process_memory_fraction), since the device has %s unused",
        bytes_text(free_text, f->unused));
  else if (s->pending_count)
    put(w, "work of other streams that ends, or is waited for, before its memory is freed");
  else if (available >= f->wanted)
    put(w,
        "the same memory in fewer pieces, since %s is free: large requests before small ones, "
        "sizes that repeat (roundup_power2_divisions)",
        bytes_text(free_text, available));
  else
    put(w, "%s less in use at this time: smaller batches, torch.utils.checkpoint, autocast",
        bytes_text(missing, f->wanted - available));
  put(w, ".");
  if (!s->owner_count)
    put(w, " torch.cuda.memory._record_memory_history() adds the owners of live memory here.");
}

static void put_explanation(writer *w, px__device *d, const figures *f) {
  static survey s;  // too large for the stack; guarded by `lock`
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  char free_text[SIZE_TEXT], largest[SIZE_TEXT];
  put_caller(w);  // may run the language, and takes no lock
  pthread_mutex_lock(&lock);
  memset(&s, 0, sizeof s);
  px__device_lock(d);
  for (px__segment *segment = d->cache.segments; segment; segment = segment->next)
    for (px__block *block = segment->first; block; block = block->next) add_block(&s, block);
  px__device_unlock(d);
  if (s.free)
    put(w, "\nFree in blocks: %s, the largest has %s.", bytes_text(free_text, s.free),
        bytes_text(largest, s.largest));
  put_pending(w, &s);
  put_owners(w, &s);
  put_remedy(w, &s, f);
  pthread_mutex_unlock(&lock);
}

// ---- PyTorch's text
// Describes the processes that hold memory of the device.
static void put_processes(writer *w, const px__device *d) {
  px_process rows[4];
  char held[SIZE_TEXT];
  int count = px__rt.backend->processes(d->physical, rows, PX_COUNT_OF(rows));
  for (int i = 0; i < count; i++) {
    bytes_text(held, rows[i].bytes);
    if (rows[i].id == (int64_t)getpid())
      put(w, "Including non-PyTorch memory, this process has %s memory in use. ", held);
    else
      put(w, "Process %lld has %s memory in use. ", (long long)rows[i].id, held);
  }
}

static void put_figures(writer *w, const px__device *d, const figures *f) {
  char a[SIZE_TEXT], b[SIZE_TEXT], c[SIZE_TEXT];
  put(w,
      "CUDA out of memory. Tried to allocate %s. GPU %d has a total capacity of %s of which %s is "
      "free. ",
      bytes_text(a, f->wanted), d->index, bytes_text(b, f->total), bytes_text(c, f->unused));
  put_processes(w, d);
  if (f->limit) put(w, "%s allowed; ", bytes_text(a, f->limit));
  put(w, "Of the allocated memory %s is allocated by PyTorch, ", bytes_text(a, f->allocated));
  if (f->private_pools)
    put(w, "with %s allocated in private pools (e.g., CUDA Graphs), ",
        bytes_text(a, f->private_pools));
  put(w,
      "and %s is reserved by PyTorch but unallocated. If reserved but unallocated memory is large "
      "try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See "
      "documentation for Memory Management  "
      "(https://docs.pytorch.org/docs/stable/notes/"
      "cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)",
      bytes_text(a, f->reserved - f->allocated));
}

static figures figures_of(px__device *d, size_t bytes) {
  size_t unused = 0, total = d->properties.total_memory;
  if (px__rt.backend->memory_info(d->physical, &unused, &total) != PX_OK) px_error_clear();
  px__device_lock(d);
  figures f = {.wanted = px__segment_size(d, bytes),
               .unused = unused,
               .total = total,
               .reserved = d->cache.reserved,
               .limit = d->cache.limit,
               .allocated = (uint64_t)d->cache.statistics.allocated_bytes[0].current,
               .private_pools = px__private_pools_allocated(d)};
  px__device_unlock(d);
  return f;
}

// ---- observers
enum { OBSERVERS = 16 };
static struct {
  px_shortage_observer call;
  void *context;
} observers[OBSERVERS];
static int observer_count;  // atomic; entries below it do not change
static pthread_mutex_t observers_lock = PTHREAD_MUTEX_INITIALIZER;

px_status px_memory_observe_shortage(px_shortage_observer observer, void *context) {
  PX_CHECK(observer, PX_TYPE, "an observer of shortages needs a function");
  pthread_mutex_lock(&observers_lock);
  int at = observer_count;
  if (at < OBSERVERS) {
    observers[at].call = observer, observers[at].context = context;
    __atomic_store_n(&observer_count, at + 1, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&observers_lock);
  PX_CHECK(at < OBSERVERS, PX_RUNTIME, "there are %d observers of shortages, the maximum",
           OBSERVERS);
  return PX_OK;
}

static void call_observers(const px__device *d, const figures *f) {
  int count = __atomic_load_n(&observer_count, __ATOMIC_ACQUIRE);
  for (int i = 0; i < count; i++)
    observers[i].call(d->index, f->wanted, f->limit ? f->limit : f->total, f->unused,
                      observers[i].context);
}

px_status px__out_of_memory(px__device *d, size_t bytes) {
  char text[PX_ERROR_MESSAGE];
  writer w = {text, sizeof text};
  figures f = figures_of(d, bytes);
  call_observers(d, &f);
  put_figures(&w, d, &f);
  put_explanation(&w, d, &f);
  PX_FAIL(PX_OUT_OF_MEMORY, "%s", text);
}

// ---- the strategy
// A request that may not wait gets the error of the last segment.
px__block *px__try_report(px__request *r) {
  px__device *d = r->device;
  size_t unused = 0, total;
  d->cache.statistics.num_ooms++;
  if (px__history_on()) {
    if (px__rt.backend->memory_info(d->physical, &unused, &total) != PX_OK) px_error_clear();
    px__history_note(d, &(px_memory_event){.action = PX_MEMORY_OOM,
                                           .size = (int64_t)r->size,
                                           .free_bytes = (int64_t)unused,
                                           .stream = r->stream->id,
                                           .stack = r->stack});
  }
  if (!r->may_wait) return NULL;
  px__device_unlock(d);
  r->status = px__out_of_memory(d, r->size);
  px__device_lock(d);
  return NULL;
}
