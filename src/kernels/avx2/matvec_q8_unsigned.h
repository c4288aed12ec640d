/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q8_0 weights with 256-bit registers and vpdpbusd: w + 128 is its unsigned operand, and 128 times the sum of the activations is
 * taken off. That is one operation where signs would take two, and exact for w = -128 too. The including file has defined
 *   __m256i dot_bytes(__m256i u, __m256i s)   vpdpbusd: to each lane the sum of four products of unsigned and signed bytes */
#ifndef ML_KERNELS_AVX2_MATVEC_Q8_UNSIGNED_H
#define ML_KERNELS_AVX2_MATVEC_Q8_UNSIGNED_H

#include "../inline.h"
#include "../kernels.h"
#include "add_up8.h"

/* The activations with 128 times the sum of each block. */
typedef struct {
  const int8_t *q;
  const float *d;
  _Alignas(32) int32_t sums_128[ML_MAX_COLS / ML_QK + 8];
} activations;

#define BLOCK_BYTES ML_Q8_BLOCK_BYTES
#define ROWS 1 /* measured: two rows share the loads of x, but are two streams */

static void prepare(activations *out, const ml_qact *x) {
  const __m256i all_128 = _mm256_set1_epi8(-128);
  int blocks = x->n / ML_QK;
  out->q = x->q;
  out->d = x->d;
  for (int b = 0; b < blocks; b += 8) {
    const int8_t *q = x->q + b * ML_QK;
    int n = blocks - b;
#define BLOCK(i) ((i) < n ? dot_bytes(all_128, load256(q + (i)*ML_QK)) : _mm256_setzero_si256())
    _mm256_store_si256((__m256i *)(void *)(out->sums_128 + b), ADD_UP_BLOCKS(n));
#undef BLOCK
  }
}

/* Eight partial sums of one block with weights of w + 128. */
ML_INLINE __m256i block_dot(const int8_t *w, const int8_t *q) {
  return dot_bytes(_mm256_xor_si256(load256(w), _mm256_set1_epi8(-128)), load256(q));
}

ML_INLINE __m256i eight_blocks(const int8_t *w, const activations *x, int b, int n) {
  const int8_t *q = x->q + b * ML_QK;
  w += b * BLOCK_BYTES;
#define BLOCK(i) ((i) < n ? block_dot(w + (i)*BLOCK_BYTES, q + (i)*ML_QK) : _mm256_setzero_si256())
  return _mm256_sub_epi32(ADD_UP_BLOCKS(n), _mm256_load_si256((const __m256i *)(const void *)(x->sums_128 + b)));
#undef BLOCK
}

#include "matvec.h"

#endif
