/* SPDX-License-Identifier: BSD-3-Clause
 * One of several vectors that lie one behind the other. */
#ifndef ML_KERNELS_SCALAR_COLUMNS_H
#define ML_KERNELS_SCALAR_COLUMNS_H

#include <stddef.h>

#include "../../core/quant.h"
#include "../../core/tensor.h"

static inline ml_qact ml_column(const ml_qact *x, int c) {
  size_t first = (size_t)c * (size_t)x->n, block = first / ML_QK;
  return (ml_qact){.q = x->q + first, .d = x->d + block, .sums = x->sums + block, .n = x->n};
}

#endif
