/* SPDX-License-Identifier: BSD-3-Clause
 * Activations to Q8_0. */
#include <arm_sve.h>

#include "../inline.h"
#include "sve.h"

/* The largest bit pattern of 32 floats without their signs. */
ML_INLINE uint32_t highest_bits(const float *x) {
  svuint32_t top = svdup_u32(0);
  for (int i = 0; i < ML_QK; i += (int)svcntw()) {
    svbool_t which = svwhilelt_b32(i, ML_QK);
    top = svmax_m(which, top, svand_x(which, svreinterpret_u32(svld1(which, x + i)), 0x7FFFFFFF));
  }
  return svmaxv(svptrue_b32(), top);
}

ML_INLINE int32_t quantize_block(int8_t *q, const float *x, float inverse) {
  svint32_t sums = svdup_s32(0);
  for (int i = 0; i < ML_QK; i += (int)svcntw()) {
    svbool_t which = svwhilelt_b32(i, ML_QK);
    svfloat32_t v = svld1(which, x + i);
    svuint32_t sign = svand_x(which, svreinterpret_u32(v), 0x80000000);
    svfloat32_t half = svreinterpret_f32(svorr_x(which, sign, svreinterpret_u32(svdup_f32(0.5f))));
    svint32_t rounded = svcvt_s32_x(which, svadd_x(which, svmul_x(which, v, inverse), half));
    sums = svadd_m(which, sums, rounded);
    svst1b(which, q + i, rounded);
  }
  return (int32_t)svaddv(svptrue_b32(), sums);
}

#include "../vector/quantize_q8.h"

void ml_k_quantize_q8_sve(ml_qact *out, const float *x, int k) {
  vector_quantize_q8(out, x, k);
}
