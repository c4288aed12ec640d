/* SPDX-License-Identifier: BSD-3-Clause
 * Products of Q8_0 weights with many vectors (matmul.h), weights as int16. */
#include "panel_int16.h"
#include "sse2.h"

#define BLOCK_BYTES ML_Q8_BLOCK_BYTES
#define MATVEC ml_k_matvec_q8_sse2

ML_INLINE void pack(panel_block *out, const int8_t *w, size_t row_bytes) {
  for (int row = 0; row < PANEL_ROWS; row += 4, w += 4 * row_bytes) {
    const int8_t *b = w + row_bytes, *c = b + row_bytes, *d = c + row_bytes;
    store_bytes(out->group, row, load128(w), load128(b), load128(c), load128(d));
    store_bytes(out->group + 8, row, load128(w + 16), load128(b + 16), load128(c + 16), load128(d + 16));
  }
}

#include "matmul.h"

void ml_k_matmul_q8_sse2(float *y, size_t stride, const ml_qtensor *W, const ml_qact *x, int columns, int r0, int r1) {
  matmul_panels(y, stride, W, x, columns, r0, r1);
}
