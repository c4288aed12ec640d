/* SPDX-License-Identifier: BSD-3-Clause
 * Activations to Q8_0. */
#include <emmintrin.h>
#include <math.h>

#include "../scalar/float.h"
#include "sse2.h"

static inline __m128i max_epi32(__m128i a, __m128i b) {
  __m128i more = _mm_cmpgt_epi32(a, b);
  return _mm_or_si128(_mm_and_si128(more, a), _mm_andnot_si128(more, b));
}

/* The largest bit pattern of 32 floats without their signs; it is not negative, so signed comparison will do. */
static inline uint32_t highest_bits(const float *x) {
  const __m128i no_sign = _mm_set1_epi32(0x7FFFFFFF);
  __m128i top = _mm_setzero_si128();
  for (int i = 0; i < ML_QK; i += 4) {
    top = max_epi32(top, _mm_and_si128(no_sign, _mm_loadu_si128((const __m128i *)(const void *)(x + i))));
  }
  top = max_epi32(top, _mm_shuffle_epi32(top, _MM_SHUFFLE(1, 0, 3, 2)));
  top = max_epi32(top, _mm_shuffle_epi32(top, _MM_SHUFFLE(2, 3, 0, 1)));
  return (uint32_t)_mm_cvtsi128_si32(top);
}

/* trunc(x * inverse + copysign(0.5, x)) of four */
static inline __m128i round4(const float *p, __m128 inverse) {
  __m128 x = _mm_loadu_ps(p);
  __m128 half = _mm_or_ps(_mm_and_ps(x, _mm_set1_ps(-0.0f)), _mm_set1_ps(0.5f));
  return _mm_cvttps_epi32(_mm_add_ps(_mm_mul_ps(x, inverse), half));
}

void ml_k_quantize_q8_sse2(ml_qact *out, const float *x, int k) {
  for (int b = 0; b < k / ML_QK; b++, x += ML_QK) {
    __m128i *q = (__m128i *)(void *)(out->q + b * ML_QK);
    uint32_t top = highest_bits(x);
    float amax = ml_float_from_bits(top);
    float scale = amax / 127.0f;
    if (top >= 0x7F800000u || scale < ML_D_MIN) {
      _mm_storeu_si128(q, _mm_setzero_si128());
      _mm_storeu_si128(q + 1, _mm_setzero_si128());
      out->d[b] = top >= 0x7F800000u ? NAN : 0.0f;
      continue;
    }
    __m128 inverse = _mm_set1_ps(127.0f / amax);
    for (int i = 0; i < 2; i++) {
      const float *p = x + 16 * i;
      __m128i low = _mm_packs_epi32(round4(p, inverse), round4(p + 4, inverse));
      __m128i high = _mm_packs_epi32(round4(p + 8, inverse), round4(p + 12, inverse));
      _mm_storeu_si128(q + i, _mm_packs_epi16(low, high));
    }
    out->d[b] = scale;
  }
}
