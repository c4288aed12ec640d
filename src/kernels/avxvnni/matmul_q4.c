/* SPDX-License-Identifier: BSD-3-Clause
 * Products of Q4_0 weights with many vectors (matmul.h): the nibble as it is, 0 to 15, is the unsigned operand. */
#include "../inline.h"
#include "../avx2/panel.h"
#include "avxvnni.h"

#define BLOCK_BYTES ML_Q4_BLOCK_BYTES
#define MATVEC ml_k_matvec_q4_avxvnni
#define LOAD_BLOCK load_block_q4
#define OFFSET_BITS 3

#include "matmul.h"

void ml_k_matmul_q4_avxvnni(float *y, size_t stride, const ml_qtensor *W, const ml_qact *x, int columns, int r0, int r1) {
  matmul_panels(y, stride, W, x, columns, r0, r1);
}
