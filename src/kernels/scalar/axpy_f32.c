/* SPDX-License-Identifier: BSD-3-Clause
 * y += a x. */
#include "scalar.h"

void ml_k_axpy_f32_scalar(float *y, float a, const float *x, int n) {
  for (int i = 0; i < n; i++) {
    y[i] = y[i] + a * x[i];
  }
}
