/* SPDX-License-Identifier: BSD-3-Clause
 * Products with several vectors, one after the other. */
#include "scalar.h"

void ml_k_matmul_q8_scalar(float *y, size_t stride, const ml_qtensor *W, const ml_qact *x, int columns, int r0, int r1) {
  for (int c = 0; c < columns; c++) {
    ml_qact column = ml_qact_column(x, c);
    ml_k_matvec_q8_scalar(y + (size_t)c * stride, W, &column, r0, r1, 0);
  }
}
