// SPDX-License-Identifier: Apache-2.0
// cuSOLVER, loaded at the first decomposition: one handle a device, used under its lock.
#pragma once
#include "cuda/host/driver/cuda.h"

// Its functions for elements of one dtype, and for those of any; of the latter, those that are
// missing in older libraries may be NULL.
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
  bool waits;        // the library reads at once what the stream's work before it writes
  px_operand in[2];  // what `one` reads, or works in, if it is not of args
  void **places;     // where the matrices begin, for `all`
  // Set for ask, one and all.
  const px__cusolver_api *api;
  const px__cusolver_common *common;
  void *handle, *work, *jacobi, *svd_jacobi, *options;
  int room, count;
  int *info;  // where nobody looks
  // What `ask` says that is wanted of the host's memory, and that.
  size_t host_bytes;
  void *host;
} px__cusolver_task;
px_status px__cusolver_run(px__cusolver_task *t, int dtype, int64_t count);
// The functions for any dtype, or NULL: the library was not found.
const px__cusolver_common *px__cusolver_any(void);
