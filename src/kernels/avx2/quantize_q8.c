/* SPDX-License-Identifier: BSD-3-Clause
 * Activations to Q8_0. */
#include <immintrin.h>

#include "../inline.h"
#include "../sse2/add_up4.h"
#include "avx2.h"

/* The largest bit pattern of 32 floats without their signs; it is not negative, so signed comparison will do. */
ML_INLINE uint32_t highest_bits(const float *x) {
  const __m256i no_sign = _mm256_set1_epi32(0x7FFFFFFF);
  __m256i top = _mm256_setzero_si256();
  for (int i = 0; i < ML_QK; i += 8) {
    top = _mm256_max_epi32(top, _mm256_and_si256(no_sign, _mm256_loadu_si256((const __m256i *)(const void *)(x + i))));
  }
  __m128i half = _mm_max_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
  half = _mm_max_epi32(half, _mm_shuffle_epi32(half, _MM_SHUFFLE(1, 0, 3, 2)));
  half = _mm_max_epi32(half, _mm_shuffle_epi32(half, _MM_SHUFFLE(2, 3, 0, 1)));
  return (uint32_t)_mm_cvtsi128_si32(half);
}

/* trunc(x * inverse + copysign(0.5, x)) of eight */
ML_INLINE __m256i round8(const float *p, __m256 inverse) {
  __m256 x = _mm256_loadu_ps(p);
  __m256 half = _mm256_or_ps(_mm256_and_ps(x, _mm256_set1_ps(-0.0f)), _mm256_set1_ps(0.5f));
  return _mm256_cvttps_epi32(_mm256_add_ps(_mm256_mul_ps(x, inverse), half));
}

ML_INLINE int32_t quantize_block(int8_t *q, const float *x, float inverse) {
  /* Packing works within halves: fours 0 2 4 6 | 1 3 5 7 of the block come out, and one permutation restores the order. */
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  __m256 factor = _mm256_set1_ps(inverse);
  __m256i low = _mm256_packs_epi32(round8(x, factor), round8(x + 8, factor));
  __m256i high = _mm256_packs_epi32(round8(x + 16, factor), round8(x + 24, factor));
  _mm256_storeu_si256((__m256i *)(void *)q, _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order));
  __m256i sums = _mm256_add_epi16(low, high);
  return add_up_int16(_mm_add_epi16(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1)));
}

#include "../vector/quantize_q8.h"

void ml_k_quantize_q8_avx2(ml_qact *out, const float *x, int k) {
  vector_quantize_q8(out, x, k);
}
