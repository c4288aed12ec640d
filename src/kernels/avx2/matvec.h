/* SPDX-License-Identifier: BSD-3-Clause
 * What the matrix-vector kernels of 256-bit x86 share: the eight lanes of a sum in one register.
 *
 * The including file has defined activations, whose d are the scales, BLOCK_BYTES (vector/matvec_rows.h), and
 *   __m256i eight_blocks(const int8_t *w, const activations *x, int b, int n)
 *                      the integer sums of blocks b to b + n - 1 of the row w in order, 0 < n <= 8, the rest 0 */
#ifndef ML_KERNELS_AVX2_MATVEC_H
#define ML_KERNELS_AVX2_MATVEC_H

#include "../inline.h"
#include "fold8.h"

#define STEP 8
#define STREAMS 4

typedef __m256 v8;

ML_INLINE v8 v8_zero(void) {
  return _mm256_setzero_ps();
}

ML_INLINE float v8_fold(v8 a) {
  return fold8(a);
}

ML_INLINE v8 add_step(v8 sum, const int8_t *w, const float *d, const activations *x, int b) {
  __m256 scale = _mm256_mul_ps(_mm256_loadu_ps(d + b), _mm256_loadu_ps(x->d + b));
  return _mm256_add_ps(sum, _mm256_mul_ps(_mm256_cvtepi32_ps(eight_blocks(w, x, b, 8)), scale));
}

ML_INLINE v8 add_last(v8 sum, const int8_t *w, const float *d, const activations *x, int b, int n) {
  __m256i mask = first_lanes(n);
  __m256 scale = _mm256_mul_ps(_mm256_maskload_ps(d + b, mask), _mm256_maskload_ps(x->d + b, mask));
  return _mm256_add_ps(sum, _mm256_mul_ps(_mm256_cvtepi32_ps(eight_blocks(w, x, b, n)), scale));
}

#include "../vector/matvec_rows.h"

#endif
