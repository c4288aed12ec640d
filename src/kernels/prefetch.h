/* SPDX-License-Identifier: BSD-3-Clause
 * Software prefetch of the weight stream. */
#ifndef ML_KERNELS_PREFETCH_H
#define ML_KERNELS_PREFETCH_H

#include <stdint.h>

#include "inline.h"

/* Weights come from memory once per token, as one stream: the hardware alone leaves a tenth of the bandwidth unused. The distance in bytes
 * reaches far enough to cover the latency and stays in the first-level cache until it is used. */
#define ML_PREFETCH_AHEAD 6144

/* The `bytes` that lie ML_PREFETCH_AHEAD behind p, marked as used once so that they do not push activations and keys out of the caches.
 * Beyond the end of a tensor it does nothing; the address is formed as an integer because it may lie outside the array. The scales are an
 * eighth of the traffic and left to the hardware. */
ML_INLINE void ml_prefetch_ahead(const void *p, int bytes) {
#if defined(__GNUC__)
#pragma GCC unroll 16
  for (int i = 0; i < bytes; i += 64) {
    __builtin_prefetch((const void *)((uintptr_t)p + ML_PREFETCH_AHEAD + (uintptr_t)i), 0, 0);
  }
#else
  (void)p;
  (void)bytes;
#endif
}

#endif
