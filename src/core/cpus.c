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

#define MOUNT "/sys/fs/cgroup"

/* A text file, or as much of it as there is room for; 0 if it is empty or cannot be read. */
static int read_text(const char *path, char *text, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  size_t length = 0;
  ssize_t n = 1;
  while (fd >= 0 && n > 0 && length < size - 1) {
    n = read(fd, text + length, size - 1 - length); /* /proc gives a long text in parts */
    length += n > 0 ? (size_t)n : 0;
  }
  if (fd >= 0) {
    close(fd);
  }
  text[length] = '\0';
  return length > 0;
}

/* Whole CPUs of one quota in microseconds; `none` if there is no limit. period: NULL = it stands behind the limit, "150000 100000". */
static int quota(const char *limit, const char *period, int none) {
  char *rest;
  long long time = strtoll(limit, &rest, 10);
  long long of = rest != limit ? strtoll(period != NULL ? period : rest, NULL, 10) : 0;
  if (time <= 0 || of <= 0 || time / of >= none) {
    return none;
  }
  return time / of > 1 ? (int)(time / of) : 1;
}

/* The quota of one control group of version 1 or 2. */
static int group_quota(int version, const char *group, int cpus) {
  char path[4096 + 64], limit[64], period[64];
  if (version == 2) {
    snprintf(path, sizeof path, MOUNT "%s/cpu.max", group);
    return read_text(path, limit, sizeof limit) ? quota(limit, NULL, cpus) : cpus;
  }
  snprintf(path, sizeof path, MOUNT "/cpu%s/cpu.cfs_quota_us", group);
  int known = read_text(path, limit, sizeof limit);
  snprintf(path, sizeof path, MOUNT "/cpu%s/cpu.cfs_period_us", group);
  return known && read_text(path, period, sizeof period) ? quota(limit, period, cpus) : cpus;
}

/* Is "cpu" in a list "cpu,cpuacct"? */
static int lists_cpu(const char *names) {
  for (; names != NULL; names = strchr(names, ',')) {
    names += *names == ',';
    if (strncmp(names, "cpu", 3) == 0 && (names[3] == ',' || names[3] == '\0')) {
      return 1;
    }
  }
  return 0;
}

/* The tightest quota of the process's control groups and the groups above them. */
static int tightest_quota(int cpus) {
  /* A container may see its own group as the root, whatever /proc calls it. */
  cpus = group_quota(1, "", group_quota(2, "", cpus));
  char groups[16384];
  if (!read_text("/proc/self/cgroup", groups, sizeof groups)) {
    return cpus;
  }
  /* Lines "4:cpu,cpuacct:/group", of version 2 "0::/group". One without an end is cut off. */
  char *end;
  for (char *line = groups; (end = strchr(line, '\n')) != NULL; line = end + 1) {
    *end = '\0';
    char *names = strchr(line, ':');
    char *group = names != NULL ? strchr(names + 1, ':') : NULL;
    if (group == NULL) {
      continue;
    }
    *names++ = '\0';
    *group++ = '\0';
    int version = strcmp(line, "0") == 0 ? 2 : lists_cpu(names) ? 1 : 0;
    for (char *slash; version != 0 && (slash = strrchr(group, '/')) != NULL; *slash = '\0') {
      cpus = group_quota(version, group, cpus);
    }
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
  return tightest_quota(cpus);
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
