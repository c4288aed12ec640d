/* SPDX-License-Identifier: BSD-3-Clause
 * The loops of ml_k_peak_* (vector/peak.h): SDOT. */
#include <arm_neon.h>

#include "../inline.h"

typedef int32x4_t ints;
typedef float32x4_t floats;

#define BYTE_MADDS 16
#define FLOAT_MADDS 4

ML_INLINE ints ints_set1(int i) {
  return vdupq_n_s32(i);
}

ML_INLINE int ints_any(ints a) {
  return vgetq_lane_s32(a, 0);
}

ML_INLINE ints step_q8(ints a, ints next, ints b, ints *sum) {
  (void)sum;
  return vdotq_s32(a, vreinterpretq_s8_s32(next), vreinterpretq_s8_s32(b));
}

ML_INLINE ints step_q4(ints a, ints next, ints b, ints *sum) {
  return step_q8(a, next, b, sum);
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
