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

/* sum + the terms of eight blocks from block b on. */
static inline __m256 add_eight(__m256 sum, const int8_t *w, const float *d, const ml_qact *x, int b) {
  __m256 scale = _mm256_mul_ps(_mm256_loadu_ps(d + b), _mm256_loadu_ps(x->d + b));
  __m256i dots = eight_blocks(w + b * ML_QK, x->q + b * ML_QK);
  return _mm256_add_ps(sum, _mm256_mul_ps(_mm256_cvtepi32_ps(dots), scale));
}

/* sum + the terms of the last n < 8 blocks, from block b on. */
static inline __m256 add_last(__m256 sum, const int8_t *w, const float *d, const ml_qact *x, int b, int n) {
  __m256i mask = first_lanes(n);
  __m256 scale = _mm256_mul_ps(_mm256_maskload_ps(d + b, mask), _mm256_maskload_ps(x->d + b, mask));
  __m256i dots = last_blocks(w + b * ML_QK, x->q + b * ML_QK, n);
  return _mm256_add_ps(sum, _mm256_mul_ps(_mm256_cvtepi32_ps(dots), scale));
}

void ml_k_matvec_q8_avx2(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1) {
  int blocks = W->cols / ML_QK, whole = blocks / 8 * 8;
  size_t cols = (size_t)W->cols;
  int r = r0;
  /* Two rows at a time share the loads of x; they lie side by side, so the weights still come as one stream. */
  for (; r + 2 <= r1; r += 2) {
    const int8_t *w0 = W->q + (size_t)r * cols, *w1 = w0 + cols;
    const float *d0 = W->d + (size_t)r * (size_t)blocks, *d1 = d0 + blocks;
    __m256 sum0 = _mm256_setzero_ps(), sum1 = _mm256_setzero_ps();
    for (int b = 0; b < whole; b += 8) {
      ml_prefetch_ahead(w0 + 2 * b * ML_QK, 16 * ML_Q8_BLOCK_BYTES);
      sum0 = add_eight(sum0, w0, d0, x, b);
      sum1 = add_eight(sum1, w1, d1, x, b);
    }
    if (whole < blocks) {
      ml_prefetch_ahead(w0 + 2 * whole * ML_QK, 2 * (blocks - whole) * ML_QK);
      sum0 = add_last(sum0, w0, d0, x, whole, blocks - whole);
      sum1 = add_last(sum1, w1, d1, x, whole, blocks - whole);
    }
    y[r] = fold8(sum0);
    y[r + 1] = fold8(sum1);
  }
  if (r < r1) {
    const int8_t *w = W->q + (size_t)r * cols;
    const float *d = W->d + (size_t)r * (size_t)blocks;
    __m256 sum = _mm256_setzero_ps();
    for (int b = 0; b < whole; b += 8) {
      sum = add_eight(sum, w, d, x, b);
    }
    if (whole < blocks) {
      sum = add_last(sum, w, d, x, whole, blocks - whole);
    }
    y[r] = fold8(sum);
  }
}
