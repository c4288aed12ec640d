/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q8_0 weights: int16 products, with weights taken as w * 256, which costs one unpack and no shift. */
#include "../inline.h"
#include "add_up4.h"
#include "sse2.h"

/* The activations as int16. */
typedef struct {
  _Alignas(16) int16_t q[ML_MAX_COLS];
  const float *d;
} activations;

#define BLOCK_BYTES ML_Q8_BLOCK_BYTES

/* 256 times four partial sums of one block: at most 256 * 8 * 128 * 127, well inside int32. */
ML_INLINE __m128i block_dot(const int8_t *w, const int16_t *x) {
  const __m128i zero = _mm_setzero_si128();
  __m128i low = load128(w), high = load128(w + 16);
  __m128i a = _mm_madd_epi16(_mm_unpacklo_epi8(zero, low), load128(x));
  __m128i b = _mm_madd_epi16(_mm_unpackhi_epi8(zero, low), load128(x + 8));
  __m128i c = _mm_madd_epi16(_mm_unpacklo_epi8(zero, high), load128(x + 16));
  __m128i d = _mm_madd_epi16(_mm_unpackhi_epi8(zero, high), load128(x + 24));
  return _mm_add_epi32(_mm_add_epi32(a, b), _mm_add_epi32(c, d));
}

#define FINISH(sums, x, b) _mm_srai_epi32(sums, 8)

#include "matvec.h"

void ml_k_matvec_q8_sse2(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1) {
  activations a;
  a.d = x->d;
  for (int i = 0; i < x->n; i += 16) {
    __m128i bytes = load128(x->q + i);
    _mm_store_si128((__m128i *)(void *)(a.q + i), _mm_srai_epi16(_mm_unpacklo_epi8(bytes, bytes), 8));
    _mm_store_si128((__m128i *)(void *)(a.q + i + 8), _mm_srai_epi16(_mm_unpackhi_epi8(bytes, bytes), 8));
  }
  matvec_rows(y, W, &a, r0, r1);
}
