/* SPDX-License-Identifier: BSD-3-Clause
 * Matrix-vector kernels with registers of four lanes, both block formats.
 *
 * The including file has defined activations, whose q are the activations and d their scales, prepare, BLOCK_BYTES and STREAMS (matvec_rows.h),
 * what v8_of_4.h asks for, and
 *   i4 block_dot(const int8_t *w, q)       partial sums of a block; q is of the type that activations has
 *   i4 add_up4(i4, i4, i4, i4)             lane i is the sum of the four lanes of the i-th
 *   i4_zero()
 *   FINISH(sums, x, b)                     the integer sums of blocks b to b + 3, from their partial sums added up
 *   FOUR_BLOCKS_ARE_DONE()                 stands between two groups of four blocks */
#ifndef ML_KERNELS_VECTOR_MATVEC_OF_4_H
#define ML_KERNELS_VECTOR_MATVEC_OF_4_H

#include "v8_of_4.h"

/* The integer sums of the n blocks at w with blocks b to b + n - 1 of x in order, 0 < n, at most four; the rest 0. */
ML_INLINE i4 four_blocks(const int8_t *w, const activations *x, int b, int n) {
#define BLOCK(i) ((i) < n ? block_dot(w + (i)*BLOCK_BYTES, x->q + (b + (i)) * ML_QK) : i4_zero())
  i4 sums = add_up4(BLOCK(0), BLOCK(1), BLOCK(2), BLOCK(3));
#undef BLOCK
  return FINISH(sums, x, b);
}

ML_INLINE v8 add_terms(v8 sum, const int8_t *w, const float *d, const activations *x, int b, int n) {
  sum.low = add_four(sum.low, four_blocks(w, x, b, n), d, x->d + b, n);
  if (n > 4) {
    FOUR_BLOCKS_ARE_DONE();
    sum.high = add_four(sum.high, four_blocks(w + 4 * BLOCK_BYTES, x, b + 4, n - 4), d + 4, x->d + b + 4, n - 4);
  }
  return sum;
}

#include "matvec_rows.h"

#endif
