/* SPDX-License-Identifier: BSD-3-Clause
 * Softmax in place. */
#include "float.h"
#include "fold.h"
#include "scalar.h"

void ml_k_softmax_scalar(float *x, int n) {
  float max = x[0];
  for (int i = 1; i < n; i++) {
    max = x[i] > max ? x[i] : max;
  }
  float lane[16] = {0};
  for (int i = 0; i < n; i++) {
    x[i] = ml_exp_scalar(x[i] - max);
    lane[i % 16] = lane[i % 16] + x[i];
  }
  float inverse = 1.0f / ml_fold(lane, 16);
  for (int i = 0; i < n; i++) {
    x[i] = x[i] * inverse;
  }
}
