/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q8_0 weights: SDOT adds four products to each lane. */
#include <arm_neon.h>

#include "../inline.h"
#include "neon_dotprod.h"

#include "../vector/plain_activations.h"

ML_INLINE int32x4_t block_dot(const int8_t *w, const int8_t *q) {
  return vdotq_s32(vdotq_s32(vdupq_n_s32(0), vld1q_s8(w), vld1q_s8(q)), vld1q_s8(w + 16), vld1q_s8(q + 16));
}

#define FINISH(sums, x, b) (sums)

#include "../neon/matvec.h"

void ml_k_matvec_q8_neon_dotprod(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1, int apart) {
  matvec_rows(y, W, x, r0, r1, apart);
}
