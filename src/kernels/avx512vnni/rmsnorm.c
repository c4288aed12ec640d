/* SPDX-License-Identifier: BSD-3-Clause
 * Root mean square normalisation. */
#include "avx512vnni.h"
#include "v16.h"

#include "../vector/float_ops.h"

void ml_k_rmsnorm_avx512vnni(float *o, const float *x, const float *w, int n, float eps) {
  vector_rmsnorm(o, x, w, n, eps);
}
