// SPDX-License-Identifier: Apache-2.0
// Starting the processes of a job, as torchrun does: local ranks, whose environment says which they
// are and where they meet; agents of several nodes, which find each other by a store; restarts of
// all when one fails; and a report of who failed first.
//
// Example: tests/comm/launch_test.c.
#pragma once
#include "phlox/base.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct px_job_options {
  const char *const *arguments;  // those of torchrun: its options, the program, and the program's
  int count;
  // What runs a script: "python3", "-u". The script, or -m and a module, is put behind it.
  const char *const *interpreter;
  int interpreter_count;
  const char *const *environment;  // "NAME=value", NULL at the end; PET_* are defaults of options
  bool local_rank_argument;        // ranks get --local-rank=N before the program's arguments, too
} px_job_options;

// Runs a job until all ranks of all nodes have ended well. Ranks do not outlive the process that
// calls it: if it is killed, they are ended. PX_VALUE if the arguments are wrong,
// PX_UNIMPLEMENTED with the name of what is missing. PX_RUNTIME, with a report of the ranks that
// failed, their exit codes and tracebacks, if they did more often than --max-restarts allows, or
// with the name of a signal that ended the job; no process of the job is left then. While it runs,
// it handles the signals of --signals-to-handle: one call at a time in a process (PX_RUNTIME).
PX_CALL px_job_run(const px_job_options *options);
// The options, a line each.
PX_API const char *px_job_usage(void);

#ifdef __cplusplus
}
#endif
