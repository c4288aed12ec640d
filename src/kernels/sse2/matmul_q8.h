/* SPDX-License-Identifier: BSD-3-Clause
 * Products of Q8_0 weights with many vectors (matmul.h), weights as int16: pmovsxbw, and pmaddubsw with signs, were no faster where there is SSE4.1.
 * The including file has defined MATVEC. */
#ifndef ML_KERNELS_SSE2_MATMUL_Q8_H
#define ML_KERNELS_SSE2_MATMUL_Q8_H

#include "panel_int16.h"

#define BLOCK_BYTES ML_Q8_BLOCK_BYTES

ML_INLINE void pack(panel_block *out, const int8_t *w, size_t row_bytes) {
  for (int row = 0; row < PANEL_ROWS; row += 4, w += 4 * row_bytes) {
    const int8_t *b = w + row_bytes, *c = b + row_bytes, *d = c + row_bytes;
    store_bytes(out->group, row, load128(w), load128(b), load128(c), load128(d));
    store_bytes(out->group + 8, row, load128(w + 16), load128(b + 16), load128(c + 16), load128(d + 16));
  }
}

#include "matmul.h"

#endif
