/* SPDX-License-Identifier: BSD-3-Clause
 * Sums of groups of a panel (panel.h). The including file has included panel.h and defined
 *   __m128i add_products(__m128i sum, __m128i w, __m128i x)   sum and the products of one group of four rows with the activations in x */
#ifndef ML_KERNELS_SSE2_ADD_GROUPS_H
#define ML_KERNELS_SSE2_ADD_GROUPS_H

/* s + the products of one group of all rows with the activations that stand in all lanes of x. */
ML_INLINE row_sums add_group(row_sums s, const uint8_t *w, __m128i x) {
  s.a = add_products(s.a, load_rows(w), x);
  s.b = add_products(s.b, load_rows(w + 16), x);
  s.c = add_products(s.c, load_rows(w + 32), x);
  s.d = add_products(s.d, load_rows(w + 48), x);
  ML_NOW(s.a);
  ML_NOW(s.b);
  ML_NOW(s.c);
  ML_NOW(s.d);
  return s;
}

/* The same of four groups, each with its quarter of x. */
ML_INLINE row_sums add_four_groups(row_sums s, const uint8_t group[][4 * PANEL_ROWS], __m128i x) {
  s = add_group(s, group[0], _mm_shuffle_epi32(x, _MM_SHUFFLE(0, 0, 0, 0)));
  s = add_group(s, group[1], _mm_shuffle_epi32(x, _MM_SHUFFLE(1, 1, 1, 1)));
  s = add_group(s, group[2], _mm_shuffle_epi32(x, _MM_SHUFFLE(2, 2, 2, 2)));
  return add_group(s, group[3], _mm_shuffle_epi32(x, _MM_SHUFFLE(3, 3, 3, 3)));
}

#endif
