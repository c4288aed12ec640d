/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q4_0 weights with 256-bit registers: the nibble as it is, 0 to 15, is the unsigned operand; 8 times the sum of the activations
 * is taken off. The including file has included avx2/add_up8.h and defined
 *   __m256i two_dots(__m256i w, const int8_t *low, const int8_t *high)
 *                      partial sums of two blocks, one in each half: the low nibbles of w times 32 bytes at low, the high nibbles times 32 at high
 *   __m256i add_up_dots(__m256i a, __m256i b, __m256i c, __m256i d)
 *                      int32 lanes a b c d | a b c d, the sums of either half of four such */
#ifndef ML_KERNELS_AVX2_MATVEC_Q4_H
#define ML_KERNELS_AVX2_MATVEC_Q4_H

#include "../inline.h"
#include "../vector/split_activations.h"

/* The sums of eight blocks in order, from partial sums of blocks 0 1, 2 3, 4 5, 6 7. */
ML_INLINE __m256i in_order(__m256i a, __m256i b, __m256i c, __m256i d) {
  return _mm256_permutevar8x32_epi32(add_up_dots(a, b, c, d), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Weights of the next two blocks of n, zeros for those that do not exist. */
ML_INLINE __m256i load_pair(const int8_t *w, int n) {
  if (n >= 2) {
    return load256(w);
  }
  return n < 1 ? _mm256_setzero_si256()
               : _mm256_inserti128_si256(_mm256_setzero_si256(), _mm_loadu_si128((const __m128i *)(const void *)w), 0);
}

ML_INLINE __m256i eight_blocks(const int8_t *w, const activations *x, int b, int n) {
  const int8_t *low = x->low + b * BLOCK_BYTES, *high = x->high + b * BLOCK_BYTES;
#define PAIR(i) two_dots(load_pair(w + 32 * (i), n - 2 * (i)), low + 32 * (i), high + 32 * (i))
  __m256i sums = in_order(PAIR(0), PAIR(1), PAIR(2), PAIR(3));
#undef PAIR
  return _mm256_sub_epi32(sums, load256(x->eight_sums + b));
}

#include "matvec.h"

#endif
