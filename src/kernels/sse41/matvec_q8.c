/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q8_0 weights: |w| times x with the sign of w, so that the first operand of pmaddubsw is unsigned. */
#include <smmintrin.h>

#include "../inline.h"
#include "../sse2/add_up4.h"
#include "sse41.h"

#include "../vector/plain_activations.h"

/* Four sums of pairs of pairs. |w| is at most 128 and x within 127: a pair's sum, at most 32512, fits int16, also for w = -128. */
ML_INLINE __m128i half_dot(const int8_t *w, const int8_t *x) {
  __m128i weights = load128(w);
  __m128i pairs = _mm_maddubs_epi16(_mm_abs_epi8(weights), _mm_sign_epi8(load128(x), weights));
  return _mm_madd_epi16(pairs, _mm_set1_epi16(1));
}

/* Four partial sums of one block. */
ML_INLINE __m128i block_dot(const int8_t *w, const int8_t *x) {
  return _mm_add_epi32(half_dot(w, x), half_dot(w + 16, x + 16));
}

#define FINISH(sums, x, b) (sums)

#include "../sse2/matvec.h"

void ml_k_matvec_q8_sse41(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1, int apart) {
  matvec_rows(y, W, x, r0, r1, apart);
}
