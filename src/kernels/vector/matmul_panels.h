/* SPDX-License-Identifier: BSD-3-Clause
 * Products of a matrix with many vectors, the part that all vector ISAs share.
 *
 * A panel of rows is copied so that a lane of a vector is a row: with four bytes (or two int16) of every row side by side, the integer sum of a
 * block needs no shuffles. The copy is used for all columns. The eight lanes of the contract are eight rows of floats for each column.
 *
 * The including file has defined
 *   PANEL_ROWS               rows of a panel
 *   BLOCK_BYTES              bytes of one block of weights in the matrix
 *   panel_block              the quants of one block of PANEL_ROWS rows
 *   void pack(panel_block *out, const int8_t *w, size_t row_bytes)            from the block at w and those of the rows below it
 *   void add_block(float *lane, int first, const panel_block *w, const float *d, const ml_qact *x, int b, int columns)
 *                            lane[c * PANEL_ROWS + r] += (float)s * (d[r] * dx), for block b of x's columns; s is the integer sum. If it is the
 *                            first of the lane, a constant 0 or 1, that is +0 before
 *   vf, VF_LANES             floats in one register; vf_load, vf_store, vf_add
 *   MATVEC                   the matvec kernel for the rows that are left over
 * and may have defined
 *   TILE_COLUMNS             so many columns are done at once: their lanes and the panel share the first-level cache */
#ifndef ML_KERNELS_VECTOR_MATMUL_PANELS_H
#define ML_KERNELS_VECTOR_MATMUL_PANELS_H

#include <stddef.h>
#include <string.h>

#include "../inline.h"
#include "../prefetch.h"

/* A panel has so many blocks at most, a multiple of 8, that it stays in the second-level cache; longer rows take several. */
#define PANEL_BLOCKS 64
/* So many columns share a panel. */
#define SHARING_COLUMNS 128
/* With fewer, copying costs more than it saves. */
#define COLUMNS_MIN 3

#ifndef TILE_COLUMNS
#define TILE_COLUMNS 16
#endif

#define LANE (TILE_COLUMNS * PANEL_ROWS)

typedef struct {
  panel_block q[PANEL_BLOCKS];
  _Alignas(64) float d[PANEL_BLOCKS][PANEL_ROWS];
} panel;

/* Blocks b to b + n - 1 of the PANEL_ROWS rows from r on. */
static void fill_panel(panel *out, const ml_qtensor *W, int r, int b, int n) {
  size_t blocks = (size_t)W->cols / ML_QK, row_bytes = blocks * BLOCK_BYTES;
  const int8_t *w = W->q + (size_t)r * row_bytes + (size_t)b * BLOCK_BYTES;
  const float *d = W->d + (size_t)r * blocks + b;
  for (int i = 0; i < n; i++) {
    pack(&out->q[i], w + i * BLOCK_BYTES, row_bytes);
    for (int row = 0; row < PANEL_ROWS; row++) {
      out->d[i][row] = d[(size_t)row * blocks + (size_t)i];
    }
  }
}

/* The eight lanes of each column, folded in halves. */
ML_INLINE void fold_lanes(float *y, size_t stride, const float *lanes, int columns) {
  for (int c = 0; c < columns; c++, y += stride, lanes += PANEL_ROWS) {
    for (int r = 0; r < PANEL_ROWS; r += VF_LANES) {
      vf even = vf_add(vf_add(vf_load(lanes + r), vf_load(lanes + 4 * LANE + r)),
                       vf_add(vf_load(lanes + 2 * LANE + r), vf_load(lanes + 6 * LANE + r)));
      vf odd = vf_add(vf_add(vf_load(lanes + LANE + r), vf_load(lanes + 5 * LANE + r)),
                      vf_add(vf_load(lanes + 3 * LANE + r), vf_load(lanes + 7 * LANE + r)));
      vf_store(y + r, vf_add(even, odd));
    }
  }
}

/* The same segment of the rows behind a panel, of which each tile of columns fetches its part: it comes from memory while the panel is multiplied. */
ML_INLINE void prefetch_next(const ml_qtensor *W, int r, int b0, int n, int c, int columns) {
  size_t first = (size_t)(r + PANEL_ROWS) * (size_t)W->cols / ML_QK + (size_t)PANEL_ROWS * (size_t)b0;
  size_t segment = (size_t)PANEL_ROWS * (size_t)n, width = TILE_COLUMNS, at = (size_t)c, all = (size_t)columns;
  size_t begin = first + segment * at / all, end = first + segment * (at + width < all ? at + width : all) / all;
  ml_prefetch(W->q, begin * BLOCK_BYTES, end * BLOCK_BYTES);
  ml_prefetch(W->d, begin * sizeof *W->d, end * sizeof *W->d);
}

/* Rows r to r + PANEL_ROWS - 1 for at most SHARING_COLUMNS columns. */
static void panel_rows(float *y, size_t stride, const ml_qtensor *W, const ml_qact *x, int columns, int r) {
  _Alignas(64) panel p;
  /* For each tile of columns its eight lanes; several only where rows are longer than a panel. */
  _Alignas(64) float lanes[SHARING_COLUMNS / TILE_COLUMNS][8 * LANE];
  int blocks = W->cols / ML_QK;
  for (int b0 = 0; b0 < blocks; b0 += PANEL_BLOCKS) {
    int n = blocks - b0 < PANEL_BLOCKS ? blocks - b0 : PANEL_BLOCKS;
    fill_panel(&p, W, r, b0, n);
    for (int c = 0; c < columns; c += TILE_COLUMNS) {
      int width = columns - c < TILE_COLUMNS ? columns - c : TILE_COLUMNS;
      float *tile = lanes[blocks > PANEL_BLOCKS ? c / TILE_COLUMNS : 0];
      ml_qact tile_x = ml_qact_column(x, c);
      prefetch_next(W, r, b0, n, c, columns);
      for (int i = 0; i < n; i++) {
        float *lane = tile + i % 8 * LANE;
        if (b0 + i < 8) { /* instead of clearing the lanes, which took a fifteenth of the time with AVX-512 */
          add_block(lane, 1, &p.q[i], p.d[i], &tile_x, b0 + i, width);
        } else {
          add_block(lane, 0, &p.q[i], p.d[i], &tile_x, b0 + i, width);
        }
      }
      if (blocks < 8) {
        memset(tile + blocks * LANE, 0, (size_t)(8 - blocks) * LANE * sizeof *tile);
      }
      if (b0 + n == blocks) {
        fold_lanes(y + (size_t)c * stride + r, stride, tile, width);
      }
    }
  }
}

ML_INLINE void matmul_panels(float *y, size_t stride, const ml_qtensor *W, const ml_qact *x, int columns, int r0, int r1) {
  int r = r0;
  for (; columns >= COLUMNS_MIN && r + PANEL_ROWS <= r1; r += PANEL_ROWS) {
    for (int c = 0; c < columns; c += SHARING_COLUMNS) {
      ml_qact shared = ml_qact_column(x, c);
      panel_rows(y + (size_t)c * stride, stride, W, &shared, columns - c < SHARING_COLUMNS ? columns - c : SHARING_COLUMNS, r);
    }
  }
  for (int c = 0; r < r1 && c < columns; c++) {
    ml_qact column = ml_qact_column(x, c);
    MATVEC(y + (size_t)c * stride, W, &column, r, r1, 0);
  }
}

#endif
