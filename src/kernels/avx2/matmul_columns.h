/* SPDX-License-Identifier: BSD-3-Clause
 * The columns of a product with 256-bit registers, four at a time, so that weights that were loaded serve four. The including file has included
 * panel.h and defined
 *   weights     four bytes of eight rows as the multiplication wants them; weights load_weights(const panel_block *w, int g), 0 <= g < 8
 *   sums        what the products of a block add up to; sums_zero(), sums add_group(sums s, weights w, __m256i x)
 *   __m256i finish(sums s, int32_t block_sum)   the integer sums of a block; block_sum is that of its activations */
#ifndef ML_KERNELS_AVX2_MATMUL_COLUMNS_H
#define ML_KERNELS_AVX2_MATMUL_COLUMNS_H

/* lane += (float)s * (dw * dx) */
ML_INLINE void add_terms(float *lane, int first, __m256i s, __m256 dw, float dx) {
  __m256 term = _mm256_mul_ps(_mm256_cvtepi32_ps(s), _mm256_mul_ps(dw, _mm256_set1_ps(dx)));
  _mm256_store_ps(lane, _mm256_add_ps(first ? _mm256_setzero_ps() : _mm256_load_ps(lane), term));
}

ML_INLINE void add_block(float *lane, int first, const panel_block *w, const float *d, const ml_qact *x, int b, int columns) {
  __m256 dw = _mm256_load_ps(d);
  int n = x->n, blocks = n / ML_QK, c = 0;
  const int8_t *q = x->q + (size_t)b * ML_QK;
  const float *dx = x->d + b;
  const int32_t *block_sums = x->sums + b;
  for (; c + 4 <= columns; c += 4, q += 4 * n, dx += 4 * blocks, block_sums += 4 * blocks, lane += 4 * PANEL_ROWS) {
    const int8_t *q1 = q + n, *q2 = q1 + n, *q3 = q2 + n;
    ML_REREAD(w);
    sums s0 = sums_zero(), s1 = sums_zero(), s2 = sums_zero(), s3 = sums_zero();
    ML_UNROLL for (int g = 0; g < 8; g++) {
      weights four = load_weights(w, g);
      s0 = add_group(s0, four, spread(q + 4 * g));
      s1 = add_group(s1, four, spread(q1 + 4 * g));
      s2 = add_group(s2, four, spread(q2 + 4 * g));
      s3 = add_group(s3, four, spread(q3 + 4 * g));
    }
    add_terms(lane, first, finish(s0, block_sums[0]), dw, dx[0]);
    add_terms(lane + PANEL_ROWS, first, finish(s1, block_sums[blocks]), dw, dx[blocks]);
    add_terms(lane + 2 * PANEL_ROWS, first, finish(s2, block_sums[2 * blocks]), dw, dx[2 * blocks]);
    add_terms(lane + 3 * PANEL_ROWS, first, finish(s3, block_sums[3 * blocks]), dw, dx[3 * blocks]);
  }
  for (; c < columns; c++, q += n, dx += blocks, block_sums += blocks, lane += PANEL_ROWS) {
    sums s = sums_zero();
    for (int g = 0; g < 8; g++) {
      s = add_group(s, load_weights(w, g), spread(q + 4 * g));
    }
    add_terms(lane, first, finish(s, *block_sums), dw, *dx);
  }
}

#include "../vector/matmul_panels.h"

#endif
