/* SPDX-License-Identifier: BSD-3-Clause
 * Values added up with their weights. */
#include "neon.h"
#include "v16.h"

#include "../vector/float_ops.h"

void ml_k_mix_f32_neon(float *y, const float *p, size_t stride, int queries, const float *v, int positions, int n) {
  vector_mix(y, p, stride, queries, v, positions, n);
}
