/* SPDX-License-Identifier: BSD-3-Clause
 * A whole file as read-only memory. */
#define _FILE_OFFSET_BITS 64 /* a 32-bit build must see the true size of a large file */
#define _POSIX_C_SOURCE 200809L
#include "file.h"

#include <string.h>

#include "aligned.h"
#include "native_file.h"

static ml_status too_large(const char *path, uint64_t size, ml_error *err) {
  return ml_fail(err, ML_E_NOMEM, "%s has %llu bytes, more than this process can map or hold in memory", path, (unsigned long long)size);
}

/* Reads the file into memory. */
static ml_status read_all(native_file native, const char *path, ml_file *file, ml_error *err) {
  size_t size = (size_t)file->size;
  uint8_t *data = ml_aligned_alloc(size);
  if (data == NULL) {
    return too_large(path, file->size, err);
  }
  for (size_t at = 0; at < size;) {
    long n = native_read(native, data + at, size - at);
    if (n <= 0) {
      ml_status status = n < 0 ? native_failed("cannot read", path, err)
                               : ml_fail(err, ML_E_IO, "%s ended after %zu of %zu bytes while it was read", path, at, size);
      ml_aligned_free(data);
      return status;
    }
    at += (size_t)n;
  }
  file->data = data;
  return ml_succeed(err);
}

static ml_status load(native_file native, const char *path, int use_mmap, ml_file *file, ml_error *err) {
  ml_status status = native_size(native, path, &file->size, err);
  if (status != ML_OK || file->size == 0) {
    return status;
  }
  if (file->size > SIZE_MAX / 2) {
    return too_large(path, file->size, err);
  }
  if (use_mmap) {
    file->data = native_map(native, (size_t)file->size);
    file->mapped = file->data != NULL;
  }
  return file->mapped ? ml_succeed(err) : read_all(native, path, file, err);
}

ml_status ml_file_open(const char *path, int use_mmap, ml_file *file, ml_error *err) {
  native_file native;
  memset(file, 0, sizeof *file);
  ml_status status = native_open(path, &native, err);
  if (status != ML_OK) {
    return status;
  }
  status = load(native, path, use_mmap, file, err);
  native_close(native);
  if (status != ML_OK) {
    memset(file, 0, sizeof *file);
  }
  return status;
}

void ml_file_close(ml_file *file) {
  void *data = (void *)(uintptr_t)file->data;
  if (file->mapped) {
    native_unmap(data, (size_t)file->size);
  } else {
    ml_aligned_free(data);
  }
  memset(file, 0, sizeof *file);
}
