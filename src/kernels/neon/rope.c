/* SPDX-License-Identifier: BSD-3-Clause
 * Rotary position embedding, four interleaved pairs at a time. */
#include <arm_neon.h>

#include "../scalar/rope_pair.h"
#include "neon.h"

static void rotate(float *x, const float *cos_t, const float *sin_t, int head_dim, int heads) {
  for (int h = 0; h < heads; h++, x += head_dim) {
    int i = 0;
    for (; i + 4 <= head_dim / 2; i += 4) {
      float32x4_t c = vld1q_f32(cos_t + i), s = vld1q_f32(sin_t + i);
      float32x4x2_t pair = vld2q_f32(x + 2 * i), turned;
      turned.val[0] = vsubq_f32(vmulq_f32(pair.val[0], c), vmulq_f32(pair.val[1], s));
      turned.val[1] = vaddq_f32(vmulq_f32(pair.val[0], s), vmulq_f32(pair.val[1], c));
      vst2q_f32(x + 2 * i, turned);
    }
    for (; i < head_dim / 2; i++) {
      ml_rope_pair(x + 2 * i, cos_t[i], sin_t[i]);
    }
  }
}

void ml_k_rope_neon(float *q, float *k, const float *cos_t, const float *sin_t, int head_dim, int n_heads, int n_kv_heads) {
  rotate(q, cos_t, sin_t, head_dim, n_heads);
  rotate(k, cos_t, sin_t, head_dim, n_kv_heads);
}
