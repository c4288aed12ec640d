/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q4_0 weights: the nibble as it is, 0 to 15, times x; 8 times the sum of the activations is taken off. SDOT leaves four partial
 * sums of a block, so a vector holds one block or more. */
#include <arm_neon.h>

#include "../inline.h"
#include "add_up.h"
#include "sve.h"

#include "../vector/split_activations.h"

ML_INLINE svint32_t dot(svbool_t which, const int8_t *w, const int8_t *low, const int8_t *high) {
  svuint8_t nibbles = svreinterpret_u8(svld1(which, w));
  svint32_t sum = svdot(svdup_s32(0), svreinterpret_s8(svand_x(which, nibbles, 15)), svld1(which, low));
  return svdot(sum, svreinterpret_s8(svlsr_x(which, nibbles, 4)), svld1(which, high));
}

ML_INLINE void eight_blocks(int32_t sums[8], const int8_t *w, const activations *x, int b, int n) {
  const int8_t *low = x->low + b * 16, *high = x->high + b * 16;
/* Vector i, of `length` bytes, of the partial sums of all blocks. */
#define VECTOR(i, length) \
  dot(existing((i) * (length), n, BLOCK_BYTES, length), w + (i) * (length), low + (i) * (length), high + (i) * (length))
  switch (svcntb()) {
  case 16:
    store_lanes(sums, add_up4(VECTOR(0, 16), VECTOR(1, 16), VECTOR(2, 16), VECTOR(3, 16)), 4);
    if (n > 4) {
      store_lanes(sums + 4, add_up4(VECTOR(4, 16), VECTOR(5, 16), VECTOR(6, 16), VECTOR(7, 16)), 4);
    }
    break;
  case 32: store_lanes(sums, add_up4(VECTOR(0, 32), VECTOR(1, 32), VECTOR(2, 32), VECTOR(3, 32)), 8); break;
  case 64: store_lanes(sums, add_up1(add_up2(VECTOR(0, 64), VECTOR(1, 64))), 8); break;
  case 128:
  case 256: store_lanes(sums, add_up1(add_up1(VECTOR(0, (int)svcntb()))), 8); break;
  default: /* 48, 80 and so on, which early versions of the architecture allow and no CPU has: a block at a time */
    for (int i = 0; i < 8; i++) {
      svbool_t block = svwhilelt_b8(0, i < n ? BLOCK_BYTES : 0);
      sums[i] = (int32_t)svaddv(svptrue_b32(), dot(block, w + i * BLOCK_BYTES, low + i * 16, high + i * 16));
    }
  }
#undef VECTOR
  vst1q_s32(sums, vsubq_s32(vld1q_s32(sums), vld1q_s32(x->eight_sums + b)));
  if (n > 4) {
    vst1q_s32(sums + 4, vsubq_s32(vld1q_s32(sums + 4), vld1q_s32(x->eight_sums + b + 4)));
  }
}

#include "matvec.h"

void ml_k_matvec_q4_sve(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1, int apart) {
  matvec_rows(y, W, x, r0, r1, apart);
}
