/* SPDX-License-Identifier: BSD-3-Clause
 * Sixteen floats in two AVX registers (vector/float_ops.h says what each function is). */
#ifndef ML_KERNELS_AVX2_V16_H
#define ML_KERNELS_AVX2_V16_H

#include "../inline.h"
#include "../exp_constants.h"
#include "../sse2/fold4.h"
#include "fold8.h"

#define MIX_REGISTERS 4

typedef __m128 v4;

typedef struct {
  __m256 v[2];
} v16;

ML_INLINE v16 v16_load(const float *p) {
  return (v16){{_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}};
}

ML_INLINE void v16_store(float *p, v16 a) {
  _mm256_storeu_ps(p, a.v[0]);
  _mm256_storeu_ps(p + 8, a.v[1]);
}

ML_INLINE v16 v16_load_n(const float *p, int n) {
  return (v16){{_mm256_maskload_ps(p, first_lanes(n)), _mm256_maskload_ps(p + 8, first_lanes(n - 8))}};
}

ML_INLINE void v16_store_n(float *p, v16 a, int n) {
  _mm256_maskstore_ps(p, first_lanes(n), a.v[0]);
  _mm256_maskstore_ps(p + 8, first_lanes(n - 8), a.v[1]);
}

ML_INLINE v16 v16_set1(float x) {
  return (v16){{_mm256_set1_ps(x), _mm256_set1_ps(x)}};
}

#define ML_V16_LANEWISE(name, intrinsic)                                  \
  ML_INLINE v16 v16_##name(v16 a, v16 b) {                                \
    return (v16){{intrinsic(a.v[0], b.v[0]), intrinsic(a.v[1], b.v[1])}}; \
  }
ML_V16_LANEWISE(add, _mm256_add_ps)
ML_V16_LANEWISE(sub, _mm256_sub_ps)
ML_V16_LANEWISE(mul, _mm256_mul_ps)
ML_V16_LANEWISE(div, _mm256_div_ps)
ML_V16_LANEWISE(max, _mm256_max_ps)
ML_V16_LANEWISE(flip, _mm256_xor_ps)
#undef ML_V16_LANEWISE

ML_INLINE v16 v16_neg(v16 a) {
  return v16_flip(a, v16_set1(-0.0f));
}

ML_INLINE __m256 exp_join(__m256 x, __m256 p, __m256 t) {
  __m256 e = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(t), 23)));
  __m256 infinity = _mm256_castsi256_ps(_mm256_set1_epi32(0x7F800000));
  e = _mm256_blendv_ps(e, infinity, _mm256_cmp_ps(x, _mm256_set1_ps(ML_EXP_MAX), _CMP_GT_OQ));
  e = _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(ML_EXP_MIN), _CMP_LT_OQ), e);
  return _mm256_blendv_ps(e, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

ML_INLINE v16 v16_exp_join(v16 x, v16 p, v16 t) {
  return (v16){{exp_join(x.v[0], p.v[0], t.v[0]), exp_join(x.v[1], p.v[1], t.v[1])}};
}

ML_INLINE v4 v16_quarter(v16 a) {
  __m256 half = _mm256_add_ps(a.v[0], a.v[1]);
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

ML_INLINE float v16_fold(v16 a) {
  return fold8(_mm256_add_ps(a.v[0], a.v[1]));
}

ML_INLINE float v16_highest(v16 a) {
  __m256 both = _mm256_max_ps(a.v[0], a.v[1]);
  __m128 v = _mm_max_ps(_mm256_castps256_ps128(both), _mm256_extractf128_ps(both, 1));
  v = _mm_max_ps(v, _mm_movehl_ps(v, v));
  return _mm_cvtss_f32(_mm_max_ss(v, _mm_shuffle_ps(v, v, 1)));
}

#endif
