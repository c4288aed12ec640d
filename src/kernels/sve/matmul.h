/* SPDX-License-Identifier: BSD-3-Clause
 * Products with many vectors: SDOT spreads a word of x over the rows itself. A panel has sixteen rows; a vector takes as many of them as it has
 * lanes, whatever its length. The including file has defined PANEL_ROWS 16, pack and BLOCK_BYTES (neon/pack_q8.h or pack_q4.h) and MATVEC
 * (vector/matmul_panels.h). */
#ifndef ML_KERNELS_SVE_MATMUL_H
#define ML_KERNELS_SVE_MATMUL_H

#include <arm_sve.h>

#include "../neon/panel.h"

/* sum + the products of four words with the sixteen activations in each quarter of x. */
ML_INLINE svint32_t add_words(svint32_t sum, svint8_t w0, svint8_t w1, svint8_t w2, svint8_t w3, svint8_t x) {
  return svdot_lane(svdot_lane(svdot_lane(svdot_lane(sum, w0, x, 0), w1, x, 1), w2, x, 2), w3, x, 3);
}

ML_INLINE void add_terms(svbool_t rows, float *lane, int first, svint32_t sums, svfloat32_t dw, svfloat32_t dx) {
  svfloat32_t term = svmul_x(rows, svcvt_f32_x(rows, sums), svmul_x(rows, dw, dx));
  svst1(rows, lane, svadd_x(rows, first ? svdup_f32(0.0f) : svld1(rows, lane), term));
}

/* What add_block does, for one vector of rows from r on or for two, which share the loads of x. */
ML_INLINE void add_rows(int vectors, int r, float *lane, int first, const panel_block *w, const float *d, const ml_qact *x, int b,
                        int columns) {
  int next = vectors == 2 ? r + (int)svcntw() : r, blocks = x->n / ML_QK;
  svbool_t upper = svwhilelt_b32(r, PANEL_ROWS), lower = svwhilelt_b32(next, PANEL_ROWS);
  svbool_t upper_bytes = svwhilelt_b8(4 * r, 4 * PANEL_ROWS), lower_bytes = svwhilelt_b8(4 * next, 4 * PANEL_ROWS);
#define UPPER(i) svld1(upper_bytes, w->word[i] + 4 * r)
#define LOWER(i) svld1(lower_bytes, w->word[i] + 4 * next)
  svint8_t u0 = UPPER(0), u1 = UPPER(1), u2 = UPPER(2), u3 = UPPER(3), u4 = UPPER(4), u5 = UPPER(5), u6 = UPPER(6), u7 = UPPER(7);
  svint8_t l0 = LOWER(0), l1 = LOWER(1), l2 = LOWER(2), l3 = LOWER(3), l4 = LOWER(4), l5 = LOWER(5), l6 = LOWER(6), l7 = LOWER(7);
#undef UPPER
#undef LOWER
  svfloat32_t d_upper = svld1(upper, d + r), d_lower = svld1(lower, d + next);
  const svint32_t zero = svdup_s32(0);
  const int8_t *q = x->q + (size_t)b * ML_QK;
  const float *dx = x->d + b;
  for (int c = 0; c < columns; c++, q += x->n, dx += blocks, lane += PANEL_ROWS) {
    svint8_t x0 = svld1rq(svptrue_b8(), q), x1 = svld1rq(svptrue_b8(), q + 16);
    svfloat32_t scale = svdup_f32(*dx);
    if (vectors == 2) {
      add_terms(upper, lane + r, first, add_words(add_words(zero, u0, u1, u2, u3, x0), u4, u5, u6, u7, x1), d_upper, scale);
      add_terms(lower, lane + next, first, add_words(add_words(zero, l0, l1, l2, l3, x0), l4, l5, l6, l7, x1), d_lower, scale);
    } else { /* two chains: A64FX takes nine cycles for each link */
      svint32_t sums = svadd_x(upper, add_words(zero, u0, u1, u2, u3, x0), add_words(zero, u4, u5, u6, u7, x1));
      add_terms(upper, lane + r, first, sums, d_upper, scale);
    }
  }
}

ML_INLINE void add_block(float *lane, int first, const panel_block *w, const float *d, const ml_qact *x, int b, int columns) {
  int lanes = (int)svcntw();
  if (2 * lanes <= PANEL_ROWS) {
    for (int r = 0; r < PANEL_ROWS; r += 2 * lanes) {
      add_rows(2, r, lane, first, w, d, x, b, columns);
    }
  } else {
    for (int r = 0; r < PANEL_ROWS; r += lanes) {
      add_rows(1, r, lane, first, w, d, x, b, columns);
    }
  }
}

#include "../vector/matmul_panels.h"

#endif
