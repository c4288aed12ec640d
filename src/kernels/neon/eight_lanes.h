/* SPDX-License-Identifier: BSD-3-Clause
 * The eight lanes of a matrix-vector sum in two NEON registers. */
#ifndef ML_KERNELS_NEON_EIGHT_LANES_H
#define ML_KERNELS_NEON_EIGHT_LANES_H

#include "../inline.h"
#include "v16.h"

#define STEP 8

/* ARMv7 has sixteen registers: two rows, or eight blocks whose loads the compiler takes together, go through the stack. */
#ifdef __aarch64__
#define ROWS 2
#define FOUR_BLOCKS_ARE_DONE() (void)0
#else
#define ROWS 1
#define FOUR_BLOCKS_ARE_DONE() __asm__ volatile("" : : : "memory")
#endif

/* Lanes 0 to 3, lanes 4 to 7. */
typedef struct {
  float32x4_t low, high;
} v8;

ML_INLINE v8 v8_zero(void) {
  return (v8){vdupq_n_f32(0.0f), vdupq_n_f32(0.0f)};
}

ML_INLINE float v8_fold(v8 a) {
  return fold4(vaddq_f32(a.low, a.high));
}

/* sum + (float)dots * (dw * dx) of n blocks, 0 < n <= 4; dots beyond them are 0. */
ML_INLINE float32x4_t add_four(float32x4_t sum, int32x4_t dots, const float *dw, const float *dx, int n) {
  float32x4_t scale = vmulq_f32(load_up_to_4(dw, n), load_up_to_4(dx, n));
  return vaddq_f32(sum, vmulq_f32(vcvtq_f32_s32(dots), scale));
}

#endif
