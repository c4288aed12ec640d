/* SPDX-License-Identifier: BSD-3-Clause
 * Attention scores, a dot product each. */
#include "scalar.h"

void ml_k_scores_f32_scalar(float *y, size_t stride, const float *q, int queries, const float *k, int positions, int n, float factor) {
  for (int i = 0; i < queries; i++) {
    for (int t = 0; t < positions; t++) {
      y[(size_t)i * stride + (size_t)t] = ml_k_dot_f32_scalar(q + (size_t)i * (size_t)n, k + (size_t)t * (size_t)n, n) * factor;
    }
  }
}
