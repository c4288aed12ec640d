/* SPDX-License-Identifier: BSD-3-Clause
 * Activations to Q8_0. */
#include <emmintrin.h>

#include "../inline.h"
#include "sse2.h"

ML_INLINE __m128i max_epi32(__m128i a, __m128i b) {
  __m128i more = _mm_cmpgt_epi32(a, b);
  return _mm_or_si128(_mm_and_si128(more, a), _mm_andnot_si128(more, b));
}

#include "quantize.h"

void ml_k_quantize_q8_sse2(ml_qact *out, const float *x, int k) {
  vector_quantize_q8(out, x, k);
}
