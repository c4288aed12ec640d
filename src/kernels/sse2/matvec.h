/* SPDX-License-Identifier: BSD-3-Clause
 * What the two matrix-vector kernels share: adding up partial sums of blocks, and the float part of four blocks. */
#ifndef ML_KERNELS_SSE2_MATVEC_H
#define ML_KERNELS_SSE2_MATVEC_H

#include "v16.h"

static inline __m128i load128(const void *p) {
  return _mm_loadu_si128((const __m128i *)p);
}

/* a..d hold four partial sums each; lane i of the result is the sum of the i-th. */
static inline __m128i add_up4(__m128i a, __m128i b, __m128i c, __m128i d) {
  __m128i ab = _mm_add_epi32(_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b)); /* a b a b */
  __m128i cd = _mm_add_epi32(_mm_unpacklo_epi32(c, d), _mm_unpackhi_epi32(c, d));
  return _mm_add_epi32(_mm_unpacklo_epi64(ab, cd), _mm_unpackhi_epi64(ab, cd));
}

/* sum + (float)dots * (dw * dx), lane by lane */
static inline __m128 add_terms(__m128 sum, __m128i dots, __m128 dw, __m128 dx) {
  return _mm_add_ps(sum, _mm_mul_ps(_mm_cvtepi32_ps(dots), _mm_mul_ps(dw, dx)));
}

#endif
