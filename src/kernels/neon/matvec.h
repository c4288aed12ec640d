/* SPDX-License-Identifier: BSD-3-Clause
 * What the NEON matrix-vector kernels share: adding up partial sums.
 *
 * The including file has defined activations, whose q are the activations and d their scales, BLOCK_BYTES (vector/matvec_rows.h), and
 *   int32x4_t block_dot(const int8_t *w, const int8_t *q)            partial sums of a block
 *   int32x4_t finish(int32x4_t sums, const activations *x, int b)    the integer sums of blocks b to b + 3, from the partial sums added up */
#ifndef ML_KERNELS_NEON_MATVEC_H
#define ML_KERNELS_NEON_MATVEC_H

#include "../inline.h"
#include "eight_lanes.h"

/* a..d hold four partial sums each; lane i of the result is the sum of the i-th. */
ML_INLINE int32x4_t add_up4(int32x4_t a, int32x4_t b, int32x4_t c, int32x4_t d) {
#ifdef __aarch64__
  return vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d));
#else
  int32x2_t ab = vpadd_s32(vpadd_s32(vget_low_s32(a), vget_high_s32(a)), vpadd_s32(vget_low_s32(b), vget_high_s32(b)));
  int32x2_t cd = vpadd_s32(vpadd_s32(vget_low_s32(c), vget_high_s32(c)), vpadd_s32(vget_low_s32(d), vget_high_s32(d)));
  return vcombine_s32(ab, cd);
#endif
}

/* The integer sums of blocks b to b + n - 1 of the row w in order, 0 < n <= 4, the rest 0. */
ML_INLINE int32x4_t four_blocks(const int8_t *w, const activations *x, int b, int n) {
#define BLOCK(i) ((i) < n ? block_dot(w + (b + (i)) * BLOCK_BYTES, x->q + (b + (i)) * ML_QK) : vdupq_n_s32(0))
  return finish(add_up4(BLOCK(0), BLOCK(1), BLOCK(2), BLOCK(3)), x, b);
#undef BLOCK
}

ML_INLINE v8 add_step(v8 sum, const int8_t *w, const float *d, const activations *x, int b) {
  sum.low = add_four(sum.low, four_blocks(w, x, b, 4), d + b, x->d + b, 4);
  FOUR_BLOCKS_ARE_DONE();
  sum.high = add_four(sum.high, four_blocks(w, x, b + 4, 4), d + b + 4, x->d + b + 4, 4);
  return sum;
}

ML_INLINE v8 add_last(v8 sum, const int8_t *w, const float *d, const activations *x, int b, int n) {
  sum.low = n < 4 ? add_four(sum.low, four_blocks(w, x, b, n), d + b, x->d + b, n)
                  : add_four(sum.low, four_blocks(w, x, b, 4), d + b, x->d + b, 4);
  if (n > 4) {
    sum.high = add_four(sum.high, four_blocks(w, x, b + 4, n - 4), d + b + 4, x->d + b + 4, n - 4);
  }
  return sum;
}

#include "../vector/matvec_rows.h"

#endif
