/* SPDX-License-Identifier: BSD-3-Clause
 * The eight lanes of matvec_rows.h in two registers of four floats. The including file has defined the functions of v4 (v16_of_4.h), i4, four
 * int32 in a register, and
 *   v4 v4_from_int(i4)   each lane as a float */
#ifndef ML_KERNELS_VECTOR_V8_OF_4_H
#define ML_KERNELS_VECTOR_V8_OF_4_H

#include "../inline.h"

/* Lanes 0 to 3, lanes 4 to 7. */
typedef struct {
  v4 low, high;
} v8;

ML_INLINE v8 v8_zero(void) {
  return (v8){v4_set1(0.0f), v4_set1(0.0f)};
}

ML_INLINE float v8_fold(v8 a) {
  return v4_fold(v4_add(a.low, a.high));
}

/* sum + (float)dots * (dw * dx) of n blocks, 0 < n; those beyond four are not looked at, and dots beyond n are 0. */
ML_INLINE v4 add_four(v4 sum, i4 dots, const float *dw, const float *dx, int n) {
  return v4_add(sum, v4_mul(v4_from_int(dots), v4_mul(v4_load_n(dw, n), v4_load_n(dx, n))));
}

#endif
