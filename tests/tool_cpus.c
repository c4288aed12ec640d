/* SPDX-License-Identifier: BSD-3-Clause
 * Prints how many threads the library would use on another machine: one with this many CPUs, whose control groups are described by files
 * below a folder. The system's functions are replaced, so that the library itself is what is shipped.
 *   tool_cpus FOLDER CPUS */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/core/threads.h"

static const char *folder;
static int machine_cpus;

/* Below the folder, if the path is one that tells of control groups. */
int open(const char *path, int flags, ...) {
  char moved[2 * 4096];
  int told = strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/sys/", 5) == 0;
  snprintf(moved, sizeof moved, "%s%s", told ? folder : "", path);
  return openat(AT_FDCWD, moved, flags);
}

int sched_getaffinity(pid_t process, size_t size, cpu_set_t *set) {
  (void)process;
  memset(set, 0, size);
  for (int i = 0; i < machine_cpus; i++) {
    CPU_SET((size_t)i, set);
  }
  return 0;
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: tool_cpus FOLDER CPUS\n");
    return 2;
  }
  folder = argv[1];
  machine_cpus = atoi(argv[2]);
  printf("%d\n", ml_threads_available());
  return 0;
}
