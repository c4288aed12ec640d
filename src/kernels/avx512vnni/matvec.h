/* SPDX-License-Identifier: BSD-3-Clause
 * What the matrix-vector kernels share: adding up partial sums, and the terms of sixteen blocks.
 *
 * The including file has defined activations, whose d are the scales, BLOCK_BYTES (vector/matvec_rows.h), and
 *   __m512i sixteen_blocks(const int8_t *w, const activations *x, int b, int n)
 *                      the integer sums of blocks b to b + n - 1 of the row w in order, 0 < n <= 16, the rest 0 */
#ifndef ML_KERNELS_AVX512VNNI_MATVEC_H
#define ML_KERNELS_AVX512VNNI_MATVEC_H

#include "v16.h"

#define STEP 16

typedef __m256 v8;

static inline v8 v8_zero(void) {
  return _mm256_setzero_ps();
}

static inline float v8_fold(v8 a) {
  return fold8(a);
}

/* The terms of the first eight blocks are added first: a lane takes its blocks in rising order. */
static inline v8 add_terms(v8 sum, __m512i dots, __m512 dw, __m512 dx) {
  __m512 terms = _mm512_mul_ps(_mm512_cvtepi32_ps(dots), _mm512_mul_ps(dw, dx));
  return _mm256_add_ps(_mm256_add_ps(sum, _mm512_castps512_ps256(terms)), upper_half(terms));
}

static inline v8 add_step(v8 sum, const int8_t *w, const float *d, const activations *x, int b) {
  return add_terms(sum, sixteen_blocks(w, x, b, 16), _mm512_loadu_ps(d + b), _mm512_loadu_ps(x->d + b));
}

static inline v8 add_last(v8 sum, const int8_t *w, const float *d, const activations *x, int b, int n) {
  __mmask16 mask = first_of_16(n);
  return add_terms(sum, sixteen_blocks(w, x, b, n), _mm512_maskz_loadu_ps(mask, d + b), _mm512_maskz_loadu_ps(mask, x->d + b));
}

#include "../vector/matvec_rows.h"

#endif
