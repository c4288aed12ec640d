/* SPDX-License-Identifier: BSD-3-Clause
 * Activations to Q8_0. */
#include <math.h>
#include <string.h>

#include "float.h"
#include "scalar.h"

static void quantize_block(int8_t *q, float *d, int32_t *sum, const float *x) {
  /* The bits of floats without their signs sort as the floats do, and NaN and infinity come out on top. */
  uint32_t top = 0;
  for (int i = 0; i < ML_QK; i++) {
    uint32_t bits = ml_float_bits(x[i]) & 0x7FFFFFFFu;
    top = bits > top ? bits : top;
  }
  memset(q, 0, ML_QK);
  *sum = 0;
  if (top >= 0x7F800000u) {
    *d = NAN;
    return;
  }
  float amax = ml_float_from_bits(top);
  float scale = amax / 127.0f;
  if (scale < ML_D_MIN) {
    *d = 0.0f;
    return;
  }
  float inverse = 127.0f / amax;
  for (int i = 0; i < ML_QK; i++) {
    float half = ml_float_from_bits((ml_float_bits(x[i]) & 0x80000000u) | 0x3F000000u); /* 0.5 with the sign of x */
    q[i] = (int8_t)(x[i] * inverse + half);
    *sum += q[i];
  }
  *d = scale;
}

void ml_k_quantize_q8_scalar(ml_qact *out, const float *x, int k) {
  for (int b = 0; b < k / ML_QK; b++) {
    quantize_block(out->q + b * ML_QK, out->d + b, out->sums + b, x + b * ML_QK);
  }
}
