/* SPDX-License-Identifier: BSD-3-Clause
 * Products of Q8_0 weights with many vectors (matmul.h): products of bytes as int16, two of them added before they are widened. */
#include "neon.h"

#define PANEL_ROWS 8
#define MATVEC ml_k_matvec_q8_neon

#include "four_rows.h"
#include "pack_q8.h"

/* The products of two words, for rows 0 and 1 or 2 and 3. One is at most 128 * 127: two of them, 32512, fit int16. */
#define FIRST_ROWS(v, w) vmlal_s8(vmull_s8(vget_low_s8(v), vget_low_s8(even)), vget_low_s8(w), vget_low_s8(odd))
#define LAST_ROWS(v, w) MLAL_HIGH(MULL_HIGH(v, even), w, odd)

ML_INLINE int32x4_t dot(four_rows w, int8x16_t x0, int8x16_t x1) {
  int8x16_t even = SPREAD(x0, 0), odd = SPREAD(x0, 1);
  int32x4_t first = vpaddlq_s16(FIRST_ROWS(w.w0, w.w1)), last = vpaddlq_s16(LAST_ROWS(w.w0, w.w1)); /* two partial sums of each row */
#define ADD_WORDS(v, w, x, i)                    \
  even = SPREAD(x, i), odd = SPREAD(x, (i) + 1); \
  first = vpadalq_s16(first, FIRST_ROWS(v, w));  \
  last = vpadalq_s16(last, LAST_ROWS(v, w))
  ADD_WORDS(w.w2, w.w3, x0, 2);
  ADD_WORDS(w.w4, w.w5, x1, 0);
  ADD_WORDS(w.w6, w.w7, x1, 2);
#undef ADD_WORDS
#ifdef __aarch64__
  return vpaddq_s32(first, last);
#else
  return vcombine_s32(vpadd_s32(vget_low_s32(first), vget_high_s32(first)), vpadd_s32(vget_low_s32(last), vget_high_s32(last)));
#endif
}

#include "matmul.h"

void ml_k_matmul_q8_neon(float *y, size_t stride, const ml_qtensor *W, const ml_qact *x, int columns, int r0, int r1) {
  matmul_panels(y, stride, W, x, columns, r0, r1);
}
