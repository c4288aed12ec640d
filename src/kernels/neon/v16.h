/* SPDX-License-Identifier: BSD-3-Clause
 * Sixteen floats in four NEON registers (vector/float_ops.h says what each function is). */
#ifndef ML_KERNELS_NEON_V16_H
#define ML_KERNELS_NEON_V16_H

#include <arm_neon.h>

#include "../inline.h"
#include "../exp_constants.h"

typedef struct {
  float32x4_t v[4];
} v16;

/* The first n of four floats, the rest +0; n may be below 0 or above 4. */
ML_INLINE float32x4_t load_up_to_4(const float *p, int n) {
  const float32x4_t zero = vdupq_n_f32(0.0f);
  if (n >= 4) {
    return vld1q_f32(p);
  }
  if (n < 2) {
    return n < 1 ? zero : vld1q_lane_f32(p, zero, 0);
  }
  float32x4_t two = vcombine_f32(vld1_f32(p), vdup_n_f32(0.0f));
  return n == 2 ? two : vld1q_lane_f32(p + 2, two, 2);
}

ML_INLINE void store_up_to_4(float *p, float32x4_t v, int n) {
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

ML_INLINE v16 v16_load(const float *p) {
  return (v16){{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}};
}

ML_INLINE void v16_store(float *p, v16 a) {
  vst1q_f32(p, a.v[0]);
  vst1q_f32(p + 4, a.v[1]);
  vst1q_f32(p + 8, a.v[2]);
  vst1q_f32(p + 12, a.v[3]);
}

ML_INLINE v16 v16_load_n(const float *p, int n) {
  return (v16){{load_up_to_4(p, n), load_up_to_4(p + 4, n - 4), load_up_to_4(p + 8, n - 8), load_up_to_4(p + 12, n - 12)}};
}

ML_INLINE void v16_store_n(float *p, v16 a, int n) {
  store_up_to_4(p, a.v[0], n);
  store_up_to_4(p + 4, a.v[1], n - 4);
  store_up_to_4(p + 8, a.v[2], n - 8);
  store_up_to_4(p + 12, a.v[3], n - 12);
}

ML_INLINE v16 v16_set1(float x) {
  float32x4_t v = vdupq_n_f32(x);
  return (v16){{v, v, v, v}};
}

/* The IEEE quotient. ARMv7 NEON has only an estimate, and two Newton steps miss the rounded result in half of all cases: VFP divides. */
ML_INLINE float32x4_t divide(float32x4_t a, float32x4_t b) {
#ifdef __aarch64__
  return vdivq_f32(a, b);
#else
  a = vsetq_lane_f32(vgetq_lane_f32(a, 0) / vgetq_lane_f32(b, 0), a, 0);
  a = vsetq_lane_f32(vgetq_lane_f32(a, 1) / vgetq_lane_f32(b, 1), a, 1);
  a = vsetq_lane_f32(vgetq_lane_f32(a, 2) / vgetq_lane_f32(b, 2), a, 2);
  return vsetq_lane_f32(vgetq_lane_f32(a, 3) / vgetq_lane_f32(b, 3), a, 3);
#endif
}

#define ML_V16_LANEWISE(name, intrinsic)                                                                                        \
  ML_INLINE v16 v16_##name(v16 a, v16 b) {                                                                                      \
    return (v16){{intrinsic(a.v[0], b.v[0]), intrinsic(a.v[1], b.v[1]), intrinsic(a.v[2], b.v[2]), intrinsic(a.v[3], b.v[3])}}; \
  }
ML_V16_LANEWISE(add, vaddq_f32)
ML_V16_LANEWISE(sub, vsubq_f32)
ML_V16_LANEWISE(mul, vmulq_f32)
ML_V16_LANEWISE(div, divide)
ML_V16_LANEWISE(max, vmaxq_f32)
#undef ML_V16_LANEWISE

ML_INLINE v16 v16_neg(v16 a) {
  return (v16){{vnegq_f32(a.v[0]), vnegq_f32(a.v[1]), vnegq_f32(a.v[2]), vnegq_f32(a.v[3])}};
}

ML_INLINE float32x4_t exp_join(float32x4_t x, float32x4_t p, float32x4_t t) {
  float32x4_t e = vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(p), vshlq_n_u32(vreinterpretq_u32_f32(t), 23)));
  e = vbslq_f32(vcgtq_f32(x, vdupq_n_f32(ML_EXP_MAX)), vreinterpretq_f32_u32(vdupq_n_u32(0x7F800000)), e);
  e = vbslq_f32(vcltq_f32(x, vdupq_n_f32(ML_EXP_MIN)), vdupq_n_f32(0.0f), e);
  return vbslq_f32(vceqq_f32(x, x), e, x);
}

ML_INLINE v16 v16_exp_join(v16 x, v16 p, v16 t) {
  return (v16){{exp_join(x.v[0], p.v[0], t.v[0]), exp_join(x.v[1], p.v[1], t.v[1]), exp_join(x.v[2], p.v[2], t.v[2]),
                exp_join(x.v[3], p.v[3], t.v[3])}};
}

/* (0 + 2) + (1 + 3), the last two steps of every fold. */
ML_INLINE float fold4(float32x4_t v) {
  float32x2_t half = vadd_f32(vget_low_f32(v), vget_high_f32(v));
  return vget_lane_f32(vpadd_f32(half, half), 0);
}

ML_INLINE float v16_fold(v16 a) {
  return fold4(vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3])));
}

ML_INLINE float v16_highest(v16 a) {
  float32x4_t v = vmaxq_f32(vmaxq_f32(a.v[0], a.v[1]), vmaxq_f32(a.v[2], a.v[3]));
  float32x2_t half = vmax_f32(vget_low_f32(v), vget_high_f32(v));
  return vget_lane_f32(vpmax_f32(half, half), 0);
}

#endif
