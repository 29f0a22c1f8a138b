// SPDX-License-Identifier: Apache-2.0
// Ranks as processes. Each leads its own session, so a signal to its process group reaches its
// descendants. Output that is both shown and logged comes through pipes, line by line.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "comm/launch_impl.h"
#include "comm/store_impl.h"

enum { RANK_VARIABLES = 24, ITEM = 512 };  // variables set for a rank; bytes of one besides a path

// ---- arguments and environment

// A list of owned strings.
typedef struct texts {
  char **at;
  int count;
} texts;

static void texts_free(texts *list) {
  for (int i = 0; i < list->count; i++) px_free(list->at[i]);
  px_free(list->at);
}

static px_status texts_reserve(texts *list, int count) {
  return px_alloc((void **)&list->at, ((size_t)count + 1) * sizeof *list->at);
}

static px_status texts_add(texts *list, const char *text) {
  PX_TRY(px_strdup(&list->at[list->count], text));
  list->count++;
  return PX_OK;
}

__attribute__((format(printf, 2, 3))) static px_status texts_print(texts *list, const char *format,
                                                                   ...) {
  char text[PX__LAUNCH_PATH + ITEM];
  va_list args;
  va_start(args, format);
  int length = vsnprintf(text, sizeof text, format, args);
  va_end(args);
  PX_CHECK(length >= 0 && (size_t)length < sizeof text, PX_VALUE, "a text is too long: %.80s...",
           text);
  return texts_add(list, text);
}

// Expands ${role_name}, ${local_rank} and ${rank}.
static void expand(char *to, size_t size, const char *text, const char *role, int rank, int local) {
  const char *const keys[] = {"${role_name}", "${local_rank}", "${rank}"};
  char numbers[2][16];
  snprintf(numbers[0], sizeof numbers[0], "%d", local);
  snprintf(numbers[1], sizeof numbers[1], "%d", rank);
  const char *const values[] = {role, numbers[0], numbers[1]};
  size_t at = 0;
  while (*text && at + 1 < size) {
    int k = 0;
    while (k < 3 && strncmp(text, keys[k], strlen(keys[k])) != 0) k++;
    if (k == 3) {
      to[at++] = *text++;
      continue;
    }
    text += strlen(keys[k]);
    at += (size_t)snprintf(to + at, size - at, "%s", values[k]);
    if (at >= size) at = size - 1;
  }
  to[at] = 0;
}

// Adds an argument, with ${local_rank} expanded.
static px_status add_argument(texts *list, const char *text, int local) {
  char *expanded;
  size_t size = strlen(text) + 16 * 64;
  if (!strstr(text, "${local_rank}")) return texts_add(list, text);
  PX_TRY(px_alloc((void **)&expanded, size));
  expand(expanded, size, text, "${role_name}", local, local);
  px_status status = texts_add(list, expanded);
  px_free(expanded);
  return status;
}

static px_status arguments(texts *list, const px__launch_plan *plan, int local) {
  const px_job_options *given = plan->given;
  int program = 0;
  PX_TRY(texts_reserve(list, given->interpreter_count + plan->program_count + 4));
  if (!*plan->no_python) {
    for (int i = 0; i < given->interpreter_count; i++)
      PX_TRY(texts_add(list, given->interpreter[i]));
    if (*plan->module) PX_TRY(texts_add(list, "-m"));
  }
  PX_TRY(texts_add(list, plan->program[program++]));
  if (given->local_rank_argument && !*plan->use_env)
    PX_TRY(texts_print(list, "--local-rank=%d", local));
  for (; program < plan->program_count; program++)
    PX_TRY(add_argument(list, plan->program[program], local));
  return PX_OK;
}

static const char *visible(const px__launch_plan *plan, int local, int *length, char number[16]) {
  const char *at = px__launch_variable(plan->given, "CUDA_VISIBLE_DEVICES");
  *length = snprintf(number, 16, "%d", local);
  if (!at) return number;
  for (int i = 0; i < local && at; i++) at = (at = strchr(at, ',')) ? at + 1 : NULL;
  *length = at ? (int)strcspn(at, ",") : 0;
  return at ? at : "";
}

static px_status rank_variables(texts *list, const px__launch_plan *plan,
                                const px__launch_position *p, const px__launch_rank *r) {
  bool alone = *plan->virtual_local_rank != 0;
  PX_TRY(texts_print(list, "RANK=%d", r->rank));
  PX_TRY(texts_print(list, "LOCAL_RANK=%d", alone ? 0 : r->local));
  PX_TRY(texts_print(list, "GROUP_RANK=%d", p->node));
  PX_TRY(texts_print(list, "ROLE_RANK=%d", p->role_rank + r->local));
  PX_TRY(texts_print(list, "ROLE_NAME=%s", plan->role));
  PX_TRY(texts_print(list, "WORLD_SIZE=%d", p->world));
  PX_TRY(texts_print(list, "LOCAL_WORLD_SIZE=%d", plan->local));
  PX_TRY(texts_print(list, "GROUP_WORLD_SIZE=%d", p->nodes));
  PX_TRY(texts_print(list, "ROLE_WORLD_SIZE=%d", p->role_world));
  PX_TRY(texts_print(list, "MASTER_ADDR=%s", p->host));
  PX_TRY(texts_print(list, "MASTER_PORT=%d", p->port));
  PX_TRY(texts_print(list, "TORCHELASTIC_RESTART_COUNT=%d", p->round));
  PX_TRY(texts_print(list, "TORCHELASTIC_MAX_RESTARTS=%d", plan->restarts));
  PX_TRY(texts_print(list, "TORCHELASTIC_RUN_ID=%s", plan->rdzv_id));
  PX_TRY(texts_add(list, "TORCHELASTIC_USE_AGENT_STORE=True"));
  PX_TRY(texts_print(list, "TORCHELASTIC_ERROR_FILE=%s", r->error_file));
  // Avoid oversubscription: several ranks default to one thread each.
  static const char *const threads[] = {"OMP_NUM_THREADS", "PHLOX_THREADS"};
  for (int i = 0; i < 2; i++)
    if (plan->local > 1 && !px__launch_variable(plan->given, threads[i]))
      PX_TRY(texts_print(list, "%s=1", threads[i]));
  if (!alone) return PX_OK;
  char number[16];
  int length;
  const char *device = visible(plan, r->local, &length, number);
  PX_CHECK(length, PX_VALUE, "local_rank %d exceeds available GPUs in CUDA_VISIBLE_DEVICES",
           r->local);
  return texts_print(list, "CUDA_VISIBLE_DEVICES=%.*s", length, device);
}

// Adds the rank's own variables, then the rest of the agent's environment.
static px_status variables(texts *list, const px__launch_plan *plan,
                           const px__launch_position *position, const px__launch_rank *rank) {
  const char *const *all = plan->given->environment;
  int count = 0;
  while (all && all[count]) count++;
  PX_TRY(texts_reserve(list, count + RANK_VARIABLES));
  PX_TRY(rank_variables(list, plan, position, rank));
  for (int i = 0, own = list->count; i < count; i++) {
    size_t name = strcspn(all[i], "=") + 1;
    int k = 0;
    while (k < own && strncmp(list->at[k], all[i], name) != 0) k++;
    if (k == own) PX_TRY(texts_add(list, all[i]));
  }
  return PX_OK;
}

// ---- streams

static px_status file_error(const char *what, const char *path) {
  return px_error_set(PX_IO, errno, __FILE__, __LINE__, __func__, "phlox-run: %s %s: %s", what,
                      path, strerror(errno));
}

static px_status make_folder(const char *path) {
  if (mkdir(path, 0777) == 0 || errno == EEXIST) return PX_OK;
  return file_error("cannot make", path);
}

// Opens the destination of a rank's stream: the agent's stream, /dev/null, a file, or a pipe to
// both. *to is unset for the agent's stream. Else it is the file, which the agent keeps open, or
// the pipe's write end, which it closes.
static px_status open_output(px__launch_rank *r, const px__launch_plan *plan, const char *folder,
                             int which, int *to) {
  static const char *const names[] = {"stdout", "stderr"};
  char path[PX__LAUNCH_PATH];
  px__launch_output *out = &r->outputs[which];
  bool tee = px__launch_streams(plan->tee, r->local) & 1 << which;
  bool kept = tee || px__launch_streams(plan->redirects, r->local) & 1 << which;
  out->shown = px__launch_shown(plan, r->local);
  if (!kept && out->shown) return PX_OK;
  snprintf(path, sizeof path, "/dev/null");
  if (kept) {
    int length = snprintf(path, sizeof path, "%s/%s.log", folder, names[which]);
    PX_CHECK(length < PX__LAUNCH_PATH, PX_VALUE, "the path of --log-dir is too long");
  }
  int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666), pipes[2];
  if (file < 0) return file_error("cannot write", path);
  *to = out->file = file;
  if (!tee) return PX_OK;
  if (pipe2(pipes, O_CLOEXEC)) return file_error("no pipe for", path);
  (void)fcntl(pipes[0], F_SETFL, O_NONBLOCK);
  out->pipe = pipes[0];
  *to = pipes[1];
  return PX_OK;
}

__attribute__((noinline)) static px_status start(px__launch_rank *r, const px__launch_plan *plan,
                                                 const px__launch_position *position,
                                                 const char *folder) {
  texts command = {0}, environment = {0};
  int outputs[2] = {-1, -1};
  px_status status = PX_OK;
  for (int which = 0; which < 2 && status == PX_OK; which++)
    status = open_output(r, plan, folder, which, &outputs[which]);
  if (status == PX_OK) status = arguments(&command, plan, r->local);
  if (status == PX_OK) status = variables(&environment, plan, position, r);
  if (status == PX_OK)
    status = px__guard_spawn(
        &r->pid, r->guard, r->local,
        &(px__launch_program){command.at, environment.at, {outputs[0], outputs[1]}});
  r->runs = status == PX_OK;
  for (int i = 0; i < 2; i++)
    if (outputs[i] >= 0 && outputs[i] != r->outputs[i].file) close(outputs[i]);
  texts_free(&command);
  texts_free(&environment);
  return status;
}

px_status px__ranks_start(px__launch_rank *ranks, const px__launch_plan *plan,
                          const px__launch_position *first, const char *folder,
                          const px__guard *guard) {
  for (int i = 0; i < plan->local; i++) {
    ranks[i] = (px__launch_rank){.rank = first->rank + i, .local = i, .guard = guard};
    for (int k = 0; k < 2; k++) ranks[i].outputs[k].pipe = ranks[i].outputs[k].file = -1;
  }
  for (int i = 0; i < plan->local; i++) {
    char own[PX__LAUNCH_PATH];
    px__launch_rank *r = &ranks[i];
    int length = snprintf(own, sizeof own, "%s/%d", folder, i);
    PX_CHECK(length + 16 < PX__LAUNCH_PATH, PX_VALUE, "the path of --log-dir is too long");
    PX_TRY(make_folder(own));
    snprintf(r->error_file, sizeof r->error_file, "%.*s/error.json", length, own);
    expand(r->prefix, sizeof r->prefix, plan->log_line_prefix_template, plan->role, r->rank, i);
    PX_TRY(start(r, plan, first, own));
  }
  return PX_OK;
}

static void write_all(int file, const char *at, size_t size) {
  while (size) {
    ssize_t done = write(file, at, size);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return;  // a full disk or a closed terminal must not end the job
    at += done;
    size -= (size_t)done;
  }
}

// Writes a line with the rank's prefix in one write.
static void show(px__launch_rank *r, int which, size_t length) {
  char text[PX__LINE + sizeof r->prefix];
  px__launch_output *out = &r->outputs[which];
  int prefix = snprintf(text, sizeof r->prefix, "%s", r->prefix);
  memcpy(text + prefix, out->line, length);
  if (out->shown) write_all(which + 1, text, (size_t)prefix + length);
  out->length -= length;
  memmove(out->line, out->line + length, out->length);
}

static void forward_output(px__launch_rank *r, int which) {
  px__launch_output *out = &r->outputs[which];
  for (;;) {
    char *at = out->line + out->length;
    ssize_t got = read(out->pipe, at, sizeof out->line - out->length);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      if (got == 0) close(out->pipe), out->pipe = -1;
      return;
    }
    write_all(out->file, at, (size_t)got);
    out->length += (size_t)got;
    for (char *end; (end = memchr(out->line, '\n', out->length));)
      show(r, which, (size_t)(end - out->line) + 1);
    if (out->length == sizeof out->line) show(r, which, out->length);
  }
}

void px__ranks_pump(px__launch_rank *ranks, int count, int milliseconds) {
  enum { MAX_POLLED = 256 };  // pipes served per call
  struct pollfd polled[MAX_POLLED];
  int from[MAX_POLLED], n = 0;
  for (int i = 0; i < 2 * count && n < MAX_POLLED; i++)
    if (ranks[i / 2].outputs[i % 2].pipe >= 0) {
      from[n] = i;
      polled[n++] = (struct pollfd){ranks[i / 2].outputs[i % 2].pipe, POLLIN, 0};
    }
  if (poll(polled, (nfds_t)n, milliseconds) <= 0) return;
  for (int i = 0; i < n; i++)
    if (polled[i].revents) forward_output(&ranks[from[i] / 2], from[i] % 2);
}

// ---- ends

static void note_end(px__launch_rank *r) {
  struct stat file;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (stat(r->error_file, &file) == 0) now = file.st_mtim;
  r->runs = false;
  r->failed = !WIFEXITED(r->status) || WEXITSTATUS(r->status) != 0;
  r->ended = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
  if (!r->failed) px__guard_forget(r->guard, r->local);
}

void px__ranks_reap(px__launch_rank *ranks, int count, int *running, int *failed) {
  *running = *failed = 0;
  for (int i = 0; i < count; i++) {
    px__launch_rank *r = &ranks[i];
    if (r->runs && waitpid(r->pid, &r->status, WNOHANG) != 0) note_end(r);
    *running += r->runs;
    *failed += r->failed;
  }
}

// Signals the process groups of live ranks. A rank that ended well is excluded, as its pid may have
// been reused.
static void send_signal(const px__launch_rank *ranks, int count, int signal) {
  for (int i = 0; i < count; i++)
    if (ranks[i].live) (void)kill(-ranks[i].pid, signal);
}

// Reaps stopped ranks and returns the number still running. Stopped ranks do not count as
// failed.
static int count_running(px__launch_rank *ranks, int count) {
  int running = 0;
  for (int i = 0; i < count; i++) {
    px__launch_rank *r = &ranks[i];
    if (r->runs && waitpid(r->pid, &r->status, WNOHANG) != 0) r->runs = false;
    running += r->runs;
  }
  return running;
}

void px__ranks_stop(px__launch_rank *ranks, int count, int signal, int milliseconds) {
  enum { STEP = 10 };
  for (int i = 0; i < count; i++) ranks[i].live = ranks[i].runs || ranks[i].failed;
  if (count_running(ranks, count)) {
    send_signal(ranks, count, signal);
    // A stopped process handles the signal once it is continued.
    send_signal(ranks, count, SIGCONT);
  }
  for (int64_t end = px__now_ms() + milliseconds;
       px__now_ms() < end && count_running(ranks, count);)
    px__ranks_pump(ranks, count, STEP);
  send_signal(ranks, count, SIGKILL);
  while (count_running(ranks, count)) usleep(STEP * 1000);
  for (int i = 0; i < count; i++)
    if (ranks[i].live) px__guard_forget(ranks[i].guard, ranks[i].local);
  px__ranks_pump(ranks, count, 0);
}

void px__ranks_close(px__launch_rank *ranks, int count, bool tidy) {
  for (int i = 0; i < count; i++) {
    px__launch_rank *r = &ranks[i];
    for (int k = 0; k < 2; k++) {
      px__launch_output *out = &r->outputs[k];
      if (out->length) show(r, k, out->length);
      if (out->pipe >= 0) close(out->pipe);
      if (out->file >= 0) close(out->file);
      out->pipe = out->file = -1;
    }
    if (!tidy || !*r->error_file) continue;
    (void)unlink(r->error_file);
    *strrchr(r->error_file, '/') = 0;
    (void)rmdir(r->error_file);
    *r->error_file = 0;
  }
}
