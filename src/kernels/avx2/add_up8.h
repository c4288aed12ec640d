/* SPDX-License-Identifier: BSD-3-Clause
 * Integer helpers of the 256-bit kernels. */
#ifndef ML_KERNELS_AVX2_ADD_UP8_H
#define ML_KERNELS_AVX2_ADD_UP8_H

#include <immintrin.h>

#include "../inline.h"

ML_INLINE __m256i load256(const void *p) {
  return _mm256_loadu_si256((const __m256i *)p);
}

/* a..d hold partial sums of one block in each half: lanes a b c d | a b c d come out, the sums of either half. */
ML_INLINE __m256i add_up4(__m256i a, __m256i b, __m256i c, __m256i d) {
  /* Not hadd, which is the same sums: on Zen one takes as long as six unpacks. */
  __m256i ab = _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b)); /* a b a b | a b a b */
  __m256i cd = _mm256_add_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
  return _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
}

/* Joins the halves of two such results: a b c d e f g h. */
ML_INLINE __m256i add_up8(__m256i abcd, __m256i efgh) {
  return _mm256_add_epi32(_mm256_permute2x128_si256(abcd, efgh, 0x20), _mm256_permute2x128_si256(abcd, efgh, 0x31));
}

/* The sums of BLOCK(0) to BLOCK(n - 1), which the caller defines as the partial sums of a block each, in order; the rest 0. */
#define ADD_UP_BLOCKS(n)                                   \
  add_up8(add_up4(BLOCK(0), BLOCK(1), BLOCK(2), BLOCK(3)), \
          (n) > 4 ? add_up4(BLOCK(4), BLOCK(5), BLOCK(6), BLOCK(7)) : _mm256_setzero_si256())

#endif
