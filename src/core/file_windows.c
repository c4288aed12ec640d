/* SPDX-License-Identifier: BSD-3-Clause
 * A whole file as read-only memory, on Windows (file.c is for POSIX). */
#ifdef _WIN32
#include "file.h"

#include <stdlib.h>
#include <string.h>

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include "aligned.h"
#include "windows_text.h"

static ml_status too_large(const char *path, uint64_t size, ml_error *err) {
  return ml_fail(err, ML_E_NOMEM, "%s has %llu bytes, more than this process can map or hold in memory", path, (unsigned long long)size);
}

/* "cannot open PATH: ..." with what the system says about its last error. */
static ml_status system_failed(const char *what, const char *path, ml_error *err) {
  char message[256];
  ml_windows_message(GetLastError(), message, sizeof message);
  return ml_fail(err, ML_E_IO, "%s %s: %s", what, path, message);
}

/* Reads the file into memory. */
static ml_status read_all(HANDLE handle, const char *path, ml_file *file, ml_error *err) {
  size_t size = (size_t)file->size;
  uint8_t *data = ml_aligned_alloc(size);
  if (data == NULL) {
    return too_large(path, file->size, err);
  }
  for (size_t at = 0; at < size;) {
    DWORD n = 0;
    BOOL ok = ReadFile(handle, data + at, size - at < (1u << 30) ? (DWORD)(size - at) : 1u << 30, &n, NULL);
    if (!ok || n == 0) {
      ml_status status = !ok ? system_failed("cannot read", path, err)
                             : ml_fail(err, ML_E_IO, "%s ended after %zu of %zu bytes while it was read", path, at, size);
      ml_aligned_free(data);
      return status;
    }
    at += n;
  }
  file->data = data;
  return ml_succeed(err);
}

static ml_status open_handle(HANDLE handle, const char *path, int use_mmap, ml_file *file, ml_error *err) {
  BY_HANDLE_FILE_INFORMATION info;
  if (GetFileType(handle) != FILE_TYPE_DISK) {
    return ml_fail(err, ML_E_IO, "%s is a device, pipe or socket, not a regular file", path);
  }
  if (!GetFileInformationByHandle(handle, &info)) {
    return system_failed("cannot read the size of", path, err);
  }
  if ((info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0) {
    return ml_fail(err, ML_E_IO, "%s is a directory, not a regular file", path);
  }
  file->size = (uint64_t)info.nFileSizeHigh << 32 | info.nFileSizeLow;
  if (file->size == 0) {
    return ml_succeed(err);
  }
  if (file->size > SIZE_MAX / 2) {
    return too_large(path, file->size, err);
  }
#ifndef ML_NO_MMAP
  if (use_mmap) {
    HANDLE mapping = CreateFileMappingW(handle, NULL, PAGE_READONLY, 0, 0, NULL);
    if (mapping != NULL) {
      file->data = MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, 0);
      CloseHandle(mapping); /* the view keeps it alive */
      if (file->data != NULL) {
        file->mapped = 1;
        return ml_succeed(err);
      }
    }
  }
#else
  (void)use_mmap;
#endif
  return read_all(handle, path, file, err);
}

ml_status ml_file_open(const char *path, int use_mmap, ml_file *file, ml_error *err) {
  memset(file, 0, sizeof *file);
  wchar_t *wide = ml_windows_path(path);
  if (wide == NULL) {
    return ml_fail(err, ML_E_NOMEM, "no memory for the name of a file");
  }
  /* With FILE_FLAG_BACKUP_SEMANTICS a directory can be opened too, and named as what it is. */
  HANDLE handle = CreateFileW(wide, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, OPEN_EXISTING,
                              FILE_FLAG_BACKUP_SEMANTICS, NULL);
  DWORD error = GetLastError();
  free(wide);
  if (handle == INVALID_HANDLE_VALUE) {
    SetLastError(error);
    return system_failed("cannot open", path, err);
  }
  ml_status status = open_handle(handle, path, use_mmap, file, err);
  CloseHandle(handle);
  if (status != ML_OK) {
    memset(file, 0, sizeof *file);
  }
  return status;
}

void ml_file_close(ml_file *file) {
#ifndef ML_NO_MMAP
  if (file->mapped) {
    UnmapViewOfFile(file->data);
  } else
#endif
  {
    ml_aligned_free((void *)(uintptr_t)file->data);
  }
  memset(file, 0, sizeof *file);
}

#endif
