/* SPDX-License-Identifier: BSD-3-Clause
 * Eight rows side by side, and what the products of 256-bit x86 with many vectors share (vector/matmul_panels.h). */
#ifndef ML_KERNELS_AVX2_PANEL_H
#define ML_KERNELS_AVX2_PANEL_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../inline.h"
#include "add_up8.h"

#define PANEL_ROWS 8

typedef __m256 vf;

#define VF_LANES 8
#define vf_load _mm256_loadu_ps
#define vf_store _mm256_storeu_ps
#define vf_add _mm256_add_ps

/* Words of four bytes of four registers to rows: register i has words i of each half of all four. */
ML_INLINE void transpose_halves(__m256i out[4], __m256i a, __m256i b, __m256i c, __m256i d) {
  __m256i ab_low = _mm256_unpacklo_epi32(a, b), cd_low = _mm256_unpacklo_epi32(c, d);
  __m256i ab_high = _mm256_unpackhi_epi32(a, b), cd_high = _mm256_unpackhi_epi32(c, d);
  out[0] = _mm256_unpacklo_epi64(ab_low, cd_low);
  out[1] = _mm256_unpackhi_epi64(ab_low, cd_low);
  out[2] = _mm256_unpacklo_epi64(ab_high, cd_high);
  out[3] = _mm256_unpackhi_epi64(ab_high, cd_high);
}

/* Four bytes of each of eight rows. */
typedef struct {
  _Alignas(32) uint8_t byte[32];
} panel_group;

ML_INLINE void store_group(panel_group *out, __m256i rows) {
  _mm256_store_si256((__m256i *)(void *)out->byte, rows);
}

ML_INLINE __m256i load_group(const panel_group *group) {
  return _mm256_load_si256((const __m256i *)(const void *)group->byte);
}

/* w + 128 of the block at w and of those of the seven rows below it, in eight groups. */
ML_INLINE void load_block_q8(__m256i out[8], const int8_t *w, size_t row_bytes) {
  const __m256i offset = _mm256_set1_epi8(-128);
  __m256i upper[4], lower[4]; /* rows 0 to 3, rows 4 to 7 */
  transpose_halves(upper, load256(w), load256(w + row_bytes), load256(w + 2 * row_bytes), load256(w + 3 * row_bytes));
  w += 4 * row_bytes;
  transpose_halves(lower, load256(w), load256(w + row_bytes), load256(w + 2 * row_bytes), load256(w + 3 * row_bytes));
  for (int i = 0; i < 4; i++) {
    out[i] = _mm256_xor_si256(offset, _mm256_permute2x128_si256(upper[i], lower[i], 0x20));
    out[4 + i] = _mm256_xor_si256(offset, _mm256_permute2x128_si256(upper[i], lower[i], 0x31));
  }
}

/* The block at w and that of the fourth row below it. */
ML_INLINE __m256i load_rows_q4(const int8_t *w, size_t row_bytes) {
  __m128i first = _mm_loadu_si128((const __m128i *)(const void *)w);
  return _mm256_inserti128_si256(_mm256_castsi128_si256(first), _mm_loadu_si128((const __m128i *)(const void *)(w + 4 * row_bytes)), 1);
}

/* The nibbles of eight rows as they are, 0 to 15, in eight groups. */
ML_INLINE void load_block_q4(__m256i out[8], const int8_t *w, size_t row_bytes) {
  const __m256i nibble = _mm256_set1_epi8(15);
  __m256i rows[4];
  transpose_halves(rows, load_rows_q4(w, row_bytes), load_rows_q4(w + row_bytes, row_bytes), load_rows_q4(w + 2 * row_bytes, row_bytes),
                   load_rows_q4(w + 3 * row_bytes, row_bytes));
  for (int i = 0; i < 4; i++) {
    out[i] = _mm256_and_si256(rows[i], nibble);
    out[4 + i] = _mm256_and_si256(_mm256_srli_epi16(rows[i], 4), nibble);
  }
}

/* Four activations for every row. */
ML_INLINE __m256i spread(const int8_t *x) {
  int32_t word;
  memcpy(&word, x, sizeof word);
  return _mm256_set1_epi32(word);
}

#endif
