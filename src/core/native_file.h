/* SPDX-License-Identifier: BSD-3-Clause
 * What file.c needs from the system: an open regular file that can be mapped and read. POSIX, or Windows' own. Whatever fails says why. */
#ifndef ML_CORE_NATIVE_FILE_H
#define ML_CORE_NATIVE_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

enum { NATIVE_READ_AT_MOST = 1 << 30 }; /* bytes of one call */

#ifdef _WIN32

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include "windows_text.h"

typedef HANDLE native_file;

/* "cannot open PATH: ..." with what the system says about its last error. */
static inline ml_status native_failed(const char *what, const char *path, ml_error *err) {
  char message[256];
  ml_windows_message(GetLastError(), message, sizeof message);
  return ml_fail(err, ML_E_IO, "%s %s: %s", what, path, message);
}

static inline ml_status native_open(const char *path, native_file *file, ml_error *err) {
  wchar_t *wide = ml_windows_path(path);
  *file = INVALID_HANDLE_VALUE;
  if (wide == NULL) {
    return ml_fail(err, ML_E_NOMEM, "no memory for the name of a file");
  }
  /* With FILE_FLAG_BACKUP_SEMANTICS a directory can be opened too, and named as what it is. */
  *file = CreateFileW(wide, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, OPEN_EXISTING,
                      FILE_FLAG_BACKUP_SEMANTICS, NULL);
  DWORD error = GetLastError();
  free(wide);
  SetLastError(error);
  return *file != INVALID_HANDLE_VALUE ? ml_succeed(err) : native_failed("cannot open", path, err);
}

static inline ml_status native_size(native_file file, const char *path, uint64_t *size, ml_error *err) {
  BY_HANDLE_FILE_INFORMATION info;
  if (GetFileType(file) != FILE_TYPE_DISK) {
    return ml_fail(err, ML_E_IO, "%s is a device, pipe or socket, not a regular file", path);
  }
  if (!GetFileInformationByHandle(file, &info)) {
    return native_failed("cannot read the size of", path, err);
  }
  if ((info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0) {
    return ml_fail(err, ML_E_IO, "%s is a directory, not a regular file", path);
  }
  *size = (uint64_t)info.nFileSizeHigh << 32 | info.nFileSizeLow;
  return ml_succeed(err);
}

/* The bytes read, at most size; 0 at the end of the file, -1: failed. */
static inline long native_read(native_file file, void *data, size_t size) {
  DWORD n = 0;
  return ReadFile(file, data, size < NATIVE_READ_AT_MOST ? (DWORD)size : NATIVE_READ_AT_MOST, &n, NULL) ? (long)n : -1;
}

static inline void native_close(native_file file) {
  CloseHandle(file);
}

#else

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int native_file;

static inline ml_status native_failed(const char *what, const char *path, ml_error *err) {
  return ml_fail(err, ML_E_IO, "%s %s: %s", what, path, strerror(errno));
}

static inline ml_status native_open(const char *path, native_file *file, ml_error *err) {
  /* A FIFO without a writer would block the open. */
  *file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  return *file >= 0 ? ml_succeed(err) : native_failed("cannot open", path, err);
}

static inline ml_status native_size(native_file file, const char *path, uint64_t *size, ml_error *err) {
  struct stat info;
  if (fstat(file, &info) != 0) {
    return native_failed("cannot read the size of", path, err);
  }
  if (!S_ISREG(info.st_mode)) {
    return ml_fail(err, ML_E_IO, "%s is %s, not a regular file", path, S_ISDIR(info.st_mode) ? "a directory" : "a device, pipe or socket");
  }
  *size = (uint64_t)info.st_size;
  return ml_succeed(err);
}

static inline long native_read(native_file file, void *data, size_t size) {
  ssize_t n;
  do {
    n = read(file, data, size < NATIVE_READ_AT_MOST ? size : NATIVE_READ_AT_MOST);
  } while (n < 0 && errno == EINTR);
  return (long)n;
}

static inline void native_close(native_file file) {
  close(file);
}

#endif

/* native_map: the whole file as read-only memory that outlives it, or NULL: it cannot be mapped. */
#if defined(ML_NO_MMAP)

static inline void *native_map(native_file file, size_t size) {
  (void)file;
  (void)size;
  return NULL;
}

static inline void native_unmap(void *data, size_t size) {
  (void)data;
  (void)size;
}

#elif defined(_WIN32)

static inline void *native_map(native_file file, size_t size) {
  (void)size;
  HANDLE mapping = CreateFileMappingW(file, NULL, PAGE_READONLY, 0, 0, NULL);
  void *data = mapping != NULL ? MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, 0) : NULL;
  if (mapping != NULL) {
    CloseHandle(mapping); /* the view keeps it alive */
  }
  return data;
}

static inline void native_unmap(void *data, size_t size) {
  (void)size;
  UnmapViewOfFile(data);
}

#else

#include <sys/mman.h>

static inline void *native_map(native_file file, size_t size) {
  void *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
  return data != MAP_FAILED ? data : NULL;
}

static inline void native_unmap(void *data, size_t size) {
  munmap(data, size);
}

#endif

#endif
