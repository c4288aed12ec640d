/* SPDX-License-Identifier: BSD-3-Clause
 * What the kernels work on: a quantized matrix and a quantized vector. */
#ifndef ML_CORE_TENSOR_H
#define ML_CORE_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "quant.h"

/* rows x cols weights, cols a multiple of ML_QK and at most ML_MAX_COLS. Quants and scales are separate arrays, row after row. */
typedef struct ml_qtensor {
  const int8_t *q; /* ML_Q8_0: rows * cols bytes; ML_Q4_0: rows * cols / 2 bytes */
  const float *d;  /* rows * cols / ML_QK scales */
  int rows, cols;
  uint8_t type; /* ML_Q8_0 or ML_Q4_0 */
} ml_qtensor;

/* n activations as Q8_0, n a multiple of ML_QK; quants within -127..127. Where several vectors are multiplied at once they lie one behind the
 * other in each array, and n is that of one. */
typedef struct ml_qact {
  int8_t *q;     /* n quants */
  float *d;      /* n / ML_QK scales */
  int32_t *sums; /* n / ML_QK: the sum of each block's quants, which kernels that multiply with unsigned weights need */
  int n;
} ml_qact;

/* Vector c of those that lie one behind the other in x. */
static inline ml_qact ml_qact_column(const ml_qact *x, int c) {
  size_t first = (size_t)c * (size_t)x->n, block = first / ML_QK;
  return (ml_qact){.q = x->q + first, .d = x->d + block, .sums = x->sums + block, .n = x->n};
}

#endif
