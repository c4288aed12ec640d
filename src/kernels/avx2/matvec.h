/* SPDX-License-Identifier: BSD-3-Clause
 * What the matrix-vector kernels of 256-bit x86 share: the eight lanes of a sum in one register.
 *
 * The including file has defined activations, whose d are the scales, prepare and BLOCK_BYTES (vector/matvec_rows.h), and
 *   __m256i eight_blocks(const int8_t *w, const activations *x, int b, int n)
 *                      the integer sums of the n blocks at w with blocks b to b + n - 1 of x in order, 0 < n <= 8; the rest are any
 *                      numbers, since their scales are taken as 0 */
#ifndef ML_KERNELS_AVX2_MATVEC_H
#define ML_KERNELS_AVX2_MATVEC_H

#include "../inline.h"
#include "fold8.h"

#define STREAMS 4
#define ROWS_GO_ON

typedef __m256 v8;

ML_INLINE v8 v8_zero(void) {
  return _mm256_setzero_ps();
}

ML_INLINE float v8_fold(v8 a) {
  return fold8(a);
}

ML_INLINE v8 v8_add(v8 a, v8 b) {
  return _mm256_add_ps(a, b);
}

ML_INLINE v8 v8_before(v8 a, int n) {
  return _mm256_and_ps(a, _mm256_castsi256_ps(first_lanes(n)));
}

ML_INLINE v8 v8_from(v8 a, int n) {
  return _mm256_andnot_ps(_mm256_castsi256_ps(first_lanes(n)), a);
}

/* The first n of eight, the rest 0. */
ML_INLINE __m256 load_scales(const float *d, int n) {
  return n >= 8 ? _mm256_loadu_ps(d) : _mm256_maskload_ps(d, first_lanes(n));
}

ML_INLINE v8 add_terms(v8 sum, const int8_t *w, const float *d, const activations *x, int b, int n) {
  __m256 scale = _mm256_mul_ps(load_scales(d, n), load_scales(x->d + b, n));
  return _mm256_add_ps(sum, _mm256_mul_ps(_mm256_cvtepi32_ps(eight_blocks(w, x, b, n)), scale));
}

#include "../vector/matvec_rows.h"

#endif
