/* SPDX-License-Identifier: BSD-3-Clause
 * y += x. */
#include "scalar.h"

void ml_k_add_scalar(float *y, const float *x, int n) {
  for (int i = 0; i < n; i++) {
    y[i] = y[i] + x[i];
  }
}
