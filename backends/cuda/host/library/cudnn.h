// SPDX-License-Identifier: Apache-2.0
// Convolution, attention and recurrent nets by cuDNN, loaded on first use.
//
// cudnn.c: the library's functions, handles and errors. cudnn_graph.c builds operation graphs.
// cudnn_plan.c creates and caches execution plans of graphs. cudnn_conv.c and cudnn_attention.c run
// them. cudnn_recurrent.c describes recurrent nets for the kernels of k_recurrent.c.
#pragma once
#include "cuda/host/driver/cuda.h"

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

// True if the library is present and enabled. Fills in `px__cudnn` at the first call.
bool px__cudnn_ready(void);
// True if it is present with recurrent nets, enabled or not. Fills in `px__cudnn_recurrent`.
bool px__cudnn_recurrent_available(void);
int64_t px__cudnn_version(void);  // 0 without cuDNN
// Records the error of a call with the library's own text and returns the status.
px_status px__cudnn_error(int status, const char *call);
// Returns the handle of the launch's device, set to its stream. The caller holds the device's cuDNN
// lock.
px_status px__cudnn_handle(void **out, const px_launch *l);
// The same with an unspecified stream, for queries.
px_status px__cudnn_any_handle(void **out, int device);
void px__cudnn_lock(int device);
void px__cudnn_unlock(int device);

// ---- cudnn_graph.c

// The tensor computed by a convolution from the other two.
typedef enum px__cudnn_kind { PX_CUDNN_FORWARD, PX_CUDNN_IMAGE, PX_CUDNN_WEIGHT } px__cudnn_kind;

// A convolution problem: the full key of a plan. Compared as bytes, so it has no padding holes. The
// three tensors, in the order image, weight, result, are all row-major or all channels_last.
typedef struct px__cudnn_problem {
  int64_t sizes[3][4], alignments[3];  // alignments in bytes
  int64_t pad_before[2], pad_after[2], stride[2], dilation[2];
  int32_t kind, dtype;
  bool last, tf32, deterministic, benchmark, unused[4];
} px__cudnn_problem;

// cuDNN's numbers of element types, pointwise modes and reductions.
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
enum { PX_CUDNN_SUM = 0, PX_CUDNN_MAX = 3 };

// A graph's tensor, and a graph under construction. `status` is the first failure. The graph must
// be released in any case; plans created from it stay valid.
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
  void *descriptor;
} px__cudnn_graph;

bool px__cudnn_has_dtype(int dtype);
int32_t px__cudnn_type(int dtype);
void px__cudnn_row_major(int64_t strides[4], const int64_t sizes[4]);
void px__cudnn_channels_last(int64_t strides[4], const int64_t sizes[4]);
// Tensors: an external one with the id used to pass its address to plans; a float scalar passed by
// host address; a virtual one, internal to the graph.
const px__cudnn_tensor *px__cudnn_external(px__cudnn_graph *g, int64_t id, int32_t type,
                                           const int64_t sizes[4], const int64_t strides[4],
                                           int64_t alignment);
const px__cudnn_tensor *px__cudnn_scalar(px__cudnn_graph *g, int64_t id);
const px__cudnn_tensor *px__cudnn_virtual(px__cudnn_graph *g, int32_t type, const int64_t sizes[4]);
// Operations computed in float, writing to `out` or to a new virtual tensor of the first operand's
// sizes. The second operand may be broadcast to these sizes; b may be NULL.
void px__cudnn_pointwise_to(px__cudnn_graph *g, const px__cudnn_tensor *out, int mode,
                            const px__cudnn_tensor *x, const px__cudnn_tensor *b);
const px__cudnn_tensor *px__cudnn_pointwise(px__cudnn_graph *g, int mode, const px__cudnn_tensor *x,
                                            const px__cudnn_tensor *b);
// Index of each element of x along an axis, and comparison of such indices.
const px__cudnn_tensor *px__cudnn_index(px__cudnn_graph *g, const px__cudnn_tensor *x,
                                        int64_t axis);
const px__cudnn_tensor *px__cudnn_compare(px__cudnn_graph *g, int mode, const px__cudnn_tensor *a,
                                          const px__cudnn_tensor *b);
const px__cudnn_tensor *px__cudnn_select(px__cudnn_graph *g, const px__cudnn_tensor *condition,
                                         const px__cudnn_tensor *x, const px__cudnn_tensor *other);
void px__cudnn_matmul(px__cudnn_graph *g, const px__cudnn_tensor *out, const px__cudnn_tensor *a,
                      const px__cudnn_tensor *b);
void px__cudnn_reduce(px__cudnn_graph *g, const px__cudnn_tensor *out, int mode,
                      const px__cudnn_tensor *x);
// Transposes the last two dimensions.
const px__cudnn_tensor *px__cudnn_transpose(px__cudnn_graph *g, int32_t type,
                                            const px__cudnn_tensor *x);
void px__cudnn_convolution(px__cudnn_graph *g, const px__cudnn_problem *q,
                           const px__cudnn_tensor *const tensors[3]);
void px__cudnn_graph_close(px__cudnn_graph *g);
void px__cudnn_graph_release(px__cudnn_graph *g);

// ---- cudnn_plan.c

// A plan and the configuration it was created from. `plan` is NULL if there is none.
typedef struct px__cudnn_plan {
  void *plan, *configuration;
  int64_t workspace;  // in bytes
} px__cudnn_plan;

// Engine notes, in cuDNN's numbering of numerical notes.
typedef enum px__cudnn_note {
  PX_CUDNN_TENSOR_CORE,
  PX_CUDNN_DOWN_CONVERTS_INPUTS,
  PX_CUDNN_REDUCED_PRECISION_SUMS,
  PX_CUDNN_FFT,
  PX_CUDNN_NONDETERMINISTIC
} px__cudnn_note;

// Creates up to `capacity` plans for the graph in cuDNN's order of preference, with at most
// `max_workspace` bytes of workspace and without engines having a note in `unwanted` (bit i: note
// i). Returns their number. Failures are not errors: they mean that no such plan exists.
int px__cudnn_plans(px__cudnn_plan *out, int capacity, const px__cudnn_graph *graph,
                    uint32_t unwanted, int64_t max_workspace);
// True if any engine supports the graph; cheaper than creating a plan.
bool px__cudnn_has_engine(const px__cudnn_graph *graph);
void px__cudnn_plan_release(px__cudnn_plan *plan);
// Queues the plan's work on tensors given by id. Returns cuDNN's status.
int px__cudnn_plan_run(const px__cudnn_plan *plan, void *handle, int count, const int64_t *ids,
                       void *const *data, void *workspace);

// A per-device cache of plans, keyed by the bytes of the problem. Guarded by the device's cuDNN
// lock.
typedef struct px__cudnn_entry {
  px__cudnn_plan plan;    // `plan.plan` is NULL if the key has none
  bool known, supported;  // a plan was looked for; one was found
} px__cudnn_entry;
enum { PX_CUDNN_ENTRIES = 1024 };
typedef struct px__cudnn_table {
  size_t key_bytes;  // a multiple of 8
  struct {
    px__cudnn_entry *entries;
    char *keys;
  } of[PX__CUDA_DEVICES];
} px__cudnn_table;
// Returns the key's entry, known or to be filled in; NULL if host memory runs out. Valid until the
// next call.
px__cudnn_entry *px__cudnn_find(px__cudnn_table *table, int device, const void *key);

// ---- cudnn_conv.c

// Computes one of image, weight and result from the other two; `data` holds their addresses. *done
// is false if cuDNN has no plan, is absent, or is disabled. The caller fills in the problem's
// sizes, geometry, kind and dtype.
px_status px__cudnn_convolve(const px_launch *l, px__cudnn_problem *problem, void *const data[3],
                             bool *done);

// ---- cudnn_attention.c

// Ids of attention's tensors (with gradients for the backward pass), per-row statistics kept from
// the forward pass, accumulation buffers, and float scalars.
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
  PX_CUDNN_MASKED,
  PX_CUDNN_ONE,
  PX_CUDNN_ATTENTION_TENSORS
};
enum { PX_CUDNN_STRIDED = PX_CUDNN_LOGSUMEXP };  // ids below have any strides; others are row-major

// An attention problem: the full key of a plan. Compared as bytes, so it has no padding holes.
typedef struct px__cudnn_attention {
  int64_t batch, heads, groups, length, key_length, width, value_width;
  int64_t strides[PX_CUDNN_STRIDED][4];
  int64_t bias[4];  // sizes, 1 if broadcast; all 0 without a bias
  int32_t dtype;
  bool causal, backward, deterministic, unused;
} px__cudnn_attention;

// Sizes of a tensor: batch, heads, rows, columns.
void px__cudnn_attention_sizes(int64_t sizes[4], const px__cudnn_attention *p, int which);
// True if a plan exists. For the backward pass, true if engines exist, since its plan is created on
// demand. If false, `why` receives cuDNN's error text or "".
bool px__cudnn_attention_supported(int device, const px__cudnn_attention *p, char *why,
                                   size_t capacity);
// Queues the work. `data` holds the tensors' addresses by id, NULL for absent ones.
px_status px__cudnn_attention_run(const px_launch *l, const px__cudnn_attention *p,
                                  void *const data[PX_CUDNN_ATTENTION_TENSORS]);

// ---- k_attention.c

// px_backend.attention_refusal.
const char *px__cuda_attention_refusal(int device, px_attention_call *c);

// ---- cudnn_recurrent.c

// A recurrent net during a launch: descriptors and workspace. The device's cuDNN lock is held from
// open to close.
typedef struct px__cudnn_net {
  int device;
  void *handle, *net;               // owned by the tables
  void *x_rows, *y_rows, *h, *c;    // descriptors owned by this struct
  size_t weights, workspace, kept;  // in bytes
  void *scratch;                    // the workspace
} px__cudnn_net;

// px_backend.recurrent_plan.
bool px__cudnn_recurrent_plan(int device, const px_recurrent_net *net, px_recurrent_sizes *sizes,
                              int64_t *offsets);
// `training`: a backward pass follows, or this is it. Close must be called in any case.
px_status px__cudnn_net_open(px__cudnn_net *n, const px_launch *l, const px_recurrent_net *net,
                             bool training);
void px__cudnn_net_close(px__cudnn_net *n);
