/* SPDX-License-Identifier: BSD-3-Clause
 * Dot product over sixteen lanes. */
#include "avx512vnni.h"
#include "v16.h"

#include "../vector/float_ops.h"

float ml_k_dot_f32_avx512vnni(const float *a, const float *b, int n) {
  return vector_dot(a, b, n);
}
