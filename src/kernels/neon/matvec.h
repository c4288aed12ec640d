/* SPDX-License-Identifier: BSD-3-Clause
 * What the NEON matrix-vector kernels share (vector/matvec_of_4.h says what the including file has to define). */
#ifndef ML_KERNELS_NEON_MATVEC_H
#define ML_KERNELS_NEON_MATVEC_H

#include "eight_lanes.h"

ML_INLINE i4 i4_zero(void) {
  return vdupq_n_s32(0);
}

/* a..d hold four partial sums each; lane i of the result is the sum of the i-th. */
ML_INLINE i4 add_up4(i4 a, i4 b, i4 c, i4 d) {
#ifdef __aarch64__
  return vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d));
#else
  int32x2_t ab = vpadd_s32(vpadd_s32(vget_low_s32(a), vget_high_s32(a)), vpadd_s32(vget_low_s32(b), vget_high_s32(b)));
  int32x2_t cd = vpadd_s32(vpadd_s32(vget_low_s32(c), vget_high_s32(c)), vpadd_s32(vget_low_s32(d), vget_high_s32(d)));
  return vcombine_s32(ab, cd);
#endif
}

#include "../vector/matvec_of_4.h"

#endif
