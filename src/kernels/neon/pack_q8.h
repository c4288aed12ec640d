/* SPDX-License-Identifier: BSD-3-Clause
 * A block of Q8_0 weights of a panel (vector/matmul_panels.h says what pack is). */
#ifndef ML_KERNELS_NEON_PACK_Q8_H
#define ML_KERNELS_NEON_PACK_Q8_H

#include "panel.h"

#define BLOCK_BYTES ML_Q8_BLOCK_BYTES

ML_INLINE void pack(panel_block *out, const int8_t *w, size_t row_bytes) {
  for (int r = 0; r < PANEL_ROWS; r += 4, w += 4 * row_bytes) {
    store_words(out, 0, r, transpose_words(w, row_bytes));
    store_words(out, 4, r, transpose_words(w + 16, row_bytes));
  }
}

#endif
