/* SPDX-License-Identifier: BSD-3-Clause
 * The loops of ml_k_peak_* (vector/peak.h): vpdpbusd. */
#include <immintrin.h>

#include "../inline.h"

typedef __m512i ints;
typedef __m512 floats;

#define BYTE_MADDS 64
#define FLOAT_MADDS 16

ML_INLINE ints ints_set1(int i) {
  return _mm512_set1_epi32(i);
}

ML_INLINE int ints_any(ints a) {
  return _mm512_cvtsi512_si32(a);
}

ML_INLINE ints step_q8(ints a, ints next, ints b, ints *sum) {
  (void)sum;
  return _mm512_dpbusd_epi32(a, next, b);
}

#define step_q4 step_q8

ML_INLINE floats floats_set1(float f) {
  return _mm512_set1_ps(f);
}

ML_INLINE float floats_any(floats a) {
  return _mm512_cvtss_f32(a);
}

ML_INLINE floats step_f32(floats a, floats b) {
  return _mm512_add_ps(_mm512_mul_ps(a, b), b);
}

#include "../vector/peak.h"
