// SPDX-License-Identifier: Apache-2.0
// The launcher's files: options (launch_options.c), ranks as processes (launch_ranks.c) that
// do not outlive the agent (launch_keeper.c), what is said of those that failed (launch_report.c),
// and the job of several agents (launch.c).
#pragma once
#include "phlox/comm.h"
#include "phlox/launch.h"

#include <limits.h>
#include <sys/types.h>

// Options of torchrun: field, letter, what it takes, default, help.
#define PX__LAUNCH_MAP(XX) \
  XX(nnodes, 0, VALUE, "1:1", "how many nodes there are") \
  XX(nproc_per_node, 0, VALUE, "1", "ranks of this node: a number, cpu, gpu or auto") \
  XX(node_rank, 0, VALUE, "0", "which node this is; of the rendezvous `static`") \
  XX(rdzv_backend, 0, VALUE, "static", "static, or c10d: nodes are numbered as they come") \
  XX(rdzv_endpoint, 0, VALUE, "", "host:port at which agents and ranks meet") \
  XX(rdzv_id, 0, VALUE, "none", "the job's name") \
  XX(rdzv_conf, 0, VALUE, "", "join_timeout=SECONDS: how long agents wait for each other") \
  XX(standalone, 0, FLAG, "", "one node, and any free port") \
  XX(master_addr, 0, VALUE, "127.0.0.1", "the host of node 0, without --rdzv-endpoint") \
  XX(master_port, 0, VALUE, "", "the port; 29500, or, with one node, any") \
  XX(max_restarts, 0, VALUE, "0", "how often all ranks are started again") \
  XX(monitor_interval, 0, VALUE, "0.1", "seconds between looks at the ranks") \
  XX(role, 0, VALUE, "default", "what these ranks are called") \
  XX(module, 'm', FLAG, "", "the program is a module of Python") \
  XX(no_python, 0, FLAG, "", "the program is run as it is, without Python") \
  XX(log_dir, 0, VALUE, "", "the folder of the ranks' logs and error files") \
  XX(redirects, 'r', VALUE, "0", "what goes to logs: 1 stdout, 2 stderr, 3 both, or 0:1,1:3") \
  XX(tee, 't', VALUE, "0", "what goes to logs and to the terminal") \
  XX(local_ranks_filter, 0, VALUE, "", "the ranks that are seen on the terminal: 0,1") \
  XX(log_line_prefix_template, 0, VALUE, "[${role_name}${local_rank}]:", "before lines of --tee") \
  XX(signals_to_handle, 0, VALUE, "SIGTERM,SIGINT,SIGHUP,SIGQUIT", "those that end the job") \
  XX(shutdown_timeout, 0, VALUE, "30", "seconds from SIGTERM to SIGKILL") \
  XX(virtual_local_rank, 0, FLAG, "", "each rank sees one device, and is local rank 0") \
  XX(start_method, 0, VALUE, "spawn", "spawn") \
  XX(event_log_handler, 0, VALUE, "null", "null") \
  XX(use_env, 0, FLAG, "", "of torch.distributed.launch: no --local-rank argument") \
  XX(run_path, 0, REFUSED, "", NULL) \
  XX(local_addr, 0, REFUSED, "", NULL) \
  XX(logs_specs, 0, REFUSED, "", NULL) \
  XX(numa_binding, 0, REFUSED, "", NULL) \
  XX(duplicate_stdout_filters, 0, REFUSED, "", NULL) \
  XX(duplicate_stderr_filters, 0, REFUSED, "", NULL) \
  XX(print_completion, 0, REFUSED, "", NULL)

enum { PX__SIGNALS = 16, PX__HOST = 256 };
// What the arguments say. Texts are borrowed from them and from the environment.
typedef struct px__launch_plan {
#define XX(name, letter, takes, fallback, help) const char *name;
  PX__LAUNCH_MAP(XX)
#undef XX
  const px_job_options *given;
  const char *const *program;  // and its arguments
  int program_count;
  int nodes, node, local, restarts;  // node -1: to be given out
  int interval_ms, shutdown_ms, join_ms;
  char host[PX__HOST];
  int port;
  int signals[PX__SIGNALS], signal_count;
} px__launch_plan;
__attribute__((warn_unused_result)) px_status px__launch_parse(px__launch_plan *out,
                                                               const px_job_options *given);
// The bits that --redirects and --tee have for a rank.
int px__launch_streams(const char *text, int local_rank);
// Whether the terminal shows a rank.
bool px__launch_shown(const px__launch_plan *plan, int local_rank);
// The value of a variable, or NULL.
const char *px__launch_variable(const px_job_options *given, const char *name);

// Where a rank stands among all.
typedef struct px__launch_place {
  int rank, world, role_rank, role_world, node, nodes, round, port;
  const char *host;
} px__launch_place;

// What ends the ranks when the agent cannot (launch_keeper.c).
typedef struct px__keeper {
  int socket;
  pid_t pid;
} px__keeper;
typedef struct px__launch_program {
  char *const *arguments, *const *environment;
  int outputs[2];  // in the place of stdout and stderr; -1: the agent's
} px__launch_program;
// Starts the keeper of so many ranks, which have so long from SIGTERM to SIGKILL.
__attribute__((warn_unused_result)) px_status px__keeper_start(px__keeper *out, int count,
                                                               int patience_ms);
// Starts a rank, as the leader of a session, and tells the keeper.
__attribute__((warn_unused_result)) px_status px__keeper_spawn(pid_t *out, const px__keeper *self,
                                                               int local,
                                                               const px__launch_program *program);
// A rank is over: its number may become another process's.
void px__keeper_forget(const px__keeper *self, int local);
void px__keeper_end(px__keeper *self);

enum { PX__LINE = 4096 };
typedef struct px__launch_output {  // a stream that is shown and kept
  int pipe, file;                   // -1: none
  bool shown;
  size_t length;
  char line[PX__LINE];  // what has come of it
} px__launch_output;
typedef struct px__launch_rank {
  const px__keeper *keeper;
  pid_t pid;
  bool runs, failed;
  bool live;   // to be stopped
  int status;  // as waitpid gives it
  int rank, local;
  int64_t ended;  // nanoseconds: when its error file was written, or else when it was seen to end
  char error_file[PATH_MAX], prefix[128];
  px__launch_output outputs[2];
} px__launch_rank;

// Starts the ranks of this node, their files in `folder`; what was started before a failure runs,
// and is to be stopped.
__attribute__((warn_unused_result)) px_status px__ranks_start(px__launch_rank *ranks,
                                                              const px__launch_plan *plan,
                                                              const px__launch_place *first,
                                                              const char *folder,
                                                              const px__keeper *keeper);
// Passes on what the ranks wrote, for at most so long.
void px__ranks_pump(px__launch_rank *ranks, int count, int milliseconds);
// Notes which have ended: how many run on, and how many have failed.
void px__ranks_reap(px__launch_rank *ranks, int count, int *running, int *failed);
// Ends those that run, and what they have started: by the signal, and in the end by SIGKILL.
void px__ranks_stop(px__launch_rank *ranks, int count, int signal, int milliseconds);
// Closes what was open for them. Of an own folder, removes what is empty and the error files.
void px__ranks_close(px__launch_rank *ranks, int count, bool tidy);

// Fails with the report on the ranks that have failed.
__attribute__((warn_unused_result)) px_status px__launch_report(const px__launch_rank *ranks,
                                                                int count, const char *program);
// "SIGTERM", or "signal 44".
const char *px__signal_name(int signal);
int px__signal_number(const char *name, size_t length);  // 0 if there is none
