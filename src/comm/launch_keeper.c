// SPDX-License-Identifier: Apache-2.0
// Starts ranks that do not outlive their agent. The guard is a child process of the agent,
// connected by a socket pair. Each rank registers there before exec, and the agent deregisters it
// when it ends. When all agent-side ends are closed, however the agent ended, the guard ends the
// remaining ranks with their descendants.
//
// Between fork and exec, and in the guard, another thread's locks may be held forever. Only
// async-signal-safe functions are called there, and nothing is allocated.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "comm/launch_impl.h"
#include "comm/store_impl.h"

typedef struct note {
  int local;
  pid_t pid;  // 0: deregister
} note;

// Blocks signals around fork, so that no handler of the agent runs in the child.
static void hold_signals(sigset_t *before) {
  sigset_t all;
  sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, before);
}

static px_status not_made(const char *what) {
  return px_error_set(PX_IO, errno, __FILE__, __LINE__, __func__, "torchrun: cannot start %s: %s",
                      what, strerror(errno));
}

// ---- the guard

// Signals the remaining ranks and their descendants. Returns false if there are none.
static bool send_all(const pid_t *ranks, int count, int signal) {
  bool any = false;
  for (int i = 0; i < count; i++) any |= ranks[i] > 0 && kill(-ranks[i], signal) == 0;
  return any;
}

static void end_all(const pid_t *ranks, int count, int patience_ms) {
  const struct timespec step = {.tv_nsec = 10000000};
  int64_t end = px__now_ms() + patience_ms;
  (void)send_all(ranks, count, SIGTERM);
  (void)send_all(ranks, count, SIGCONT);  // a stopped process handles SIGTERM once continued
  while (send_all(ranks, count, 0) && px__now_ms() < end) (void)nanosleep(&step, NULL);
  (void)send_all(ranks, count, SIGKILL);
}

static void keep(int far, pid_t *ranks, int count, int patience_ms) {
  note said = {0};
  (void)setsid();
  (void)prctl(PR_SET_NAME, "phlox-keeper");
  if (dup2(far, 0) != 0 || close_range(1, ~0u, 0) != 0) return;
  (void)send(0, &said, sizeof said, MSG_NOSIGNAL);
  for (;;) {
    ssize_t got = recv(0, &said, sizeof said, 0);
    if (got == sizeof said && said.local < count) ranks[said.local] = said.pid;
    if (got == 0 || (got < 0 && errno != EINTR)) break;
  }
  end_all(ranks, count, patience_ms);
}

px_status px__keeper_start(px__keeper *out, int count, int patience_ms) {
  int ends[2];
  pid_t *ranks;
  sigset_t before;
  note ready;
  PX_TRY(px_alloc((void **)&ranks, (size_t)count * sizeof *ranks));
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) {
    px_free(ranks);
    return not_made("the keeper");
  }
  hold_signals(&before);
  pid_t pid = fork();
  if (pid == 0) {
    keep(ends[1], ranks, count, patience_ms);
    _exit(0);  // not exit(): must not run the agent's exit handlers
  }
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  px_free(ranks);
  close(ends[1]);
  *out = (px__keeper){.socket = ends[0], .pid = pid};
  if (pid > 0 && recv(ends[0], &ready, sizeof ready, 0) == sizeof ready) return PX_OK;
  px_status status = not_made("the keeper");
  px__keeper_end(out);
  return status;
}

void px__keeper_forget(const px__keeper *self, int local) {
  const note over = {.local = local};
  (void)send(self->socket, &over, sizeof over, MSG_NOSIGNAL);
}

void px__keeper_end(px__keeper *self) {
  if (self->socket >= 0) close(self->socket);
  while (self->pid > 0 && waitpid(self->pid, NULL, 0) < 0 && errno == EINTR) continue;
  *self = (px__keeper){.socket = -1};
}

// ---- ranks

// Restores default signals. exec resets handlers but keeps ignored signals. Python ignores SIGPIPE
// and SIGXFSZ, which programs do not expect. Also unblocks all signals.
static void usual_signals(void) {
  const struct sigaction usual = {.sa_handler = SIG_DFL};
  struct sigaction now;
  sigset_t none;
  for (int i = 1; i < NSIG; i++)
    if (i == SIGPIPE || i == SIGXFSZ ||
        (sigaction(i, NULL, &now) == 0 && now.sa_handler != SIG_IGN && now.sa_handler != SIG_DFL))
      (void)sigaction(i, &usual, NULL);
  sigemptyset(&none);
  (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

// Executes the program in the child. Returns only on failure.
static void become(const px__keeper *keeper, int local, const px__launch_program *program) {
  const note here = {.local = local, .pid = getpid()};
  (void)setsid();
  (void)send(keeper->socket, &here, sizeof here, MSG_NOSIGNAL);
  for (int k = 0; k < 2; k++)
    if (program->outputs[k] >= 0 && dup2(program->outputs[k], k + 1) < 0) return;
  usual_signals();
  execvpe(program->arguments[0], program->arguments, program->environment);
}

px_status px__keeper_spawn(pid_t *out, const px__keeper *self, int local,
                           const px__launch_program *program) {
  int why[2], bad = 0;
  sigset_t before;
  if (pipe2(why, O_CLOEXEC)) return not_made(program->arguments[0]);
  hold_signals(&before);
  pid_t pid = fork();
  if (pid == 0) {
    become(self, local, program);
    bad = errno;
    (void)!write(why[1], &bad, sizeof bad);
    _exit(127);  // not exit(): see above
  }
  if (pid < 0) bad = errno;
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  close(why[1]);
  // A successful exec closes the pipe without data.
  while (pid > 0 && read(why[0], &bad, sizeof bad) < 0 && errno == EINTR) continue;
  close(why[0]);
  if (!bad) return *out = pid, PX_OK;
  while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
  px__keeper_forget(self, local);
  errno = bad;
  return not_made(program->arguments[0]);
}
