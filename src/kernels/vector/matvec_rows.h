/* SPDX-License-Identifier: BSD-3-Clause
 * The rows of a matrix-vector product, the same for every vector ISA and both block formats.
 *
 * The including file has defined
 *   activations              x as the kernel wants it, made once per call
 *   BLOCK_BYTES              bytes of one block of weights
 *   STEP                     blocks of one step, a multiple of 8
 *   STREAMS                  rows taken at once, far apart: memory is read ahead in so many places, and the loads of x are shared; divides
 *                            ML_MATVEC_STREAMS
 *   v8                       the eight lanes of a sum, in as many registers as the ISA needs; v8_zero(), float v8_fold(v8)
 *   v8 add_step(v8 sum, const int8_t *w, const float *d, const activations *x, int b)          sum + the terms of blocks b to b + STEP - 1
 *   v8 add_last(v8 sum, const int8_t *w, const float *d, const activations *x, int b, int n)   sum + those of the last n blocks, 0 < n < STEP
 * where w and d are the quants and scales of the row. */
#ifndef ML_KERNELS_VECTOR_MATVEC_ROWS_H
#define ML_KERNELS_VECTOR_MATVEC_ROWS_H

#include <stddef.h>

#include "../inline.h"
#include "../prefetch.h"

/* The rows from r on, `apart` rows from one to the next. */
ML_INLINE void stream_rows(float *y, const ml_qtensor *W, const activations *x, int r, int streams, int apart) {
  int blocks = W->cols / ML_QK, whole = blocks / STEP * STEP;
  size_t next_w = (size_t)apart * (size_t)blocks * BLOCK_BYTES, next_d = (size_t)apart * (size_t)blocks;
  const int8_t *w = W->q + (size_t)r * (size_t)blocks * BLOCK_BYTES;
  const float *d = W->d + (size_t)r * (size_t)blocks;
  v8 sum[STREAMS];
  ML_UNROLL for (int k = 0; k < streams; k++) {
    sum[k] = v8_zero();
  }
  for (int b = 0; b < whole; b += STEP) {
    ML_UNROLL for (int k = 0; k < streams; k++) {
      const int8_t *from = w + (size_t)k * next_w;
      ml_prefetch_ahead(from + b * BLOCK_BYTES, STEP * BLOCK_BYTES);
      sum[k] = add_step(sum[k], from, d + (size_t)k * next_d, x, b);
    }
  }
  if (whole < blocks) {
    ML_UNROLL for (int k = 0; k < streams; k++) {
      const int8_t *from = w + (size_t)k * next_w;
      ml_prefetch_ahead(from + whole * BLOCK_BYTES, (blocks - whole) * BLOCK_BYTES);
      sum[k] = add_last(sum[k], from, d + (size_t)k * next_d, x, whole, blocks - whole);
    }
  }
  ML_UNROLL for (int k = 0; k < streams; k++) {
    y[r + k * apart] = v8_fold(sum[k]);
  }
}

ML_INLINE void matvec_rows(float *y, const ml_qtensor *W, const activations *x, int r0, int r1, int apart) {
  /* Without others to go with, the rows are taken in quarters of their own. */
  int rows = apart > 0 ? r1 - r0 : (r1 - r0) / ML_MATVEC_STREAMS, distance = apart > 0 ? apart : rows;
  for (int first = r0; first < r0 + ML_MATVEC_STREAMS * distance; first += STREAMS * distance) {
    for (int r = first; r < first + rows; r++) {
      stream_rows(y, W, x, r, STREAMS, distance);
    }
  }
  for (int r = r0 + ML_MATVEC_STREAMS * rows; apart == 0 && r < r1; r++) {
    stream_rows(y, W, x, r, 1, 0);
  }
}

#endif
