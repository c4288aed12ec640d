/* SPDX-License-Identifier: BSD-3-Clause
 * Products with many vectors: vpdpbusd takes unsigned weights. The including file has included avx2/panel.h and defined BLOCK_BYTES, MATVEC and
 *   LOAD_BLOCK    load_block_q8 or load_block_q4
 *   OFFSET_BITS   its weights have 2^OFFSET_BITS added, which is taken off times the sum of the activations */
#ifndef ML_KERNELS_AVXVNNI_MATMUL_H
#define ML_KERNELS_AVXVNNI_MATMUL_H

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

ML_INLINE sums add_group(sums s, weights w, __m256i x) {
  return _mm256_dpbusd_avx_epi32(s, w, x);
}

ML_INLINE __m256i finish(sums s, int32_t block_sum) {
  return _mm256_sub_epi32(s, _mm256_slli_epi32(_mm256_set1_epi32(block_sum), OFFSET_BITS));
}

#include "../avx2/matmul_columns.h"

#endif
