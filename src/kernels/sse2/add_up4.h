/* SPDX-License-Identifier: BSD-3-Clause
 * Integer helpers of the 128-bit x86 kernels. */
#ifndef ML_KERNELS_SSE2_ADD_UP4_H
#define ML_KERNELS_SSE2_ADD_UP4_H

#include <emmintrin.h>
#include <stdint.h>

#include "../inline.h"

typedef __m128i i4;

ML_INLINE __m128i load128(const void *p) {
  return _mm_loadu_si128((const __m128i *)p);
}

/* a..d hold four partial sums each; lane i of the result is the sum of the i-th. */
ML_INLINE i4 add_up4(i4 a, i4 b, i4 c, i4 d) {
  __m128i ab = _mm_add_epi32(_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b)); /* a b a b */
  __m128i cd = _mm_add_epi32(_mm_unpacklo_epi32(c, d), _mm_unpackhi_epi32(c, d));
  return _mm_add_epi32(_mm_unpacklo_epi64(ab, cd), _mm_unpackhi_epi64(ab, cd));
}

ML_INLINE int32_t add_up_int16(__m128i a) {
  a = _mm_madd_epi16(a, _mm_set1_epi16(1));
  a = _mm_add_epi32(a, _mm_shuffle_epi32(a, _MM_SHUFFLE(1, 0, 3, 2)));
  return _mm_cvtsi128_si32(_mm_add_epi32(a, _mm_shuffle_epi32(a, _MM_SHUFFLE(2, 3, 0, 1))));
}

#endif
