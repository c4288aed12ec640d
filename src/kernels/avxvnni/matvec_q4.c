/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q4_0 weights (avx2/matvec_q4.h). */
#include "../inline.h"
#include "../avx2/add_up8.h"
#include "avxvnni.h"

/* Eight sums of eight products. */
ML_INLINE __m256i two_dots(__m256i w, const int8_t *l, const int8_t *h) {
  const __m256i nibble = _mm256_set1_epi8(15);
  __m256i low = _mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), _mm256_and_si256(w, nibble), load256(l));
  return _mm256_dpbusd_avx_epi32(low, _mm256_and_si256(_mm256_srli_epi16(w, 4), nibble), load256(h));
}

/* Sums of eight products, and of sixteen, are at most 16 * 15 * 127 and fit int16: only the last step needs int32. */
ML_INLINE __m256i add_up_dots(__m256i a, __m256i b, __m256i c, __m256i d) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i ab = _mm256_madd_epi16(_mm256_packs_epi32(a, b), ones); /* a a b b | a a b b */
  __m256i cd = _mm256_madd_epi16(_mm256_packs_epi32(c, d), ones);
  return _mm256_madd_epi16(_mm256_packs_epi32(ab, cd), ones);
}

#include "../avx2/matvec_q4.h"

void ml_k_matvec_q4_avxvnni(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1, int apart) {
  matvec_rows(y, W, x, r0, r1, apart);
}
