/* SPDX-License-Identifier: BSD-3-Clause
 * Products of Q4_0 weights with many vectors (sse2/matmul.h): the nibble as it is, 0 to 15, is the unsigned operand of pmaddubsw, which takes four
 * elements of four rows; 8 times the sum of the activations is taken off. */
#include <smmintrin.h>

#include "../sse2/panel.h"
#include "sse41.h"

#define BLOCK_BYTES ML_Q4_BLOCK_BYTES
#define MATVEC ml_k_matvec_q4_sse41

/* Four bytes of each of sixteen rows, eight times. */
typedef struct {
  _Alignas(64) uint8_t group[ML_QK / 4][4 * PANEL_ROWS];
} panel_block;

ML_INLINE __m128i nibbles(__m128i v) {
  return _mm_and_si128(v, _mm_set1_epi8(15));
}

ML_INLINE void pack(panel_block *out, const int8_t *w, size_t row_bytes) {
  for (int row = 0; row < PANEL_ROWS; row += 4, w += 4 * row_bytes) {
    __m128i a = load128(w), b = load128(w + row_bytes), c = load128(w + 2 * row_bytes), d = load128(w + 3 * row_bytes);
    store_groups(out->group, row, nibbles(a), nibbles(b), nibbles(c), nibbles(d));
    store_groups(out->group + 4, row, nibbles(_mm_srli_epi16(a, 4)), nibbles(_mm_srli_epi16(b, 4)), nibbles(_mm_srli_epi16(c, 4)),
                 nibbles(_mm_srli_epi16(d, 4)));
  }
}

/* Four elements of each row with four activations, as eight int16. In all eight groups sixteen products come together in a lane, at most
 * 16 * 15 * 127: they fit. */
ML_INLINE __m128i add_products(__m128i sum, __m128i w, __m128i x) {
  return _mm_add_epi16(sum, _mm_maddubs_epi16(w, x));
}

#include "../sse2/add_groups.h"

/* Pairs of int16 added up, less the offset. */
ML_INLINE __m128i finish(__m128i pairs, __m128i offset) {
  return _mm_sub_epi32(_mm_madd_epi16(pairs, _mm_set1_epi16(1)), offset);
}

ML_INLINE row_sums block_sums(const panel_block *w, const int8_t *x, int32_t sum) {
  const __m128i zero = _mm_setzero_si128();
  row_sums s = {zero, zero, zero, zero};
  s = add_four_groups(s, w->group, load128(x));
  s = add_four_groups(s, w->group + 4, load128(x + 16));
  __m128i offset = _mm_set1_epi32(8 * sum);
  return (row_sums){finish(s.a, offset), finish(s.b, offset), finish(s.c, offset), finish(s.d, offset)};
}

#include "../sse2/matmul.h"

void ml_k_matmul_q4_sse41(float *y, size_t stride, const ml_qtensor *W, const ml_qact *x, int columns, int r0, int r1) {
  matmul_panels(y, stride, W, x, columns, r0, r1);
}
