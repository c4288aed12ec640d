/* SPDX-License-Identifier: BSD-3-Clause
 * Activations as the nibbles of Q4_0 weights lie, for matrix-vector kernels (matvec_rows.h) that take several blocks into one register: activations,
 * prepare and BLOCK_BYTES. */
#ifndef ML_KERNELS_VECTOR_SPLIT_ACTIVATIONS_H
#define ML_KERNELS_VECTOR_SPLIT_ACTIVATIONS_H

#include <string.h>

#include "../inline.h"
#include "../kernels.h"

#define BLOCK_BYTES ML_Q4_BLOCK_BYTES

/* The low halves of all blocks and their high halves; and 8 times the sum of each block. Zeros behind them, since the last group of eight is read to
 * its end. */
typedef struct {
  _Alignas(64) int8_t low[ML_MAX_COLS / 2 + 8 * BLOCK_BYTES];
  _Alignas(64) int8_t high[ML_MAX_COLS / 2 + 8 * BLOCK_BYTES];
  int32_t eight_sums[ML_MAX_COLS / ML_QK + 8];
  const float *d;
} activations;

ML_INLINE void prepare(activations *out, const ml_qact *x) {
  int blocks = x->n / ML_QK;
  out->d = x->d;
  for (int b = 0; b < blocks; b++) {
    memcpy(out->low + b * BLOCK_BYTES, x->q + b * ML_QK, BLOCK_BYTES);
    memcpy(out->high + b * BLOCK_BYTES, x->q + b * ML_QK + BLOCK_BYTES, BLOCK_BYTES);
    out->eight_sums[b] = 8 * x->sums[b];
  }
  memset(out->low + blocks * BLOCK_BYTES, 0, 8 * BLOCK_BYTES);
  memset(out->high + blocks * BLOCK_BYTES, 0, 8 * BLOCK_BYTES);
  memset(out->eight_sums + blocks, 0, 8 * sizeof out->eight_sums[0]);
}

#endif
