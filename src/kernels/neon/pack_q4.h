/* SPDX-License-Identifier: BSD-3-Clause
 * A block of Q4_0 weights of a panel, as bytes from -8 to 7 (vector/matmul_panels.h says what pack is). */
#ifndef ML_KERNELS_NEON_PACK_Q4_H
#define ML_KERNELS_NEON_PACK_Q4_H

#include "panel.h"

#define BLOCK_BYTES ML_Q4_BLOCK_BYTES

ML_INLINE int8x16_t low_weights(int8x16_t nibbles) {
  return vsubq_s8(vandq_s8(nibbles, vdupq_n_s8(15)), vdupq_n_s8(8));
}

ML_INLINE int8x16_t high_weights(int8x16_t nibbles) {
  return vsubq_s8(vreinterpretq_s8_u8(vshrq_n_u8(vreinterpretq_u8_s8(nibbles), 4)), vdupq_n_s8(8));
}

ML_INLINE void pack(panel_block *out, const int8_t *w, size_t row_bytes) {
  for (int r = 0; r < PANEL_ROWS; r += 4, w += 4 * row_bytes) {
    int8x16x4_t words = transpose_words(w, row_bytes);
#define EACH(half) ((int8x16x4_t){{half(words.val[0]), half(words.val[1]), half(words.val[2]), half(words.val[3])}})
    store_words(out, 0, r, EACH(low_weights));
    store_words(out, 4, r, EACH(high_weights));
#undef EACH
  }
}

#endif
