// SPDX-License-Identifier: Apache-2.0
// Internal header of the launcher: options (launch_options.c), ranks as processes (launch_ranks.c),
// the guard process that ends orphaned ranks (launch_keeper.c), failure reports (launch_report.c),
// and the job of several agents (launch.c).
#pragma once
#include "phlox/comm.h"
#include "phlox/launch.h"

#include <limits.h>
#include <sys/types.h>

enum { PX__LAUNCH_PATH = 3072 };  // bytes of a path

// Options of torchrun: field, letter, kind of value, default, help.
#define PX__LAUNCH_MAP(XX) \
  XX(nnodes, 0, VALUE, "1:1", "number of nodes") \
  XX(nproc_per_node, 0, VALUE, "1", "ranks of this node: a number, cpu, gpu or auto") \
  XX(node_rank, 0, VALUE, "0", "number of this node; for the rendezvous `static`") \
  XX(rdzv_backend, 0, VALUE, "static", "static, or c10d: nodes are numbered in order of arrival") \
  XX(rdzv_endpoint, 0, VALUE, "", "host:port of the rendezvous") \
  XX(rdzv_id, 0, VALUE, "none", "the job's name") \
  XX(rdzv_conf, 0, VALUE, "", "join_timeout=SECONDS: how long agents wait for each other") \
  XX(standalone, 0, FLAG, "", "one node, on any free port") \
  XX(master_addr, 0, VALUE, "127.0.0.1", "the host of node 0, without --rdzv-endpoint") \
  XX(master_port, 0, VALUE, "", "the port; default 29500, or any free port with one node") \
  XX(max_restarts, 0, VALUE, "0", "number of times all ranks may be restarted") \
  XX(monitor_interval, 0, VALUE, "0.1", "seconds between checks of the ranks") \
  XX(role, 0, VALUE, "default", "name of the role of these ranks") \
  XX(module, 'm', FLAG, "", "run the program as a Python module") \
  XX(no_python, 0, FLAG, "", "run the program directly, without Python") \
  XX(log_dir, 0, VALUE, "", "folder of the ranks' logs and error files") \
  XX(redirects, 'r', VALUE, "0", \
     "streams written to logs: 1 stdout, 2 stderr, 3 both, or 0:1,1:3") \
  XX(tee, 't', VALUE, "0", "streams written to logs and to the terminal") \
  XX(local_ranks_filter, 0, VALUE, "", "ranks shown on the terminal: 0,1") \
  XX(log_line_prefix_template, 0, VALUE, "[${role_name}${local_rank}]:", "prefix of --tee lines") \
  XX(signals_to_handle, 0, VALUE, "SIGTERM,SIGINT,SIGHUP,SIGQUIT", "signals that end the job") \
  XX(shutdown_timeout, 0, VALUE, "30", "seconds from SIGTERM to SIGKILL") \
  XX(virtual_local_rank, 0, FLAG, "", "each rank sees one device, as local rank 0") \
  XX(start_method, 0, VALUE, "spawn", "spawn") \
  XX(event_log_handler, 0, VALUE, "null", "null") \
  XX(use_env, 0, FLAG, "", "for torch.distributed.launch: no --local-rank argument") \
  XX(run_path, 0, REFUSED, "", NULL) \
  XX(local_addr, 0, REFUSED, "", NULL) \
  XX(logs_specs, 0, REFUSED, "", NULL) \
  XX(numa_binding, 0, REFUSED, "", NULL) \
  XX(duplicate_stdout_filters, 0, REFUSED, "", NULL) \
  XX(duplicate_stderr_filters, 0, REFUSED, "", NULL) \
  XX(print_completion, 0, REFUSED, "", NULL)

enum { PX__SIGNALS = 16, PX__HOST = 256 };
// The parsed options. Strings are borrowed from the arguments and the environment.
typedef struct px__launch_plan {
#define XX(name, letter, takes, fallback, help) const char *name;
  PX__LAUNCH_MAP(XX)
#undef XX
  const px_job_options *given;
  const char *const *program;  // and its arguments
  int program_count;
  int nodes, node, local, restarts;  // node -1: assigned at the rendezvous
  int interval_ms, shutdown_ms, join_ms;
  char host[PX__HOST];
  int port;
  int signals[PX__SIGNALS], signal_count;
} px__launch_plan;
__attribute__((warn_unused_result)) px_status px__launch_parse(px__launch_plan *out,
                                                               const px_job_options *given);
// Bits of --redirects or --tee for a rank: 1 stdout, 2 stderr.
int px__launch_streams(const char *text, int local_rank);
// True if the terminal shows the output of a rank.
bool px__launch_shown(const px__launch_plan *plan, int local_rank);
// Returns the value of an environment variable, or NULL.
const char *px__launch_variable(const px_job_options *given, const char *name);

// Numbers of a rank within the job.
typedef struct px__launch_position {
  int rank, world, role_rank, role_world, node, nodes, round, port;
  const char *host;
} px__launch_position;

// The guard process, which ends the ranks when the agent dies (launch_keeper.c).
typedef struct px__guard {
  int socket;
  pid_t pid;
} px__guard;
typedef struct px__launch_program {
  char *const *arguments, *const *environment;
  int outputs[2];  // replace stdout and stderr; -1: inherited from the agent
} px__launch_program;
// Starts the guard of `count` ranks. `patience_ms` is the time between SIGTERM and SIGKILL.
__attribute__((warn_unused_result)) px_status px__guard_start(px__guard *out, int count,
                                                              int patience_ms);
// Starts a rank as the leader of a new session, and registers it with the guard.
__attribute__((warn_unused_result)) px_status px__guard_spawn(pid_t *out, const px__guard *self,
                                                              int local,
                                                              const px__launch_program *program);
// Deregisters a finished rank: its pid may be reused by another process.
void px__guard_forget(const px__guard *self, int local);
void px__guard_end(px__guard *self);

enum { PX__LINE = 3072 };
typedef struct px__launch_output {  // a stream that is both shown and logged
  int pipe, file;                   // -1: none
  bool shown;
  size_t length;
  char line[PX__LINE];  // an incomplete line
} px__launch_output;
typedef struct px__launch_rank {
  const px__guard *guard;
  pid_t pid;
  bool runs, failed;
  bool live;   // to be signalled
  int status;  // of waitpid
  int rank, local;
  int64_t ended;  // nanoseconds: mtime of its error file, else the time of detection
  char error_file[PX__LAUNCH_PATH], prefix[128];
  px__launch_output outputs[2];
} px__launch_rank;

// Starts the ranks of this node with their files in `folder`. After a failure some ranks may run;
// the caller must stop them.
__attribute__((warn_unused_result)) px_status px__ranks_start(px__launch_rank *ranks,
                                                              const px__launch_plan *plan,
                                                              const px__launch_position *first,
                                                              const char *folder,
                                                              const px__guard *guard);
// Forwards output of the ranks, waiting at most `milliseconds` for it.
void px__ranks_pump(px__launch_rank *ranks, int count, int milliseconds);
// Polls for ended ranks. Returns the number of running and of failed ones.
void px__ranks_reap(px__launch_rank *ranks, int count, int *running, int *failed);
// Stops running ranks and their descendants: sends `signal`, then SIGKILL after `milliseconds`.
void px__ranks_stop(px__launch_rank *ranks, int count, int signal, int milliseconds);
// Closes the ranks' files. `tidy` removes error files and empty folders.
void px__ranks_close(px__launch_rank *ranks, int count, bool tidy);

// Returns an error with the report on the failed ranks.
__attribute__((warn_unused_result)) px_status px__launch_report(const px__launch_rank *ranks,
                                                                int count, const char *program);
// Returns "SIGTERM", or "another signal".
const char *px__signal_name(int signal);
int px__signal_number(const char *name, size_t length);  // 0 if there is none
