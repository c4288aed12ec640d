/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q4_0 weights: the nibble as it is, 0 to 15, is the unsigned operand; 8 times the sum of the activations is taken off. */
#include <smmintrin.h>

#include "../inline.h"
#include "../sse2/add_up4.h"
#include "sse41.h"

/* The activations with 8 times the sum of each block. */
typedef struct {
  const int8_t *q;
  const float *d;
  _Alignas(16) int32_t eight_sums[ML_MAX_COLS / ML_QK + 4];
} activations;

#define BLOCK_BYTES ML_Q4_BLOCK_BYTES

/* 8 times four partial sums of one block. */
ML_INLINE __m128i eight_partial(const int8_t *x) {
  const __m128i eight = _mm_set1_epi8(8);
  __m128i pairs = _mm_add_epi16(_mm_maddubs_epi16(eight, load128(x)), _mm_maddubs_epi16(eight, load128(x + 16)));
  return _mm_madd_epi16(pairs, _mm_set1_epi16(1));
}

static void prepare(activations *out, const ml_qact *x) {
  const __m128i zero = _mm_setzero_si128();
  int blocks = x->n / ML_QK;
  out->q = x->q;
  out->d = x->d;
  for (int b = 0; b < blocks; b += 4) {
    const int8_t *q = x->q + b * ML_QK;
    __m128i s1 = b + 1 < blocks ? eight_partial(q + ML_QK) : zero;
    __m128i s2 = b + 2 < blocks ? eight_partial(q + 2 * ML_QK) : zero;
    __m128i s3 = b + 3 < blocks ? eight_partial(q + 3 * ML_QK) : zero;
    _mm_store_si128((__m128i *)(void *)(out->eight_sums + b), add_up4(eight_partial(q), s1, s2, s3));
  }
}

/* Four partial sums of one block with nibbles 0 to 15. Four products of at most 15 * 127 fit int16. */
ML_INLINE __m128i block_dot(const int8_t *w, const int8_t *x) {
  const __m128i nibble = _mm_set1_epi8(15);
  __m128i weights = load128(w);
  __m128i low = _mm_maddubs_epi16(_mm_and_si128(weights, nibble), load128(x));
  __m128i high = _mm_maddubs_epi16(_mm_and_si128(_mm_srli_epi16(weights, 4), nibble), load128(x + 16));
  return _mm_madd_epi16(_mm_add_epi16(low, high), _mm_set1_epi16(1));
}

#define FINISH(sums, x, b) _mm_sub_epi32(sums, load128((x)->eight_sums + (b)))

#include "../sse2/matvec.h"

void ml_k_matvec_q4_sse41(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1) {
  activations a;
  prepare(&a, x);
  matvec_rows(y, W, &a, r0, r1);
}
