/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q8_0 weights, two blocks per operation: w + 128 is the unsigned operand of vpdpbusd, and 128 times the sum of the activations is
 * taken off. That is one operation where signs would take three, and exact for w = -128 too. */
#include "add_up4.h"
#include "avx512vnni.h"

/* The activations with 128 times the sum of each block. */
typedef struct {
  const int8_t *q;
  const float *d;
  _Alignas(64) int32_t sums_128[ML_MAX_COLS / ML_QK + 16];
} activations;

#define BLOCK_BYTES ML_Q8_BLOCK_BYTES
#define BLOCK_WORDS (ML_QK / 4)

/* Partial sums of two blocks in either half, from four registers each: the sums of blocks 0 to 7 (abcd) and 8 to 15 (efgh) in order. */
static inline __m512i in_order(__m512i abcd, __m512i efgh) {
  /* Quarters 0 + 1 of abcd are blocks 0 2 4 6, quarters 2 + 3 blocks 1 3 5 7. */
  const __m512i order = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
  __m512i even = _mm512_shuffle_i32x4(abcd, efgh, _MM_SHUFFLE(2, 0, 2, 0));
  __m512i odd = _mm512_shuffle_i32x4(abcd, efgh, _MM_SHUFFLE(3, 1, 3, 1));
  return _mm512_permutexvar_epi32(order, _mm512_add_epi32(even, odd));
}

/* Sixteen partial sums of two blocks, weights given as w + 128. Missing blocks of x are 0. */
static inline __m512i two_dots(__m512i weights, const int8_t *x, int blocks) {
  return _mm512_dpbusd_epi32(_mm512_setzero_si512(), weights, load_words(x, blocks * BLOCK_WORDS));
}

static inline __m512i plus_128(__m512i w) {
  return _mm512_xor_si512(w, _mm512_set1_epi8(-128));
}

/* The sums of PAIR(0) to PAIR(7), each the partial sums of two blocks, of which n exist. */
#define SUMS(n) \
  in_order(add_up4(PAIR(0), PAIR(1), PAIR(2), PAIR(3)), (n) > 8 ? add_up4(PAIR(4), PAIR(5), PAIR(6), PAIR(7)) : _mm512_setzero_si512())

static void prepare(activations *out, const ml_qact *x) {
  int blocks = x->n / ML_QK;
  out->q = x->q;
  out->d = x->d;
  for (int b = 0; b < blocks; b += 16) {
    int n = blocks - b;
#define PAIR(i) two_dots(_mm512_set1_epi8(-128), x->q + (b + 2 * (i)) * ML_QK, n - 2 * (i))
    _mm512_store_si512(out->sums_128 + b, SUMS(n));
#undef PAIR
  }
}

static inline __m512i sixteen_blocks(const int8_t *w, const activations *x, int b, int n) {
#define PAIR(i) \
  two_dots(plus_128(load_words(w + (b + 2 * (i)) * BLOCK_BYTES, (n - 2 * (i)) * BLOCK_WORDS)), x->q + (b + 2 * (i)) * ML_QK, n - 2 * (i))
  return _mm512_sub_epi32(SUMS(n), _mm512_load_si512(x->sums_128 + b));
#undef PAIR
}

#include "matvec.h"

void ml_k_matvec_q8_avx512vnni(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1) {
  activations a;
  prepare(&a, x);
  matvec_rows(y, W, &a, r0, r1);
}
