/* SPDX-License-Identifier: BSD-3-Clause
 * Products of Q4_0 weights with many vectors (matmul.h): the nibble as it is, 0 to 15, is the unsigned operand. */
#include <immintrin.h>

#include "../inline.h"
#include "avx512vnni.h"
#include "panel.h"

#define BLOCK_BYTES ML_Q4_BLOCK_BYTES
#define OFFSET_BITS 3
#define MATVEC ml_k_matvec_q4_avx512vnni

ML_INLINE __m128i load128(const int8_t *p) {
  return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* The block at w and those of the fourth, eighth and twelfth row below it. */
ML_INLINE __m512i load_rows(const int8_t *w, size_t row_bytes) {
  __m512i rows = _mm512_castsi128_si512(load128(w));
  rows = _mm512_inserti32x4(rows, load128(w + 4 * row_bytes), 1);
  rows = _mm512_inserti32x4(rows, load128(w + 8 * row_bytes), 2);
  return _mm512_inserti32x4(rows, load128(w + 12 * row_bytes), 3);
}

ML_INLINE void pack(panel_block *out, const int8_t *w, size_t row_bytes) {
  const __m512i nibble = _mm512_set1_epi8(15);
  __m512i rows[4];
  transpose_quarters(rows, load_rows(w, row_bytes), load_rows(w + row_bytes, row_bytes), load_rows(w + 2 * row_bytes, row_bytes),
                     load_rows(w + 3 * row_bytes, row_bytes));
  for (int i = 0; i < 4; i++) {
    _mm512_store_si512(out->group[i], _mm512_and_si512(rows[i], nibble));
    _mm512_store_si512(out->group[4 + i], _mm512_and_si512(_mm512_srli_epi16(rows[i], 4), nibble));
  }
}

#include "matmul.h"

void ml_k_matmul_q4_avx512vnni(float *y, size_t stride, const ml_qtensor *W, const ml_qact *x, int columns, int r0, int r1) {
  matmul_panels(y, stride, W, x, columns, r0, r1);
}
