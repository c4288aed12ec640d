/* SPDX-License-Identifier: BSD-3-Clause
 * The last two steps of four folds at once. */
#ifndef ML_KERNELS_SSE2_FOLD4_H
#define ML_KERNELS_SSE2_FOLD4_H

#include <xmmintrin.h>

#include "../inline.h"

/* y[i] = ((0 + 2) + (1 + 3) of register i) * factor */
ML_INLINE void v4_fold4(float *y, __m128 a, __m128 b, __m128 c, __m128 d, float factor) {
  __m128 ab = _mm_add_ps(_mm_movelh_ps(a, b), _mm_movehl_ps(b, a)); /* a0+a2 a1+a3 b0+b2 b1+b3 */
  __m128 cd = _mm_add_ps(_mm_movelh_ps(c, d), _mm_movehl_ps(d, c));
  __m128 sums = _mm_add_ps(_mm_shuffle_ps(ab, cd, _MM_SHUFFLE(2, 0, 2, 0)), _mm_shuffle_ps(ab, cd, _MM_SHUFFLE(3, 1, 3, 1)));
  _mm_storeu_ps(y, _mm_mul_ps(sums, _mm_set1_ps(factor)));
}

#endif
