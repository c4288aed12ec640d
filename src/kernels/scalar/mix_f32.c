/* SPDX-License-Identifier: BSD-3-Clause
 * Values added up with their weights. */
#include "scalar.h"

void ml_k_mix_f32_scalar(float *y, const float *p, size_t stride, int queries, const float *v, int positions, int n) {
  for (int i = 0; i < queries; i++) {
    for (int t = 0; t < positions; t++) {
      ml_k_axpy_f32_scalar(y + (size_t)i * (size_t)n, p[(size_t)i * stride + (size_t)t], v + (size_t)t * (size_t)n, n);
    }
  }
}
