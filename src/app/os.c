/* SPDX-License-Identifier: BSD-3-Clause
 * What the command line needs from the operating system, on POSIX (os_windows.c is for Windows). */
#ifndef _WIN32
#define _FILE_OFFSET_BITS 64
#define _POSIX_C_SOURCE 200809L
#include "os.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../core/native_clock.h"

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number) {
  (void)signal_number;
  interrupted = 1;
}

void os_start(void) {
  for (int fd = 0; fd <= 2; fd++) {
    if (fcntl(fd, F_GETFD) == -1 && errno == EBADF) {
      /* The lowest free number is fd. Opened the wrong way round: using it still fails, as the caller who closed it expects. */
      (void)!open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
    }
  }
  signal(SIGPIPE, SIG_IGN);
  struct sigaction action;
  if (sigaction(SIGINT, NULL, &action) == 0 && action.sa_handler != SIG_IGN) {
    action.sa_handler = on_interrupt;
    action.sa_flags = 0; /* no SA_RESTART: a read that waits must end */
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
  }
}

int os_interrupted(void) {
  return interrupted != 0;
}

void os_clear_interrupt(void) {
  interrupted = 0;
}

int os_is_terminal(FILE *file) {
  return isatty(fileno(file));
}

FILE *os_open(const char *path, const char *mode) {
  return fopen(path, mode);
}

int os_rename(const char *from, const char *to) {
  return rename(from, to);
}

int os_remove(const char *path) {
  return remove(path);
}

int os_write(FILE *file, const char *bytes, size_t n) {
  errno = 0;
  if (fwrite(bytes, 1, n, file) != n || fflush(file) != 0) {
    return errno != 0 ? errno : EIO;
  }
  return 0;
}

size_t os_read(FILE *file, char *bytes, size_t n) {
  return fread(bytes, 1, n, file);
}

int os_is_missing(const char *path) {
  struct stat info;
  return stat(path, &info) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

int os_is_special(const char *path) {
  struct stat info;
  return lstat(path, &info) == 0 && !S_ISREG(info.st_mode);
}

int os_is_same(const char *a, const char *b) {
  struct stat first, second;
  return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

double os_milliseconds(void) {
  return (double)native_nanoseconds() * 1e-6;
}

uint64_t os_random_seed(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  /* Processes started within one tick of the clock differ in their number. */
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + ((uint64_t)getpid() << 40);
}

long os_process(void) {
  return (long)getpid();
}

/* Waits for a key on a terminal. Ctrl-C that comes after the caller has looked and before it reads would be lost for as long as nothing is
 * typed: here it is held back until the wait itself lets it in. */
static int wait_for_key(int fd) {
  sigset_t interrupt, before;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  sigprocmask(SIG_BLOCK, &interrupt, &before);
  fd_set keys;
  FD_ZERO(&keys);
  FD_SET(fd, &keys);
  int ready = interrupted ? -1 : pselect(fd + 1, &keys, NULL, NULL, NULL, &before);
  sigprocmask(SIG_SETMASK, &before, NULL);
  if (ready < 0) {
    errno = EINTR;
  }
  return ready > 0;
}

long os_read_line(FILE *file, char **line, size_t *capacity) {
  if (os_is_terminal(file) && !wait_for_key(fileno(file))) {
    return -1;
  }
  return (long)getline(line, capacity, file);
}

#endif
