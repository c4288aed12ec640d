/* SPDX-License-Identifier: BSD-3-Clause
 * Products of Q4_0 weights with many vectors: the nibble as it is, 0 to 15, is the unsigned operand. Sixteen products of at most 15 * 127 fit
 * int16. 8 times the sum of the activations is taken off. */
#include "../inline.h"
#include "avx2.h"
#include "panel.h"

#define BLOCK_BYTES ML_Q4_BLOCK_BYTES
#define MATVEC ml_k_matvec_q4_avx2
#define LOAD_BLOCK load_block_q4

#include "panel_bytes.h"

ML_INLINE sums add_group(sums s, weights w, __m256i x) {
  s = _mm256_add_epi16(s, _mm256_maddubs_epi16(w, x));
  ML_NOW(s);
  return s;
}

ML_INLINE __m256i finish(sums s, int32_t block_sum) {
  return _mm256_sub_epi32(_mm256_madd_epi16(s, _mm256_set1_epi16(1)), _mm256_slli_epi32(_mm256_set1_epi32(block_sum), 3));
}

#include "matmul_columns.h"

void ml_k_matmul_q4_avx2(float *y, size_t stride, const ml_qtensor *W, const ml_qact *x, int columns, int r0, int r1) {
  matmul_panels(y, stride, W, x, columns, r0, r1);
}
