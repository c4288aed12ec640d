/* SPDX-License-Identifier: BSD-3-Clause
 * Four rows of a panel in registers, and what multiplies them. */
#ifndef ML_KERNELS_NEON_FOUR_ROWS_H
#define ML_KERNELS_NEON_FOUR_ROWS_H

#include "panel.h"

/* The eight words of a block (panel.h). */
typedef struct {
  int8x16_t w0, w1, w2, w3, w4, w5, w6, w7;
} four_rows;

ML_INLINE four_rows load_rows(const panel_block *w, int r) {
#define WORD(i) vld1q_s8(w->word[i] + 4 * r)
  return (four_rows){WORD(0), WORD(1), WORD(2), WORD(3), WORD(4), WORD(5), WORD(6), WORD(7)};
#undef WORD
}

/* Stands in the loop that uses w: otherwise A64 compilers prepare the halves of all words before it, and have no registers for them. */
ML_INLINE void keep_whole(four_rows *w) {
#ifdef __aarch64__
  __asm__("" : "+w"(w->w0), "+w"(w->w1), "+w"(w->w2), "+w"(w->w3), "+w"(w->w4), "+w"(w->w5), "+w"(w->w6), "+w"(w->w7));
#else
  (void)w;
#endif
}

/* x, of which the compiler knows no more than that: GCC would load each word of it again, and Clang take its halves apart. */
ML_INLINE int8x16_t opaque(int8x16_t x) {
  __asm__("" : "+w"(x));
  return x;
}

/* Word i of x for all four rows; the products of the words w and x for rows 2 and 3, and those added to sum. */
#ifdef __aarch64__
#define SPREAD(x, i) opaque(vreinterpretq_s8_s32(vdupq_laneq_s32(vreinterpretq_s32_s8(x), i)))
#define MULL_HIGH vmull_high_s8
#define MLAL_HIGH vmlal_high_s8
#else
#define SPREAD(x, i) \
  vreinterpretq_s8_s32(vdupq_lane_s32((i) < 2 ? vget_low_s32(vreinterpretq_s32_s8(x)) : vget_high_s32(vreinterpretq_s32_s8(x)), (i) % 2))
#define MULL_HIGH(w, x) vmull_s8(vget_high_s8(w), vget_high_s8(x))
#define MLAL_HIGH(sum, w, x) vmlal_s8(sum, vget_high_s8(w), vget_high_s8(x))
#endif

#endif
