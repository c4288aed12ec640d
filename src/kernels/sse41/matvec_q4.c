/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q4_0 weights: the nibble as it is, 0 to 15, is the unsigned operand; 8 times the sum of the activations is taken off. */
#include <smmintrin.h>
#include <string.h>

#include "../inline.h"
#include "../sse2/add_up4.h"
#include "sse41.h"

/* The activations where pmaddubsw may read them, and 8 times the sum of each block. */
typedef struct {
  _Alignas(16) int8_t q[ML_MAX_COLS];
  _Alignas(16) int32_t eight_sums[ML_MAX_COLS / ML_QK + 4];
  const float *d;
} activations;

#define BLOCK_BYTES ML_Q4_BLOCK_BYTES

static void prepare(activations *out, const ml_qact *x) {
  int blocks = x->n / ML_QK;
  memcpy(out->q, x->q, (size_t)x->n);
  for (int b = 0; b < blocks; b++) {
    out->eight_sums[b] = 8 * x->sums[b];
  }
  /* The last group of four reads beyond the end. */
  memset(out->eight_sums + blocks, 0, 4 * sizeof out->eight_sums[0]);
  out->d = x->d;
}

ML_INLINE __m128i load_aligned(const int8_t *x) {
  return _mm_load_si128((const __m128i *)(const void *)x);
}

/* Eight sums of four products of one block with nibbles 0 to 15. */
ML_INLINE __m128i block_dot(const int8_t *w, const int8_t *x) {
  const __m128i nibble = _mm_set1_epi8(15);
  __m128i weights = load128(w);
  __m128i low = _mm_maddubs_epi16(_mm_and_si128(weights, nibble), load_aligned(x));
  __m128i high = _mm_maddubs_epi16(_mm_and_si128(_mm_srli_epi16(weights, 4), nibble), load_aligned(x + 16));
  return _mm_add_epi16(low, high);
}

/* As add_up4, but of int16, which also hold the sixteen products of half a block, at most 16 * 15 * 127: only the last step needs int32. */
ML_INLINE i4 add_up4_int16(i4 a, i4 b, i4 c, i4 d) {
  __m128i ab = _mm_add_epi16(_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b)); /* a a b b a a b b */
  __m128i cd = _mm_add_epi16(_mm_unpacklo_epi32(c, d), _mm_unpackhi_epi32(c, d));
  return _mm_madd_epi16(_mm_add_epi16(_mm_unpacklo_epi64(ab, cd), _mm_unpackhi_epi64(ab, cd)), _mm_set1_epi16(1));
}

#define add_up4 add_up4_int16
#define FINISH(sums, x, b) _mm_sub_epi32(sums, load128((x)->eight_sums + (b)))

#include "../sse2/matvec.h"

void ml_k_matvec_q4_sse41(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1, int apart) {
  matvec_rows(y, W, x, r0, r1, apart);
}
