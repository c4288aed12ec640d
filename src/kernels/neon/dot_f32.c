/* SPDX-License-Identifier: BSD-3-Clause
 * Dot product over sixteen lanes. */
#include "neon.h"
#include "v16.h"

#include "../vector/float_ops.h"

float ml_k_dot_f32_neon(const float *a, const float *b, int n) {
  return vector_dot(a, b, n);
}
