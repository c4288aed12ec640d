/* SPDX-License-Identifier: BSD-3-Clause
 * Software prefetch of the weight stream. */
#ifndef ML_KERNELS_PREFETCH_H
#define ML_KERNELS_PREFETCH_H

#include <stdint.h>

/* Weights come from memory once per token, as one stream: the hardware alone leaves a third of the bandwidth unused. Bytes ahead of the
 * block in work; a prefetch beyond the end of a tensor does nothing. */
#define ML_PREFETCH_AHEAD 12288

/* `bytes` from p + ML_PREFETCH_AHEAD on; the address is formed as an integer because it may lie outside the array. */
static inline void ml_prefetch_ahead(const void *p, int bytes) {
#if defined(__GNUC__)
  for (int i = 0; i < bytes; i += 64) {
    __builtin_prefetch((const void *)((uintptr_t)p + ML_PREFETCH_AHEAD + (uintptr_t)i));
  }
#else
  (void)p;
  (void)bytes;
#endif
}

#endif
