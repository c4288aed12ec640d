/* SPDX-License-Identifier: BSD-3-Clause
 * Products of Q4_0 weights with many vectors (matmul.h): all products of a block are added as int16. */
#include "neon.h"

#define PANEL_ROWS 8
#define MATVEC ml_k_matvec_q4_neon

#include "four_rows.h"
#include "pack_q4.h"

/* A product is at most 8 * 127: 32 of them, 32512, fit int16. */
ML_INLINE int32x4_t dot(four_rows w, int8x16_t x0, int8x16_t x1) {
  int8x16_t word = SPREAD(x0, 0);
  /* Of rows 0 and 1, of rows 2 and 3: four partial sums of each. */
  int16x8_t first = vmull_s8(vget_low_s8(w.w0), vget_low_s8(word)), last = MULL_HIGH(w.w0, word);
#define ADD_WORD(w, x, i)                                     \
  word = SPREAD(x, i);                                        \
  first = vmlal_s8(first, vget_low_s8(w), vget_low_s8(word)); \
  last = MLAL_HIGH(last, w, word)
  ADD_WORD(w.w1, x0, 1);
  ADD_WORD(w.w2, x0, 2);
  ADD_WORD(w.w3, x0, 3);
  ADD_WORD(w.w4, x1, 0);
  ADD_WORD(w.w5, x1, 1);
  ADD_WORD(w.w6, x1, 2);
  ADD_WORD(w.w7, x1, 3);
#undef ADD_WORD
#ifdef __aarch64__
  return vpaddlq_s16(vpaddq_s16(first, last));
#else
  return vpaddlq_s16(
      vcombine_s16(vpadd_s16(vget_low_s16(first), vget_high_s16(first)), vpadd_s16(vget_low_s16(last), vget_high_s16(last))));
#endif
}

#include "matmul.h"

void ml_k_matmul_q4_neon(float *y, size_t stride, const ml_qtensor *W, const ml_qact *x, int columns, int r0, int r1) {
  matmul_panels(y, stride, W, x, columns, r0, r1);
}
