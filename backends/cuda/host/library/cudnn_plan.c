// SPDX-License-Identifier: Apache-2.0
// cuDNN execution plans. Heuristics propose engines for a graph; the first working ones become
// plans. Creating a plan takes milliseconds, so plans are cached.
#include "cuda/host/library/cudnn_descriptor.h"

#include <stdlib.h>
#include <string.h>

// Attribute names from cuDNN's header.
enum {
  HEURISTICS_OF_MODE = 200,
  HEURISTICS_OF_GRAPH = 201,
  HEURISTICS_RESULTS = 202,
  CONFIGURATION_ENGINE = 300,
  PLAN_HANDLE = 400,
  PLAN_CONFIGURATION = 401,
  PLAN_WORKSPACE = 402,
  PACK_IDS = 1000,
  PACK_POINTERS = 1001,
  PACK_WORKSPACE = 1003,
  ENGINE_NOTES = 1303
};
enum { MODE_INSTANT = 0, MODE_FALLBACK = 2 };
enum { ENGINES = 24, NOTES = 16, PROBES = 8 };

static void destroy(void *descriptor) {
  if (descriptor) px__cudnn.cudnnBackendDestroyDescriptor(descriptor);
}
static int create(void **out, int type) {
  return px__cudnn.cudnnBackendCreateDescriptor(type, out);
}
static int set(void *of, int name, int type, int64_t count, const void *values) {
  return px__cudnn.cudnnBackendSetAttribute(of, name, type, count, values);
}
static int get(void *of, int name, int type, int64_t capacity, int64_t *count, void *out) {
  return px__cudnn.cudnnBackendGetAttribute(of, name, type, capacity, count, out);
}
static int finish(void *descriptor) { return px__cudnn.cudnnBackendFinalize(descriptor); }

// ---- engines

// Returns the number of engine configurations in order of preference. The caller destroys all of
// `out`.
static int configurations(void *out[ENGINES], const px__cudnn_graph *g, int32_t mode) {
  void *h = NULL;
  int64_t count = 0;
  memset(out, 0, ENGINES * sizeof *out);
  int status = create(&h, PX_CUDNN_OF_HEURISTICS);
  if (!status) status = set(h, HEURISTICS_OF_GRAPH, PX_CUDNN_DESCRIPTOR, 1, &g->descriptor);
  if (!status) status = set(h, HEURISTICS_OF_MODE, PX_CUDNN_HEURISTICS_MODE, 1, &mode);
  if (!status) status = finish(h);
  for (int i = 0; !status && i < ENGINES; i++) status = create(&out[i], PX_CUDNN_OF_CONFIGURATION);
  if (!status) status = get(h, HEURISTICS_RESULTS, PX_CUDNN_DESCRIPTOR, ENGINES, &count, out);
  destroy(h);
  return status ? 0 : (int)(count < ENGINES ? count : ENGINES);
}

// Bit i: the engine has note i. An engine that cannot be queried has all.
static uint32_t notes_of(void *configuration) {
  int32_t notes[NOTES];
  int64_t count = 0, one = 0;
  uint32_t bits = 0;
  void *engine = NULL;
  if (create(&engine, PX_CUDNN_OF_ENGINE)) return UINT32_MAX;
  bool good = !get(configuration, CONFIGURATION_ENGINE, PX_CUDNN_DESCRIPTOR, 1, &one, &engine) &&
              !get(engine, ENGINE_NOTES, PX_CUDNN_NOTE, NOTES, &count, notes);
  for (int64_t i = 0; good && i < count && i < NOTES; i++) bits |= 1u << (notes[i] & 31);
  destroy(engine);
  return good ? bits : UINT32_MAX;
}

// ---- plans

void px__cudnn_plan_release(px__cudnn_plan *p) {
  destroy(p->plan);
  destroy(p->configuration);
  *p = (px__cudnn_plan){0};
}

// Creates a plan from the configuration, taking ownership of it.
static bool make(px__cudnn_plan *p, void *handle, void **configuration) {
  int64_t count = 0;
  *p = (px__cudnn_plan){.configuration = *configuration};
  *configuration = NULL;
  int status = create(&p->plan, PX_CUDNN_OF_PLAN);
  if (!status) status = set(p->plan, PLAN_HANDLE, PX_CUDNN_HANDLE, 1, &handle);
  if (!status) status = set(p->plan, PLAN_CONFIGURATION, PX_CUDNN_DESCRIPTOR, 1, &p->configuration);
  if (!status) status = finish(p->plan);
  if (!status) status = get(p->plan, PLAN_WORKSPACE, PX_CUDNN_INT64, 1, &count, &p->workspace);
  return !status;
}

int px__cudnn_plans(px__cudnn_plan *out, int capacity, const px__cudnn_graph *g, uint32_t unwanted,
                    int64_t max_workspace) {
  static const int32_t modes[] = {MODE_INSTANT, MODE_FALLBACK};
  void *found[ENGINES];
  int made = 0;
  for (int m = 0; g->status == 0 && m < 2 && !made; m++) {
    int count = configurations(found, g, modes[m]);
    for (int i = 0; i < count && made < capacity; i++) {
      if (notes_of(found[i]) & unwanted) continue;
      if (make(&out[made], g->handle, &found[i]) && out[made].workspace <= max_workspace)
        made++;
      else
        px__cudnn_plan_release(&out[made]);
    }
    for (int i = 0; i < ENGINES; i++) destroy(found[i]);
  }
  return made;
}

bool px__cudnn_has_engine(const px__cudnn_graph *g) {
  void *found[ENGINES];
  if (g->status) return false;
  int count = configurations(found, g, MODE_INSTANT);
  for (int i = 0; i < ENGINES; i++) destroy(found[i]);
  return count > 0;
}

int px__cudnn_plan_run(const px__cudnn_plan *p, void *handle, int count, const int64_t *ids,
                       void *const *data, void *workspace) {
  void *pack = NULL;
  int status = create(&pack, PX_CUDNN_OF_PACK);
  if (!status) status = set(pack, PACK_POINTERS, PX_CUDNN_POINTER, count, data);
  if (!status) status = set(pack, PACK_IDS, PX_CUDNN_INT64, count, ids);
  if (!status) status = set(pack, PACK_WORKSPACE, PX_CUDNN_POINTER, 1, &workspace);
  if (!status) status = finish(pack);
  if (!status) status = px__cudnn.cudnnBackendExecute(handle, p->plan, pack);
  destroy(pack);
  return status;
}

// ---- tables

static uint64_t hash_of(const char *key, size_t bytes) {
  uint64_t word, hash = 14695981039346656037u;
  for (size_t i = 0; i < bytes; i += sizeof word) {
    memcpy(&word, key + i, sizeof word);
    hash = (hash ^ word) * 1099511628211u, hash ^= hash >> 29;
  }
  return hash;
}

px__cudnn_entry *px__cudnn_find(px__cudnn_table *table, int device, const void *key) {
  size_t bytes = table->key_bytes;
  px__cudnn_entry **entries = &table->of[device].entries;
  char **keys = &table->of[device].keys;
  if (!*entries) *entries = calloc(PX_CUDNN_ENTRIES, sizeof **entries);
  if (!*keys) *keys = malloc(PX_CUDNN_ENTRIES * bytes);
  if (!*entries || !*keys) return NULL;
  uint64_t hash = hash_of(key, bytes), spare = PX_CUDNN_ENTRIES;
  for (uint64_t i = 0; i < PROBES; i++) {
    uint64_t at = (hash + i) % PX_CUDNN_ENTRIES;
    if ((*entries)[at].known && !memcmp(*keys + at * bytes, key, bytes)) return &(*entries)[at];
    if (!(*entries)[at].known && spare == PX_CUDNN_ENTRIES) spare = at;
  }
  if (spare == PX_CUDNN_ENTRIES) spare = (hash + (hash >> 32) % PROBES) % PX_CUDNN_ENTRIES;
  px__cudnn_plan_release(&(*entries)[spare].plan);
  memcpy(*keys + spare * bytes, key, bytes);
  (*entries)[spare].known = false;
  return &(*entries)[spare];
}
