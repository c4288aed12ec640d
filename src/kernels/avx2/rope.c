/* SPDX-License-Identifier: BSD-3-Clause
 * Rotary position embedding, four interleaved pairs at a time. */
#include <immintrin.h>

#include "../scalar/rope_pair.h"
#include "avx2.h"

static void rotate(float *x, const float *cos_t, const float *sin_t, int head_dim, int heads) {
  /* c0 c1 c2 c3 -> c0 c0 c1 c1 c2 c2 c3 c3 */
  const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  for (int h = 0; h < heads; h++, x += head_dim) {
    int i = 0;
    for (; i + 4 <= head_dim / 2; i += 4) {
      __m256 c = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(cos_t + i)), twice);
      __m256 s = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(sin_t + i)), twice);
      __m256 v = _mm256_loadu_ps(x + 2 * i);
      __m256 swapped = _mm256_permute_ps(v, _MM_SHUFFLE(2, 3, 0, 1));
      /* even lanes a c - b s, odd lanes b c + a s */
      _mm256_storeu_ps(x + 2 * i, _mm256_addsub_ps(_mm256_mul_ps(v, c), _mm256_mul_ps(swapped, s)));
    }
    for (; i < head_dim / 2; i++) {
      ml_rope_pair(x + 2 * i, cos_t[i], sin_t[i]);
    }
  }
}

void ml_k_rope_avx2(float *q, float *k, const float *cos_t, const float *sin_t, int head_dim, int n_heads, int n_kv_heads) {
  rotate(q, cos_t, sin_t, head_dim, n_heads);
  rotate(k, cos_t, sin_t, head_dim, n_kv_heads);
}
