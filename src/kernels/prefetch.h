/* SPDX-License-Identifier: BSD-3-Clause
 * Software prefetch of the weight stream. */
#ifndef ML_KERNELS_PREFETCH_H
#define ML_KERNELS_PREFETCH_H

#include <stddef.h>
#include <stdint.h>

#include "inline.h"

/* Weights come from memory once per token, as a few streams, which the hardware reads ahead but not across the end of a page. Little more than the
 * next step of each stream is enough to keep it going, and further ahead is worse than nothing: on Zen 4 a Q8_0 product from memory ran at 0.78 of a
 * loop that only reads with 512 bytes, at 0.92 with 192 and without any. */
#define ML_PREFETCH_AHEAD 192

/* The `bytes` that lie ML_PREFETCH_AHEAD behind p. Beyond the end of a tensor it does nothing; the address is formed as an integer because it may lie
 * outside the array. The scales are an eighth of the traffic and left to the hardware. */
ML_INLINE void ml_prefetch_ahead(const void *p, int bytes) {
#if defined(__GNUC__)
  ML_UNROLL for (int i = 0; i < bytes; i += 64) {
    __builtin_prefetch((const void *)((uintptr_t)p + ML_PREFETCH_AHEAD + (uintptr_t)i), 0, 3);
  }
#else
  (void)p;
  (void)bytes;
#endif
}

/* Bytes begin to end - 1 behind p, which may lie beyond the array, to where they are far from the multiplication but no longer in memory. */
ML_INLINE void ml_prefetch(const void *p, size_t begin, size_t end) {
#if defined(__GNUC__)
  for (size_t i = begin; i < end; i += 64) {
    __builtin_prefetch((const void *)((uintptr_t)p + i), 0, 2);
  }
#else
  (void)p;
  (void)begin;
  (void)end;
#endif
}

#endif
