/* SPDX-License-Identifier: BSD-3-Clause
 * Activations to Q8_0. */
#include <immintrin.h>

#include "../inline.h"
#include "avx512vnni.h"

/* The largest bit pattern of 32 floats without their signs; it is not negative, so signed comparison will do. */
ML_INLINE uint32_t highest_bits(const float *x) {
  const __m512i no_sign = _mm512_set1_epi32(0x7FFFFFFF);
  __m512i first = _mm512_and_si512(no_sign, _mm512_loadu_si512(x)), second = _mm512_and_si512(no_sign, _mm512_loadu_si512(x + 16));
  return (uint32_t)_mm512_reduce_max_epi32(_mm512_max_epi32(first, second));
}

/* trunc(x * inverse + copysign(0.5, x)) of sixteen */
ML_INLINE __m512i round16(const float *p, __m512 inverse) {
  const __m512i sign = _mm512_set1_epi32(INT32_MIN), half = _mm512_castps_si512(_mm512_set1_ps(0.5f));
  __m512 x = _mm512_loadu_ps(p);
  __m512 signed_half = _mm512_castsi512_ps(_mm512_or_si512(_mm512_and_si512(_mm512_castps_si512(x), sign), half));
  return _mm512_cvttps_epi32(_mm512_add_ps(_mm512_mul_ps(x, inverse), signed_half));
}

ML_INLINE int32_t quantize_block(int8_t *q, const float *x, float inverse) {
  __m512 factor = _mm512_set1_ps(inverse);
  __m512i low = round16(x, factor), high = round16(x + 16, factor);
  _mm_storeu_si128((__m128i *)(void *)q, _mm512_cvtepi32_epi8(low));
  _mm_storeu_si128((__m128i *)(void *)(q + 16), _mm512_cvtepi32_epi8(high));
  return _mm512_reduce_add_epi32(_mm512_add_epi32(low, high));
}

#include "../vector/quantize_q8.h"

void ml_k_quantize_q8_avx512vnni(ml_qact *out, const float *x, int k) {
  vector_quantize_q8(out, x, k);
}
