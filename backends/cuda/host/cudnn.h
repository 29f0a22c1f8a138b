// SPDX-License-Identifier: Apache-2.0
// Convolution and recurrent nets by cuDNN, which is loaded at the first of them.
//
// cudnn.c has the library: its functions, handles and errors. cudnn_plan.c makes an execution plan
// for a problem, by cuDNN's graphs of operations. cudnn_conv.c keeps the plans and runs them.
// cudnn_recurrent.c describes recurrent nets, which the kernels of k_recurrent.c run.
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

// ---- cudnn_plan.c

// Which of image, weight and result a convolution computes from the other two.
typedef enum px__cudnn_kind { PX_CUDNN_FORWARD, PX_CUDNN_IMAGE, PX_CUDNN_WEIGHT } px__cudnn_kind;

// A problem: all that a plan depends on. Compared as bytes, so it has no holes. All three tensors
// are row-major, in the order image, weight, result.
typedef struct px__cudnn_problem {
  int64_t sizes[3][4], alignments[3];  // alignments in bytes
  int64_t before[2], behind[2], stride[2], dilation[2];
  int32_t kind, dtype;
  bool tf32, deterministic, benchmark, unused[5];
} px__cudnn_problem;

// A plan, and what it was made from. `count` is 0 where there is none.
enum { PX_CUDNN_PARTS = 8 };
typedef struct px__cudnn_plan {
  void *parts[PX_CUDNN_PARTS];  // descriptors that live as long as the plan
  int count;
  void *plan;
  int64_t workspace;  // in bytes
} px__cudnn_plan;

bool px__cudnn_has_dtype(int dtype);
// Makes plans for the problem, those that cuDNN thinks best first, that need at most `most` bytes
// to work in; returns how many of `room`.
int px__cudnn_plans(px__cudnn_plan *out, int room, void *handle, const px__cudnn_problem *problem,
                    int64_t most);
void px__cudnn_plan_release(px__cudnn_plan *plan);
// Queues the plan's work; `data` are the addresses of image, weight and result. Gives cuDNN's
// status.
int px__cudnn_plan_run(const px__cudnn_plan *plan, void *handle, void *const data[3],
                       void *workspace);

// ---- cudnn_conv.c

// Computes one of image, weight and result, whose addresses are in `data`, from the others. *done
// is false where cuDNN has no plan for it, is not there, or is switched off. The caller fills in
// sizes, geometry, kind and dtype of the problem.
px_status px__cudnn_convolve(const px_launch *l, px__cudnn_problem *problem, void *const data[3],
                             bool *done);

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
bool px__cudnn_recurrent_plan(int device, const px_recurrent_net *net, px_recurrent_room *room,
                              int64_t *places);
// `training` is whether the backward pass will come, or is it. Close is to be called in any case.
px_status px__cudnn_net_open(px__cudnn_net *n, const px_launch *l, const px_recurrent_net *net,
                             bool training);
void px__cudnn_net_close(px__cudnn_net *n);
