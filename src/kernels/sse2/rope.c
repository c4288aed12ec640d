/* SPDX-License-Identifier: BSD-3-Clause
 * Rotary position embedding, two interleaved pairs at a time. */
#include <emmintrin.h>

#include "../scalar/rope_pair.h"
#include "sse2.h"

static void rotate(float *x, const float *cos_t, const float *sin_t, int head_dim, int heads) {
  const __m128 minus_even = _mm_setr_ps(-0.0f, 0.0f, -0.0f, 0.0f);
  for (int h = 0; h < heads; h++, x += head_dim) {
    int i = 0;
    for (; i + 2 <= head_dim / 2; i += 2) {
      __m128 c = _mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)(const void *)(cos_t + i)));
      __m128 s = _mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)(const void *)(sin_t + i)));
      c = _mm_unpacklo_ps(c, c); /* c0 c0 c1 c1 */
      s = _mm_unpacklo_ps(s, s);
      __m128 v = _mm_loadu_ps(x + 2 * i);                             /* a0 b0 a1 b1 */
      __m128 swapped = _mm_shuffle_ps(v, v, _MM_SHUFFLE(2, 3, 0, 1)); /* b0 a0 b1 a1 */
      __m128 turned = _mm_xor_ps(_mm_mul_ps(swapped, s), minus_even); /* -(b s), a s, ... */
      _mm_storeu_ps(x + 2 * i, _mm_add_ps(_mm_mul_ps(v, c), turned));
    }
    if (i < head_dim / 2) {
      ml_rope_pair(x + 2 * i, cos_t[i], sin_t[i]);
    }
  }
}

void ml_k_rope_sse2(float *q, float *k, const float *cos_t, const float *sin_t, int head_dim, int n_heads, int n_kv_heads) {
  rotate(q, cos_t, sin_t, head_dim, n_heads);
  rotate(k, cos_t, sin_t, head_dim, n_kv_heads);
}
