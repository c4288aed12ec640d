/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q8_0 weights: int16 products, with weights taken as w * 256. An int16 lane holds two of them: a shift leaves the first, a mask the
 * second. */
#include "../inline.h"
#include "add_up4.h"
#include "sse2.h"

/* The activations as int16, of each sixteen first the even ones, then the odd. */
typedef struct {
  _Alignas(16) int16_t q[ML_MAX_COLS];
  const float *d;
} activations;

#define BLOCK_BYTES ML_Q8_BLOCK_BYTES

/* 256 times four sums of four products. */
ML_INLINE __m128i half_dot(const int8_t *w, const int16_t *x) {
  __m128i weights = load128(w);
  __m128i even = _mm_slli_epi16(weights, 8), odd = _mm_and_si128(weights, _mm_set1_epi16(-256));
  return _mm_add_epi32(_mm_madd_epi16(even, load128(x)), _mm_madd_epi16(odd, load128(x + 8)));
}

/* 256 times four partial sums of one block: at most 256 * 8 * 128 * 127, well inside int32. */
ML_INLINE __m128i block_dot(const int8_t *w, const int16_t *x) {
  return _mm_add_epi32(half_dot(w, x), half_dot(w + 16, x + 16));
}

#define FINISH(sums, x, b) _mm_srai_epi32(sums, 8)

static void prepare(activations *out, const ml_qact *x) {
  out->d = x->d;
  for (int i = 0; i < x->n; i += 16) {
    __m128i bytes = load128(x->q + i);
    _mm_store_si128((__m128i *)(void *)(out->q + i), _mm_srai_epi16(_mm_slli_epi16(bytes, 8), 8));
    _mm_store_si128((__m128i *)(void *)(out->q + i + 8), _mm_srai_epi16(bytes, 8));
  }
}

#include "matvec.h"

void ml_k_matvec_q8_sse2(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1, int apart) {
  matvec_rows(y, W, x, r0, r1, apart);
}
