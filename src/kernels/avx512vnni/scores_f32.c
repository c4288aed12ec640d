/* SPDX-License-Identifier: BSD-3-Clause
 * Attention scores, sixteen at once: their folds share every shuffle, which one at a time are more work than the products. */
#include "avx512vnni.h"
#include "v16.h"

#include "../vector/float_ops.h"

/* Lanes l and l + 8 added up: eight of a, eight of b. */
ML_INLINE __m512 fold_8(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, _MM_SHUFFLE(1, 0, 1, 0)), _mm512_shuffle_f32x4(a, b, _MM_SHUFFLE(3, 2, 3, 2)));
}

/* Then l and l + 4: four of each sum in a quarter. */
ML_INLINE __m512 fold_4(__m512 ab, __m512 cd) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, _MM_SHUFFLE(2, 0, 2, 0)), _mm512_shuffle_f32x4(ab, cd, _MM_SHUFFLE(3, 1, 3, 1)));
}

/* The last two steps within the quarters: sum i of the quarter of a, b, c and d is element i of the quarter. */
ML_INLINE __m512 fold_quarters(__m512 a, __m512 b, __m512 c, __m512 d) {
  __m512 ab = _mm512_add_ps(_mm512_shuffle_ps(a, b, _MM_SHUFFLE(1, 0, 1, 0)), _mm512_shuffle_ps(a, b, _MM_SHUFFLE(3, 2, 3, 2)));
  __m512 cd = _mm512_add_ps(_mm512_shuffle_ps(c, d, _MM_SHUFFLE(1, 0, 1, 0)), _mm512_shuffle_ps(c, d, _MM_SHUFFLE(3, 2, 3, 2)));
  return _mm512_add_ps(_mm512_shuffle_ps(ab, cd, _MM_SHUFFLE(2, 0, 2, 0)), _mm512_shuffle_ps(ab, cd, _MM_SHUFFLE(3, 1, 3, 1)));
}

ML_INLINE __m512 sixteen_scores(const float *q, const float *k, int n) {
  v16 s[16];
  ML_UNROLL for (int t = 0; t < 16; t++) {
    s[t] = v16_set1(0.0f);
  }
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    v16 x = v16_load(q + i);
    ML_UNROLL for (int t = 0; t < 16; t++) {
      s[t] = v16_add(s[t], v16_mul(x, v16_load(k + (size_t)t * (size_t)n + i)));
    }
  }
  if (i < n) {
    v16 x = v16_load_n(q + i, n - i);
    ML_UNROLL for (int t = 0; t < 16; t++) {
      s[t] = v16_add(s[t], v16_mul(x, v16_load_n(k + (size_t)t * (size_t)n + i, n - i)));
    }
  }
  __m512 a = fold_4(fold_8(s[0], s[4]), fold_8(s[8], s[12])), b = fold_4(fold_8(s[1], s[5]), fold_8(s[9], s[13]));
  __m512 c = fold_4(fold_8(s[2], s[6]), fold_8(s[10], s[14])), d = fold_4(fold_8(s[3], s[7]), fold_8(s[11], s[15]));
  return fold_quarters(a, b, c, d);
}

void ml_k_scores_f32_avx512vnni(float *y, size_t stride, const float *q, int queries, const float *k, int positions, int n, float factor) {
  int t = 0;
  for (; t + 16 <= positions; t += 16) {
    for (int i = 0; i < queries; i++) {
      __m512 scores = sixteen_scores(q + (size_t)i * (size_t)n, k + (size_t)t * (size_t)n, n);
      _mm512_storeu_ps(y + (size_t)i * stride + t, _mm512_mul_ps(scores, _mm512_set1_ps(factor)));
    }
  }
  vector_scores(y + t, stride, q, queries, k + (size_t)t * (size_t)n, positions - t, n, factor);
}
