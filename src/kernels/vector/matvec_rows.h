/* SPDX-License-Identifier: BSD-3-Clause
 * The rows of a matrix-vector product, the same for every vector ISA and both block formats.
 *
 * The including file has defined
 *   activations              x as the kernel wants it, made once per call
 *   BLOCK_BYTES              bytes of one block of weights
 *   STEP                     blocks of one step, a multiple of 8
 *   ROWS                     rows taken at once, 1 or 2
 *   v8                       the eight lanes of a sum, in as many registers as the ISA needs; v8_zero(), float v8_fold(v8)
 *   v8 add_step(v8 sum, const int8_t *w, const float *d, const activations *x, int b)          sum + the terms of blocks b to b + STEP - 1
 *   v8 add_last(v8 sum, const int8_t *w, const float *d, const activations *x, int b, int n)   sum + those of the last n blocks, 0 < n < STEP
 * where w and d are the quants and scales of the row. */
#ifndef ML_KERNELS_VECTOR_MATVEC_ROWS_H
#define ML_KERNELS_VECTOR_MATVEC_ROWS_H

#include <stddef.h>

#include "../inline.h"
#include "../prefetch.h"

ML_INLINE void matvec_rows(float *y, const ml_qtensor *W, const activations *x, int r0, int r1) {
  int blocks = W->cols / ML_QK, whole = blocks / STEP * STEP;
  size_t row_bytes = (size_t)blocks * BLOCK_BYTES;
  int r = r0;
  /* Two rows share the loads of x and lie side by side. */
  for (; ROWS == 2 && r + 2 <= r1; r += 2) {
    const int8_t *w0 = W->q + (size_t)r * row_bytes, *w1 = w0 + row_bytes;
    const float *d0 = W->d + (size_t)r * (size_t)blocks, *d1 = d0 + blocks;
    v8 sum0 = v8_zero(), sum1 = v8_zero();
    for (int b = 0; b < whole; b += STEP) {
      ml_prefetch_ahead(w0 + 2 * b * BLOCK_BYTES, 2 * STEP * BLOCK_BYTES);
      sum0 = add_step(sum0, w0, d0, x, b);
      sum1 = add_step(sum1, w1, d1, x, b);
    }
    if (whole < blocks) {
      ml_prefetch_ahead(w0 + 2 * whole * BLOCK_BYTES, 2 * (blocks - whole) * BLOCK_BYTES);
      sum0 = add_last(sum0, w0, d0, x, whole, blocks - whole);
      sum1 = add_last(sum1, w1, d1, x, whole, blocks - whole);
    }
    y[r] = v8_fold(sum0);
    y[r + 1] = v8_fold(sum1);
  }
  for (; r < r1; r++) {
    const int8_t *w = W->q + (size_t)r * row_bytes;
    const float *d = W->d + (size_t)r * (size_t)blocks;
    v8 sum = v8_zero();
    for (int b = 0; b < whole; b += STEP) {
      ml_prefetch_ahead(w + b * BLOCK_BYTES, STEP * BLOCK_BYTES);
      sum = add_step(sum, w, d, x, b);
    }
    if (whole < blocks) {
      ml_prefetch_ahead(w + whole * BLOCK_BYTES, (blocks - whole) * BLOCK_BYTES);
      sum = add_last(sum, w, d, x, whole, blocks - whole);
    }
    y[r] = v8_fold(sum);
  }
}

#endif
