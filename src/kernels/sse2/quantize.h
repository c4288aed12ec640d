/* SPDX-License-Identifier: BSD-3-Clause
 * Activations to Q8_0 with 128-bit registers. The including file has defined
 *   __m128i max_epi32(__m128i, __m128i)   the larger of two int32, lane by lane */
#ifndef ML_KERNELS_SSE2_QUANTIZE_H
#define ML_KERNELS_SSE2_QUANTIZE_H

#include "../inline.h"
#include "../kernels.h"
#include "add_up4.h"

/* The largest bit pattern of 32 floats without their signs; it is not negative, so signed comparison will do. */
ML_INLINE uint32_t highest_bits(const float *x) {
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
ML_INLINE __m128i round4(const float *p, __m128 inverse) {
  __m128 x = _mm_loadu_ps(p);
  __m128 half = _mm_or_ps(_mm_and_ps(x, _mm_set1_ps(-0.0f)), _mm_set1_ps(0.5f));
  return _mm_cvttps_epi32(_mm_add_ps(_mm_mul_ps(x, inverse), half));
}

ML_INLINE int32_t quantize_block(int8_t *q, const float *x, float inverse) {
  __m128 factor = _mm_set1_ps(inverse);
  __m128i sums = _mm_setzero_si128();
  for (int i = 0; i < ML_QK; i += 16) {
    __m128i low = _mm_packs_epi32(round4(x + i, factor), round4(x + i + 4, factor));
    __m128i high = _mm_packs_epi32(round4(x + i + 8, factor), round4(x + i + 12, factor));
    sums = _mm_add_epi16(sums, _mm_add_epi16(low, high));
    _mm_storeu_si128((__m128i *)(void *)(q + i), _mm_packs_epi16(low, high));
  }
  return add_up_int16(sums);
}

#include "../vector/quantize_q8.h"

#endif
