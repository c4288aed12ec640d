/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q4_0 weights without unpacking: a 16-bit lane holds four nibbles, and each is multiplied where it stands.
 *
 * Lane k of a block is byte 2k + 256 * byte 2k+1: nibbles of elements 2k (bits 0-3), 16+2k (4-7), 2k+1 (8-11), 17+2k (12-15).
 * With the activations scaled by 256, 16, 1 and 256 (the last nibble is shifted down), every product is 256 times too large. */
#include <stddef.h>

#include "../prefetch.h"
#include "matvec.h"
#include "sse2.h"

/* The activations in that order, eight int16 for each of the four nibbles, and 8 * 256 times the sum of each block. */
typedef struct {
  _Alignas(16) int16_t q[ML_MAX_COLS];
  _Alignas(16) int32_t offset[ML_MAX_COLS / ML_QK + 4];
} activations;

static void prepare(activations *out, const ml_qact *x) {
  int blocks = x->n / ML_QK;
  const __m128i ones = _mm_set1_epi16(1);
  for (int b = 0; b < blocks; b++) {
    __m128i low = load128(x->q + b * ML_QK), high = load128(x->q + b * ML_QK + 16);
    /* Bytes of even and odd elements as int16. */
    __m128i low_even = _mm_srai_epi16(_mm_slli_epi16(low, 8), 8), low_odd = _mm_srai_epi16(low, 8);
    __m128i high_even = _mm_srai_epi16(_mm_slli_epi16(high, 8), 8), high_odd = _mm_srai_epi16(high, 8);
    __m128i *q = (__m128i *)(void *)(out->q + b * ML_QK);
    _mm_store_si128(q, _mm_slli_epi16(low_even, 8));
    _mm_store_si128(q + 1, _mm_slli_epi16(high_even, 4));
    _mm_store_si128(q + 2, low_odd);
    _mm_store_si128(q + 3, _mm_slli_epi16(high_odd, 8));
    __m128i sum = _mm_add_epi16(_mm_add_epi16(low_even, low_odd), _mm_add_epi16(high_even, high_odd));
    sum = _mm_madd_epi16(sum, ones);
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, _MM_SHUFFLE(1, 0, 3, 2)));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, _MM_SHUFFLE(2, 3, 0, 1)));
    out->offset[b] = _mm_cvtsi128_si32(sum) * 2048;
  }
  /* The last group of four reads beyond the end. */
  _mm_storeu_si128((__m128i *)(void *)(out->offset + blocks), _mm_setzero_si128());
}

/* 256 times four partial sums of one block with nibbles 0 to 15: at most 256 * 8 * 15 * 127. */
static inline __m128i block_dot(const uint8_t *w, const int16_t *x) {
  __m128i v = load128(w);
  __m128i a = _mm_madd_epi16(_mm_and_si128(v, _mm_set1_epi16(0x000F)), load128(x));
  __m128i b = _mm_madd_epi16(_mm_and_si128(v, _mm_set1_epi16(0x00F0)), load128(x + 8));
  __m128i c = _mm_madd_epi16(_mm_and_si128(v, _mm_set1_epi16(0x0F00)), load128(x + 16));
  __m128i d = _mm_madd_epi16(_mm_srli_epi16(v, 12), load128(x + 24));
  return _mm_add_epi32(_mm_add_epi32(a, b), _mm_add_epi32(c, d));
}

/* The sums of n blocks, 0 < n <= 4, the rest 0. */
static inline __m128i up_to_four_blocks(const uint8_t *w, const activations *a, int b, int n) {
  const __m128i zero = _mm_setzero_si128();
  const int16_t *x = a->q + b * ML_QK;
  __m128i s0 = block_dot(w, x);
  __m128i s1 = n > 1 ? block_dot(w + 16, x + 32) : zero;
  __m128i s2 = n > 2 ? block_dot(w + 32, x + 64) : zero;
  __m128i s3 = n > 3 ? block_dot(w + 48, x + 96) : zero;
  return _mm_srai_epi32(_mm_sub_epi32(add_up4(s0, s1, s2, s3), load128(a->offset + b)), 8);
}

void ml_k_matvec_q4_sse2(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1) {
  int blocks = W->cols / ML_QK;
  activations a;
  prepare(&a, x);
  for (int r = r0; r < r1; r++) {
    const uint8_t *w = (const uint8_t *)W->q + (size_t)r * (size_t)blocks * ML_Q4_BLOCK_BYTES;
    const float *d = W->d + (size_t)r * (size_t)blocks;
    /* Lanes 0..3 and 4..7, taken in turn. */
    __m128 sum0 = _mm_setzero_ps(), sum1 = _mm_setzero_ps();
    int b = 0;
    for (; b + 8 <= blocks; b += 8) {
      ml_prefetch_ahead(w + b * ML_Q4_BLOCK_BYTES, 8 * ML_Q4_BLOCK_BYTES);
      sum0 = add_terms(sum0, up_to_four_blocks(w + b * ML_Q4_BLOCK_BYTES, &a, b, 4), _mm_loadu_ps(d + b), _mm_loadu_ps(x->d + b));
      sum1 = add_terms(sum1, up_to_four_blocks(w + (b + 4) * ML_Q4_BLOCK_BYTES, &a, b + 4, 4), _mm_loadu_ps(d + b + 4),
                       _mm_loadu_ps(x->d + b + 4));
    }
    if (b + 4 <= blocks) {
      sum0 = add_terms(sum0, up_to_four_blocks(w + b * ML_Q4_BLOCK_BYTES, &a, b, 4), _mm_loadu_ps(d + b), _mm_loadu_ps(x->d + b));
      b += 4;
    }
    if (b < blocks) {
      int n = blocks - b;
      __m128 dw = load_part(d + b, n), dx = load_part(x->d + b, n);
      __m128i dots = up_to_four_blocks(w + b * ML_Q4_BLOCK_BYTES, &a, b, n);
      if (b % 8 == 0) {
        sum0 = add_terms(sum0, dots, dw, dx);
      } else {
        sum1 = add_terms(sum1, dots, dw, dx);
      }
    }
    y[r] = fold4(_mm_add_ps(sum0, sum1));
  }
}
