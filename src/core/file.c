/* SPDX-License-Identifier: BSD-3-Clause
 * A whole file as read-only memory, on POSIX (file_windows.c is for Windows). */
#ifndef _WIN32
#define _FILE_OFFSET_BITS 64 /* a 32-bit build must see the true size of a large file */
#define _POSIX_C_SOURCE 200809L
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#ifndef ML_NO_MMAP
#include <sys/mman.h>
#endif
#include <sys/stat.h>
#include <unistd.h>

#include "aligned.h"

static ml_status too_large(const char *path, uint64_t size, ml_error *err) {
  return ml_fail(err, ML_E_NOMEM, "%s has %llu bytes, more than this process can map or hold in memory", path, (unsigned long long)size);
}

/* Reads the file into memory. */
static ml_status read_all(int fd, const char *path, ml_file *file, ml_error *err) {
  size_t size = (size_t)file->size;
  uint8_t *data = ml_aligned_alloc(size);
  if (data == NULL) {
    return too_large(path, file->size, err);
  }
  for (size_t at = 0; at < size;) {
    ssize_t n = read(fd, data + at, size - at < (1u << 30) ? size - at : 1u << 30);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      ml_status status = n < 0 ? ml_fail(err, ML_E_IO, "cannot read %s: %s", path, strerror(errno))
                               : ml_fail(err, ML_E_IO, "%s ended after %zu of %zu bytes while it was read", path, at, size);
      ml_aligned_free(data);
      return status;
    }
    at += (size_t)n;
  }
  file->data = data;
  return ml_succeed(err);
}

static ml_status open_fd(int fd, const char *path, int use_mmap, ml_file *file, ml_error *err) {
  struct stat info;
  if (fstat(fd, &info) != 0) {
    return ml_fail(err, ML_E_IO, "cannot read the size of %s: %s", path, strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) {
    return ml_fail(err, ML_E_IO, "%s is %s, not a regular file", path, S_ISDIR(info.st_mode) ? "a directory" : "a device, pipe or socket");
  }
  file->size = (uint64_t)info.st_size;
  if (file->size == 0) {
    return ml_succeed(err);
  }
  if (file->size > SIZE_MAX / 2) {
    return too_large(path, file->size, err);
  }
#ifndef ML_NO_MMAP
  if (use_mmap) {
    void *data = mmap(NULL, (size_t)file->size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data != MAP_FAILED) {
      file->data = data;
      file->mapped = 1;
      return ml_succeed(err);
    }
  }
#else
  (void)use_mmap;
#endif
  return read_all(fd, path, file, err);
}

ml_status ml_file_open(const char *path, int use_mmap, ml_file *file, ml_error *err) {
  memset(file, 0, sizeof *file);
  /* A FIFO without a writer would block the open. */
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return ml_fail(err, ML_E_IO, "cannot open %s: %s", path, strerror(errno));
  }
  ml_status status = open_fd(fd, path, use_mmap, file, err);
  close(fd);
  if (status != ML_OK) {
    memset(file, 0, sizeof *file);
  }
  return status;
}

void ml_file_close(ml_file *file) {
#ifndef ML_NO_MMAP
  if (file->mapped) {
    munmap((void *)(uintptr_t)file->data, (size_t)file->size);
  } else
#endif
  {
    ml_aligned_free((void *)(uintptr_t)file->data);
  }
  memset(file, 0, sizeof *file);
}

#endif
