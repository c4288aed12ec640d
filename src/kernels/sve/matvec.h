/* SPDX-License-Identifier: BSD-3-Clause
 * What the two matrix-vector kernels share: reduction trees for any vector length, and the float part, which is NEON.
 *
 * The integer sums of eight blocks go from SVE to NEON through memory. Nothing waits for it: the next step depends on the float sums alone.
 *
 * The including file has defined activations, whose d are the scales, prepare and BLOCK_BYTES (vector/matvec_rows.h), and
 *   void eight_blocks(int32_t sums[8], const int8_t *w, const activations *x, int b, int n)
 *                      the integer sums of the n blocks at w with blocks b to b + n - 1 of x in order, 0 < n <= 8, the rest 0; the last
 *                      four may be left as they are if n <= 4 */
#ifndef ML_KERNELS_SVE_MATVEC_H
#define ML_KERNELS_SVE_MATVEC_H

#include "../inline.h"
#include "../neon/eight_lanes.h"

ML_INLINE v8 add_terms(v8 sum, const int8_t *w, const float *d, const activations *x, int b, int n) {
  int32_t sums[8];
  eight_blocks(sums, w, x, b, n);
  sum.low = add_four(sum.low, vld1q_s32(sums), d, x->d + b, n);
  if (n > 4) {
    sum.high = add_four(sum.high, vld1q_s32(sums + 4), d + 4, x->d + b + 4, n - 4);
  }
  return sum;
}

#include "../vector/matvec_rows.h"

#endif
