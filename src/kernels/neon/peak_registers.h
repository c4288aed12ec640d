/* SPDX-License-Identifier: BSD-3-Clause
 * Registers of the loops of ml_k_peak_* (vector/peak.h) with NEON. */
#ifndef ML_KERNELS_NEON_PEAK_REGISTERS_H
#define ML_KERNELS_NEON_PEAK_REGISTERS_H

#include "../inline.h"
#include "peak_floats.h"

typedef int32x4_t ints;

ML_INLINE ints ints_set1(int i) {
  return vdupq_n_s32(i);
}

ML_INLINE int ints_any(ints a) {
  return vgetq_lane_s32(a, 0);
}

#endif
