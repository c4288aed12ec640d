/* SPDX-License-Identifier: BSD-3-Clause
 * Products of Q8_0 weights with many vectors. w + 128 is taken as two nibbles: sixteen products of at most 15 * 127 fit int16, so that a block
 * is added up in int16, which is a third fewer operations than |w| and sign(x, w). 128 times the sum of the activations is taken off. */
#include "../inline.h"
#include "avx2.h"
#include "panel.h"

#define BLOCK_BYTES ML_Q8_BLOCK_BYTES
#define MATVEC ml_k_matvec_q8_avx2

typedef struct {
  panel_group low[8], high[8];
} panel_block;

typedef struct {
  __m256i low, high;
} weights, sums;

ML_INLINE void pack(panel_block *out, const int8_t *w, size_t row_bytes) {
  const __m256i nibble = _mm256_set1_epi8(15);
  __m256i groups[8];
  load_block_q8(groups, w, row_bytes);
  for (int g = 0; g < 8; g++) {
    store_group(&out->low[g], _mm256_and_si256(groups[g], nibble));
    store_group(&out->high[g], _mm256_and_si256(_mm256_srli_epi16(groups[g], 4), nibble));
  }
}

ML_INLINE weights load_weights(const panel_block *w, int g) {
  return (weights){load_group(&w->low[g]), load_group(&w->high[g])};
}

ML_INLINE sums sums_zero(void) {
  return (sums){_mm256_setzero_si256(), _mm256_setzero_si256()};
}

ML_INLINE sums add_group(sums s, weights w, __m256i x) {
  s.low = _mm256_add_epi16(s.low, _mm256_maddubs_epi16(w.low, x));
  s.high = _mm256_add_epi16(s.high, _mm256_maddubs_epi16(w.high, x));
  ML_NOW(s.low);
  ML_NOW(s.high);
  return s;
}

ML_INLINE __m256i finish(sums s, int32_t block_sum) {
  __m256i low = _mm256_madd_epi16(s.low, _mm256_set1_epi16(1)), high = _mm256_madd_epi16(s.high, _mm256_set1_epi16(16));
  return _mm256_sub_epi32(_mm256_add_epi32(low, high), _mm256_slli_epi32(_mm256_set1_epi32(block_sum), 7));
}

#include "matmul_columns.h"

void ml_k_matmul_q8_avx2(float *y, size_t stride, const ml_qtensor *W, const ml_qact *x, int columns, int r0, int r1) {
  matmul_panels(y, stride, W, x, columns, r0, r1);
}
