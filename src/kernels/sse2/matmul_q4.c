/* SPDX-License-Identifier: BSD-3-Clause
 * Products of Q4_0 weights with many vectors (matmul.h), weights as int16 from -8 to 7. */
#include "panel_int16.h"
#include "sse2.h"

#define BLOCK_BYTES ML_Q4_BLOCK_BYTES
#define MATVEC ml_k_matvec_q4_sse2

/* Nibbles of which other bits may stand above, less 8. */
ML_INLINE __m128i weights(__m128i nibbles) {
  return _mm_sub_epi8(_mm_and_si128(nibbles, _mm_set1_epi8(15)), _mm_set1_epi8(8));
}

ML_INLINE void pack(panel_block *out, const int8_t *w, size_t row_bytes) {
  for (int row = 0; row < PANEL_ROWS; row += 4, w += 4 * row_bytes) {
    __m128i a = load128(w), b = load128(w + row_bytes), c = load128(w + 2 * row_bytes), d = load128(w + 3 * row_bytes);
    store_bytes(out->group, row, weights(a), weights(b), weights(c), weights(d));
    store_bytes(out->group + 8, row, weights(_mm_srli_epi16(a, 4)), weights(_mm_srli_epi16(b, 4)), weights(_mm_srli_epi16(c, 4)),
                weights(_mm_srli_epi16(d, 4)));
  }
}

#include "matmul.h"

void ml_k_matmul_q4_sse2(float *y, size_t stride, const ml_qtensor *W, const ml_qact *x, int columns, int r0, int r1) {
  matmul_panels(y, stride, W, x, columns, r0, r1);
}
