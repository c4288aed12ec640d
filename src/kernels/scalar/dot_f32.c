/* SPDX-License-Identifier: BSD-3-Clause
 * Dot product over sixteen lanes. */
#include "fold.h"
#include "scalar.h"

float ml_k_dot_f32_scalar(const float *a, const float *b, int n) {
  float lane[16] = {0};
  for (int i = 0; i < n; i++) {
    lane[i % 16] = lane[i % 16] + a[i] * b[i];
  }
  return ml_fold(lane, 16);
}
