/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q8_0 weights: products of bytes as int16, two of them added before they are widened. */
#include <arm_neon.h>

#include "../inline.h"
#include "neon.h"

#include "../vector/plain_activations.h"

/* A product is at most 128 * 127: two of them, 32512, fit int16. */
ML_INLINE int32x4_t block_dot(const int8_t *w, const int8_t *q) {
  int8x16_t w0 = vld1q_s8(w), w1 = vld1q_s8(w + 16), x0 = vld1q_s8(q), x1 = vld1q_s8(q + 16);
  int16x8_t low = vmlal_s8(vmull_s8(vget_low_s8(w0), vget_low_s8(x0)), vget_low_s8(w1), vget_low_s8(x1));
  int16x8_t high = vmlal_s8(vmull_s8(vget_high_s8(w0), vget_high_s8(x0)), vget_high_s8(w1), vget_high_s8(x1));
  return vpadalq_s16(vpaddlq_s16(low), high);
}

#define FINISH(sums, x, b) (sums)

#include "matvec.h"

void ml_k_matvec_q8_neon(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1, int apart) {
  matvec_rows(y, W, x, r0, r1, apart);
}
