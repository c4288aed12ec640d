/* SPDX-License-Identifier: BSD-3-Clause
 * Activations to Q8_0. */
#include <smmintrin.h>

#include "../inline.h"
#include "sse41.h"

ML_INLINE __m128i max_epi32(__m128i a, __m128i b) {
  return _mm_max_epi32(a, b);
}

#include "../sse2/quantize.h"

void ml_k_quantize_q8_sse41(ml_qact *out, const float *x, int k) {
  vector_quantize_q8(out, x, k);
}
