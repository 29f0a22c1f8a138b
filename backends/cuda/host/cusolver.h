// SPDX-License-Identifier: Apache-2.0
// cuSOLVER, loaded at the first decomposition: one handle a device, used under its lock.
#pragma once
#include "cuda/host/cuda.h"

// Its functions for elements of one dtype.
typedef struct px__cusolver_api {
#define XX(name, parameters)
#define YY(name, parameters) int(*name) parameters;
#include "cuda/cusolver.sym"
#undef XX
#undef YY
} px__cusolver_api;

// The work of a launch on a batch of matrices, which lie by columns: `ask` says how many elements
// the library works in (NULL: none); `one` is called for each matrix, or `all`, where it is given,
// once. They return the library's status.
typedef struct px__cusolver_task {
  const px_launch *l;
  const void *args;
  int (*ask)(struct px__cusolver_task *t, int *room);
  int (*one)(struct px__cusolver_task *t, int64_t i);
  int (*all)(struct px__cusolver_task *t);
  const char *name;  // of the function, in errors
  px_operand in[2];  // what `one` reads, or works in, if it is not of args
  void **places;     // where the matrices begin, for `all`
  // Set for ask, one and all.
  const px__cusolver_api *api;
  void *handle, *work, *jacobi, *svd_jacobi;
  int room, count;
  int *info;  // where nobody looks
} px__cusolver_task;
px_status px__cusolver_run(px__cusolver_task *t, int dtype, int64_t count);
