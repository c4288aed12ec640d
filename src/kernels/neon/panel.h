/* SPDX-License-Identifier: BSD-3-Clause
 * Rows side by side in panels of signed bytes, for NEON, SDOT and SVE. The including file has defined PANEL_ROWS, a multiple of 4. */
#ifndef ML_KERNELS_NEON_PANEL_H
#define ML_KERNELS_NEON_PANEL_H

#include <arm_neon.h>

#include "../inline.h"
#include "../kernels.h"
#include "v16.h"

#include "../vector/vf_of_4.h"

/* Four bytes of each row, a word, eight times. */
typedef struct {
  _Alignas(64) int8_t word[8][4 * PANEL_ROWS];
} panel_block;

/* Sixteen bytes of each of four rows to rows of words: val[i] has word i of all four. */
ML_INLINE int8x16x4_t transpose_words(const int8_t *w, size_t row_bytes) {
#define ROW(i) vreinterpretq_s32_s8(vld1q_s8(w + (i)*row_bytes))
  int32x4x2_t ab = vtrnq_s32(ROW(0), ROW(1)), cd = vtrnq_s32(ROW(2), ROW(3)); /* words 0 and 2, words 1 and 3 */
#undef ROW
#define WORD(half, i) vreinterpretq_s8_s32(vcombine_s32(vget_##half##_s32(ab.val[i]), vget_##half##_s32(cd.val[i])))
  return (int8x16x4_t){{WORD(low, 0), WORD(low, 1), WORD(high, 0), WORD(high, 1)}};
#undef WORD
}

/* Words i to i + 3 of rows r to r + 3. */
ML_INLINE void store_words(panel_block *out, int i, int r, int8x16x4_t words) {
  vst1q_s8(out->word[i] + 4 * r, words.val[0]);
  vst1q_s8(out->word[i + 1] + 4 * r, words.val[1]);
  vst1q_s8(out->word[i + 2] + 4 * r, words.val[2]);
  vst1q_s8(out->word[i + 3] + 4 * r, words.val[3]);
}

#endif
