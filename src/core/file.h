/* SPDX-License-Identifier: BSD-3-Clause
 * A whole file as read-only memory: mapped where the system can, else read. */
#ifndef ML_CORE_FILE_H
#define ML_CORE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

typedef struct ml_file {
  const uint8_t *data; /* aligned to ML_ALIGN at least; NULL for an empty file */
  uint64_t size;       /* bytes */
  int mapped;          /* how to give it back */
} ml_file;

/* use_mmap 0 reads into memory; so does a build with ML_NO_MMAP, and a file that cannot be mapped. Errors: ML_E_IO (cannot be opened, not a
 * regular file, read error), ML_E_NOMEM (does not fit the address space or memory). On an error *file is empty. */
ml_status ml_file_open(const char *path, int use_mmap, ml_file *file, ml_error *err);
void ml_file_close(ml_file *file);

#endif
