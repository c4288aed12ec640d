/* SPDX-License-Identifier: BSD-3-Clause
 * Rotary position embedding of interleaved pairs. */
#include "rope_pair.h"
#include "scalar.h"

static void rotate(float *x, const float *cos_t, const float *sin_t, int head_dim, int heads) {
  for (int h = 0; h < heads; h++) {
    for (int i = 0; i < head_dim / 2; i++) {
      ml_rope_pair(x + h * head_dim + 2 * i, cos_t[i], sin_t[i]);
    }
  }
}

void ml_k_rope_scalar(float *q, float *k, const float *cos_t, const float *sin_t, int head_dim, int n_heads, int n_kv_heads) {
  rotate(q, cos_t, sin_t, head_dim, n_heads);
  rotate(k, cos_t, sin_t, head_dim, n_kv_heads);
}
