/* SPDX-License-Identifier: BSD-3-Clause
 * Products with many vectors: vpdpbusd takes unsigned weights. The including file has included avx2/panel.h and defined BLOCK_BYTES, MATVEC,
 * LOAD_BLOCK (avx2/panel_bytes.h) and
 *   OFFSET_BITS   weights have 2^OFFSET_BITS added, which is taken off times the sum of the activations */
#ifndef ML_KERNELS_AVXVNNI_MATMUL_H
#define ML_KERNELS_AVXVNNI_MATMUL_H

#include "../avx2/panel_bytes.h"

ML_INLINE sums add_group(sums s, weights w, __m256i x) {
  return _mm256_dpbusd_avx_epi32(s, w, x);
}

ML_INLINE __m256i finish(sums s, int32_t block_sum) {
  return _mm256_sub_epi32(s, _mm256_slli_epi32(_mm256_set1_epi32(block_sum), OFFSET_BITS));
}

#include "../avx2/matmul_columns.h"

#endif
