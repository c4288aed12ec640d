/* SPDX-License-Identifier: BSD-3-Clause
 * Panels of unsigned bytes, and one register of sums. The including file has included panel.h and defined
 *   LOAD_BLOCK   load_block_q8 or load_block_q4 */
#ifndef ML_KERNELS_AVX2_PANEL_BYTES_H
#define ML_KERNELS_AVX2_PANEL_BYTES_H

typedef struct {
  panel_group group[8];
} panel_block;

typedef __m256i weights, sums;

ML_INLINE void pack(panel_block *out, const int8_t *w, size_t row_bytes) {
  __m256i groups[8];
  LOAD_BLOCK(groups, w, row_bytes);
  for (int g = 0; g < 8; g++) {
    store_group(&out->group[g], groups[g]);
  }
}

ML_INLINE weights load_weights(const panel_block *w, int g) {
  return load_group(&w->group[g]);
}

ML_INLINE sums sums_zero(void) {
  return _mm256_setzero_si256();
}

#endif
