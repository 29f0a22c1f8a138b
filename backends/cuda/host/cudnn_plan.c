// SPDX-License-Identifier: Apache-2.0
// Execution plans of cuDNN: a problem becomes a graph with one convolution, cuDNN's heuristics
// propose engines, and the first ones that work become plans.
//
// A failure on the way is not an error; it means that there is no such plan, and other engines or
// kernels are used.
#include "cuda/host/cudnn.h"

#include <string.h>

// Of cuDNN's header. Descriptors:
enum {
  CONVOLUTION = 1,
  ENGINE = 2,
  CONFIGURATION = 3,
  HEURISTICS = 4,
  PLAN = 5,
  GRAPH = 15,
  PACK = 16,
  TENSOR = 17
};
// Types of attributes:
enum {
  HANDLE = 0,
  DATA_TYPE = 1,
  INT64 = 3,
  FLOAT = 4,
  DOUBLE = 5,
  POINTER = 6,
  CONVOLUTION_MODE = 7,
  HEURISTICS_MODE = 8,
  NOTE = 11,
  DESCRIPTOR = 15
};
// Attributes:
enum {
  CONVOLUTION_COMPUTE = 100,
  CONVOLUTION_WAY = 101,
  CONVOLUTION_DILATION = 102,
  CONVOLUTION_STRIDE = 103,
  CONVOLUTION_BEHIND = 104,
  CONVOLUTION_BEFORE = 105,
  CONVOLUTION_DIMS = 106,
  HEURISTICS_OF_MODE = 200,
  HEURISTICS_OF_GRAPH = 201,
  HEURISTICS_RESULTS = 202,
  CONFIGURATION_ENGINE = 300,
  PLAN_HANDLE = 400,
  PLAN_CONFIGURATION = 401,
  PLAN_WORKSPACE = 402,
  GRAPH_HANDLE = 800,
  GRAPH_OPERATIONS = 801,
  TENSOR_ALIGNMENT = 900,
  TENSOR_TYPE = 901,
  TENSOR_SIZES = 902,
  TENSOR_STRIDES = 903,
  TENSOR_ID = 906,
  PACK_IDS = 1000,
  PACK_POINTERS = 1001,
  PACK_WORKSPACE = 1003,
  ENGINE_NOTES = 1303
};
// What an engine says of itself, and modes:
enum { TENSOR_CORE, ROUNDS_INPUTS, SHORT_SUMS, FOURIER, NOT_REPEATABLE, NOTES = 16 };
enum { CROSS_CORRELATION = 1, MODE_INSTANT = 0, MODE_FALLBACK = 2 };
enum { ENGINES = 24 };

// An operation: its descriptor's type, and its attributes for image, weight and result.
static const struct {
  int type, alpha, beta, convolution, tensors[3];
} operations[] = {
    [PX_CUDNN_FORWARD] = {10, 700, 701, 702, {704, 703, 705}},
    [PX_CUDNN_IMAGE] = {12, 706, 707, 708, {710, 709, 711}},
    [PX_CUDNN_WEIGHT] = {11, 712, 713, 714, {716, 715, 717}},
};
static const int32_t types[PX_DTYPE_COUNT] = {
    [PX_FLOAT32] = 0 + 1, [PX_FLOAT64] = 1 + 1, [PX_FLOAT16] = 2 + 1, [PX_BFLOAT16] = 9 + 1};

bool px__cudnn_has_dtype(int dtype) {
  return dtype >= 0 && dtype < PX_DTYPE_COUNT && types[dtype] != 0;
}

// ---- descriptors

static void destroy(void *descriptor) {
  if (descriptor) px__cudnn.cudnnBackendDestroyDescriptor(descriptor);
}
// A new part of the plan; NULL where there is none.
static void *part(px__cudnn_plan *p, int type) {
  void *made = NULL;
  if (px__cudnn.cudnnBackendCreateDescriptor(type, &made)) return NULL;
  return p->parts[p->count++] = made;
}
static bool set(void *descriptor, int name, int type, int64_t count, const void *values) {
  return px__cudnn.cudnnBackendSetAttribute(descriptor, name, type, count, values) == 0;
}
static bool finish(void *descriptor) { return px__cudnn.cudnnBackendFinalize(descriptor) == 0; }

static void *tensor(px__cudnn_plan *p, const px__cudnn_problem *q, int which) {
  const int64_t *sizes = q->sizes[which];
  int64_t strides[4] = {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1};
  int64_t id = which + 1;
  int32_t type = types[q->dtype] - 1;
  void *t = part(p, TENSOR);
  bool good = t && set(t, TENSOR_TYPE, DATA_TYPE, 1, &type) &&
              set(t, TENSOR_SIZES, INT64, 4, sizes) && set(t, TENSOR_STRIDES, INT64, 4, strides) &&
              set(t, TENSOR_ID, INT64, 1, &id) &&
              set(t, TENSOR_ALIGNMENT, INT64, 1, &q->alignments[which]) && finish(t);
  return good ? t : NULL;
}

static void *convolution(px__cudnn_plan *p, const px__cudnn_problem *q) {
  int32_t compute = q->dtype == PX_FLOAT64, way = CROSS_CORRELATION;
  int64_t dims = 2;
  void *c = part(p, CONVOLUTION);
  bool good = c && set(c, CONVOLUTION_COMPUTE, DATA_TYPE, 1, &compute) &&
              set(c, CONVOLUTION_WAY, CONVOLUTION_MODE, 1, &way) &&
              set(c, CONVOLUTION_DIMS, INT64, 1, &dims) &&
              set(c, CONVOLUTION_DILATION, INT64, 2, q->dilation) &&
              set(c, CONVOLUTION_STRIDE, INT64, 2, q->stride) &&
              set(c, CONVOLUTION_BEFORE, INT64, 2, q->before) &&
              set(c, CONVOLUTION_BEHIND, INT64, 2, q->behind) && finish(c);
  return good ? c : NULL;
}

static void *operation(px__cudnn_plan *p, const px__cudnn_problem *q) {
  bool wide = q->dtype == PX_FLOAT64;
  float one[2] = {1, 0};
  double wide_one[2] = {1, 0};
  int scale = wide ? DOUBLE : FLOAT;
  void *c = convolution(p, q), *tensors[3];
  for (int i = 0; i < 3; i++)
    if (!(tensors[i] = tensor(p, q, i))) return NULL;
  void *o = c ? part(p, operations[q->kind].type) : NULL;
  bool good =
      o && set(o, operations[q->kind].convolution, DESCRIPTOR, 1, &c) &&
      set(o, operations[q->kind].alpha, scale, 1, wide ? (void *)wide_one : (void *)one) &&
      set(o, operations[q->kind].beta, scale, 1, wide ? (void *)&wide_one[1] : (void *)&one[1]);
  for (int i = 0; good && i < 3; i++)
    good = set(o, operations[q->kind].tensors[i], DESCRIPTOR, 1, &tensors[i]);
  return good && finish(o) ? o : NULL;
}

static void *graph(px__cudnn_plan *p, void *handle, const px__cudnn_problem *q) {
  void *o = operation(p, q), *g = o ? part(p, GRAPH) : NULL;
  bool good = g && set(g, GRAPH_OPERATIONS, DESCRIPTOR, 1, &o) &&
              set(g, GRAPH_HANDLE, HANDLE, 1, &handle) && finish(g);
  return good ? g : NULL;
}

// ---- engines

// Configurations of engines, the best first; returns how many. The caller destroys all of `out`.
static int configurations(void *out[ENGINES], void *of_graph, int32_t mode) {
  void *h = NULL;
  int64_t count = 0;
  memset(out, 0, ENGINES * sizeof *out);
  if (px__cudnn.cudnnBackendCreateDescriptor(HEURISTICS, &h)) return 0;
  bool good = set(h, HEURISTICS_OF_GRAPH, DESCRIPTOR, 1, &of_graph) &&
              set(h, HEURISTICS_OF_MODE, HEURISTICS_MODE, 1, &mode) && finish(h);
  for (int i = 0; good && i < ENGINES; i++)
    good = px__cudnn.cudnnBackendCreateDescriptor(CONFIGURATION, &out[i]) == 0;
  good = good && px__cudnn.cudnnBackendGetAttribute(h, HEURISTICS_RESULTS, DESCRIPTOR, ENGINES,
                                                    &count, out) == 0;
  destroy(h);
  return good ? (int)(count < ENGINES ? count : ENGINES) : 0;
}

// Bit i: the engine has note i. An engine that does not answer has every note.
static uint32_t notes_of(void *configuration) {
  int32_t notes[NOTES];
  int64_t count = 0, one = 0;
  uint32_t bits = 0;
  void *engine = NULL;
  if (px__cudnn.cudnnBackendCreateDescriptor(ENGINE, &engine)) return UINT32_MAX;
  bool good =
      px__cudnn.cudnnBackendGetAttribute(configuration, CONFIGURATION_ENGINE, DESCRIPTOR, 1, &one,
                                         &engine) == 0 &&
      px__cudnn.cudnnBackendGetAttribute(engine, ENGINE_NOTES, NOTE, NOTES, &count, notes) == 0;
  for (int64_t i = 0; good && i < count && i < NOTES; i++) bits |= 1u << (notes[i] & 31);
  destroy(engine);
  return good ? bits : UINT32_MAX;
}

// Sums are kept in float at least, and what is rounded on the way is the caller's choice.
static bool suits(const px__cudnn_problem *q, void *configuration) {
  uint32_t notes = notes_of(configuration), unwanted = 1u << SHORT_SUMS;
  bool half = q->dtype == PX_FLOAT16 || q->dtype == PX_BFLOAT16;
  if (!half) unwanted |= 1u << ROUNDS_INPUTS;
  if (q->dtype == PX_FLOAT32 && !q->tf32) unwanted |= 1u << TENSOR_CORE;
  if (q->deterministic) unwanted |= 1u << NOT_REPEATABLE;
  return !(notes & unwanted);
}

// ---- plans

void px__cudnn_plan_release(px__cudnn_plan *p) {
  destroy(p->plan);
  while (p->count) destroy(p->parts[--p->count]);
  *p = (px__cudnn_plan){0};
}

// A plan of the configuration, which it takes.
static bool make(px__cudnn_plan *p, void *handle, void **configuration, int64_t most) {
  int64_t count = 0;
  *p = (px__cudnn_plan){.parts = {*configuration}, .count = 1};
  *configuration = NULL;
  void *plan = NULL;
  if (px__cudnn.cudnnBackendCreateDescriptor(PLAN, &plan)) return false;
  p->plan = plan;
  return set(plan, PLAN_HANDLE, HANDLE, 1, &handle) &&
         set(plan, PLAN_CONFIGURATION, DESCRIPTOR, 1, &p->parts[0]) && finish(plan) &&
         px__cudnn.cudnnBackendGetAttribute(plan, PLAN_WORKSPACE, INT64, 1, &count,
                                            &p->workspace) == 0 &&
         p->workspace <= most;
}

int px__cudnn_plans(px__cudnn_plan *out, int room, void *handle, const px__cudnn_problem *q,
                    int64_t most) {
  static const int32_t modes[] = {MODE_INSTANT, MODE_FALLBACK};
  px__cudnn_plan shared = {0};
  void *found[ENGINES], *g = graph(&shared, handle, q);
  int made = 0;
  for (int m = 0; g && m < 2 && !made; m++) {
    int count = configurations(found, g, modes[m]);
    for (int i = 0; i < count && made < room; i++) {
      if (!suits(q, found[i])) continue;
      if (make(&out[made], handle, &found[i], most))
        made++;
      else
        px__cudnn_plan_release(&out[made]);
    }
    for (int i = 0; i < ENGINES; i++) destroy(found[i]);
  }
  px__cudnn_plan_release(&shared);
  return made;
}

int px__cudnn_plan_run(const px__cudnn_plan *p, void *handle, void *const data[3],
                       void *workspace) {
  static const int64_t ids[] = {1, 2, 3};
  void *pack = NULL;
  int status = px__cudnn.cudnnBackendCreateDescriptor(PACK, &pack);
  if (!status) status = px__cudnn.cudnnBackendSetAttribute(pack, PACK_POINTERS, POINTER, 3, data);
  if (!status) status = px__cudnn.cudnnBackendSetAttribute(pack, PACK_IDS, INT64, 3, ids);
  if (!status)
    status = px__cudnn.cudnnBackendSetAttribute(pack, PACK_WORKSPACE, POINTER, 1, &workspace);
  if (!status) status = px__cudnn.cudnnBackendFinalize(pack);
  if (!status) status = px__cudnn.cudnnBackendExecute(handle, p->plan, pack);
  destroy(pack);
  return status;
}
