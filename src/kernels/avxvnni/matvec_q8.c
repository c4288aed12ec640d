/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q8_0 weights: w + 128 is the unsigned operand of vpdpbusd, and 128 times the sum of the activations is taken off. That is one
 * operation where signs would take two, and exact for w = -128 too. */
#include "../inline.h"
#include "../avx2/add_up8.h"
#include "avxvnni.h"

/* The activations with 128 times the sum of each block. */
typedef struct {
  const int8_t *q;
  const float *d;
  _Alignas(32) int32_t sums_128[ML_MAX_COLS / ML_QK + 8];
} activations;

#define BLOCK_BYTES ML_Q8_BLOCK_BYTES

/* Eight partial sums of one block, weights given as w + 128. */
ML_INLINE __m256i block_dot(__m256i weights, const int8_t *x) {
  return _mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), weights, load256(x));
}

ML_INLINE __m256i plus_128(__m256i w) {
  return _mm256_xor_si256(w, _mm256_set1_epi8(-128));
}

/* BLOCK(0) to BLOCK(n - 1), each the partial sums of a block, added up in order; the rest 0. */
#define SUMS(n)                                            \
  add_up8(add_up4(BLOCK(0), BLOCK(1), BLOCK(2), BLOCK(3)), \
          (n) > 4 ? add_up4(BLOCK(4), BLOCK(5), BLOCK(6), BLOCK(7)) : _mm256_setzero_si256())

static void prepare(activations *out, const ml_qact *x) {
  int blocks = x->n / ML_QK;
  out->q = x->q;
  out->d = x->d;
  for (int b = 0; b < blocks; b += 8) {
    int n = blocks - b;
#define BLOCK(i) ((i) < n ? block_dot(_mm256_set1_epi8(-128), x->q + (b + (i)) * ML_QK) : _mm256_setzero_si256())
    _mm256_store_si256((__m256i *)(void *)(out->sums_128 + b), SUMS(n));
#undef BLOCK
  }
}

ML_INLINE __m256i eight_blocks(const int8_t *w, const activations *x, int b, int n) {
#define BLOCK(i) ((i) < n ? block_dot(plus_128(load256(w + (b + (i)) * BLOCK_BYTES)), x->q + (b + (i)) * ML_QK) : _mm256_setzero_si256())
  return _mm256_sub_epi32(SUMS(n), load256(x->sums_128 + b));
#undef BLOCK
}

#include "../avx2/matvec.h"

void ml_k_matvec_q8_avxvnni(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1) {
  activations a;
  prepare(&a, x);
  matvec_rows(y, W, &a, r0, r1);
}
