/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q4_0 weights with 256-bit registers: the nibble as it is, 0 to 15, is the unsigned operand; 8 times the sum of the activations
 * is taken off. The including file has included avx2/add_up8.h and defined
 *   __m256i two_dots(__m256i w, const int8_t *x)
 *                      eight partial sums, lanes 0..3 of the first block, 4..7 of the second: the low nibbles of w times 32 bytes at x, the
 *                      high nibbles times the 32 after them */
#ifndef ML_KERNELS_AVX2_MATVEC_Q4_H
#define ML_KERNELS_AVX2_MATVEC_Q4_H

#include <string.h>

#include "../inline.h"
#include "../kernels.h"

/* The activations as two blocks of weights need them: low halves of both blocks, then high halves; and 8 times the sum of each block. */
typedef struct {
  _Alignas(32) int8_t q[ML_MAX_COLS + 8 * ML_QK];
  _Alignas(32) int32_t eight_sums[ML_MAX_COLS / ML_QK + 8];
  const float *d;
} activations;

#define BLOCK_BYTES ML_Q4_BLOCK_BYTES

static void prepare(activations *out, const ml_qact *x) {
  int blocks = x->n / ML_QK;
  out->d = x->d;
  for (int b = 0; b < blocks; b += 2) {
    __m256i first = load256(x->q + b * ML_QK);
    __m256i second = b + 1 < blocks ? load256(x->q + (b + 1) * ML_QK) : _mm256_setzero_si256();
    _mm256_store_si256((__m256i *)(void *)(out->q + b * ML_QK), _mm256_permute2x128_si256(first, second, 0x20));
    _mm256_store_si256((__m256i *)(void *)(out->q + (b + 1) * ML_QK), _mm256_permute2x128_si256(first, second, 0x31));
  }
  /* The last group of eight reads beyond the end: zeros there make its missing blocks 0. */
  memset(out->q + (blocks + 1) / 2 * 2 * ML_QK, 0, 8 * ML_QK);
  for (int b = 0; b < blocks; b++) {
    out->eight_sums[b] = 8 * x->sums[b];
  }
  memset(out->eight_sums + blocks, 0, 8 * sizeof(int32_t));
}

/* The sums of eight blocks in order, from partial sums of blocks 0 1, 2 3, 4 5, 6 7. */
ML_INLINE __m256i in_order(__m256i a, __m256i b, __m256i c, __m256i d) {
  return _mm256_permutevar8x32_epi32(add_up4(a, b, c, d), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
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
  const int8_t *q = x->q + b * ML_QK;
  w += b * BLOCK_BYTES;
  __m256i sums = in_order(two_dots(load_pair(w, n), q), two_dots(load_pair(w + 32, n - 2), q + 64),
                          two_dots(load_pair(w + 64, n - 4), q + 128), two_dots(load_pair(w + 96, n - 6), q + 192));
  return _mm256_sub_epi32(sums, load256(x->eight_sums + b));
}

#include "matvec.h"

#endif
