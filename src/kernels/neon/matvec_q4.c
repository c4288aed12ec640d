/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q4_0 weights (matvec_q4.h). */
#include <arm_neon.h>

#include "../inline.h"
#include "neon.h"

/* Four products of at most 15 * 127 fit int16. */
ML_INLINE int32x4_t nibble_dot(int8x16_t low, int8x16_t high, const int8_t *q) {
  int8x16_t x0 = vld1q_s8(q), x1 = vld1q_s8(q + 16);
  int16x8_t sum = vmull_s8(vget_low_s8(low), vget_low_s8(x0));
  sum = vmlal_s8(sum, vget_high_s8(low), vget_high_s8(x0));
  sum = vmlal_s8(sum, vget_low_s8(high), vget_low_s8(x1));
  return vpaddlq_s16(vmlal_s8(sum, vget_high_s8(high), vget_high_s8(x1)));
}

#include "matvec_q4.h"

void ml_k_matvec_q4_neon(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1, int apart) {
  matvec_rows(y, W, x, r0, r1, apart);
}
