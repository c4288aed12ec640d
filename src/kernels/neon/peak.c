/* SPDX-License-Identifier: BSD-3-Clause
 * The loops of ml_k_peak_* (vector/peak.h). Two products of bytes fit int16, all 32 of four bits and bytes in a block do. */
#include "peak_registers.h"

#define BYTE_MADDS 16

#ifdef __aarch64__
#define MLAL_HIGH vmlal_high_s8
#else
#define MLAL_HIGH(sum, x, y) vmlal_s8(sum, vget_high_s8(x), vget_high_s8(y))
#endif

ML_INLINE ints step_q8(ints a, ints next, ints b, ints *sum) {
  (void)sum;
  int8x16_t x = vreinterpretq_s8_s32(next), y = vreinterpretq_s8_s32(b);
  return vpadalq_s16(a, MLAL_HIGH(vmull_s8(vget_low_s8(x), vget_low_s8(y)), x, y));
}

ML_INLINE ints step_q4(ints a, ints next, ints b, ints *sum) {
  (void)sum;
  int8x16_t x = vreinterpretq_s8_s32(next), y = vreinterpretq_s8_s32(b);
  return vreinterpretq_s32_s16(MLAL_HIGH(vmlal_s8(vreinterpretq_s16_s32(a), vget_low_s8(x), vget_low_s8(y)), x, y));
}

#include "../vector/peak.h"
