/* SPDX-License-Identifier: BSD-3-Clause
 * Products of Q4_0 weights with many vectors (matmul.h). */
#include "neon_dotprod.h"

#define PANEL_ROWS 8
#define MATVEC ml_k_matvec_q4_neon_dotprod

#include "../neon/pack_q4.h"
#include "matmul.h"

void ml_k_matmul_q4_neon_dotprod(float *y, size_t stride, const ml_qtensor *W, const ml_qact *x, int columns, int r0, int r1) {
  matmul_panels(y, stride, W, x, columns, r0, r1);
}
