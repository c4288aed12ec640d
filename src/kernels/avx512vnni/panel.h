/* SPDX-License-Identifier: BSD-3-Clause
 * Sixteen rows side by side. */
#ifndef ML_KERNELS_AVX512VNNI_PANEL_H
#define ML_KERNELS_AVX512VNNI_PANEL_H

#include <immintrin.h>

#include "../inline.h"

#define PANEL_ROWS 16
/* Sixteen were 3 % slower. */
#define TILE_COLUMNS 8

/* Four bytes of each of sixteen rows, eight times. */
typedef struct {
  _Alignas(64) uint8_t group[8][64];
} panel_block;

/* Words of four bytes of four registers to rows: register i has words i of each quarter of all four. */
ML_INLINE void transpose_quarters(__m512i out[4], __m512i a, __m512i b, __m512i c, __m512i d) {
  __m512i ab_low = _mm512_unpacklo_epi32(a, b), cd_low = _mm512_unpacklo_epi32(c, d);
  __m512i ab_high = _mm512_unpackhi_epi32(a, b), cd_high = _mm512_unpackhi_epi32(c, d);
  out[0] = _mm512_unpacklo_epi64(ab_low, cd_low);
  out[1] = _mm512_unpackhi_epi64(ab_low, cd_low);
  out[2] = _mm512_unpacklo_epi64(ab_high, cd_high);
  out[3] = _mm512_unpackhi_epi64(ab_high, cd_high);
}

#endif
