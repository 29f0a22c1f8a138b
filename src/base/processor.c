// SPDX-License-Identifier: Apache-2.0
// Processor features used by CPU kernels, detected once.
#include "base/base_impl.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static pthread_once_t once = PTHREAD_ONCE_INIT;
static px_cpu_level level;  // written once

px_status px__processor_check(void) {
  const char *unused;
  return px__env_PHLOX_CPU(&unused);
}

#if defined(__x86_64__)
// Tests a feature bit of cpuid leaf 7. 'a' and 'd' name the registers.
static bool feature(unsigned subleaf, char where, int bit) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, subleaf, &a, &b, &c, &d)) return false;
  return (where == 'a' ? a : d) >> bit & 1;
}
// Requests AMX tile state: Linux saves it only for processes with permission.
static bool request_tiles(void) {
  enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
  return feature(0, 'd', 22) && feature(0, 'd', 24) &&
         !syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA);
}
static px_cpu_level detect(px_cpu_level limit) {
  bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
            __builtin_cpu_supports("bmi2");
  bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (!v3 || limit < PX_CPU_AVX2) return PX_CPU_BASE;
  if (!wide || limit < PX_CPU_AVX512) return PX_CPU_AVX2;
  if (!feature(1, 'a', 5) || limit < PX_CPU_AVX512_BF16) return PX_CPU_AVX512;
  return limit >= PX_CPU_AMX && request_tiles() ? PX_CPU_AMX : PX_CPU_AVX512_BF16;
}
#else
static px_cpu_level detect(px_cpu_level limit) { return PX_CPU_BASE; }
#endif

static void find(void) {
  static const char *const names[] = {"base", "avx2", "avx512", "avx512_bf16", "amx"};
  const char *wanted;
  px_cpu_level limit = PX_CPU_AMX;
  if (px__env_PHLOX_CPU(&wanted) != PX_OK) {
    px_error_clear();  // reported by ops
    wanted = "amx";
  }
  for (int i = 0; i <= (int)PX_CPU_AMX; i++)
    if (!strcmp(names[i], wanted)) limit = (px_cpu_level)i;
  level = detect(limit);
}
px_cpu_level px_cpu_level_used(void) {
  pthread_once(&once, find);
  return level;
}
