/* SPDX-License-Identifier: BSD-3-Clause
 * The loops of ml_k_peak_* (vector/peak.h): vpdpbusd. */
#include "../avx2/peak_registers.h"

#define BYTE_MADDS 32

ML_INLINE ints step_q8(ints a, ints next, ints b, ints *sum) {
  (void)sum;
  return _mm256_dpbusd_avx_epi32(a, next, b);
}

#define step_q4 step_q8

#include "../vector/peak.h"
