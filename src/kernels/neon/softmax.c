/* SPDX-License-Identifier: BSD-3-Clause
 * Softmax in place. */
#include "neon.h"
#include "v16.h"

#include "../vector/float_ops.h"

void ml_k_softmax_neon(float *x, int n) {
  vector_softmax(x, n);
}
