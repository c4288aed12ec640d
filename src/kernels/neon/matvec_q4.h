/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q4_0 weights: the nibble as it is, 0 to 15, times x; 8 times the sum of the activations is taken off. The including file has
 * defined
 *   int32x4_t nibble_dot(int8x16_t low, int8x16_t high, const int8_t *q)   partial sums of low times 16 activations and high times the next 16 */
#ifndef ML_KERNELS_NEON_MATVEC_Q4_H
#define ML_KERNELS_NEON_MATVEC_Q4_H

#include "../inline.h"
#include "../kernels.h"

/* The activations with 8 times the sum of each block. */
typedef struct {
  const int8_t *q;
  const float *d;
  int32_t eight_sums[ML_MAX_COLS / ML_QK + 4];
} activations;

#define BLOCK_BYTES ML_Q4_BLOCK_BYTES

ML_INLINE void prepare(activations *out, const ml_qact *x) {
  int blocks = x->n / ML_QK;
  out->q = x->q;
  out->d = x->d;
  for (int b = 0; b < blocks; b++) {
    out->eight_sums[b] = 8 * x->sums[b];
  }
  /* The last group of four reads beyond the end. */
  vst1q_s32(out->eight_sums + blocks, vdupq_n_s32(0));
}

ML_INLINE int32x4_t block_dot(const int8_t *w, const int8_t *q) {
  uint8x16_t nibbles = vreinterpretq_u8_s8(vld1q_s8(w));
  int8x16_t low = vreinterpretq_s8_u8(vandq_u8(nibbles, vdupq_n_u8(15))), high = vreinterpretq_s8_u8(vshrq_n_u8(nibbles, 4));
  return nibble_dot(low, high, q);
}

#define FINISH(sums, x, b) vsubq_s32(sums, vld1q_s32((x)->eight_sums + (b)))

#include "matvec.h"

#endif
