/* SPDX-License-Identifier: BSD-3-Clause
 * y += x. */
#include "avx512vnni.h"
#include "v16.h"

#include "../vector/float_ops.h"

void ml_k_add_avx512vnni(float *y, const float *x, int n) {
  vector_add(y, x, n);
}
