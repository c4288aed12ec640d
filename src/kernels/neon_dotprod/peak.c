/* SPDX-License-Identifier: BSD-3-Clause
 * The loops of ml_k_peak_* (vector/peak.h): SDOT. */
#include "../neon/peak_registers.h"

#define BYTE_MADDS 16

ML_INLINE ints step_q8(ints a, ints next, ints b, ints *sum) {
  (void)sum;
  return vdotq_s32(a, vreinterpretq_s8_s32(next), vreinterpretq_s8_s32(b));
}

#define step_q4 step_q8

#include "../vector/peak.h"
