// SPDX-License-Identifier: Apache-2.0
// Explains host accesses to device memory with one line on standard error before the process dies.
//
// The SIGSEGV handler is installed when the first device is opened. After printing, it restores the
// previous handler to receive the same fault again. Other faults are passed on silently. It calls
// only async-signal-safe functions: write, sigaction and raise.
#include "sim/sim.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static struct sigaction before;

static char *put_text(char *to, const char *text) {
  while (*text) *to++ = *text++;
  return to;
}

static char *put_hex(char *to, uintptr_t value) {
  for (int shift = 60; shift >= 0; shift -= 4)
    if (value >> shift || !shift) *to++ = "0123456789abcdef"[value >> shift & 15];
  return to;
}

static void print_access(int device, uintptr_t at) {
  char line[200], *end = put_text(line, "phlox: the host read or wrote 0x");
  end = put_text(put_hex(end, at), ", which is memory of cuda:");
  if (device >= 10) *end++ = (char)('0' + device / 10);
  *end++ = (char)('0' + device % 10);
  end = put_text(end, " (simulated); only kernels and copies can reach it\n");
  ssize_t written = write(STDERR_FILENO, line, (size_t)(end - line));
  (void)written;
}

// Lock-free: a device's addresses never change after it is opened.
static void on_fault(int number, siginfo_t *info, void *context) {
  int device = info->si_code > 0 ? px__sim_owner((uintptr_t)info->si_addr) : -1;
  if (device >= 0) print_access(device, (uintptr_t)info->si_addr);
  sigaction(SIGSEGV, &before, NULL);
  // A fault recurs on return; a signal sent by another process does not.
  if (info->si_code <= 0) raise(number);
}

void px__sim_explain(void) {
  static bool set;
  if (set) return;
  set = true;
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &before);
}
