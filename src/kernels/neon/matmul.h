/* SPDX-License-Identifier: BSD-3-Clause
 * Products with many vectors for NEON: the weights of a block stay in registers for all columns. The including file has defined PANEL_ROWS 8,
 * pack and BLOCK_BYTES (pack_q8.h or pack_q4.h), MATVEC (vector/matmul_panels.h), and
 *   int32x4_t dot(four_rows w, int8x16_t x0, int8x16_t x1)   the sum of each row times the 32 activations x0, x1 */
#ifndef ML_KERNELS_NEON_MATMUL_H
#define ML_KERNELS_NEON_MATMUL_H

#include "four_rows.h"

/* ARMv7 has registers for four rows, A64 for eight, which share the loads of x. */
#ifdef __aarch64__
#define ROWS 8
#else
#define ROWS 4
#endif

/* The terms of a block, for one lane of four rows. */
ML_INLINE void add_terms(float *lane, int first, int32x4_t sums, v4 dw, v4 dx) {
  v4_store(lane, v4_add(first ? v4_set1(0.0f) : v4_load(lane), v4_mul(vcvtq_f32_s32(sums), v4_mul(dw, dx))));
}

ML_INLINE void add_block(float *lane, int first, const panel_block *w, const float *d, const ml_qact *x, int b, int columns) {
  int blocks = x->n / ML_QK;
  for (int r = 0; r < PANEL_ROWS; r += ROWS) {
    four_rows upper = load_rows(w, r), lower = load_rows(w, r + ROWS - 4);
    v4 d_upper = v4_load(d + r), d_lower = v4_load(d + r + ROWS - 4);
    const int8_t *q = x->q + (size_t)b * ML_QK;
    const float *dx = x->d + b;
    float *sum = lane + r;
    for (int c = 0; c < columns; c++, q += x->n, dx += blocks, sum += PANEL_ROWS) {
      keep_whole(&upper);
      keep_whole(&lower);
      int8x16_t x0 = opaque(vld1q_s8(q)), x1 = opaque(vld1q_s8(q + 16));
      add_terms(sum, first, dot(upper, x0, x1), d_upper, v4_set1(*dx));
      if (ROWS == 8) {
        add_terms(sum + 4, first, dot(lower, x0, x1), d_lower, v4_set1(*dx));
      }
    }
  }
}

#include "../vector/matmul_panels.h"

#endif
