/* SPDX-License-Identifier: BSD-3-Clause
 * What the matrix-vector kernels of 128-bit x86 share: the eight lanes of a sum in two registers.
 *
 * The including file has defined activations, whose q are the activations and d their scales, BLOCK_BYTES (vector/matvec_rows.h), and
 *   __m128i block_dot(const int8_t *w, q)                            partial sums of a block; q is of the type that activations has
 *   __m128i finish(__m128i sums, const activations *x, int b)        the integer sums of blocks b to b + 3, from the partial sums added up */
#ifndef ML_KERNELS_SSE2_MATVEC_H
#define ML_KERNELS_SSE2_MATVEC_H

#include "../inline.h"
#include "v16.h"

#define STEP 8
#define ROWS 2

/* Lanes 0 to 3, lanes 4 to 7. */
typedef struct {
  __m128 low, high;
} v8;

ML_INLINE v8 v8_zero(void) {
  return (v8){_mm_setzero_ps(), _mm_setzero_ps()};
}

ML_INLINE float v8_fold(v8 a) {
  return fold4(_mm_add_ps(a.low, a.high));
}

/* sum + (float)dots * (dw * dx), lane by lane */
ML_INLINE __m128 add_terms(__m128 sum, __m128i dots, __m128 dw, __m128 dx) {
  return _mm_add_ps(sum, _mm_mul_ps(_mm_cvtepi32_ps(dots), _mm_mul_ps(dw, dx)));
}

/* The integer sums of blocks b to b + n - 1 of the row w in order, 0 < n <= 4, the rest 0. */
ML_INLINE __m128i four_blocks(const int8_t *w, const activations *x, int b, int n) {
#define BLOCK(i) ((i) < n ? block_dot(w + (b + (i)) * BLOCK_BYTES, x->q + (b + (i)) * ML_QK) : _mm_setzero_si128())
  return finish(add_up4(BLOCK(0), BLOCK(1), BLOCK(2), BLOCK(3)), x, b);
#undef BLOCK
}

/* sum + the terms of blocks b to b + n - 1, 0 < n <= 4 */
ML_INLINE __m128 add_four(__m128 sum, const int8_t *w, const float *d, const activations *x, int b, int n) {
  return add_terms(sum, four_blocks(w, x, b, n), load_up_to_4(d + b, n), load_up_to_4(x->d + b, n));
}

ML_INLINE v8 add_step(v8 sum, const int8_t *w, const float *d, const activations *x, int b) {
  return (v8){add_four(sum.low, w, d, x, b, 4), add_four(sum.high, w, d, x, b + 4, 4)};
}

ML_INLINE v8 add_last(v8 sum, const int8_t *w, const float *d, const activations *x, int b, int n) {
  if (n < 4) {
    sum.low = add_four(sum.low, w, d, x, b, n);
    return sum;
  }
  sum.low = add_four(sum.low, w, d, x, b, 4);
  if (n > 4) {
    sum.high = add_four(sum.high, w, d, x, b + 4, n - 4);
  }
  return sum;
}

#include "../vector/matvec_rows.h"

#endif
