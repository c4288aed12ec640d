/* SPDX-License-Identifier: BSD-3-Clause
 * Products with many vectors: a register is sixteen rows, and vpdpbusd takes unsigned weights and four activations that it spreads over the
 * rows itself. The including file has defined pack (vector/matmul_panels.h), BLOCK_BYTES, MATVEC and
 *   OFFSET_BITS   weights are packed with 2^OFFSET_BITS added, which is taken off times the sum of the activations */
#ifndef ML_KERNELS_AVX512VNNI_MATMUL_H
#define ML_KERNELS_AVX512VNNI_MATMUL_H

#include <string.h>

#include "v16.h"

typedef v16 vf;

#define VF_LANES 16
#define vf_load v16_load
#define vf_store v16_store
#define vf_add v16_add

ML_INLINE __m512i four_activations(const int8_t *x) {
  int32_t word;
  memcpy(&word, x, sizeof word);
  return _mm512_set1_epi32(word);
}

ML_INLINE void add_block(float *lane, int first, const panel_block *w, const float *d, const ml_qact *x, int b, int columns) {
  __m512i w0 = _mm512_load_si512(w->group[0]), w1 = _mm512_load_si512(w->group[1]), w2 = _mm512_load_si512(w->group[2]),
          w3 = _mm512_load_si512(w->group[3]), w4 = _mm512_load_si512(w->group[4]), w5 = _mm512_load_si512(w->group[5]),
          w6 = _mm512_load_si512(w->group[6]), w7 = _mm512_load_si512(w->group[7]);
  __m512 dw = _mm512_load_ps(d);
  const int8_t *q = x->q + (size_t)b * ML_QK;
  const float *dx = x->d + b;
  const int32_t *sums = x->sums + b;
  int blocks = x->n / ML_QK;
  for (int c = 0; c < columns; c++, q += x->n, dx += blocks, sums += blocks, lane += PANEL_ROWS) {
    /* Two chains: one of eight would take longer than all the rest. */
    __m512i s = _mm512_dpbusd_epi32(_mm512_setzero_si512(), w0, four_activations(q));
    __m512i t = _mm512_dpbusd_epi32(_mm512_setzero_si512(), w4, four_activations(q + 16));
    s = _mm512_dpbusd_epi32(s, w1, four_activations(q + 4));
    t = _mm512_dpbusd_epi32(t, w5, four_activations(q + 20));
    s = _mm512_dpbusd_epi32(s, w2, four_activations(q + 8));
    t = _mm512_dpbusd_epi32(t, w6, four_activations(q + 24));
    s = _mm512_dpbusd_epi32(s, w3, four_activations(q + 12));
    t = _mm512_dpbusd_epi32(t, w7, four_activations(q + 28));
    s = _mm512_sub_epi32(_mm512_add_epi32(s, t), _mm512_slli_epi32(_mm512_set1_epi32(*sums), OFFSET_BITS));
    __m512 term = _mm512_mul_ps(_mm512_cvtepi32_ps(s), _mm512_mul_ps(dw, _mm512_set1_ps(*dx)));
    _mm512_store_ps(lane, _mm512_add_ps(first ? _mm512_setzero_ps() : _mm512_load_ps(lane), term));
  }
}

#include "../vector/matmul_panels.h"

#endif
