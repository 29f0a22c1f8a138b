// SPDX-License-Identifier: Apache-2.0
// cuDNN operation graphs, built node by node.
//
// The first failure is kept as the graph's status and disables later calls, so callers check once
// at the end.
#include "cuda/host/library/cudnn_descriptor.h"

#include <string.h>

// Attribute names from cuDNN's header.
enum {
  POINTWISE_MODE = 0,
  POINTWISE_COMPUTE = 1,
  POINTWISE_AXIS = 9,
  CONVOLUTION_COMPUTE = 100,
  CONVOLUTION_MODE = 101,
  CONVOLUTION_DILATION = 102,
  CONVOLUTION_STRIDE = 103,
  CONVOLUTION_POST_PADDING = 104,
  CONVOLUTION_PRE_PADDING = 105,
  CONVOLUTION_DIMS = 106,
  OF_POINTWISE = 750,
  OF_POINTWISE_X = 751,
  OF_POINTWISE_B = 752,
  OF_POINTWISE_Y = 753,
  OF_POINTWISE_T = 758,
  GRAPH_HANDLE = 800,
  GRAPH_OPERATIONS = 801,
  TENSOR_ALIGNMENT = 900,
  TENSOR_TYPE = 901,
  TENSOR_SIZES = 902,
  TENSOR_STRIDES = 903,
  TENSOR_ID = 906,
  TENSOR_VIRTUAL = 907,
  TENSOR_BY_VALUE = 908,
  MATMUL_COMPUTE = 1500,
  OF_MATMUL_A = 1520,
  OF_MATMUL_B = 1521,
  OF_MATMUL_C = 1522,
  OF_MATMUL = 1523,
  REDUCTION_OPERATOR = 1600,
  REDUCTION_COMPUTE = 1601,
  OF_REDUCTION_X = 1610,
  OF_REDUCTION_Y = 1611,
  OF_REDUCTION = 1612,
  OF_RESHAPE_X = 2200,
  OF_RESHAPE_Y = 2201
};
enum { CROSS_CORRELATION = 1, VALUE_ALIGNMENT = 16 };
enum { FIRST_VIRTUAL_ID = 1000 };  // first id of virtual tensors, above those of callers

// Convolution operations: descriptor type and attributes for image, weight, result.
static const struct {
  int type, alpha, beta, convolution, tensors[3];
} convolutions[] = {
    [PX_CUDNN_FORWARD] = {10, 700, 701, 702, {704, 703, 705}},
    [PX_CUDNN_IMAGE] = {12, 706, 707, 708, {710, 709, 711}},
    [PX_CUDNN_WEIGHT] = {11, 712, 713, 714, {716, 715, 717}},
};
static const int32_t types[PX_DTYPE_COUNT] = {[PX_FLOAT32] = PX_CUDNN_FLOAT + 1,
                                              [PX_FLOAT64] = PX_CUDNN_DOUBLE + 1,
                                              [PX_FLOAT16] = PX_CUDNN_HALF + 1,
                                              [PX_BFLOAT16] = PX_CUDNN_BFLOAT16 + 1};

bool px__cudnn_has_dtype(int dtype) {
  return dtype >= 0 && dtype < PX_DTYPE_COUNT && types[dtype] != 0;
}
int32_t px__cudnn_type(int dtype) { return types[dtype] - 1; }

// ---- descriptors

static void note(px__cudnn_graph *g, int status) {
  if (g->status == 0) g->status = status;
}
// Creates a node of the graph; NULL after a failure.
static void *part(px__cudnn_graph *g, int type) {
  void *made = NULL;
  if (g->status == 0 && g->part_count == PX_CUDNN_PARTS) note(g, PX_CUDNN_NOT_SUPPORTED);
  if (g->status == 0) note(g, px__cudnn.cudnnBackendCreateDescriptor(type, &made));
  return g->status == 0 ? g->parts[g->part_count++] = made : NULL;
}
static void set(px__cudnn_graph *g, void *of, int name, int type, int64_t count,
                const void *values) {
  if (g->status == 0) note(g, px__cudnn.cudnnBackendSetAttribute(of, name, type, count, values));
}
static void set_part(px__cudnn_graph *g, void *of, int name, void *value) {
  set(g, of, name, PX_CUDNN_DESCRIPTOR, 1, &value);
}
static void set_number(px__cudnn_graph *g, void *of, int name, int type, int32_t value) {
  set(g, of, name, type, 1, &value);
}
static void finish(px__cudnn_graph *g, void *part) {
  if (g->status == 0) note(g, px__cudnn.cudnnBackendFinalize(part));
}
// Creates an operation with its optional parameter descriptor.
static void *operation(px__cudnn_graph *g, int type, int name, void *description) {
  void *made = part(g, type);
  if (description) set_part(g, made, name, description);
  return made;
}
static void add_operation(px__cudnn_graph *g, void *made) {
  finish(g, made);
  if (g->status == 0) g->operations[g->operation_count++] = made;
}

// ---- tensors

static const px__cudnn_tensor *tensor(px__cudnn_graph *g, const px__cudnn_tensor *like, int64_t id,
                                      int64_t alignment, bool hidden, bool by_value) {
  static const px__cudnn_tensor none;
  if (g->status == 0 && g->tensor_count == PX_CUDNN_TENSORS) note(g, PX_CUDNN_NOT_SUPPORTED);
  if (g->status) return &none;
  px__cudnn_tensor *t = &g->tensors[g->tensor_count++];
  void *made = part(g, PX_CUDNN_OF_TENSOR);
  *t = *like, t->descriptor = made;
  set_number(g, made, TENSOR_TYPE, PX_CUDNN_DATA_TYPE, t->type);
  set(g, made, TENSOR_SIZES, PX_CUDNN_INT64, 4, t->sizes);
  set(g, made, TENSOR_STRIDES, PX_CUDNN_INT64, 4, t->strides);
  set(g, made, TENSOR_ID, PX_CUDNN_INT64, 1, &id);
  set(g, made, TENSOR_ALIGNMENT, PX_CUDNN_INT64, 1, &alignment);
  if (hidden) set(g, made, TENSOR_VIRTUAL, PX_CUDNN_BOOLEAN, 1, &hidden);
  if (by_value) set(g, made, TENSOR_BY_VALUE, PX_CUDNN_BOOLEAN, 1, &by_value);
  finish(g, made);
  return t;
}
const px__cudnn_tensor *px__cudnn_external(px__cudnn_graph *g, int64_t id, int32_t type,
                                           const int64_t sizes[4], const int64_t strides[4],
                                           int64_t alignment) {
  px__cudnn_tensor t = {.type = type};
  memcpy(t.sizes, sizes, sizeof t.sizes), memcpy(t.strides, strides, sizeof t.strides);
  return tensor(g, &t, id, alignment, false, false);
}
const px__cudnn_tensor *px__cudnn_scalar(px__cudnn_graph *g, int64_t id) {
  px__cudnn_tensor t = {.sizes = {1, 1, 1, 1}, .strides = {1, 1, 1, 1}, .type = PX_CUDNN_FLOAT};
  return tensor(g, &t, id, VALUE_ALIGNMENT, false, true);
}
void px__cudnn_row_major(int64_t strides[4], const int64_t sizes[4]) {
  strides[3] = 1;
  for (int i = 3; i > 0; i--) strides[i - 1] = strides[i] * sizes[i];
}
void px__cudnn_channels_last(int64_t strides[4], const int64_t sizes[4]) {
  strides[1] = 1, strides[3] = sizes[1];
  strides[2] = strides[3] * sizes[3], strides[0] = strides[2] * sizes[2];
}
const px__cudnn_tensor *px__cudnn_virtual(px__cudnn_graph *g, int32_t type,
                                          const int64_t sizes[4]) {
  px__cudnn_tensor t = {.type = type};
  memcpy(t.sizes, sizes, sizeof t.sizes);
  px__cudnn_row_major(t.strides, sizes);
  return tensor(g, &t, FIRST_VIRTUAL_ID + g->tensor_count, VALUE_ALIGNMENT, true, false);
}

// ---- operations

static void *pointwise(px__cudnn_graph *g, int mode, int32_t compute, int64_t axis) {
  void *p = part(g, PX_CUDNN_OF_POINTWISE);
  set_number(g, p, POINTWISE_MODE, PX_CUDNN_POINTWISE_MODE, mode);
  set_number(g, p, POINTWISE_COMPUTE, PX_CUDNN_DATA_TYPE, compute);
  if (axis >= 0) set(g, p, POINTWISE_AXIS, PX_CUDNN_INT64, 1, &axis);
  finish(g, p);
  return p;
}
static void pointwise_of(px__cudnn_graph *g, void *description, const px__cudnn_tensor *out,
                         const px__cudnn_tensor *x, const px__cudnn_tensor *b,
                         const px__cudnn_tensor *t) {
  void *o = operation(g, PX_CUDNN_OPERATION_POINTWISE, OF_POINTWISE, description);
  set_part(g, o, OF_POINTWISE_X, x->descriptor);
  if (b) set_part(g, o, OF_POINTWISE_B, b->descriptor);
  if (t) set_part(g, o, OF_POINTWISE_T, t->descriptor);
  set_part(g, o, OF_POINTWISE_Y, out->descriptor);
  add_operation(g, o);
}
void px__cudnn_pointwise_to(px__cudnn_graph *g, const px__cudnn_tensor *out, int mode,
                            const px__cudnn_tensor *x, const px__cudnn_tensor *b) {
  pointwise_of(g, pointwise(g, mode, PX_CUDNN_FLOAT, -1), out, x, b, NULL);
}
const px__cudnn_tensor *px__cudnn_pointwise(px__cudnn_graph *g, int mode, const px__cudnn_tensor *x,
                                            const px__cudnn_tensor *b) {
  const px__cudnn_tensor *out = px__cudnn_virtual(g, PX_CUDNN_FLOAT, x->sizes);
  px__cudnn_pointwise_to(g, out, mode, x, b);
  return out;
}
const px__cudnn_tensor *px__cudnn_index(px__cudnn_graph *g, const px__cudnn_tensor *x,
                                        int64_t axis) {
  const px__cudnn_tensor *out = px__cudnn_virtual(g, PX_CUDNN_INT32, x->sizes);
  pointwise_of(g, pointwise(g, PX_CUDNN_GEN_INDEX, PX_CUDNN_FLOAT, axis), out, x, NULL, NULL);
  return out;
}
const px__cudnn_tensor *px__cudnn_compare(px__cudnn_graph *g, int mode, const px__cudnn_tensor *a,
                                          const px__cudnn_tensor *b) {
  const px__cudnn_tensor *out = px__cudnn_virtual(g, PX_CUDNN_BOOL, a->sizes);
  pointwise_of(g, pointwise(g, mode, PX_CUDNN_BOOL, -1), out, a, b, NULL);
  return out;
}
const px__cudnn_tensor *px__cudnn_select(px__cudnn_graph *g, const px__cudnn_tensor *condition,
                                         const px__cudnn_tensor *x, const px__cudnn_tensor *other) {
  const px__cudnn_tensor *out = px__cudnn_virtual(g, PX_CUDNN_FLOAT, x->sizes);
  void *description = pointwise(g, PX_CUDNN_SELECT, PX_CUDNN_FLOAT, -1);
  pointwise_of(g, description, out, x, other, condition);
  return out;
}
void px__cudnn_matmul(px__cudnn_graph *g, const px__cudnn_tensor *out, const px__cudnn_tensor *a,
                      const px__cudnn_tensor *b) {
  void *m = part(g, PX_CUDNN_OF_MATMUL);
  set_number(g, m, MATMUL_COMPUTE, PX_CUDNN_DATA_TYPE, PX_CUDNN_FLOAT);
  finish(g, m);
  void *o = operation(g, PX_CUDNN_OPERATION_MATMUL, OF_MATMUL, m);
  set_part(g, o, OF_MATMUL_A, a->descriptor);
  set_part(g, o, OF_MATMUL_B, b->descriptor);
  set_part(g, o, OF_MATMUL_C, out->descriptor);
  add_operation(g, o);
}
void px__cudnn_reduce(px__cudnn_graph *g, const px__cudnn_tensor *out, int mode,
                      const px__cudnn_tensor *x) {
  void *r = part(g, PX_CUDNN_OF_REDUCTION);
  set_number(g, r, REDUCTION_COMPUTE, PX_CUDNN_DATA_TYPE, PX_CUDNN_FLOAT);
  set_number(g, r, REDUCTION_OPERATOR, PX_CUDNN_REDUCTION_OPERATOR, mode);
  finish(g, r);
  void *o = operation(g, PX_CUDNN_OPERATION_REDUCTION, OF_REDUCTION, r);
  set_part(g, o, OF_REDUCTION_X, x->descriptor);
  set_part(g, o, OF_REDUCTION_Y, out->descriptor);
  add_operation(g, o);
}
const px__cudnn_tensor *px__cudnn_transpose(px__cudnn_graph *g, int32_t type,
                                            const px__cudnn_tensor *x) {
  px__cudnn_tensor like = *x;
  like.type = type;
  like.sizes[2] = x->sizes[3], like.sizes[3] = x->sizes[2];
  like.strides[2] = x->strides[3], like.strides[3] = x->strides[2];
  const px__cudnn_tensor *out =
      tensor(g, &like, FIRST_VIRTUAL_ID + g->tensor_count, VALUE_ALIGNMENT, true, false);
  void *o = operation(g, PX_CUDNN_OPERATION_RESHAPE, 0, NULL);
  set_part(g, o, OF_RESHAPE_X, x->descriptor);
  set_part(g, o, OF_RESHAPE_Y, out->descriptor);
  add_operation(g, o);
  return out;
}

void px__cudnn_convolution(px__cudnn_graph *g, const px__cudnn_problem *q,
                           const px__cudnn_tensor *const tensors[3]) {
  bool wide = q->dtype == PX_FLOAT64;
  float one[2] = {1, 0};
  double wide_one[2] = {1, 0};
  int64_t dims = 2;
  void *c = part(g, PX_CUDNN_OF_CONVOLUTION);
  set_number(g, c, CONVOLUTION_COMPUTE, PX_CUDNN_DATA_TYPE,
             wide ? PX_CUDNN_DOUBLE : PX_CUDNN_FLOAT);
  set_number(g, c, CONVOLUTION_MODE, PX_CUDNN_CONVOLUTION_MODE, CROSS_CORRELATION);
  set(g, c, CONVOLUTION_DIMS, PX_CUDNN_INT64, 1, &dims);
  set(g, c, CONVOLUTION_DILATION, PX_CUDNN_INT64, 2, q->dilation);
  set(g, c, CONVOLUTION_STRIDE, PX_CUDNN_INT64, 2, q->stride);
  set(g, c, CONVOLUTION_PRE_PADDING, PX_CUDNN_INT64, 2, q->pad_before);
  set(g, c, CONVOLUTION_POST_PADDING, PX_CUDNN_INT64, 2, q->pad_after);
  finish(g, c);
  int kind = q->kind, scale = wide ? PX_CUDNN_OF_DOUBLE : PX_CUDNN_OF_FLOAT;
  void *o = operation(g, convolutions[kind].type, convolutions[kind].convolution, c);
  const void *ones[] = {wide ? (void *)wide_one : one, wide ? (void *)&wide_one[1] : &one[1]};
  set(g, o, convolutions[kind].alpha, scale, 1, ones[0]);
  set(g, o, convolutions[kind].beta, scale, 1, ones[1]);
  for (int i = 0; i < 3; i++) set_part(g, o, convolutions[kind].tensors[i], tensors[i]->descriptor);
  add_operation(g, o);
}

// ---- completion

void px__cudnn_graph_close(px__cudnn_graph *g) {
  void *descriptor = part(g, PX_CUDNN_OF_GRAPH);
  set(g, descriptor, GRAPH_HANDLE, PX_CUDNN_HANDLE, 1, &g->handle);
  set(g, descriptor, GRAPH_OPERATIONS, PX_CUDNN_DESCRIPTOR, g->operation_count, g->operations);
  finish(g, descriptor);
  g->descriptor = descriptor;
}
void px__cudnn_graph_release(px__cudnn_graph *g) {
  while (g->part_count) px__cudnn.cudnnBackendDestroyDescriptor(g->parts[--g->part_count]);
}
