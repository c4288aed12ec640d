/* SPDX-License-Identifier: BSD-3-Clause
 * g = silu(g) * u. */
#include "float.h"
#include "scalar.h"

void ml_k_silu_mul_scalar(float *g, const float *u, int n) {
  for (int i = 0; i < n; i++) {
    g[i] = (g[i] / (1.0f + ml_exp_scalar(-g[i]))) * u[i];
  }
}
