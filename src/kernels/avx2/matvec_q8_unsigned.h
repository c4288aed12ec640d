/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q8_0 weights with 256-bit registers and vpdpbusd: w + 128 is its unsigned operand, and 128 times the sum of the activations is
 * taken off. That is one operation where signs would take two, and exact for w = -128 too. The including file has defined
 *   __m256i dot_bytes(__m256i u, __m256i s)   vpdpbusd: to each lane the sum of four products of unsigned and signed bytes */
#ifndef ML_KERNELS_AVX2_MATVEC_Q8_UNSIGNED_H
#define ML_KERNELS_AVX2_MATVEC_Q8_UNSIGNED_H

#include "../inline.h"
#include "../kernels.h"
#include "add_up8.h"
#include "fold8.h"

#include "../vector/plain_activations.h"

/* The first n of eight, the rest 0. */
ML_INLINE __m256i first_sums(const int32_t *sums, int n) {
  return n >= 8 ? load256(sums) : _mm256_maskload_epi32(sums, first_lanes(n));
}

/* Eight partial sums of one block with weights of w + 128. */
ML_INLINE __m256i block_dot(const int8_t *w, const int8_t *q) {
  return dot_bytes(_mm256_xor_si256(load256(w), _mm256_set1_epi8(-128)), load256(q));
}

ML_INLINE __m256i eight_blocks(const int8_t *w, const activations *x, int b, int n) {
  const int8_t *q = x->q + b * ML_QK;
#define BLOCK(i) ((i) < n ? block_dot(w + (i)*BLOCK_BYTES, q + (i)*ML_QK) : _mm256_setzero_si256())
  return _mm256_sub_epi32(ADD_UP_BLOCKS(n), _mm256_slli_epi32(first_sums(x->sums + b, n), 7));
#undef BLOCK
}

#include "matvec.h"

#endif
