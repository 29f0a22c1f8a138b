// SPDX-License-Identifier: Apache-2.0
// The allocator's settings: PYTORCH_CUDA_ALLOC_CONF, and px_memory_configure. The text has the form
// "key:value,key:value". A value may be a list, "[256:1,512:2,>:4]".
//
// A text replaces all settings: missing keys get their defaults. A text with an error changes
// nothing. Every device has a copy under its lock. `lock` guards the latest settings and is taken
// before any device's lock.
#include "device/core/state.h"

#include <ctype.h>
#include <math.h>

enum { TOKENS = 256, TOKEN = 40, MIN_LARGE_MB = 10, DEFAULT_LARGE_MB = 20, REGISTER_THREADS = 128 };

static const px__settings defaults = {.max_split = SIZE_MAX,
                                      .non_split_rounding = (size_t)DEFAULT_LARGE_MB << 20,
                                      .large_segment = (size_t)DEFAULT_LARGE_MB << 20,
                                      .pinned_max_cached = SIZE_MAX,
                                      .fraction = -1};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static px__settings latest;
static bool chosen;  // by the program or by the environment
size_t px__pinned_max_cached = SIZE_MAX;
bool px__deterministic;
static unsigned unheeded;  // bits of the latest keys without effect, not yet warned of

typedef struct parser {
  char tokens[TOKENS][TOKEN];
  int count, at;
  bool has_split, has_rounding;  // max_split_size_mb, max_non_split_rounding_mb
  px__settings s;
  unsigned unheeded;
} parser;

// ---- tokens
static bool is_mark(char c) { return c == ',' || c == ':' || c == '[' || c == ']'; }

static px_status split(parser *p, const char *text) {
  size_t length = 0;
  for (bool open = false; *text; text++) {
    if (isspace((unsigned char)*text)) continue;
    bool mark = is_mark(*text);
    if (mark || !open) p->count++, length = 0;
    PX_CHECK(p->count <= TOKENS && length < TOKEN - 1, PX_VALUE,
             "the CUDA allocator config is too long: at most %d words of %d letters", TOKENS,
             TOKEN - 1);
    p->tokens[p->count - 1][length++] = *text;
    open = !mark;
  }
  return PX_OK;
}

static const char *token(const parser *p) { return p->at < p->count ? p->tokens[p->at] : ""; }

static px_status expect(parser *p, const char *wanted) {
  PX_CHECK(!strcmp(token(p), wanted), PX_VALUE,
           "Expected '%s' at index %d in ConfigTokenizer but got '%s'", wanted, p->at, token(p));
  p->at++;
  return PX_OK;
}

static px_status read_number(parser *p, double *out) {
  char *end;
  const char *text = token(p);
  *out = strtod(text, &end);
  PX_CHECK(*text && !*end && *out >= 0 && isfinite(*out), PX_VALUE,
           "Expected a number at index %d in ConfigTokenizer but got '%s'", p->at, text);
  p->at++;
  return PX_OK;
}

static px_status read_integer(parser *p, size_t *out) {
  double number;
  int at = p->at;
  PX_TRY(read_number(p, &number));
  PX_CHECK(number == floor(number) && number < 1e15, PX_VALUE,
           "Expected an integer at index %d in ConfigTokenizer but got '%s'", at, p->tokens[at]);
  *out = (size_t)number;
  return PX_OK;
}

static px_status read_bool(parser *p, bool *out) {
  const char *text = token(p);
  *out = !strcmp(text, "True");
  PX_CHECK(*out || !strcmp(text, "False"), PX_VALUE,
           "Expected 'True' or 'False' at index %d in ConfigTokenizer but got '%s'", p->at, text);
  p->at++;
  return PX_OK;
}

// ---- values
static px_status read_megabytes(parser *p, size_t *out) {
  size_t number;
  PX_TRY(read_integer(p, &number));
  *out = number < SIZE_MAX >> 20 ? number << 20 : SIZE_MAX;
  return PX_OK;
}

static px_status max_split_size_mb(parser *p) {
  p->has_split = true;
  return read_megabytes(p, &p->s.max_split);
}
static px_status max_non_split_rounding_mb(parser *p) {
  p->has_rounding = true;
  return read_megabytes(p, &p->s.non_split_rounding);
}
static px_status large_segment_size_mb(parser *p) {
  PX_TRY(read_megabytes(p, &p->s.large_segment));
  PX_CHECK(p->s.large_segment > (size_t)MIN_LARGE_MB << 20, PX_VALUE,
           "CachingAllocator option large_segment_size_mb must be > %d MB", MIN_LARGE_MB);
  return PX_OK;
}

// Checked after the whole text is parsed: large_segment_size_mb may follow these keys.
static px_status check_minimum(bool given, const char *key, size_t size, size_t minimum) {
  PX_CHECK(!given || size >= minimum, PX_VALUE,
           "CachingAllocator option %s too small, must be >= %zu", key, minimum >> 20);
  return PX_OK;
}

static px_status garbage_collection_threshold(parser *p) {
  PX_TRY(read_number(p, &p->s.gc_threshold));
  PX_CHECK(p->s.gc_threshold > 0 && p->s.gc_threshold < 1, PX_VALUE,
           "garbage_collect_threshold is invalid, set it in (0.0, 1.0)");
  return PX_OK;
}

static px_status per_process_memory_fraction(parser *p) {
  PX_TRY(read_number(p, &p->s.fraction));
  PX_CHECK(p->s.fraction <= 1, PX_VALUE,
           "per_process_memory_fraction is invalid, set it in [0.0, 1.0]");
  return PX_OK;
}

static px_status pinned_max_cached_size_mb(parser *p) {
  size_t number;
  PX_TRY(read_integer(p, &number));
  p->s.pinned_max_cached = number < SIZE_MAX >> 20 ? number << 20 : SIZE_MAX;
  return PX_OK;
}

static px_status expandable_segments(parser *p) {
  bool wanted;
  PX_TRY(read_bool(p, &wanted));
  p->s.expandable = wanted ? PX__EXPANDABLE_TRUE : PX__EXPANDABLE_FALSE;
  return PX_OK;
}

static px_status deterministic(parser *p) { return read_bool(p, &p->s.deterministic); }

static bool is_power(size_t n) { return n && !(n & (n - 1)); }

// "[256:1,512:2,>:4]": 1 up to 256 MiB, 2 up to 512, 4 above.
static px_status read_steps(parser *p) {
  size_t limit, parts = 0;
  int step = 0;
  do {
    bool rest = !strcmp(token(p), ">");
    if (rest)
      p->at++;
    else
      PX_TRY(read_integer(p, &limit));
    PX_CHECK(rest || is_power(limit), PX_VALUE,
             "For roundups, the intervals have to be power of 2");
    PX_TRY(expect(p, ":"));
    PX_TRY(read_integer(p, &parts));
    PX_CHECK(!parts || is_power(parts), PX_VALUE,
             "For roundups, the divisions has to be power of 2 or 0 to disable roundup");
    int end = rest ? PX__ROUND_STEPS : __builtin_ctzll(limit);
    for (; step < end && step < PX__ROUND_STEPS; step++) p->s.divisions[step] = parts;
  } while (!strcmp(token(p), ",") && ++p->at);
  for (; step < PX__ROUND_STEPS; step++) p->s.divisions[step] = parts;
  return expect(p, "]");
}

static px_status roundup_power2_divisions(parser *p) {
  size_t parts;
  if (!strcmp(token(p), "[")) return p->at++, read_steps(p);
  PX_TRY(read_integer(p, &parts));
  PX_CHECK(is_power(parts), PX_VALUE, "For roundups, the divisions has to be power of 2");
  for (int i = 0; i < PX__ROUND_STEPS; i++) p->s.divisions[i] = parts;
  return PX_OK;
}

// ---- keys without effect: parsed and checked
#define BOOL(name, bit) \
  static px_status name(parser *p) { \
    bool wanted; \
    PX_TRY(read_bool(p, &wanted)); \
    if (wanted) p->unheeded |= 1u << (bit); \
    return PX_OK; \
  }
#define INTEGER(name, bit) \
  static px_status name(parser *p) { \
    size_t number; \
    PX_TRY(read_integer(p, &number)); \
    p->unheeded |= 1u << (bit); \
    return PX_OK; \
  }
enum { BACKEND, LOCK, REGISTER, THREADS, BACKGROUND, RESERVE, ROUND, CAPTURE, THROW, CATCH, RANGE };
BOOL(release_lock_on_cudamalloc, LOCK)
BOOL(pinned_use_cuda_host_register, REGISTER)
BOOL(pinned_use_background_threads, BACKGROUND)
INTEGER(pinned_max_round_threshold_mb, ROUND)
BOOL(graph_capture_record_stream_reuse, CAPTURE)
BOOL(throw_on_cudamalloc_oom, THROW)
BOOL(pinned_free_catch_all, CATCH)

static px_status pinned_reserve_segment_size_mb(parser *p) {
  size_t number;
  PX_TRY(read_integer(p, &number));
  PX_CHECK(number > 0, PX_VALUE, "Pinned reserve segment size has to be greater than 0");
  p->unheeded |= 1u << RESERVE;
  return PX_OK;
}

// Parses a fraction of the device, "0.5", or a size, "40G".
static px_status read_range(parser *p) {
  char *end;
  double number = strtod(token(p), &end);
  bool is_size = *end && strchr("KMGT", *end);
  PX_CHECK(
      number > 0 && number < 1e18 && !end[is_size], PX_VALUE,
      "an expandable-segment reserve is a positive fraction like 0.5 or a size like 40G, but got "
      "'%s'",
      token(p));
  p->at++;
  return PX_OK;
}
static px_status expandable_segments_reserve(parser *p) {
  PX_TRY(read_range(p));
  p->unheeded |= 1u << RANGE;
  return PX_OK;
}
// "[default:40G,side:0.5]"
static px_status expandable_segments_reserve_by_class(parser *p) {
  PX_TRY(expect(p, "["));
  do {
    p->at++;
    PX_TRY(expect(p, ":"));
    PX_TRY(read_range(p));
  } while (!strcmp(token(p), ",") && ++p->at);
  p->unheeded |= 1u << RANGE;
  return expect(p, "]");
}

static px_status backend(parser *p) {
  bool async = !strcmp(token(p), "cudaMallocAsync");
  PX_CHECK(async || !strcmp(token(p), "native"), PX_VALUE,
           "Unknown allocator backend, options are native and cudaMallocAsync");
  if (async) p->unheeded |= 1u << BACKEND;
  p->at++;
  return PX_OK;
}

static px_status pinned_num_register_threads(parser *p) {
  size_t number;
  PX_TRY(read_integer(p, &number));
  PX_CHECK(is_power(number), PX_VALUE, "Number of register threads has to be power of 2, got %zu",
           number);
  PX_CHECK(number <= REGISTER_THREADS, PX_VALUE,
           "Number of register threads should be less than or equal to %d, got %zu",
           REGISTER_THREADS, number);
  p->unheeded |= 1u << THREADS;
  return PX_OK;
}

// Warnings by bit of `unheeded`.
#define NO_EFFECT(name, why) name " has no effect: " why
static const char *const unheeded_texts[] = {
    "backend:cudaMallocAsync is not supported: the native allocator is used",
    NO_EFFECT("release_lock_on_cudamalloc", "each device has its own lock"),
    NO_EFFECT("pinned_use_cuda_host_register", "page-locked memory is allocated, not registered"),
    NO_EFFECT("pinned_num_register_threads", "page-locked memory is allocated, not registered"),
    NO_EFFECT("pinned_use_background_threads", "events are polled when memory is requested"),
    NO_EFFECT("pinned_reserve_segment_size_mb", "memory is taken as requests need it"),
    NO_EFFECT("pinned_max_round_threshold_mb", "sizes are not rounded to powers of two"),
    NO_EFFECT("graph_capture_record_stream_reuse", "always on, if waits order the uses"),
    NO_EFFECT("throw_on_cudamalloc_oom", "an error is raised only after all fallbacks"),
    NO_EFFECT("pinned_free_catch_all", "freeing page-locked memory never raises"),
    NO_EFFECT("expandable_segments_reserve",
              "a device has one range of addresses, for all streams")};

#define KEY(name) \
  { #name, name }
static const struct {
  const char *name;
  px_status (*read)(parser *p);
} keys[] = {KEY(backend),
            KEY(max_split_size_mb),
            KEY(max_non_split_rounding_mb),
            KEY(large_segment_size_mb),
            KEY(garbage_collection_threshold),
            KEY(per_process_memory_fraction),
            KEY(roundup_power2_divisions),
            KEY(expandable_segments),
            KEY(expandable_segments_reserve),
            KEY(expandable_segments_reserve_by_class),
            KEY(deterministic),
            KEY(release_lock_on_cudamalloc),
            KEY(pinned_use_cuda_host_register),
            KEY(pinned_num_register_threads),
            KEY(pinned_use_background_threads),
            KEY(pinned_reserve_segment_size_mb),
            KEY(pinned_max_round_threshold_mb),
            KEY(pinned_max_cached_size_mb),
            KEY(graph_capture_record_stream_reuse),
            KEY(throw_on_cudamalloc_oom),
            KEY(pinned_free_catch_all),
            {"release_lock_on_hipmalloc", release_lock_on_cudamalloc},
            {"pinned_use_hip_host_register", pinned_use_cuda_host_register}};

static px_status read_key(parser *p) {
  for (int i = 0; i < PX_COUNT_OF(keys); i++) {
    if (strcmp(keys[i].name, token(p))) continue;
    p->at++;
    PX_TRY(expect(p, ":"));
    return keys[i].read(p);
  }
  PX_FAIL(PX_VALUE, "Unrecognized key '%s' in Accelerator allocator config.", token(p));
}

static px_status parse(parser *p, const char *text) {
  memset(p, 0, sizeof *p);
  p->s = defaults;
  PX_TRY(split(p, text));
  while (p->at < p->count) {
    PX_TRY(read_key(p));
    if (p->at < p->count) PX_TRY(expect(p, ","));
  }
  PX_TRY(check_minimum(p->has_split, "max_split_size_mb", p->s.max_split, p->s.large_segment));
  PX_TRY(check_minimum(p->has_rounding, "max_non_split_rounding_mb", p->s.non_split_rounding,
                       p->s.large_segment));
  return PX_OK;
}

// ---- current settings
void px__settings_limit(px__device *d, double fraction) {
  size_t limit = (size_t)(fraction * (double)d->properties.total_memory);
  d->cache.limit = fraction < 1 ? (limit ? limit : 1) : 0;
  d->cache.fraction = fraction;
}

void px__settings_apply(px__device *d) {
  pthread_mutex_lock(&lock);
  px__settings s = latest;
  pthread_mutex_unlock(&lock);
  px__device_lock(d);
  d->cache.settings = s;
  if (s.fraction >= 0) px__settings_limit(d, s.fraction);
  px__device_unlock(d);
}

static px_status apply_text(const char *text) {
  parser *p;
  PX_TRY(PX_NEW(&p));
  px_status status = parse(p, text);
  if (status == PX_OK) {
    pthread_mutex_lock(&lock);
    latest = p->s;
    unheeded = p->unheeded;
    __atomic_store_n(&px__pinned_max_cached, p->s.pinned_max_cached, __ATOMIC_RELAXED);
    __atomic_store_n(&px__deterministic, p->s.deterministic, __ATOMIC_RELAXED);
    chosen = true;
    pthread_mutex_unlock(&lock);
  }
  px__free(p);
  return status;
}

px_status px__settings_start(void) {
  if (chosen) return PX_OK;
  const char *text, *name = "PYTORCH_ALLOC_CONF";
  PX_TRY(px__env_PYTORCH_ALLOC_CONF(&text));
  if (!text) {
    name = "PYTORCH_CUDA_ALLOC_CONF";
    PX_TRY(px__env_PYTORCH_CUDA_ALLOC_CONF(&text));
  }
  px_status status = apply_text(text ? text : "");
  if (status == PX_VALUE) PX_NOTE(" (%s is '%.200s')", name, text);
  return status;
}

px_status px__settings_warn(void) {
  pthread_mutex_lock(&lock);
  unsigned bits = unheeded;
  unheeded = 0;
  pthread_mutex_unlock(&lock);
  for (int i = 0; i < PX_COUNT_OF(unheeded_texts); i++)
    if (bits >> i & 1)
      PX_TRY(px_warn(PX_WARN_USER, "CUDA allocator config: %s", unheeded_texts[i]));
  return PX_OK;
}

px_status px_memory_configure(const char *text) {
  PX_TRY(apply_text(text ? text : ""));
  for (int i = 0; px__device_alive() && i < px__rt.count; i++)
    if (px__device_found(i)) px__settings_apply(px__device_found(i));
  return px__settings_warn();
}
