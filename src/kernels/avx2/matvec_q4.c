/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q4_0 weights (matvec_q4.h). */
#include "../inline.h"
#include "add_up8.h"
#include "avx2.h"

/* Sums of two products of at most 15 * 127, twice: sixteen int16. */
ML_INLINE __m256i two_dots(__m256i w, const int8_t *low, const int8_t *high) {
  const __m256i nibble = _mm256_set1_epi8(15);
  return _mm256_add_epi16(_mm256_maddubs_epi16(_mm256_and_si256(w, nibble), load256(low)),
                          _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(w, 4), nibble), load256(high)));
}

/* int16 also holds sixteen products, half of a block: only the last step needs int32. */
ML_INLINE __m256i add_up_dots(__m256i a, __m256i b, __m256i c, __m256i d) {
  __m256i ab = _mm256_add_epi16(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b)); /* a a b b a a b b | the same */
  __m256i cd = _mm256_add_epi16(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
  return _mm256_madd_epi16(_mm256_add_epi16(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd)), _mm256_set1_epi16(1));
}

#include "matvec_q4.h"

void ml_k_matvec_q4_avx2(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1, int apart) {
  matvec_rows(y, W, x, r0, r1, apart);
}
