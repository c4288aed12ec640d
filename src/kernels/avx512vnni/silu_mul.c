/* SPDX-License-Identifier: BSD-3-Clause
 * g = silu(g) * u. */
#include "avx512vnni.h"
#include "v16.h"

#include "../vector/float_ops.h"

void ml_k_silu_mul_avx512vnni(float *g, const float *u, int n) {
  vector_silu_mul(g, u, n);
}
