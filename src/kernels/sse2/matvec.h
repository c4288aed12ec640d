/* SPDX-License-Identifier: BSD-3-Clause
 * What the matrix-vector kernels of 128-bit x86 share (vector/matvec_of_4.h says what the including file has to define). */
#ifndef ML_KERNELS_SSE2_MATVEC_H
#define ML_KERNELS_SSE2_MATVEC_H

#include "add_up4.h"
#include "v16.h"

#define STREAMS 4
/* Compilers would keep the activations of eight blocks for the second row, which sixteen registers cannot: reading them again is cheaper than the
 * stack. */
#if defined(__GNUC__)
#define FOUR_BLOCKS_ARE_DONE() __asm__ volatile("" : : : "memory")
#else
#define FOUR_BLOCKS_ARE_DONE() (void)0
#endif

ML_INLINE v4 v4_from_int(i4 v) {
  return _mm_cvtepi32_ps(v);
}

ML_INLINE i4 i4_zero(void) {
  return _mm_setzero_si128();
}

#include "../vector/matvec_of_4.h"

#endif
