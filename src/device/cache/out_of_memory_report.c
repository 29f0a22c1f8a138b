// SPDX-License-Identifier: Apache-2.0
// The explanation after PyTorch's text of an out-of-memory error: the caller, the owners of live
// memory, fragmented free memory, and a remedy.
//
// It is formatted into a fixed buffer, since host memory may be exhausted as well.
#include "device/cache/cache.h"

#include <stdarg.h>
#include <stdio.h>

enum { OWNERS = 256, NAMED = 10 };

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
  size_t unattributed, others;  // live bytes without a stack; of owners past OWNERS
  pending pending[NAMED];
  int pending_count;
  size_t free, largest;  // in segments
} survey;

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
  if (i == OWNERS) {
    s->others += block->node.size;
    return;
  }
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

// ---- the text
const char *px__bytes_text(char text[PX__SIZE_TEXT], uint64_t bytes) {
  static const char *const units[] = {"KiB", "MiB", "GiB"};
  if (bytes <= 1024) {
    snprintf(text, PX__SIZE_TEXT, "%llu bytes", (unsigned long long)bytes);
    return text;
  }
  int unit = bytes <= 1 << 20 ? 0 : bytes <= 1 << 30 ? 1 : 2;
  snprintf(text, PX__SIZE_TEXT, "%.2f %s", (double)bytes / (double)(1ull << (10 * (unit + 1))),
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
  if (!px__caller && !file) return;
  put(w, "\nRequested");
  if (px__caller) put(w, " by %s", px__caller);
  if (file) put(w, " at %s:%d", file, line);
  put(w, ".");
}

static void put_pending(writer *w, const survey *s) {
  char bytes[PX__SIZE_TEXT], stream[64];
  for (int i = 0; i < s->pending_count; i++)
    put(w, "\nFreed, but in use by %s: %s.", px__stream_text(s->pending[i].stream, stream),
        px__bytes_text(bytes, s->pending[i].bytes));
}

static void put_owners(writer *w, survey *s) {
  char bytes[PX__SIZE_TEXT];
  if (s->owner_count) put(w, "\nLive memory by op and line:");
  for (int n = 0; n < NAMED && n < s->owner_count; n++) {
    owner *top = &s->owners[0];
    for (int i = 1; i < s->owner_count; i++)
      if (s->owners[i].bytes > top->bytes) top = &s->owners[i];
    put(w, "\n  %s in %lld block%s: %s at %s:%d", px__bytes_text(bytes, top->bytes),
        (long long)top->blocks, top->blocks == 1 ? "" : "s", top->op, top->line.file,
        top->line.line);
    s->others += top->bytes;
    top->bytes = 0;
  }
  if (s->owner_count && s->unattributed)
    put(w, "\n  %s from before the history", px__bytes_text(bytes, s->unattributed));
}

static void put_remedy(writer *w, const survey *s, const px__shortage *x) {
  char free_text[PX__SIZE_TEXT], missing[PX__SIZE_TEXT];
  size_t available = s->free + x->unused;
  put(w, "\nPossible remedy: ");
  if (x->limit && x->unused >= x->wanted)
    put(w, "a higher limit (set_per_process_memory_fraction), since the device has %s unused",
        px__bytes_text(free_text, x->unused));
  else if (s->pending_count)
    put(w, "work of other streams that ends, or is waited for, before its memory is freed");
  else if (available >= x->wanted)
    put(w,
        "the same memory in fewer pieces, since %s is free: large requests before small ones, "
        "sizes that repeat (roundup_power2_divisions)",
        px__bytes_text(free_text, available));
  else
    put(w, "%s less in use at this time: smaller batches, torch.utils.checkpoint, autocast",
        px__bytes_text(missing, x->wanted - available));
  put(w, ".");
  if (!s->owner_count)
    put(w, " torch.cuda.memory._record_memory_history() adds the owners of live memory here.");
}

void px__shortage_text(char *text, size_t capacity, px__device *d, const px__shortage *x) {
  static survey s;  // too large for the stack; guarded by `lock`
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  writer w = {text, capacity};
  char free_text[PX__SIZE_TEXT], largest[PX__SIZE_TEXT];
  *text = 0;
  put_caller(&w);  // may run the language, and takes no lock
  pthread_mutex_lock(&lock);
  memset(&s, 0, sizeof s);
  px__device_lock(d);
  for (px__segment *segment = d->cache.segments; segment; segment = segment->next)
    for (px__block *block = segment->first; block; block = block->next) add_block(&s, block);
  px__device_unlock(d);
  if (s.free)
    put(&w, "\nFree in blocks: %s, the largest has %s.", px__bytes_text(free_text, s.free),
        px__bytes_text(largest, s.largest));
  put_pending(&w, &s);
  put_owners(&w, &s);
  put_remedy(&w, &s, x);
  pthread_mutex_unlock(&lock);
}
