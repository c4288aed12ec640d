/* SPDX-License-Identifier: BSD-3-Clause
 * Sixteen floats in four SSE registers (vector/float_ops.h says what each function is). */
#ifndef ML_KERNELS_SSE2_V16_H
#define ML_KERNELS_SSE2_V16_H

#include <emmintrin.h>

#include "../inline.h"
#include "../exp_constants.h"

typedef struct {
  __m128 v[4];
} v16;

/* 1 to 3 floats, the rest +0. The integer forms have no alignment to violate. */
ML_INLINE __m128 load_part(const float *p, int n) {
  if (n == 1) {
    return _mm_load_ss(p);
  }
  __m128 low = _mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)(const void *)p));
  return n == 2 ? low : _mm_movelh_ps(low, _mm_load_ss(p + 2));
}

ML_INLINE void store_part(float *p, __m128 v, int n) {
  if (n == 1) {
    _mm_store_ss(p, v);
    return;
  }
  _mm_storel_epi64((__m128i *)(void *)p, _mm_castps_si128(v));
  if (n == 3) {
    _mm_store_ss(p + 2, _mm_movehl_ps(v, v));
  }
}

ML_INLINE v16 v16_load(const float *p) {
  return (v16){{_mm_loadu_ps(p), _mm_loadu_ps(p + 4), _mm_loadu_ps(p + 8), _mm_loadu_ps(p + 12)}};
}

ML_INLINE void v16_store(float *p, v16 a) {
  _mm_storeu_ps(p, a.v[0]);
  _mm_storeu_ps(p + 4, a.v[1]);
  _mm_storeu_ps(p + 8, a.v[2]);
  _mm_storeu_ps(p + 12, a.v[3]);
}

ML_INLINE __m128 load_up_to_4(const float *p, int n) {
  return n >= 4 ? _mm_loadu_ps(p) : n > 0 ? load_part(p, n) : _mm_setzero_ps();
}

ML_INLINE v16 v16_load_n(const float *p, int n) {
  return (v16){{load_up_to_4(p, n), load_up_to_4(p + 4, n - 4), load_up_to_4(p + 8, n - 8), load_up_to_4(p + 12, n - 12)}};
}

ML_INLINE void store_up_to_4(float *p, __m128 v, int n) {
  if (n >= 4) {
    _mm_storeu_ps(p, v);
  } else if (n > 0) {
    store_part(p, v, n);
  }
}

ML_INLINE void v16_store_n(float *p, v16 a, int n) {
  store_up_to_4(p, a.v[0], n);
  store_up_to_4(p + 4, a.v[1], n - 4);
  store_up_to_4(p + 8, a.v[2], n - 8);
  store_up_to_4(p + 12, a.v[3], n - 12);
}

ML_INLINE v16 v16_set1(float x) {
  __m128 v = _mm_set1_ps(x);
  return (v16){{v, v, v, v}};
}

#define ML_V16_LANEWISE(name, intrinsic)                                                                                        \
  ML_INLINE v16 v16_##name(v16 a, v16 b) {                                                                                      \
    return (v16){{intrinsic(a.v[0], b.v[0]), intrinsic(a.v[1], b.v[1]), intrinsic(a.v[2], b.v[2]), intrinsic(a.v[3], b.v[3])}}; \
  }
ML_V16_LANEWISE(add, _mm_add_ps)
ML_V16_LANEWISE(sub, _mm_sub_ps)
ML_V16_LANEWISE(mul, _mm_mul_ps)
ML_V16_LANEWISE(div, _mm_div_ps)
ML_V16_LANEWISE(max, _mm_max_ps)
ML_V16_LANEWISE(flip, _mm_xor_ps)
#undef ML_V16_LANEWISE

ML_INLINE v16 v16_neg(v16 a) {
  return v16_flip(a, v16_set1(-0.0f));
}

ML_INLINE __m128 exp_join(__m128 x, __m128 p, __m128 t) {
  __m128 e = _mm_castsi128_ps(_mm_add_epi32(_mm_castps_si128(p), _mm_slli_epi32(_mm_castps_si128(t), 23)));
  __m128 high = _mm_cmpgt_ps(x, _mm_set1_ps(ML_EXP_MAX));
  __m128 low = _mm_cmplt_ps(x, _mm_set1_ps(ML_EXP_MIN));
  __m128 nan = _mm_cmpunord_ps(x, x);
  e = _mm_andnot_ps(_mm_or_ps(_mm_or_ps(high, low), nan), e);
  e = _mm_or_ps(e, _mm_and_ps(high, _mm_castsi128_ps(_mm_set1_epi32(0x7F800000))));
  return _mm_or_ps(e, _mm_and_ps(nan, x));
}

ML_INLINE v16 v16_exp_join(v16 x, v16 p, v16 t) {
  return (v16){{exp_join(x.v[0], p.v[0], t.v[0]), exp_join(x.v[1], p.v[1], t.v[1]), exp_join(x.v[2], p.v[2], t.v[2]),
                exp_join(x.v[3], p.v[3], t.v[3])}};
}

/* (0 + 2) + (1 + 3), the last two steps of every fold. */
ML_INLINE float fold4(__m128 v) {
  v = _mm_add_ps(v, _mm_movehl_ps(v, v));
  return _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps(v, v, 1)));
}

ML_INLINE float v16_fold(v16 a) {
  return fold4(_mm_add_ps(_mm_add_ps(a.v[0], a.v[2]), _mm_add_ps(a.v[1], a.v[3])));
}

ML_INLINE float v16_highest(v16 a) {
  __m128 v = _mm_max_ps(_mm_max_ps(a.v[0], a.v[1]), _mm_max_ps(a.v[2], a.v[3]));
  v = _mm_max_ps(v, _mm_movehl_ps(v, v));
  return _mm_cvtss_f32(_mm_max_ss(v, _mm_shuffle_ps(v, v, 1)));
}

#endif
