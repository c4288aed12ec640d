/* SPDX-License-Identifier: BSD-3-Clause
 * Root mean square normalisation. */
#include "float.h"
#include "scalar.h"

void ml_k_rmsnorm_scalar(float *o, const float *x, const float *w, int n, float eps) {
  float r = 1.0f / ml_sqrtf(ml_k_dot_f32_scalar(x, x, n) / (float)n + eps);
  for (int i = 0; i < n; i++) {
    o[i] = (x[i] * r) * w[i];
  }
}
