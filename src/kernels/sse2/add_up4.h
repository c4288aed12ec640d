/* SPDX-License-Identifier: BSD-3-Clause
 * Integer helpers of the 128-bit x86 kernels. */
#ifndef ML_KERNELS_SSE2_ADD_UP4_H
#define ML_KERNELS_SSE2_ADD_UP4_H

#include <emmintrin.h>

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

#endif
