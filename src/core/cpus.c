/* SPDX-License-Identifier: BSD-3-Clause
 * How many threads the process may use. */
#if defined(__linux__)
#define _GNU_SOURCE /* sched_getaffinity */
#else
#define _POSIX_C_SOURCE 200809L
#endif
#include "threads.h"

#if defined(__linux__)

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The beginning of a small text file; 0 if it cannot be read. */
static int read_text(const char *path, char *text, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd >= 0 ? read(fd, text, size - 1) : -1;
  if (fd >= 0) {
    close(fd);
  }
  text[n > 0 ? n : 0] = '\0';
  return n > 0;
}

/* Whole CPUs of one quota, "max 100000" or "150000 100000" in microseconds; `none` if there is no limit. */
static int quota(const char *text, int none) {
  char *rest;
  long long limit = strtoll(text, &rest, 10);
  long long period = rest != text ? strtoll(rest, NULL, 10) : 0;
  if (limit <= 0 || period <= 0 || limit / period >= none) {
    return none;
  }
  return limit / period > 1 ? (int)(limit / period) : 1;
}

/* The tightest quota of the process's control group and the groups above it. */
static int group_quota(int cpus) {
  char groups[4096], path[4096 + 64], text[64], period[32];
  if (read_text("/proc/self/cgroup", groups, sizeof groups)) {
    char *line = strncmp(groups, "0::", 3) == 0 ? groups : strstr(groups, "\n0::");
    if (line != NULL) {
      char *group = strchr(line, '/');
      if (group != NULL) {
        group[strcspn(group, "\n")] = '\0';
        for (;;) {
          snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", group);
          if (read_text(path, text, sizeof text)) {
            cpus = quota(text, cpus);
          }
          char *slash = strrchr(group, '/');
          if (slash == NULL) {
            break;
          }
          *slash = '\0';
        }
      }
    }
  }
  /* Version 1, as a container sees it. */
  if (read_text("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", text, 32) &&
      read_text("/sys/fs/cgroup/cpu/cpu.cfs_period_us", period, sizeof period)) {
    strcat(text, period);
    cpus = quota(text, cpus);
  }
  return cpus;
}

int ml_threads_available(void) {
  int cpus = 0;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    cpus = CPU_COUNT(&set);
  }
  if (cpus < 1) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    cpus = online > 1 ? (int)online : 1;
  }
  return group_quota(cpus);
}

#elif defined(_WIN32)

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

int ml_threads_available(void) {
  DWORD_PTR process = 0, machine = 0;
  int cpus = 0;
  if (GetProcessAffinityMask(GetCurrentProcess(), &process, &machine)) {
    for (; process != 0; process &= process - 1) {
      cpus++;
    }
  }
  /* The mask is 0 where the process spans groups of 64 CPUs. */
  return cpus > 0 ? cpus : (int)GetActiveProcessorCount(ALL_PROCESSOR_GROUPS);
}

#else

#include <unistd.h>

int ml_threads_available(void) {
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online > 1 ? (int)online : 1;
}

#endif
