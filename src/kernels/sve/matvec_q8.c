/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q8_0 weights: SDOT adds four products to each lane, so a block leaves eight partial sums, of which a vector holds four or more. */
#include "../inline.h"
#include "add_up.h"
#include "sve.h"

#include "../vector/plain_activations.h"

ML_INLINE svint32_t dot(svbool_t which, svint32_t sum, const int8_t *w, const int8_t *q) {
  return svdot(sum, svld1(which, w), svld1(which, q));
}

ML_INLINE void eight_blocks(int32_t sums[8], const int8_t *w, const activations *x, int b, int n) {
  const int8_t *q = x->q + b * ML_QK;
  const svint32_t zero = svdup_s32(0);
/* Vector i, of `length` bytes, of the partial sums of all blocks. */
#define VECTOR(i, length) dot(existing((i) * (length), n, BLOCK_BYTES, length), zero, w + (i) * (length), q + (i) * (length))
  switch (svcntb()) {
  case 16: /* half a block: both halves add to the same four lanes */
#define BLOCK(i) dot(existing(32 * (i) + 16, n, BLOCK_BYTES, 16), VECTOR(2 * (i), 16), w + 32 * (i) + 16, q + 32 * (i) + 16)
    store_lanes(sums, add_up4(BLOCK(0), BLOCK(1), BLOCK(2), BLOCK(3)), 4);
    if (n > 4) {
      store_lanes(sums + 4, add_up4(BLOCK(4), BLOCK(5), BLOCK(6), BLOCK(7)), 4);
    }
#undef BLOCK
    return;
  case 32:
    store_lanes(sums,
                add_up2(add_up4(VECTOR(0, 32), VECTOR(1, 32), VECTOR(2, 32), VECTOR(3, 32)),
                        add_up4(VECTOR(4, 32), VECTOR(5, 32), VECTOR(6, 32), VECTOR(7, 32))),
                8);
    return;
  case 64: store_lanes(sums, add_up1(add_up4(VECTOR(0, 64), VECTOR(1, 64), VECTOR(2, 64), VECTOR(3, 64))), 8); return;
  case 128: store_lanes(sums, add_up1(add_up1(add_up2(VECTOR(0, 128), VECTOR(1, 128)))), 8); return;
  case 256: store_lanes(sums, add_up1(add_up1(add_up1(VECTOR(0, 256)))), 8); return;
  default: /* 48, 80 and so on, which early versions of the architecture allow and no CPU has: a block at a time */
    for (int i = 0; i < 8; i++) {
      svbool_t block = svwhilelt_b8(0, i < n ? BLOCK_BYTES : 0);
      sums[i] = (int32_t)svaddv(svptrue_b32(), dot(block, zero, w + i * BLOCK_BYTES, q + i * ML_QK));
    }
  }
#undef VECTOR
}

#include "matvec.h"

void ml_k_matvec_q8_sve(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1, int apart) {
  matvec_rows(y, W, x, r0, r1, apart);
}
