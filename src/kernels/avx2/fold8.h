/* SPDX-License-Identifier: BSD-3-Clause
 * Eight floats in one register: the mask of a tail, the last three steps of every fold. */
#ifndef ML_KERNELS_AVX2_FOLD8_H
#define ML_KERNELS_AVX2_FOLD8_H

#include <immintrin.h>

#include "../inline.h"

/* Ones in the first n of eight lanes; n may be below 0 or above 8. */
ML_INLINE __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

ML_INLINE float fold8(__m256 v) {
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_shuffle_ps(half, half, 1)));
}

#endif
