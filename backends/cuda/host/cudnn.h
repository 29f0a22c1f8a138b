// SPDX-License-Identifier: Apache-2.0
// Convolution, attention and recurrent nets by cuDNN, which is loaded at the first of them.
//
// cudnn.c has the library: its functions, handles and errors. cudnn_graph.c writes down a problem
// as a graph of operations, and cudnn_plan.c makes execution plans of a graph, and keeps them.
// cudnn_conv.c and cudnn_attention.c run them. cudnn_recurrent.c describes recurrent nets, which
// the kernels of k_recurrent.c run.
#pragma once
#include "cuda/host/cuda.h"

// ---- cudnn.c

typedef struct px__cudnn_api {
#define XX(result, name, parameters) result(*name) parameters;
#include "cuda/cudnn.sym"
#undef XX
} px__cudnn_api;
extern px__cudnn_api px__cudnn;
typedef struct px__cudnn_recurrent_api {
#define XX(result, name, parameters) result(*name) parameters;
#include "cuda/cudnn_recurrent.sym"
#undef XX
} px__cudnn_recurrent_api;
extern px__cudnn_recurrent_api px__cudnn_recurrent;

// Whether the library is there and wanted. Fills in `px__cudnn` at the first call.
bool px__cudnn_ready(void);
// Whether it is there and has recurrent nets, wanted now or not. Fills in `px__cudnn_recurrent`.
bool px__cudnn_recurrent_there(void);
int64_t px__cudnn_version(void);  // 0 where it is not there
// Records what a call answered, with the library's own words, and returns the status.
px_status px__cudnn_error(int status, const char *call);
// The handle of the launch's device, working on its stream. The device's cuDNN lock is held.
px_status px__cudnn_handle(void **out, const px_launch *l);
// The same on no matter which stream, to ask it something.
px_status px__cudnn_any_handle(void **out, int device);
void px__cudnn_lock(int device);
void px__cudnn_unlock(int device);

// ---- cudnn_graph.c

// Which of image, weight and result a convolution computes from the other two.
typedef enum px__cudnn_kind { PX_CUDNN_FORWARD, PX_CUDNN_IMAGE, PX_CUDNN_WEIGHT } px__cudnn_kind;

// A problem: all that a plan depends on. Compared as bytes, so it has no holes. All three tensors
// are row-major, or channels_last, in the order image, weight, result.
typedef struct px__cudnn_problem {
  int64_t sizes[3][4], alignments[3];  // alignments in bytes
  int64_t before[2], behind[2], stride[2], dilation[2];
  int32_t kind, dtype;
  bool last, tf32, deterministic, benchmark, unused[4];
} px__cudnn_problem;

// Types of elements, pointwise operations and reductions, as cuDNN numbers them.
enum {
  PX_CUDNN_FLOAT = 0,
  PX_CUDNN_DOUBLE = 1,
  PX_CUDNN_HALF = 2,
  PX_CUDNN_INT32 = 4,
  PX_CUDNN_BFLOAT16 = 9,
  PX_CUDNN_BOOL = 11
};
enum {
  PX_CUDNN_ADD = 0,
  PX_CUDNN_MUL = 1,
  PX_CUDNN_DIV = 6,
  PX_CUDNN_SUB = 9,
  PX_CUDNN_EXP = 13,
  PX_CUDNN_LOG = 15,
  PX_CUDNN_IDENTITY = 21,
  PX_CUDNN_GE = 303,
  PX_CUDNN_GEN_INDEX = 501,
  PX_CUDNN_SELECT = 601
};
enum { PX_CUDNN_NOT_SUPPORTED = 3000 };  // a status
enum { PX_CUDNN_SUM = 0, PX_CUDNN_GREATEST = 3 };

// A tensor of a graph, and a graph while it is written down. `status` is cuDNN's of what failed
// first. Release is to be called in any case; plans that were made of the graph stay.
typedef struct px__cudnn_tensor {
  void *descriptor;
  int64_t sizes[4], strides[4];
  int32_t type;
} px__cudnn_tensor;
enum { PX_CUDNN_PARTS = 160, PX_CUDNN_TENSORS = 64 };
typedef struct px__cudnn_graph {
  void *handle;
  int status, part_count, tensor_count, operation_count;
  void *parts[PX_CUDNN_PARTS], *operations[PX_CUDNN_PARTS];
  px__cudnn_tensor tensors[PX_CUDNN_TENSORS];
  void *whole;
} px__cudnn_graph;

bool px__cudnn_has_dtype(int dtype);
int32_t px__cudnn_type(int dtype);
void px__cudnn_row_major(int64_t strides[4], const int64_t sizes[4]);
void px__cudnn_channels_last(int64_t strides[4], const int64_t sizes[4]);
// Tensors: one of the caller's, by the number under which plans get its address; a float that they
// get at its address on the host; and what only operations of the graph see.
const px__cudnn_tensor *px__cudnn_given(px__cudnn_graph *g, int64_t id, int32_t type,
                                        const int64_t sizes[4], const int64_t strides[4],
                                        int64_t alignment);
const px__cudnn_tensor *px__cudnn_number(px__cudnn_graph *g, int64_t id);
const px__cudnn_tensor *px__cudnn_between(px__cudnn_graph *g, int32_t type, const int64_t sizes[4]);
// Operations, computed in float, whose result is given or a new tensor in between: of the sizes of
// the first operand, which the second may be repeated to; b may be NULL.
void px__cudnn_pointwise_to(px__cudnn_graph *g, const px__cudnn_tensor *out, int mode,
                            const px__cudnn_tensor *x, const px__cudnn_tensor *b);
const px__cudnn_tensor *px__cudnn_pointwise(px__cudnn_graph *g, int mode, const px__cudnn_tensor *x,
                                            const px__cudnn_tensor *b);
// The place of each element of x along an axis, and what compares such places.
const px__cudnn_tensor *px__cudnn_index(px__cudnn_graph *g, const px__cudnn_tensor *x,
                                        int64_t axis);
const px__cudnn_tensor *px__cudnn_compare(px__cudnn_graph *g, int mode, const px__cudnn_tensor *a,
                                          const px__cudnn_tensor *b);
const px__cudnn_tensor *px__cudnn_select(px__cudnn_graph *g, const px__cudnn_tensor *condition,
                                         const px__cudnn_tensor *x, const px__cudnn_tensor *other);
void px__cudnn_matmul(px__cudnn_graph *g, const px__cudnn_tensor *out, const px__cudnn_tensor *a,
                      const px__cudnn_tensor *b);
void px__cudnn_reduce(px__cudnn_graph *g, const px__cudnn_tensor *out, int way,
                      const px__cudnn_tensor *x);
// The last two dimensions change places.
const px__cudnn_tensor *px__cudnn_turned(px__cudnn_graph *g, int32_t type,
                                         const px__cudnn_tensor *x);
void px__cudnn_convolution(px__cudnn_graph *g, const px__cudnn_problem *q,
                           const px__cudnn_tensor *const tensors[3]);
void px__cudnn_graph_close(px__cudnn_graph *g);
void px__cudnn_graph_release(px__cudnn_graph *g);

// ---- cudnn_plan.c

// A plan, and the configuration that it was made from. `plan` is NULL where there is none.
typedef struct px__cudnn_plan {
  void *plan, *configuration;
  int64_t workspace;  // in bytes
} px__cudnn_plan;

// What an engine says of itself.
typedef enum px__cudnn_note {
  PX_CUDNN_TENSOR_CORE,
  PX_CUDNN_ROUNDS_INPUTS,
  PX_CUDNN_SHORT_SUMS,
  PX_CUDNN_FOURIER,
  PX_CUDNN_NOT_REPEATABLE
} px__cudnn_note;

// Makes plans for the graph, those that cuDNN thinks best first, that need at most `most` bytes to
// work in, by engines with none of the notes of `unwanted` (bit i: note i); returns how many of
// `room`. A failure on the way is not an error: it means that there is no such plan.
int px__cudnn_plans(px__cudnn_plan *out, int room, const px__cudnn_graph *graph, uint32_t unwanted,
                    int64_t most);
// Whether there is an engine for it at all, which takes less time to tell.
bool px__cudnn_has_engine(const px__cudnn_graph *graph);
void px__cudnn_plan_release(px__cudnn_plan *plan);
// Queues the plan's work on tensors by their numbers. Gives cuDNN's status.
int px__cudnn_plan_run(const px__cudnn_plan *plan, void *handle, int count, const int64_t *ids,
                       void *const *data, void *workspace);

// A table of plans for each device, by everything that they depend on, as bytes. The device's cuDNN
// lock guards it.
typedef struct px__cudnn_entry {
  px__cudnn_plan plan;  // `plan.plan` is NULL where there is none for the key
  bool known, served;   // whether one was looked for, and found
} px__cudnn_entry;
enum { PX_CUDNN_ENTRIES = 1024 };
typedef struct px__cudnn_table {
  size_t key_bytes;  // a multiple of 8
  struct {
    px__cudnn_entry *entries;
    char *keys;
  } of[PX__CUDA_DEVICES];
} px__cudnn_table;
// The entry of the key, known or to be filled in; NULL where there is no memory for a table. It
// stays where it is until another key is looked for.
px__cudnn_entry *px__cudnn_find(px__cudnn_table *table, int device, const void *key);

// ---- cudnn_conv.c

// Computes one of image, weight and result, whose addresses are in `data`, from the others. *done
// is false where cuDNN has no plan for it, is not there, or is switched off. The caller fills in
// sizes, geometry, kind and dtype of the problem.
px_status px__cudnn_convolve(const px_launch *l, px__cudnn_problem *problem, void *const data[3],
                             bool *done);

// ---- cudnn_attention.c

// What attention is given, by number: tensors (in the backward pass gradients too), what the
// forward pass keeps of each row, rooms for sums, and floats.
enum {
  PX_CUDNN_QUERY = 1,
  PX_CUDNN_KEY,
  PX_CUDNN_VALUE,
  PX_CUDNN_OUTPUT,
  PX_CUDNN_BIAS,
  PX_CUDNN_GRAD,
  PX_CUDNN_GRAD_QUERY,
  PX_CUDNN_GRAD_KEY,
  PX_CUDNN_GRAD_VALUE,
  PX_CUDNN_LOGSUMEXP,
  PX_CUDNN_SUMS,
  PX_CUDNN_QUERY_SUMS,
  PX_CUDNN_SCALE,
  PX_CUDNN_HIDDEN,
  PX_CUDNN_ONE,
  PX_CUDNN_GIVEN
};
enum { PX_CUDNN_STRIDED = PX_CUDNN_LOGSUMEXP };  // those of any strides; others are row-major

// All that a plan depends on. Compared as bytes, so it has no holes.
typedef struct px__cudnn_attention {
  int64_t batch, heads, groups, length, places, width, value_width;
  int64_t strides[PX_CUDNN_STRIDED][4];
  int64_t bias[4];  // sizes, 1 where it repeats; all 0: there is none
  int32_t dtype;
  bool causal, backward, deterministic, unused;
} px__cudnn_attention;

// The sizes of a tensor: batch, heads, rows, columns.
void px__cudnn_attention_sizes(int64_t sizes[4], const px__cudnn_attention *p, int which);
// Whether there is a plan; for the backward pass whether there are engines, since its plan is made
// when it is needed. If not, gives cuDNN's words for it, or none.
bool px__cudnn_attends(int device, const px__cudnn_attention *p, char *why, size_t room);
// Queues the work; `data` has the addresses of what the plan is given, NULL for what it is not.
px_status px__cudnn_attend(const px_launch *l, const px__cudnn_attention *p,
                           void *const data[PX_CUDNN_GIVEN]);

// ---- k_attention.c

// px_backend.attention_refusal.
const char *px__cuda_attention_refusal(int device, px_attention_call *c);

// ---- cudnn_recurrent.c

// A net while it is run: what cuDNN wants to know of it, and memory to work in, until the launch is
// over. From open to close the device's cuDNN lock is held.
typedef struct px__cudnn_net {
  int device;
  void *handle, *net;               // of the tables
  void *x_rows, *y_rows, *h, *c;    // descriptors, owned
  size_t weights, workspace, kept;  // in bytes
  void *room;
} px__cudnn_net;

// px_backend.recurrent_plan.
bool px__cudnn_recurrent_plan(int device, const px_recurrent_net *net, px_recurrent_sizes *room,
                              int64_t *places);
// `training` is whether the backward pass will come, or is it. Close is to be called in any case.
px_status px__cudnn_net_open(px__cudnn_net *n, const px_launch *l, const px_recurrent_net *net,
                             bool training);
void px__cudnn_net_close(px__cudnn_net *n);
