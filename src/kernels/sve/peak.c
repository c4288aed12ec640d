/* SPDX-License-Identifier: BSD-3-Clause
 * The loops of ml_k_peak_* (vector/peak.h): SDOT, of vectors of any length; floats are NEON's, as in the kernels. */
#include <arm_sve.h>

#include "../neon/peak_floats.h"

#define BYTE_MADDS svcntb()

typedef svint32_t ints;

ML_INLINE ints ints_set1(int i) {
  return svdup_s32(i);
}

ML_INLINE int ints_any(ints a) {
  return svlastb(svpfalse(), a);
}

ML_INLINE ints step_q8(ints a, ints next, ints b, ints *sum) {
  (void)sum;
  return svdot(a, svreinterpret_s8(next), svreinterpret_s8(b));
}

#define step_q4 step_q8

#include "../vector/peak.h"
