/* SPDX-License-Identifier: BSD-3-Clause
 * Products of Q8_0 weights with many vectors (sse2/matmul_q8.h). */
#include "sse2.h"

#define MATVEC ml_k_matvec_q8_sse2

#include "matmul_q8.h"

void ml_k_matmul_q8_sse2(float *y, size_t stride, const ml_qtensor *W, const ml_qact *x, int columns, int r0, int r1) {
  matmul_panels(y, stride, W, x, columns, r0, r1);
}
