/* SPDX-License-Identifier: BSD-3-Clause
 * Products of Q8_0 weights with many vectors (matmul.h): w + 128 is the unsigned operand. */
#include "../inline.h"
#include "../avx2/panel.h"
#include "avxvnni.h"

#define BLOCK_BYTES ML_Q8_BLOCK_BYTES
#define MATVEC ml_k_matvec_q8_avxvnni
#define LOAD_BLOCK load_block_q8
#define OFFSET_BITS 7

#include "matmul.h"

void ml_k_matmul_q8_avxvnni(float *y, size_t stride, const ml_qtensor *W, const ml_qact *x, int columns, int r0, int r1) {
  matmul_panels(y, stride, W, x, columns, r0, r1);
}
