/* SPDX-License-Identifier: BSD-3-Clause
 * A clock of the system that never goes back: POSIX, or Windows' own. */
#ifndef ML_CORE_NATIVE_CLOCK_H
#define ML_CORE_NATIVE_CLOCK_H

#include <stdint.h>

#ifdef _WIN32

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

static inline int64_t native_nanoseconds(void) {
  LARGE_INTEGER now, per_second;
  QueryPerformanceCounter(&now);
  QueryPerformanceFrequency(&per_second);
  return (int64_t)((double)now.QuadPart * (1e9 / (double)per_second.QuadPart));
}

#else

#include <time.h>

static inline int64_t native_nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#endif

#endif
