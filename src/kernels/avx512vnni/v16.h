/* SPDX-License-Identifier: BSD-3-Clause
 * Sixteen floats in one AVX-512 register (vector/float_ops.h says what each function is). */
#ifndef ML_KERNELS_AVX512VNNI_V16_H
#define ML_KERNELS_AVX512VNNI_V16_H

#include <stdint.h>

#include "../inline.h"
#include "../avx2/fold8.h"
#include "../exp_constants.h"
#include "../sse2/fold4.h"

#define MIX_REGISTERS 4

typedef __m128 v4;
typedef __m512 v16;

/* Ones in the first n of sixteen lanes, 0 <= n <= 16. */
ML_INLINE __mmask16 first_of_16(int n) {
  return (__mmask16)((1u << n) - 1);
}

ML_INLINE v16 v16_load(const float *p) {
  return _mm512_loadu_ps(p);
}

ML_INLINE void v16_store(float *p, v16 a) {
  _mm512_storeu_ps(p, a);
}

ML_INLINE v16 v16_load_n(const float *p, int n) {
  return _mm512_maskz_loadu_ps(first_of_16(n), p);
}

ML_INLINE void v16_store_n(float *p, v16 a, int n) {
  _mm512_mask_storeu_ps(p, first_of_16(n), a);
}

ML_INLINE v16 v16_set1(float x) {
  return _mm512_set1_ps(x);
}

#define ML_V16_LANEWISE(name, intrinsic)   \
  ML_INLINE v16 v16_##name(v16 a, v16 b) { \
    return intrinsic(a, b);                \
  }
ML_V16_LANEWISE(add, _mm512_add_ps)
ML_V16_LANEWISE(sub, _mm512_sub_ps)
ML_V16_LANEWISE(mul, _mm512_mul_ps)
ML_V16_LANEWISE(div, _mm512_div_ps)
ML_V16_LANEWISE(max, _mm512_max_ps)
#undef ML_V16_LANEWISE

ML_INLINE v16 v16_neg(v16 a) {
  return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a), _mm512_set1_epi32(INT32_MIN)));
}

ML_INLINE v16 v16_exp_join(v16 x, v16 p, v16 t) {
  __m512 infinity = _mm512_castsi512_ps(_mm512_set1_epi32(0x7F800000));
  __m512 e = _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(t), 23)));
  e = _mm512_mask_mov_ps(e, _mm512_cmp_ps_mask(x, _mm512_set1_ps(ML_EXP_MAX), _CMP_GT_OQ), infinity);
  e = _mm512_mask_mov_ps(e, _mm512_cmp_ps_mask(x, _mm512_set1_ps(ML_EXP_MIN), _CMP_LT_OQ), _mm512_setzero_ps());
  return _mm512_mask_mov_ps(e, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), x);
}

ML_INLINE __m256 upper_half(__m512 a) {
  return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1));
}

ML_INLINE v4 v16_quarter(v16 a) {
  __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a), upper_half(a));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

ML_INLINE float v16_fold(v16 a) {
  return fold8(_mm256_add_ps(_mm512_castps512_ps256(a), upper_half(a)));
}

ML_INLINE float v16_highest(v16 a) {
  __m256 both = _mm256_max_ps(_mm512_castps512_ps256(a), upper_half(a));
  __m128 v = _mm_max_ps(_mm256_castps256_ps128(both), _mm256_extractf128_ps(both, 1));
  v = _mm_max_ps(v, _mm_movehl_ps(v, v));
  return _mm_cvtss_f32(_mm_max_ss(v, _mm_shuffle_ps(v, v, 1)));
}

#endif
