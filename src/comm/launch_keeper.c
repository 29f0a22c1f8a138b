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

typedef struct registration {
  int local;
  pid_t pid;  // 0: deregister
} registration;

// Blocks signals around fork, so that no handler of the agent runs in the child.
static void block_signals(sigset_t *before) {
  sigset_t all;
  sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, before);
}

static px_status start_error(const char *what) {
  return px_error_set(PX_IO, errno, __FILE__, __LINE__, __func__, "phlox-run: cannot start %s: %s",
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

static void run_guard(int far, pid_t *ranks, int count, int patience_ms) {
  registration received = {0};
  (void)setsid();
  (void)prctl(PR_SET_NAME, "phlox-keeper");
  if (dup2(far, 0) != 0 || close_range(1, ~0u, 0) != 0) return;
  (void)send(0, &received, sizeof received, MSG_NOSIGNAL);
  for (;;) {
    ssize_t got = recv(0, &received, sizeof received, 0);
    if (got == sizeof received && received.local < count) ranks[received.local] = received.pid;
    if (got == 0 || (got < 0 && errno != EINTR)) break;
  }
  end_all(ranks, count, patience_ms);
}

px_status px__guard_start(px__guard *out, int count, int patience_ms) {
  int ends[2];
  pid_t *ranks;
  sigset_t before;
  registration ready;
  PX_TRY(px_alloc((void **)&ranks, (size_t)count * sizeof *ranks));
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) {
    px_free(ranks);
    return start_error("the keeper");
  }
  block_signals(&before);
  pid_t pid = fork();
  if (pid == 0) {
    run_guard(ends[1], ranks, count, patience_ms);
    _exit(0);  // not exit(): must not run the agent's exit handlers
  }
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  px_free(ranks);
  close(ends[1]);
  *out = (px__guard){.socket = ends[0], .pid = pid};
  if (pid > 0 && recv(ends[0], &ready, sizeof ready, 0) == sizeof ready) return PX_OK;
  px_status status = start_error("the keeper");
  px__guard_end(out);
  return status;
}

void px__guard_forget(const px__guard *self, int local) {
  const registration over = {.local = local};
  (void)send(self->socket, &over, sizeof over, MSG_NOSIGNAL);
}

void px__guard_end(px__guard *self) {
  if (self->socket >= 0) close(self->socket);
  while (self->pid > 0 && waitpid(self->pid, NULL, 0) < 0 && errno == EINTR) continue;
  *self = (px__guard){.socket = -1};
}

// ---- ranks

// Restores default signals. exec resets handlers but keeps ignored signals. Python ignores SIGPIPE
// and SIGXFSZ, which programs do not expect. Also unblocks all signals.
static void reset_signals(void) {
  const struct sigaction standard = {.sa_handler = SIG_DFL};
  struct sigaction now;
  sigset_t none;
  for (int i = 1; i < NSIG; i++)
    if (i == SIGPIPE || i == SIGXFSZ ||
        (sigaction(i, NULL, &now) == 0 && now.sa_handler != SIG_IGN && now.sa_handler != SIG_DFL))
      (void)sigaction(i, &standard, NULL);
  sigemptyset(&none);
  (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

// Executes the program in the child. Returns only on failure.
static void exec_program(const px__guard *guard, int local, const px__launch_program *program) {
  const registration here = {.local = local, .pid = getpid()};
  (void)setsid();
  (void)send(guard->socket, &here, sizeof here, MSG_NOSIGNAL);
  for (int k = 0; k < 2; k++)
    if (program->outputs[k] >= 0 && dup2(program->outputs[k], k + 1) < 0) return;
  reset_signals();
  execvpe(program->arguments[0], program->arguments, program->environment);
}

px_status px__guard_spawn(pid_t *out, const px__guard *self, int local,
                          const px__launch_program *program) {
  int why[2], bad = 0;
  sigset_t before;
  if (pipe2(why, O_CLOEXEC)) return start_error(program->arguments[0]);
  block_signals(&before);
  pid_t pid = fork();
  if (pid == 0) {
    exec_program(self, local, program);
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
  px__guard_forget(self, local);
  errno = bad;
  return start_error(program->arguments[0]);
}
