/* SPDX-License-Identifier: BSD-3-Clause
 * Reduction of vectors of partial sums. A vector of a power of two of lanes is halved by adding neighbours; each step keeps the order of
 * memory, whatever the length. */
#ifndef ML_KERNELS_SVE_ADD_UP_H
#define ML_KERNELS_SVE_ADD_UP_H

#include <arm_sve.h>

#include "../inline.h"

/* The sums of neighbours in a, then of neighbours in b. */
ML_INLINE svint32_t add_up2(svint32_t a, svint32_t b) {
  return svadd_x(svptrue_b32(), svuzp1(a, b), svuzp2(a, b));
}

ML_INLINE svint32_t add_up4(svint32_t a, svint32_t b, svint32_t c, svint32_t d) {
  return add_up2(add_up2(a, b), add_up2(c, d));
}

/* The sums of neighbours in a, in the first half. */
ML_INLINE svint32_t add_up1(svint32_t a) {
  return add_up2(a, a);
}

/* The first n lanes; where the vector has fewer, all of them. */
ML_INLINE void store_lanes(int32_t *p, svint32_t a, int n) {
  svst1(svwhilelt_b32(0, n), p, a);
}

/* Which of the vector's bytes, from byte `at` of n blocks of `size` bytes each, exist. Of all eight blocks they all do, and the test is not
 * needed; a vector that is longer than that is tested. */
ML_INLINE svbool_t existing(int at, int n, int size, int length) {
  return n == 8 && at + length <= 8 * size ? svptrue_b8() : svwhilelt_b8(at, n * size);
}

#endif
