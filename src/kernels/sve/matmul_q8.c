/* SPDX-License-Identifier: BSD-3-Clause
 * Products of Q8_0 weights with many vectors (matmul.h). */
#include "sve.h"

#define PANEL_ROWS 16
#define MATVEC ml_k_matvec_q8_sve

#include "../neon/pack_q8.h"
#include "matmul.h"

void ml_k_matmul_q8_sve(float *y, size_t stride, const ml_qtensor *W, const ml_qact *x, int columns, int r0, int r1) {
  matmul_panels(y, stride, W, x, columns, r0, r1);
}
