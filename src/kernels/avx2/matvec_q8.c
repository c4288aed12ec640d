/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q8_0 weights: |w| times x with the sign of w, so that the first operand of pmaddubsw is unsigned. */
#include "../inline.h"
#include "add_up8.h"
#include "avx2.h"

#include "../vector/plain_activations.h"

/* Eight partial sums of one block. |w| is at most 128 and x within 127: a pair's sum, at most 32512, fits int16, also for w = -128. */
ML_INLINE __m256i block_dot(const int8_t *w, const int8_t *x) {
  __m256i weights = load256(w);
  __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(load256(x), weights));
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

ML_INLINE __m256i eight_blocks(const int8_t *w, const activations *x, int b, int n) {
#define BLOCK(i) ((i) < n ? block_dot(w + (i)*BLOCK_BYTES, x->q + (b + (i)) * ML_QK) : _mm256_setzero_si256())
  return ADD_UP_BLOCKS(n);
#undef BLOCK
}

#include "matvec.h"

void ml_k_matvec_q8_avx2(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1, int apart) {
  matvec_rows(y, W, x, r0, r1, apart);
}
