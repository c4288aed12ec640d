/* SPDX-License-Identifier: BSD-3-Clause
 * y += x. */
#include "neon.h"
#include "v16.h"

#include "../vector/float_ops.h"

void ml_k_add_neon(float *y, const float *x, int n) {
  vector_add(y, x, n);
}
