/* SPDX-License-Identifier: BSD-3-Clause
 * Products of Q8_0 weights with many vectors (matmul.h): w + 128 is the unsigned operand. */
#include <immintrin.h>

#include "../inline.h"
#include "avx512vnni.h"
#include "panel.h"

#define BLOCK_BYTES ML_Q8_BLOCK_BYTES
#define OFFSET_BITS 7
#define MATVEC ml_k_matvec_q8_avx512vnni

/* The block at w in the lower half, that of the fourth row below it in the upper half. */
ML_INLINE __m512i load_rows(const int8_t *w, size_t row_bytes) {
  __m256i first = _mm256_loadu_si256((const __m256i *)(const void *)w);
  return _mm512_inserti64x4(_mm512_castsi256_si512(first), _mm256_loadu_si256((const __m256i *)(const void *)(w + 4 * row_bytes)), 1);
}

ML_INLINE void pack(panel_block *out, const int8_t *w, size_t row_bytes) {
  const __m512i offset = _mm512_set1_epi8(-128);
  __m512i upper[4], lower[4]; /* rows 0 to 7, rows 8 to 15 */
  transpose_quarters(upper, load_rows(w, row_bytes), load_rows(w + row_bytes, row_bytes), load_rows(w + 2 * row_bytes, row_bytes),
                     load_rows(w + 3 * row_bytes, row_bytes));
  w += 8 * row_bytes;
  transpose_quarters(lower, load_rows(w, row_bytes), load_rows(w + row_bytes, row_bytes), load_rows(w + 2 * row_bytes, row_bytes),
                     load_rows(w + 3 * row_bytes, row_bytes));
  for (int i = 0; i < 4; i++) {
    __m512i even = _mm512_shuffle_i32x4(upper[i], lower[i], _MM_SHUFFLE(2, 0, 2, 0));
    __m512i odd = _mm512_shuffle_i32x4(upper[i], lower[i], _MM_SHUFFLE(3, 1, 3, 1));
    _mm512_store_si512(out->group[i], _mm512_xor_si512(even, offset));
    _mm512_store_si512(out->group[4 + i], _mm512_xor_si512(odd, offset));
  }
}

#include "matmul.h"

void ml_k_matmul_q8_avx512vnni(float *y, size_t stride, const ml_qtensor *W, const ml_qact *x, int columns, int r0, int r1) {
  matmul_panels(y, stride, W, x, columns, r0, r1);
}
