/* SPDX-License-Identifier: BSD-3-Clause
 * The loops of ml_k_peak_* (vector/peak.h): int16, which bytes have to be widened to, two products at once. */
#include <emmintrin.h>

#include "../inline.h"

typedef __m128i ints;
typedef __m128 floats;

#define BYTE_MADDS 8
#define FLOAT_MADDS 4

ML_INLINE ints ints_set1(int i) {
  return _mm_set1_epi32(i);
}

ML_INLINE int ints_any(ints a) {
  return _mm_cvtsi128_si32(a);
}

ML_INLINE ints step_q8(ints a, ints next, ints b, ints *sum) {
  (void)next;
  a = _mm_madd_epi16(a, b);
  *sum = _mm_add_epi32(*sum, a);
  return a;
}

ML_INLINE ints step_q4(ints a, ints next, ints b, ints *sum) {
  return step_q8(a, next, b, sum);
}

ML_INLINE floats floats_set1(float f) {
  return _mm_set1_ps(f);
}

ML_INLINE float floats_any(floats a) {
  return _mm_cvtss_f32(a);
}

ML_INLINE floats step_f32(floats a, floats b) {
  return _mm_add_ps(_mm_mul_ps(a, b), b);
}

#include "../vector/peak.h"
