/* SPDX-License-Identifier: BSD-3-Clause
 * The rows of a matrix-vector product, the same for every vector ISA and both block formats.
 *
 * The including file has defined
 *   activations              x as the kernel wants it; void prepare(activations *out, const ml_qact *x), once per call
 *   BLOCK_BYTES              bytes of one block of weights
 *   STREAMS                  rows taken at once, far apart: memory is read ahead in so many places, and the loads of x are shared; divides
 *                            ML_MATVEC_STREAMS
 *   v8                       the eight lanes of a sum, in as many registers as the ISA needs; v8_zero(), float v8_fold(v8)
 *   v8 add_terms(v8 sum, const int8_t *w, const float *d, const activations *x, int b, int n)
 *                            sum + the terms of the n blocks with quants at w and scales at d, and blocks b to b + n - 1 of x, 0 < n <= 8
 * and, where eight blocks take hardly longer than one,
 *   ROWS_GO_ON               a step goes on from one row to the next; v8_add(v8, v8), v8_before(v8 a, int n) and v8_from(v8 a, int n): lanes
 *                            below n, or from n on, the others +0, 0 < n < 8 */
#ifndef ML_KERNELS_VECTOR_MATVEC_ROWS_H
#define ML_KERNELS_VECTOR_MATVEC_ROWS_H

#include <stddef.h>
#include <string.h>

#include "../inline.h"
#include "../kernels.h"
#include "../prefetch.h"

enum { STEP = 8 }; /* blocks of a step, one for each lane */

#ifdef ROWS_GO_ON

/* Rows that do not end with a step: the last step, of which `left` blocks are theirs, goes on with the first blocks of the next row, so that block b of
 * that row is in lane (b + left) % 8. Folding adds the same pairs of lanes then, some the other way round, which gives the same bits. In long rows
 * there is little to win. */
enum { LONGEST = 128 }; /* blocks */

ML_INLINE int goes_on(int blocks) {
  return blocks % STEP != 0 && blocks > STEP && blocks <= LONGEST;
}

/* x with its first step once more behind its end. */
typedef struct {
  _Alignas(64) int8_t q[(LONGEST + STEP) * ML_QK];
  float d[LONGEST + STEP];
  int32_t sums[LONGEST + STEP];
} longer;

ML_INLINE ml_qact lengthen(longer *out, const ml_qact *x) {
  size_t blocks = (size_t)x->n / ML_QK;
  memcpy(out->q, x->q, blocks * ML_QK);
  memcpy(out->q + blocks * ML_QK, x->q, STEP * ML_QK);
  memcpy(out->d, x->d, blocks * sizeof *x->d);
  memcpy(out->d + blocks, x->d, STEP * sizeof *x->d);
  memcpy(out->sums, x->sums, blocks * sizeof *x->sums);
  memcpy(out->sums + blocks, x->sums, STEP * sizeof *x->sums);
  return (ml_qact){.q = out->q, .d = out->d, .sums = out->sums, .n = x->n + STEP * ML_QK};
}

#endif

/* sum[k] + the terms of n blocks of stream k, the streams `next` blocks apart. */
ML_INLINE void add_to_all(v8 *sum, const int8_t *w, const float *d, size_t next, const activations *x, int b, int n, int streams) {
  ML_UNROLL for (int k = 0; k < streams; k++) {
    const int8_t *from = w + (size_t)k * next * BLOCK_BYTES;
    ml_prefetch_ahead(from, STEP * BLOCK_BYTES);
    sum[k] = add_terms(sum[k], from, d + (size_t)k * next, x, b, n);
  }
}

/* `rows` rows from r on, and those that lie `apart` below each; with go_on x is lengthened. */
ML_INLINE void stream_rows(float *y, const ml_qtensor *W, const activations *x, int r, int rows, int streams, int apart, int go_on) {
  int blocks = W->cols / ML_QK, b = 0;
  size_t first = (size_t)r * (size_t)blocks, next = (size_t)apart * (size_t)blocks;
  /* Where the next step begins; the end of a row is the beginning of the next. */
  const int8_t *w = W->q + first * BLOCK_BYTES;
  const float *d = W->d + first;
  v8 sum[STREAMS];
  ML_UNROLL for (int k = 0; k < streams; k++) {
    sum[k] = v8_zero();
  }
  for (int end = r + rows; r < end; r++) {
    for (; b <= blocks - STEP; b += STEP, w += STEP * BLOCK_BYTES, d += STEP) {
      add_to_all(sum, w, d, next, x, b, STEP, streams);
    }
    int left = blocks - b;
    (void)go_on;
#ifdef ROWS_GO_ON
    if (go_on && left > 0 && r + 1 < end) {
      v8 both[STREAMS];
      ML_UNROLL for (int k = 0; k < streams; k++) {
        both[k] = v8_zero();
      }
      add_to_all(both, w, d, next, x, b, STEP, streams);
      ML_UNROLL for (int k = 0; k < streams; k++) {
        y[r + k * apart] = v8_fold(v8_add(sum[k], v8_before(both[k], left)));
        sum[k] = v8_from(both[k], left);
      }
      b = STEP - left;
      w += STEP * BLOCK_BYTES;
      d += STEP;
      continue;
    }
#endif
    if (left > 0) {
      add_to_all(sum, w, d, next, x, b, left, streams);
      w += left * BLOCK_BYTES;
      d += left;
    }
    ML_UNROLL for (int k = 0; k < streams; k++) {
      y[r + k * apart] = v8_fold(sum[k]);
      sum[k] = v8_zero();
    }
    b = 0;
  }
}

ML_INLINE void all_rows(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1, int apart, int go_on) {
  activations a;
  prepare(&a, x);
  /* Without others to go with, the rows are taken in quarters of their own. */
  int rows = apart > 0 ? r1 - r0 : (r1 - r0) / ML_MATVEC_STREAMS, distance = apart > 0 ? apart : rows;
  for (int first = r0; first < r0 + ML_MATVEC_STREAMS * distance; first += STREAMS * distance) {
    stream_rows(y, W, &a, first, rows, STREAMS, distance, go_on);
  }
  if (apart == 0) {
    r0 += ML_MATVEC_STREAMS * rows;
    stream_rows(y, W, &a, r0, r1 - r0, 1, 0, 0);
  }
}

/* With rows that go on compiled apart: for all others b is 0 at the end of a row, and what belongs to x is read once. */
ML_INLINE void matvec_rows(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1, int apart) {
#ifdef ROWS_GO_ON
  if (goes_on(W->cols / ML_QK)) {
    longer buffer;
    ml_qact lengthened = lengthen(&buffer, x);
    all_rows(y, W, &lengthened, r0, r1, apart, 1);
    return;
  }
#endif
  all_rows(y, W, x, r0, r1, apart, 0);
}

#endif
