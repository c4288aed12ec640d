/* SPDX-License-Identifier: BSD-3-Clause
 * Products with many vectors (neon/matmul.h): SDOT spreads a word of x over the rows itself. */
#ifndef ML_KERNELS_NEON_DOTPROD_MATMUL_H
#define ML_KERNELS_NEON_DOTPROD_MATMUL_H

#include "../neon/four_rows.h"

ML_INLINE int32x4_t dot(four_rows w, int8x16_t x0, int8x16_t x1) {
  int32x4_t sum = vdotq_laneq_s32(vdupq_n_s32(0), w.w0, x0, 0);
  sum = vdotq_laneq_s32(sum, w.w1, x0, 1);
  sum = vdotq_laneq_s32(sum, w.w2, x0, 2);
  sum = vdotq_laneq_s32(sum, w.w3, x0, 3);
  sum = vdotq_laneq_s32(sum, w.w4, x1, 0);
  sum = vdotq_laneq_s32(sum, w.w5, x1, 1);
  sum = vdotq_laneq_s32(sum, w.w6, x1, 2);
  return vdotq_laneq_s32(sum, w.w7, x1, 3);
}

#include "../neon/matmul.h"

#endif
