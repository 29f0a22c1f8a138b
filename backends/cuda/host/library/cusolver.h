// SPDX-License-Identifier: Apache-2.0
// cuSOLVER, loaded at the first decomposition: one handle per device, used under its lock.
#pragma once
#include "cuda/host/driver/cuda.h"

// Functions for one dtype, and functions for any dtype. The latter may be NULL if older libraries
// lack them.
#define WW(name, parameters)
#define XX(name, parameters)
#define YY(name, parameters) int(*name) parameters;
#define ZZ(name, complex, parameters) int(*name) parameters;
typedef struct px__cusolver_api {
#include "cuda/cusolver.sym"
} px__cusolver_api;
#undef WW
#undef XX
#undef YY
#undef ZZ
#define WW(name, parameters) int(*name) parameters;
#define XX(name, parameters) int(*name) parameters;
#define YY(name, parameters)
#define ZZ(name, complex, parameters)
typedef struct px__cusolver_common {
#include "cuda/cusolver.sym"
} px__cusolver_common;
#undef WW
#undef XX
#undef YY
#undef ZZ

// A launch's work on a batch of column-major matrices. `query` returns the workspace size in
// elements (NULL: none). `run_one` is called for each matrix; `run_batch`, if set, is called once
// instead. Callbacks return the library's status.
typedef struct px__cusolver_task {
  const px_launch *l;
  const void *args;
  int (*query)(struct px__cusolver_task *t, int *size);
  int (*run_one)(struct px__cusolver_task *t, int64_t i);
  int (*run_batch)(struct px__cusolver_task *t);
  const char *name;   // of the function, for errors
  bool synchronizes;  // synchronises the stream first: the library reads its input immediately
  px_operand in[2];   // inputs or working copies of `run_one`, if not in args
  void **addresses;   // addresses of the matrices, for `run_batch`
  // Set by px__cusolver_run before the callbacks.
  const px__cusolver_api *api;
  const px__cusolver_common *common;
  void *handle, *work, *jacobi, *svd_jacobi, *options;
  int work_size, count;
  int *info;  // device status; written by the library, not checked
  // Host workspace: size set by `query`, and the buffer.
  size_t host_bytes;
  void *host;
} px__cusolver_task;
px_status px__cusolver_run(px__cusolver_task *t, int dtype, int64_t count);
// Functions for any dtype, or NULL if the library was not found.
const px__cusolver_common *px__cusolver_any(void);
