/* SPDX-License-Identifier: BSD-3-Clause
 * Four floats in an SSE register, and sixteen in four of them (vector/v16_of_4.h says what each function is). */
#ifndef ML_KERNELS_SSE2_V16_H
#define ML_KERNELS_SSE2_V16_H

#include <emmintrin.h>

#include "../exp_constants.h"
#include "../inline.h"
#include "fold4.h"

typedef __m128 v4;

ML_INLINE v4 v4_load(const float *p) {
  return _mm_loadu_ps(p);
}

ML_INLINE void v4_store(float *p, v4 v) {
  _mm_storeu_ps(p, v);
}

/* Two floats: the integer forms have no alignment to violate. */
ML_INLINE v4 v4_load_n(const float *p, int n) {
  if (n >= 4) {
    return _mm_loadu_ps(p);
  }
  if (n < 2) {
    return n < 1 ? _mm_setzero_ps() : _mm_load_ss(p);
  }
  v4 two = _mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)(const void *)p));
  return n == 2 ? two : _mm_movelh_ps(two, _mm_load_ss(p + 2));
}

ML_INLINE void v4_store_n(float *p, v4 v, int n) {
  if (n >= 4) {
    _mm_storeu_ps(p, v);
    return;
  }
  if (n >= 2) {
    _mm_storel_epi64((__m128i *)(void *)p, _mm_castps_si128(v));
  } else if (n == 1) {
    _mm_store_ss(p, v);
  }
  if (n == 3) {
    _mm_store_ss(p + 2, _mm_movehl_ps(v, v));
  }
}

ML_INLINE v4 v4_set1(float x) {
  return _mm_set1_ps(x);
}

#define ML_V4_LANEWISE(name, intrinsic) \
  ML_INLINE v4 v4_##name(v4 a, v4 b) {  \
    return intrinsic(a, b);             \
  }
ML_V4_LANEWISE(add, _mm_add_ps)
ML_V4_LANEWISE(sub, _mm_sub_ps)
ML_V4_LANEWISE(mul, _mm_mul_ps)
ML_V4_LANEWISE(div, _mm_div_ps)
ML_V4_LANEWISE(max, _mm_max_ps)
#undef ML_V4_LANEWISE

ML_INLINE v4 v4_neg(v4 a) {
  return _mm_xor_ps(a, _mm_set1_ps(-0.0f));
}

ML_INLINE v4 v4_exp_join(v4 x, v4 p, v4 t) {
  v4 e = _mm_castsi128_ps(_mm_add_epi32(_mm_castps_si128(p), _mm_slli_epi32(_mm_castps_si128(t), 23)));
  v4 high = _mm_cmpgt_ps(x, _mm_set1_ps(ML_EXP_MAX));
  v4 low = _mm_cmplt_ps(x, _mm_set1_ps(ML_EXP_MIN));
  v4 nan = _mm_cmpunord_ps(x, x);
  e = _mm_andnot_ps(_mm_or_ps(_mm_or_ps(high, low), nan), e);
  e = _mm_or_ps(e, _mm_and_ps(high, _mm_castsi128_ps(_mm_set1_epi32(0x7F800000))));
  return _mm_or_ps(e, _mm_and_ps(nan, x));
}

ML_INLINE float v4_fold(v4 v) {
  v = _mm_add_ps(v, _mm_movehl_ps(v, v));
  return _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps(v, v, 1)));
}

ML_INLINE float v4_highest(v4 v) {
  v = _mm_max_ps(v, _mm_movehl_ps(v, v));
  return _mm_cvtss_f32(_mm_max_ss(v, _mm_shuffle_ps(v, v, 1)));
}

#include "../vector/v16_of_4.h"

#endif
