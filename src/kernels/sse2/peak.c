/* SPDX-License-Identifier: BSD-3-Clause
 * The loops of ml_k_peak_* (vector/peak.h): int16, which bytes have to be widened to, two products at once. */
#include "peak_registers.h"

#define BYTE_MADDS 8

ML_INLINE ints step_q8(ints a, ints next, ints b, ints *sum) {
  (void)next;
  a = _mm_madd_epi16(a, b);
  *sum = _mm_add_epi32(*sum, a);
  return a;
}

#define step_q4 step_q8

#include "../vector/peak.h"
