/* SPDX-License-Identifier: BSD-3-Clause
 * y = W x for Q8_0 weights (avx2/matvec_q8_unsigned.h). With 256 bits: on Zen 4 two blocks in 512 bits were 6 % slower from
 * memory and 7 to 26 % from the caches. */
#include <immintrin.h>

#include "../inline.h"
#include "avx512vnni.h"

ML_INLINE __m256i dot_bytes(__m256i u, __m256i s) {
  return _mm256_dpbusd_epi32(_mm256_setzero_si256(), u, s);
}

#include "../avx2/matvec_q8_unsigned.h"

void ml_k_matvec_q8_avx512vnni(float *y, const ml_qtensor *W, const ml_qact *x, int r0, int r1, int apart) {
  matvec_rows(y, W, x, r0, r1, apart);
}
