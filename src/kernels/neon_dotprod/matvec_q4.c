/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q4_0 weights (neon/matvec_q4.h). */
#include <arm_neon.h>

#include "../inline.h"
#include "neon_dotprod.h"

ML_INLINE int32x4_t nibble_dot(int8x16_t low, int8x16_t high, const int8_t *q) {
  return vdotq_s32(vdotq_s32(vdupq_n_s32(0), low, vld1q_s8(q)), high, vld1q_s8(q + 16));
}

#include "../neon/matvec_q4.h"

void ml_k_matvec_q4_neon_dotprod(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1, int apart) {
  matvec_rows(y, W, x, r0, r1, apart);
}
