/* SPDX-License-Identifier: BSD-3-Clause
 * Products with many vectors: four registers are sixteen rows. The including file has defined panel_block, pack, BLOCK_BYTES, MATVEC
 * (vector/matmul_panels.h) and
 *   row_sums block_sums(const panel_block *w, const int8_t *x, int32_t sum)   the integer sums of a block; sum is that of x's 32 quants */
#ifndef ML_KERNELS_SSE2_MATMUL_H
#define ML_KERNELS_SSE2_MATMUL_H

#include "panel.h"
#include "v16.h"

#include "../vector/vf_of_4.h"

ML_INLINE void add_terms(float *lane, int first, __m128i s, const float *d, __m128 dx) {
  __m128 term = _mm_mul_ps(_mm_cvtepi32_ps(s), _mm_mul_ps(_mm_load_ps(d), dx));
  _mm_store_ps(lane, _mm_add_ps(first ? _mm_setzero_ps() : _mm_load_ps(lane), term));
}

ML_INLINE void add_block(float *lane, int first, const panel_block *w, const float *d, const ml_qact *x, int b, int columns) {
  const int8_t *q = x->q + (size_t)b * ML_QK;
  const float *dx = x->d + b;
  const int32_t *sum = x->sums + b;
  int blocks = x->n / ML_QK;
  for (int c = 0; c < columns; c++, q += x->n, dx += blocks, sum += blocks, lane += PANEL_ROWS) {
    ML_REREAD(w);
    row_sums s = block_sums(w, q, *sum);
    __m128 scale = _mm_set1_ps(*dx);
    add_terms(lane, first, s.a, d, scale);
    add_terms(lane + 4, first, s.b, d + 4, scale);
    add_terms(lane + 8, first, s.c, d + 8, scale);
    add_terms(lane + 12, first, s.d, d + 12, scale);
  }
}

#include "../vector/matmul_panels.h"

#endif
