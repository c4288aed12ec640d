/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q4_0 weights: an exact integer sum for every block, eight lanes over the blocks. */
#include <stddef.h>

#include "fold.h"
#include "scalar.h"

static float row_product(const ml_qtensor *W, const ml_qact *x, int r) {
  int blocks = W->cols / ML_QK;
  const uint8_t *w = (const uint8_t *)W->q + (size_t)r * (size_t)blocks * ML_Q4_BLOCK_BYTES;
  const float *d = W->d + (size_t)r * (size_t)blocks;
  float lane[8] = {0};
  for (int b = 0; b < blocks; b++) {
    int32_t sum = 0;
    for (int i = 0; i < ML_Q4_BLOCK_BYTES; i++) {
      int byte = w[b * ML_Q4_BLOCK_BYTES + i];
      sum += (byte % 16 - 8) * x->q[b * ML_QK + i];
      sum += (byte / 16 - 8) * x->q[b * ML_QK + 16 + i];
    }
    lane[b % 8] = lane[b % 8] + (float)sum * (d[b] * x->d[b]);
  }
  return ml_fold(lane, 8);
}

void ml_k_matvec_q4_scalar(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1, int apart) {
  for (int i = 0; i < (apart > 0 ? ML_MATVEC_STREAMS : 1); i++, r0 += apart, r1 += apart) {
    for (int r = r0; r < r1; r++) {
      y[r] = row_product(W, x, r);
    }
  }
}
