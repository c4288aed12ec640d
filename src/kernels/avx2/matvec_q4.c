/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q4_0 weights (matvec_q4.h). */
#include "../inline.h"
#include "add_up8.h"
#include "avx2.h"

/* Two products of at most 15 * 127, twice: they fit int16. */
ML_INLINE __m256i two_dots(__m256i w, const int8_t *l, const int8_t *h) {
  const __m256i nibble = _mm256_set1_epi8(15);
  __m256i low = _mm256_maddubs_epi16(_mm256_and_si256(w, nibble), load256(l));
  __m256i high = _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(w, 4), nibble), load256(h));
  return _mm256_madd_epi16(_mm256_add_epi16(low, high), _mm256_set1_epi16(1));
}

#include "matvec_q4.h"

void ml_k_matvec_q4_avx2(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1, int apart) {
  matvec_rows(y, W, x, r0, r1, apart);
}
