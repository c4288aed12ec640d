/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q4_0 weights, four blocks per operation: the nibble as it is, 0 to 15, is the unsigned operand of vpdpbusd; 8 times the sum of
 * the activations is taken off. */
#include <immintrin.h>

#include "../inline.h"
#include "avx512vnni.h"

#include "../vector/split_activations.h"

#define BLOCK_WORDS (ML_QK / 8)

/* Each quarter of a and b holds four partial sums of one block, of eight products each, at most 8 * 15 * 127: they fit int16. Each quarter of the
 * result is two of a, two of b. */
ML_INLINE __m512i add_up2(__m512i a, __m512i b) {
  return _mm512_madd_epi16(_mm512_packs_epi32(a, b), _mm512_set1_epi16(1));
}

/* 16 words of four bytes from p, of which `words` exist; the rest 0. */
ML_INLINE __m512i load_words(const int8_t *p, int words) {
  if (words >= 16) {
    return _mm512_loadu_si512(p);
  }
  return words <= 0 ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi32((__mmask16)((1u << words) - 1), p);
}

ML_INLINE __m256i lower_half(__m512i a) {
  return _mm512_castsi512_si256(a);
}

/* The sums of eight blocks in order, from those of blocks 0 to 3 and 4 to 7. */
ML_INLINE __m256i in_order(__m512i a, __m512i b) {
  /* Quarter i is a a b b of blocks i and 4 + i. */
  const __m512i evens = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 0, 0, 0, 0, 0, 0, 0, 0);
  const __m512i odds = _mm512_setr_epi32(1, 5, 9, 13, 3, 7, 11, 15, 0, 0, 0, 0, 0, 0, 0, 0);
  __m512i quarters = add_up2(a, b);
  return _mm256_add_epi32(lower_half(_mm512_permutexvar_epi32(evens, quarters)), lower_half(_mm512_permutexvar_epi32(odds, quarters)));
}

/* Sixteen partial sums, a quarter for each of the four blocks at w, of which n exist. */
ML_INLINE __m512i four_blocks(const int8_t *w, const int8_t *low, const int8_t *high, int n) {
  const __m512i nibble = _mm512_set1_epi8(15);
  __m512i weights = load_words(w, n * BLOCK_WORDS);
  __m512i half = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_and_si512(weights, nibble), _mm512_loadu_si512(low));
  return _mm512_dpbusd_epi32(half, _mm512_and_si512(_mm512_srli_epi16(weights, 4), nibble), _mm512_loadu_si512(high));
}

ML_INLINE __m256i eight_blocks(const int8_t *w, const activations *x, int b, int n) {
  const int8_t *low = x->low + b * BLOCK_BYTES, *high = x->high + b * BLOCK_BYTES;
  __m256i sums = in_order(four_blocks(w, low, high, n), four_blocks(w + 64, low + 64, high + 64, n - 4));
  return _mm256_sub_epi32(sums, _mm256_loadu_si256((const __m256i *)(const void *)(x->eight_sums + b)));
}

#include "../avx2/matvec.h"

void ml_k_matvec_q4_avx512vnni(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1, int apart) {
  matvec_rows(y, W, x, r0, r1, apart);
}
