/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q8_0 weights: |w| times x with the sign of w, so that the first operand of pmaddubsw is unsigned. */
#include <stddef.h>

#include "../prefetch.h"
#include "avx2.h"
#include "matvec.h"

/* Eight partial sums of one block. |w| is at most 128 and x within 127: a pair's sum, at most 32512, fits int16, also for w = -128. */
static inline __m256i block_dot(const int8_t *w, const int8_t *x) {
  __m256i weights = load256(w);
  __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(load256(x), weights));
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

/* The integer sums of eight blocks, in order. */
static inline __m256i eight_blocks(const int8_t *w, const int8_t *x) {
  return add_up8(
      add_up4(block_dot(w, x), block_dot(w + 32, x + 32), block_dot(w + 64, x + 64), block_dot(w + 96, x + 96)),
      add_up4(block_dot(w + 128, x + 128), block_dot(w + 160, x + 160), block_dot(w + 192, x + 192), block_dot(w + 224, x + 224)));
}

/* The sums of the first n < 8 blocks, the rest 0. */
static inline __m256i last_blocks(const int8_t *w, const int8_t *x, int n) {
  const __m256i zero = _mm256_setzero_si256();
#define BLOCK(i) ((i) < n ? block_dot(w + 32 * (i), x + 32 * (i)) : zero)
  return add_up8(add_up4(BLOCK(0), BLOCK(1), BLOCK(2), BLOCK(3)), n > 4 ? add_up4(BLOCK(4), BLOCK(5), BLOCK(6), zero) : zero);
#undef BLOCK
}

void ml_k_matvec_q8_avx2(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1) {
  int blocks = W->cols / ML_QK;
  for (int r = r0; r < r1; r++) {
    const int8_t *w = W->q + (size_t)r * (size_t)W->cols;
    const float *d = W->d + (size_t)r * (size_t)blocks;
    __m256 sum = _mm256_setzero_ps();
    int b = 0;
    for (; b + 8 <= blocks; b += 8) {
      ml_prefetch_ahead(w + b * ML_QK, 8 * ML_Q8_BLOCK_BYTES);
      __m256 scale = _mm256_mul_ps(_mm256_loadu_ps(d + b), _mm256_loadu_ps(x->d + b));
      __m256i dots = eight_blocks(w + b * ML_QK, x->q + b * ML_QK);
      sum = _mm256_add_ps(sum, _mm256_mul_ps(_mm256_cvtepi32_ps(dots), scale));
    }
    if (b < blocks) {
      __m256i mask = first_lanes(blocks - b);
      __m256 scale = _mm256_mul_ps(_mm256_maskload_ps(d + b, mask), _mm256_maskload_ps(x->d + b, mask));
      __m256i dots = last_blocks(w + b * ML_QK, x->q + b * ML_QK, blocks - b);
      sum = _mm256_add_ps(sum, _mm256_mul_ps(_mm256_cvtepi32_ps(dots), scale));
    }
    y[r] = fold8(sum);
  }
}
