/* SPDX-License-Identifier: BSD-3-Clause
 * The loops of ml_k_peak_* (vector/peak.h). Sixteen products of four bits fit int16 (avx2/peak.c). */
#include <smmintrin.h>

#include "../sse2/peak_registers.h"

#define BYTE_MADDS 16

ML_INLINE ints step_q8(ints a, ints next, ints b, ints *sum) {
  (void)next;
  a = _mm_madd_epi16(_mm_maddubs_epi16(a, b), b);
  *sum = _mm_add_epi32(*sum, a);
  return a;
}

ML_INLINE ints step_q4(ints a, ints next, ints b, ints *sum) {
  (void)next;
  a = _mm_maddubs_epi16(a, b);
  *sum = _mm_add_epi16(*sum, a);
  return a;
}

#include "../vector/peak.h"
