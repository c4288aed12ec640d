/* SPDX-License-Identifier: BSD-3-Clause
 * Activations to Q8_0, the part that all vector ISAs share.
 *
 * The including file has defined, for 32 floats x:
 *   uint32_t highest_bits(const float *x)                              the largest bit pattern with the sign cleared
 *   int32_t quantize_block(int8_t *q, const float *x, float inverse)   q = trunc(x * inverse + copysign(0.5, x)); the sum of q */
#ifndef ML_KERNELS_VECTOR_QUANTIZE_Q8_H
#define ML_KERNELS_VECTOR_QUANTIZE_Q8_H

#include <math.h>

#include "../inline.h"
#include "../kernels.h"
#include "../scalar/float.h"

ML_INLINE void vector_quantize_q8(ml_qact *out, const float *x, int k) {
  for (int b = 0; b < k / ML_QK; b++, x += ML_QK) {
    uint32_t top = highest_bits(x);
    float amax = ml_float_from_bits(top);
    float scale = amax / 127.0f;
    if (top >= 0x7F800000u || scale < ML_D_MIN) {
      memset(out->q + b * ML_QK, 0, ML_QK);
      out->d[b] = top >= 0x7F800000u ? NAN : 0.0f;
      out->sums[b] = 0;
      continue;
    }
    out->sums[b] = quantize_block(out->q + b * ML_QK, x, 127.0f / amax);
    out->d[b] = scale;
  }
}

#endif
