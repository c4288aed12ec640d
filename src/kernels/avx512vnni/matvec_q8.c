/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q8_0 weights, two blocks per operation: w + 128 is the unsigned operand of vpdpbusd, and 128 times the sum of the activations is
 * taken off. That is one operation where signs would take three, and exact for w = -128 too. */
#include "add_up.h"
#include "avx512vnni.h"

/* The activations with 128 times the sum of each block. */
typedef struct {
  const int8_t *q;
  const float *d;
  _Alignas(32) int32_t sums_128[ML_MAX_COLS / ML_QK + 8];
} activations;

#define BLOCK_BYTES ML_Q8_BLOCK_BYTES
#define BLOCK_WORDS (ML_QK / 4)

/* The sums of eight blocks in order, from partial sums of two blocks in each register. */
ML_INLINE __m256i in_order(__m512i a, __m512i b, __m512i c, __m512i d) {
  /* Quarters 0 + 1 are blocks 0 2 4 6, quarters 2 + 3 blocks 1 3 5 7. */
  __m512i quarters = add_up4(a, b, c, d);
  __m256i low = lower_half(quarters), high = upper_half(quarters);
  __m256i sums = _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31));
  return _mm256_permutevar8x32_epi32(sums, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Sixteen partial sums of two blocks, weights given as w + 128, of which `blocks` exist. */
ML_INLINE __m512i two_dots(__m512i weights, const int8_t *x, int blocks) {
  return _mm512_dpbusd_epi32(_mm512_setzero_si512(), weights, load_words(x, blocks * BLOCK_WORDS));
}

static void prepare(activations *out, const ml_qact *x) {
  const __m512i all_128 = _mm512_set1_epi8(-128);
  int blocks = x->n / ML_QK;
  out->q = x->q;
  out->d = x->d;
  for (int b = 0; b < blocks; b += 8) {
    const int8_t *q = x->q + b * ML_QK;
    int n = blocks - b;
    __m256i sums = in_order(two_dots(all_128, q, n), two_dots(all_128, q + 64, n - 2), two_dots(all_128, q + 128, n - 4),
                            two_dots(all_128, q + 192, n - 6));
    _mm256_store_si256((__m256i *)(void *)(out->sums_128 + b), sums);
  }
}

/* 64 bytes in two loads: Zen 4 reads memory a fifth faster with 32-byte loads than with 64-byte ones, and one row at a time faster than two. */
ML_INLINE __m512i load_weights(const int8_t *w, int words) {
  if (words < 16) {
    return load_words(w, words);
  }
  __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)w), high = _mm256_loadu_si256((const __m256i *)(const void *)(w + 32));
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

#define ROWS 1

ML_INLINE __m256i eight_blocks(const int8_t *w, const activations *x, int b, int n) {
  const int8_t *q = x->q + b * ML_QK;
  w += b * BLOCK_BYTES;
/* Of blocks 2i and 2i + 1; x is 0 where they do not exist. */
#define PAIR(i) \
  two_dots(_mm512_xor_si512(load_weights(w + 64 * (i), (n - 2 * (i)) * BLOCK_WORDS), _mm512_set1_epi8(-128)), q + 64 * (i), n - 2 * (i))
  __m256i sums = in_order(PAIR(0), PAIR(1), PAIR(2), PAIR(3));
#undef PAIR
  return _mm256_sub_epi32(sums, _mm256_load_si256((const __m256i *)(const void *)(x->sums_128 + b)));
}

#include "../avx2/matvec.h"

void ml_k_matvec_q8_avx512vnni(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1) {
  activations a;
  prepare(&a, x);
  matvec_rows(y, W, &a, r0, r1);
}
