/* SPDX-License-Identifier: BSD-3-Clause
 * Four floats in a NEON register, and sixteen in four of them (vector/v16_of_4.h says what each function is). */
#ifndef ML_KERNELS_NEON_V16_H
#define ML_KERNELS_NEON_V16_H

#include <arm_neon.h>

#include "../exp_constants.h"
#include "../inline.h"

typedef float32x4_t v4;

ML_INLINE v4 v4_load(const float *p) {
  return vld1q_f32(p);
}

ML_INLINE void v4_store(float *p, v4 v) {
  vst1q_f32(p, v);
}

ML_INLINE v4 v4_load_n(const float *p, int n) {
  const v4 zero = vdupq_n_f32(0.0f);
  if (n >= 4) {
    return vld1q_f32(p);
  }
  if (n < 2) {
    return n < 1 ? zero : vld1q_lane_f32(p, zero, 0);
  }
  v4 two = vcombine_f32(vld1_f32(p), vdup_n_f32(0.0f));
  return n == 2 ? two : vld1q_lane_f32(p + 2, two, 2);
}

ML_INLINE void v4_store_n(float *p, v4 v, int n) {
  if (n >= 4) {
    vst1q_f32(p, v);
    return;
  }
  if (n >= 2) {
    vst1_f32(p, vget_low_f32(v));
  } else if (n == 1) {
    vst1q_lane_f32(p, v, 0);
  }
  if (n == 3) {
    vst1q_lane_f32(p + 2, v, 2);
  }
}

ML_INLINE v4 v4_set1(float x) {
  return vdupq_n_f32(x);
}

/* The IEEE quotient. ARMv7 NEON has only an estimate, and two Newton steps miss the rounded result in half of all cases: VFP divides. */
ML_INLINE v4 v4_div(v4 a, v4 b) {
#ifdef __aarch64__
  return vdivq_f32(a, b);
#else
  a = vsetq_lane_f32(vgetq_lane_f32(a, 0) / vgetq_lane_f32(b, 0), a, 0);
  a = vsetq_lane_f32(vgetq_lane_f32(a, 1) / vgetq_lane_f32(b, 1), a, 1);
  a = vsetq_lane_f32(vgetq_lane_f32(a, 2) / vgetq_lane_f32(b, 2), a, 2);
  return vsetq_lane_f32(vgetq_lane_f32(a, 3) / vgetq_lane_f32(b, 3), a, 3);
#endif
}

#define ML_V4_LANEWISE(name, intrinsic) \
  ML_INLINE v4 v4_##name(v4 a, v4 b) {  \
    return intrinsic(a, b);             \
  }
ML_V4_LANEWISE(add, vaddq_f32)
ML_V4_LANEWISE(sub, vsubq_f32)
ML_V4_LANEWISE(mul, vmulq_f32)
ML_V4_LANEWISE(max, vmaxq_f32)
#undef ML_V4_LANEWISE

ML_INLINE v4 v4_neg(v4 a) {
  return vnegq_f32(a);
}

ML_INLINE v4 v4_exp_join(v4 x, v4 p, v4 t) {
  v4 e = vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(p), vshlq_n_u32(vreinterpretq_u32_f32(t), 23)));
  e = vbslq_f32(vcgtq_f32(x, vdupq_n_f32(ML_EXP_MAX)), vreinterpretq_f32_u32(vdupq_n_u32(0x7F800000)), e);
  e = vbslq_f32(vcltq_f32(x, vdupq_n_f32(ML_EXP_MIN)), vdupq_n_f32(0.0f), e);
  return vbslq_f32(vceqq_f32(x, x), e, x);
}

ML_INLINE float v4_fold(v4 v) {
  float32x2_t half = vadd_f32(vget_low_f32(v), vget_high_f32(v));
  return vget_lane_f32(vpadd_f32(half, half), 0);
}

ML_INLINE void v4_fold4(float *y, v4 a, v4 b, v4 c, v4 d, float factor) {
  float32x2_t ab = vpadd_f32(vadd_f32(vget_low_f32(a), vget_high_f32(a)), vadd_f32(vget_low_f32(b), vget_high_f32(b)));
  float32x2_t cd = vpadd_f32(vadd_f32(vget_low_f32(c), vget_high_f32(c)), vadd_f32(vget_low_f32(d), vget_high_f32(d)));
  vst1q_f32(y, vmulq_n_f32(vcombine_f32(ab, cd), factor));
}

ML_INLINE float v4_highest(v4 v) {
  float32x2_t half = vmax_f32(vget_low_f32(v), vget_high_f32(v));
  return vget_lane_f32(vpmax_f32(half, half), 0);
}

#include "../vector/v16_of_4.h"

#endif
