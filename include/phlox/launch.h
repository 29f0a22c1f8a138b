// SPDX-License-Identifier: Apache-2.0
// Starting the processes of a job, as torchrun does: local ranks, with their rank and rendezvous
// address in the environment; agents on several nodes, connected by a store; restarts of all ranks
// after a failure; and a report of the first failure.
//
// Example: tests/comm/launch_test.c.
#pragma once
#include "phlox/base.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct px_job_options {
  const char *const *arguments;  // torchrun's arguments: options, program, program's arguments
  int count;
  // The interpreter of scripts: "python3", "-u". The script, or -m and a module, is appended.
  const char *const *interpreter;
  int interpreter_count;
  const char *const *environment;  // "NAME=value", NULL-terminated; PET_* set defaults of options
  bool local_rank_argument;        // pass --local-rank=N before the program's arguments, too
} px_job_options;

// Runs a job until all ranks of all nodes have succeeded. Ranks do not outlive the calling process:
// if it is killed, they are terminated. PX_VALUE for invalid arguments; PX_UNIMPLEMENTED for an
// unsupported option, with its name. PX_RUNTIME if ranks fail more often than --max-restarts
// allows, with a report of the failed ranks, exit codes and tracebacks. PX_RUNTIME with the name of
// the signal, if one ended the job. No process of the job is left after an error. The call handles
// the signals of --signals-to-handle, so only one call may run in a process at a time (PX_RUNTIME).
PX_CALL px_job_run(const px_job_options *options);
// Returns the usage text, one option a line.
PX_API const char *px_job_usage(void);

#ifdef __cplusplus
}
#endif
