/* SPDX-License-Identifier: BSD-3-Clause
 * Memory aligned to ML_ALIGN. */
#ifndef ML_CORE_ALIGNED_H
#define ML_CORE_ALIGNED_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#ifdef _WIN32
#include <malloc.h>
#endif

#include "quant.h"

/* At least one byte, so that NULL always means that there is no memory. Given back with ml_aligned_free, not with free. */
static inline void *ml_aligned_alloc(size_t size) {
  size_t rounded = size > 0 ? (size + (ML_ALIGN - 1)) / ML_ALIGN * ML_ALIGN : ML_ALIGN;
  if (rounded < size) {
    return NULL;
  }
#ifdef _WIN32
  return _aligned_malloc(rounded, ML_ALIGN);
#else
  return aligned_alloc(ML_ALIGN, rounded);
#endif
}

static inline void ml_aligned_free(void *memory) {
#ifdef _WIN32
  _aligned_free(memory);
#else
  free(memory);
#endif
}

#endif
