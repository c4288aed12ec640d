/* SPDX-License-Identifier: BSD-3-Clause
 * The eight lanes of a matrix-vector sum in two NEON registers, and how many rows and blocks go into the others. */
#ifndef ML_KERNELS_NEON_EIGHT_LANES_H
#define ML_KERNELS_NEON_EIGHT_LANES_H

#include "v16.h"

/* ARMv7 has sixteen registers: two rows, or eight blocks whose loads the compiler takes together, go through the stack. */
#ifdef __aarch64__
#define STREAMS 2
#define FOUR_BLOCKS_ARE_DONE() (void)0
#else
#define STREAMS 1
#define FOUR_BLOCKS_ARE_DONE() __asm__ volatile("" : : : "memory")
#endif

typedef int32x4_t i4;

ML_INLINE v4 v4_from_int(i4 v) {
  return vcvtq_f32_s32(v);
}

#include "../vector/v8_of_4.h"

#endif
