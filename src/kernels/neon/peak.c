/* SPDX-License-Identifier: BSD-3-Clause
 * The loops of ml_k_peak_* (vector/peak.h). Two products of bytes fit int16, all 32 of four bits and bytes in a block do. */
#include <arm_neon.h>

#include "../inline.h"

typedef int32x4_t ints;
typedef float32x4_t floats;

#define BYTE_MADDS 16
#define FLOAT_MADDS 4

#ifdef __aarch64__
#define MLAL_HIGH vmlal_high_s8
#else
#define MLAL_HIGH(sum, x, y) vmlal_s8(sum, vget_high_s8(x), vget_high_s8(y))
#endif

ML_INLINE ints ints_set1(int i) {
  return vdupq_n_s32(i);
}

ML_INLINE int ints_any(ints a) {
  return vgetq_lane_s32(a, 0);
}

ML_INLINE ints step_q8(ints a, ints next, ints b, ints *sum) {
  (void)sum;
  int8x16_t x = vreinterpretq_s8_s32(next), y = vreinterpretq_s8_s32(b);
  return vpadalq_s16(a, MLAL_HIGH(vmull_s8(vget_low_s8(x), vget_low_s8(y)), x, y));
}

ML_INLINE ints step_q4(ints a, ints next, ints b, ints *sum) {
  (void)sum;
  int8x16_t x = vreinterpretq_s8_s32(next), y = vreinterpretq_s8_s32(b);
  return vreinterpretq_s32_s16(MLAL_HIGH(vmlal_s8(vreinterpretq_s16_s32(a), vget_low_s8(x), vget_low_s8(y)), x, y));
}

ML_INLINE floats floats_set1(float f) {
  return vdupq_n_f32(f);
}

ML_INLINE float floats_any(floats a) {
  return vgetq_lane_f32(a, 0);
}

ML_INLINE floats step_f32(floats a, floats b) {
  return vaddq_f32(vmulq_f32(a, b), b);
}

#include "../vector/peak.h"
