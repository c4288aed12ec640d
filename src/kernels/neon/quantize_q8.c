/* SPDX-License-Identifier: BSD-3-Clause
 * Activations to Q8_0. */
#include <arm_neon.h>

#include "../inline.h"
#include "neon.h"

/* The largest bit pattern of 32 floats without their signs. */
ML_INLINE uint32_t highest_bits(const float *x) {
  const uint32x4_t no_sign = vdupq_n_u32(0x7FFFFFFF);
  uint32x4_t top = vdupq_n_u32(0);
  for (int i = 0; i < ML_QK; i += 4) {
    top = vmaxq_u32(top, vandq_u32(no_sign, vreinterpretq_u32_f32(vld1q_f32(x + i))));
  }
  uint32x2_t half = vmax_u32(vget_low_u32(top), vget_high_u32(top));
  return vget_lane_u32(vpmax_u32(half, half), 0);
}

/* trunc(x * inverse + copysign(0.5, x)) of four */
ML_INLINE int16x4_t round4(const float *p, float32x4_t inverse) {
  float32x4_t x = vld1q_f32(p);
  float32x4_t half = vbslq_f32(vdupq_n_u32(0x80000000), x, vdupq_n_f32(0.5f));
  return vmovn_s32(vcvtq_s32_f32(vaddq_f32(vmulq_f32(x, inverse), half)));
}

ML_INLINE int32_t quantize_block(int8_t *q, const float *x, float inverse) {
  float32x4_t factor = vdupq_n_f32(inverse);
  int16x8_t sums = vdupq_n_s16(0);
  for (int i = 0; i < ML_QK; i += 8) {
    int16x8_t rounded = vcombine_s16(round4(x + i, factor), round4(x + i + 4, factor));
    sums = vaddq_s16(sums, rounded);
    vst1_s8(q + i, vmovn_s16(rounded));
  }
  int32x4_t pairs = vpaddlq_s16(sums);
  int32x2_t half = vadd_s32(vget_low_s32(pairs), vget_high_s32(pairs));
  return vget_lane_s32(vpadd_s32(half, half), 0);
}

#include "../vector/quantize_q8.h"

void ml_k_quantize_q8_neon(ml_qact *out, const float *x, int k) {
  vector_quantize_q8(out, x, k);
}
