/* SPDX-License-Identifier: BSD-3-Clause
 * Attention scores. */
#include "neon.h"
#include "v16.h"

#include "../vector/float_ops.h"

void ml_k_scores_f32_neon(float *y, size_t stride, const float *q, int queries, const float *k, int positions, int n, float factor) {
  vector_scores(y, stride, q, queries, k, positions, n, factor);
}
