/* SPDX-License-Identifier: BSD-3-Clause
 * Integer helpers of the 512-bit kernels. */
#ifndef ML_KERNELS_AVX512VNNI_ADD_UP_H
#define ML_KERNELS_AVX512VNNI_ADD_UP_H

#include <immintrin.h>
#include <stdint.h>

#include "../inline.h"

/* Each quarter of a and b holds two or four partial sums of one block: neighbouring quarters of the result are a b a b, half as many of each. */
ML_INLINE __m512i add_up2(__m512i a, __m512i b) {
  return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}

/* Each quarter of a..d holds four partial sums: each quarter of the result is the sums of that quarter of a, b, c, d. */
ML_INLINE __m512i add_up4(__m512i a, __m512i b, __m512i c, __m512i d) {
  __m512i ab = add_up2(a, b), cd = add_up2(c, d);
  return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

/* 16 words of four bytes from p, of which `words` exist; the rest 0. */
ML_INLINE __m512i load_words(const int8_t *p, int words) {
  if (words >= 16) {
    return _mm512_loadu_si512(p);
  }
  return words <= 0 ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi32((__mmask16)((1u << words) - 1), p);
}

ML_INLINE __m256i lower_half(__m512i a) {
  return _mm512_castsi512_si256(a);
}

ML_INLINE __m256i upper_half(__m512i a) {
  return _mm512_extracti64x4_epi64(a, 1);
}

#endif
