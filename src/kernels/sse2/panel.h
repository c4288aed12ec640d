/* SPDX-License-Identifier: BSD-3-Clause
 * Sixteen rows side by side, in words of 32 bits. */
#ifndef ML_KERNELS_SSE2_PANEL_H
#define ML_KERNELS_SSE2_PANEL_H

#include "add_up4.h"

#define PANEL_ROWS 16

/* Sums of rows 0 to 3, 4 to 7, 8 to 11 and 12 to 15. */
typedef struct {
  __m128i a, b, c, d;
} row_sums;

ML_INLINE __m128i load_rows(const uint8_t *p) {
  return _mm_load_si128((const __m128i *)(const void *)p);
}

ML_INLINE void store_rows(uint8_t *p, __m128i v) {
  _mm_store_si128((__m128i *)(void *)p, v);
}

/* Words 0 to 3 of the rows `row` to row + 3, which a to d hold, to groups 0 to 3. */
ML_INLINE void store_groups(uint8_t group[][4 * PANEL_ROWS], int row, __m128i a, __m128i b, __m128i c, __m128i d) {
  __m128i ab_low = _mm_unpacklo_epi32(a, b), cd_low = _mm_unpacklo_epi32(c, d);
  __m128i ab_high = _mm_unpackhi_epi32(a, b), cd_high = _mm_unpackhi_epi32(c, d);
  store_rows(group[0] + 4 * row, _mm_unpacklo_epi64(ab_low, cd_low));
  store_rows(group[1] + 4 * row, _mm_unpackhi_epi64(ab_low, cd_low));
  store_rows(group[2] + 4 * row, _mm_unpacklo_epi64(ab_high, cd_high));
  store_rows(group[3] + 4 * row, _mm_unpackhi_epi64(ab_high, cd_high));
}

#endif
