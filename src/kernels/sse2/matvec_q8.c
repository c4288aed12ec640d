/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q8_0 weights: int16 products, with weights taken as w * 256, which costs one unpack and no shift. */
#include <stddef.h>

#include "../prefetch.h"
#include "matvec.h"
#include "sse2.h"

/* The activations as int16, once for all rows. */
typedef struct {
  _Alignas(16) int16_t q[ML_MAX_COLS];
} activations;

static void prepare(activations *out, const ml_qact *x) {
  for (int i = 0; i < x->n; i += 16) {
    __m128i bytes = load128(x->q + i);
    _mm_store_si128((__m128i *)(void *)(out->q + i), _mm_srai_epi16(_mm_unpacklo_epi8(bytes, bytes), 8));
    _mm_store_si128((__m128i *)(void *)(out->q + i + 8), _mm_srai_epi16(_mm_unpackhi_epi8(bytes, bytes), 8));
  }
}

/* 256 times four partial sums of one block: at most 256 * 8 * 128 * 127, well inside int32. */
static inline __m128i block_dot(const int8_t *w, const int16_t *x) {
  const __m128i zero = _mm_setzero_si128();
  __m128i low = load128(w), high = load128(w + 16);
  __m128i a = _mm_madd_epi16(_mm_unpacklo_epi8(zero, low), load128(x));
  __m128i b = _mm_madd_epi16(_mm_unpackhi_epi8(zero, low), load128(x + 8));
  __m128i c = _mm_madd_epi16(_mm_unpacklo_epi8(zero, high), load128(x + 16));
  __m128i d = _mm_madd_epi16(_mm_unpackhi_epi8(zero, high), load128(x + 24));
  return _mm_add_epi32(_mm_add_epi32(a, b), _mm_add_epi32(c, d));
}

/* The sums of four blocks, in order. */
static inline __m128i four_blocks(const int8_t *w, const int16_t *x) {
  return _mm_srai_epi32(add_up4(block_dot(w, x), block_dot(w + 32, x + 32), block_dot(w + 64, x + 64), block_dot(w + 96, x + 96)), 8);
}

/* The sums of the first n blocks, 0 < n < 4, the rest 0. */
static inline __m128i last_blocks(const int8_t *w, const int16_t *x, int n) {
  const __m128i zero = _mm_setzero_si128();
  __m128i b = n > 1 ? block_dot(w + 32, x + 32) : zero;
  __m128i c = n > 2 ? block_dot(w + 64, x + 64) : zero;
  return _mm_srai_epi32(add_up4(block_dot(w, x), b, c, zero), 8);
}

void ml_k_matvec_q8_sse2(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1) {
  int blocks = W->cols / ML_QK;
  activations a;
  prepare(&a, x);
  for (int r = r0; r < r1; r++) {
    const int8_t *w = W->q + (size_t)r * (size_t)W->cols;
    const float *d = W->d + (size_t)r * (size_t)blocks;
    /* Lanes 0..3 and 4..7; the loop takes them in turn, so that the registers need no shuffle. */
    __m128 sum0 = _mm_setzero_ps(), sum1 = _mm_setzero_ps();
    int b = 0;
    for (; b + 8 <= blocks; b += 8) {
      ml_prefetch_ahead(w + b * ML_QK, 8 * ML_Q8_BLOCK_BYTES);
      sum0 = add_terms(sum0, four_blocks(w + b * ML_QK, a.q + b * ML_QK), _mm_loadu_ps(d + b), _mm_loadu_ps(x->d + b));
      sum1 = add_terms(sum1, four_blocks(w + (b + 4) * ML_QK, a.q + (b + 4) * ML_QK), _mm_loadu_ps(d + b + 4), _mm_loadu_ps(x->d + b + 4));
    }
    if (b + 4 <= blocks) {
      sum0 = add_terms(sum0, four_blocks(w + b * ML_QK, a.q + b * ML_QK), _mm_loadu_ps(d + b), _mm_loadu_ps(x->d + b));
      b += 4;
    }
    if (b < blocks) {
      int n = blocks - b;
      __m128 dw = load_part(d + b, n), dx = load_part(x->d + b, n);
      __m128i dots = last_blocks(w + b * ML_QK, a.q + b * ML_QK, n);
      if (b % 8 == 0) {
        sum0 = add_terms(sum0, dots, dw, dx);
      } else {
        sum1 = add_terms(sum1, dots, dw, dx);
      }
    }
    y[r] = fold4(_mm_add_ps(sum0, sum1));
  }
}
