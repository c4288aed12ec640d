/* SPDX-License-Identifier: BSD-3-Clause
 * y += a x. */
#include "neon.h"
#include "v16.h"

#include "../vector/float_ops.h"

void ml_k_axpy_f32_neon(float *y, float a, const float *x, int n) {
  vector_axpy(y, a, x, n);
}
