/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q4_0 weights without unpacking: a 16-bit lane holds four nibbles, and each is multiplied where it stands.
 *
 * Lane k of a block is byte 2k + 256 * byte 2k+1: nibbles of elements 2k (bits 0-3), 16+2k (4-7), 2k+1 (8-11), 17+2k (12-15).
 * With the activations scaled by 256, 16, 1 and 256 (the last nibble is shifted down), every product is 256 times too large. */
#include "../inline.h"
#include "add_up4.h"
#include "sse2.h"

/* The activations in that order, eight int16 for each of the four nibbles, and 8 * 256 times the sum of each block. */
typedef struct {
  _Alignas(16) int16_t q[ML_MAX_COLS];
  _Alignas(16) int32_t offset[ML_MAX_COLS / ML_QK + 4];
  const float *d;
} activations;

#define BLOCK_BYTES ML_Q4_BLOCK_BYTES

static void prepare(activations *out, const ml_qact *x) {
  int blocks = x->n / ML_QK;
  out->d = x->d;
  for (int b = 0; b < blocks; b++) {
    __m128i low = load128(x->q + b * ML_QK), high = load128(x->q + b * ML_QK + 16);
    /* Times 256 by a shift or a mask; the others are extended. */
    __m128i *q = (__m128i *)(void *)(out->q + b * ML_QK);
    _mm_store_si128(q, _mm_slli_epi16(low, 8));
    _mm_store_si128(q + 1, _mm_srai_epi16(_mm_slli_epi16(high, 8), 4));
    _mm_store_si128(q + 2, _mm_srai_epi16(low, 8));
    _mm_store_si128(q + 3, _mm_and_si128(high, _mm_set1_epi16(-256)));
    out->offset[b] = x->sums[b] * 2048;
  }
  /* The last group of four reads beyond the end. */
  _mm_storeu_si128((__m128i *)(void *)(out->offset + blocks), _mm_setzero_si128());
}

/* 256 times four partial sums of one block with nibbles 0 to 15: at most 256 * 8 * 15 * 127. */
ML_INLINE __m128i block_dot(const int8_t *w, const int16_t *x) {
  __m128i v = load128(w);
  __m128i a = _mm_madd_epi16(_mm_and_si128(v, _mm_set1_epi16(0x000F)), load128(x));
  __m128i b = _mm_madd_epi16(_mm_and_si128(v, _mm_set1_epi16(0x00F0)), load128(x + 8));
  __m128i c = _mm_madd_epi16(_mm_and_si128(v, _mm_set1_epi16(0x0F00)), load128(x + 16));
  __m128i d = _mm_madd_epi16(_mm_srli_epi16(v, 12), load128(x + 24));
  return _mm_add_epi32(_mm_add_epi32(a, b), _mm_add_epi32(c, d));
}

#define FINISH(sums, x, b) _mm_srai_epi32(_mm_sub_epi32(sums, load128((x)->offset + (b))), 8)

#include "matvec.h"

void ml_k_matvec_q4_sse2(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1, int apart) {
  matvec_rows(y, W, x, r0, r1, apart);
}
