/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q4_0 weights, four blocks per operation: the nibble as it is, 0 to 15, is the unsigned operand of vpdpbusd; 8 times the sum of
 * the activations is taken off. */
#include "add_up4.h"
#include "avx512vnni.h"

/* The activations as four blocks of weights need them: the low halves of four blocks, then their high halves, zeros for blocks that do not
 * exist; and 8 times the sum of each block. */
typedef struct {
  _Alignas(64) int8_t q[ML_MAX_COLS + 16 * ML_QK];
  _Alignas(64) int32_t eight_sums[ML_MAX_COLS / ML_QK + 16];
  const float *d;
} activations;

#define BLOCK_BYTES ML_Q4_BLOCK_BYTES
#define BLOCK_WORDS (ML_QK / 8)

/* Sixteen partial sums, a quarter for each of four blocks: low times the 64 bytes at x, high times the 64 after them. */
static inline __m512i four_dots(__m512i low, __m512i high, const int8_t *x) {
  __m512i half = _mm512_dpbusd_epi32(_mm512_setzero_si512(), low, _mm512_load_si512(x));
  return _mm512_dpbusd_epi32(half, high, _mm512_load_si512(x + 64));
}

/* The sums of sixteen blocks in order, from those of blocks 0 to 3, 4 to 7, 8 to 11, 12 to 15. */
static inline __m512i in_order(__m512i a, __m512i b, __m512i c, __m512i d) {
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_epi32(order, add_up4(a, b, c, d));
}

static void prepare(activations *out, const ml_qact *x) {
  int blocks = x->n / ML_QK;
  /* Of two registers with two blocks each: the low halves of all four, and the high halves. */
  const __m512i low = _mm512_setr_epi64(0, 1, 4, 5, 8, 9, 12, 13), high = _mm512_setr_epi64(2, 3, 6, 7, 10, 11, 14, 15);
  const __m512i eight = _mm512_set1_epi8(8);
  out->d = x->d;
  for (int b = 0; b < blocks; b += 16) {
    for (int i = b; i < b + 16; i += 4) {
      int8_t *q = out->q + i * ML_QK;
      __m512i first = load_words(x->q + i * ML_QK, (blocks - i) * (ML_QK / 4));
      __m512i second = load_words(x->q + (i + 2) * ML_QK, (blocks - i - 2) * (ML_QK / 4));
      _mm512_store_si512(q, _mm512_permutex2var_epi64(first, low, second));
      _mm512_store_si512(q + 64, _mm512_permutex2var_epi64(first, high, second));
    }
    const int8_t *q = out->q + b * ML_QK;
    _mm512_store_si512(out->eight_sums + b, in_order(four_dots(eight, eight, q), four_dots(eight, eight, q + 128),
                                                     four_dots(eight, eight, q + 256), four_dots(eight, eight, q + 384)));
  }
}

/* Of the four blocks at w, of which n exist. */
static inline __m512i four_blocks(const int8_t *w, const int8_t *x, int n) {
  const __m512i nibble = _mm512_set1_epi8(15);
  __m512i weights = load_words(w, n * BLOCK_WORDS);
  return four_dots(_mm512_and_si512(weights, nibble), _mm512_and_si512(_mm512_srli_epi16(weights, 4), nibble), x);
}

static inline __m512i sixteen_blocks(const int8_t *w, const activations *x, int b, int n) {
  const int8_t *q = x->q + b * ML_QK;
  w += b * BLOCK_BYTES;
  __m512i sums = in_order(four_blocks(w, q, n), four_blocks(w + 64, q + 128, n - 4), four_blocks(w + 128, q + 256, n - 8),
                          four_blocks(w + 192, q + 384, n - 12));
  return _mm512_sub_epi32(sums, _mm512_load_si512(x->eight_sums + b));
}

#include "matvec.h"

void ml_k_matvec_q4_avx512vnni(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1) {
  activations a;
  prepare(&a, x);
  matvec_rows(y, W, &a, r0, r1);
}
