/* SPDX-License-Identifier: BSD-3-Clause
 * Softmax in place. */
#include "sse2.h"
#include "v16.h"

#include "../vector/float_ops.h"

void ml_k_softmax_sse2(float *x, int n) {
  vector_softmax(x, n);
}
