/* SPDX-License-Identifier: BSD-3-Clause
 * Panels of int16: pmaddwd multiplies two elements of four rows at once. */
#ifndef ML_KERNELS_SSE2_PANEL_INT16_H
#define ML_KERNELS_SSE2_PANEL_INT16_H

#include "../../core/quant.h"
#include "panel.h"

/* Two int16 of each of sixteen rows, sixteen times. */
typedef struct {
  _Alignas(64) uint8_t group[ML_QK / 2][4 * PANEL_ROWS];
} panel_block;

/* The lower and the upper eight bytes as int16. Doubling each byte and shifting would do, but then Clang takes the half that is shifted out from
 * any register, and waits for it. */
ML_INLINE __m128i low_int16(__m128i bytes) {
  return _mm_unpacklo_epi8(bytes, _mm_cmpgt_epi8(_mm_setzero_si128(), bytes));
}

ML_INLINE __m128i high_int16(__m128i bytes) {
  return _mm_unpackhi_epi8(bytes, _mm_cmpgt_epi8(_mm_setzero_si128(), bytes));
}

/* Sixteen bytes of the rows `row` to row + 3 to groups 0 to 7. */
ML_INLINE void store_bytes(uint8_t group[][4 * PANEL_ROWS], int row, __m128i a, __m128i b, __m128i c, __m128i d) {
  store_groups(group, row, low_int16(a), low_int16(b), low_int16(c), low_int16(d));
  store_groups(group + 4, row, high_int16(a), high_int16(b), high_int16(c), high_int16(d));
}

/* Two elements of each row with two activations. */
ML_INLINE __m128i add_products(__m128i sum, __m128i w, __m128i x) {
  return _mm_add_epi32(sum, _mm_madd_epi16(w, x));
}

#include "add_groups.h"

/* The sum of the activations is not needed: weights are exact. */
ML_INLINE row_sums block_sums(const panel_block *w, const int8_t *x, int32_t sum) {
  (void)sum;
  const __m128i zero = _mm_setzero_si128();
  __m128i low = load128(x), high = load128(x + 16);
  row_sums s = {zero, zero, zero, zero};
  s = add_four_groups(s, w->group, low_int16(low));
  s = add_four_groups(s, w->group + 4, high_int16(low));
  s = add_four_groups(s, w->group + 8, low_int16(high));
  return add_four_groups(s, w->group + 12, high_int16(high));
}

#endif
