/* SPDX-License-Identifier: BSD-3-Clause
 * Registers of the loop of ml_k_peak_f32 (vector/peak.h), which sve takes too. */
#ifndef ML_KERNELS_NEON_PEAK_FLOATS_H
#define ML_KERNELS_NEON_PEAK_FLOATS_H

#include <arm_neon.h>

#include "../inline.h"

typedef float32x4_t floats;

#define FLOAT_MADDS 4

ML_INLINE floats floats_set1(float f) {
  return vdupq_n_f32(f);
}

ML_INLINE float floats_any(floats a) {
  return vgetq_lane_f32(a, 0);
}

ML_INLINE floats step_f32(floats a, floats b) {
  return vaddq_f32(vmulq_f32(a, b), b);
}

#endif
