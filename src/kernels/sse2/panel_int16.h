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

/* s + the products of one group with two activations, which stand in all lanes of x. */
ML_INLINE row_sums add_group(row_sums s, const uint8_t *w, __m128i x) {
  s.a = _mm_add_epi32(s.a, _mm_madd_epi16(load_rows(w), x));
  s.b = _mm_add_epi32(s.b, _mm_madd_epi16(load_rows(w + 16), x));
  s.c = _mm_add_epi32(s.c, _mm_madd_epi16(load_rows(w + 32), x));
  s.d = _mm_add_epi32(s.d, _mm_madd_epi16(load_rows(w + 48), x));
  ML_NOW(s.a);
  ML_NOW(s.b);
  ML_NOW(s.c);
  ML_NOW(s.d);
  return s;
}

ML_INLINE row_sums add_four_groups(row_sums s, const uint8_t group[][4 * PANEL_ROWS], __m128i x) {
  s = add_group(s, group[0], _mm_shuffle_epi32(x, _MM_SHUFFLE(0, 0, 0, 0)));
  s = add_group(s, group[1], _mm_shuffle_epi32(x, _MM_SHUFFLE(1, 1, 1, 1)));
  s = add_group(s, group[2], _mm_shuffle_epi32(x, _MM_SHUFFLE(2, 2, 2, 2)));
  return add_group(s, group[3], _mm_shuffle_epi32(x, _MM_SHUFFLE(3, 3, 3, 3)));
}

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
