/* SPDX-License-Identifier: BSD-3-Clause
 * The loops of ml_k_peak_* (vector/peak.h). Products of bytes are widened two by two; sixteen products of four bits
 * fit int16, so that this is one operation for a whole block. */
#include "peak_registers.h"

#define BYTE_MADDS 32

ML_INLINE ints step_q8(ints a, ints next, ints b, ints *sum) {
  (void)next;
  a = _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), b);
  *sum = _mm256_add_epi32(*sum, a);
  return a;
}

ML_INLINE ints step_q4(ints a, ints next, ints b, ints *sum) {
  (void)next;
  a = _mm256_maddubs_epi16(a, b);
  *sum = _mm256_add_epi16(*sum, a);
  return a;
}

#include "../vector/peak.h"
